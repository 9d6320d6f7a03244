"""The working state of a scheduler: rooms on nodes, use per queue, who sits where. Every change can be undone.

Decisions are tried on the board (simulate removal, then restore); the snapshot itself is never touched. Rules ask
`workspace` for the state of a snapshot, which keeps it from one cycle to the next.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from scheduling.model.decisions import Cause, Evict
from scheduling.model.reasons import PendingReason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, SnapshotNode, Strategy, total
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity, Selection, matches, selection, wants_part
from scheduling.state.queue_usage import QueueUsageTracker
from scheduling.state.shortage import Shortage, Space, shortage
from scheduling.state.topology_domains import Domains
from scheduling.state.workspace import check_time

Kept = TypeVar("Kept")
MOST_KEPT: Final = 64
EVERYWHERE: Final = ("pods", "")


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
    """Mutable. `mark` and `undo` bracket an attempt, `restore` ends a cycle.

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
        self._journal: list[Callable[[], object]] = []
        self._groups: dict[str, PodGroup] = {}
        self._kept: dict[tuple[str, str], dict[Hashable, Any]] = defaultdict(dict)
        self.holders: dict[str, dict[str, PodGroup]] = defaultdict(dict)
        """By queue, the pod groups that have pods on nodes."""
        self.about: Collection[str] | None = None
        """The pod groups whose refusals are wanted with their numbers, by name; None: all."""
        for node in self._domains.nodes:
            self.nodes[node.pool].append(node)
        for group in snapshot.groups:
            self._enter(group)
        self.rooms.settle()

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """These pod groups leave the cluster, those come into it. Nobody is evicted or placed yet."""
        for name in gone:
            group = self._groups[name]
            self._journal.append(self._kept_again(group))
            self._journal.append(partial(self._return, group, self._leave(name)))
        for group in come:
            self._journal.append(self._kept_again(group))
            self._enter(group)
            self._journal.append(partial(self._leave, group.name))

    def _enter(self, group: PodGroup) -> None:
        """Count what a pod group holds and asks for; pods on unknown nodes count for the queue only."""
        self._tally(group, 1)
        seats = [Assignment(group, pod, self.rooms.get(pod.node)) for pod in group.pods if pod.node is not None]
        self.seats_of[group.name] = seats
        for seat in seats:
            if seat.room is not None:
                seat.device = seat.device or seat.room.device_for(seat.pod.requests.gpu, now=True)
                self._occupy(seat, seat.room, 1)
                self.seats_on[seat.room.node.name].append(seat)

    def _leave(self, name: str) -> list[tuple[Assignment, int]]:
        """Forget a pod group. Its seats, with where each was in the order of its node."""
        group = self._groups[name]
        self._tally(group, -1)
        found = []
        for seat in self.seats_of.pop(name):
            place = 0
            if seat.room is not None:
                self._occupy(seat, seat.room, -1)
                beside = self.seats_on[seat.room.node.name]
                place = beside.index(seat)
                del beside[place]
            found.append((seat, place))
        return found

    def _return(self, group: PodGroup, seats: list[tuple[Assignment, int]]) -> None:
        self._tally(group, 1)
        self.seats_of[group.name] = [seat for seat, _place in seats]
        for seat, place in reversed(seats):
            if seat.room is not None:
                self._occupy(seat, seat.room, 1)
                self.seats_on[seat.room.node.name].insert(place, seat)

    def _tally(self, group: PodGroup, sign: int) -> None:
        """Count what it holds and asks for, and that it is there; or no longer."""
        holding, all_of_it = total(group.holding), group.total
        used = all_of_it if group.made else holding
        self.ledger.charge(group.queue, used * sign, preemptible=group.preemptible)
        self.ledger.request(group.queue, (holding + total(group.waiting)) * sign)
        if sign > 0:
            self._groups[group.name], self.active[group.name] = group, len(group.holding)
        else:
            del self._groups[group.name], self.active[group.name]
        if any(pod.node is not None for pod in group.pods):
            self._kept.pop(("queue", group.queue), None)
            self._kept.pop(EVERYWHERE, None)
            if sign > 0:
                self.holders[group.queue][group.name] = group
            else:
                del self.holders[group.queue][group.name]

    def _occupy(self, seat: Assignment, room: NodeCapacity, sign: int) -> None:
        """Take the room of a pod that is on a node, or give it back."""
        taken = seat.pod.requests * -sign
        stays = not (seat.pod.terminating and self._counts_on_leaving)
        self._share(room, seat.device, seat.pod.requests.gpu * sign, now=True, later=stays)
        self.rooms.change(room, idle=taken, future=taken if stays else ZERO, pods=-sign * stays)
        self._stand(seat.group, room, sign)
        self._dwell(seat.group, room, sign * (not seat.pod.terminating))
        self._kept.pop(("node", room.node.name), None)

    def _kept_again(self, group: PodGroup) -> Callable[[], None]:
        """Keep what is known of its queue and nodes for when the same pods are there again."""
        nodes = (("node", pod.node) for pod in group.pods if pod.node is not None)
        keys = [("queue", group.queue), EVERYWHERE, *nodes]
        known = {key: self._kept[key] for key in keys if key in self._kept}
        return partial(self._kept.update, known)

    def kept_of_queue(self, queue: str, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` says of a queue's pods on nodes, found once until others are there."""
        return self._keep(("queue", queue), key, make)

    def kept_of_node(self, node: str, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` says of the pods on a node, found once until others are there. Evictions change nothing."""
        return self._keep(("node", node), key, make)

    def kept_of_pods(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` says of all pods on nodes, found once until there are others. Evictions change nothing."""
        return self._keep(EVERYWHERE, key, make)

    def kept(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` says of nodes, whoever is on them; or what whoever asks brings up to date. Not kept for ever."""
        if key not in self._kept["", ""] and len(self._kept["", ""]) >= MOST_KEPT:
            self._kept["", ""].clear()
        return self._keep(("", ""), key, make)

    def _keep(self, scope: tuple[str, str], key: Hashable, make: Callable[[], Kept]) -> Kept:
        kept = self._kept[scope]
        if key not in kept:
            kept[key] = make()
        found: Kept = kept[key]
        return found

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

    def restore(self) -> None:
        """Take back everything since it was made or settled."""
        self.undo(0)
        self.about = None
        self.rooms.restored()
        self._shortages = {key: known for key, known in self._shortages.items() if known[0] == self.rooms.age}

    def settle(self) -> None:
        """What it is now is what it is brought back to."""
        self._journal.clear()
        self.rooms.settle()

    def reserve(self, room: NodeCapacity, amount: Resources, pods: int) -> None:
        """Keep room that is on its way for somebody; negative: no longer."""
        self.rooms.change(room, future=amount * -1, pods=-pods)
        self._journal.append(lambda: self.rooms.change(room, future=amount, pods=pods))

    def evict(self, seat: Assignment) -> None:
        """The seat's room will be free in the future; its queue has it back at once."""
        check_time()
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
        check_time()
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
        asked, age = tuple(pod.requests for pod in pods), self.rooms.age
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


def packed_state(snapshot: Snapshot) -> SchedulingState:
    """Of schedulers that fill nodes, and give out room that is on its way."""
    return SchedulingState(snapshot, default=Strategy.BINPACK)


def held(seats: Sequence[Assignment]) -> Resources:
    """What these seats free together."""
    return seats[0].pod.requests if len(seats) == 1 else sum((seat.pod.requests for seat in seats), ZERO)


def evictions(
    seats: Sequence[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str] | None = None
) -> list[Evict]:
    """One decision per victim group, in order of first appearance."""
    by_group: dict[str, list[Assignment]] = {}
    for seat in seats:
        by_group.setdefault(seat.group.name, []).append(seat)
    return [_evict(found, cause, group, moves or {}) for found in by_group.values()]


def _evict(seats: list[Assignment], cause: Cause, group: PodGroup, moves: dict[Assignment, str]) -> Evict:
    return Evict(
        victim=seats[0].group,
        pods=tuple(seat.pod.name for seat in seats),
        cause=cause,
        for_group=group.name,
        nodes={seat.pod.name: seat.pod.node for seat in seats if seat.pod.node is not None},
        moves_to={seat.pod.name: moves[seat] for seat in seats if seat in moves},
    )
