"""kube-scheduler with its own gangs (Workload and PodGroup of scheduling.k8s.io/v1alpha2), the rest as plain `kube`.

Source: kube-scheduler 1.36 with GangScheduling, TopologyAwareWorkloadScheduling and WorkloadAwarePreemption, checked
decision by decision against a real one (docs/model.md).

- A gang starts with its minimum or not at all; with more pods than that, as many as fit.
- With a topology key all its pods go to nodes with one value of that label, the one that takes most of them, and
  nobody is ever evicted for it.
- Else, over the whole cluster, everybody of lower priority is taken away, then given back from the most important
  while the minimum still fits: higher priority, pods of gangs before single pods, the larger gang of mode PodGroup, the
  earlier start (of such a gang: that of its pod on the first node). A gang of mode PodGroup goes whole, anybody else
  pod by pod.
- What it has beyond the minimum comes afterwards, one pod more at a time by the same rule, while somebody can be given
  up for it. The real one does that in later attempts; here they are part of one decision.
- It is nominated to no node: room on its way is kept for nobody.
- A single pod goes by the rules of plain kube-scheduler: it takes pods out of a gang, whatever the gang's mode.
- A class with preemptionPolicy Never evicts nobody.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduling.model.decisions import Cause, Decision, Evict, Start, Wait
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, total
from scheduling.rules.kube.gang_preemption import EvictionUnit, GangTrial, Space, all_units, minimal_victims
from scheduling.rules.kube.preemption import KubePreemption, Nominations, kube_state, schedule_order
from scheduling.state.cluster_state import SchedulingState, evictions
from scheduling.state.node_capacity import NO_LIMIT, Selection, empty, selection
from scheduling.state.refusals import impossible, never_fits, no_room
from scheduling.state.workspace import workspace


class KubeGangsRules:
    """Rules of the flavour `kube-gangs`."""

    def decide(self, snapshot: Snapshot, about: Collection[str] | None = None) -> list[Decision]:
        """Every waiting gang and every other waiting pod once, highest priority first, then the older group."""
        waiting = schedule_order(snapshot.waiting)
        with workspace(snapshot, kube_state) as board:
            board.about = about
            pods = KubePreemption(board, waiting)
            gangs = _Gangs(board, pods.promises)
            return [each for group in waiting for each in (gangs.turn(group) if group.gang else pods.turn(group))]


class _Gangs:
    """The gangs of one cycle, on the board they share with the single pods."""

    def __init__(self, board: SchedulingState, promises: Nominations) -> None:
        self.board = board
        self._promises = promises
        self._hopeless: dict[tuple[Selection, Resources], int] = {}  # so many pods found no room in this cycle

    def turn(self, group: PodGroup) -> Iterator[Decision]:
        """Start at least the minimum now, or evict for it; then the same for each pod beyond."""
        self._promises.keep(group.priority)
        for pod in group.waiting:
            self._promises.redeem(pod)
        missing = max(group.min_member - len(group.holding), 1)
        pods, pend = self._admitted(group, missing)
        if placements := self._start(group, pods, missing):
            yield Start(group, placements, self.board.over_quota(group))
            pods, missing = tuple(pod for pod in pods if pod.name not in placements), 1
        if pods:
            victims, pend = self._evict(group, pods, missing)
            yield from victims
        if pend:
            yield Wait(group, pend)

    def _admitted(self, group: PodGroup, missing: int) -> tuple[tuple[Pod, ...], PendingReason | None]:
        """The pods that a quota lets into the cluster, no fewer than are missing; and why not all of them."""
        pods = group.waiting
        if len(group.holding) + len(pods) < group.min_member:
            return (), PendingReason(Reason.GANG_INCOMPLETE, total(pods), pool=group.pool)
        least = pods[:missing]
        if pend := self.board.refusal(group, total(least)) or impossible(self.board, group, least):
            return (), pend
        while refused := self.board.refusal(group, total(pods)):
            pods, pend = pods[:-1], refused
        return pods, pend

    def _start(self, group: PodGroup, pods: tuple[Pod, ...], missing: int) -> Mapping[str, str]:
        """Give at least this many of the pods room, in the domain that takes most of them; none when it takes fewer."""
        rooms = {room.node.name: room for room in self.board.rooms.matching(group)}
        spaces = {name: (room.future, room.pods_left) for name, room in rooms.items()}
        trials = [GangTrial(domain, pods) for domain in self._domains(group, spaces)] if pods else []
        best = max(trials, key=GangTrial.fitting, default=None)
        if best is None or best.fitting() < missing:
            return {}
        places = best.places()
        for pod in pods:
            if pod.name in places:
                self.board.place(group, pod, rooms[places[pod.name]], now=True)
        return places

    def _domains(self, group: PodGroup, spaces: Mapping[str, Space]) -> list[dict[str, Space]]:
        """Nodes by the value of the gang's topology key, only its running pods' if it has any; no key: all in one."""
        if group.topology is None:
            return [dict(spaces)]
        labels = {node.name: node.labels.get(group.topology) for node in self.board.nodes[group.pool]}
        homes = {labels.get(pod.node) for pod in group.holding if pod.node}
        found: dict[str, dict[str, Space]] = {}
        for name, space in spaces.items():
            value = labels[name]
            if value is not None and (not homes or value in homes):
                found.setdefault(value, {})[name] = space
        return list(found.values())

    def _evict(self, group: PodGroup, pods: tuple[Pod, ...], missing: int) -> tuple[list[Evict], PendingReason]:
        """Who has to go for them, or why nobody does."""
        units = [] if group.topology else self._given_up(group, pods, missing)
        if not units or group.never_preempts:
            return [], self._stays(group, pods[:missing], could=bool(units))
        seats = [seat for unit in units for seat in unit.seats if not seat.leaving]
        for seat in seats:
            self.board.evict(seat)
        return evictions(seats, Cause.PREEMPT, group), no_room(self.board, group, pods, Reason.EVICTING)

    def _given_up(self, group: PodGroup, pods: tuple[Pod, ...], missing: int) -> list[EvictionUnit]:
        """First for what is missing, then for one pod more at a time."""
        rooms = self.board.rooms.matching(group)
        trial = GangTrial({room.node.name: (room.future, room.pods_left) for room in rooms}, pods)
        if trial.alike and self._hopeless.get((selection(group), trial.alike), NO_LIMIT) <= missing:
            return []
        units = self._weaker(group)
        gone: list[EvictionUnit] = []
        needed = missing
        while needed <= len(pods) and (found := minimal_victims(trial, units, needed)) is not None:
            gone += found
            without = set(found)
            units = [unit for unit in units if unit not in without]
            needed = trial.fitting() + 1
        if trial.alike and not gone:
            self._hopeless[selection(group), trial.alike] = missing
        return gone

    def _weaker(self, group: PodGroup) -> Sequence[EvictionUnit]:
        """Whoever has a lower priority, most important first."""
        units = all_units(self.board)
        return units[bisect_right(units, -group.priority, key=lambda unit: -unit.priority) :]

    def _stays(self, group: PodGroup, least: tuple[Pod, ...], *, could: bool) -> PendingReason:
        """Why nobody goes: too large for empty nodes, bound to a domain, kept from evicting, or nobody weaker."""
        spaces = {node.name: empty(node) for node in self.board.usable(group)}
        never = all(GangTrial(domain, least).fitting() < len(least) for domain in self._domains(group, spaces))
        if group.topology:
            also = (Reason.NEVER_FITS,) if never else ()
            return replace(no_room(self.board, group, least), also=also)
        if never:
            return never_fits(self.board, group, least)
        return no_room(self.board, group, least, Reason.PREEMPTION_NEVER if could else Reason.NO_ROOM)
