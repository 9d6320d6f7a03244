"""kube-scheduler with its own gangs (Workload and PodGroup of scheduling.k8s.io/v1alpha2), the rest as plain `kube`.

Source: kube-scheduler 1.36 with GangScheduling, TopologyAwareWorkloadScheduling and WorkloadAwarePreemption, checked
decision by decision against a real one (docs/model.md).

- A gang starts at least its minimum or nothing; of the pods beyond the minimum, as many as fit.
- With a topology key, all its pods go to nodes with one value of that label, the one that takes most of them. Such a
  gang never evicts.
- Otherwise remove all pods of lower priority from the whole cluster, then reprieve the most important ones while the
  minimum still fits: higher priority, pods of gangs before single pods, the larger gang of mode PodGroup, the earlier
  start (of such a gang: that of its pod on the first node). A gang of mode PodGroup is evicted whole, other pods one
  by one.
- Pods beyond the minimum follow one at a time by the same rule, while victims are left. kube-scheduler does that in
  later attempts; here they are part of one decision.
- While a gang waits, its pods that fit are nominated to their nodes, which are reserved against lower priorities.
  Capacity that its victims free is not reserved: pods that start there meanwhile are evicted again.
- A single pod follows the rules of plain kube-scheduler: it evicts pods out of a gang of any mode.
- A gang with preemptionPolicy Never evicts no pods.

Trials ask whether a gang fits once some units are evicted. They work on copies of the free amounts; the state is not
changed. Pods that ask for the same are counted in slots, so that a potential victim costs one look however large the
gang is; pods that differ are placed one by one, each on the emptiest node that takes it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from scheduling.model.decisions import Decision, Evict, Start, Until, Wait, up_to
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, total
from scheduling.rules.kube.preemption import KubePreemption, Nominations, kube_state, schedule_order, start_time
from scheduling.state.assignments import ONE_LINE, Assignment, Ranking, evictions
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NO_LIMIT, NodeCapacity, Selection, empty, selection
from scheduling.state.refusals import impossible, never_fits, no_room
from scheduling.state.workspace import NODES, check_time, workspace

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


def _spaces(capacities: Mapping[str, NodeCapacity]) -> dict[str, Space]:
    return {name: (capacity.future, capacity.pods_left) for name, capacity in capacities.items()}


class GangTrial:
    """Counts how many of these pods fit together while units are evicted and reprieved."""

    def __init__(self, spaces: Mapping[str, Space], pods: Sequence[Pod]) -> None:
        self._spaces, self._pods = spaces, pods
        self._changed: dict[str, list[int]] = {}
        """Free amounts of the nodes on which units were evicted."""
        self.alike = alike_request(pods)
        requested = self.alike or Resources()
        self._requested = [
            (place, part) for place, part in enumerate((requested.gpu, requested.cpu, requested.memory)) if part
        ]
        self._place, self._least = self._requested[0] if self._requested else (3, 1)
        """The first amount that is asked for, and how much of it one pod needs."""
        self._slots: dict[str, int] = {}
        if self.alike is not None:
            gpu = self.alike.gpu
            roomy = [name for name, (free, _left) in spaces.items() if free.gpu >= gpu] if gpu else [*spaces]
            self._slots = {name: self._count(self._free(name)) for name in roomy}
        self._total = sum(self._slots.values())

    def _free(self, name: str) -> list[int]:
        """Free amounts of a node by now."""
        if name in self._changed:
            return self._changed[name]
        free, left = self._spaces[name]
        return [free.gpu, free.cpu, free.memory, left]

    def _count(self, free: list[int]) -> int:
        most = free[3]
        for place, part in self._requested:
            if free[place] < most * part:
                most = free[place] // part
        return max(most, 0)

    def evict_until(self, units: Sequence[EvictionUnit], needed: int) -> int | None:
        """Evict these units, the last first, until so many of the pods fit; return from which one on.

        None: all are evicted and not enough. Of pods that differ, more may fit with less: then all are evicted.
        """
        if self.alike is None:
            for unit in units:
                self.change(unit, 1)
            return 0 if self.fits(needed) else None
        first = len(units)
        while self._total < needed:
            if not first:
                return None
            check_time()
            first -= 1
            self.change(units[first], 1)
        return first

    def change(self, unit: EvictionUnit, sign: int) -> None:
        """Evict the unit (sign 1), or reprieve it (-1)."""
        makes_slots = sign > 0 and self.alike is not None
        for name, (gpu, cpu, memory) in unit.parts:
            free = self._changed.get(name)
            if free is None and name in self._spaces:
                free = self._changed[name] = self._free(name)
            if free is not None:
                free[0] += gpu * sign
                free[1] += cpu * sign
                free[2] += memory * sign
                free[3] += sign
                before = self._slots.get(name, 0)
                if before or (makes_slots and free[self._place] >= self._least):
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
        if self.alike is not None:
            return self._places_of_alike()
        spaces, found = {name: [*self._free(name)] for name in self._spaces}, dict[str, str]()
        for pod in self._pods:
            requested = (pod.requests.gpu, pod.requests.cpu, pod.requests.memory, 1)
            needed = [(place, part) for place, part in enumerate(requested) if part]
            takers = [name for name, free in spaces.items() if all(free[place] >= part for place, part in needed)]
            if takers:
                node = max(takers, key=lambda name: spaces[name][:3])
                spaces[node] = [left - part for left, part in zip(spaces[node], requested, strict=True)]
                found[pod.name] = node
        return found

    def _places_of_alike(self) -> dict[str, str]:
        """The same for pods that ask for the same: each goes to the emptiest node that has a slot left."""
        requested = [dict(self._requested).get(place, 0) for place in range(3)]
        emptiest = [
            ([-amount for amount in self._free(name)[:3]], index, name, slots)
            for index, name in enumerate(self._spaces)
            if (slots := self._slots.get(name))
        ]
        heapify(emptiest)
        found = dict[str, str]()
        for pod in self._pods[: self._total]:
            used, index, name, slots = heappop(emptiest)
            found[pod.name] = name
            if slots > 1:
                used = [amount + part for amount, part in zip(used, requested, strict=True)]
                heappush(emptiest, (used, index, name, slots - 1))
        return found


def alike_request(pods: Sequence[Pod]) -> Resources | None:
    """What each of these pods asks for; None if they differ."""
    return pods[0].requests if len({pod.requests for pod in pods}) == 1 else None


def _units(assignments: Sequence[Assignment]) -> list[EvictionUnit]:
    """The units of one pod group."""
    whole = len(assignments) > 1 and assignments[0].group.gang and assignments[0].group.whole
    return [_unit(assignments)] if whole else [_unit([assignment]) for assignment in assignments]


def _unit(assignments: Sequence[Assignment]) -> EvictionUnit:
    requested = [(assignment.pod.node or "", assignment.pod.requests) for assignment in assignments]
    parts = tuple((name, (part.gpu, part.cpu, part.memory)) for name, part in requested)
    return EvictionUnit(tuple(assignments), parts, _importance(assignments))


def _importance(assignments: Sequence[Assignment]) -> tuple[int, bool, int, int]:
    owner = assignments[0].group
    size = len(assignments) if owner.gang else 0
    _node, start = min(
        (assignment.capacity.index if assignment.capacity else NO_LIMIT, start_time(assignment))
        for assignment in assignments
    )
    return (-owner.priority, not owner.gang, -size, start)


def _ranked_units(assignments: Sequence[Assignment]) -> list[tuple[tuple[int, bool, int, int, str, int], EvictionUnit]]:
    name = assignments[0].group.name
    return [((*unit.importance, name, number), unit) for number, unit in enumerate(_units(assignments))]


BY_IMPORTANCE: Final = Ranking(lambda _group: ONE_LINE, _ranked_units)
"""All units that hold capacity, the most important first."""


def minimal_victims(trial: GangTrial, units: Sequence[EvictionUnit], needed: int) -> list[EvictionUnit] | None:
    """Return the units that must stay evicted so that `needed` pods fit; None if all together are not enough.

    Units before those that `evict_until` evicts are all reprieved: with them, enough of the pods still fit.
    """
    first = trial.evict_until(units, needed)
    if first is None:
        return None
    gone: list[EvictionUnit] = []
    for unit in units[first:]:
        check_time()
        trial.change(unit, -1)
        if not trial.fits(needed):
            trial.change(unit, 1)
            gone.append(unit)
    return gone


class KubeGangsRules:
    """Rules of the flavour `kube-gangs`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Decide once about every waiting gang and single pod, highest priority first, then the older group."""
        waiting = schedule_order(snapshot.waiting)
        with workspace(snapshot, kube_state) as state:
            state.requeue(snapshot.queues)
            state.about = about
            pods = KubePreemption(state, waiting)
            gangs = _Gangs(state, pods.nominations)
            turns = (gangs.turn(group) if group.gang else pods.turn(group) for group in waiting)
            return up_to(turns, about, until)


class _Gangs:
    """Schedules the gangs of one cycle, on the state that they share with the single pods."""

    def __init__(self, state: SchedulingState, nominations: Nominations) -> None:
        self.state = state
        self._nominations = nominations
        self._hopeless: dict[tuple[Selection, Resources], int] = {}  # this many pods did not fit in this cycle

    def turn(self, group: PodGroup) -> Iterator[Decision]:
        """Start at least the minimum, or evict for it; then do the same for each further pod."""
        self._nominations.reserve_from(group.priority)
        nominated = {pod.name: node for pod in group.waiting if (node := self._nominations.release(pod)) is not None}
        missing = max(group.min_member - len(group.holding), 1)
        pods, pend = self._admitted(group, missing)
        fitting = self._fitting(group, pods)
        if len(fitting) >= missing:
            yield self._start(group, pods, fitting)
            pods, missing = tuple(pod for pod in pods if pod.name not in fitting), 1
        if pods:
            victims, pend = self._evict(group, pods, missing)
            yield from victims
        if pend:
            nodes = () if group.topology else dict.fromkeys(fitting.values())
            yield Wait(group, pend, reserved=self._reserve(pods, nominated, nodes))

    def _reserve(
        self, pods: tuple[Pod, ...], nominated: Mapping[str, NodeCapacity], nodes: Iterable[NodeCapacity]
    ) -> dict[str, str]:
        """Reserve a node for each pod that fits: that to which it is nominated already, else the first of `nodes`."""
        reserved = dict[str, str]()
        for pod in pods:
            own = nominated.get(pod.name)
            for node in nodes if own is None else (own, *nodes):
                if node.fits(pod.requests, now=True):
                    self._nominations.reserve(pod, node)
                    reserved[pod.name] = node.node.name
                    break
        return reserved

    def _admitted(self, group: PodGroup, missing: int) -> tuple[tuple[Pod, ...], PendingReason | None]:
        """Return the pods that the quota admits, at least as many as are missing, and why not all of them."""
        pods = group.waiting
        if len(group.holding) + len(pods) < group.min_member:
            return (), PendingReason(Reason.GANG_INCOMPLETE, total(pods), pool=group.pool)
        least = pods[:missing]
        if pend := self.state.refusal(group, total(least)) or impossible(self.state, group, least):
            return (), pend
        while refused := self.state.refusal(group, total(pods)):
            pods, pend = pods[:-1], refused
        return pods, pend

    def _fitting(self, group: PodGroup, pods: tuple[Pod, ...]) -> dict[str, NodeCapacity]:
        """Nodes of the pods that fit, by pod name, in the domain that takes most of them."""
        capacities = {capacity.node.name: capacity for capacity in self._with_room(group, pods)}
        trials = [GangTrial(domain, pods) for domain in self._domains(group, _spaces(capacities))] if pods else []
        best = max(trials, key=GangTrial.fitting, default=None)
        return {name: capacities[node] for name, node in best.places().items()} if best and best.fitting() else {}

    def _start(self, group: PodGroup, pods: tuple[Pod, ...], fitting: Mapping[str, NodeCapacity]) -> Start:
        for pod in pods:
            if pod.name in fitting:
                self.state.place(group, pod, fitting[pod.name], now=True)
        placements = {name: capacity.node.name for name, capacity in fitting.items()}
        return Start(group, placements, self.state.usage.over_quota(group.queue))

    def _with_room(self, group: PodGroup, pods: tuple[Pod, ...]) -> list[NodeCapacity]:
        """Nodes on which a pod may fit, in their order; all nodes for a topology, whose domains are tried in order."""
        requested = alike_request(pods) if group.topology is None else None
        if requested is None or not requested.gpu:
            return self.state.capacities.matching(group)
        return sorted(self.state.capacities.with_gpus(group, requested.gpu, spread=True), key=attrgetter("index"))

    def _domains(self, group: PodGroup, spaces: Mapping[str, Space]) -> list[dict[str, Space]]:
        """Nodes by value of the gang's topology key, restricted to that of running pods; without a key, all in one."""
        if group.topology is None:
            return [dict(spaces)]
        labels = {node.name: node.labels.get(group.topology) for node in self.state.nodes[group.pool]}
        homes = {labels.get(pod.node) for pod in group.holding if pod.node}
        found: dict[str, dict[str, Space]] = {}
        for name, space in spaces.items():
            value = labels[name]
            if value is not None and (not homes or value in homes):
                found.setdefault(value, {})[name] = space
        return list(found.values())

    def _evict(self, group: PodGroup, pods: tuple[Pod, ...], missing: int) -> tuple[list[Evict], PendingReason]:
        """Return the evictions for these pods, or the reason why there are none."""
        units = [] if group.topology else self._given_up(group, pods, missing)
        if not units or group.never_preempts:
            return [], self._stays(group, pods[:missing], could=bool(units))
        assignments = [assignment for unit in units for assignment in unit.assignments if not assignment.leaving]
        for assignment in assignments:
            self.state.evict(assignment)
        return evictions(assignments, Cause.PREEMPT, group), no_room(self.state, group, pods, Reason.EVICTING)

    def _given_up(self, group: PodGroup, pods: tuple[Pod, ...], missing: int) -> list[EvictionUnit]:
        """First for the missing pods, then for one more pod at a time."""
        alike, units = alike_request(pods), self._weaker(group)
        if not units or (alike and self._hopeless.get((selection(group), alike), NO_LIMIT) <= missing):
            return []
        capacities = {capacity.node.name: capacity for capacity in self.state.capacities.matching(group)}
        trial = GangTrial(_spaces(capacities), pods)
        gone: list[EvictionUnit] = []
        needed = missing
        while needed <= len(pods):
            without = set(gone)
            left = [unit for unit in units if unit not in without] if gone else units
            if (found := minimal_victims(trial, left, needed)) is None:
                break
            gone += found
            needed = trial.fitting() + 1
        if alike and not gone:
            self._hopeless[selection(group), alike] = missing
        return gone

    def _weaker(self, group: PodGroup) -> Sequence[EvictionUnit]:
        """Units of lower priority, the most important first."""
        units = self.state.ranked(BY_IMPORTANCE)
        weaker = units[bisect_right(units, -group.priority, key=lambda entry: entry[0][0]) :]
        return [unit for _rank, unit in weaker]

    def _stays(self, group: PodGroup, least: tuple[Pod, ...], *, could: bool) -> PendingReason:
        """Why no pod is evicted: too large for empty nodes, bound to a domain, policy Never, or no lower priority."""
        if group.topology:
            also = () if self._fits_empty(group, least) else (Reason.NEVER_FITS,)
            return replace(no_room(self.state, group, least), also=also)
        key = ("fits empty nodes", selection(group), tuple(pod.requests for pod in least))
        if not self.state.cached(NODES, key, lambda: self._fits_empty(group, least)):
            return never_fits(self.state, group, least)
        return no_room(self.state, group, least, Reason.PREEMPTION_NEVER if could else Reason.NO_ROOM)

    def _fits_empty(self, group: PodGroup, least: tuple[Pod, ...]) -> bool:
        """Whether these pods fit together once the nodes are empty."""
        spaces = {node.name: empty(node) for node in self.state.usable(group)}
        return any(GangTrial(domain, least).fitting() == len(least) for domain in self._domains(group, spaces))
