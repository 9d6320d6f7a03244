"""How often the model agrees with a real kube-scheduler, by family of scenarios.

    python -m tests.real.agreement KUBECONFIG [COUNT] [SEED]

runs COUNT scenarios (default 120) from SEED on (default 0) on a cluster of `lab/cluster up NAME --scheduler` and prints
a table, then every disagreement.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pprint import pformat

from tests.real.comparing import compare
from tests.real.scenarios.by_model import predict, predict_earlier
from tests.real.scenarios.generator import FAMILIES, scenario
from tests.real.scenarios.plain import Scenario, Verdict
from tests.real.scenarios.stage import Stage
from tests.support.kube import KubeClient

SIDE_BY_SIDE = 240


@dataclass(frozen=True, slots=True)
class Answer:
    """One decision of the real scheduler, and the model's."""

    scenario: Scenario
    seen: Verdict
    predicted: Verdict

    @property
    def agrees(self) -> bool:
        return self.seen.agrees(self.predicted)

    def __str__(self) -> str:
        return (
            f"seed {self.scenario.seed} ({self.scenario.family})\n"
            f"  kube-scheduler: {self.seen}\n  model:          {self.predicted}\n{pformat(self.scenario, width=150)}\n"
        )


def answers(admin: KubeClient, seeds: Sequence[int]) -> Iterator[Answer]:
    """Every decision in the scenarios of these seeds."""
    stage = Stage(admin)
    for start in range(0, len(seeds), SIDE_BY_SIDE):
        if start:
            stage.clear()
        yield from _side_by_side(stage, [scenario(seed) for seed in seeds[start : start + SIDE_BY_SIDE]])


def _side_by_side(stage: Stage, scenarios: Sequence[Scenario]) -> Iterator[Answer]:
    stage.furnish(scenarios)
    first = stage.decide([(each, each.earlier) for each in scenarios if each.earlier])
    last = stage.decide([(each, each.candidate) for each in scenarios])
    for each in scenarios:
        if each.earlier:
            yield Answer(each, first[each.seed], predict_earlier(each))
        yield Answer(each, last[each.seed], predict(each, first.get(each.seed)))


def main(kubeconfig: str, count: str = "120", seed: str = "0") -> None:
    """Compare, print, clear up."""
    seeds = range(int(seed), int(seed) + int(count))
    compare(answers, Stage, FAMILIES, kubeconfig=kubeconfig, seeds=seeds)


if __name__ == "__main__":
    main(*sys.argv[1:])
