"""Does a gang fit once these units are evicted? Works on copies of the free amounts; the state is not changed.

Pods that ask for the same are counted in slots, so that a potential victim costs one look however large the gang is;
pods that differ are placed one by one, each on the emptiest node that takes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod
from scheduling.rules.kube.preemption import start_time
from scheduling.state.assignments import Assignment
from scheduling.state.cluster_state import ALL_PODS, SchedulingState
from scheduling.state.node_capacity import NO_LIMIT
from scheduling.state.workspace import check_time

Space = tuple[Resources, int]
"""Free resources of a node, and how many more pods its kubelet accepts."""

Part = tuple[str, tuple[int, int, int]]
"""A node index, and the GPU, CPU and memory that a pod holds there."""


@dataclass(frozen=True, slots=True)
class EvictionUnit:
    """Pods that are evicted together: a gang of mode PodGroup, or one pod. parts: what each of them holds.

    importance: order of reprieve: higher priority, pods of gangs, the larger gang, the earlier start. Of a gang, the
    scheduler considers only the start of the pod on the first node.
    """

    assignments: tuple[Assignment, ...]
    parts: tuple[Part, ...]
    importance: tuple[int, bool, int, int]

    @property
    def priority(self) -> int:
        return self.assignments[0].group.priority


class GangTrial:
    """Counts how many of these pods fit together while units are evicted and reprieved."""

    def __init__(self, spaces: Mapping[str, Space], pods: Sequence[Pod]) -> None:
        self._free = {name: [free.gpu, free.cpu, free.memory, left] for name, (free, left) in spaces.items()}
        self._pods = pods
        self.alike = alike_request(pods)
        asked = self.alike or Resources()
        self._asked = [(place, part) for place, part in enumerate((asked.gpu, asked.cpu, asked.memory)) if part]
        self._slots: dict[str, int] = {}
        self._settle()

    def _settle(self) -> None:
        """Count the pods that fit on every node from the present free amounts."""
        if self.alike is not None:
            place, least = self._asked[0] if self._asked else (3, 1)
            self._slots = {name: self._count(free) if free[place] >= least else 0 for name, free in self._free.items()}
        self._total = sum(self._slots.values())

    def _count(self, free: list[int]) -> int:
        most = free[3]
        for place, part in self._asked:
            if free[place] < most * part:
                most = free[place] // part
        return max(most, 0)

    def evict_all(self, units: Sequence[EvictionUnit]) -> None:
        """Evict these units."""
        self._slots = {}  # counted once at the end
        for unit in units:
            self.change(unit, 1)
        self._settle()

    def change(self, unit: EvictionUnit, sign: int) -> None:
        """Evict the unit (sign 1), or reprieve it (-1)."""
        for name, (gpu, cpu, memory) in unit.parts:
            if free := self._free.get(name):
                free[0] += gpu * sign
                free[1] += cpu * sign
                free[2] += memory * sign
                free[3] += sign
                before = self._slots.get(name, 0)
                if before or (sign > 0 and self._slots):  # a reprieve makes no slots
                    self._slots[name] = self._count(free)
                    self._total += self._slots[name] - before

    def fitting(self) -> int:
        """How many of the pods fit."""
        return len(self.places()) if self.alike is None else min(self._total, len(self._pods))

    def fits(self, count: int) -> bool:
        """Whether at least so many of the pods fit."""
        return self._total >= count if self.alike is not None else len(self.places()) >= count

    def places(self) -> dict[str, str]:
        """Node by pod name, in the order of the pods; pods that do not fit are left out."""
        names = self._free if self.alike is None else [name for name, slots in self._slots.items() if slots]
        spaces, found = {name: list(self._free[name]) for name in names}, dict[str, str]()
        for pod in self._pods:
            asked = (pod.requests.gpu, pod.requests.cpu, pod.requests.memory, 1)
            needed = [(place, part) for place, part in enumerate(asked) if part]
            takers = [name for name, free in spaces.items() if all(free[place] >= part for place, part in needed)]
            if takers:
                node = max(takers, key=lambda name: spaces[name][:3])
                spaces[node] = [left - part for left, part in zip(spaces[node], asked, strict=True)]
                found[pod.name] = node
        return found


def alike_request(pods: Sequence[Pod]) -> Resources | None:
    """What each of these pods asks for; None if they differ."""
    return pods[0].requests if len({pod.requests for pod in pods}) == 1 else None


def all_units(state: SchedulingState) -> Sequence[EvictionUnit]:
    """All units that hold capacity, the most important first."""
    return state.cached(ALL_PODS, "eviction units", lambda: _all_units(state))


def _all_units(state: SchedulingState) -> list[EvictionUnit]:
    found: list[EvictionUnit] = []
    for name, assignments in state.assignments_of.items():
        found += state.cached(("group", name), "eviction units", partial(_units, assignments))
    return sorted(found, key=attrgetter("importance"))


def _units(assignments: Sequence[Assignment]) -> list[EvictionUnit]:
    """The units of one pod group."""
    whole = len(assignments) > 1 and assignments[0].group.gang and assignments[0].group.whole
    return [_unit(assignments)] if whole else [_unit([assignment]) for assignment in assignments]


def _unit(assignments: Sequence[Assignment]) -> EvictionUnit:
    asked = [(assignment.pod.node or "", assignment.pod.requests) for assignment in assignments]
    parts = tuple((name, (part.gpu, part.cpu, part.memory)) for name, part in asked)
    return EvictionUnit(tuple(assignments), parts, _importance(assignments))


def _importance(assignments: Sequence[Assignment]) -> tuple[int, bool, int, int]:
    owner = assignments[0].group
    size = len(assignments) if owner.gang else 0
    _node, start = min(
        (assignment.capacity.index if assignment.capacity else NO_LIMIT, start_time(assignment))
        for assignment in assignments
    )
    return (-owner.priority, not owner.gang, -size, start)


def minimal_victims(trial: GangTrial, units: Sequence[EvictionUnit], needed: int) -> list[EvictionUnit] | None:
    """Return the units that must stay evicted so that `needed` pods fit; None if all together are not enough."""
    trial.evict_all(units)
    if not trial.fits(needed):
        return None
    gone: list[EvictionUnit] = []
    for unit in units:
        check_time()
        trial.change(unit, -1)
        if not trial.fits(needed):
            trial.change(unit, 1)
            gone.append(unit)
    return gone
