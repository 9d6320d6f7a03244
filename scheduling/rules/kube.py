"""Plain kube-scheduler: pod by pod, by priority over all namespaces.

Source: kube-scheduler's default preemption, checked on recorded decisions of a real one (docs/model.md).

- Nothing knows queues or gangs; a queue in the snapshot acts as a ResourceQuota: over it a pod is not even created, so
  nothing is evicted for it.
- On one node all lower-priority pods are taken away, then given back by priority, older start first, while the newcomer
  still fits. Preemptibility protects nobody.
- The node: lowest highest-priority victim, then smallest sum of priorities (each shifted up by 2^31, so fewer victims
  nearly always win), fewest victims, latest start of the top victims, first node.
- A class with preemptionPolicy Never evicts nobody. Disruption budgets are not modelled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from scheduling.board import Board, Seat
from scheduling.decisions import Cause, Decision, Start, Wait
from scheduling.explain import impossible, no_room
from scheduling.model import Pod, PodGroup, Snapshot, Strategy
from scheduling.placement import Room, Rooms, Selection, selection
from scheduling.reasons import Pend, Reason
from scheduling.resources import Resources
from scheduling.victims import evictable, evictions, held, not_given_back

PRIORITY_SHIFT: Final = 2**31

NodeScore = tuple[int, int, int, int]


@dataclass(slots=True)
class _Turn:
    """What one pod group's turn has brought so far."""

    placements: dict[str, str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    victims: list[Seat] = field(default_factory=list)
    pend: Pend | None = None


class KubeRules:
    """Rules of the flavour `kube`."""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Every waiting pod once, highest priority first, then the older group."""
        cycle = _KubeCycle(Board(snapshot, default=Strategy.SPREAD))
        waiting = [group for group in snapshot.groups if group.waiting]
        waiting.sort(key=lambda group: (-group.priority, group.created, group.name))
        return [decision for group in waiting for decision in cycle.turn(group)]


class _KubeCycle:
    def __init__(self, board: Board) -> None:
        self.board = board
        self._rankings: dict[tuple[Selection, Resources, int], _Ranking] = {}

    def turn(self, group: PodGroup) -> list[Decision]:
        """Start what fits, evict for the rest."""
        turn = _Turn()
        refused: set[Resources] = set()
        for pod in group.waiting:
            if pod.requests not in refused and (pend := self._pod(group, pod, turn)):
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

    def _pod(self, group: PodGroup, pod: Pod, turn: _Turn) -> Pend | None:
        """One pod: now, later, by eviction, or why not."""
        if pend := self.board.refusal(group, pod.requests) or impossible(self.board, group, (pod,)):
            return pend
        if room := self.board.find(group, pod.requests, now=True):
            self.board.place(group, pod, room, now=True)
            turn.placements[pod.name] = room.node.name
            return None
        found = self.board.find(group, pod.requests, now=False) or self._preempt(group, pod, turn)
        if found is None:
            return self._nobody_to_evict(group, pod)
        self.board.place(group, pod, found, now=False)
        turn.nominated[pod.name] = found.node.name
        return None

    def _preempt(self, group: PodGroup, pod: Pod, turn: _Turn) -> Room | None:
        """Evict on the best node."""
        room = None if group.never_preempts else self._best_node(group, pod.requests)
        if room is not None:
            for seat in self._victims(room, pod.requests, group.priority):
                self.board.evict(seat)
                turn.victims.append(seat)
        return room

    def _nobody_to_evict(self, group: PodGroup, pod: Pod) -> Pend:
        never = group.never_preempts and self._best_node(group, pod.requests) is not None
        return no_room(self.board, group, (pod,), Reason.PREEMPTION_NEVER if never else Reason.NO_ROOM)

    def _best_node(self, group: PodGroup, asked: Resources) -> Room | None:
        key = (selection(group), asked, group.priority)
        if key not in self._rankings:
            self._rankings[key] = _Ranking(
                self.board.rooms,
                self.board.rooms.matching(group),
                lambda room: self._cost(self._victims(room, asked, group.priority)),
            )
        return self._rankings[key].best()

    def _victims(self, room: Room, asked: Resources, priority: int) -> tuple[Seat, ...]:
        lower = [seat for seat in evictable(self.board, room.node.name) if seat.group.priority < priority]
        headroom = room.future + held(lower)
        if not asked.fits_in(headroom):
            return ()
        lower.sort(key=lambda seat: (-seat.group.priority, seat.group.age_key))
        return not_given_back(lower, headroom, asked)

    @staticmethod
    def _cost(victims: tuple[Seat, ...]) -> NodeScore | None:
        if not victims:
            return None
        priorities = [seat.group.priority for seat in victims]
        top = max(priorities)
        oldest_of_top = min(seat.group.age_key for seat in victims if seat.group.priority == top)
        return (top, sum(priorities) + PRIORITY_SHIFT * len(victims), len(victims), -oldest_of_top)


class _Ranking:
    """Nodes by what a preemption on them costs. Only nodes that have changed since are looked at again."""

    def __init__(self, rooms: Rooms, matching: list[Room], cost: Callable[[Room], NodeScore | None]) -> None:
        self._rooms = rooms
        self._cost = cost
        self._matching = {room.index: room for room in matching}
        self._heap: list[tuple[NodeScore, int, int]] = []
        self._seen = len(rooms.changes)
        for room in matching:
            self._add(room)

    def _add(self, room: Room) -> None:
        if (score := self._cost(room)) is not None:
            heappush(self._heap, (score, room.index, room.version))

    def best(self) -> Room | None:
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
