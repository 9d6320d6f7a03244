"""How often the model agrees with a real kube-scheduler about gangs, by family of scenarios.

    python -m tests.real.gang_agreement KUBECONFIG [COUNT] [SEED]

runs COUNT scenarios (default 70) from SEED on (default 0) on a cluster of `lab/cluster up NAME --scheduler --gang` and
prints a table, then every disagreement. The first attempt is compared: who goes for the minimum, or for one pod more.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pprint import pformat

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode
from tests.real.comparing import compare
from tests.real.scenarios import objects
from tests.real.scenarios.gang_stage import GangStage, GangVerdict
from tests.real.scenarios.gangs import FAMILIES, GangPlan, GangScenario, gang_scenario
from tests.real.scenarios.plain import Kind, PodPlan
from tests.support.kube import KubeClient

SIDE_BY_SIDE = 16  # every gang looks at all pods of all scenarios
LATER = 10**6


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """One decision of the real scheduler, and the model's."""

    scenario: GangScenario
    seen: GangVerdict
    predicted: GangVerdict

    @property
    def agrees(self) -> bool:
        return self.seen == self.predicted

    def __str__(self) -> str:
        return (
            f"seed {self.scenario.seed} ({self.scenario.family})\n"
            f"  kube-scheduler: {self.seen}\n  model:          {self.predicted}\n{pformat(self.scenario, width=150)}\n"
        )


def gang_answers(admin: KubeClient, seeds: Sequence[int]) -> Iterator[GangAnswer]:
    """Every decision in the scenarios of these seeds."""
    stage = GangStage(admin)
    for start in range(0, len(seeds), SIDE_BY_SIDE):
        if start:
            stage.clear()
        scenarios = [gang_scenario(seed) for seed in seeds[start : start + SIDE_BY_SIDE]]
        stage.furnish(scenarios)
        found = stage.come(scenarios)
        yield from (GangAnswer(each, found[each.seed], predict(each)) for each in scenarios)


def predict(scenario: GangScenario) -> GangVerdict:
    """What the model says to the minimum; if it is placed, to one pod more, until one is not."""
    least = scenario.newcomer.minimum if scenario.newcomer else 1
    for count in range(least, len(scenario.coming) + 1):
        outcome = preview(_snapshot(scenario), _newcomer(scenario, count), flavour="kube-gangs")
        if outcome.pend:
            break
    return _verdict(outcome, gang=scenario.newcomer is not None)


def _verdict(outcome: Outcome, *, gang: bool) -> GangVerdict:
    victims = frozenset(pod for evict in outcome.victims for pod in evict.pods)
    started = len(outcome.placements) if gang or not outcome.pend else 0
    kind = Kind.PREEMPTS if victims else Kind.PLACED if started else Kind.WAITS
    return GangVerdict(kind, victims, started)


def _snapshot(scenario: GangScenario) -> Snapshot:
    nodes = tuple(
        SnapshotNode(node.name, "default", node.capacity, labels={objects.RACK: node.rack}, order=order)
        for order, node in enumerate(scenario.nodes)
    )
    gangs = tuple(
        _group(gang, [pod for pod in scenario.pods if pod.gang == gang.name], minimum=gang.minimum)
        for gang in scenario.gangs
    )
    return Snapshot(nodes, (), (*gangs, *(_single(pod) for pod in scenario.pods if not pod.gang)))


def _newcomer(scenario: GangScenario, count: int) -> PodGroup:
    if scenario.newcomer is None:
        return _single(scenario.coming[0])
    return _group(scenario.newcomer, scenario.coming[:count], minimum=scenario.newcomer.minimum)


def _group(plan: GangPlan, pods: Sequence[PodPlan], *, minimum: int) -> PodGroup:
    return PodGroup(
        name=plan.name,
        queue=plan.namespace,
        namespace=plan.namespace,
        priority=plan.value,
        preemptible=True,
        pods=tuple(_pod(pod) for pod in pods),
        min_member=minimum,
        created=LATER,
        never_preempts=plan.never,
        gang=True,
        topology=objects.RACK if plan.racked else None,
        whole=plan.mode == "PodGroup",
    )


def _single(plan: PodPlan) -> PodGroup:
    return PodGroup(plan.name, plan.namespace, plan.namespace, plan.priority, True, (_pod(plan),), created=LATER)


def _pod(plan: PodPlan) -> Pod:
    return Pod(plan.name, plan.requests, plan.node, started=plan.start if plan.node else None)


def main(kubeconfig: str, count: str = "70", seed: str = "0") -> None:
    """Compare, print, clear up."""
    seeds = range(int(seed), int(seed) + int(count))
    compare(gang_answers, GangStage, FAMILIES, kubeconfig=kubeconfig, seeds=seeds)


if __name__ == "__main__":
    main(*sys.argv[1:])
