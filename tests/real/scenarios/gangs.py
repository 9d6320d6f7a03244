"""Scenarios of gangs from a seed: seven families, each after one rule that decides whom a gang evicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduling.model.resources import Resources
from tests.real.scenarios.generator import Draw
from tests.real.scenarios.plain import NAMESPACES, NodePlan, PodPlan, Scenario

MODES: Final = (None, "Pod", "PodGroup", "PodGroup")
WEAK: Final = (25, 40, 65, 80)
STRONG: Final = (65, 80, 125, 150)
COMER: Final = "new"


@dataclass(frozen=True, slots=True)
class GangPlan:
    """A Workload with its PodGroup. mode: disruptionMode; racked: all its pods in one rack."""

    name: str
    namespace: str
    value: int
    minimum: int
    mode: str | None = None
    racked: bool = False
    never: bool = False


@dataclass(frozen=True, slots=True)
class GangScenario(Scenario):
    """`candidate` is the first of `coming`: the pods of the gang `new`, or one pod without a gang."""

    gangs: tuple[GangPlan, ...] = ()
    coming: tuple[PodPlan, ...] = ()
    newcomer: GangPlan | None = None


class GangDraw(Draw):
    """Nodes in racks, filled with gangs first and single pods then."""

    def racked(self, least: int, most: int, sizes: Sequence[int] = (2, 4, 8)) -> list[NodePlan]:
        """Nodes, two to a rack."""
        return [replace(node, rack=f"r{index // 2}") for index, node in enumerate(self.nodes(least, most, sizes))]

    def crowd(
        self, nodes: Sequence[NodePlan], modes: Sequence[str | None], *, values: Sequence[int] = WEAK, rest: float = 0.0
    ) -> tuple[list[GangPlan], list[PodPlan]]:
        """Up to three gangs, and single pods where there is room left."""
        left = {node.name: node.capacity.gpu // 1000 for node in nodes}
        gangs, pods = [], []
        for index in range(self.dice.randint(1, 3)):
            gang, members = self._gang(f"g{index}", left, self.dice.choice(modes), values)
            if members:
                gangs.append(replace(gang, minimum=len(members)))
                pods += members
        for node in nodes:
            free = replace(node, capacity=Resources.of(gpu=left[node.name]))
            pods += self.fill(free, values, rest=rest) if left[node.name] else []
        return gangs, pods

    def _gang(
        self, name: str, left: dict[str, int], mode: str | None, values: Sequence[int]
    ) -> tuple[GangPlan, list[PodPlan]]:
        gpus, value, space = self.dice.choice((1, 1, 2)), self.dice.choice(values), self.dice.choice(NAMESPACES)
        members = []
        for _member in range(self.dice.randint(2, 4)):
            open_to_it = [node for node, free in left.items() if free >= gpus]
            if open_to_it:
                node = self.dice.choice(open_to_it)
                left[node] -= gpus
                members.append(replace(self.pod(node, Resources.of(gpu=gpus), (value,)), namespace=space, gang=name))
        return GangPlan(name, space, value, len(members), mode), members

    def newcomer(self, values: Sequence[int] = STRONG, *, beyond: int = 0) -> tuple[GangPlan, list[PodPlan]]:
        """The gang that comes: two to four pods, and so many beyond its minimum."""
        minimum, gpus = self.dice.randint(2, 4), self.dice.choice((1, 1, 2, 2, 4))
        plan = GangPlan(COMER, self.dice.choice(NAMESPACES), self.dice.choice(values), minimum)
        first = PodPlan("c0", plan.namespace, Resources.of(gpu=gpus), plan.value, gang=COMER)
        return plan, [replace(first, name=f"c{index}") for index in range(minimum + beyond)]


def together(gangs: list[GangPlan], pods: list[PodPlan]) -> tuple[list[GangPlan], list[PodPlan]]:
    """Pods of a gang of mode PodGroup start together where they share a node: which of them counts there is chance."""
    whole = {gang.name for gang in gangs if gang.mode == "PodGroup"}
    starts = {(pod.gang, pod.node): pod.start for pod in pods}
    return gangs, [replace(pod, start=starts[pod.gang, pod.node]) if pod.gang in whole else pod for pod in pods]


def _scenario(
    seed: int,
    family: str,
    nodes: Sequence[NodePlan],
    crowd: tuple[list[GangPlan], list[PodPlan]],
    newcomer: tuple[GangPlan | None, list[PodPlan]],
) -> GangScenario:
    (gangs, pods), (gang, coming) = together(*crowd) if newcomer[0] else crowd, newcomer
    base = (seed, family, tuple(nodes), tuple(pods), coming[0], None)
    return GangScenario(*base, tuple(gangs), tuple(coming), gang)


def _whole(draw: GangDraw, seed: int, family: str) -> GangScenario:
    nodes = draw.racked(2, 4)
    return _scenario(seed, family, nodes, draw.crowd(nodes, ("PodGroup",)), draw.newcomer())


def _pod_by_pod(draw: GangDraw, seed: int, family: str) -> GangScenario:
    nodes = draw.racked(2, 4)
    return _scenario(seed, family, nodes, draw.crowd(nodes, (None, "Pod")), draw.newcomer())


def _one_priority(draw: GangDraw, seed: int, family: str) -> GangScenario:
    """Everybody is equally weak: gang or not, size and start decide."""
    nodes = draw.racked(2, 3, (4, 8))
    return _scenario(seed, family, nodes, draw.crowd(nodes, MODES, values=(40,)), draw.newcomer((125,)))


def _beyond(draw: GangDraw, seed: int, family: str) -> GangScenario:
    nodes = draw.racked(2, 3)
    newcomer = draw.newcomer((80, 125, 150), beyond=draw.dice.randint(1, 2))
    return _scenario(seed, family, nodes, draw.crowd(nodes, MODES, rest=draw.dice.choice((0.0, 1.5))), newcomer)


def _topology(draw: GangDraw, seed: int, family: str) -> GangScenario:
    nodes = draw.racked(3, 6)
    plan, pods = draw.newcomer(beyond=draw.dice.randint(0, 1))
    newcomer = (replace(plan, racked=True), pods)
    return _scenario(seed, family, nodes, draw.crowd(nodes, MODES, rest=1.5), newcomer)


def _single(draw: GangDraw, seed: int, family: str) -> GangScenario:
    nodes = draw.racked(2, 4)
    return _scenario(seed, family, nodes, draw.crowd(nodes, MODES), (None, [draw.wanting((1, 2, 4), STRONG)]))


def _never(draw: GangDraw, seed: int, family: str) -> GangScenario:
    nodes = draw.racked(2, 3)
    plan, pods = draw.newcomer()
    newcomer = (replace(plan, never=True), [replace(pod, never=True) for pod in pods])
    return _scenario(seed, family, nodes, draw.crowd(nodes, MODES, rest=1.5), newcomer)


FAMILIES: Final[dict[str, Callable[[GangDraw, int, str], GangScenario]]] = {
    "whole gangs": _whole,
    "gangs pod by pod": _pod_by_pod,
    "one priority": _one_priority,
    "beyond the minimum": _beyond,
    "a topology key": _topology,
    "a single pod among gangs": _single,
    "preemptionPolicy Never": _never,
}


def gang_scenario(seed: int) -> GangScenario:
    """Always the same for a seed; its family is the seed's remainder."""
    names = list(FAMILIES)
    family = names[seed % len(names)]
    return FAMILIES[family](GangDraw(seed), seed, family)
