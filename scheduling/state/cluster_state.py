"""The working state of a scheduler: free capacity of nodes, use of queues, assigned pods. Every change can be undone.

Rules try decisions here (evict, place, undo); the snapshot itself never changes. They get the state of a snapshot from
`workspace`, which reuses it from one cycle to the next.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from scheduling.model.reasons import PendingReason
from scheduling.model.resources import ZERO, Resources, sum_of
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode, Strategy, total
from scheduling.state.assignments import Assignment
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity, Selection, matches, selection, wants_part
from scheduling.state.queue_usage import QueueUsageTracker, UsageEntry
from scheduling.state.scoped_cache import Scope, ScopedCache, Value
from scheduling.state.shortage import Shortage, Space, shortage
from scheduling.state.topology_domains import Domains
from scheduling.state.workspace import add, check_time, copied

MANY: Final = 64
"""Pod groups for which sorting the nodes again is faster than moving each node in the order."""


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """Node by pod name. now: all of them can start at once; else some wait for capacity to be freed."""

    nodes: Mapping[str, str]
    now: bool


class SchedulingState:
    """Mutable. `mark` and `undo` enclose an attempt, `restore` ends a cycle.

    counts_on_leaving: whether the scheduler assigns capacity that terminating pods have not freed yet.
    domains: how it finds topology domains.
    """

    tables: ClassVar[tuple[str, ...]] = ("assignments_on", "holders", "_priorities", "_pods_of_kin", "_pods_by_domain")

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        default: Strategy,
        counts_on_leaving: bool = True,
        domains: type[Domains] = Domains,
    ) -> None:
        self._domains = domains(snapshot)
        self.capacities = NodeCapacities(self._domains.nodes)
        self.usage = QueueUsageTracker(snapshot.queues)
        self.nodes: dict[str, list[SnapshotNode]] = defaultdict(list)
        self.assignments_on: dict[str, list[Assignment]] = defaultdict(list)
        self.assignments_of: dict[str, list[Assignment]] = {}
        self.active: dict[str, int] = {}
        self._sizes: dict[Selection, tuple[frozenset[Resources], Resources]] = {}
        self._pods_of_kin: dict[str, Counter[int]] = defaultdict(Counter)
        self._pods_by_domain: dict[str, Counter[str]] = defaultdict(Counter)
        self._strategies = dict(snapshot.strategies)
        self._default = default
        self._counts_on_leaving = counts_on_leaving
        self._shortages: dict[Hashable, tuple[int, Shortage]] = {}
        self._journal: list[Callable[[], object]] = []
        self._groups: dict[str, PodGroup] = {}
        self._entered: dict[str, UsageEntry] = {}
        self._cache = ScopedCache()
        self.holders: dict[str, dict[str, PodGroup]] = defaultdict(dict)
        """Pod groups that have pods on nodes, by queue and name."""
        self._priorities: dict[str, dict[int, int]] = defaultdict(dict)  # how many of these are preemptible
        self.about: Collection[str] | None = None
        """Names of the pod groups whose refusals need their numbers; None: all."""
        for node in self._domains.nodes:
            self.nodes[node.pool].append(node)
        self.advance((), snapshot.groups)

    def advance(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups permanently: `restore` returns to the new state."""
        names, groups = tuple(gone), tuple(come)
        if len(names) + len(groups) >= MANY:
            self.capacities.forget_order()
        self.usage.leave(map(self._entered.__getitem__, names))
        for name in names:
            self._leave(name)
        for group in groups:
            self._enter(group)
        self.usage.enter(self._entered[group.name] for group in groups)
        self._journal.clear()
        self.capacities.settle()

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        names = ("active", "assignments_of", "_groups", "_entered")
        known = {name: vars(self)[name].copy() for name in names}
        known |= {name: copied(vars(self)[name]) for name in self.tables}
        uses, restore_capacities = self.usage.uses.copy(), self.capacities.restore_point()
        restore_cache = self._cache.restore_point()

        def restore() -> None:
            restore_capacities()
            restore_cache()
            self.usage.uses = uses.copy()
            vars(self).update((name, known[name].copy()) for name in names)
            vars(self).update((name, copied(known[name])) for name in self.tables)

        return restore

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups until `restore`, without evicting or placing any."""
        names, groups = tuple(gone), tuple(come)
        self._journal.append(self._cache.undo_step([*map(self._groups.__getitem__, names), *groups]))
        self._journal.append(partial(setattr, self.usage, "uses", self.usage.uses.copy()))
        self.usage.leave(map(self._entered.__getitem__, names))
        for name in names:
            self._journal.append(self._leave(name))
        for group in groups:
            self._enter(group)
            self._journal.append(partial(self._leave, group.name))
        self.usage.enter(self._entered[group.name] for group in groups)

    def _enter(self, group: PodGroup) -> None:
        """Account for a pod group, except in its queue. Pods on unknown nodes count for the queue only."""
        assignments = [
            Assignment(group, pod, self.capacities.get(pod.node)) for pod in group.pods if pod.node is not None
        ]
        self._entered[group.name] = UsageEntry.of(group)
        self.active[group.name] = len(group.holding)
        self._record(group, assignments)
        for assignment in assignments:
            if assignment.capacity is not None:
                assignment.device = assignment.device or assignment.capacity.device_for(
                    assignment.pod.requests.gpu, now=True
                )
                self._occupy(assignment, assignment.capacity, 1)
                self.assignments_on[assignment.capacity.node.name].append(assignment)

    def _leave(self, name: str) -> Callable[[], None]:
        """Remove a pod group, except from its queue; return how to undo it."""
        group, assignments = self._groups.pop(name), self.assignments_of.pop(name)
        active, entered = self.active.pop(name), self._entered.pop(name)
        if assignments:
            self._cache.forget(group)
            del self.holders[group.queue][name]
            self._count_priority(group, -1)
        places = []
        for assignment in assignments:
            place = 0
            if assignment.capacity is not None:
                self._occupy(assignment, assignment.capacity, -1)
                beside = self.assignments_on[assignment.capacity.node.name]
                place = beside.index(assignment)
                del beside[place]
            places.append(place)

        def undo() -> None:
            self.active[name], self._entered[name] = active, entered
            self._record(group, assignments)
            for assignment, place in reversed([*zip(assignments, places, strict=True)]):
                if assignment.capacity is not None:
                    self._occupy(assignment, assignment.capacity, 1)
                    self.assignments_on[assignment.capacity.node.name].insert(place, assignment)

        return undo

    def _record(self, group: PodGroup, assignments: list[Assignment]) -> None:
        self._groups[group.name], self.assignments_of[group.name] = group, assignments
        if assignments:
            self._cache.forget(group)
            self.holders[group.queue][group.name] = group
            self._count_priority(group, 1)

    def _count_priority(self, group: PodGroup, number: int) -> None:
        if group.preemptible:
            add(self._priorities[group.queue], group.priority, number)

    def _occupy(self, assignment: Assignment, capacity: NodeCapacity, sign: int) -> None:
        """Take (sign 1) or give back (-1) the capacity of a pod that is on a node."""
        asked = assignment.pod.requests
        taken = asked if sign < 0 else ZERO - asked
        stays = not (assignment.pod.terminating and self._counts_on_leaving)
        if assignment.device:
            part = asked.gpu * sign
            self.capacities.share(capacity, assignment.device, now=part, later=part if stays else 0)
        self.capacities.change(capacity, idle=taken, future=taken if stays else ZERO, pods=-sign * stays)
        if assignment.group.placement is not None:
            self._count_kin(assignment.group, capacity, sign)
        if assignment.group.topology is not None:
            self._count_in_domain(assignment.group, capacity, sign * (not assignment.pod.terminating))

    def cached(self, scope: Scope, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return `make()`, cached per scope until other pods are on nodes there."""
        return self._cache.get(scope, key, make)

    def has_weaker(self, group: PodGroup) -> bool:
        """Whether preemptible work of lower priority in the same queue has pods on nodes."""
        return min(self._priorities[group.queue], default=group.priority) < group.priority

    def usable(self, group: PodGroup) -> list[SnapshotNode]:
        """Nodes that the group may use, ready or not."""
        return [node for node in self.nodes[group.pool] if matches(node, group)]

    def sizes(self, group: PodGroup) -> tuple[frozenset[Resources], Resources]:
        """Capacities of the nodes that the group may use, ready or not, and their sum."""
        key = selection(group)
        if key not in self._sizes:
            found = [node.capacity for node in self.usable(group)]
            self._sizes[key] = (frozenset(found), sum_of(found))
        return self._sizes[key]

    def strategy(self, group: PodGroup) -> Strategy:
        return self._strategies.get(group.pool, self._default)

    def mark(self) -> int:
        """Return a point for `undo`."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Undo everything since the mark, newest first."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def restore(self) -> None:
        """Undo everything since the state was created or advanced."""
        self.undo(0)
        self.about = None
        self.capacities.restored()
        self._shortages = {key: known for key, known in self._shortages.items() if known[0] == self.capacities.age}

    def reserve(self, capacity: NodeCapacity, amount: Resources, pods: int) -> None:
        """Reserve capacity that is still to be freed; negative amounts release it."""
        self.capacities.change(capacity, future=amount * -1, pods=-pods)
        self._journal.append(lambda: self.capacities.change(capacity, future=amount, pods=pods))

    def evict(self, assignment: Assignment) -> None:
        """Evict: the node's capacity is free in the future, the queue's quota at once."""
        check_time()
        self._move_out(assignment, leaving=True)

    def keep(self, assignment: Assignment) -> None:
        """Cancel an eviction."""
        self._move_out(assignment, leaving=False)

    def _move_out(self, assignment: Assignment, *, leaving: bool) -> None:
        asked, group, capacity = assignment.pod.requests, assignment.group, assignment.capacity
        gone = capacity if self._counts_on_leaving else None
        self._journal.append(self._undo_step(group, gone, partial(self._mark_out, assignment, leaving=not leaving)))
        freed, used = (asked, ZERO - asked) if leaving else (ZERO - asked, asked)
        self._mark_out(assignment, leaving=leaving)
        if gone is not None:
            self.capacities.change(gone, future=freed, pods=1 if leaving else -1)
        self._count(group, used, -1 if leaving else 1)

    def _mark_out(self, assignment: Assignment, *, leaving: bool) -> None:
        """Note that it leaves or stays, except in the amounts of its node and queue."""
        assignment.leaving = leaving
        if assignment.device and assignment.capacity is not None and self._counts_on_leaving:
            gpu = assignment.pod.requests.gpu
            self.capacities.share(assignment.capacity, assignment.device, later=-gpu if leaving else gpu)
        self._count_in_domain(assignment.group, assignment.capacity, -1 if leaving else 1)

    def _undo_step(
        self, group: PodGroup, capacity: NodeCapacity | None, rest: Callable[[], None]
    ) -> Callable[[], None]:
        """Return a function that restores the present amounts of a node and the queues of a group, and does `rest`."""
        uses, active, name, number = self.usage.uses, self.active, group.name, self.active[group.name]
        used = [(queue.name, uses[queue.name]) for queue in self.usage.path(group.queue)]
        put_back = None if capacity is None else self.capacities.undo_step(capacity)

        def undo() -> None:
            uses.update(used)
            active[name] = number
            if put_back is not None:
                put_back()
            rest()

        return undo

    def place(self, group: PodGroup, pod: Pod, capacity: NodeCapacity, *, now: bool) -> None:
        """Assign a pod to a node: now, or once capacity is freed."""
        asked, device = pod.requests, capacity.device_for(pod.requests.gpu, now=now)
        unmark = partial(self._mark_placed, group, asked, capacity, device, now=now, sign=-1)
        self._journal.append(self._undo_step(group, capacity, unmark))
        change = ZERO - asked
        self._mark_placed(group, asked, capacity, device, now=now, sign=1)
        self.capacities.change(capacity, idle=change if now else ZERO, future=change, pods=-1)
        self._count(group, asked, 1)

    def _mark_placed(
        self, group: PodGroup, asked: Resources, capacity: NodeCapacity, device: str, *, now: bool, sign: int
    ) -> None:
        """Note a pod on a node (sign 1), or no longer (-1), except in the amounts of its node and queue."""
        part = asked.gpu * sign
        self.capacities.share(capacity, device, now=part if now else 0, later=part)
        self._count_kin(group, capacity, sign)
        self._count_in_domain(group, capacity, sign)

    def _count_kin(self, group: PodGroup, capacity: NodeCapacity, pods: int) -> None:
        """Count pods per node for groups that pack or spread their own pods."""
        if group.placement is not None:
            self._pods_of_kin[group.kin or group.name][capacity.index] += pods

    def _count_in_domain(self, group: PodGroup, capacity: NodeCapacity | None, pods: int) -> None:
        """Count pods per topology domain for groups that must be in one domain."""
        if group.topology is not None and capacity is not None:
            self._pods_by_domain[group.name][capacity.node.labels.get(self._domains.key(group), "")] += pods

    def _count(self, group: PodGroup, amount: Resources, pods: int) -> None:
        self.active[group.name] += pods
        if not group.made:
            self.usage.charge(group.queue, amount, preemptible=group.preemptible)

    def refusal(self, group: PodGroup, asked: Resources) -> PendingReason | None:
        """Why limits or quotas of its queues refuse it; None if they allow it, or have counted its pods already."""
        return None if group.made else self.usage.refusal(group.queue, asked, preemptible=group.preemptible)

    def find(self, group: PodGroup, asked: Resources, *, now: bool) -> NodeCapacity | None:
        """Return the best node for one pod: by its own placement (pack, spread) first, then by the pool's strategy."""
        check_time()
        strategy = self.strategy(group)
        if group.placement is None:
            return self.capacities.find(asked, group, strategy, now=now)
        own, sign = self._pods_of_kin[group.kin or group.name], -1 if group.placement is Strategy.BINPACK else 1
        fitting = self.capacities.fitting(asked, group, strategy, now=now)
        return min(fitting, key=lambda capacity: sign * own[capacity.index], default=None)

    def domains(
        self, group: PodGroup, asked: Resources = ZERO, *, among: Collection[str] | None = None
    ) -> list[PodGroup]:
        """Return the group once per domain of its topology, the tightest first; without topology, the group itself.

        A group with running pods stays in their domain. asked: resources needed; among: node names, None: all nodes.
        """
        if group.topology is None:
            return [group]
        homes, key = +self._pods_by_domain[group.name], self._domains.key(group)
        found = self._domains.ordered(group, asked, self.capacities.matching(group), among)
        names = [name for name in found if not homes or name in homes]
        return [replace(group, node_selector={**group.node_selector, key: name}) for name in names]

    def domain_of(self, group: PodGroup) -> str:
        """Return the domain of a group that `domains` returned."""
        return group.node_selector[self._domains.key(group)]

    def place_all(self, group: PodGroup, pods: tuple[Pod, ...]) -> PlacedPods | None:
        """Place all these pods or none, in one topology domain if required. If one has to wait, all wait."""
        domains = self.domains(group, total(pods))
        return next(filter(None, (self.place_together(each, pods) for each in domains)), None)

    def place_together(self, group: PodGroup, pods: tuple[Pod, ...]) -> PlacedPods | None:
        """Place all these pods or none, for a group restricted to one domain."""
        mark = self.mark()
        found: list[tuple[Pod, NodeCapacity, bool]] = []
        for pod in pods:
            capacity = self.find(group, pod.requests, now=True)
            later = None if capacity else self.find(group, pod.requests, now=False)
            chosen = capacity or later
            if chosen is None:
                self.undo(mark)
                return None
            self.place(group, pod, chosen, now=later is None)
            found.append((pod, chosen, later is None))
        now = all(at_once for _pod, _capacity, at_once in found)
        if not now:
            self.undo(mark)
            for pod, chosen, _at_once in found:
                self.place(group, pod, chosen, now=False)
        return PlacedPods({pod.name: chosen.node.name for pod, chosen, _at_once in found}, now)

    def shortage(self, group: PodGroup, pods: tuple[Pod, ...], *, now: bool = True) -> Shortage:
        """Return what is short for these pods, now or once all terminating pods are gone."""
        asked, age = tuple(pod.requests for pod in pods), self.capacities.age
        key = (selection(group), group.topology and group.name, asked, now)
        known = self._shortages.get(key)
        if known is None or known[0] != age:
            domains = [self.spaces(each, now=now) for each in self.domains(group)]
            known = self._shortages[key] = (age, shortage(domains, asked))
        return known[1]

    def spaces(self, group: PodGroup, *, now: bool = True) -> list[Space]:
        """Free resources and pod slots of each node that the group may use."""
        part = wants_part(group)
        return [(capacity.free(now=now, part=part), capacity.pods_left) for capacity in self.capacities.matching(group)]

    def over_quota(self, group: PodGroup) -> bool:
        """Return whether its queue is above its deserved quota."""
        return any(
            not self.usage.uses[queue.name].allocated.within(queue.deserved)
            for queue in self.usage.path(group.queue)[:1]
        )


def packed_state(snapshot: Snapshot) -> SchedulingState:
    """The state for schedulers that pack nodes and assign capacity that is about to be freed."""
    return SchedulingState(snapshot, default=Strategy.BINPACK)
