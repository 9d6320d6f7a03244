"""Scenarios from a seed: twelve families, each after one rule that decides whom kube-scheduler evicts."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from scheduling.model.resources import Resources
from tests.real.scenarios.plain import NAMESPACES, NodePlan, PodPlan, Scenario

DICTIONARY: Final = (25, 40, 65, 80, 90, 125, 150)
LOW: Final = (None, None, 25, 40, 65)
ODD: Final = (None, None, -1000, -10, -1, 0, 1, 25, 1_000_000_000)
BELOW_NOTHING: Final = -(2**31)
VALUES: Final = tuple(sorted({*DICTIONARY, *(value for value in ODD if value is not None), BELOW_NOTHING}))
CLOSED: Final = ("cordoned", "tainted", "elsewhere")
LONG: Final = 600


class Draw:
    """Dice, and pods that fill nodes. Start times are never equal."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._starts = self.dice.sample(range(LONG), 200)
        self._made = 0

    def node(self, index: int, gpus: int) -> NodePlan:
        """A node where only GPUs are short."""
        return NodePlan(f"n{index}", Resources.of(gpu=gpus, cpu=64, memory="512Gi"))

    def nodes(self, least: int, most: int, sizes: Sequence[int] = (1, 2, 4, 8)) -> list[NodePlan]:
        """Nodes of different sizes."""
        return [self.node(index, self.dice.choice(sizes)) for index in range(self.dice.randint(least, most))]

    def pod(self, node: str, requests: Resources, values: Sequence[int | None]) -> PodPlan:
        """A running pod."""
        self._made += 1
        return PodPlan(
            name=f"p{self._made}",
            namespace=self.dice.choice(NAMESPACES),
            requests=requests,
            value=self.dice.choice(values),
            node=node,
            start=self._starts.pop(),
        )

    def fill(
        self, node: NodePlan, values: Sequence[int | None], *, sizes: Sequence[int] = (1, 1, 2, 4), rest: float = 0.2
    ) -> list[PodPlan]:
        """Pods until the node's GPUs are gone, or, now and then, nearly gone."""
        pods: list[PodPlan] = []
        left = node.capacity.gpu // 1000
        while left and (not pods or self.dice.random() > rest / 2):
            gpus = min(self.dice.choice(sizes), left)
            pods.append(self.pod(node.name, Resources.of(gpu=gpus), values))
            left -= gpus
        return pods

    def full(self, nodes: Sequence[NodePlan], values: Sequence[int | None], **more: Any) -> list[PodPlan]:
        """Pods on all nodes, as `fill` puts them on one."""
        return [pod for node in nodes for pod in self.fill(node, values, **more)]

    def comer(self, requests: Resources, values: Sequence[int | None], name: str = "candidate") -> PodPlan:
        """A pod that wants room."""
        return PodPlan(name, self.dice.choice(NAMESPACES), requests, self.dice.choice(values))

    def wanting(self, gpus: Sequence[int], values: Sequence[int | None] = DICTIONARY) -> PodPlan:
        """A pod that wants GPUs."""
        return self.comer(Resources.of(gpu=self.dice.choice(gpus)), values)


def _sizes(draw: Draw, seed: int, family: str) -> Scenario:
    nodes = draw.nodes(2, 5)
    return Scenario(seed, family, tuple(nodes), tuple(draw.full(nodes, DICTIONARY)), draw.wanting((1, 2, 4)))


def _reprieve(draw: Draw, seed: int, family: str) -> Scenario:
    nodes = draw.nodes(1, 2, (4, 8))
    pods = draw.full(nodes, (*LOW, 80), sizes=(1, 1, 2, 3), rest=0.0)
    return Scenario(seed, family, tuple(nodes), tuple(pods), draw.wanting((1, 2, 3, 4), (80, 125, 150)))


def _many_victims(draw: Draw, seed: int, family: str) -> Scenario:
    nodes = draw.nodes(2, 3, (8,))
    pods = draw.full(nodes, (*LOW, 80, 90), sizes=(1, 1, 1, 2), rest=0.0)
    return Scenario(seed, family, tuple(nodes), tuple(pods), draw.wanting((4, 6, 8), (90, 125, 150)))


def _ties(draw: Draw, seed: int, family: str) -> Scenario:
    """Equal nodes, few priorities: the number of victims, their sum and the start times decide."""
    nodes = [draw.node(index, 4) for index in range(draw.dice.randint(3, 5))]
    values = draw.dice.choice([(40,), (40, 65), (None, 25), (-10, None)])
    pods = draw.full(nodes, values, sizes=(1, 2, 2), rest=0.0)
    return Scenario(seed, family, tuple(nodes), tuple(pods), draw.wanting((2, 4), (125,)))


def _no_class(draw: Draw, seed: int, family: str) -> Scenario:
    """Pods without a class are 0: above negative ones, below even very-low."""
    nodes = draw.nodes(1, 4)
    pods = draw.full(nodes, (*ODD, BELOW_NOTHING))
    return Scenario(seed, family, tuple(nodes), tuple(pods), draw.wanting((1, 2), (None, None, 25, -1, -10, 1)))


def _never(draw: Draw, seed: int, family: str) -> Scenario:
    nodes = draw.nodes(1, 3)
    filled = draw.full(nodes, LOW, rest=0.5)
    pods = [replace(pod, never=pod.value is not None and draw.dice.random() < 0.4) for pod in filled]
    candidate = replace(draw.wanting((1, 2, 4), (40, 80, 150)), never=draw.dice.random() < 0.7)
    return Scenario(seed, family, tuple(nodes), tuple(pods), candidate)


def _amounts(draw: Draw, *, gpus: Sequence[int] = (0, 0, 1, 2)) -> Resources:
    dice = draw.dice
    return Resources.of(
        gpu=dice.choice(gpus),
        cpu=f"{dice.choice([0, 500, 1000, 2000, 4000])}m",
        memory=f"{dice.choice([0, 2, 8, 16])}Gi",
    )


def _mixes(draw: Draw, seed: int, family: str) -> Scenario:
    """CPU, memory and GPUs are short, each on another node."""
    nodes = [
        NodePlan(f"n{index}", Resources.of(gpu=draw.dice.choice((2, 4)), cpu=draw.dice.choice((4, 8)), memory="32Gi"))
        for index in range(draw.dice.randint(2, 4))
    ]
    pods = [pod for node in nodes for pod in _until_full(draw, node, (*LOW, 80, 125))]
    return Scenario(seed, family, tuple(nodes), tuple(pods), draw.comer(_amounts(draw), (None, *DICTIONARY)))


def _until_full(draw: Draw, node: NodePlan, values: Sequence[int | None]) -> list[PodPlan]:
    left, pods = node.capacity, []
    for _attempt in range(9):
        requested = _amounts(draw)
        if requested.fits_in(left):
            left -= requested
            pods.append(draw.pod(node.name, requested, values))
    return pods


def _overfull(draw: Draw, seed: int, family: str) -> Scenario:
    """Pods bound past the scheduler hold more than some node has."""
    base = _mixes(draw, seed, family)
    crowded = draw.dice.choice(base.nodes)
    more = [draw.pod(crowded.name, _amounts(draw), LOW) for _each in range(draw.dice.randint(1, 3))]
    return replace(base, pods=(*base.pods, *more))


def _ending(draw: Draw, seed: int, family: str) -> Scenario:
    """Some pods are being deleted already: they hold their room, and count as victims that cost nothing."""
    nodes = draw.nodes(1, 3, (2, 4))
    pods = [replace(pod, ending=draw.dice.random() < 0.4) for pod in draw.full(nodes, (*LOW, 80, 125))]
    return Scenario(seed, family, tuple(nodes), tuple(pods), draw.wanting((1, 2, 4), (25, 65, 80, 125)))


def _nominated(draw: Draw, seed: int, family: str) -> Scenario:
    """Another pod waits for its victims already: its room is kept from its equals, not from stronger ones."""
    nodes = draw.nodes(1, 2, (4, 8))
    pods: list[PodPlan] = []
    for node in nodes:
        filled = draw.fill(node, LOW, rest=0.0)
        pods += filled[draw.dice.choice((0, 1, 1)) :]
    earlier = draw.comer(Resources.of(gpu=draw.dice.choice((2, 4))), (80, 80, 90, 125), "earlier")
    candidate = draw.wanting((1, 1, 2, 4), (40, 65, 80, 90, 125, 150))
    return Scenario(seed, family, tuple(nodes), tuple(pods), candidate, earlier)


def _closed(draw: Draw, seed: int, family: str) -> Scenario:
    """Some nodes are cordoned, tainted, or do not carry the label that the candidate selects."""
    dice = draw.dice
    nodes = [replace(node, closed=dice.choice((*CLOSED, "", ""))) for node in draw.nodes(2, 5)]
    return Scenario(seed, family, tuple(nodes), tuple(draw.full(nodes, DICTIONARY)), draw.wanting((1, 2, 4)))


def _pod_limit(draw: Draw, seed: int, family: str) -> Scenario:
    """The kubelet takes no more pods, though there is room."""
    nodes = [replace(node, max_pods=draw.dice.randint(1, 4)) for node in draw.nodes(1, 3, (4, 8))]
    pods = []
    for node in nodes:
        pods += draw.fill(node, (*LOW, 80), sizes=(1, 1, 2), rest=0.3)[: node.max_pods]
    requested = Resources.of(gpu=draw.dice.choice((0, 1, 2)))
    return Scenario(seed, family, tuple(nodes), tuple(pods), draw.comer(requested, (None, 40, 80, 125)))


FAMILIES: Final[dict[str, Callable[[Draw, int, str], Scenario]]] = {
    "nodes of different sizes": _sizes,
    "victims given back": _reprieve,
    "many victims": _many_victims,
    "ties between nodes": _ties,
    "no class, zero and below": _no_class,
    "preemptionPolicy Never": _never,
    "CPU, memory and GPUs": _mixes,
    "overfull nodes": _overfull,
    "pods already ending": _ending,
    "behind a nominated pod": _nominated,
    "closed nodes and selectors": _closed,
    "pods per node": _pod_limit,
}


def scenario(seed: int) -> Scenario:
    """The scenario of a seed: the same one for ever. Its family follows from the seed too."""
    family = list(FAMILIES)[seed % len(FAMILIES)]
    return FAMILIES[family](Draw(seed), seed, family)
