"""Volcano's order of jobs and victims, what queues may reclaim, and the waiting groups that an action may help.

Source: the plugins priority, gang, conformance, capacity (with enableHierarchy), nodeorder and binpack of Volcano 1.15
with the weights they are shipped with, and recorded decisions of it (docs/model.md).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, cmp_to_key, partial
from typing import Final

from scheduling.model.preemptibility import Cause
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.rules.volcano.state import CasesByQueue, Need, VolcanoCandidate, VolcanoState
from scheduling.state.assignments import Assignment, held
from scheduling.state.min_runtime import MinRuntimeProtection
from scheduling.state.node_capacity import NodeCapacity
from scheduling.state.queue_usage import QueueUsage

CRITICAL_NAMESPACE: Final = "kube-system"


class VolcanoOrder:
    """The order of queues and jobs at this moment of a cycle; it follows the state."""

    def __init__(self, snapshot: Snapshot, state: VolcanoState) -> None:
        self._state = state
        self._queues = snapshot.queue_by_name
        self.order = state.queue_order
        self._deserved = self.order.deserved
        self._protection = MinRuntimeProtection(snapshot, state.usage.path)
        self._keeps_minimum = snapshot.exempt.below_minimum
        self._given_at: dict[str, QueueUsage] = {}
        """Uses of queues at which it was last found what they give."""

    def ready(self, group: PodGroup) -> bool:
        """Whether it has its minimum of pods."""
        return self._state.active[group.name] >= group.min_member

    def job_turn(self, group: PodGroup) -> tuple[int, bool, int, str]:
        """Sort key: higher priority, below its minimum, older."""
        return (-group.priority, self.ready(group), *group.age)

    def in_turn(self, victims: Iterable[Assignment], taker: str) -> Iterator[Assignment]:
        """Victims by queue (the nearest, then the one served last), lowest priority, complete gangs, latest start.

        The order changes with each victim; the next one was chosen just before.
        """
        left = list(victims)
        coming = self._next(left, taker)
        while coming is not None:
            left.remove(coming)
            now, coming = coming, self._next(left, taker)
            yield now

    def _next(self, left: Sequence[Assignment], taker: str) -> Assignment | None:
        if len(left) < 2:
            return left[0] if left else None
        return min(self._first_tier(left, taker), key=cmp_to_key(self._compare))

    def _first_tier(self, victims: Sequence[Assignment], taker: str) -> Sequence[Assignment]:
        """The victims of which one is next: those of the nearest queues, of these the ones that are served last."""
        queues = {victim.group.queue for victim in victims}
        if len(queues) < 2:
            return victims
        keys = {name: (self.order.nearness(name, taker), self.order.tier(name)) for name in queues}
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

    def may_reclaim(self, name: str, requested: Resources) -> bool:
        """Whether the queue stays within its deserved quota in one requested resource, and within limits.

        Of departments only the limits themselves count here, not their use.
        """
        used, deserved = self._state.usage.uses[name].allocated, self._deserved[name]
        stays = (
            (requested.gpu and used.gpu + requested.gpu <= deserved.gpu)
            or (requested.cpu and used.cpu + requested.cpu <= deserved.cpu)
            or (requested.memory and used.memory + requested.memory <= deserved.memory)
        )
        return bool(stays) and self.order.holds(name, requested)

    def weaker(self, group: PodGroup, requested: Resources) -> dict[NodeCapacity, list[Assignment]]:
        """What the group may preempt, by node: preemptible work of its queue with lower priority.

        Nodes on which too few GPUs would be free are left out. If the plugin gang decides too, only pods above the
        minimum of their group. If the plugin cdp decides, no work inside its minimum runtime.
        """
        if not self._state.has_weaker(group):
            return {}
        key, find = ("weaker", group.priority), partial(self._weaker_by_node, group.queue, group.priority)
        nodes = self._state.cached(("queue", group.queue), key, find)
        allowed = self._state.capacities.allowed(group)
        found: dict[NodeCapacity, list[Assignment]] = {}
        for capacity, gpu, assignments in nodes:
            frees = not requested.gpu or capacity.future.gpu + gpu >= requested.gpu
            if frees and capacity.index in allowed:
                left = [assignment for assignment in assignments if not assignment.leaving]
                gives = self._above_minimum(left) if self._keeps_minimum else left
                found[capacity] = self._grown(gives, Cause.PREEMPT)
        return found

    def _weaker_by_node(self, queue: str, priority: int) -> list[tuple[NodeCapacity, int, list[Assignment]]]:
        """Work of the queue that can be preempted at that priority, by node and with its GPUs."""
        found: dict[NodeCapacity, list[Assignment]] = defaultdict(list)
        for group in self._state.holders[queue].values():
            if group.preemptible and group.namespace != CRITICAL_NAMESPACE and group.priority < priority:
                for assignment in self._state.assignments_of[group.name]:
                    if assignment.capacity:
                        found[assignment.capacity].append(assignment)
        return [(capacity, held(assignments).gpu, assignments) for capacity, assignments in found.items()]

    def reclaim_nodes(self, group: PodGroup, requested: Resources) -> Iterable[NodeCapacity]:
        """Nodes, in order, on which reclaim could free enough GPUs; a superset. For pods without GPUs: all nodes."""
        capacities = self._state.capacities
        if not requested.gpu:
            return capacities.matching(group)
        uses, known = self._state.usage.uses, self._given_at
        changed = [name for name in self._givers if uses[name] is not known.get(name)]
        known.update((name, uses[name]) for name in changed)
        self._state.reclaimable.give({name: self.order.deserved_use(name).gives for name in changed})
        allowed = capacities.allowed(group)
        nodes = self._state.reclaimable.nodes(requested.gpu, capacities)
        return (capacities.all[index] for index in nodes if index in allowed)

    @cached_property
    def _givers(self) -> Sequence[str]:
        return [name for name, groups in self._state.holders.items() if groups and self._gives(name)]

    def reclaimable(self, capacity: NodeCapacity, group: PodGroup, requested: Resources) -> list[Assignment] | None:
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
        return self._grown(self._over_deserved(others, group.queue, requested, capacity.future), Cause.RECLAIM)

    def _grown(self, assignments: list[Assignment], action: Cause) -> list[Assignment]:
        """Those that have run for their minimum runtime."""
        if action not in self._protection.asks_pods:
            return assignments
        return [assignment for assignment in assignments if not self._spares(assignment, action)]

    def _spares(self, assignment: Assignment, action: Cause) -> bool:
        started = assignment.group.started if assignment.pod.started is None else assignment.pod.started
        return self._protection.protects(started, self._protection.min_runtime_of_pods(assignment.group, action))

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
        self, assignments: list[Assignment], taker: str, requested: Resources, future: Resources
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
            return _helps(requests, requested) and _over(requests, used[name], self._deserved[name])

        found: list[Assignment] = []
        if not requested.served_by(future + held([*filter(goes, assignments)])):  # the order takes long
            return found
        for assignment in self.in_turn(assignments, taker):
            if goes(assignment):
                used[assignment.group.queue] -= assignment.pod.requests
                found.append(assignment)
        return found


def _helps(requests: Resources, requested: Resources) -> bool:
    """Whether a victim frees anything that is asked for."""
    return bool(
        (requests.gpu and requested.gpu) or (requests.cpu and requested.cpu) or (requests.memory and requested.memory)
    )


def _over(requests: Resources, used: Resources, deserved: Resources) -> bool:
    """Whether the queue exceeds its deserved quota in the pod's resources. Without deserved quota it does."""
    if requests.gpu and (not deserved.gpu or used.gpu > deserved.gpu):
        return True
    cpu, memory = requests.cpu and deserved.cpu, requests.memory and deserved.memory
    if (cpu and used.cpu > deserved.cpu) or (memory and used.memory > deserved.memory):
        return True
    return not (requests.gpu or cpu or memory)


class Prospects:
    """What an action may do for waiting groups in the present state: all that it does, and maybe more.

    Where refusals for now are left out, an action passes over the groups for which it can do nothing.
    """

    def __init__(self, state: VolcanoState, ordering: VolcanoOrder) -> None:
        self._state = state
        self._ordering = ordering
        self._needs, self._least = state.waiting.needs, state.waiting.least

    def places(self, waiting: CasesByQueue) -> set[str]:
        """Queues with a group that may find nodes. A queue that is left out remains so until something is evicted."""
        needs = {queue: self._needs_of(queue, cases) for queue, cases in waiting.items()}
        every = set[Need]().union(*needs.values())
        slots = {least: self._state.slots(least) for least in {need[0] for need in every} if least}
        fitting = {need for need in every if not need[0] or slots[need[0]] >= max(need[1], 1)}
        return {queue for queue, its in needs.items() if not fitting.isdisjoint(its)}

    def _needs_of(self, queue: str, cases: list[VolcanoCandidate]) -> set[Need]:
        """What these groups need; they are other ones, in another list, once one of them has been placed."""
        known = self._needs.get(queue)
        if known is None or known[0] is not cases:
            known = self._needs[queue] = (cases, {self._need(case) for case in cases})
        return known[1]

    def _need(self, case: VolcanoCandidate) -> Need:
        return (case.least, case.group.min_member - self._state.active[case.group.name])

    def finds_nodes(self, case: VolcanoCandidate) -> bool:
        """Whether the missing part of its minimum, at least one pod, may find nodes before anything is evicted."""
        least, missing = self._need(case)
        return not least or self._state.slots(least) >= max(missing, 1)

    def preempts(self, waiting: CasesByQueue) -> set[str]:
        """Queues with a group that may preempt or hold free capacity."""
        return {queue for queue, cases in waiting.items() if self._preempts(queue, cases)}

    def _preempts(self, queue: str, cases: list[VolcanoCandidate]) -> bool:
        known = self._least.get(queue)
        if known is None or known[0] is not cases:
            known = self._least[queue] = (cases, _least_by_priority(cases))
        least, gap = known[1], self._state.largest_gap()
        if any(gpu <= gap for gpu in least.values()):
            return True
        return any(self._state.may_free(queue, priority, gpu) for priority, gpu in least.items())

    def finds_any(self, case: VolcanoCandidate) -> bool:
        """Whether any of its pods may find a node without preemption."""
        return case.least <= self._state.largest_gap()

    def finds_all(self, case: VolcanoCandidate) -> bool:
        """Whether its minimum may find nodes, be it by preemption."""
        if self.finds_nodes(case):
            return True
        least, missing = self._need(case)
        return self._state.may_preempt(case.group, least, max(missing, 1))

    def reclaims(self, waiting: CasesByQueue) -> set[str]:
        """Queues with a group that may reclaim."""
        use_of, may = self._ordering.order.deserved_use, self.may_reclaim
        return {queue for queue, cases in waiting.items() if use_of(queue).takes and any(map(may, cases))}

    def may_reclaim(self, case: VolcanoCandidate) -> bool:
        """Whether its queue may reclaim for all missing pods, as the search would find out at the last of them.

        Pods of different sizes, and those of one domain, are searched for.
        """
        if case.group.topology and not case.group.never_preempts:
            return True
        requested = [pod.requests for pod in case.left if pod.name not in case.kept]
        missing = case.group.min_member - self._state.active[case.group.name]
        if len(requested) < missing:  # one of its pods was evicted meanwhile
            return False
        if requested.count(requested[0]) < len(requested):
            return True
        return self._ordering.may_reclaim(case.group.queue, requested[0] * missing)


def _least_by_priority(cases: Iterable[VolcanoCandidate]) -> dict[int, int]:
    """The least GPUs by priority, without those that a higher priority does not exceed: it may preempt as much."""
    least: dict[int, int] = {}
    for case in cases:
        priority = case.group.priority
        least[priority] = min(case.least, least.get(priority, case.least))
    found: dict[int, int] = {}
    for priority in sorted(least, reverse=True):
        if not found or least[priority] < min(found.values()):
            found[priority] = least[priority]
    return found
