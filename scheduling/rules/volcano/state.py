"""The working state for Volcano: GPUs that reclaim may free, and nodes by suitability.

Suitability: much free CPU and memory, evenly used resources, tightly packed CPU and memory. Source: the plugins
nodeorder and binpack of Volcano 1.15 with the weights they are shipped with, and recorded decisions (docs/model.md).
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from typing import Final

from scheduling.model.resources import Resources, sum_of
from scheduling.model.snapshot import PodGroup, Snapshot, Strategy
from scheduling.state.assignments import Assignment
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity, selection
from scheduling.state.refusals import impossible
from scheduling.state.workspace import NODES, add, check_time

TOP_SCORE: Final = 100


class VolcanoState(SchedulingState):
    """Counts GPUs of preemptible pods on nodes when pod groups come and go; evictions of a cycle do not change that."""

    tables = (*SchedulingState.tables, "preemptible_gpus", "surplus_gpus")

    def __init__(self, snapshot: Snapshot) -> None:
        self.preemptible_gpus: dict[str, dict[int, int]] = defaultdict(dict)
        """By queue and node index."""
        self.surplus_gpus: dict[str, dict[int, int]] = defaultdict(dict)
        """The same of pod groups with more pods than their minimum."""
        self._gap = (-1, 0)
        """An age of the capacities, and the largest gap then."""
        self._possible: dict[str, PodGroup] = {}
        super().__init__(snapshot, default=Strategy.SPREAD)

    def largest_gap(self) -> int:
        """The most GPUs that one node has free, now or once capacity is freed."""
        if self._gap[0] != self.capacities.age:
            self._gap = (self.capacities.age, max(max(self.capacities.gpus, default=0), 0))
        return self._gap[1]

    def is_possible(self, group: PodGroup) -> bool:
        """Whether its waiting pods could run on the empty node pool."""
        if self._possible.get(group.name) is not group:
            if impossible(self, group, group.waiting) is not None:
                return False
            self._possible[group.name] = group
        return True

    def _occupy(self, assignment: Assignment, capacity: NodeCapacity, sign: int) -> None:
        super()._occupy(assignment, capacity, sign)
        group, gpu = assignment.group, assignment.pod.requests.gpu * sign
        if group.preemptible and gpu:
            add(self.preemptible_gpus[group.queue], capacity.index, gpu)
            if len(group.pods) > group.min_member:
                add(self.surplus_gpus[group.queue], capacity.index, gpu)


class SuitableNodes:
    """Nodes for equal pods of groups that may use the same nodes. Only nodes that have changed are looked at again."""

    def __init__(self, state: SchedulingState, matching: Iterable[NodeCapacity], asked: Resources) -> None:
        self._state = state
        self._asked = asked
        self._matching = {capacity.index: capacity for capacity in matching}
        self._scores: dict[int, float] = {}
        self._keys: dict[int, tuple[float, int]] = {}
        self._sorted: list[tuple[float, int]] = []
        """Keys of the nodes with room, the best first."""
        self._point = -1

    @classmethod
    def of(cls, state: SchedulingState, group: PodGroup, asked: Resources) -> "SuitableNodes":
        """The nodes for such a pod of the group, as known from before."""
        key = ("suitable", selection(group), asked)
        return state.cached(NODES, key, lambda: cls(state, state.capacities.matching(group), asked))

    def best(self) -> NodeCapacity | None:
        """The best node that fits the pod now, else the best whose capacity is being freed."""
        now = (capacity for capacity in self.with_room() if capacity.fits(self._asked, now=True))
        return next(now, None) or self.best_later()

    def best_later(self) -> NodeCapacity | None:
        """The best node that fits the pod, now or once capacity is freed."""
        return next(self.with_room(), None)

    def with_room(self) -> Iterator[NodeCapacity]:
        """Nodes that fit the pod, now or once capacity is freed, the best first."""
        check_time()
        self._follow()
        return (self._matching[index] for _score, index in self._sorted)

    def key(self, capacity: NodeCapacity) -> tuple[float, int]:
        """Sort key of nodes, the best first."""
        if capacity.index not in self._scores:
            self._scores[capacity.index] = _score(self._state, capacity, self._asked)
        return (-self._scores[capacity.index], capacity.index)

    def _follow(self) -> None:
        """Sort the nodes again that have changed."""
        capacities = self._state.capacities
        if self._point == capacities.point:
            return
        changed = capacities.changed_since(self._point)
        self._point = capacities.point
        for index in self._matching.keys() if changed is None else changed & self._matching.keys():
            self._scores.pop(index, None)
            if (key := self._keys.pop(index, None)) is not None:
                del self._sorted[bisect_left(self._sorted, key)]
            if (capacity := self._matching[index]).fits(self._asked, now=False):
                key = self._keys[index] = self.key(capacity)
                insort(self._sorted, key)


def _score(state: SchedulingState, capacity: NodeCapacity, asked: Resources) -> float:
    """GPUs count for evenness only: if nothing else is requested, a smaller used part is better."""
    size, future, taken = capacity.node.capacity, capacity.future, capacity.node.capacity - capacity.idle
    ending = state.cached(("node", capacity.node.name), "ending", lambda: _ending(state, capacity.node.name))
    gpu = (size.gpu - future.gpu + ending.gpu + asked.gpu, size.gpu)
    cpu = (size.cpu - future.cpu + ending.cpu + asked.cpu, size.cpu)
    memory = (size.memory - future.memory + ending.memory + asked.memory, size.memory)
    least = (_free_part(*cpu) + _free_part(*memory)) // 2
    even = _evenness((gpu, cpu, memory) if asked.gpu else (cpu, memory))
    return least + even + _packed(((asked.cpu, taken.cpu, size.cpu), (asked.memory, taken.memory, size.memory)))


def _ending(state: SchedulingState, node: str) -> Resources:
    """Resources on the node of pods that were terminating before this cycle."""
    assignments = state.assignments_on[node]
    return sum_of(assignment.pod.requests for assignment in assignments if assignment.pod.terminating)


def _free_part(used: int, size: int) -> int:
    return max(size - used, 0) * TOP_SCORE // size if size else TOP_SCORE


def _evenness(used: Sequence[tuple[int, int]]) -> int:
    """100 minus the standard deviation of the used parts."""
    fractions = [min(part / whole, 1.0) if whole else 0.0 for part, whole in used]
    mean = sum(fractions) / len(fractions)
    return int((1 - sqrt(sum([(part - mean) ** 2 for part in fractions]) / len(fractions))) * TOP_SCORE)


def _packed(dimensions: Sequence[tuple[int, int, int]]) -> float:
    """Used part of requested CPU and memory afterwards; 0 if one does not fit."""
    parts = [(part + taken) / whole if whole else 0.0 for part, taken, whole in dimensions if part]
    return 0.0 if not parts or max(parts) > 1 else sum(parts) / len(parts) * TOP_SCORE
