"""How KAI looks for victims: one more at a time, tried on the latest victim's nodes, unneeded ones given back.

Source: KAI's job solver. For each pod of the candidate in turn, potential victims are added in order. After each,
all potential victims on its nodes are taken away and everybody is placed again in the usual order: the candidate must
fit; victims that fit stay where they were, or move where there is room at once. The first such scenario that the action
accepts is the solution. So victims always come from the nodes of one victim, but need not be the weakest ones.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduling.board import Board, Seat
from scheduling.model import Pod, PodGroup, total
from scheduling.placement import Room, slots
from scheduling.resources import ZERO, Resources
from scheduling.rules.kai_order import Leaf, Standing, Turns, VictimTurns, in_turn
from scheduling.victims import held

Unit = tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """Who goes, where the candidate's pods will start, and where moved victims were found room."""

    victims: tuple[Seat, ...]
    nominated: dict[str, str]
    moves: dict[Seat, str]


def by_unit(board: Board, groups: Iterable[PodGroup], *, spares: Callable[[PodGroup], bool]) -> Leaf[Unit]:
    """What the groups of one queue lose at a time, the first victim last. Of those that are spared: extra pods only.

    Lowest priority first; extra pods one by one before whole gangs; then the youngest.
    """
    keyed: list[tuple[tuple[int, int, int, str, int], Unit]] = []
    for group in groups:
        seats = [seat for seat in board.seats_of[group.name] if not seat.leaving]
        core = min(group.min_member, len(seats))
        pieces: list[Unit] = [tuple(seats[:core])] if seats else []
        pieces += [(seat,) for seat in seats[core:]]
        for index, piece in enumerate(pieces):
            if not index and spares(group):
                continue
            keyed.append(((-group.priority, min(index, 1), group.created, group.name, index), piece))
    keyed.sort(key=lambda item: item[0])
    return [(piece, held(piece)) for _key, piece in keyed]


class Solver:
    """Searches on the board. A solution is left in place; a failed search leaves nothing."""

    def __init__(
        self,
        standing: Standing,
        victims: Mapping[str, Leaf[Unit]],
        accepts: Callable[[Resources, Sequence[Seat]], bool],
    ) -> None:
        self._standing = standing
        self._board = standing.board
        self._victims = _Replay(unit for unit, _amount in VictimTurns(standing, victims))
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
        hopeful = _Hopeful(self._board, group, pods, recorded)
        known = set(recorded)
        for unit in self._victims:
            if not known.isdisjoint(unit):
                continue
            for node in hopeful.add(unit):
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


class _Replay:
    """The victims in order, found once for all pods of the candidate: each pod's search starts from the first."""

    def __init__(self, victims: Iterator[Unit]) -> None:
        self._coming = victims
        self._seen: list[Unit] = []

    def __iter__(self) -> Iterator[Unit]:
        yield from self._seen
        for unit in self._coming:
            self._seen.append(unit)
            yield unit


class _Hopeful:
    """Potential victims so far, by node, and a cheap test whether taking them away could be enough.

    The test counts how many pods of the last kind would fit: everywhere, with the victims found for earlier pods gone,
    and with the potential victims of one node gone.
    """

    def __init__(self, board: Board, group: PodGroup, pods: Sequence[Pod], recorded: Sequence[Seat]) -> None:
        self._rooms = board.rooms
        self._asked = pods[-1].requests
        self._wanted = sum(pod.requests == self._asked for pod in pods)
        self._units: dict[str, list[Unit]] = defaultdict(list)
        self._linked: dict[str, set[str]] = defaultdict(set)
        self._freed: dict[str, Resources] = defaultdict(lambda: ZERO)
        rooms = board.rooms.with_gpus(group, self._asked.gpu)
        self._slots = sum(slots(room.future, self._asked) for room in rooms)
        self._free(recorded)
        self._slots += sum(self._gain(node, ZERO, self._freed[node]) for node in _nodes(recorded))
        self._recorded = dict(self._freed)

    def _free(self, seats: Iterable[Seat]) -> None:
        for seat in seats:
            if seat.room is not None:
                self._freed[seat.room.node.name] += seat.pod.requests

    def _gain(self, node: str, before: Resources, after: Resources) -> int:
        """How many more pods fit a node once more of it is free."""
        room = self._rooms.get(node)
        if room is None or room.future.gpu + after.gpu < self._asked.gpu:
            return 0
        return slots(room.future + after, self._asked) - slots(room.future + before, self._asked)

    def add(self, unit: Unit) -> list[str]:
        """One more potential victim; returns its nodes."""
        self._free(unit)
        nodes = _nodes(unit)
        for node in nodes:
            self._units[node].append(unit)
            if len(nodes) > 1:
                self._linked[node].update(nodes)
        return nodes

    def seats(self, node: str) -> list[Seat]:
        """Everything that goes with the potential victims of a node, gangs whole."""
        return [seat for unit in self._units[node] for seat in unit]

    def may_fit(self, node: str) -> bool:
        """Could all pods fit once the node's potential victims, and what goes with them elsewhere, are gone?"""
        missing = self._wanted - self._slots
        for name in {node, *self._linked.get(node, ())} if missing > 0 else ():
            missing -= self._gain(name, self._recorded.get(name, ZERO), self._freed[name])
        return missing <= 0


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
        entries = [(seats[0].group, held(offers[name])) for name, seats in returning.items()]
        leaves = in_turn(self._standing, [(self._group, total(self._pods)), *entries])
        for group, _amount in Turns(self._standing, leaves):
            if group is not self._group:
                self._put_back(group, offers[group.name])
            elif not self._place_candidate():
                return False
        return True

    def _place_candidate(self) -> bool:
        if self._board.refusal(self._group, total(self._pods)):
            return False
        return any(self._place_in(domain) for domain in self._board.domains(self._group))

    def _place_in(self, domain: PodGroup) -> bool:
        """All of the candidate's pods in one domain of its topology, or none."""
        start = self._board.mark()
        found: dict[str, str] = {}
        for pod in self._pods:
            room = self._room(domain, pod.requests)
            if room is None:
                self._board.undo(start)
                return False
            self._board.place(domain, pod, room, now=False)
            found[pod.name] = room.node.name
        self.nominated = found
        return True

    def _put_back(self, group: PodGroup, seats: Sequence[Seat]) -> None:
        """All of them or none: back on their own node, or moved to another one; in one domain where they want one."""
        if not self._board.refusal(group, held(seats)):
            any(self._put_into(domain, seats) for domain in self._board.domains(group))

    def _put_into(self, domain: PodGroup, seats: Sequence[Seat]) -> bool:
        start = self._board.mark()
        moves: dict[Seat, str] = {}
        for seat in seats:
            room = self._room(domain, seat.pod.requests)
            if room is None:
                self._board.undo(start)
                return False
            if room is seat.room:
                self._board.keep(seat)
            else:
                self._board.place(domain, seat.pod, room, now=False)
                moves[seat] = room.node.name
        self.moves |= moves
        return True

    def _room(self, group: PodGroup, asked: Resources) -> Room | None:
        """A node with room at once is preferred to one that is being emptied."""
        return self._board.find(group, asked, now=True) or self._board.find(group, asked, now=False)


def _offer(board: Board, seats: Sequence[Seat]) -> Sequence[Seat]:
    """What KAI places again of a group: up to its minimum, or one more pod."""
    group = seats[0].group
    return seats[: max(group.min_member - board.active[group.name], 1)]


def _nodes(seats: Sequence[Seat]) -> list[str]:
    """Their nodes, each once, in order of appearance."""
    if len(seats) == 1:
        return [room.node.name] if (room := seats[0].room) else []
    return list(dict.fromkeys(seat.room.node.name for seat in seats if seat.room is not None))
