"""How KAI looks for victims: one more at a time, tried with others near it, unneeded ones given back.

Source: KAI's job solver. Potential victims are added in order. After each some scenarios of them are tried
(`scenarios`): they are taken away and everybody is placed again in the usual order: the candidate must fit; victims
that fit stay where they were, or move where there is room at once. The first such scenario that the action accepts is
the solution. So victims need not be the weakest ones.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, total
from scheduling.rules.kai.order import KaiQueueShares, Leaf, ScheduleOrder, groups_by_queue, with_waiting
from scheduling.rules.kai.scenarios import MOST_TRIES, Generator, PotentialVictims
from scheduling.rules.kai.victims import Unit, VictimLine, VictimQueue
from scheduling.state.cluster_state import Assignment, SchedulingState, held
from scheduling.state.node_capacity import NodeCapacity

GENERATORS: Final[tuple[tuple[Generator, int | None], ...]] = (
    (PotentialVictims.around, None),
    (PotentialVictims.across, MOST_TRIES),
)
"""In their order, and how many scenarios of each are tried at most."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Who goes, where the candidate's pods will start, and where moved victims were found room.

    parcels: those together with whom they were taken away, also where these keep their room in the end.
    """

    victims: tuple[Assignment, ...]
    nominated: dict[str, str]
    moves: dict[Assignment, str]
    parcels: tuple[Unit, ...]


class Solver:
    """Searches on the board. A solution is left in place; a failed search leaves nothing."""

    def __init__(
        self,
        standing: KaiQueueShares,
        group: PodGroup,
        victims: Mapping[str, VictimQueue],
        accepts: Callable[[Resources, Sequence[Assignment]], bool],
        waiting: Mapping[str, Leaf[PodGroup]],
    ) -> None:
        self._standing = standing
        self._board = standing.board
        self._group = group
        self._line = VictimLine(standing, victims, min(pod.requests.gpu for pod in group.waiting))
        self._accepts = accepts
        self._waiting = waiting
        self._failed: set[tuple[int, int, frozenset[Assignment]]] = set()
        self._hopeful = False

    def solve(self, pods: tuple[Pod, ...]) -> Solution | None:
        """Find room for all these pods, first with the victims of one node at a time, then of several."""
        for generator, most in GENERATORS:
            found = self._search(pods, generator, most)
            if found or not self._hopeful:
                return found
        return None

    def _search(self, pods: tuple[Pod, ...], generator: Generator, most: int | None) -> Solution | None:
        """For as many pods as find room, by doubling and halving their number; whom that takes goes for all of them."""
        recorded: tuple[Unit, ...] = ()
        solved, failed, count = 0, len(pods) + 1, 1
        while failed - solved > 1:
            start = self._board.mark()
            found = self._solve(pods[:count], recorded, generator, most)
            self._board.undo(start)
            if found:
                recorded, solved = found.parcels, count
            else:
                failed = count
            doubled = min(2 * count, len(pods))
            count = doubled if failed > len(pods) else (solved + failed) // 2
        return self._solve(pods, recorded, generator, most) if solved else None

    def _solve(
        self,
        pods: tuple[Pod, ...],
        recorded: tuple[Unit, ...],
        generator: Generator,
        most: int | None,
    ) -> Solution | None:
        gone = [seat for parcel in recorded for seat in parcel]
        potential = PotentialVictims(self._board, self._group, pods, gone, self._line)
        if recorded and potential.fits_already and (solution := self._attempt(pods, recorded)):
            return solution
        for parcels in islice(self._scenarios(potential, generator), most):
            if solution := self._attempt(pods, (*recorded, *parcels)):
                return solution
        return None

    def _scenarios(self, potential: PotentialVictims, generator: Generator) -> Iterator[list[Unit]]:
        for _step in potential.steps(local=generator is PotentialVictims.around):
            self._hopeful = True
            yield from generator(potential)

    def _attempt(self, pods: tuple[Pod, ...], parcels: tuple[Unit, ...]) -> Solution | None:
        """Take these away and place everybody again."""
        counted = [seat for parcel in parcels for seat in parcel]
        removed = list(dict.fromkeys(counted))
        scenario = (len(pods), len(counted), frozenset(removed))
        if scenario in self._failed:
            return None
        start = self._board.mark()
        for seat in removed:
            self._board.evict(seat)
        trial = _Trial(self._standing, self._group, pods, removed, self._waiting)
        if trial.run() and self._accepts(total(pods), [s for s in counted if s.leaving and s not in trial.moves]):
            gone = trial.gone()
            needed = tuple(parcel for parcel in parcels if not set(gone).isdisjoint(parcel))
            return Solution(tuple(gone), trial.nominated, trial.moves, needed)
        self._failed.add(scenario)
        self._board.undo(start)
        return None


class _Trial:
    """Everybody is placed again: the candidate and the removed groups, in KAI's order.

    Others that wait are not placed, but a queue's turn is that of whoever is next in it.
    """

    def __init__(
        self,
        standing: KaiQueueShares,
        group: PodGroup,
        pods: tuple[Pod, ...],
        removed: Sequence[Assignment],
        waiting: Mapping[str, Leaf[PodGroup]],
    ) -> None:
        self._standing = standing
        self._board = standing.board
        self._group = group
        self._pods = pods
        self._removed = removed
        self._waiting = waiting
        self._among = frozenset[str]()
        self.nominated: dict[str, str] = {}
        self.moves: dict[Assignment, str] = {}
        if any(each.topology for each in (group, *(seat.group for seat in removed))):
            self._among = frozenset(room.node.name for room in self._board.rooms.with_gpus(group, 1))

    def gone(self) -> list[Assignment]:
        """Seats that stay removed, moved ones included."""
        return [seat for seat in self._removed if seat.leaving]

    def run(self) -> bool:
        """True when the candidate got all its room."""
        gone = set(self._removed)
        names = dict.fromkeys(seat.group.name for seat in self._removed)
        returning = {name: [seat for seat in self._board.seats_of[name] if seat in gone] for name in names}
        offers = {name: _offer(self._board, seats) for name, seats in returning.items()}
        entries = [(seats[0].group, held(offers[name])) for name, seats in returning.items()]
        leaves = groups_by_queue(self._standing, [(self._group, total(self._pods)), *entries])
        left = {self._group.name, *offers}
        turns = iter(ScheduleOrder(self._standing, with_waiting(self._standing, leaves, self._waiting)))
        while left:
            group, _amount = next(turns)
            if group is self._group:
                if not self._place_candidate():
                    return False
            elif group.name in left:
                self._put_back(group, offers[group.name])
            left.discard(group.name)
        return True

    def _place_candidate(self) -> bool:
        if self._board.refusal(self._group, total(self._pods)):
            return False
        return any(self._place_in(domain) for domain in self._domains(self._group, total(self._pods)))

    def _domains(self, group: PodGroup, asked: Resources) -> list[PodGroup]:
        """Among the nodes that had any room once everybody was taken away."""
        return self._board.domains(group, asked, among=self._among)

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

    def _put_back(self, group: PodGroup, seats: Sequence[Assignment]) -> None:
        """All of them or none: back on their own node, or moved to another one; in one domain where they want one."""
        if not self._board.refusal(group, held(seats)):
            any(self._put_into(domain, seats) for domain in self._domains(group, held(seats)))

    def _put_into(self, domain: PodGroup, seats: Sequence[Assignment]) -> bool:
        start = self._board.mark()
        moves: dict[Assignment, str] = {}
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

    def _room(self, group: PodGroup, asked: Resources) -> NodeCapacity | None:
        """A node with room at once is preferred to one that is being emptied."""
        return self._board.find(group, asked, now=True) or self._board.find(group, asked, now=False)


def _offer(board: SchedulingState, seats: Sequence[Assignment]) -> Sequence[Assignment]:
    """What KAI places again of a group: up to its minimum, or one more pod."""
    group = seats[0].group
    return seats[: max(group.min_member - board.active[group.name], 1)]


_Key = tuple[object, ...]
"""Who is alike."""


class VictimSearchMemo:
    """Failed searches for victims: the same queue need not search again for an equal or larger request."""

    def __init__(self) -> None:
        self._failed: dict[_Key, list[tuple[int, Resources]]] = {}

    @staticmethod
    def _key(group: PodGroup) -> _Key:
        return (group.queue, group.preemptible, group.tolerations)

    def add(self, group: PodGroup, chunk: tuple[Pod, ...]) -> None:
        """Nobody goes for these pods."""
        if not group.node_selector and not group.topology and len({pod.requests for pod in chunk}) == 1:
            self._failed.setdefault(self._key(group), []).append((len(chunk), chunk[0].requests))

    def covers(self, group: PodGroup, chunk: tuple[Pod, ...]) -> bool:
        """Has an easier pod group of the same queue failed? (Later ones have no higher priority.)"""
        return any(
            count <= len(chunk) and all(asked.fits_in(pod.requests) for pod in chunk)
            for count, asked in self._failed.get(self._key(group), ())
        )


class FailureMemo:
    """The easiest of what has failed and is alike: what is no easier is not tried, though it might not be in vain.

    Source: KAI's `MinimalJobRepresentatives` and its signature of scheduling constraints, which holds the priority and
    the number of pods, but neither preemptibility nor size.
    across_queues: also where another queue's has failed.
    """

    def __init__(self, *, across_queues: bool) -> None:
        self._across_queues = across_queues
        self._easiest: dict[_Key, list[Resources]] = {}

    def add(self, group: PodGroup, pods: Sequence[Pod]) -> None:
        """These pods, all that wait of the group, found no room."""
        known, sizes = self._easiest.get(self._key(group, pods)), _sizes(pods)
        if known is None or all(mine.fits_in(theirs) for mine, theirs in zip(sizes, known, strict=True)):
            self._easiest[self._key(group, pods)] = sizes

    def covers(self, group: PodGroup, pods: Sequence[Pod]) -> bool:
        """Is there one that these are no easier than?"""
        known = self._easiest.get(self._key(group, pods))
        return known is not None and not any(
            mine.fits_in(theirs) and mine != theirs for mine, theirs in zip(_sizes(pods), known, strict=True)
        )

    def _key(self, group: PodGroup, pods: Sequence[Pod]) -> _Key:
        where = frozenset(group.node_selector.items())
        alike = (group.priority, group.tolerations, where, group.topology, len(pods))
        return alike if self._across_queues else (group.queue, *alike)


def _sizes(pods: Sequence[Pod]) -> list[Resources]:
    return sorted((pod.requests for pod in pods), key=lambda asked: (asked.gpu, asked.cpu, asked.memory))
