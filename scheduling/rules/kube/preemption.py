"""Plain kube-scheduler: pod by pod, by priority over all namespaces.

Source: kube-scheduler's default preemption, checked decision by decision against a real one (docs/model.md).

- It knows neither queues nor gangs. A queue of the snapshot acts as a ResourceQuota: a pod over it is not created, so
  nothing is evicted for it. Pods that exist (`PodGroup.made`) count against it from their creation until they are gone.
- Capacity held by terminating pods is not assigned before it is free. They count as victims like any other pod, at no
  extra cost, but the order below does not spare other pods in their favour.
- Capacity reserved for a nominated pod is refused to pods of equal or lower priority only.
- On each node, remove all pods of lower priority, then reprieve them by priority, earlier start first, while the
  preemptor still fits. A pod that has not started counts as the latest. Preemptibility does not protect a pod.
- Choose the node with the lowest highest-priority victim, then the smallest sum of priorities (each shifted up by 2^31,
  so fewer victims nearly always win), fewest victims, latest start of the top victims, first node.
- A pod that waits for victims on its nominated node evicts no others until they are gone.
- A pod with preemptionPolicy Never evicts no pods. Disruption budgets are not modelled.

Every flavour whose single pods kube-scheduler places uses these rules.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Final

from scheduling.model.decisions import Decision, Start, Until, Wait, up_to
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, Strategy
from scheduling.state.assignments import Assignment, evictions, held
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity, Selection, selection
from scheduling.state.refusals import impossible, no_room
from scheduling.state.workspace import NODES, check_time, workspace

PRIORITY_SHIFT: Final = 2**31
NOT_STARTED: Final = 2**63

NodeScore = tuple[int, int, int, int]


def kube_state(snapshot: Snapshot) -> SchedulingState:
    """The state for kube-scheduler: it spreads pods, and assigns capacity only once it is free."""
    return SchedulingState(snapshot, default=Strategy.SPREAD, counts_on_leaving=False)


def schedule_order(waiting: Iterable[PodGroup]) -> list[PodGroup]:
    """Highest priority first, then the older group."""
    return sorted(waiting, key=lambda group: (-group.priority, *group.age))


def start_time(assignment: Assignment) -> int:
    """When its pod started; `NOT_STARTED`, later than any, for one that has not."""
    started = assignment.group.started if assignment.pod.started is None else assignment.pod.started
    return NOT_STARTED if started is None else started


@dataclass(slots=True)
class _GroupAttempt:
    """What has been decided for one pod group so far."""

    placements: dict[str, str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    victims: list[Assignment] = field(default_factory=list)
    pend: PendingReason | None = None


class Nominations:
    """Nodes to which waiting pods were nominated in earlier cycles, reserved against pods of no higher priority."""

    def __init__(self, state: SchedulingState, waiting: list[PodGroup]) -> None:
        self._state = state
        self._coming: list[tuple[int, Pod, NodeCapacity]] = []
        self._kept: dict[str, tuple[Pod, NodeCapacity]] = {}
        for group in reversed(waiting):
            for pod in group.waiting:
                if capacity := state.capacities.get(pod.nominated):
                    self._coming.append((group.priority, pod, capacity))

    def reserve_from(self, priority: int) -> None:
        """Reserve the nominated nodes of pods of at least this priority from now on."""
        while self._coming and self._coming[-1][0] >= priority:
            _priority, pod, capacity = self._coming.pop()
            self.reserve(pod, capacity)

    def reserve(self, pod: Pod, capacity: NodeCapacity) -> None:
        """Reserve the nominated node of this pod from now on."""
        self._state.reserve(capacity, pod.requests, 1)
        self._kept[pod.name] = (pod, capacity)

    def release(self, pod: Pod) -> NodeCapacity | None:
        """Release and return the nominated node of the pod that is scheduled now."""
        found = self._kept.pop(pod.name, None)
        if found is None:
            return None
        self._state.reserve(found[1], ZERO - pod.requests, -1)
        return found[1]

    def drop(self, capacity: NodeCapacity) -> None:
        """Drop the nominations of a node on which a pod of higher priority evicts."""
        self._coming = [promise for promise in self._coming if promise[2] is not capacity]


class KubePreemption:
    """Schedules the single pods of one cycle. Rules for other groups share its state and its nominations."""

    def __init__(self, state: SchedulingState, waiting: list[PodGroup]) -> None:
        self.state = state
        self.nominations = Nominations(state, waiting)
        self._rankings: dict[tuple[Selection, Resources, int], _Ranking] = {}

    def turn(self, group: PodGroup) -> list[Decision]:
        """Start the pods that fit, evict for the others."""
        turn = _GroupAttempt()
        refused: set[Resources] = set()
        self.nominations.reserve_from(group.priority)
        for pod in group.waiting:
            if (pod.nominated or pod.requests not in refused) and (pend := self._pod(group, pod, turn)):
                turn.pend = turn.pend or pend
                refused.add(pod.requests)
        decisions: list[Decision] = []
        if turn.placements:
            decisions.append(Start(group, turn.placements, self.state.usage.over_quota(group.queue)))
        decisions += evictions(turn.victims, Cause.PREEMPT, group)
        if turn.nominated and turn.pend is None:
            coming = tuple(pod for pod in group.waiting if pod.name in turn.nominated)
            turn.pend = no_room(self.state, group, coming, Reason.EVICTING)
        if turn.pend is not None:
            decisions.append(Wait(group, turn.pend, turn.nominated))
        return decisions

    def _pod(self, group: PodGroup, pod: Pod, turn: _GroupAttempt) -> PendingReason | None:
        """Decide about one pod: start, wait for capacity, evict, or the reason why none of these."""
        nominated = self.nominations.release(pod)
        if pend := self.state.refusal(group, pod.requests) or impossible(self.state, group, (pod,)):
            return pend
        if capacity := self._fitting(group, pod, nominated):
            self.state.place(group, pod, capacity, now=True)
            turn.placements[pod.name] = capacity.node.name
            return None
        found = self._awaited(group, nominated) or self._preempt(group, pod, turn)
        if found is None:
            return self._no_victims(group, pod)
        self.state.place(group, pod, found, now=False)
        turn.nominated[pod.name] = found.node.name
        return None

    def _fitting(self, group: PodGroup, pod: Pod, nominated: NodeCapacity | None) -> NodeCapacity | None:
        """Return the nominated node if the pod fits by now, else the best node on which it fits."""
        if nominated and nominated.fits(pod.requests, now=True):
            return nominated
        return self.state.find(group, pod.requests, now=True)

    def _awaited(self, group: PodGroup, nominated: NodeCapacity | None) -> NodeCapacity | None:
        """Return the nominated node while pods of lower priority are terminating there."""
        if nominated is None or group.never_preempts:
            return None
        return nominated if any(assignment.leaving for assignment in self._weaker(nominated, group.priority)) else None

    def _preempt(self, group: PodGroup, pod: Pod, turn: _GroupAttempt) -> NodeCapacity | None:
        """Evict on the best node. Pods that are terminating there are not evicted again."""
        capacity = None if group.never_preempts else self._best_node(group, pod.requests)
        if capacity is not None:
            self.nominations.drop(capacity)
            for assignment in self._victims(capacity, pod.requests, group.priority):
                if not assignment.leaving:
                    self.state.evict(assignment)
                    turn.victims.append(assignment)
        return capacity

    def _no_victims(self, group: PodGroup, pod: Pod) -> PendingReason:
        never = group.never_preempts and self._best_node(group, pod.requests) is not None
        return no_room(self.state, group, (pod,), Reason.PREEMPTION_NEVER if never else Reason.NO_ROOM)

    def _best_node(self, group: PodGroup, requested: Resources) -> NodeCapacity | None:
        key = (selection(group), requested, group.priority)
        if key not in self._rankings:
            bounds = self.state.cached(
                NODES,
                ("bounds", key),
                lambda: EvictionCosts(self.state, self.state.capacities.matching(group), requested, group.priority),
            )
            cost = partial(self.cost_of, requested=requested, priority=group.priority)
            self._rankings[key] = _Ranking(self.state.capacities, bounds, cost)
        return self._rankings[key].best()

    def cost_of(self, capacity: NodeCapacity, requested: Resources, priority: int) -> NodeScore | None:
        """Cost of a preemption on this node, lower is better; None if it frees too little or needs no victim."""
        victims = self._victims(capacity, requested, priority)
        if not victims:
            return None
        priorities = [assignment.group.priority for assignment in victims]
        top = priorities[0]
        oldest_of_top = min(start_time(assignment) for assignment in victims if assignment.group.priority == top)
        return (top, sum(priorities) + PRIORITY_SHIFT * len(victims), len(victims), -oldest_of_top)

    def _weaker(self, capacity: NodeCapacity, priority: int) -> list[Assignment]:
        """The highest priority first."""
        return [assignment for assignment in by_strength(self.state, capacity) if assignment.group.priority < priority]

    def _victims(self, capacity: NodeCapacity, requested: Resources, priority: int) -> list[Assignment]:
        """Victims needed on this node; empty if evicting all of lower priority is not enough."""
        check_time()
        weaker = self._weaker(capacity, priority)
        free, pods_left = capacity.future + held(weaker), capacity.pods_left + len(weaker)
        if not (pods_left > 0 and requested.served_by(free)):
            return []
        victims = []
        for assignment in weaker:
            left = free - assignment.pod.requests
            if pods_left > 1 and requested.served_by(left):
                free, pods_left = left, pods_left - 1
            else:
                victims.append(assignment)
        return victims


def by_strength(state: SchedulingState, capacity: NodeCapacity) -> list[Assignment]:
    """Pods on a node, higher priority first, then the earlier start. Cached while the same pods are there."""
    assignments = state.assignments_on[capacity.node.name]
    return state.cached(("node", capacity.node.name), "by strength", lambda: sorted(assignments, key=_strength))


def _strength(assignment: Assignment) -> tuple[int, int]:
    return (-assignment.group.priority, start_time(assignment))


def _lowest(state: SchedulingState, capacity: NodeCapacity) -> float:
    """The lowest priority on a node."""
    assignments = state.assignments_on[capacity.node.name]
    return min((assignment.group.priority for assignment in assignments), default=inf)


Freed = tuple[int, Resources, int]
"""A priority, and the resources and number of the pods of this and lower priorities on a node."""


def _freed(state: SchedulingState, capacity: NodeCapacity) -> list[Freed]:
    """One entry per priority on the node, the lowest first."""
    found: list[Freed] = []
    amount, count = ZERO, 0
    for assignment in reversed(by_strength(state, capacity)):
        amount, count = amount + assignment.pod.requests, count + 1
        if found and found[-1][0] == assignment.group.priority:
            found.pop()
        found.append((assignment.group.priority, amount, count))
    return found


class EvictionCosts:
    """Cost of a preemption per node, or its first part, the highest victim priority. Cached from cycle to cycle."""

    def __init__(
        self, state: SchedulingState, matching: list[NodeCapacity], requested: Resources, priority: int
    ) -> None:
        self._state = state
        self._requested = requested
        self._priority = priority
        self._seen = len(state.capacities.moved)
        self.matching = {capacity.index: capacity for capacity in matching}
        self._sorted: list[_Entry] = sorted(filter(None, map(self.entry, matching)))
        self._entries = {entry[1]: entry for entry in self._sorted}
        self._unsettled = self._changed()
        """Discard what is known of these nodes."""

    def entry(self, capacity: NodeCapacity) -> "_Entry | None":
        """Highest victim priority; None if the node cannot be freed enough or needs no victim."""
        future, requested, left = capacity.future, self._requested, capacity.pods_left
        if left > 0 and requested.served_by(future):
            return None
        scope = ("node", capacity.node.name)
        if self._state.cached(scope, "lowest", lambda: _lowest(self._state, capacity)) >= self._priority:
            return None
        for priority, amount, count in self._state.cached(scope, "freed", lambda: _freed(self._state, capacity)):
            if priority >= self._priority:
                return None
            if left + count > 0 and requested.served_by(future + amount):
                return ((priority,), capacity.index, capacity.version)
        return None

    def record(self, capacity: NodeCapacity, cost: NodeScore) -> None:
        """Keep the whole cost of a node that this cycle has not changed."""
        known = self._entries.get(capacity.index)
        if known is not None and known[2] == capacity.version:
            self._replace(capacity.index, (cost, capacity.index, capacity.version))

    def settled(self) -> list["_Entry"]:
        """The costs of all nodes as they were before this cycle, sorted."""
        moved, changed = self._state.capacities.moved, self._changed()
        again = ({capacity.index for capacity in moved[self._seen :]} & self.matching.keys()) | self._unsettled
        for index in again:
            self._replace(index, self.entry(self.matching[index]))
        self._unsettled, self._seen = again & changed, len(moved)
        return self._sorted

    def _replace(self, index: int, entry: "_Entry | None") -> None:
        if (known := self._entries.pop(index, None)) is not None:
            del self._sorted[bisect_left(self._sorted, known)]
        if entry is not None:
            self._entries[index] = entry
            insort(self._sorted, entry)

    def _changed(self) -> set[int]:
        """Indexes of the nodes that this cycle has changed so far."""
        return {capacity.index for capacity in self._state.capacities.changes} & self.matching.keys()


_Entry = tuple[tuple[int, ...], int, int]


class _Ranking:
    """Nodes ordered by the cost of a preemption, computed only as far as the cheapest needs.

    An entry holds the first part of the cost or all of it. Only nodes that have changed since are computed again.
    """

    def __init__(
        self, capacities: NodeCapacities, bounds: EvictionCosts, cost: Callable[[NodeCapacity], NodeScore | None]
    ) -> None:
        self._capacities = capacities
        self._cost = cost
        self._bounds = bounds
        self._heap = list(bounds.settled())
        self._seen = 0

    def best(self) -> NodeCapacity | None:
        """Return the cheapest node, the first of equal ones; None if no node can be freed enough."""
        matching = self._bounds.matching
        changed = {capacity.index for capacity in self._capacities.changes[self._seen :]}
        self._seen = len(self._capacities.changes)
        for index in sorted(changed & matching.keys()):
            if entry := self._bounds.entry(matching[index]):
                heappush(self._heap, entry)
        while self._heap:
            score, index, version = self._heap[0]
            capacity = matching[index]
            if capacity.version == version and len(score) > 1:
                return capacity
            heappop(self._heap)
            if capacity.version == version and (cost := self._cost(capacity)) is not None:
                self._bounds.record(capacity, cost)
                heappush(self._heap, (cost, index, version))
        return None


LEAST_SAMPLE: Final = 100
"""kube-scheduler tries at least this many nodes; of more, a tenth, from a random one on."""


def sample_size(nodes: int) -> int:
    """How many of these nodes it tries (minCandidateNodesAbsolute and minCandidateNodesPercentage)."""
    return min(max(nodes // 10, LEAST_SAMPLE), nodes)


def equally_good(snapshot: Snapshot, group: PodGroup) -> tuple[int, list[str]]:
    """How many nodes a group may use, and the names of those on which its first pod costs as few victims of as low
    priorities as on the best, the one with the latest start first. Other waiting pods are ignored.
    """
    with workspace(snapshot, kube_state) as state:
        trial, requested = KubePreemption(state, []), group.waiting[0].requests
        capacities = state.capacities.matching(group)
        costs = {capacity.node.name: trial.cost_of(capacity, requested, group.priority) for capacity in capacities}
        found = sorted((cost, name) for name, cost in costs.items() if cost is not None)
        return len(capacities), [name for cost, name in found if cost[:3] == found[0][0][:3]]


class KubeRules:
    """Rules of the flavour `kube`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Decide once about every waiting pod, highest priority first, then the older group."""
        waiting = schedule_order(snapshot.waiting)
        with workspace(snapshot, kube_state) as state:
            state.requeue(snapshot.queues)
            state.about = about
            cycle = KubePreemption(state, waiting)
            return up_to(map(cycle.turn, waiting), about, until)
