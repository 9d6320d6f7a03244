"""The working state for Volcano: waiting groups, GPUs that evictions may free, and nodes by suitability.

Suitability: much free CPU and memory, evenly used resources, tightly packed CPU and memory.

Source: the plugins nodeorder and binpack of Volcano 1.15 with the weights they are shipped with, and recorded decisions
(docs/model.md).
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Final

from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, Strategy
from scheduling.state.assignments import Assignment, ReclaimableGpus, WeakerGpus
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity, selection
from scheduling.state.queue_usage import QueueOrder
from scheduling.state.refusals import impossible
from scheduling.state.workspace import NODES, check_time

TOP_SCORE: Final = 100


@dataclass(slots=True)
class VolcanoCandidate:
    """A waiting pod group and what the actions of the cycle have decided for it.

    place: its place among the waiting groups. least: GPUs that each of its pods needs, where refusals for now are left
    out; else 0. tried: whether an action has tried it; else it is as before the cycle.
    """

    group: PodGroup
    place: int
    left: list[Pod]
    untried: list[Pod]
    least: int = 0
    placements: dict[str, str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    victims: list[Assignment] = field(default_factory=list)
    cause: Cause = Cause.PREEMPT
    over_quota: bool = False
    pend: PendingReason | None = None
    tried: bool = False

    @classmethod
    def of(cls, group: PodGroup, place: int, least: int, pend: PendingReason | None = None) -> "VolcanoCandidate":
        """The group before any action."""
        pods = group.waiting
        return cls(group, place, [*pods], [*pods], least, pend=pend)

    def promise(self, capacities: dict[str, str]) -> None:
        """Nominate these pods to capacity that is about to be freed."""
        self.nominated |= capacities
        self.left = [pod for pod in self.left if pod.name not in capacities]

    def start(self, capacities: dict[str, str]) -> None:
        """Start these pods now."""
        self.placements |= capacities
        self.left = [pod for pod in self.left if pod.name not in capacities]


CasesByQueue = dict[str, list[VolcanoCandidate]]
Need = tuple[int, int]
"""GPUs that each pod of a group needs at least, and how many of its pods are missing for its minimum."""


class WaitingGroups:
    """The waiting groups by queue, in the order of the snapshot, as candidates before any action.

    The lists are kept from cycle to cycle until a group of the queue comes, goes, or has been tried.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, PodGroup]] = defaultdict(dict)
        self._places: dict[str, int] = {}
        self._last = 0
        self._candidates: dict[str, VolcanoCandidate] = {}
        self._lists: dict[str, list[VolcanoCandidate]] = {}
        self._plain: set[str] = set()
        self._without_gpus: set[str] = set()
        self.tried: list[VolcanoCandidate] = []
        self.needs: dict[str, tuple[list[VolcanoCandidate], set[Need]]] = {}
        """By queue, of one list of its groups."""
        self.least: dict[str, tuple[list[VolcanoCandidate], dict[int, int]]] = {}
        """By queue, of one list of its groups: by priority, the least GPUs of a pod, if less than above it."""

    def copy(self) -> "WaitingGroups":
        found = WaitingGroups()
        found._groups.update((name, groups.copy()) for name, groups in self._groups.items())
        found._places, found._last = self._places.copy(), self._last
        return found

    def place(self, name: str) -> int | None:
        """The place of a group; None if it does not wait."""
        return self._places.get(name)

    def add(self, group: PodGroup, place: int | None = None) -> None:
        """Add a waiting group, as the last one unless it has a place."""
        self._last += 1
        self._groups[group.queue][group.name] = group
        self._places[group.name] = self._last if place is None else place
        self._forget(group)

    def remove(self, group: PodGroup) -> None:
        """Remove a group, if it waits."""
        if self._places.pop(group.name, None) is not None:
            del self._groups[group.queue][group.name]
            self._forget(group)

    def by_queue(self, least: Callable[[PodGroup], int]) -> CasesByQueue | None:
        """The candidates by queue. `least`: GPUs that each pod of a group needs. None if a group needs none."""
        lists = [found for name, groups in self._groups.items() if groups and (found := self._list(name, least))]
        if any(name in self._without_gpus for name, groups in self._groups.items() if groups):
            return None
        return {found[0].group.queue: found for found in sorted(lists, key=first_place)}

    def is_plain(self, queue: str) -> bool:
        """Whether all waiting groups of the queue lack all of their pods, have no topology and were not tried."""
        return queue in self._plain

    def note_tried(self, case: VolcanoCandidate) -> None:
        """Note that an action changes the candidate: the next cycle needs another one."""
        if not case.tried:
            case.tried = True
            self.tried.append(case)
            self._plain.discard(case.group.queue)

    def restore(self) -> None:
        """Note that the cycle has ended."""
        for case in self.tried:
            self._forget(case.group)
        self.tried.clear()

    def _forget(self, group: PodGroup) -> None:
        self._candidates.pop(group.name, None)
        self._lists.pop(group.queue, None)

    def _list(self, queue: str, least: Callable[[PodGroup], int]) -> list[VolcanoCandidate]:
        known = self._lists.get(queue)
        if known is None:
            groups, places = self._groups[queue], self._places
            known = [self._candidate(groups[name], least) for name in sorted(groups, key=places.__getitem__)]
            self._lists[queue] = known
            _mark(self._plain, queue, holds=all(map(_is_plain, known)))
            _mark(self._without_gpus, queue, holds=not all(case.least for case in known))
        return known

    def _candidate(self, group: PodGroup, least: Callable[[PodGroup], int]) -> VolcanoCandidate:
        known = self._candidates.get(group.name)
        if known is None:
            known = VolcanoCandidate.of(group, self._places[group.name], least(group))
            self._candidates[group.name] = known
        return known


def first_place(cases: list[VolcanoCandidate]) -> int:
    return cases[0].place


def _is_plain(case: VolcanoCandidate) -> bool:
    return len(case.left) == len(case.group.pods) and case.group.topology is None


def _mark(names: set[str], name: str, *, holds: bool) -> None:
    (names.add if holds else names.discard)(name)


class VolcanoState(SchedulingState):
    """Counts GPUs of preemptible pods on nodes when pod groups come and go; evictions of a cycle do not change that."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.reclaimable = ReclaimableGpus(len(snapshot.nodes))
        self.weaker = WeakerGpus(self._gpus_below)
        self.ending: dict[int, Resources] = {}
        """By node index, of pods that were terminating before this cycle."""
        self._gap: tuple[int, int, dict[int, int]] = (-1, 0, {})
        """An age of the capacities, the largest gap then, and how many pods fit by their GPUs."""
        self.waiting = WaitingGroups()
        super().__init__(snapshot, default=Strategy.SPREAD)
        self.queue_order = QueueOrder(snapshot.queues, self.usage)

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        restore, reclaimable, ending = super().restore_point(), self.reclaimable.copy(), self.ending.copy()
        weaker, waiting = self.weaker.copy(), self.waiting.copy()

        def again() -> None:
            restore()
            self.reclaimable, self.ending = reclaimable.copy(), ending.copy()
            self.weaker, self.waiting = weaker.copy(), waiting.copy()

        return again

    def requeue(self, queues: tuple[Queue, ...], *, forget: bool = False) -> None:
        if queues is not self.usage.queues:
            self._journal.append(partial(setattr, self, "queue_order", self.queue_order))
            super().requeue(queues, forget=forget)
            self.queue_order = QueueOrder(queues, self.usage)

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

    def may_free(self, queue: str, priority: int, gpu: int) -> bool:
        """Whether preemption at that priority may give a node as many free GPUs."""
        is_weaker = min(self._priorities[queue], default=priority) < priority
        return is_weaker and self.weaker.may_free(queue, priority, gpu, self.capacities)

    def _gpus_below(self, queue: str, priority: int) -> dict[int, int]:
        found: Counter[int] = Counter()
        for group in self.holders[queue].values():
            if group.preemptible and group.priority < priority:
                for assignment in self.assignments_of[group.name]:
                    if assignment.capacity is not None and not assignment.pod.terminating:
                        found[assignment.capacity.index] += assignment.pod.requests.gpu
        return dict(+found)

    def may_preempt(self, group: PodGroup, gpu: int, pods: int) -> bool:
        """Whether that many pods of so many GPUs may fit once all weaker work of the queue is preempted."""
        if not self.may_free(group.queue, group.priority, gpu):
            return False
        return pods == 1 or self.slots(gpu) + self.weaker.slots(group, gpu, self.capacities) >= pods

    def least_gpus(self, group: PodGroup) -> int:
        """GPUs that each of its waiting pods needs; 0 if it could not start in an empty cluster."""
        pods = group.waiting
        whole = group.queue in self.queue_order.deserved and len(pods) + len(group.holding) >= group.min_member
        return min(pod.requests.gpu for pod in pods) if whole and not impossible(self, group, pods) else 0

    def restore(self) -> None:
        super().restore()
        self.waiting.restore()

    def _record(self, group: PodGroup, assignments: list[Assignment]) -> None:
        super()._record(group, assignments)
        if len(assignments) < len(group.pods):
            self.waiting.add(group)

    def _take_out(self, name: str) -> list[int]:
        self.waiting.remove(self._groups[name])
        return super()._take_out(name)

    def _leave(self, name: str) -> Callable[[], None]:
        group, place = self._groups[name], self.waiting.place(name)
        undo = super()._leave(name)

        def again() -> None:
            undo()
            if place is not None:
                self.waiting.add(group, place)

        return again

    def _occupy(self, assignment: Assignment, capacity: NodeCapacity, sign: int) -> None:
        super()._occupy(assignment, capacity, sign)
        group, requests = assignment.group, assignment.pod.requests
        if group.preemptible and requests.gpu:
            self.reclaimable.add(group, capacity.index, requests.gpu * sign)
            if not assignment.pod.terminating:
                self.weaker.add(group, capacity.index, requests.gpu * sign)
        if assignment.pod.terminating:
            self.ending[capacity.index] = self.ending.get(capacity.index, ZERO) + requests * sign


class SuitableNodes:
    """Nodes for equal pods of groups that may use the same nodes. Only nodes that have changed are looked at again."""

    def __init__(self, state: VolcanoState, matching: Iterable[NodeCapacity], requested: Resources) -> None:
        self._state = state
        self._requested = requested
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
    def of(cls, state: VolcanoState, group: PodGroup, requested: Resources) -> "SuitableNodes":
        """The nodes for such a pod of the group, as known from before."""
        key = ("suitable", selection(group), requested)
        return state.cached(NODES, key, lambda: cls(state, state.capacities.matching(group), requested))

    def best(self) -> NodeCapacity | None:
        """The best node that fits the pod now, else the best whose capacity is being freed."""
        now = (capacity for capacity in self.with_room() if capacity.fits(self._requested, now=True))
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
            score = _score(capacity, self._requested, self._state.ending.get(capacity.index, ZERO))
            known = self._keys[capacity.index] = (capacity.version, (-score, capacity.index))
        return known[1]

    def _follow(self) -> None:
        """Sort the nodes again that have changed."""
        capacities = self._state.capacities
        if self._point == capacities.point:
            return
        changed = capacities.changed_since(self._point)
        self._point = capacities.point
        free, gpu, placed = capacities.gpus, self._requested.gpu, self._placed
        for index in self._matching if changed is None else changed & self._matching.keys():
            if gpu and free[index] < gpu and index not in placed:
                continue
            capacity = self._matching[index]
            if self._seen.get(index) != capacity.version:
                self._seen[index] = capacity.version
                self._sort(capacity)

    def _sort(self, capacity: NodeCapacity) -> None:
        before = self._placed.pop(capacity.index, None)
        if before is not None:
            del self._sorted[bisect_left(self._sorted, before)]
        if capacity.fits(self._requested, now=False):
            key = self._placed[capacity.index] = self.key(capacity)
            insort(self._sorted, key)


def _score(capacity: NodeCapacity, requested: Resources, ending: Resources) -> float:
    """GPUs count for evenness only: if nothing else is requested, a smaller used part is better."""
    size, idle, future = capacity.node.capacity, capacity.idle, capacity.future
    cpu = size.cpu - future.cpu + ending.cpu + requested.cpu
    memory = size.memory - future.memory + ending.memory + requested.memory
    parts = [_used_part(cpu, size.cpu), _used_part(memory, size.memory)]
    if requested.gpu:
        parts.insert(0, _used_part(size.gpu - future.gpu + ending.gpu + requested.gpu, size.gpu))
    least = (_free_part(cpu, size.cpu) + _free_part(memory, size.memory)) // 2
    taken = ((requested.cpu, size.cpu - idle.cpu, size.cpu), (requested.memory, size.memory - idle.memory, size.memory))
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
