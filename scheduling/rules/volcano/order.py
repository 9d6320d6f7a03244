"""Volcano's order of queues, jobs, victims and nodes, and what its queues may reclaim from each other.

Source: the plugins priority, gang, conformance, capacity (with enableHierarchy), nodeorder and binpack of Volcano 1.15
with the weights they are shipped with, and recorded decisions of it (docs/model.md).

Two queues are compared where their paths from the root part: projects of one department directly, projects of different
departments by their departments. Only the rank is that of the project.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cmp_to_key, partial
from math import sqrt
from typing import Any, Final

from scheduling.model.decisions import BELOW_MINIMUM, Cause
from scheduling.model.resources import LARGEST, Resources, sum_of
from scheduling.model.snapshot import PodGroup, Queue, Snapshot
from scheduling.state.assignments import Assignment, held
from scheduling.state.cluster_state import ALL_PODS, NODES, SchedulingState
from scheduling.state.min_runtime import MinRuntimeProtection
from scheduling.state.node_capacity import NodeCapacity
from scheduling.state.queue_usage import QueueUsage, QueueUsageTracker, over_limit

_Scores = dict[int, tuple[int, float]]
"""Of each node, by its index: its version, and how well it suited then."""

TOP_SCORE: Final = 100
CRITICAL_NAMESPACE: Final = "kube-system"


class QueueOrder:
    """The order of queues by their present use."""

    def __init__(self, snapshot: Snapshot, usage: QueueUsageTracker) -> None:
        self._usage = usage
        self._queues = snapshot.queue_by_name
        self._age = {queue.name: (queue.created, place) for place, queue in enumerate(snapshot.queues)}
        self._apart: dict[tuple[str, str], tuple[str, str]] = {}
        self._common_ancestors: dict[tuple[str, str], int] = {}
        self._used_parts: dict[str, tuple[QueueUsage, tuple[float, bool]]] = {}
        self.deserved: Mapping[str, Resources] = {queue.name: _deserved(queue) for queue in snapshot.queues}
        self.turn: Callable[[str], Any] = cmp_to_key(self.compare)
        """Sort key of queues: the next one to serve comes first."""

    def compare(self, left: str, right: str) -> int:
        """Negative if the left one is served first.

        Higher rank; where the paths part, the smaller used part of deserved quota, any deserved quota at all; older.
        """
        mine, theirs = -self._queues[left].rank, -self._queues[right].rank
        if mine != theirs:
            return _sign(mine, theirs)
        above, beside = self._part(left, right)
        return _sign(self._use(above), self._use(beside)) or _sign(self._age[left], self._age[right])

    def compare_victims(self, left: str, right: str, taker: str) -> int:
        """Negative if victims of the left one go first: the queue nearer to the preemptor, then the one served last."""
        return _sign(self._nearness(right, taker), self._nearness(left, taker)) or self.compare(right, left)

    def holds(self, name: str, asked: Resources) -> bool:
        """Whether that much fits under the limits of the queue and its parents."""
        use = QueueUsage(self._usage.uses[name].allocated)
        return not any(over_limit(queue, use, asked) for queue in self._usage.path(name))

    def is_beyond(self, name: str) -> bool:
        """Whether the queue or a parent uses more than its limit."""
        return any(self._usage.uses[queue.name].allocated.beyond(queue.limit) for queue in self._usage.path(name))

    def _nearness(self, name: str, other: str) -> int:
        """Number of common ancestors."""
        if (name, other) not in self._common_ancestors:
            above = {queue.name for queue in self._usage.path(name)[1:]}
            self._common_ancestors[name, other] = sum(queue.name in above for queue in self._usage.path(other)[1:])
        return self._common_ancestors[name, other]

    def _part(self, left: str, right: str) -> tuple[str, str]:
        """The first queues, from the root, at which both paths differ."""
        if (left, right) not in self._apart:
            downs = [[queue.name for queue in reversed(self._usage.path(name))] for name in (left, right)]
            pairs = (pair for pair in zip(*downs, strict=False) if pair[0] != pair[1])
            self._apart[left, right] = next(pairs, (left, right))
        return self._apart[left, right]

    def _use(self, name: str) -> tuple[float, bool]:
        """Largest used part of its deserved quota. Queues without deserved quota count as fully used and come last."""
        use, known = self._usage.uses[name], self._used_parts.get(name)
        if known is None or known[0] is not use:
            whole = self.deserved[name]
            part = max((part / of for part, of in _pairs(use.allocated, whole) if of), default=1.0)
            known = self._used_parts[name] = (use, (part, not whole))
        return known[1]


class VolcanoOrder:
    """The order of queues, jobs and nodes at this moment of a cycle; it follows the state."""

    def __init__(self, snapshot: Snapshot, state: SchedulingState) -> None:
        self._state = state
        self._queues = snapshot.queue_by_name
        self.order = QueueOrder(snapshot, state.usage)
        self._deserved = self.order.deserved
        self._protection = MinRuntimeProtection(snapshot, state.usage.path)
        self._keeps_minimum = BELOW_MINIMUM in snapshot.leaves_out

    def _assignments(self, queue: str) -> list[tuple[Assignment, NodeCapacity]]:
        """Pods of the queue that can be preempted, with their nodes."""
        groups = self._state.holders[queue].values()
        found = (each for each in groups if each.preemptible and each.namespace != CRITICAL_NAMESPACE)
        return [
            (assignment, assignment.capacity)
            for each in found
            for assignment in self._state.assignments_of[each.name]
            if assignment.capacity
        ]

    def _ending(self, node: str) -> Resources:
        """Resources on the node of pods that were terminating before this cycle."""
        assignments = self._state.assignments_on[node]
        return sum_of(assignment.pod.requests for assignment in assignments if assignment.pod.terminating)

    def ready(self, group: PodGroup) -> bool:
        """Whether it has its minimum of pods."""
        return self._state.active[group.name] >= group.min_member

    def job_turn(self, group: PodGroup) -> tuple[int, bool, int, str]:
        """Sort key: higher priority, below its minimum, older."""
        return (-group.priority, self.ready(group), group.created, group.name)

    def in_turn(self, victims: Iterable[Assignment], taker: str) -> Iterator[Assignment]:
        """Victims by queue, lowest priority, gangs that have their minimum, latest start.

        The order changes with each victim; the next one was chosen just before.
        """
        left, turn = list(victims), cmp_to_key(partial(self._compare, taker=taker))
        coming = min(left, key=turn, default=None)
        while coming is not None:
            left.remove(coming)
            now, coming = coming, min(left, key=turn, default=None)
            yield now

    def _compare(self, left: Assignment, right: Assignment, *, taker: str) -> int:
        """Negative if the left one goes first."""
        mine, theirs = left.group, right.group
        if mine.queue != theirs.queue:
            return self.order.compare_victims(mine.queue, theirs.queue, taker)
        one, other = self._strength(mine), self._strength(theirs)
        return int(one > other) - int(one < other)

    def _strength(self, group: PodGroup) -> tuple[int, bool, int]:
        return (group.priority, not self.ready(group), -group.created)

    def may_reclaim(self, name: str, asked: Resources) -> bool:
        """Whether the queue stays within its deserved quota in one requested resource, and within limits.

        Of departments only the limits themselves count here, not their use.
        """
        if not self.order.holds(name, asked):
            return False
        after = self._state.usage.uses[name].allocated + asked
        dimensions = zip(_parts(asked), _pairs(after, self._deserved[name]), strict=True)
        return any(part and used <= deserved for part, (used, deserved) in dimensions)

    def weaker(self, group: PodGroup) -> dict[NodeCapacity, list[Assignment]]:
        """What the group may preempt, by node: preemptible work of its queue with lower priority.

        If the plugin gang decides too, only pods above the minimum of their group. If the plugin cdp decides, no work
        inside its minimum runtime.
        """
        found: dict[NodeCapacity, list[Assignment]] = defaultdict(list)
        if not self._state.has_weaker(group):
            return found
        assignments = self._state.cached(("queue", group.queue), "assignments", lambda: self._assignments(group.queue))
        allowed = self._state.capacities.allowed(group)
        for assignment, capacity in assignments:
            if not assignment.leaving and assignment.group.priority < group.priority and capacity.index in allowed:
                found[capacity].append(assignment)
        gives = (
            {capacity: self._above_minimum(assignments) for capacity, assignments in found.items()}
            if self._keeps_minimum
            else found
        )
        return {capacity: self._grown(assignments, Cause.PREEMPT) for capacity, assignments in gives.items()}

    def reclaim_nodes(self, group: PodGroup, asked: Resources) -> list[NodeCapacity]:
        """Nodes, in order, on which reclaim could free enough GPUs; a superset. For pods without GPUs: all nodes."""
        capacities = self._state.capacities
        if not asked.gpu:
            return capacities.matching(group)
        queues = [name for name, groups in self._state.holders.items() if groups and self._gives(name)]
        losing = tuple((name, self._may_exceed_deserved(name)) for name in queues)
        gained = self._state.cached(ALL_PODS, ("GPUs to reclaim", losing), lambda: self._gpus_to_reclaim(losing))
        enough = {index for index, gpu in gained.items() if gpu + capacities.gpus[index] >= asked.gpu}
        enough.update(capacity.index for capacity in capacities.with_gpus(group, asked.gpu))
        return [capacities.all[index] for index in sorted(enough & capacities.allowed(group))]

    def _gpus_to_reclaim(self, losing: Iterable[tuple[str, bool]]) -> Mapping[int, int]:
        """GPUs that may be reclaimed per node index. losing: queues, and whether they exceed their deserved quota."""
        found: dict[int, int] = {}
        for name, exceeds in losing:
            held_by_node = self._state.cached(
                ("queue", name), ("reclaimable GPUs", exceeds), partial(self._reclaimable_gpus, name, all_of=exceeds)
            )
            for index, gpu in held_by_node.items():
                found[index] = found.get(index, 0) + gpu
        return found

    def _reclaimable_gpus(self, queue: str, *, all_of: bool) -> Mapping[int, int]:
        """GPUs per node index that the queue's preemptible work holds; unless `all_of`, groups above their minimum."""
        found: dict[int, int] = {}
        for group in self._state.holders[queue].values():
            if group.preemptible and (all_of or len(group.pods) > group.min_member):
                for assignment in self._state.assignments_of[group.name]:
                    if assignment.capacity:
                        index = assignment.capacity.index
                        found[index] = found.get(index, 0) + assignment.pod.requests.gpu
        return found

    def _may_exceed_deserved(self, name: str) -> bool:
        """Whether a pod with GPUs of this queue may be reclaimed now."""
        used, deserved = self._state.usage.uses[name].allocated, self._deserved[name]
        return not deserved.gpu or any(whole and taken > whole for taken, whole in _pairs(used, deserved))

    def reclaimable(self, capacity: NodeCapacity, group: PodGroup, asked: Resources) -> list[Assignment] | None:
        """What the group may reclaim on a node; None if no preemptible work of other queues is left there.

        If gangs have pods above their minimum, only these can be reclaimed, whatever their queue deserves. Work that
        the plugin cdp spares is removed last: it counts for what a queue has beyond its deserved quota.
        """
        others = [
            assignment
            for assignment in self._state.assignments_on[capacity.node.name]
            if assignment.group.preemptible
            and not assignment.leaving
            and assignment.group.queue != group.queue
            and self._gives(assignment.group.queue)
        ]
        if not others:
            return None
        if surplus := self._grown(self._above_minimum(others), Cause.RECLAIM):
            return surplus
        return self._grown(self._over_deserved(others, group.queue, asked, capacity.future), Cause.RECLAIM)

    def _grown(self, assignments: list[Assignment], action: Cause) -> list[Assignment]:
        """Those that have run for their minimum runtime."""
        if action not in self._protection.asks_pods:
            return assignments
        return [assignment for assignment in assignments if not self._spares(assignment, action)]

    def _spares(self, assignment: Assignment, action: Cause) -> bool:
        started = assignment.group.started if assignment.pod.started is None else assignment.pod.started
        return self._protection.spares(started, self._protection.carried(assignment.group, action))

    def _gives(self, name: str) -> bool:
        queue = self._queues.get(name)
        return queue is not None and queue.reclaimable

    def _above_minimum(self, assignments: list[Assignment]) -> list[Assignment]:
        taken: Counter[str] = Counter()
        found = []
        for assignment in assignments:
            if self._state.active[assignment.group.name] - taken[assignment.group.name] > assignment.group.min_member:
                taken[assignment.group.name] += 1
                found.append(assignment)
        return [assignment for assignment in found if assignment.group.namespace != CRITICAL_NAMESPACE]

    def _over_deserved(
        self, assignments: list[Assignment], taker: str, asked: Resources, future: Resources
    ) -> list[Assignment]:
        """In order, while the queue exceeds its deserved quota just before; the last victim may bring it below.

        Empty if all of them together would not be enough beside the `future` capacity of the node.
        """
        used = {
            assignment.group.queue: self._state.usage.uses[assignment.group.queue].allocated
            for assignment in assignments
        }

        def goes(assignment: Assignment) -> bool:
            name, requests = assignment.group.queue, assignment.pod.requests
            helps = any(part and wanted for part, wanted in _pairs(requests, asked))
            return helps and _over(requests, used[name], self._deserved[name])

        found: list[Assignment] = []
        if not asked.served_by(future + held([*filter(goes, assignments)])):  # the order takes long
            return found
        for assignment in self.in_turn(assignments, taker):
            if goes(assignment):
                used[assignment.group.queue] -= assignment.pod.requests
                found.append(assignment)
        return found

    def by_suitability(self, asked: Resources) -> Callable[[NodeCapacity], tuple[float, int]]:
        """Sort key of nodes, the best first; cached until the node changes."""
        scores: _Scores = self._state.cached(NODES, ("scores", asked), dict)

        def key(capacity: NodeCapacity) -> tuple[float, int]:
            known = scores.get(capacity.index)
            if known is None or known[0] != capacity.version:
                known = scores[capacity.index] = (capacity.version, self._suits(capacity, asked))
            return (-known[1], capacity.index)

        return key

    def _suits(self, capacity: NodeCapacity, asked: Resources) -> float:
        """Score: much free CPU and memory, evenly used resources, tightly packed CPU and memory.

        GPUs count for evenness only: if nothing else is requested, a smaller used part is better.
        """
        size = capacity.node.capacity
        ending = self._state.cached(("node", capacity.node.name), "ending", lambda: self._ending(capacity.node.name))
        after = size - capacity.future + ending + asked
        used = list(zip(_parts(after), _parts(size), strict=True))
        least = sum(_free_part(part, whole) for part, whole in used[1:]) // 2
        return least + _evenness(used if asked.gpu else used[1:]) + _packed(asked, size - capacity.idle, size)


def _over(requests: Resources, used: Resources, deserved: Resources) -> bool:
    """Whether the queue exceeds its deserved quota in the pod's resources. Without deserved quota it does."""
    if requests.gpu and not deserved.gpu:
        return True
    dimensions = zip(_parts(requests), _pairs(used, deserved), strict=True)
    relevant = [taken > whole for part, (taken, whole) in dimensions if part and whole]
    return any(relevant) or not relevant


def _parts(amount: Resources) -> tuple[int, int, int]:
    return (amount.gpu, amount.cpu, amount.memory)


def _pairs(first: Resources, second: Resources) -> Iterator[tuple[int, int]]:
    return zip(_parts(first), _parts(second), strict=True)


def _free_part(used: int, size: int) -> int:
    return max(size - used, 0) * TOP_SCORE // size if size else TOP_SCORE


def _evenness(used: list[tuple[int, int]]) -> int:
    """100 minus the standard deviation of the used parts."""
    fractions = [min(part / whole, 1.0) if whole else 0.0 for part, whole in used]
    mean = sum(fractions) / len(fractions)
    return int((1 - sqrt(sum((part - mean) ** 2 for part in fractions) / len(fractions))) * TOP_SCORE)


def _packed(asked: Resources, used: Resources, size: Resources) -> float:
    """Used part of requested CPU and memory afterwards; 0 if one does not fit."""
    dimensions = zip(_parts(asked)[1:], _parts(used)[1:], _parts(size)[1:], strict=True)
    parts = [(part + taken) / whole if whole else 0.0 for part, taken, whole in dimensions if part]
    return 0.0 if not parts or max(parts) > 1 else sum(parts) / len(parts) * TOP_SCORE


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _deserved(queue: Queue) -> Resources:
    """The deserved quota, at most the limit. Unset CPU and memory count as zero, as Rung writes them."""
    deserved = queue.deserved
    gpu = LARGEST if deserved.gpu is None else deserved.gpu
    return Resources(gpu, deserved.cpu or 0, deserved.memory or 0).clamp(queue.limit)
