"""The working state for Volcano: GPUs that reclaim may free, and nodes by suitability.

Suitability: much free CPU and memory, evenly used resources, tightly packed CPU and memory.

Source: the plugins nodeorder and binpack of Volcano 1.15 with the weights they are shipped with, and recorded decisions
(docs/model.md).
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import Final

from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import PodGroup, Snapshot, Strategy
from scheduling.state.assignments import Assignment
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity, selection
from scheduling.state.queue_usage import QueueOrder
from scheduling.state.refusals import impossible
from scheduling.state.workspace import NODES, add, check_time, copied

TOP_SCORE: Final = 100


class VolcanoState(SchedulingState):
    """Counts GPUs of preemptible pods on nodes when pod groups come and go; evictions of a cycle do not change that."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.reclaimable = ReclaimableGpus(len(snapshot.nodes))
        self.ending: dict[int, Resources] = {}
        """By node index, of pods that were terminating before this cycle."""
        self._gap: tuple[int, int, dict[int, int]] = (-1, 0, {})
        """An age of the capacities, the largest gap then, and how many pods fit by their GPUs."""
        self._least: dict[str, tuple[PodGroup, int]] = {}
        super().__init__(snapshot, default=Strategy.SPREAD)
        self.queue_order = QueueOrder(snapshot.queues, self.usage)

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        restore, reclaimable, ending = super().restore_point(), self.reclaimable.copy(), self.ending.copy()

        def again() -> None:
            restore()
            self.reclaimable, self.ending = reclaimable.copy(), ending.copy()

        return again

    def largest_gap(self) -> int:
        """The most GPUs that one node has free, now or once capacity is freed."""
        if self._gap[0] != self.capacities.age:
            self._gap = (self.capacities.age, max(self.capacities.by_gpus.most(), 0), {})
        return self._gap[1]

    def slots(self, gpu: int) -> int:
        """How many pods of that many GPUs fit, now or once capacity is freed, if nothing else is short."""
        if gpu > self.largest_gap():
            return 0
        known = self._gap[2]
        if gpu not in known:
            known[gpu] = self.capacities.by_gpus.slots(gpu)
        return known[gpu]

    def least_gpus(self, group: PodGroup) -> int:
        """GPUs that each of its waiting pods needs; 0 if it could not start in an empty cluster."""
        known = self._least.get(group.name)
        if known is None or known[0] is not group:
            pods = group.waiting
            whole = group.queue in self.queue_order.deserved and len(pods) + len(group.holding) >= group.min_member
            least = min(pod.requests.gpu for pod in pods) if whole and not impossible(self, group, pods) else 0
            known = self._least[group.name] = (group, least)
        return known[1]

    def _occupy(self, assignment: Assignment, capacity: NodeCapacity, sign: int) -> None:
        super()._occupy(assignment, capacity, sign)
        group, requests = assignment.group, assignment.pod.requests
        if group.preemptible and requests.gpu:
            self.reclaimable.add(group, capacity.index, requests.gpu * sign)
        if assignment.pod.terminating:
            self.ending[capacity.index] = self.ending.get(capacity.index, ZERO) + requests * sign


class ReclaimableGpus:
    """GPUs of preemptible pods by queue and node index, and the sums by node of those that may be reclaimed.

    A queue gives all of them, or only those of groups with more pods than their minimum.
    """

    def __init__(self, nodes: int) -> None:
        self._all: dict[str, dict[int, int]] = defaultdict(dict)
        self._surplus: dict[str, dict[int, int]] = defaultdict(dict)
        self._summed: dict[str, bool] = {}
        """Queues in the sums, and whether they give all."""
        self._sums = [0] * nodes

    def copy(self) -> "ReclaimableGpus":
        found = ReclaimableGpus(0)
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

    def gpus(self, giving: Mapping[str, bool]) -> Sequence[int]:
        """GPUs by node index that these queues give: all, or only the surplus."""
        for name, gives in giving.items():
            given = self._summed.get(name)
            if given is not gives:
                if given is not None:
                    self._count(name, gives=given, sign=-1)
                self._count(name, gives=gives, sign=1)
                self._summed[name] = gives
        return self._sums

    def _count(self, name: str, *, gives: bool, sign: int) -> None:
        sums = self._sums
        for index, gpu in (self._all if gives else self._surplus)[name].items():
            sums[index] += gpu * sign


class SuitableNodes:
    """Nodes for equal pods of groups that may use the same nodes. Only nodes that have changed are looked at again."""

    def __init__(self, state: VolcanoState, matching: Iterable[NodeCapacity], asked: Resources) -> None:
        self._state = state
        self._asked = asked
        self._matching = {capacity.index: capacity for capacity in matching}
        self._keys: dict[int, tuple[int, tuple[float, int]]] = {}
        """By node, with its version."""
        self._seen: dict[int, int] = {}
        """Versions of the nodes when they were sorted."""
        self._placed: dict[int, tuple[float, int]] = {}
        self._sorted: list[tuple[float, int]] = []
        """Keys of the nodes with room, the best first."""
        self._point = -1

    @classmethod
    def of(cls, state: VolcanoState, group: PodGroup, asked: Resources) -> "SuitableNodes":
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
        known = self._keys.get(capacity.index)
        if known is None or known[0] != capacity.version:
            score = _score(capacity, self._asked, self._state.ending.get(capacity.index, ZERO))
            known = self._keys[capacity.index] = (capacity.version, (-score, capacity.index))
        return known[1]

    def _follow(self) -> None:
        """Sort the nodes again that have changed."""
        capacities = self._state.capacities
        if self._point == capacities.point:
            return
        changed = capacities.changed_since(self._point)
        self._point = capacities.point
        for index in self._matching if changed is None else changed & self._matching.keys():
            capacity = self._matching[index]
            if self._seen.get(index) != capacity.version:
                self._seen[index] = capacity.version
                self._sort(capacity)

    def _sort(self, capacity: NodeCapacity) -> None:
        before = self._placed.pop(capacity.index, None)
        if before is not None:
            del self._sorted[bisect_left(self._sorted, before)]
        if capacity.fits(self._asked, now=False):
            key = self._placed[capacity.index] = self.key(capacity)
            insort(self._sorted, key)


def _score(capacity: NodeCapacity, asked: Resources, ending: Resources) -> float:
    """GPUs count for evenness only: if nothing else is requested, a smaller used part is better."""
    size, idle, future = capacity.node.capacity, capacity.idle, capacity.future
    cpu = size.cpu - future.cpu + ending.cpu + asked.cpu
    memory = size.memory - future.memory + ending.memory + asked.memory
    parts = [_used_part(cpu, size.cpu), _used_part(memory, size.memory)]
    if asked.gpu:
        parts.insert(0, _used_part(size.gpu - future.gpu + ending.gpu + asked.gpu, size.gpu))
    least = (_free_part(cpu, size.cpu) + _free_part(memory, size.memory)) // 2
    taken = ((asked.cpu, size.cpu - idle.cpu, size.cpu), (asked.memory, size.memory - idle.memory, size.memory))
    return least + _evenness(parts) + _packed(taken)


def _free_part(used: int, size: int) -> int:
    return max(size - used, 0) * TOP_SCORE // size if size else TOP_SCORE


def _used_part(used: int, size: int) -> float:
    return min(used / size, 1.0) if size else 0.0


def _evenness(parts: Sequence[float]) -> int:
    """100 minus the standard deviation of the used parts."""
    mean = sum(parts) / len(parts)
    return int((1 - sqrt(sum([(part - mean) ** 2 for part in parts]) / len(parts))) * TOP_SCORE)


def _packed(dimensions: Sequence[tuple[int, int, int]]) -> float:
    """Used part of requested CPU and memory afterwards; 0 if one does not fit."""
    parts = [(part + taken) / whole if whole else 0.0 for part, taken, whole in dimensions if part]
    return 0.0 if not parts or max(parts) > 1 else sum(parts) / len(parts) * TOP_SCORE
