"""Pod by pod, node by node: how kube-scheduler places one pod, evicts for it, and keeps the room it was promised.

Source: kube-scheduler's default preemption; its rules are told in `rules/kube.py`. Shared by every flavour whose single
pods kube-scheduler decides about.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from scheduling.model.decisions import Cause, Decision, Start, Wait
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup
from scheduling.state.cluster_state import Assignment, SchedulingState
from scheduling.state.node_capacity import NodeCapacities, NodeCapacity, Selection, selection
from scheduling.state.refusals import impossible, no_room
from scheduling.state.victims import evictions, held

PRIORITY_SHIFT: Final = 2**31
NOT_STARTED: Final = 2**63

NodeScore = tuple[int, int, int, int]


def schedule_order(groups: tuple[PodGroup, ...]) -> list[PodGroup]:
    """The waiting ones: highest priority first, then the older group."""
    waiting = [group for group in groups if group.waiting]
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

    def __init__(self, rooms: NodeCapacities, waiting: list[PodGroup]) -> None:
        self._rooms = rooms
        self._coming: list[tuple[int, Pod, NodeCapacity]] = []
        self._kept: dict[str, tuple[Pod, NodeCapacity]] = {}
        for group in reversed(waiting):
            for pod in group.waiting:
                if room := rooms.get(pod.nominated):
                    self._coming.append((group.priority, pod, room))

    def keep(self, priority: int) -> None:
        """From now on keep the promises made to pods of at least this priority."""
        while self._coming and self._coming[-1][0] >= priority:
            _priority, pod, room = self._coming.pop()
            self._rooms.change(room, future=ZERO - pod.requests, pods=-1)
            self._kept[pod.name] = (pod, room)

    def redeem(self, pod: Pod) -> NodeCapacity | None:
        """The room promised to a pod whose turn has come; from now on it is free again."""
        found = self._kept.pop(pod.name, None)
        if found is None:
            return None
        self._rooms.change(found[1], future=pod.requests, pods=1)
        return found[1]

    def forget(self, room: NodeCapacity) -> None:
        """Somebody stronger evicts on this node: who was promised room there looks for another."""
        self._coming = [promise for promise in self._coming if promise[2] is not room]


class KubePreemption:
    """The pods of one cycle. Whoever decides about other groups in between shares its board and its promises."""

    def __init__(self, board: SchedulingState, waiting: list[PodGroup]) -> None:
        self.board = board
        self.promises = Nominations(board.rooms, waiting)
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
            self._rankings[key] = _Ranking(
                self.board.rooms,
                self.board.rooms.matching(group),
                lambda room: self._cost(self._victims(room, asked, group.priority)),
            )
        return self._rankings[key].best()

    def _weaker(self, room: NodeCapacity, priority: int) -> list[Assignment]:
        return [seat for seat in self.board.seats_on[room.node.name] if seat.group.priority < priority]

    def _victims(self, room: NodeCapacity, asked: Resources, priority: int) -> list[Assignment]:
        """Who has to go from this node; empty when it cannot be made free enough."""
        weaker = self._weaker(room, priority)
        free, pods_left = room.future + held(weaker), room.pods_left + len(weaker)
        if not (pods_left > 0 and asked.served_by(free)):
            return []
        victims = []
        for seat in sorted(weaker, key=lambda seat: (-seat.group.priority, start_time(seat))):
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


class _Ranking:
    """Nodes by what a preemption on them costs. Only nodes that have changed since are looked at again."""

    def __init__(
        self, rooms: NodeCapacities, matching: list[NodeCapacity], cost: Callable[[NodeCapacity], NodeScore | None]
    ) -> None:
        self._rooms = rooms
        self._cost = cost
        self._matching = {room.index: room for room in matching}
        self._heap: list[tuple[NodeScore, int, int]] = []
        self._seen = len(rooms.changes)
        for room in matching:
            self._add(room)

    def _add(self, room: NodeCapacity) -> None:
        if (score := self._cost(room)) is not None:
            heappush(self._heap, (score, room.index, room.version))

    def best(self) -> NodeCapacity | None:
        """The cheapest node, the first of equal ones; None when no node can be made free enough."""
        changed = {room.index for room in self._rooms.changes[self._seen :]}
        self._seen = len(self._rooms.changes)
        for index in sorted(changed & self._matching.keys()):
            self._add(self._matching[index])
        while self._heap:
            _score, index, version = self._heap[0]
            if self._matching[index].version == version:
                return self._matching[index]
            heappop(self._heap)
        return None
