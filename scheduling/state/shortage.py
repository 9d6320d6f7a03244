"""Which resources are short: the fewest that would have to grow for the pods to start; moves that free one node."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, islice
from typing import Final

from scheduling.model.resources import DIMENSIONS, ZERO, Resources, sum_of
from scheduling.state.node_capacity import by_size, slots

PODS: Final = "pods"
"""The dimension of a node that runs as many pods as its kubelet takes."""
ORDER: Final = ("cpu", "memory", "gpu", PODS)
"""Which to name where more of either would do: what lacks beside free GPUs."""

Space = tuple[Resources, int]
"""What a node has free, and how many more pods it takes."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """names: resources that are short; empty if no node may be used. largest: most of it on a node that fits the rest
    of the largest pod. beside: whether other nodes have enough of it, but not of the rest.
    """

    names: tuple[str, ...] = ()
    largest: Resources = ZERO
    beside: bool = False


def shortage(domains: Sequence[Sequence[Space]], pods: Sequence[Resources]) -> Shortage:
    """The shortage for pods that do not fit together into any of these domains."""
    spaces = [space for domain in domains for space in domain]
    names = next((each for each in _candidates(spaces, pods) if any(_fit(d, pods, each) for d in domains)), ())
    return measured(spaces, pods, names)


def measured(spaces: Sequence[Space], pods: Sequence[Resources], names: tuple[str, ...]) -> Shortage:
    """How much of these resources one node has for the largest pod."""
    requested = max(pods, key=by_size)
    rest, counted = requested.without(names), [name for name in DIMENSIONS if name in names]
    most = [free for free, left in spaces if left > 0 and rest.served_by(free)]
    largest = max(most, key=lambda free: [getattr(free, name) for name in counted], default=ZERO)
    lacking = requested.only(names)
    beside = not lacking.served_by(largest) and any(lacking.served_by(free) for free, _left in spaces)
    return Shortage(names, largest, beside)


def _candidates(spaces: Sequence[Space], pods: Sequence[Resources]) -> Iterator[tuple[str, ...]]:
    """Candidates: single resources before several, first those of which the nodes have too little in total."""
    needed = sum_of(pods)
    full = any(left < len(pods) for _free, left in spaces)
    names = [name for name in ORDER if name in needed.dimensions or (name == PODS and full)]
    scarce = {name for name in names if len(names) > 1 and _scarce(name, spaces, pods)}
    for number in range(1, len(names) + 1):
        yield from sorted(combinations(names, number), key=lambda each: len(set(each) - scarce))


def _scarce(name: str, spaces: Sequence[Space], pods: Sequence[Resources]) -> bool:
    if name == PODS:
        return sum(max(left, 0) for _free, left in spaces) < len(pods)
    free: list[int] = [max(getattr(amount, name), 0) for amount, _left in spaces]
    requested: list[int] = [getattr(amount, name) for amount in pods]
    return sum(free) < sum(requested) or max(free, default=0) < max(requested)


def _fit(spaces: Sequence[Space], pods: Sequence[Resources], without: tuple[str, ...]) -> bool:
    """Whether the pods would fit without these requests: largest first, each on the first node that takes it."""
    requested = [pod.without(without) for pod in pods]
    left = [(free, len(pods)) for free, _more in spaces] if PODS in without else list(spaces)
    if len(set(requested)) == 1:
        fitting = accumulate(_slots(free, more, requested[0]) for free, more in left)
        return any(count >= len(pods) for count in fitting)  # mostly the first nodes are enough
    for each in sorted(requested, key=by_size, reverse=True):
        found = next((index for index, (free, more) in enumerate(left) if more > 0 and each.served_by(free)), None)
        if found is None:
            return False
        free, more = left[found]
        left[found] = (free - each, more - 1)
    return True


def _slots(free: Resources, more: int, requested: Resources) -> int:
    return max(min(slots(free, requested), more) if requested else more, 0)


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """GPUs of one pod on a node. `at_risk`: GPU-seconds of work lost if it restarts. `movable`: it may restart."""

    workload: str
    gpu_milli: int
    at_risk: int = 0
    movable: bool = True


@dataclass(frozen=True)
class NodeGpus:
    """A node that takes pods, and what is on it."""

    name: str
    pool: str
    gpu_milli: int
    held: tuple[HeldGpus, ...] = ()

    @cached_property
    def free(self) -> int:
        return max(0, self.gpu_milli - sum(each.gpu_milli for each in self.held))


@dataclass(frozen=True, slots=True)
class PodMove:
    """A pod that would have to restart on another node."""

    pod: HeldGpus
    source: str
    target: str


MOST_MOVES: Final = 3


def helpful_moves(nodes: Sequence[NodeGpus], need: int) -> tuple[PodMove, ...]:
    """The moves that give one of these nodes room for a pod: least work lost, then fewest moves. Empty: none do.

    One pod moves where one is enough, else up to three. GPUs are counted; CPU, memory and topology are not.
    """
    rooms = sorted((node.free, number) for number, node in enumerate(nodes))
    large = (number for number, node in enumerate(nodes) if node.gpu_milli >= need > node.free)
    plans = [plan for number in large if (plan := _clear(number, nodes, rooms, need))]
    return min(plans, key=lambda plan: (sum(move.pod.at_risk for move in plan), len(plan)), default=())


Room = tuple[int, int]
"""Free GPU thousandths of a node, and its place in the list of nodes."""


def _clear(number: int, nodes: Sequence[NodeGpus], rooms: Sequence[Room], need: int) -> tuple[PodMove, ...]:
    """The cheapest pods of a node that fit elsewhere; each goes where it leaves least free."""
    node = nodes[number]
    missing, taken = need - node.free, {number: node.free}  # on itself there is no room for its own pods
    pods = sorted((pod for pod in node.held if pod.movable and pod.gpu_milli), key=lambda pod: pod.at_risk)
    largest = max((room for room, other in rooms[-2:] if other != number), default=0)
    enough = [pod for pod in pods if missing <= pod.gpu_milli <= largest]
    moves: list[PodMove] = []
    for pod in enough[:1] or pods:
        target = _tightest(rooms, taken, nodes, pod.gpu_milli)
        if missing > 0 and target is not None and len(moves) < MOST_MOVES:
            moves.append(PodMove(pod, node.name, nodes[target].name))
            taken[target] = taken.get(target, 0) + pod.gpu_milli
            missing -= pod.gpu_milli
    return tuple(moves) if missing <= 0 else ()


def _tightest(rooms: Sequence[Room], taken: Mapping[int, int], nodes: Sequence[NodeGpus], need: int) -> int | None:
    """The node with the least room that is enough, after what is `taken` of some nodes; of equal ones the first."""
    left = ((nodes[number].free - amount, number) for number, amount in taken.items())
    found = [room for room in left if room[0] >= need]
    start = bisect_left(rooms, (need, 0))
    found += islice((room for room in islice(rooms, start, None) if room[1] not in taken), 1)
    return min(found)[1] if found else None
