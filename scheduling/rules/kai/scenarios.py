"""Which potential victims KAI tries together: those of one node, then those of several nodes.

Source: KAI's scenario generators `nodelocalgreedy` and `multinodegang`. Potential victims are added one at a time.
After each, the first generator tries all potential victims on each node of the latest victim's group. Only if none of
its scenarios is a solution, the second starts over: it tries the smallest nodes that could have enough capacity, then
more of them.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup
from scheduling.rules.kai.order import KaiQueueShares
from scheduling.rules.kai.victims import Integers, Unit, VictimOrder, VictimQueue, keep, victim_order
from scheduling.state.assignments import Assignment
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity, slots
from scheduling.state.workspace import ALL_PODS

MOST_TRIES: Final = 100
"""Scenarios of several nodes that are tried for one candidate, or a part of it; KAI goes on for two minutes."""


class VictimLine:
    """The victims in order, and the free GPUs at the start, for all searches for one candidate.

    least: GPUs of the candidate's smallest pod.
    """

    def __init__(self, order: VictimOrder, least: int, capacities: Sequence[NodeCapacity], free: list[int]) -> None:
        self._order = order
        self._least = least
        self.capacities = capacities
        self.free = free
        self.victim, self.on, self.spread = order.victim, order.on, order.spread
        self._slots: dict[int, int] = {}
        self._slots_before: dict[int, int] = {}
        self._gains: dict[int, int] = {}

    @classmethod
    def of_queues(cls, shares: KaiQueueShares, queues: Mapping[str, VictimQueue], least: int) -> "VictimLine":
        """The line for the present state. Kept as long as the order: other questions come to the same state."""
        order, capacities = victim_order(shares, queues), shares.state.capacities
        lines = shares.state.cached(ALL_PODS, "victim lines", dict[VictimOrder, VictimLine])
        line = lines.get(order)
        if line is None or line._least != least or line.free != capacities.gpus:
            line = keep(lines, order, cls(order, least, capacities.all, capacities.gpus.copy()))
        return line

    @cached_property
    def floor(self) -> list[int]:
        """Free GPUs by node index, not below zero."""
        return [gpu if gpu > 0 else 0 for gpu in self.free]

    @cached_property
    def _floor(self) -> Integers:
        return np.array(self.floor, np.int64)

    @cached_property
    def _most(self) -> Integers:
        """GPUs that each node has once all potential victims are gone."""
        return self._floor + self._order.held

    def has_slots(self, gpu: int, wanted: int) -> bool:
        """Whether so many pods with that many GPUs fit the nodes of victims once all potential victims are gone."""
        if gpu not in self._slots:
            self._slots[gpu] = int((self._most[self._order.nodes] // gpu).sum())
        return self._slots[gpu] >= wanted

    def has_room(self, gpu: int, wanted: int, free: int) -> bool:
        """Whether so many pods fit all nodes once all potential victims are gone, by GPUs alone. free: fit already."""
        if free >= wanted:
            return True
        if gpu not in self._gains:
            self._gains[gpu] = int((self._most // gpu - self._floor // gpu).sum())
        return free + self._gains[gpu] >= wanted

    def slots_after_moves(self, gpu: int, moved: Iterable[Assignment]) -> int:
        """At most how many pods with that many GPUs fit all nodes if these pods move, by GPUs. Fewer moves add no more.

        In slots of that size: a pod takes at least as many as its GPUs contain.
        """
        floor, held, taken = self.floor, dict[int, int](), 0
        for assignment in moved:
            if assignment.capacity is not None:
                index, amount = assignment.capacity.index, assignment.pod.requests.gpu
                held[index] = held.get(index, 0) + amount
                taken += amount // gpu
        if gpu not in self._slots_before:
            self._slots_before[gpu] = sum(free // gpu for free in floor)
        more = sum((floor[index] + amount) // gpu - floor[index] // gpu for index, amount in held.items())
        return self._slots_before[gpu] + more - taken

    def places_of(self, gone: set[Assignment]) -> set[int]:
        """Places of the victims that have any of these pods."""
        indexes = {each.capacity.index if each.capacity else -1 for each in gone}
        places = (place for index in indexes for place in self.on(index))
        return {place for place in places if not gone.isdisjoint(self.victim(place).unit)}

    def of(self, assignments: Sequence[Assignment]) -> list[int]:
        """Places of the victims of the pod group that has these assignments."""
        indexes = {each.capacity.index if each.capacity else -1 for each in assignments}
        places = {place for index in indexes for place in self.on(index)}
        return sorted(place for place in places if self.victim(place).unit[0].group is assignments[0].group)

    def places(self, after: int) -> range:
        """All further places, in order."""
        return range(after + 1, len(self._order))

    @cached_property
    def filled(self) -> memoryview:
        """By place: GPUs that victims hold on the first node of the victim, up to and including it."""
        return self._order.filled.data

    @cached_property
    def first_places(self) -> tuple[Sequence[int], Sequence[int]]:
        """Each node that has victims, and the place of the first of them, by place."""
        nodes, places = self._order.first_places()
        return nodes.tolist(), places.tolist()

    def helpful(self, nodes: Iterable[int]) -> Sequence[int]:
        """Places, in order, of victims by which their node may fit a pod, and of all victims on these nodes."""
        also = [place for index in nodes for place in self.on(index)]
        return sorted({*self._helpful, *also}) if also else self._helpful

    @cached_property
    def _helpful(self) -> list[int]:
        """The same without these nodes. On nodes of groups that are spread, all help."""
        homes = self._order.homes
        helps = (homes >= 0) & (self._floor[homes] + self._order.filled >= self._least)
        if self.spread:
            helps |= np.isin(homes, list(self.spread))
        places: list[int] = np.flatnonzero(helps).tolist()
        return places


class PotentialVictims:
    """Potential victims for a candidate that the search has reached, by node and by group.

    recorded: victims found for fewer of the candidate's pods, which are evicted in any case. All searches for the
    candidate share the line; a search counts only places that it has reached and that are not recorded.
    only_moves: all of them must be placed again.
    """

    def __init__(
        self,
        state: SchedulingState,
        group: PodGroup,
        pods: Sequence[Pod],
        recorded: Sequence[Assignment],
        line: VictimLine,
        *,
        only_moves: bool = False,
    ) -> None:
        self._state = state
        self._group = group
        self._line = line
        self._recorded = _by_room(recorded)
        self._also: dict[str, Unit] = {}
        for assignment in recorded:
            self._also[assignment.group.name] = (*self._also.get(assignment.group.name, ()), assignment)
        self._gone = gone = set(recorded)
        self._skipped = line.places_of(gone)
        self._place, self._counted = -1, 0
        self._only_moves = only_moves
        self._large: set[int] = set()
        self._met: set[int] = set()  # nodes of recorded victims on which the search has reached others
        self._allowed = state.capacities.allowed(group)
        self._gained: dict[int, int] = {}
        self._requested = pods[-1].requests
        self._wanted = sum(pod.requests == self._requested for pod in pods)
        self._are_alike = self._wanted == len(pods)
        self._least = min(pod.requests.gpu for pod in pods)
        self._demand = sum(pod.requests.gpu for pod in pods)
        self._slots = sum(
            slots(capacity.future, self._requested)
            for capacity in state.capacities.with_gpus(group, self._requested.gpu)
        )
        self._needed = [self._requested.gpu] * len(line.free)
        self._free = list(line.free)
        for index, freed in self._recorded.items():
            self._free[index] += freed.gpu
            self._slots += self._gain(index, ZERO, freed)
        self._fitting = self._slots

    @property
    def fits_already(self) -> bool:
        """Whether the recorded victims may be enough. Counts GPUs only."""
        return self._slots >= self._wanted or not self._requested.gpu

    def may_fit(self, units: Iterable[Unit]) -> bool:
        """Whether these units, removed together, may be enough. Counts pods that are all alike only."""
        if not self._are_alike or not self._requested.gpu:
            return True
        removed = dict.fromkeys(assignment for unit in units for assignment in unit)
        if self._only_moves:
            moved = {*removed, *self._gone}
            if self._line.slots_after_moves(self._requested.gpu, moved) < self._wanted:
                return False
        more = _by_room([assignment for assignment in removed if assignment not in self._gone])
        gained = (self._gain(index, self._recorded.get(index, ZERO), amount) for index, amount in more.items())
        return self._slots + sum(gained) >= self._wanted

    def _gain(self, index: int, before: Resources, more: Resources) -> int:
        """How many more pods fit a node once more of it is free, for pods like the last one."""
        future = self._line.capacities[index].future
        if future.gpu + before.gpu + more.gpu < self._requested.gpu:
            return 0
        free = future + before
        return slots(free + more, self._requested) - slots(free, self._requested)

    def steps(self, *, local: bool) -> Iterator[None]:
        """Add victims until the candidate could fit without all of them, then yield after each.

        local: yield only if it could fit without those on the nodes of the latest victim's group.
        """
        if not self._could_fit(local=local):
            return
        for place in self._places(local=local):
            if place not in self._skipped:
                self._reach(place)
                if self._fitting >= self._wanted and (not local or self._fits_around(place)):
                    yield

    def _reach(self, place: int) -> None:
        """Add one victim. The search has not visited all victims on its nodes, unless these are spread or recorded."""
        self._place, line, free, needed = place, self._line, self._free, self._needed
        for index, gpu in line.victim(place).capacities:
            if index in self._recorded:
                self._met.add(index)
                free[index] += gpu
            elif index in line.spread:
                free[index] += gpu
            else:
                free[index] = line.free[index] + line.filled[place]
            if free[index] >= needed[index]:  # else no more pods fit there than before
                needed[index] = self._count(index)
            if free[index] + self._overdrawn(index) >= self._least:
                self._large.add(index)

    def _places(self, *, local: bool) -> Iterator[int]:
        """Places of victims by which their node may fit a pod; once the candidate could fit, all further places."""
        if self._fitting < self._wanted:
            for place in self._line.helpful(self._recorded):
                yield place
                if self._fitting >= self._wanted and not local:
                    break
            else:
                return
        yield from self._line.places(self._place)

    def _could_fit(self, *, local: bool) -> bool:
        """Whether the candidate fits once every potential victim is gone, by GPUs alone."""
        each, missing = self._requested.gpu, self._wanted - self._slots
        if missing <= 0 or not each:
            return True
        if local and not self._line.spread:
            return self._line.has_slots(missing * each, 1)
        return self._line.has_slots(each, missing)

    def _fits_around(self, place: int) -> bool:
        """Whether those on this victim's nodes may be enough. With groups on several nodes, always True."""
        missing = self._wanted - self._slots
        return missing <= 0 or any(
            index in self._line.spread or self._gained.get(index, 0) >= missing
            for index, _gpu in self._line.victim(place).capacities
        )

    def _count(self, index: int) -> int:
        """Count the pods that fit the node by now; return how many GPUs must be free there for one more."""
        before = self._recorded.get(index, ZERO)
        gained = self._gain(index, before, self._freed(index))
        self._fitting += gained - self._gained.get(index, 0)
        self._gained[index] = gained
        return self._requested.gpu * (slots(self._line.capacities[index].future + before, self._requested) + gained + 1)

    def _freed(self, index: int) -> Resources:
        """Resources that the victims hold on a node."""
        capacity = self._line.capacities[index]
        units = (self._line.victim(place).unit for place in self._on(index))
        return sum(
            (assignment.pod.requests for unit in units for assignment in unit if assignment.capacity is capacity), ZERO
        )

    def _on(self, index: int) -> list[int]:
        return self._come(self._line.on(index))

    def _of(self, group: str) -> list[int]:
        return self._come(self._line.of(self._state.assignments_of[group]))

    def _come(self, places: Sequence[int]) -> list[int]:
        return [place for place in places if place <= self._place and place not in self._skipped]

    def around(self) -> Iterator[list[Unit]]:
        """Per node of the latest victim's group: all victims of every group on that node, one unit per group."""
        latest = self._line.victim(self._place).unit[0].group
        capacities = {
            assignment.capacity.node.name: assignment.capacity.index
            for assignment in self._state.assignments_of[latest.name]
            if assignment.capacity
        }
        for _name, index in sorted(capacities.items()):
            groups = dict.fromkeys(self._line.victim(place).unit[0].group.name for place in self._on(index))
            homes = {each for name in groups for each in self._homes(name)}
            if groups and self._slots + sum(self._gained.get(each, 0) for each in homes) >= self._wanted:
                yield [self._all_of(name) for name in groups]

    def _homes(self, group: str) -> Iterator[int]:
        """Indexes of the nodes of a group's victims."""
        return (index for place in self._of(group) for index, _gpu in self._line.victim(place).capacities)

    def _all_of(self, group: str) -> Unit:
        """Victims of a group. As in KAI, recorded ones count twice here, also in the check whether they may go."""
        units = (self._line.victim(place).unit for place in self._of(group))
        return (*self._also.get(group, ()), *(assignment for unit in units for assignment in unit))

    def across(self) -> Iterator[list[Unit]]:
        """Victims of the smallest nodes that together could fit the request; then of more nodes."""
        nodes = self._nodes()
        count, more = _covering([capacity for capacity, _first, _index in nodes], self._demand - self._elsewhere()), 1
        while count <= len(nodes):
            chosen = sorted({place for _capacity, _first, index in nodes[:count] for place in self._on(index)})
            yield [self._line.victim(place).unit for place in chosen]
            if count == len(nodes):
                return
            count, more = min(count + more, len(nodes)), more * 2

    def _nodes(self) -> list[tuple[int, tuple[int, int], int]]:
        """Nodes with victims that can fit a pod: (GPUs without the victims, first place, index), sorted."""
        found = []
        for index in self._large:
            first = next(place for place in self._line.on(index) if place not in self._skipped)
            beside = [each for each, _gpu in self._line.victim(first).capacities]
            found.append((self._free[index] + self._overdrawn(index), (first, beside.index(index)), index))
        return sorted(found)

    def _overdrawn(self, index: int) -> int:
        """By how many GPUs a node is overcommitted."""
        return max(-self._line.free[index], 0)

    def _elsewhere(self) -> int:
        """GPUs that are free on nodes without victims that the search has reached."""
        line = self._line
        nodes, places = line.first_places
        end = bisect_right(places, self._place)
        self._unreached -= sum(map(self._floor.__getitem__, nodes[self._counted : end]))
        self._counted = end
        recorded = (line.floor[index] + freed.gpu for index, freed in self._recorded.items() if index not in self._met)
        return self._unreached + sum(recorded)

    @cached_property
    def _unreached(self) -> int:
        """GPUs that are free on all nodes; without those that `_elsewhere` has reached. None on recorded nodes."""
        return sum(self._floor)

    @cached_property
    def _floor(self) -> Sequence[int]:
        """GPUs that are free on each node; none on recorded nodes and those that the group may not use."""
        floor = self._line.floor.copy()
        if len(self._allowed) < len(floor):
            floor = [gpu if index in self._allowed else 0 for index, gpu in enumerate(floor)]
        for index in self._recorded:
            floor[index] = 0
        return floor


Generator = Callable[[PotentialVictims], Iterator[list[Unit]]]


def _by_room(assignments: Sequence[Assignment]) -> dict[int, Resources]:
    """GPUs that they hold per node index."""
    held: dict[int, Resources] = {}
    for assignment in assignments:
        if assignment.capacity is not None:
            held[assignment.capacity.index] = held.get(assignment.capacity.index, ZERO) + assignment.pod.requests
    return held


def _covering(capacities: Sequence[int], demand: int) -> int:
    """How many of the first nodes are enough; one more than there are if all are too few."""
    for count, capacity in enumerate(capacities, start=1):
        if demand <= 0:
            return count - 1
        demand -= capacity
    return len(capacities) if demand <= 0 else len(capacities) + 1
