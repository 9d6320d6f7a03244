"""How often the model agrees with a real KAI, by family of scenarios.

    python -m tests.real.kai_agreement KUBECONFIG [COUNT] [SEED] [WHAT]

puts COUNT scenarios (default 70) from SEED on (default 0) to the KAI of a cluster of `lab/cluster up NAME --kai` that
holds nothing else, and prints a table, then every disagreement. WHAT: `quotas` (default), `near`, which is about
domains and consolidation, or `crowds`, where others wait already; the KAI has to be as it ships.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat

from tests.real.scenarios.kai_crowds import crowd
from tests.real.scenarios.kai_near import near
from tests.real.scenarios.kai_plans import Answer, Plan, predict, scenario
from tests.real.scenarios.kai_stage import KaiStage
from tests.support.kube import KubeClient

SCENARIOS: Mapping[str, Callable[[int], Plan]] = {"quotas": scenario, "near": near, "crowds": crowd}
KINDS = ("placed", "pending", "preempts", "reclaims", "consolidates")


@dataclass(frozen=True, slots=True)
class Compared:
    """One decision of the real scheduler, and the model's."""

    plan: Plan
    seen: Answer
    predicted: Answer

    @property
    def agrees(self) -> bool:
        return self.seen == self.predicted

    def __str__(self) -> str:
        return f"KAI:   {self.seen}\nmodel: {self.predicted}\n{pformat(self.plan, width=150)}\n"


def compared(admin: KubeClient, plans: Sequence[Plan], *, consolidates: bool) -> list[Compared]:
    """Every one of these, put to a KAI that moves running work, or is told not to."""
    answers = KaiStage(admin).answers(plans)
    return [
        Compared(plan, seen, predict(plan, seen.turns, consolidates=consolidates))
        for plan, seen in zip(plans, answers, strict=True)
    ]


def table(found: Iterable[Compared]) -> str:
    """Markdown: families, decisions, what became of the candidates, agreement."""
    every = list(found)
    lines = [f"| scenarios | decisions | {' | '.join(KINDS)} | agree |", f"|---|{'---|' * (len(KINDS) + 2)}"]
    for family in (*dict.fromkeys(each.plan.family for each in every), "all"):
        mine = [each for each in every if family in {each.plan.family, "all"}]
        kinds = Counter(each.seen.kind for each in mine)
        counts = [len(mine), *(kinds[kind] for kind in KINDS), sum(each.agrees for each in mine)]
        lines.append(f"| {family} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main(kubeconfig: str, count: str = "70", seed: str = "0", what: str = "quotas") -> None:
    """Compare and print."""
    plans = [SCENARIOS[what](each) for each in range(int(seed), int(seed) + int(count))]
    found = compared(KubeClient(Path(kubeconfig)), plans, consolidates=True)
    sys.stdout.write(f"{table(found)}\n\n")
    sys.stdout.write("".join(f"{each}\n" for each in found if not each.agrees))


if __name__ == "__main__":
    main(*sys.argv[1:])
