"""How KAI looks for victims: one more at a time, tried on the latest victim's nodes, unneeded ones given back.

Source: KAI's job solver. For each pod of the candidate in turn, potential victims are added in victim order. After each, all
potential victims on its nodes are taken away and everybody is placed again in the usual order: the candidate must fit;
victims that fit stay where they were, or move where there is room at once. The first such scenario that the action
accepts is the solution. So victims always come from the nodes of one victim, but need not be the weakest ones.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from scheduling.board import Board, Seat
from scheduling.model import Pod, PodGroup, total
from scheduling.placement import Room
from scheduling.resources import ZERO, Resources
from scheduling.rules.kai_order import Standing, Turns

Unit = tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """Who goes, where the candidate's pods will start, and where moved victims were found room."""

    victims: tuple[Seat, ...]
    nominated: dict[str, str]
    moves: dict[Seat, str]


def units(board: Board, group: PodGroup) -> list[Unit]:
    """What a victim group loses at a time: extra pods one by one, the youngest first, then the gang at once."""
    seats = [seat for seat in board.seats_of[group.name] if not seat.leaving and seat.room is not None]
    core = min(group.min_member, len(seats))
    extra: list[Unit] = [(seat,) for seat in reversed(seats[core:])]
    return [*extra, tuple(seats[:core])] if seats else []


class Solver:
    """Searches on the board. A solution is left in place; a failed search leaves nothing."""

    def __init__(
        self,
        standing: Standing,
        victims: Callable[[], Iterator[Unit]],
        accepts: Callable[[Resources, Sequence[Seat]], bool],
    ) -> None:
        self._standing = standing
        self._board = standing.board
        self._victims = victims
        self._accepts = accepts

    def solve(self, group: PodGroup, pods: tuple[Pod, ...]) -> Solution | None:
        """Find room for all these pods; pod by pod, keeping the victims found for the earlier ones."""
        start = self._board.mark()
        found: Solution | None = None
        for count in range(1, len(pods) + 1):
            self._board.undo(start)
            recorded = found.victims if found else ()
            found = self._solve(group, pods[:count], recorded)
            if found is None:
                return None
        return found

    def _solve(self, group: PodGroup, pods: tuple[Pod, ...], recorded: tuple[Seat, ...]) -> Solution | None:
        if recorded and (solution := self._attempt(group, pods, recorded)):
            return solution
        hopeful = _Hopeful(self._board, group, pods[-1].requests, recorded)
        known = set(recorded)
        for unit in self._victims():
            if not known.isdisjoint(unit):
                continue
            hopeful.add(unit)
            for node in _nodes(self._board.seats_of[unit[0].group.name]):
                if not hopeful.may_fit(node):
                    continue
                if solution := self._attempt(group, pods, (*recorded, *hopeful.seats(node))):
                    return solution
        return None

    def _attempt(self, group: PodGroup, pods: tuple[Pod, ...], removed: tuple[Seat, ...]) -> Solution | None:
        """Take these seats away and place everybody again."""
        start = self._board.mark()
        for seat in removed:
            self._board.evict(seat)
        trial = _Trial(self._standing, group, pods, removed)
        if trial.run() and self._accepts(total(pods), [seat for seat in trial.gone() if seat not in trial.moves]):
            return Solution(tuple(trial.gone()), trial.nominated, trial.moves)
        self._board.undo(start)
        return None


class _Hopeful:
    """Potential victims so far, by node, and a cheap test whether taking them away could be enough."""

    def __init__(self, board: Board, group: PodGroup, asked: Resources, recorded: Sequence[Seat]) -> None:
        self._asked = asked
        self._rooms = board.rooms
        self._units: dict[str, list[Unit]] = defaultdict(list)
        self._freed: dict[str, Resources] = defaultdict(lambda: ZERO)
        self._recorded = set(_nodes(recorded))
        self._elsewhere = board.find(group, asked, now=False) is not None
        self._free(recorded)

    def _free(self, seats: Iterable[Seat]) -> None:
        for seat in seats:
            if seat.room is not None:
                self._freed[seat.room.node.name] += seat.pod.requests

    def add(self, unit: Unit) -> None:
        self._free(unit)
        for node in _nodes(unit):
            self._units[node].append(unit)

    def seats(self, node: str) -> list[Seat]:
        """Everything that goes with the potential victims of a node, gangs whole."""
        return [seat for unit in self._units[node] for seat in unit]

    def may_fit(self, node: str) -> bool:
        """Could the pod fit somewhere once the node's potential victims are gone?"""
        if self._elsewhere:
            return bool(self._units[node])
        emptied = {node, *_nodes(self.seats(node)), *self._recorded}
        rooms = (room for name in emptied if (room := self._rooms.get(name)))
        return any(self._asked.fits_in(room.future + self._freed[room.node.name]) for room in rooms)


class _Trial:
    """Everybody is placed again: the candidate and the removed groups, in KAI's order."""

    def __init__(self, standing: Standing, group: PodGroup, pods: tuple[Pod, ...], removed: Sequence[Seat]) -> None:
        self._standing = standing
        self._board = standing.board
        self._group = group
        self._pods = pods
        self._removed = removed
        self.nominated: dict[str, str] = {}
        self.moves: dict[Seat, str] = {}

    def gone(self) -> list[Seat]:
        """Seats that stay removed, moved ones included."""
        return [seat for seat in self._removed if seat.leaving]

    def run(self) -> bool:
        """True when the candidate got all its room."""
        returning: dict[str, list[Seat]] = {}
        for seat in self._removed:
            returning.setdefault(seat.group.name, []).append(seat)
        offers = {name: _offer(self._board, seats) for name, seats in returning.items()}
        entries = [(seats[0].group, _sum(offers[name])) for name, seats in returning.items()]
        for group, _amount in Turns(self._standing, [(self._group, total(self._pods)), *entries], victims=False):
            if group is not self._group:
                self._put_back(group, offers[group.name])
            elif not self._place_candidate():
                return False
        return True

    def _place_candidate(self) -> bool:
        if self._board.refusal(self._group, total(self._pods)):
            return False
        for pod in self._pods:
            room = self._room(self._group, pod.requests)
            if room is None:
                return False
            self._board.place(self._group, pod, room, now=False)
            self.nominated[pod.name] = room.node.name
        return True

    def _put_back(self, group: PodGroup, seats: Sequence[Seat]) -> None:
        """All of them or none: back on their own node, or moved to another one."""
        start = self._board.mark()
        if self._board.refusal(group, _sum(seats)):
            return
        moves: dict[Seat, str] = {}
        for seat in seats:
            room = self._room(group, seat.pod.requests)
            if room is None:
                self._board.undo(start)
                return
            if room is seat.room:
                self._board.keep(seat)
            else:
                self._board.place(group, seat.pod, room, now=False)
                moves[seat] = room.node.name
        self.moves |= moves

    def _room(self, group: PodGroup, asked: Resources) -> Room | None:
        """A node with room at once is preferred to one that is being emptied."""
        return self._board.find(group, asked, now=True) or self._board.find(group, asked, now=False)


def _offer(board: Board, seats: Sequence[Seat]) -> Sequence[Seat]:
    """What KAI places again of a group: up to its minimum, or one more pod."""
    group = seats[0].group
    return seats[: max(group.min_member - board.active[group.name], 1)]


def _sum(seats: Iterable[Seat]) -> Resources:
    return sum((seat.pod.requests for seat in seats), ZERO)


def _nodes(seats: Iterable[Seat]) -> list[str]:
    """Their nodes, each once, in order of appearance."""
    return list(dict.fromkeys(seat.room.node.name for seat in seats if seat.room is not None))
