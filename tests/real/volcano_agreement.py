"""How often the model agrees with a real Volcano, by family of scenarios.

    python -m tests.real.volcano_agreement KUBECONFIG [COUNT] [SEED]

runs COUNT scenarios (default 100) from SEED on (default 0) on a cluster of `lab/cluster up NAME --volcano` and prints a
table, then every disagreement.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat

from tests.real.scenarios.volcano_plans import FAMILIES, Contest, Ruling, by_another_node, contest, predict
from tests.real.scenarios.volcano_stage import VolcanoStage
from tests.support.kube import KubeClient

SIDE_BY_SIDE = 32  # with more than a hundred nodes Volcano no longer looks at every one
KINDS = ("placed", "pending", "preempts", "reclaims", "preempts+reclaims")


@dataclass(frozen=True, slots=True)
class VolcanoAnswer:
    """One decision of the real scheduler, and the model's."""

    plan: Contest
    seen: Ruling
    predicted: Ruling

    @property
    def agrees(self) -> bool:
        return self.seen == self.predicted or self.on_an_equal_node

    @property
    def on_an_equal_node(self) -> bool:
        """Another of the nodes that are the best: Volcano's free choice."""
        return self.seen != self.predicted and self.seen in by_another_node(self.plan)

    def __str__(self) -> str:
        return (
            f"seed {self.plan.seed} ({self.plan.family})\n"
            f"  Volcano: {self.seen}\n  model:   {self.predicted}\n{pformat(self.plan, width=150)}\n"
        )


def volcano_answers(admin: KubeClient, seeds: Sequence[int]) -> Iterator[VolcanoAnswer]:
    """Every decision in the scenarios of these seeds."""
    stage = VolcanoStage(admin)
    for start in range(0, len(seeds), SIDE_BY_SIDE):
        if start:
            stage.clear()
        plans = [contest(seed) for seed in seeds[start : start + SIDE_BY_SIDE]]
        seen = stage.rulings(plans)
        yield from (VolcanoAnswer(plan, seen[plan.seed], predict(plan)) for plan in plans)


def table(found: Sequence[VolcanoAnswer]) -> str:
    """Markdown: families, scenarios, what became of the candidates, agreement."""
    head = ("scenarios", "decisions", *KINDS, "victims", "agree", "on another equal node")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for family in (*FAMILIES, "all"):
        mine = [each for each in found if family in {each.plan.family, "all"}]
        kinds = Counter(each.seen.kind for each in mine)
        counts = [len(mine), *(kinds[kind] for kind in KINDS), sum(len(each.seen.victims) for each in mine)]
        counts += [sum(each.agrees for each in mine), sum(each.on_an_equal_node for each in mine)]
        lines.append(f"| {family} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main(kubeconfig: str, count: str = "100", seed: str = "0") -> None:
    """Compare, print, clear up."""
    admin = KubeClient(Path(kubeconfig))
    try:
        found = list(volcano_answers(admin, range(int(seed), int(seed) + int(count))))
    finally:
        VolcanoStage(admin).clear()
    sys.stdout.write(f"{table(found)}\n\n")
    sys.stdout.write("".join(f"{each}\n" for each in found if not each.agrees))


if __name__ == "__main__":
    main(*sys.argv[1:])
