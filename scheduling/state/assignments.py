"""Pods on nodes, the evictions that several of them amount to, and the GPUs that evictions may free, by node."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from scheduling.model.decisions import Evict
from scheduling.model.preemptibility import Cause
from scheduling.model.resources import Resources, sum_of
from scheduling.model.snapshot import Pod, PodGroup
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity
from scheduling.state.workspace import add, copied

Key = TypeVar("Key")
Entries = Sequence[tuple[Any, Any]]
"""Pairs of a sort key, which no other has, and what is sorted by it."""
ONE_LINE: Final = ""
"""The line of a ranking that has only one."""


class Assignment:
    """A pod on a node. leaving: terminating, or evicted in this cycle. capacity: None on unknown nodes."""

    __slots__ = ("capacity", "device", "group", "leaving", "pod")

    def __init__(self, group: PodGroup, pod: Pod, capacity: NodeCapacity | None) -> None:
        self.group = group
        self.pod = pod
        self.capacity = capacity
        self.leaving = pod.terminating
        self.device = pod.device


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """Node by pod name. now: all of them can start at once; else some wait for capacity to be freed."""

    nodes: Mapping[str, str]
    now: bool


def held(assignments: Sequence[Assignment]) -> Resources:
    """Resources that these assignments hold together."""
    return (
        assignments[0].pod.requests
        if len(assignments) == 1
        else sum_of(assignment.pod.requests for assignment in assignments)
    )


def evictions(
    assignments: Sequence[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str] | None = None
) -> list[Evict]:
    """One eviction per victim group, in order of first appearance."""
    by_group: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        by_group.setdefault(assignment.group.name, []).append(assignment)
    return [_evict(found, cause, group, moves or {}) for found in by_group.values()]


def _evict(assignments: list[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str]) -> Evict:
    return Evict(
        victim=assignments[0].group,
        pods=tuple(assignment.pod.name for assignment in assignments),
        cause=cause,
        for_group=group.name,
        nodes={
            assignment.pod.name: assignment.pod.node for assignment in assignments if assignment.pod.node is not None
        },
        moves_to={assignment.pod.name: moves[assignment] for assignment in assignments if assignment in moves},
    )


def amounts_by(amounts: Iterable[tuple[Key, Resources]]) -> dict[Key, list[Resources]]:
    """The amounts by key."""
    found: dict[Key, list[Resources]] = {}
    for key, amount in amounts:
        found.setdefault(key, []).append(amount)
    return found


@dataclass(frozen=True, slots=True)
class Ranking:
    """In which line the pods of a group are, None for none, and what is made of them there."""

    line: Callable[[PodGroup], str | None]
    make: Callable[[Sequence[Assignment]], Entries]


class RankedPods:
    """What a ranking makes of the pods of all groups, in order. Changed group by group: to sort takes longer."""

    def __init__(self, ranking: Ranking, groups: Iterable[Sequence[Assignment]]) -> None:
        self._ranking = ranking
        self.lines: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
        for pods in groups:
            if pods and (line := ranking.line(pods[0].group)) is not None:
                self.lines[line] += ranking.make(pods)
        for entries in self.lines.values():
            entries.sort()

    def copy(self) -> "RankedPods":
        found = RankedPods(self._ranking, ())
        found.lines.update((line, entries.copy()) for line, entries in self.lines.items())
        return found

    def add(self, pods: Sequence[Assignment]) -> None:
        """Add the pods of a group."""
        if (line := self._ranking.line(pods[0].group)) is not None:
            for each in self._ranking.make(pods):
                insort(self.lines[line], each)

    def remove(self, pods: Sequence[Assignment]) -> None:
        """Remove the pods of a group."""
        if (line := self._ranking.line(pods[0].group)) is not None:
            for each in self._ranking.make(pods):
                del self.lines[line][bisect_left(self.lines[line], each[:1])]


class ReclaimableGpus:
    """GPUs of preemptible pods by queue and node index, and nodes by what they have free once those are reclaimed.

    A queue gives all of them, or only those of groups with more pods than their minimum.
    """

    def __init__(self, nodes: int) -> None:
        self._all: dict[str, dict[int, int]] = defaultdict(dict)
        self._surplus: dict[str, dict[int, int]] = defaultdict(dict)
        self._summed: dict[str, bool] = {}
        """Queues in the sums, and whether they give all."""
        self._sums = [0] * nodes
        self._changed: set[int] = set()
        """Nodes whose sums have changed."""
        self._point = -1
        self._free = [0] * nodes
        """What nodes have free once those are reclaimed, at a point of the capacities."""

    def copy(self) -> "ReclaimableGpus":
        found = ReclaimableGpus(len(self._sums))
        found._all, found._surplus = copied(self._all), copied(self._surplus)
        found._summed, found._sums = self._summed.copy(), self._sums.copy()
        return found

    def add(self, group: PodGroup, index: int, gpu: int) -> None:
        """Count a pod of the group on that node; negative amounts take."""
        add(self._all[group.queue], index, gpu)
        gives = self._summed.get(group.queue)
        if len(group.pods) > group.min_member:
            add(self._surplus[group.queue], index, gpu)
            gives = gives is not None
        if gives:
            self._sums[index] += gpu
            self._changed.add(index)

    def give(self, giving: Mapping[str, bool]) -> None:
        """Note what these queues give from now on: all, or only the surplus."""
        for name, gives in giving.items():
            given = self._summed.get(name)
            if given is not gives:
                if given is not None:
                    self._count(name, gives=given, sign=-1)
                self._count(name, gives=gives, sign=1)
                self._summed[name] = gives

    def nodes(self, gpu: int, capacities: NodeCapacities) -> Iterator[int]:
        """Nodes, in order, that would have as many GPUs free as long as nothing changes."""
        changed = capacities.changed_since(self._point) if self._point >= 0 else None
        free, now, sums = self._free, capacities.gpus, self._sums
        for index in range(len(now)) if changed is None else changed | self._changed:
            free[index] = now[index] + sums[index]
        self._point = capacities.point
        self._changed.clear()
        if max(free, default=0) < gpu:
            return iter(())
        return (index for index, amount in enumerate(free) if amount >= gpu)

    def _count(self, name: str, *, gives: bool, sign: int) -> None:
        sums, amounts = self._sums, (self._all if gives else self._surplus)[name]
        for index, gpu in amounts.items():
            sums[index] += gpu * sign
        self._changed.update(amounts)


class _Weaker:
    """GPUs of work of a queue below one priority, by node index.

    most: at least what the node with most of it would have free without that work, as of a point of the capacities.
    """

    __slots__ = ("gpus", "most", "point")

    def __init__(self, gpus: dict[int, int], most: int = 0, point: int = -1) -> None:
        self.gpus, self.most, self.point = gpus, most, point

    def copy(self) -> "_Weaker":
        return _Weaker(self.gpus.copy(), self.most, self.point)


class WeakerGpus:
    """GPUs of preemptible pods below a priority by queue and node index, without terminating pods.

    An upper bound of what preemption may free: what the cycle itself has evicted counts twice.
    """

    def __init__(self, find: Callable[[str, int], dict[int, int]]) -> None:
        """find: these GPUs by node index of a queue's work below a priority, where they are first needed."""
        self._find = find
        self._below: dict[str, dict[int, _Weaker]] = {}
        self._changed: tuple[int, int, set[int] | None] = (-1, -1, None)
        """Two points of the capacities, and the nodes that changed between them."""

    def copy(self) -> "WeakerGpus":
        found = WeakerGpus(self._find)
        for name, known in self._below.items():
            found._below[name] = {priority: weaker.copy() for priority, weaker in known.items()}
        return found

    def add(self, group: PodGroup, index: int, gpu: int) -> None:
        """Count a pod of the group on that node; negative amounts take."""
        for priority, weaker in self._below.get(group.queue, {}).items():
            if group.priority < priority:
                add(weaker.gpus, index, gpu)

    def may_free(self, queue: str, priority: int, gpu: int, capacities: NodeCapacities) -> bool:
        """Whether a node of the queue's work below that priority may have as many GPUs free without it."""
        weaker = self._weaker(queue, priority)
        self._follow(weaker, capacities)
        if weaker.most >= gpu:
            self._find_most(weaker, capacities)
        return weaker.most >= gpu

    def slots(self, group: PodGroup, gpu: int, capacities: NodeCapacities) -> int:
        """How many more pods of that many GPUs may fit on nodes once all weaker work of the queue is preempted."""
        free, weaker = capacities.gpus, self._weaker(group.queue, group.priority)
        return sum([max(free[at] + more, 0) // gpu - max(free[at], 0) // gpu for at, more in weaker.gpus.items()])

    def _weaker(self, queue: str, priority: int) -> _Weaker:
        below = self._below.setdefault(queue, {})
        if priority not in below:
            below[priority] = _Weaker(self._find(queue, priority))
        return below[priority]

    def _follow(self, weaker: _Weaker, capacities: NodeCapacities) -> None:
        """Raise the bound by the nodes that have changed."""
        since, point = weaker.point, capacities.point
        if since == point:
            return
        if self._changed[:2] != (since, point):
            self._changed = (since, point, capacities.changed_since(since) if since >= 0 else None)
        changed = self._changed[2]
        if changed is None:
            self._find_most(weaker, capacities)
            return
        free, gpus = capacities.gpus, weaker.gpus
        weaker.point = point
        weaker.most = max([weaker.most, *(free[index] + gpus[index] for index in changed if index in gpus)])

    @staticmethod
    def _find_most(weaker: _Weaker, capacities: NodeCapacities) -> None:
        free = capacities.gpus
        weaker.most = max([free[index] + gpu for index, gpu in weaker.gpus.items()], default=0)
        weaker.point = capacities.point
