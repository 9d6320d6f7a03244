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
- A gang is not nominated to nodes: capacity that its victims free is not reserved for it.
- A single pod follows the rules of plain kube-scheduler: it evicts pods out of a gang of any mode.
- A gang with preemptionPolicy Never evicts no pods.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduling.model.decisions import Cause, Decision, Evict, Start, Until, Wait, up_to
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, total
from scheduling.rules.kube.gang_preemption import (
    EvictionUnit,
    GangTrial,
    Space,
    alike_request,
    all_units,
    minimal_victims,
)
from scheduling.rules.kube.preemption import KubePreemption, Nominations, kube_state, schedule_order
from scheduling.state.assignments import evictions
from scheduling.state.cluster_state import NODES, SchedulingState
from scheduling.state.node_capacity import NO_LIMIT, Selection, empty, selection
from scheduling.state.refusals import impossible, never_fits, no_room
from scheduling.state.workspace import workspace


class KubeGangsRules:
    """Rules of the flavour `kube-gangs`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Decide once about every waiting gang and single pod, highest priority first, then the older group."""
        waiting = schedule_order(snapshot.waiting)
        with workspace(snapshot, kube_state) as state:
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
        for pod in group.waiting:
            self._nominations.release(pod)
        missing = max(group.min_member - len(group.holding), 1)
        pods, pend = self._admitted(group, missing)
        if placements := self._start(group, pods, missing):
            yield Start(group, placements, self.state.over_quota(group))
            pods, missing = tuple(pod for pod in pods if pod.name not in placements), 1
        if pods:
            victims, pend = self._evict(group, pods, missing)
            yield from victims
        if pend:
            yield Wait(group, pend)

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

    def _start(self, group: PodGroup, pods: tuple[Pod, ...], missing: int) -> Mapping[str, str]:
        """Place as many pods as fit in the domain that takes most of them; none if fewer than `missing` fit."""
        capacities = {capacity.node.name: capacity for capacity in self.state.capacities.matching(group)}
        spaces = {name: (capacity.future, capacity.pods_left) for name, capacity in capacities.items()}
        trials = [GangTrial(domain, pods) for domain in self._domains(group, spaces)] if pods else []
        best = max(trials, key=GangTrial.fitting, default=None)
        if best is None or best.fitting() < missing:
            return {}
        places = best.places()
        for pod in pods:
            if pod.name in places:
                self.state.place(group, pod, capacities[places[pod.name]], now=True)
        return places

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
        alike = alike_request(pods)
        if alike and self._hopeless.get((selection(group), alike), NO_LIMIT) <= missing:
            return []
        capacities = self.state.capacities.matching(group)
        trial = GangTrial({capacity.node.name: (capacity.future, capacity.pods_left) for capacity in capacities}, pods)
        units = self._weaker(group)
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
        units = all_units(self.state)
        return units[bisect_right(units, -group.priority, key=lambda unit: -unit.priority) :]

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
