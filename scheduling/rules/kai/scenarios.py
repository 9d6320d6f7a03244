"""Which of KAI's potential victims are tried together: those of one node, then those of some nodes.

Source: KAI's scenario generators `nodelocalgreedy` and `multinodegang`. Potential victims come one more at a time. The
first generator then tries everything potential on each node of the latest victim's group; only where none of these
scenarios is a solution the second begins anew, and tries the smallest nodes whose room could be enough, then some more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup
from scheduling.rules.kai.victims import Unit, VictimLine
from scheduling.state.cluster_state import Assignment, SchedulingState
from scheduling.state.node_capacity import slots

MOST_TRIES: Final = 100
"""Scenarios of several nodes that are tried for one candidate, or a part of it; KAI goes on for two minutes."""


class PotentialVictims:
    """Victims that may be taken for a candidate, as far as they have come, by node and by group.

    recorded: those found for fewer of the candidate's pods; they go in any case. The line is shared by all searches
    for the candidate; of each only those places count that have come and are not recorded.
    """

    def __init__(
        self,
        board: SchedulingState,
        group: PodGroup,
        pods: Sequence[Pod],
        recorded: Sequence[Assignment],
        line: VictimLine,
    ) -> None:
        self._board = board
        self._group = group
        self._line = line
        self._recorded = _by_room(recorded)
        self._also: dict[str, Unit] = {}
        for seat in recorded:
            self._also[seat.group.name] = (*self._also.get(seat.group.name, ()), seat)
        gone = set(recorded)
        places = (place for name in self._also for place in line.of[name])
        self._skipped = {place for place in places if not gone.isdisjoint(line.known[place].unit)}
        self._place = -1
        self._gained: dict[int, int] = {}
        self._asked = pods[-1].requests
        self._wanted = sum(pod.requests == self._asked for pod in pods)
        self._least = min(pod.requests.gpu for pod in pods)
        self._demand = sum(pod.requests.gpu for pod in pods)
        self._slots = sum(slots(room.future, self._asked) for room in board.rooms.with_gpus(group, self._asked.gpu))
        self._free = list(line.free)
        for index, freed in self._recorded.items():
            self._free[index] += freed.gpu
            self._slots += self._gain(index, ZERO, freed)
        self._fitting = self._slots

    @property
    def fits_already(self) -> bool:
        """May there be room once those are gone that go in any case? Only what asks for GPUs is counted."""
        return self._slots >= self._wanted or not self._asked.gpu

    def _gain(self, index: int, before: Resources, more: Resources) -> int:
        """How many more pods fit a node once more of it is free. Asked of pods that are like the last one."""
        free = self._line.rooms[index].future + before
        if free.gpu + more.gpu < self._asked.gpu:
            return 0
        return slots(free + more, self._asked) - slots(free, self._asked)

    def steps(self, *, local: bool) -> Iterator[None]:
        """Victims join until a scenario may be tried: with all of them gone everybody could fit.

        local: only where they could fit with those that are gone around the latest one.
        """
        if not self._could_fit(local=local):
            return
        free, needed = self._free, [self._asked.gpu] * len(self._free)
        for place in self._places(local=local):
            if place in self._skipped:
                continue
            self._place, rooms = place, self._line.known[place].rooms
            for index, gpu in rooms:
                free[index] += gpu
                if free[index] >= needed[index]:  # else no more pods fit there than before
                    needed[index] = self._count(index)
            if self._fitting >= self._wanted and (not local or self._fits_around(rooms)):
                yield

    def _places(self, *, local: bool) -> Iterator[int]:
        """Those on nodes that may have room for a pod; all of them from when on everybody could fit."""
        if self._fitting < self._wanted:
            for place in self._line.places(every=False):
                yield place
                if self._fitting >= self._wanted and not local:
                    break
            else:
                return
        yield from self._line.places(self._place, every=True)

    def _could_fit(self, *, local: bool) -> bool:
        """Could they once every potential victim is gone, counted by GPUs alone?"""
        each, missing = self._asked.gpu, self._wanted - self._slots
        if missing <= 0 or not each:
            return True
        if local and not self._line.spread:
            return max(self._line.most.values(), default=0) >= missing * each
        return sum(gpu // each for gpu in self._line.most.values()) >= missing

    def _fits_around(self, rooms: Sequence[tuple[int, int]]) -> bool:
        """May those on the latest one's nodes be enough? Beside groups on several nodes that is found out later."""
        missing = self._wanted - self._slots
        return missing <= 0 or any(
            index in self._line.spread or self._gained.get(index, 0) >= missing for index, _gpu in rooms
        )

    def _count(self, index: int) -> int:
        """Count how many more pods fit the node by now. How many GPUs have to be free there for one more."""
        before = self._recorded.get(index, ZERO)
        gained = self._gain(index, before, self._freed(index))
        self._fitting += gained - self._gained.get(index, 0)
        self._gained[index] = gained
        return self._asked.gpu * (slots(self._line.rooms[index].future + before, self._asked) + gained + 1)

    def _freed(self, index: int) -> Resources:
        """What they hold on a node."""
        room = self._line.rooms[index]
        units = (self._line.known[place].unit for place in self._on(index))
        return sum((seat.pod.requests for unit in units for seat in unit if seat.room is room), ZERO)

    def _on(self, index: int) -> list[int]:
        return self._come(self._line.on.get(index, ()))

    def _come(self, places: Sequence[int]) -> list[int]:
        return [place for place in places if place <= self._place and place not in self._skipped]

    def around(self) -> Iterator[list[Unit]]:
        """Of each node of the latest victim's group: all victims of each group that has one there, as one parcel."""
        latest = self._line.known[self._place].unit[0].group
        rooms = {seat.room.node.name: seat.room.index for seat in self._board.seats_of[latest.name] if seat.room}
        for _name, index in sorted(rooms.items()):
            groups = dict.fromkeys(self._line.known[place].unit[0].group.name for place in self._on(index))
            near = {each for name in groups for each in self._homes(name)}
            if groups and self._slots + sum(self._gained.get(each, 0) for each in near) >= self._wanted:
                yield [self._all_of(name) for name in groups]

    def _homes(self, group: str) -> Iterator[int]:
        """The nodes of a group's victims, by index."""
        return (index for place in self._come(self._line.of[group]) for index, _gpu in self._line.known[place].rooms)

    def _all_of(self, group: str) -> Unit:
        """What may go of a group. KAI counts those that go in any case twice here, also when it asks if they may."""
        units = (self._line.known[place].unit for place in self._come(self._line.of[group]))
        return (*self._also.get(group, ()), *(seat for unit in units for seat in unit))

    def across(self) -> Iterator[list[Unit]]:
        """Victims of the smallest nodes that together could have room for everything asked for; then of more nodes."""
        nodes = self._nodes()
        count, more = _covering([room for room, _first, _index in nodes], self._demand - self._elsewhere()), 1
        while count <= len(nodes):
            chosen = sorted({place for _room, _first, index in nodes[:count] for place in self._on(index)})
            yield [self._line.known[place].unit for place in chosen]
            if count == len(nodes):
                return
            count, more = min(count + more, len(nodes)), more * 2

    def _nodes(self) -> list[tuple[int, tuple[int, int], int]]:
        """Those with victims and room for a pod: GPUs once the victims are gone, who came first, index; in order."""
        found = []
        for index in self._line.on:
            room = self._free[index] + self._overdrawn(index)
            if room >= self._least and (first := next(iter(self._on(index)), None)) is not None:
                beside = [each for each, _gpu in self._line.known[first].rooms]
                found.append((room, (first, beside.index(index)), index))
        return sorted(found)

    def _overdrawn(self, index: int) -> int:
        """By how many GPUs a node is overfull."""
        return max(-self._line.free[index], 0)

    def _elsewhere(self) -> int:
        """GPUs that are free on nodes without any of them."""
        free = {room.index for room in self._board.rooms.with_gpus(self._group, 1)} | self._recorded.keys()
        return sum(self._free[index] + self._overdrawn(index) for index in free if not self._on(index))


Generator = Callable[[PotentialVictims], Iterator[list[Unit]]]


def _by_room(seats: Sequence[Assignment]) -> dict[int, Resources]:
    """What they hold on each node, by its index."""
    held: dict[int, Resources] = {}
    for seat in seats:
        if seat.room is not None:
            held[seat.room.index] = held.get(seat.room.index, ZERO) + seat.pod.requests
    return held


def _covering(rooms: Sequence[int], demand: int) -> int:
    """How many of them are enough, the first ones; one more than there are: all are too few."""
    for count, room in enumerate(rooms, start=1):
        if demand <= 0:
            return count - 1
        demand -= room
    return len(rooms) if demand <= 0 else len(rooms) + 1
