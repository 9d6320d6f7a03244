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
from scheduling.state.node_capacity import NO_LIMIT, by_size
from scheduling.state.workspace import check_time

Space = tuple[Resources, int]
"""What is free on a node, and how many more pods its kubelet takes."""


@dataclass(frozen=True, slots=True)
class EvictionUnit:
    """Pods that are evicted together: a gang of mode PodGroup, or one pod."""

    seats: tuple[Assignment, ...]

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
        self._spaces = dict(spaces)
        self._pods = pods
        self.alike = pods[0].requests if len({pod.requests for pod in pods}) == 1 else None
        self._slots = {name: self._count(name) for name in spaces}
        self._total = sum(self._slots.values())

    def touches(self, unit: EvictionUnit) -> bool:
        """Does any of its pods hold room that the gang could use?"""
        return any(seat.pod.node in self._spaces for seat in unit.seats)

    def take(self, unit: EvictionUnit) -> None:
        """The unit is gone."""
        self._change(unit, 1)

    def give_back(self, unit: EvictionUnit) -> None:
        """The unit stays."""
        self._change(unit, -1)

    def _change(self, unit: EvictionUnit, sign: int) -> None:
        for seat in unit.seats:
            name = seat.pod.node or ""
            if name in self._spaces:
                free, left = self._spaces[name]
                self._spaces[name] = (free + seat.pod.requests * sign, left + sign)
                count = self._count(name)
                self._total += count - self._slots[name]
                self._slots[name] = count

    def _count(self, name: str) -> int:
        free, left = self._spaces[name]
        return 0 if self.alike is None else max(0, min(left, _times(free, self.alike, most=left)))

    def fitting(self) -> int:
        """How many of the pods fit by now."""
        return len(self.places()) if self.alike is None else min(self._total, len(self._pods))

    def places(self) -> dict[str, str]:
        """Pod name to node, in the order of the pods; one that fits nowhere is left out."""
        spaces, found = dict(self._spaces), {}
        for pod in self._pods:
            takers = [name for name, (free, left) in spaces.items() if left > 0 and pod.requests.served_by(free)]
            if takers:
                node = max(takers, key=lambda name: by_size(spaces[name][0]))
                free, left = spaces[node]
                spaces[node] = (free - pod.requests, left - 1)
                found[pod.name] = node
        return found


def _times(free: Resources, asked: Resources, *, most: int) -> int:
    """How many times `asked` fits; what it does not ask for never keeps it out."""
    parts = ((free.gpu, asked.gpu), (free.cpu, asked.cpu), (free.memory, asked.memory))
    return min((left // part for left, part in parts if part), default=most)


def all_units(board: SchedulingState) -> list[EvictionUnit]:
    """Whoever holds room, most important first."""
    found: list[EvictionUnit] = []
    for seats in board.seats_of.values():
        whole = len(seats) > 1 and seats[0].group.gang and seats[0].group.whole
        found += [EvictionUnit(tuple(seats))] if whole else [EvictionUnit((seat,)) for seat in seats]
    return sorted(found, key=lambda unit: unit.importance)


def minimal_victims(trial: GangTrial, units: Sequence[EvictionUnit], needed: int) -> list[EvictionUnit] | None:
    """Who stays away so that so many of the pods fit; the others are given back. None: all together do not suffice."""
    for unit in units:
        trial.take(unit)
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
