"""Plain kube-scheduler: pod by pod, by priority over all namespaces.

Source: kube-scheduler's default preemption, checked decision by decision against a real one (docs/model.md).

- Nothing knows queues or gangs; a queue in the snapshot acts as a ResourceQuota: over it a pod is not even created, so
  nothing is evicted for it. Pods that exist (`PodGroup.made`) count there while they wait and until they are gone.
- Room that ending pods will leave is nobody's yet. They count as victims like any other: taking them costs nothing
  more, but the order below does not spare others for their sake.
- Room promised to a nominated pod is kept from pods of equal or lower priority, not from stronger ones.
- On one node all lower-priority pods are taken away, then given back by priority, older start first, while the newcomer
  still fits. A pod that has not started is the youngest. Preemptibility protects nobody.
- The node: lowest highest-priority victim, then smallest sum of priorities (each shifted up by 2^31, so fewer victims
  nearly always win), fewest victims, latest start of the top victims, first node.
- Who waits for victims on its nominated node evicts nobody else meanwhile.
- A class with preemptionPolicy Never evicts nobody. Disruption budgets are not modelled.

Shared by every flavour whose single pods kube-scheduler decides about.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Final

from scheduling.model.decisions import Cause, Decision, Start, Wait
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, Strategy
from scheduling.state.cluster_state import Assignment, SchedulingState, evictions, held
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity, Selection, selection
from scheduling.state.refusals import impossible, no_room
from scheduling.state.workspace import check_time, workspace

PRIORITY_SHIFT: Final = 2**31
NOT_STARTED: Final = 2**63

NodeScore = tuple[int, int, int, int]


def kube_state(snapshot: Snapshot) -> SchedulingState:
    """Nodes are filled evenly, and room on its way is nobody's yet."""
    return SchedulingState(snapshot, default=Strategy.SPREAD, counts_on_leaving=False)


def schedule_order(waiting: Iterable[PodGroup]) -> list[PodGroup]:
    """Highest priority first, then the older group."""
    return sorted(waiting, key=lambda group: (-group.priority, group.created, group.name))


def start_time(seat: Assignment) -> int:
    """When its pod started; one that has not is the youngest."""
    started = seat.group.started if seat.pod.started is None else seat.pod.started
    return NOT_STARTED if started is None else started


@dataclass(slots=True)
class _GroupAttempt:
    """What one pod group's turn has brought so far."""

    placements: dict[str, str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    victims: list[Assignment] = field(default_factory=list)
    pend: PendingReason | None = None


class Nominations:
    """NodeCapacities that waiting pods were nominated to in earlier cycles, kept from who is not stronger."""

    def __init__(self, board: SchedulingState, waiting: list[PodGroup]) -> None:
        self._board = board
        self._coming: list[tuple[int, Pod, NodeCapacity]] = []
        self._kept: dict[str, tuple[Pod, NodeCapacity]] = {}
        for group in reversed(waiting):
            for pod in group.waiting:
                if room := board.rooms.get(pod.nominated):
                    self._coming.append((group.priority, pod, room))

    def keep(self, priority: int) -> None:
        """From now on keep the promises made to pods of at least this priority."""
        while self._coming and self._coming[-1][0] >= priority:
            _priority, pod, room = self._coming.pop()
            self._board.reserve(room, pod.requests, 1)
            self._kept[pod.name] = (pod, room)

    def redeem(self, pod: Pod) -> NodeCapacity | None:
        """The room promised to a pod whose turn has come; from now on it is free again."""
        found = self._kept.pop(pod.name, None)
        if found is None:
            return None
        self._board.reserve(found[1], ZERO - pod.requests, -1)
        return found[1]

    def forget(self, room: NodeCapacity) -> None:
        """Somebody stronger evicts on this node: who was promised room there looks for another."""
        self._coming = [promise for promise in self._coming if promise[2] is not room]


class KubePreemption:
    """The pods of one cycle. Whoever decides about other groups in between shares its board and its promises."""

    def __init__(self, board: SchedulingState, waiting: list[PodGroup]) -> None:
        self.board = board
        self.promises = Nominations(board, waiting)
        self._rankings: dict[tuple[Selection, Resources, int], _Ranking] = {}

    def turn(self, group: PodGroup) -> list[Decision]:
        """Start what fits, evict for the rest."""
        turn = _GroupAttempt()
        refused: set[Resources] = set()
        self.promises.keep(group.priority)
        for pod in group.waiting:
            if (pod.nominated or pod.requests not in refused) and (pend := self._pod(group, pod, turn)):
                turn.pend = turn.pend or pend
                refused.add(pod.requests)
        decisions: list[Decision] = []
        if turn.placements:
            decisions.append(Start(group, turn.placements, self.board.over_quota(group)))
        decisions += evictions(turn.victims, Cause.PREEMPT, group)
        if turn.nominated and turn.pend is None:
            coming = tuple(pod for pod in group.waiting if pod.name in turn.nominated)
            turn.pend = no_room(self.board, group, coming, Reason.EVICTING)
        if turn.pend is not None:
            decisions.append(Wait(group, turn.pend, turn.nominated))
        return decisions

    def _pod(self, group: PodGroup, pod: Pod, turn: _GroupAttempt) -> PendingReason | None:
        """One pod: now, later, by eviction, or why not."""
        promised = self.promises.redeem(pod)
        if pend := self.board.refusal(group, pod.requests) or impossible(self.board, group, (pod,)):
            return pend
        if room := self._fitting(group, pod, promised):
            self.board.place(group, pod, room, now=True)
            turn.placements[pod.name] = room.node.name
            return None
        found = self._awaited(group, promised) or self._preempt(group, pod, turn)
        if found is None:
            return self._nobody_to_evict(group, pod)
        self.board.place(group, pod, found, now=False)
        turn.nominated[pod.name] = found.node.name
        return None

    def _fitting(self, group: PodGroup, pod: Pod, promised: NodeCapacity | None) -> NodeCapacity | None:
        """The promised node if there is room by now, else the best one that has."""
        if promised and promised.fits(pod.requests, now=True):
            return promised
        return self.board.find(group, pod.requests, now=True)

    def _awaited(self, group: PodGroup, promised: NodeCapacity | None) -> NodeCapacity | None:
        """The promised node while weaker pods are still ending there."""
        if promised is None or group.never_preempts:
            return None
        return promised if any(seat.leaving for seat in self._weaker(promised, group.priority)) else None

    def _preempt(self, group: PodGroup, pod: Pod, turn: _GroupAttempt) -> NodeCapacity | None:
        """Evict on the best node; who is ending there already needs no second eviction."""
        room = None if group.never_preempts else self._best_node(group, pod.requests)
        if room is not None:
            self.promises.forget(room)
            for seat in self._victims(room, pod.requests, group.priority):
                if not seat.leaving:
                    self.board.evict(seat)
                    turn.victims.append(seat)
        return room

    def _nobody_to_evict(self, group: PodGroup, pod: Pod) -> PendingReason:
        never = group.never_preempts and self._best_node(group, pod.requests) is not None
        return no_room(self.board, group, (pod,), Reason.PREEMPTION_NEVER if never else Reason.NO_ROOM)

    def _best_node(self, group: PodGroup, asked: Resources) -> NodeCapacity | None:
        key = (selection(group), asked, group.priority)
        if key not in self._rankings:
            bounds = self.board.kept(
                ("bounds", key),
                lambda: EvictionCosts(self.board, self.board.rooms.matching(group), asked, group.priority),
            )
            cost = partial(self.cost_of, asked=asked, priority=group.priority)
            self._rankings[key] = _Ranking(self.board.rooms, bounds, cost)
        return self._rankings[key].best()

    def cost_of(self, room: NodeCapacity, asked: Resources, priority: int) -> NodeScore | None:
        """What a preemption on this node costs, the lowest first; None: it frees too little, or nobody has to go.

        The last answer is kept from cycle to cycle while the same pods are there and the room is the same.
        """
        name, key = room.node.name, ("cost", asked, priority)
        kept: dict[int, NodeScore | None] = self.board.kept_of_node(name, key, dict)
        if room.version not in kept:
            kept.clear()
            kept[room.version] = self._cost(self._victims(room, asked, priority))
        return kept[room.version]

    def _weaker(self, room: NodeCapacity, priority: int) -> list[Assignment]:
        """The strongest first."""
        return [seat for seat in by_strength(self.board, room) if seat.group.priority < priority]

    def _victims(self, room: NodeCapacity, asked: Resources, priority: int) -> list[Assignment]:
        """Who has to go from this node; empty when it cannot be made free enough."""
        check_time()
        weaker = self._weaker(room, priority)
        free, pods_left = room.future + held(weaker), room.pods_left + len(weaker)
        if not (pods_left > 0 and asked.served_by(free)):
            return []
        victims = []
        for seat in weaker:
            left = free - seat.pod.requests
            if pods_left > 1 and asked.served_by(left):
                free, pods_left = left, pods_left - 1
            else:
                victims.append(seat)
        return victims

    @staticmethod
    def _cost(victims: list[Assignment]) -> NodeScore | None:
        if not victims:
            return None
        priorities = [seat.group.priority for seat in victims]
        top = priorities[0]
        oldest_of_top = min(start_time(seat) for seat in victims if seat.group.priority == top)
        return (top, sum(priorities) + PRIORITY_SHIFT * len(victims), len(victims), -oldest_of_top)


def by_strength(board: SchedulingState, room: NodeCapacity) -> list[Assignment]:
    """Who sits on a node: higher priority first, then the earlier start. Kept while the same pods are there."""
    seats = board.seats_on[room.node.name]
    return board.kept_of_node(room.node.name, "by strength", lambda: sorted(seats, key=_strength))


def _strength(seat: Assignment) -> tuple[int, int]:
    return (-seat.group.priority, start_time(seat))


Freed = tuple[int, Resources, int]
"""A priority, and what pods of it and of lower ones hold on a node: amounts, and their number."""


def _freed(board: SchedulingState, room: NodeCapacity) -> list[Freed]:
    """Of each priority on the node, the lowest first."""
    found: list[Freed] = []
    amount, count = ZERO, 0
    for seat in reversed(by_strength(board, room)):
        amount, count = amount + seat.pod.requests, count + 1
        if found and found[-1][0] == seat.group.priority:
            found.pop()
        found.append((seat.group.priority, amount, count))
    return found


class EvictionCosts:
    """The highest priority that has to go from each node, which is what counts first. Kept from cycle to cycle."""

    def __init__(self, board: SchedulingState, matching: list[NodeCapacity], asked: Resources, priority: int) -> None:
        self._board = board
        self._asked = asked
        self._priority = priority
        self._entries: dict[int, _Entry] = {}
        self._sorted: list[_Entry] | None = None
        self._seen = len(board.rooms.moved)
        self.matching = {room.index: room for room in matching}
        for room in matching:
            if entry := self.entry(room):
                self._entries[room.index] = entry
        self._unsettled = self._changed()
        """Of these it is not known how they were before this cycle."""

    def entry(self, room: NodeCapacity) -> "_Entry | None":
        """None: it cannot be made free enough, or nobody needs to go."""
        future, asked, left = room.future, self._asked, room.pods_left
        if left > 0 and asked.served_by(future):
            return None
        for priority, amount, count in self._board.kept_of_node(
            room.node.name, "freed", lambda: _freed(self._board, room)
        ):
            if priority >= self._priority:
                return None
            if left + count > 0 and asked.served_by(future + amount):
                return ((priority,), room.index, room.version)
        return None

    def settled(self) -> list["_Entry"]:
        """Of all nodes as they were before this cycle, sorted."""
        moved, changed = self._board.rooms.moved, self._changed()
        again = ({room.index for room in moved[self._seen :]} & self.matching.keys()) | self._unsettled
        if self._sorted is None or again:
            for index in again:
                self._entries.pop(index, None)
                if entry := self.entry(self.matching[index]):
                    self._entries[index] = entry
            self._unsettled = again & changed
            self._seen, self._sorted = len(moved), sorted(self._entries.values())
        return self._sorted

    def _changed(self) -> set[int]:
        """The nodes that this cycle has changed so far, by index."""
        return {room.index for room in self._board.rooms.changes} & self.matching.keys()


_Entry = tuple[tuple[int, ...], int, int]


class _Ranking:
    """Nodes by what a preemption on them costs, as far as that has to be known to find the cheapest.

    An entry holds the first part of the cost, or all of it; only nodes that have changed since are looked at again.
    """

    def __init__(
        self, rooms: NodeCapacities, bounds: EvictionCosts, cost: Callable[[NodeCapacity], NodeScore | None]
    ) -> None:
        self._rooms = rooms
        self._cost = cost
        self._bounds = bounds
        self._heap = list(bounds.settled())
        self._seen = 0

    def best(self) -> NodeCapacity | None:
        """The cheapest node, the first of equal ones; None when no node can be made free enough."""
        matching = self._bounds.matching
        changed = {room.index for room in self._rooms.changes[self._seen :]}
        self._seen = len(self._rooms.changes)
        for index in sorted(changed & matching.keys()):
            if entry := self._bounds.entry(matching[index]):
                heappush(self._heap, entry)
        while self._heap:
            score, index, version = self._heap[0]
            room = matching[index]
            if room.version == version and len(score) > 1:
                return room
            heappop(self._heap)
            if room.version == version and (cost := self._cost(room)) is not None:
                heappush(self._heap, (cost, index, version))
        return None


LEAST_SAMPLE: Final = 100
"""So many nodes it looks at in any case; of more, at a tenth, from a random one on."""


def sample_size(nodes: int) -> int:
    """On how many of so many nodes it tries an eviction (minCandidateNodesAbsolute and minCandidateNodesPercentage)."""
    return min(max(nodes // 10, LEAST_SAMPLE), nodes)


def equally_good(snapshot: Snapshot, group: PodGroup) -> tuple[int, list[str]]:
    """How many nodes a group may use, and those where its first pod costs as many victims of as low priorities as on
    the best: by name, the one with the youngest first. What else waits is left aside.
    """
    with workspace(snapshot, kube_state) as board:
        trial, asked = KubePreemption(board, []), group.waiting[0].requests
        rooms = board.rooms.matching(group)
        costs = {room.node.name: trial.cost_of(room, asked, group.priority) for room in rooms}
        found = sorted((cost, name) for name, cost in costs.items() if cost is not None)
        return len(rooms), [name for cost, name in found if cost[:3] == found[0][0][:3]]


class KubeRules:
    """Rules of the flavour `kube`."""

    def decide(self, snapshot: Snapshot, about: Collection[str] | None = None) -> list[Decision]:
        """Every waiting pod once, highest priority first, then the older group."""
        waiting = schedule_order(snapshot.waiting)
        with workspace(snapshot, kube_state) as board:
            board.about = about
            cycle = KubePreemption(board, waiting)
            return [decision for group in waiting for decision in cycle.turn(group)]
