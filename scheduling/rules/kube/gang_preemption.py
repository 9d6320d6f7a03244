"""Would the gang fit if these were gone? Free amounts on a copy; the board is not touched.

Pods that ask for the same are counted in slots, so that a potential victim costs one look however large the gang is;
pods that differ are placed one by one, each on the emptiest node that takes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod
from scheduling.rules.kube.preemption import start_time
from scheduling.state.cluster_state import Assignment, SchedulingState
from scheduling.state.node_capacity import NO_LIMIT
from scheduling.state.workspace import check_time

Space = tuple[Resources, int]
"""What is free on a node, and how many more pods its kubelet takes."""

Part = tuple[str, tuple[int, int, int]]
"""A node, and the GPU, CPU and memory that a pod holds on it."""


@dataclass(frozen=True, slots=True)
class EvictionUnit:
    """Pods that are evicted together: a gang of mode PodGroup, or one pod. parts: what each of them holds."""

    seats: tuple[Assignment, ...]
    parts: tuple[Part, ...]

    @property
    def priority(self) -> int:
        return self.seats[0].group.priority

    @property
    def importance(self) -> tuple[int, bool, int, int]:
        """Who is given back first: higher priority, pods of gangs, the larger gang, the earlier start.

        Of a gang's starts the scheduler knows only that of the pod it meets first, node by node.
        """
        owner = self.seats[0].group
        size = len(self.seats) if owner.gang else 0
        _node, start = min((seat.room.index if seat.room else NO_LIMIT, start_time(seat)) for seat in self.seats)
        return (-owner.priority, not owner.gang, -size, start)


class GangTrial:
    """How many of these pods fit at the same time, while units are taken away and given back."""

    def __init__(self, spaces: Mapping[str, Space], pods: Sequence[Pod]) -> None:
        self._free = {name: [free.gpu, free.cpu, free.memory, left] for name, (free, left) in spaces.items()}
        self._pods = pods
        self.alike = pods[0].requests if len({pod.requests for pod in pods}) == 1 else None
        asked = self.alike or Resources()
        self._asked = [(place, part) for place, part in enumerate((asked.gpu, asked.cpu, asked.memory)) if part]
        self._slots: dict[str, int] = {}
        self._settle()

    def _settle(self) -> None:
        """Count again on every node. Until the next time no node is expected to have fewer than it has at least."""
        if self.alike is not None:
            self._slots = {name: self._count(free) for name, free in self._free.items()}
        self._total = sum(self._slots.values())

    def _count(self, free: list[int]) -> int:
        most = free[3]
        for place, part in self._asked:
            if free[place] < most * part:
                most = free[place] // part
        return max(most, 0)

    def take_all(self, units: Sequence[EvictionUnit]) -> None:
        """These are gone."""
        for unit in units:
            self._change(unit, 1)
        self._settle()

    def take(self, unit: EvictionUnit) -> None:
        """The unit is gone."""
        self._change(unit, 1)
        self._count_on(unit)

    def give_back(self, unit: EvictionUnit) -> None:
        """The unit stays."""
        self._change(unit, -1)
        self._count_on(unit)

    def _change(self, unit: EvictionUnit, sign: int) -> None:
        for name, (gpu, cpu, memory) in unit.parts:
            if free := self._free.get(name):
                free[0] += gpu * sign
                free[1] += cpu * sign
                free[2] += memory * sign
                free[3] += sign

    def _count_on(self, unit: EvictionUnit) -> None:
        for name, _amount in unit.parts:
            if name in self._slots:
                count = self._count(self._free[name])
                self._total += count - self._slots[name]
                self._slots[name] = count

    def fitting(self) -> int:
        """How many of the pods fit by now."""
        return len(self.places()) if self.alike is None else min(self._total, len(self._pods))

    def places(self) -> dict[str, str]:
        """Pod name to node, in the order of the pods; one that fits nowhere is left out."""
        spaces, found = {name: list(free) for name, free in self._free.items()}, dict[str, str]()
        for pod in self._pods:
            asked = (pod.requests.gpu, pod.requests.cpu, pod.requests.memory, 1)
            needed = [(place, part) for place, part in enumerate(asked) if part]
            takers = [name for name, free in spaces.items() if all(free[place] >= part for place, part in needed)]
            if takers:
                node = max(takers, key=lambda name: spaces[name][:3])
                spaces[node] = [left - part for left, part in zip(spaces[node], asked, strict=True)]
                found[pod.name] = node
        return found


def all_units(board: SchedulingState) -> Sequence[EvictionUnit]:
    """Whoever holds room, most important first."""
    return board.kept_of_pods("eviction units", lambda: _all_units(board))


def _all_units(board: SchedulingState) -> list[EvictionUnit]:
    found: list[EvictionUnit] = []
    for seats in board.seats_of.values():
        whole = len(seats) > 1 and seats[0].group.gang and seats[0].group.whole
        found += [_unit(seats)] if whole else [_unit([seat]) for seat in seats]
    return sorted(found, key=lambda unit: unit.importance)


def _unit(seats: Sequence[Assignment]) -> EvictionUnit:
    asked = [(seat.pod.node or "", seat.pod.requests) for seat in seats]
    return EvictionUnit(tuple(seats), tuple((name, (part.gpu, part.cpu, part.memory)) for name, part in asked))


def minimal_victims(trial: GangTrial, units: Sequence[EvictionUnit], needed: int) -> list[EvictionUnit] | None:
    """Who stays away so that so many of the pods fit; the others are given back. None: all together do not suffice."""
    trial.take_all(units)
    if trial.fitting() < needed:
        return None
    gone: list[EvictionUnit] = []
    for unit in units:
        check_time()
        trial.give_back(unit)
        if trial.fitting() < needed:
            trial.take(unit)
            gone.append(unit)
    return gone
