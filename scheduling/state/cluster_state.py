"""The working state of a scheduler: free capacity of nodes, use of queues, assigned pods. Every change can be undone.

Rules try decisions here (evict, place, undo); the snapshot itself never changes. They get the state of a snapshot from
`workspace`, which reuses it from one cycle to the next.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from scheduling.model.reasons import PendingReason
from scheduling.model.resources import ZERO, Resources, sum_of
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode, Strategy, total
from scheduling.state.assignments import ONE_LINE, Assignment, Entries, PlacedPods, RankedPods, Ranking, amounts_by
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity, Selection, matches, selection, wants_part
from scheduling.state.queue_usage import QueueUsageTracker, UsageEntry
from scheduling.state.shortage import Shortage, Space, shortage
from scheduling.state.topology_domains import KaiDomains, TopologyDomains
from scheduling.state.workspace import Scope, ScopedCache, Value, add, check_time, copied


class SchedulingState:
    """Mutable. `mark` and `undo` enclose an attempt, `restore` ends a cycle.

    counts_on_leaving: whether the scheduler assigns capacity that terminating pods have not freed yet.
    domains: how it finds topology domains. about: names of the groups whose refusals need their numbers; None: all.
    """

    tables: ClassVar[tuple[str, ...]] = (
        "assignments_on",
        "holders",
        "_priorities",
        "_ranked",
        "_pods_of_kin",
        "_pods_by_domain",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        default: Strategy,
        counts_on_leaving: bool = True,
        domains: type[TopologyDomains] = KaiDomains,
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
        self._ranked: dict[Ranking, RankedPods] = {}
        self.about: Collection[str] | None = None
        for node in self._domains.nodes:
            self.nodes[node.pool].append(node)
        self.advance((), snapshot.groups)

    def advance(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups permanently: `restore` returns to the new state."""
        names, groups = tuple(gone), tuple(come)
        self.usage.leave(map(self._entered.__getitem__, names))
        for name in names:
            self._take_out(name)
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
        self._journal += map(self._leave, names)
        for group in groups:
            self._enter(group)
            self._journal.append(partial(self._leave, group.name))
        self.usage.enter(self._entered[group.name] for group in groups)

    def requeue(self, queues: tuple[Queue, ...], *, forget: bool = False) -> None:
        """Give queues other quotas until `restore`. forget: what is cached depends on quotas, and is set aside."""
        if queues is not self.usage.queues:
            self._journal += ([self._cache.set_aside()] if forget else []) + [self.usage.requeue(queues)]

    def _enter(self, group: PodGroup) -> None:
        """Account for a pod group, except in its queue. Pods on unknown nodes count for the queue only."""
        on_nodes = [pod for pod in group.pods if pod.node is not None]
        assignments = [Assignment(group, pod, self.capacities.get(pod.node)) for pod in on_nodes]
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
        group, assignments = self._groups[name], self.assignments_of[name]
        active, entered = self.active[name], self._entered[name]
        places = self._take_out(name)

        def undo() -> None:
            self.active[name], self._entered[name] = active, entered
            self._record(group, assignments)
            for assignment, place in reversed([*zip(assignments, places, strict=True)]):
                if assignment.capacity is not None:
                    self._occupy(assignment, assignment.capacity, 1)
                    self.assignments_on[assignment.capacity.node.name].insert(place, assignment)

        return undo

    def _take_out(self, name: str) -> list[int]:
        """Remove a pod group, except from its queue; return the places of its pods among those on their nodes."""
        group, assignments = self._groups.pop(name), self.assignments_of.pop(name)
        del self.active[name], self._entered[name]
        places: list[int] = []
        if assignments:
            self._cache.forget(group)
            del self.holders[group.queue][name]
            self._count_holder(group, assignments, -1)
        for assignment in assignments:
            places.append(0)
            if assignment.capacity is not None:
                self._occupy(assignment, assignment.capacity, -1)
                beside = self.assignments_on[assignment.capacity.node.name]
                places[-1] = beside.index(assignment)
                del beside[places[-1]]
        return places

    def _record(self, group: PodGroup, assignments: list[Assignment]) -> None:
        self._groups[group.name], self.assignments_of[group.name] = group, assignments
        if assignments:
            self._cache.forget(group)
            self.holders[group.queue][group.name] = group
            self._count_holder(group, assignments, 1)

    def _count_holder(self, group: PodGroup, pods: Sequence[Assignment], number: int) -> None:
        if group.preemptible:
            add(self._priorities[group.queue], group.priority, number)
        for ranked in self._ranked.values():
            (ranked.add if number > 0 else ranked.remove)(pods)

    def _occupy(self, assignment: Assignment, capacity: NodeCapacity, sign: int) -> None:
        """Take (sign 1) or give back (-1) the capacity of a pod that is on a node."""
        requested = assignment.pod.requests
        taken = requested if sign < 0 else ZERO - requested
        stays = not (assignment.pod.terminating and self._counts_on_leaving)
        if assignment.device:
            part = requested.gpu * sign
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

    def ranked(self, ranking: Ranking, line: str = ONE_LINE) -> Entries:
        """One line of the pods on nodes, maintained from now on."""
        if ranking not in self._ranked:
            self._ranked[ranking] = RankedPods(ranking, self.assignments_of.values())
        return self._ranked[ranking].lines[line]

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

    def evict(self, *assignments: Assignment) -> None:
        """Evict: the capacity of nodes is free in the future, the quota of queues at once."""
        check_time()
        self._move_out(assignments, leaving=True)

    def keep(self, assignment: Assignment) -> None:
        """Cancel an eviction."""
        self._move_out((assignment,), leaving=False)

    def _move_out(self, assignments: Sequence[Assignment], *, leaving: bool) -> None:
        """Change each node and queue once."""
        sign = -1 if leaving else 1
        active = {assignment.group.name: self.active[assignment.group.name] for assignment in assignments}
        for assignment in assignments:
            self._mark_out(assignment, leaving=leaving)
            self.active[assignment.group.name] += sign
        counted = assignments if self._counts_on_leaving else ()
        by_node = amounts_by((each.capacity, each.pod.requests) for each in counted if each.capacity is not None)
        charged = (each for each in assignments if not each.group.made)
        by_queue = amounts_by(((each.group.queue, each.group.preemptible), each.pod.requests) for each in charged)
        steps = [*map(self.capacities.undo_step, by_node), self.usage.undo_step(queue for queue, _fixed in by_queue)]

        def undo() -> None:
            self.active.update(active)
            for step in steps:
                step()
            for assignment in assignments:
                self._mark_out(assignment, leaving=not leaving)

        self._journal.append(undo)
        for (queue, preemptible), amounts in by_queue.items():
            self.usage.charge(queue, sum_of(amounts) * sign, preemptible=preemptible)
        for capacity, amounts in by_node.items():
            self.capacities.change(capacity, future=sum_of(amounts) * -sign, pods=-sign * len(amounts))

    def _mark_out(self, assignment: Assignment, *, leaving: bool) -> None:
        """Note that it leaves or stays, except in the amounts of its node and queue."""
        assignment.leaving = leaving
        if assignment.device and assignment.capacity is not None and self._counts_on_leaving:
            gpu = assignment.pod.requests.gpu
            self.capacities.share(assignment.capacity, assignment.device, later=-gpu if leaving else gpu)
        self._count_in_domain(assignment.group, assignment.capacity, -1 if leaving else 1)

    def place(self, group: PodGroup, pod: Pod, capacity: NodeCapacity, *, now: bool) -> None:
        """Assign a pod to a node: now, or once capacity is freed."""
        requested, device = pod.requests, capacity.device_for(pod.requests.gpu, now=now)
        put_back, uses, active = self.capacities.undo_step(capacity), self.usage.undo_step((group.queue,)), self.active

        def undo() -> None:
            active[group.name] -= 1
            uses()
            put_back()
            self._mark_placed(group, requested, capacity, device, now=now, sign=-1)

        self._journal.append(undo)
        change = ZERO - requested
        self._mark_placed(group, requested, capacity, device, now=now, sign=1)
        self.capacities.change(capacity, idle=change if now else ZERO, future=change, pods=-1)
        active[group.name] += 1
        if not group.made:
            self.usage.charge(group.queue, requested, preemptible=group.preemptible)

    def _mark_placed(
        self, group: PodGroup, requested: Resources, capacity: NodeCapacity, device: str, *, now: bool, sign: int
    ) -> None:
        """Note a pod on a node (sign 1), or no longer (-1), except in the amounts of its node and queue."""
        self.capacities.share(capacity, device, now=requested.gpu * sign * now, later=requested.gpu * sign)
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

    def refusal(self, group: PodGroup, requested: Resources) -> PendingReason | None:
        """Why limits or quotas of its queues refuse it; None if they allow it, or have counted its pods already."""
        return None if group.made else self.usage.refusal(group.queue, requested, preemptible=group.preemptible)

    def find(self, group: PodGroup, requested: Resources, *, now: bool) -> NodeCapacity | None:
        """Return the best node for one pod: by its own placement (pack, spread) first, then by the pool's strategy."""
        check_time()
        strategy = self.strategy(group)
        if group.placement is None:
            return self.capacities.find(requested, group, strategy, now=now)
        own, sign = self._pods_of_kin[group.kin or group.name], -1 if group.placement is Strategy.BINPACK else 1
        fitting = self.capacities.fitting(requested, group, strategy, now=now)
        return min(fitting, key=lambda capacity: sign * own[capacity.index], default=None)

    def domains(
        self, group: PodGroup, requested: Resources = ZERO, *, among: Collection[str] | None = None
    ) -> list[PodGroup]:
        """Return the group once per domain of its topology, the tightest first; without topology, the group itself.

        A group with running pods stays in their domain. asked: resources needed; among: node names, None: all nodes.
        """
        if group.topology is None:
            return [group]
        homes, key = +self._pods_by_domain[group.name], self._domains.key(group)
        found = self._domains.ordered(group, requested, self.capacities.matching(group), among)
        names = [name for name in found if not homes or name in homes]
        return [replace(group, node_selector={**group.node_selector, key: name}) for name in names]

    def domain_of(self, group: PodGroup) -> str:
        """Return the domain of a group that `domains` returned."""
        return group.node_selector[self._domains.key(group)]

    def place_all(self, group: PodGroup, pods: tuple[Pod, ...]) -> PlacedPods | None:
        """Place all these pods or none, in one topology domain if required. If one has to wait, all wait."""
        return next(filter(None, (self.place_together(each, pods) for each in self.domains(group, total(pods)))), None)

    def place_together(self, group: PodGroup, pods: tuple[Pod, ...]) -> PlacedPods | None:
        """Place all these pods or none, for a group restricted to one domain."""
        mark = self.mark()
        found: list[tuple[Pod, NodeCapacity, bool]] = []
        for pod in pods:
            capacity = self.find(group, pod.requests, now=True)
            chosen = capacity or self.find(group, pod.requests, now=False)
            if chosen is None:
                self.undo(mark)
                return None
            self.place(group, pod, chosen, now=capacity is not None)
            found.append((pod, chosen, capacity is not None))
        now = all(at_once for _pod, _capacity, at_once in found)
        if not now:
            self.undo(mark)
            for pod, chosen, _at_once in found:
                self.place(group, pod, chosen, now=False)
        return PlacedPods({pod.name: chosen.node.name for pod, chosen, _at_once in found}, now)

    def shortage(self, group: PodGroup, pods: tuple[Pod, ...], *, now: bool = True) -> Shortage:
        """Return what is short for these pods, now or once all terminating pods are gone."""
        requested, age = tuple(pod.requests for pod in pods), self.capacities.age
        key = (selection(group), group.topology and group.name, requested, now)
        known = self._shortages.get(key)
        if known is None or known[0] != age:
            domains = [self.spaces(each, now=now) for each in self.domains(group)]
            known = self._shortages[key] = (age, shortage(domains, requested))
        return known[1]

    def spaces(self, group: PodGroup, *, now: bool = True) -> list[Space]:
        """Free resources and pod slots of each node that the group may use."""
        part = wants_part(group)
        return [(capacity.free(now=now, part=part), capacity.pods_left) for capacity in self.capacities.matching(group)]


def packed_state(snapshot: Snapshot) -> SchedulingState:
    """The state for schedulers that pack nodes and assign capacity that is about to be freed."""
    return SchedulingState(snapshot, default=Strategy.BINPACK)
