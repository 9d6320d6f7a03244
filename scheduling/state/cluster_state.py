"""The working state of one cycle: rooms on nodes, use per queue, who sits where. Every change can be undone.

Decisions are tried on the board (simulate removal, then restore); the snapshot itself is never touched.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace

from scheduling.model.reasons import PendingReason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode, Strategy, total
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity, Selection, matches, selection, wants_part
from scheduling.state.queue_usage import QueueUsageTracker
from scheduling.state.shortage import Shortage, Space, shortage
from scheduling.state.topology_domains import Domains


class Assignment:
    """A pod on a node. `leaving`: about to free it, or evicted in this cycle."""

    __slots__ = ("device", "group", "leaving", "pod", "room")

    def __init__(self, group: PodGroup, pod: Pod, room: NodeCapacity | None) -> None:
        self.group = group
        self.pod = pod
        self.room = room
        self.leaving = pod.terminating
        self.device = pod.device


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """Where pods went: pod name to node. now: all of them may start at once."""

    nodes: Mapping[str, str]
    now: bool


class SchedulingState:
    """Mutable, one per cycle. `mark` and `undo` bracket an attempt.

    counts_on_leaving: does the scheduler give out room that pods on their way out will leave behind?
    domains: how it looks for close nodes.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        default: Strategy,
        counts_on_leaving: bool = True,
        domains: type[Domains] = Domains,
    ) -> None:
        self._domains = domains(snapshot)
        self.rooms = NodeCapacities(self._domains.nodes)
        self.ledger = QueueUsageTracker(snapshot.queues)
        self.nodes: dict[str, list[SnapshotNode]] = defaultdict(list)
        self.seats_on: dict[str, list[Assignment]] = defaultdict(list)
        self.seats_of: dict[str, list[Assignment]] = {}
        self.active: dict[str, int] = {}
        self._sizes: dict[Selection, tuple[frozenset[Resources], Resources]] = {}
        self._own: dict[str, Counter[int]] = defaultdict(Counter)
        self._homes: dict[str, Counter[str]] = defaultdict(Counter)
        self._strategies = dict(snapshot.strategies)
        self._default = default
        self._counts_on_leaving = counts_on_leaving
        self._shortages: dict[Hashable, tuple[int, Shortage]] = {}
        self._journal: list[Callable[[], None]] = []
        for node in self._domains.nodes:
            self.nodes[node.pool].append(node)
        for group in snapshot.groups:
            self._seat(group)

    def _seat(self, group: PodGroup) -> None:
        """Count what a pod group holds and asks for; pods on unknown nodes count for the queue only."""
        holding, waiting = total(group.holding), total(group.waiting)
        self.active[group.name] = len(group.holding)
        self.ledger.charge(group.queue, group.total if group.made else holding, preemptible=group.preemptible)
        self.ledger.request(group.queue, holding + waiting)
        seats = [Assignment(group, pod, self.rooms.get(pod.node)) for pod in group.pods if pod.node is not None]
        self.seats_of[group.name] = seats
        for seat in seats:
            if seat.room is not None:
                taken = ZERO - seat.pod.requests
                stays = not (seat.leaving and self._counts_on_leaving)
                seat.device = seat.device or seat.room.device_for(seat.pod.requests.gpu, now=True)
                self._share(seat.room, seat.device, seat.pod.requests.gpu, now=True, later=stays)
                self.rooms.change(seat.room, idle=taken, future=taken if stays else ZERO, pods=-stays)
                self.seats_on[seat.room.node.name].append(seat)
                self._stand(group, seat.room, 1)
                self._dwell(group, seat.room, not seat.leaving)

    def usable(self, group: PodGroup) -> list[SnapshotNode]:
        """The nodes the group may use, ready or not."""
        return [node for node in self.nodes[group.pool] if matches(node, group)]

    def sizes(self, group: PodGroup) -> tuple[frozenset[Resources], Resources]:
        """Sizes of the nodes the group may use, ready or not, and their sum."""
        key = selection(group)
        if key not in self._sizes:
            found = [node.capacity for node in self.usable(group)]
            self._sizes[key] = (frozenset(found), sum(found, ZERO))
        return self._sizes[key]

    def strategy(self, group: PodGroup) -> Strategy:
        return self._strategies.get(group.pool, self._default)

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back everything since the mark, newest first."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def evict(self, seat: Assignment) -> None:
        """The seat's room will be free in the future; its queue has it back at once."""
        self._move_out(seat, leaving=True)
        self._journal.append(lambda: self._move_out(seat, leaving=False))

    def keep(self, seat: Assignment) -> None:
        """Take an eviction back."""
        self._move_out(seat, leaving=False)
        self._journal.append(lambda: self._move_out(seat, leaving=True))

    def _move_out(self, seat: Assignment, *, leaving: bool) -> None:
        freed = seat.pod.requests if leaving else ZERO - seat.pod.requests
        seat.leaving = leaving
        if seat.room is not None and self._counts_on_leaving:
            self._share(seat.room, seat.device, -freed.gpu, now=False, later=True)
            self.rooms.change(seat.room, future=freed, pods=1 if leaving else -1)
        self._dwell(seat.group, seat.room, -1 if leaving else 1)
        self._count(seat.group, ZERO - freed, -1 if leaving else 1)

    def place(self, group: PodGroup, pod: Pod, room: NodeCapacity, *, now: bool) -> None:
        """Give a pod room: now, or in the future."""
        device = room.device_for(pod.requests.gpu, now=now)
        self._take(group, pod.requests, room, device, now=now, sign=1)
        self._journal.append(lambda: self._take(group, pod.requests, room, device, now=now, sign=-1))

    def _share(self, room: NodeCapacity, device: str, gpu: int, *, now: bool, later: bool) -> None:
        """A part of a GPU is given out, or negative: given back."""
        self.rooms.share(room, device, now=gpu if now else 0, later=gpu if later else 0)

    def _take(
        self, group: PodGroup, asked: Resources, room: NodeCapacity, device: str, *, now: bool, sign: int
    ) -> None:
        change = asked * -sign
        self._share(room, device, asked.gpu * sign, now=now, later=True)
        self.rooms.change(room, idle=change if now else ZERO, future=change, pods=-sign)
        self._count(group, asked * sign, sign)
        self._stand(group, room, sign)
        self._dwell(group, room, sign)

    def _stand(self, group: PodGroup, room: NodeCapacity, pods: int) -> None:
        """Count where pods are whose kin wants to be near them, or far."""
        if group.placement is not None:
            self._own[group.kin or group.name][room.index] += pods

    def _dwell(self, group: PodGroup, room: NodeCapacity | None, pods: int) -> None:
        """Count in which domain pods of a group are that all have to be in one."""
        if group.topology is not None and room is not None:
            self._homes[group.name][room.node.labels.get(self._domains.key(group), "")] += pods

    def _count(self, group: PodGroup, amount: Resources, pods: int) -> None:
        self.active[group.name] += pods
        if not group.made:
            self.ledger.charge(group.queue, amount, preemptible=group.preemptible)

    def refusal(self, group: PodGroup, asked: Resources) -> PendingReason | None:
        """Limits and quotas of its queue and departments; None when they allow it, or did before its pods were made."""
        return None if group.made else self.ledger.refusal(group.queue, asked, preemptible=group.preemptible)

    def find(self, group: PodGroup, asked: Resources, *, now: bool) -> NodeCapacity | None:
        """The best node for one pod: where most or fewest of its own are, as it wants; then by its pool's strategy."""
        strategy = self.strategy(group)
        if group.placement is None:
            return self.rooms.find(asked, group, strategy, now=now)
        own, sign = self._own[group.kin or group.name], -1 if group.placement is Strategy.BINPACK else 1
        fitting = self.rooms.fitting(asked, group, strategy, now=now)
        return min(fitting, key=lambda room: sign * own[room.index], default=None)

    def domains(
        self, group: PodGroup, asked: Resources = ZERO, *, among: Collection[str] | None = None
    ) -> list[PodGroup]:
        """The group as it would be in each domain of its topology, the one with least room first; else as it is.

        Once it has pods somewhere, only there. asked: for that much room; among: on these nodes, None: on all.
        """
        if group.topology is None:
            return [group]
        homes, key = +self._homes[group.name], self._domains.key(group)
        found = self._domains.ordered(group, asked, self.rooms.matching(group), among)
        names = [name for name in found if not homes or name in homes]
        return [replace(group, node_selector={**group.node_selector, key: name}) for name in names]

    def domain_of(self, group: PodGroup) -> str:
        """In which one it would be, as `domains` has it."""
        return group.node_selector[self._domains.key(group)]

    def place_all(self, group: PodGroup, pods: tuple[Pod, ...]) -> PlacedPods | None:
        """Place all these pods or none, in one domain where it wants one. If one must wait for room, all wait."""
        domains = self.domains(group, total(pods))
        return next(filter(None, (self.place_together(each, pods) for each in domains)), None)

    def place_together(self, group: PodGroup, pods: tuple[Pod, ...]) -> PlacedPods | None:
        """The same in this one of its domains."""
        mark = self.mark()
        found: list[tuple[Pod, NodeCapacity, bool]] = []
        for pod in pods:
            room = self.find(group, pod.requests, now=True)
            later = None if room else self.find(group, pod.requests, now=False)
            chosen = room or later
            if chosen is None:
                self.undo(mark)
                return None
            self.place(group, pod, chosen, now=later is None)
            found.append((pod, chosen, later is None))
        now = all(at_once for _pod, _room, at_once in found)
        if not now:
            self.undo(mark)
            for pod, chosen, _at_once in found:
                self.place(group, pod, chosen, now=False)
        return PlacedPods({pod.name: chosen.node.name for pod, chosen, _at_once in found}, now)

    def shortage(self, group: PodGroup, pods: tuple[Pod, ...], *, now: bool = True) -> Shortage:
        """What is short for these pods of the group, now or once everybody on the way out is gone."""
        asked, age = tuple(pod.requests for pod in pods), len(self.rooms.changes)
        key = (selection(group), group.topology and group.name, asked, now)
        known = self._shortages.get(key)
        if known is None or known[0] != age:
            domains = [self.spaces(each, now=now) for each in self.domains(group)]
            known = self._shortages[key] = (age, shortage(domains, asked))
        return known[1]

    def spaces(self, group: PodGroup, *, now: bool = True) -> list[Space]:
        """What the nodes that it may use have free for it, and for how many pods."""
        part = wants_part(group)
        return [(room.free(now=now, part=part), room.pods_left) for room in self.rooms.matching(group)]

    def over_quota(self, group: PodGroup) -> bool:
        """Is its queue above the deserved quota?"""
        return any(
            not self.ledger.uses[queue.name].allocated.within(queue.deserved)
            for queue in self.ledger.path(group.queue)[:1]
        )
