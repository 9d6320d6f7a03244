"""How often the model agrees with a real KAI, by family of scenarios.

    python -m tests.real.kai_agreement KUBECONFIG [COUNT] [SEED]

puts COUNT scenarios (default 70) from SEED on (default 0) to the KAI of a cluster of `lab/cluster up NAME --kai` that
holds nothing else, and prints a table, then every disagreement.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat

from tests.real.scenarios.kai_plans import FAMILIES, Answer, Plan, foretell, scenario
from tests.real.scenarios.kai_stage import KaiStage
from tests.support.kube import KubeClient

KINDS = ("placed", "pending", "preempts", "reclaims", "consolidates")


@dataclass(frozen=True, slots=True)
class Compared:
    """One decision of the real scheduler, and the model's."""

    plan: Plan
    seen: Answer
    foretold: Answer

    @property
    def agrees(self) -> bool:
        return self.seen == self.foretold

    def __str__(self) -> str:
        return f"KAI:   {self.seen}\nmodel: {self.foretold}\n{pformat(self.plan, width=150)}\n"


def compared(admin: KubeClient, seeds: Sequence[int]) -> list[Compared]:
    """Every scenario of these seeds."""
    plans = [scenario(seed) for seed in seeds]
    answers = KaiStage(admin).answers(plans)
    return [Compared(plan, seen, foretell(plan)) for plan, seen in zip(plans, answers, strict=True)]


def table(found: Sequence[Compared]) -> str:
    """Markdown: families, decisions, what became of the candidates, agreement."""
    lines = [f"| scenarios | decisions | {' | '.join(KINDS)} | agree |", f"|---|{'---|' * (len(KINDS) + 2)}"]
    for family in (*FAMILIES, "all"):
        mine = [each for each in found if family in {each.plan.family, "all"}]
        kinds = Counter(each.seen.kind for each in mine)
        counts = [len(mine), *(kinds[kind] for kind in KINDS), sum(each.agrees for each in mine)]
        lines.append(f"| {family} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main(kubeconfig: str, count: str = "70", seed: str = "0") -> None:
    """Compare and print."""
    found = compared(KubeClient(Path(kubeconfig)), range(int(seed), int(seed) + int(count)))
    sys.stdout.write(f"{table(found)}\n\n")
    sys.stdout.write("".join(f"{each}\n" for each in found if not each.agrees))


if __name__ == "__main__":
    main(*sys.argv[1:])
