"""Volcano's order of queues, jobs and victims, and what its queues may reclaim from each other.

Source: the plugins priority, gang, conformance, capacity (with enableHierarchy), nodeorder and binpack of Volcano 1.15
with the weights they are shipped with, and recorded decisions of it (docs/model.md).

Two queues are compared where their paths from the root part: projects of one department directly, projects of different
departments by their departments. Only the rank is that of the project.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, cmp_to_key
from typing import Any, Final, TypeVar, cast

from scheduling.model.decisions import BELOW_MINIMUM, Cause
from scheduling.model.resources import LARGEST, Resources
from scheduling.model.snapshot import PodGroup, Queue, Snapshot
from scheduling.rules.volcano.state import VolcanoState
from scheduling.state.assignments import Assignment, held
from scheduling.state.min_runtime import MinRuntimeProtection
from scheduling.state.node_capacity import NodeCapacity
from scheduling.state.queue_usage import QueueUsage, QueueUsageTracker, over_limit
from scheduling.state.workspace import ALL_PODS

Value = TypeVar("Value")
_Losing = tuple[tuple[str, bool], ...]
"""Queues of which work may be reclaimed, and whether they exceed their deserved quota."""
_Tier = tuple[int, tuple[float, bool]]
"""Of a queue: minus its rank, and the used part of the deserved quota at the root of its path."""

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
        self._seen: list[QueueUsage] = []
        self._known: dict[str, Any] = {}

    def turns(self, names: Collection[str]) -> Iterator[str]:
        """The queues in the order in which they are served while nothing changes.

        Where turns form a circle, the order of the names decides.
        """
        tiers, equals = self.tiers(names), dict[_Tier, list[str]]()
        for name in names:
            equals.setdefault(tiers[name], []).append(name)
        for tier in sorted(equals):
            equal = equals[tier]
            if len({self._queues[name].parent for name in equal}) == 1:
                yield from sorted(equal, key=self._own_turn)
            else:
                yield from self._in_circle(equal)

    def _in_circle(self, names: list[str]) -> Iterator[str]:
        """Again and again the first queue that none after it precedes, as `compare` says."""
        paths = {name: [(each.name, self._use(each.name)) for each in self._usage.path(name)[::-1]] for name in names}

        def precedes(left: str, right: str) -> bool:
            for mine, other in zip(paths[left], paths[right], strict=False):
                if mine[0] != other[0]:
                    return (mine[1], self._age[left]) < (other[1], self._age[right])
            return (self._use(left), self._age[left]) < (self._use(right), self._age[right])

        while names:
            place = 0
            for index in range(1, len(names)):
                if precedes(names[index], names[place]):
                    place = index
            yield names.pop(place)

    def _own_turn(self, name: str) -> tuple[tuple[float, bool], tuple[int, int]]:
        """Sort key of queues of one department: as in `compare`."""
        return (self._use(name), self._age[name])

    def tiers(self, names: Iterable[str]) -> Mapping[str, _Tier]:
        """Sort key of these queues at least: higher rank, then as in `compare` by the roots of their paths."""
        tiers: dict[str, _Tier] = self.while_use_lasts("tiers", dict)
        for name in names:
            if name not in tiers:
                tiers[name] = (-self._queues[name].rank, self._use(self._usage.path(name)[-1].name))
        return tiers

    def while_use_lasts(self, key: str, make: Callable[[], Value]) -> Value:
        """Return `make()`, cached until the use of any queue changes."""
        uses = [*self._usage.uses.values()]
        if uses != self._seen:
            self._seen, self._known = uses, {}
        if key not in self._known:
            self._known[key] = make()
        return cast("Value", self._known[key])

    def compare(self, left: str, right: str) -> int:
        """Negative if the left one of a tier is served first.

        Where the paths part, the smaller used part of deserved quota, any deserved quota at all; older.
        """
        above, beside = self._part(left, right)
        return _sign(self._use(above), self._use(beside)) or _sign(self._age[left], self._age[right])

    def holds(self, name: str, asked: Resources) -> bool:
        """Whether that much fits under the limits of the queue and its parents."""
        use = QueueUsage(self._usage.uses[name].allocated)
        return not any(over_limit(queue, use, asked) for queue in self._usage.path(name))

    def is_beyond(self, name: str) -> bool:
        """Whether the queue or a parent uses more than its limit."""
        return any(self._usage.uses[queue.name].allocated.beyond(queue.limit) for queue in self._usage.path(name))

    def nearness(self, name: str, other: str) -> int:
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
    """The order of queues and jobs at this moment of a cycle; it follows the state."""

    def __init__(self, snapshot: Snapshot, state: VolcanoState) -> None:
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

    def ready(self, group: PodGroup) -> bool:
        """Whether it has its minimum of pods."""
        return self._state.active[group.name] >= group.min_member

    def job_turn(self, group: PodGroup) -> tuple[int, bool, int, str]:
        """Sort key: higher priority, below its minimum, older."""
        return (-group.priority, self.ready(group), group.created, group.name)

    def in_turn(self, victims: Iterable[Assignment], taker: str) -> Iterator[Assignment]:
        """Victims by queue (the nearest, then the one served last), lowest priority, complete gangs, latest start.

        The order changes with each victim; the next one was chosen just before.
        """
        left, turn = list(victims), cmp_to_key(self._compare)
        coming = min(self._first_tier(left, taker), key=turn, default=None)
        while coming is not None:
            left.remove(coming)
            now, coming = coming, min(self._first_tier(left, taker), key=turn, default=None)
            yield now

    def _first_tier(self, victims: Sequence[Assignment], taker: str) -> Sequence[Assignment]:
        """The victims of which one is next: those of the nearest queues, of these the ones that are served last."""
        queues = {victim.group.queue for victim in victims}
        if len(queues) < 2:
            return victims
        tiers = self.order.tiers(queues)
        keys = {name: (self.order.nearness(name, taker), tiers[name]) for name in queues}
        last = max(keys.values())
        return [victim for victim in victims if keys[victim.group.queue] == last]

    def _compare(self, left: Assignment, right: Assignment) -> int:
        """Negative if the left one of a tier goes first: that of the queue that is served last."""
        mine, theirs = left.group, right.group
        if mine.queue != theirs.queue:
            return self.order.compare(theirs.queue, mine.queue)
        one, other = self._strength(mine), self._strength(theirs)
        return int(one > other) - int(one < other)

    def _strength(self, group: PodGroup) -> tuple[int, bool, int]:
        return (group.priority, not self.ready(group), -group.created)

    def may_reclaim(self, name: str, asked: Resources) -> bool:
        """Whether the queue stays within its deserved quota in one requested resource, and within limits.

        Of departments only the limits themselves count here, not their use.
        """
        used, deserved = self._state.usage.uses[name].allocated, self._deserved[name]
        stays = (
            (asked.gpu and used.gpu + asked.gpu <= deserved.gpu)
            or (asked.cpu and used.cpu + asked.cpu <= deserved.cpu)
            or (asked.memory and used.memory + asked.memory <= deserved.memory)
        )
        return bool(stays) and self.order.holds(name, asked)

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

    def reclaim_nodes(self, group: PodGroup, asked: Resources) -> Iterable[NodeCapacity]:
        """Nodes, in order, on which reclaim could free enough GPUs; a superset. For pods without GPUs: all nodes."""
        capacities = self._state.capacities
        matching = capacities.matching(group)
        if not asked.gpu:
            return matching
        losing = self.order.while_use_lasts("losing", self._losing)
        gained, most = self._state.cached(ALL_PODS, ("GPUs to reclaim", losing), lambda: self._gpus_to_reclaim(losing))
        free, least = capacities.gpus, asked.gpu
        if most < least and most + self._state.largest_gap() < least:
            return ()
        return (each for each in matching if gained.get(each.index, 0) + free[each.index] >= least)

    def _losing(self) -> _Losing:
        return tuple((name, self._may_exceed_deserved(name)) for name in self._givers)

    @cached_property
    def _givers(self) -> Sequence[str]:
        return [name for name, groups in self._state.holders.items() if groups and self._gives(name)]

    def _gpus_to_reclaim(self, losing: _Losing) -> tuple[Mapping[int, int], int]:
        """GPUs that may be reclaimed per node index, and the most of them.

        Those of queues beyond their deserved quota, else of groups above their minimum.
        """
        found: dict[int, int] = {}
        for name, exceeds in losing:
            for index, gpu in (self._state.preemptible_gpus if exceeds else self._state.surplus_gpus)[name].items():
                found[index] = found.get(index, 0) + gpu
        return found, max(found.values(), default=0)

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


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _deserved(queue: Queue) -> Resources:
    """The deserved quota, at most the limit. Unset CPU and memory count as zero, as Rung writes them."""
    deserved = queue.deserved
    gpu = LARGEST if deserved.gpu is None else deserved.gpu
    return Resources(gpu, deserved.cpu or 0, deserved.memory or 0).clamp(queue.limit)
