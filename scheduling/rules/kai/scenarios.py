"""Which of KAI's potential victims are tried together: those of one node, then those of some nodes.

Source: KAI's scenario generators `nodelocalgreedy` and `multinodegang`. Potential victims come one more at a time. The
first generator then tries everything potential on each node of the latest victim's group; only where none of these
scenarios is a solution the second begins anew, and tries the smallest nodes whose room could be enough, then some more.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup
from scheduling.state.cluster_state import Assignment, SchedulingState
from scheduling.state.node_capacity import slots

Unit = tuple[Assignment, ...]
MOST_TRIES: Final = 100
"""Scenarios of several nodes that are tried for one candidate, or a part of it; KAI goes on for two minutes."""


class PotentialVictims:
    """Victims that may be taken for a candidate, as far as they have come, by node and by group.

    recorded: those found for fewer of the candidate's pods; they go in any case.
    """

    def __init__(
        self, board: SchedulingState, group: PodGroup, pods: Sequence[Pod], recorded: Sequence[Assignment]
    ) -> None:
        self._board = board
        self._group = group
        self._recorded = _by_node(recorded)
        self._also: dict[str, Unit] = {}
        for seat in recorded:
            self._also[seat.group.name] = (*self._also.get(seat.group.name, ()), seat)
        self._units: list[Unit] = []
        self._on: dict[str, list[int]] = defaultdict(list)
        self._of: dict[str, list[int]] = defaultdict(list)
        self._beside: dict[str, set[str]] = defaultdict(set)
        self._freed: dict[str, Resources] = {}
        self._spread = False
        """Has any of their groups victims on several nodes?"""
        self._gained: dict[str, int] = {}
        self._asked = pods[-1].requests
        self._wanted = sum(pod.requests == self._asked for pod in pods)
        self._least = min(pod.requests.gpu for pod in pods)
        self._demand = sum(pod.requests.gpu for pod in pods)
        self._slots = sum(slots(room.future, self._asked) for room in board.rooms.with_gpus(group, self._asked.gpu))
        self._slots += sum(self._gain(node, ZERO, freed) for node, freed in self._recorded.items())
        self._coming = 0

    def _room(self, node: str) -> int:
        """GPUs that are free there without any of them."""
        room = self._board.rooms.get(node)
        return self._recorded.get(node, ZERO).gpu + (max(room.future.gpu, 0) if room else 0)

    def _elsewhere(self) -> int:
        """GPUs that are free on nodes without any of them."""
        free = {room.node.name for room in self._board.rooms.with_gpus(self._group, 1)} | self._recorded.keys()
        return sum(self._room(node) for node in free if node not in self._on)

    def _gain(self, node: str, before: Resources, after: Resources) -> int:
        """How many more pods fit a node once more of it is free. Asked of pods that are like the last one."""
        room = self._board.rooms.get(node)
        if room is None or room.future.gpu + after.gpu < self._asked.gpu:
            return 0
        return slots(room.future + after, self._asked) - slots(room.future + before, self._asked)

    def add(self, unit: Unit) -> bool:
        """One more that may be taken. True: with all of them gone everybody could fit; without that none is tried."""
        index, name = len(self._units), unit[0].group.name
        self._units.append(unit)
        self._of[name].append(index)
        for node, freed in _by_node(unit).items():
            self._on[node].append(index)
            beside = self._beside[name]
            beside.add(node)
            self._spread = self._spread or len(beside) > 1
            known = self._freed.get(node)
            self._freed[node] = freed if known is None else known + freed
            gained = self._gained_on(node)
            self._coming += gained - self._gained.get(node, 0)
            self._gained[node] = gained
        return self._slots + self._coming >= self._wanted

    def _gained_on(self, node: str) -> int:
        """How many more pods fit there once what may be taken is gone, beside what goes in any case."""
        before, freed = self._recorded.get(node, ZERO), self._freed[node]
        room = self._board.rooms.get(node)
        if room is None or room.future.gpu + before.gpu + freed.gpu < self._asked.gpu:
            return 0
        return self._gain(node, before, before + freed)

    def around(self) -> Iterator[list[Unit]]:
        """Of each node of the latest victim's group: all victims of each group that has one there, as one parcel."""
        latest = self._units[-1][0].group
        for node in sorted(nodes_of(self._board.seats_of[latest.name])):
            if not self._spread and self._slots + self._gained.get(node, 0) < self._wanted:
                continue
            groups = dict.fromkeys(self._units[index][0].group.name for index in self._on.get(node, ()))
            near = {each for name in groups for each in self._beside[name]}
            if groups and self._slots + sum(self._gained[each] for each in near) >= self._wanted:
                yield [self._all_of(name) for name in groups]

    def _all_of(self, group: str) -> Unit:
        """What may go of a group. KAI counts those that go in any case twice here, also when it asks if they may."""
        return (*self._also.get(group, ()), *(seat for index in self._of[group] for seat in self._units[index]))

    def across(self) -> Iterator[list[Unit]]:
        """Victims of the smallest nodes that together could have room for everything asked for; then of more nodes."""
        room = {node: self._room(node) + freed.gpu for node, freed in self._freed.items()}
        nodes = [node for node in room if room[node] >= self._least]
        nodes.sort(key=lambda node: (room[node], self._on[node][0]))
        count, more = _covering([room[node] for node in nodes], self._demand - self._elsewhere()), 1
        while count <= len(nodes):
            chosen = sorted({index for node in nodes[:count] for index in self._on[node]})
            yield [self._units[index] for index in chosen]
            if count == len(nodes):
                return
            count, more = min(count + more, len(nodes)), more * 2


Generator = Callable[[PotentialVictims], Iterator[list[Unit]]]


def nodes_of(seats: Sequence[Assignment]) -> list[str]:
    """Their nodes, each once, in order of appearance."""
    return list(dict.fromkeys(seat.room.node.name for seat in seats if seat.room is not None))


def _by_node(seats: Sequence[Assignment]) -> dict[str, Resources]:
    """What they hold on each node."""
    if len(seats) == 1 and (only := seats[0].room) is not None:
        return {only.node.name: seats[0].pod.requests}
    held: dict[str, Resources] = {}
    for seat in seats:
        if seat.room is not None:
            held[seat.room.node.name] = held.get(seat.room.node.name, ZERO) + seat.pod.requests
    return held


def _covering(rooms: Sequence[int], demand: int) -> int:
    """How many of them are enough, the first ones; one more than there are: all are too few."""
    for count, room in enumerate(rooms, start=1):
        if demand <= 0:
            return count - 1
        demand -= room
    return len(rooms) if demand <= 0 else len(rooms) + 1
