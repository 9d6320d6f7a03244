"""KAI: each node pool by itself; allocate, consolidate, reclaim across queues, then preempt inside a queue.

Source: KAI 0.17 and recorded decisions of it (docs/model.md).

- Reclaim precedes preempt and ignores priority. Preempt evicts preemptible work of lower priority in the same queue.
- A queue at its limit may preempt its own work. Non-preemptible work over quota never evicts.
- Work inside the minimum runtime of its queue is not evicted (`scheduling.state.min_runtime`).
- preemptionPolicy is ignored.
- Consolidation moves preemptible work of any queue and priority, if all of it fits elsewhere, to make contiguous
  capacity for preemptible work when enough GPUs are free in total. Of more than 17 groups KAI tries 17 at random; here
  they are those that reclaim would evict first.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Final

from scheduling.model.decisions import Decision, Evict, Start, Until, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Snapshot, total
from scheduling.rules.kai.order import KaiQueueShares, ScheduleOrder, WaitingLeaf, groups_by_queue
from scheduling.rules.kai.reclaim import ReclaimCheck, may_reclaim
from scheduling.rules.kai.solver import FailureMemo, Solution, Solver, VictimSearchMemo
from scheduling.rules.kai.victims import LAST_VICTIMS_FIRST, WEAKEST_FIRST, VictimQueue, by_unit, of_pieces
from scheduling.state.assignments import Assignment, PlacedPods, evictions
from scheduling.state.cluster_state import SchedulingState, packed_state
from scheduling.state.min_runtime import MinRuntimeProtection
from scheduling.state.node_capacity import wants_part
from scheduling.state.queue_usage import fits_quota
from scheduling.state.refusals import impossible, no_room
from scheduling.state.workspace import ALL_PODS, workspace

ACTIONS: Final = (Cause.CONSOLIDATE, Cause.RECLAIM, Cause.PREEMPT)
MOST_MOVED: Final = 17
MANY_VICTIMS: Final = 200
"""With more victims than this, queues that are served before the candidate are not searched."""


@dataclass(slots=True)
class _KaiCandidate:
    """A waiting pod group and what the actions of the cycle have decided for it."""

    group: PodGroup
    left: list[Pod]
    placements: dict[str, str] = field(default_factory=dict)
    nominated: dict[str, str] = field(default_factory=dict)
    evicts: list[Evict] = field(default_factory=list)
    over_quota: bool = False
    pend: PendingReason | None = None
    missed: tuple[int, tuple[Pod, ...]] | None = None  # the state in which these pods found no room, by its mark

    def accept(self, placed: PlacedPods) -> None:
        (self.placements if placed.now else self.nominated).update(placed.nodes)
        self.left = [pod for pod in self.left if pod.name not in placed.nodes]
        self.pend = self.missed = None

    @property
    def open(self) -> bool:
        """Whether it still waits, for a reason that an eviction can remove."""
        return bool(self.left) and self.pend is not None and not self.evicts


class KaiRules:
    """Rules of the flavour `kai`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Decide per node pool; a shard ignores queues and pods of other pools."""
        shards = [snapshot.shard(pool) for pool in snapshot.pools] if len(snapshot.pools) > 1 else [snapshot]
        return [decision for shard in shards for decision in _decided(shard, about, until)]


def _decided(shard: Snapshot, about: Collection[str] | None, until: Until) -> list[Decision]:
    with workspace(shard, packed_state) as state:
        state.requeue(shard.queues, forget=True)
        state.about = about
        return list(_KaiCycle(shard, state, until).run())


class _KaiCycle:
    def __init__(self, snapshot: Snapshot, state: SchedulingState, until: Until) -> None:
        self.snapshot = snapshot
        self.state = state
        self.shares = KaiQueueShares(snapshot, self.state)
        self.cases = {group.name: _KaiCandidate(group, list(group.waiting)) for group in snapshot.waiting}
        self._until = until
        self._explained = [case for name, case in self.cases.items() if state.about is None or name in state.about]
        self._robbed: dict[str, set[str]] = defaultdict(set)
        self._protection = MinRuntimeProtection(snapshot, self.state.usage.path)
        self._leaves: dict[str, dict[int, VictimQueue]] = {}
        self._moves: dict[str, VictimQueue] | None = None
        self._line: dict[str, WaitingLeaf] | None = None
        self._allocated, self._nominates = 0, False
        self._gone: list[Assignment] = []

    def run(self) -> Iterator[Decision]:
        """Run all actions, then yield the decisions in the order of the snapshot."""
        for case in self.cases.values():
            case.pend = self._nowhere(case)
        ready = [case for case in self.cases.values() if case.pend is None]
        self._allocate(ready)
        self._allocated, self._nominates = self.state.mark(), any(case.nominated for case in ready)
        causes = [each for each in ACTIONS if each not in self.snapshot.exempt.causes]
        for cause in causes:
            self._evict(ready, cause, last=cause is causes[-1])
        for case in self.cases.values():
            if case.nominated:
                coming = tuple(pod for pod in case.group.waiting if pod.name in case.nominated)
                case.pend, case.missed = no_room(self.state, case.group, coming, Reason.EVICTING), None
        assured = self._until is Until.DECIDED and self._is_assured()
        self._count_free()
        for case in self.cases.values():
            yield from self._decisions(case, assured=assured)

    def _count_free(self) -> None:
        """Say what was free for each group that waits when it was its turn, the latest first: returns to that state.

        At the end, since most groups that are asked about get victims, and do not need these numbers.
        """
        missed = [(*case.missed, case) for case in self.cases.values() if case.missed]
        for mark, chunk, case in sorted(missed, key=itemgetter(0), reverse=True):
            self.state.undo(mark)
            case.pend = no_room(self.state, case.group, chunk)

    def _is_assured(self) -> bool:
        """Whether the next cycle starts with placing all groups that are asked about, if some get victims; else False.

        Repeats the allocation: what has started runs, victims terminate, all other groups wait again.
        """
        mine = self._explained
        if any(case.left for case in mine) or not any(case.evicts for case in mine):
            return False
        changed = [each.group for each in self._gone] + [it.group for it in self.cases.values() if it.placements]
        if any(map(wants_part, changed)) or self._nominates:  # may be on other devices, or nodes, by then
            return False
        self.state.undo(self._allocated)
        self.state.evict(*self._gone)
        for assignment in self._gone:
            self.state.usage.forgo(assignment.group.queue, assignment.pod.requests)
        later = _KaiCycle(self.snapshot, self.state, Until.PLACED)
        for name, case in later.cases.items():
            case.left = [pod for pod in case.left if pod.name not in self.cases[name].placements]
        ready = [case for case in later.cases.values() if case.left and later._nowhere(case) is None]
        later._allocate(ready, mine=later._explained)
        return not any(case.left for case in later._explained)

    def _nowhere(self, case: _KaiCandidate) -> PendingReason | None:
        """Why the group is not tried: no such pool, no leaf queue with its parents, or missing pods; else None."""
        needed = total(tuple(case.left))
        if not self.state.nodes.get(case.group.pool):
            return PendingReason(Reason.NO_SUCH_POOL, needed, pool=case.group.pool)
        path = self.state.usage.path(case.group.queue)
        if not path or path[-1].parent is not None or case.group.queue in self.snapshot.parents:
            return PendingReason(Reason.QUEUE_MISSING, needed, queue=case.group.queue)
        incomplete = self.state.active[case.group.name] + len(case.left) < case.group.min_member
        return PendingReason(Reason.GANG_INCOMPLETE, needed, pool=case.group.pool) if incomplete else None

    def _chunk(self, case: _KaiCandidate) -> tuple[Pod, ...]:
        """The pods that must be placed together next: the rest of the minimum, then one at a time."""
        return tuple(case.left[: max(case.group.min_member - self.state.active[case.group.name], 1)])

    def _turns(self, cases: list[_KaiCandidate]) -> ScheduleOrder[PodGroup]:
        waiting = [(case.group, total(self._chunk(case))) for case in cases]
        return ScheduleOrder(self.shares, groups_by_queue(self.shares, waiting))

    def _allocate(self, cases: list[_KaiCandidate], mine: Sequence[_KaiCandidate] = ()) -> None:
        """Place what fits without evictions. mine: end early once these are placed."""
        turns = self._turns(cases)
        for group, _requested in turns:
            case = self.cases[group.name]
            chunk = self._chunk(case)
            case.pend, case.missed = self._refusal(group, chunk), None
            placed = None if case.pend else self.state.place_all(group, chunk)
            if placed is None:
                if case.pend is None:
                    case.pend, case.missed = PendingReason(Reason.NO_ROOM, total(chunk)), (self.state.mark(), chunk)
                continue
            case.accept(placed)
            case.over_quota = case.over_quota or self.state.usage.over_quota(group.queue)
            if case.left:
                turns.push(group.queue, group, total(self._chunk(case)))
            elif mine and not any(each.left for each in mine):
                return

    def _refusal(self, group: PodGroup, chunk: tuple[Pod, ...]) -> PendingReason | None:
        """Limits and quotas first, as in KAI. A pod too large for any node is reported as well."""
        never = impossible(self.state, group, chunk)
        pend = self.state.refusal(group, total(chunk))
        return replace(pend, also=(never.reason,)) if pend and never else pend or never

    def _is_over(self, awaited: Collection[str]) -> bool:
        """Whether nothing more is wanted of this cycle. awaited: groups that still have a turn."""
        mine = self._explained
        decided = self._until is Until.DECIDED  # a refusal of nominated pods then says what is free at the end
        if self._until is Until.ALL or any(case.evicts or (decided and case.nominated) for case in mine):
            return False
        if not any(case.left for case in mine):
            return True
        return decided and not any(case.group.name in awaited for case in mine)

    def _evict(self, cases: list[_KaiCandidate], cause: Cause, *, last: bool) -> None:
        hopeless, failed = VictimSearchMemo(), FailureMemo(across_queues=cause is Cause.CONSOLIDATE)
        part = [case for case in cases if case.open and self._takes_part(case.group, cause)]
        awaited = {case.group.name for case in (part if last else self._explained)}
        for group, requested in self._turns(part):
            if self._is_over(awaited):
                return
            awaited -= {group.name} if last else set()
            case = self.cases[group.name]
            chunk = self._chunk(case)
            eligible = self._eligible(group, requested, cause)
            if (cause is Cause.RECLAIM and not eligible) or failed.covers(group, case.left):
                continue
            if not eligible or hopeless.covers(group, chunk):
                failed.add(group, case.left)
            elif not self.state.refusal(group, requested) and (placed := self.state.place_all(group, chunk)):
                case.accept(PlacedPods(placed.nodes, now=False))
                self._line = None
            elif (solver := self._solver(group, requested, cause)) and (solution := solver.solve(chunk)):
                self._adopt(case, solution, cause)
            else:
                hopeless.add(group, chunk)
                failed.add(group, case.left)

    def _takes_part(self, group: PodGroup, cause: Cause) -> bool:
        return group.preemptible or cause is not Cause.CONSOLIDATE

    def _eligible(self, group: PodGroup, requested: Resources, cause: Cause) -> bool:
        if cause is Cause.CONSOLIDATE:
            return self._enough(requested) and not self.state.refusal(group, requested)
        if cause is Cause.RECLAIM:
            return may_reclaim(self.shares, group, requested)
        pend = fits_quota(
            self.state.usage.path(group.queue), self.state.usage.uses, requested, preemptible=group.preemptible
        )
        return pend is None or pend.reason is Reason.OVER_LIMIT

    def _enough(self, requested: Resources) -> bool:
        """Whether that many GPUs are free in total, now or once terminating pods are gone."""
        return requested.gpu <= self.state.capacities.future_gpus()

    def _solver(self, group: PodGroup, requested: Resources, cause: Cause) -> Solver | None:
        """None: there are no potential victims."""
        reclaim = ReclaimCheck(self.shares, group)
        if cause is Cause.CONSOLIDATE:
            victims = self._movable(group)
        elif cause is Cause.PREEMPT:
            victims = self._weaker(group)
        else:
            victims = self._others(group, requested, reclaim)
        if not any(queue.victims for queue in victims.values()):
            return None
        accepts = {Cause.CONSOLIDATE: _moves_all, Cause.PREEMPT: _always}.get(cause, reclaim.accepts)
        only_moves = cause is Cause.CONSOLIDATE
        return Solver(self.shares, group, victims, accepts, self._in_line(), only_moves=only_moves)

    def _in_line(self) -> dict[str, WaitingLeaf]:
        """Groups that still wait, by queue; computed again once one is placed."""
        if self._line is None:
            left = [(each.group, total(self._chunk(each))) for each in self.cases.values() if each.left]
            self._line = {name: WaitingLeaf.of(leaf) for name, leaf in groups_by_queue(self.shares, left).items()}
        return self._line

    def _weaker(self, group: PodGroup) -> dict[str, VictimQueue]:
        """Victims of preempt: the same queue, preemptible, strictly lower priority."""
        if not self.state.has_weaker(group):
            return {}
        own = self._evictable(group.queue, group.queue, Cause.PREEMPT)
        return {group.queue: own.below(group.priority)}

    def _others(self, group: PodGroup, requested: Resources, reclaim: ReclaimCheck) -> dict[str, VictimQueue]:
        """Victims of reclaim: preemptible work of queues that may lose some; if many, not of queues served first."""
        names = reclaim.losing((name for name in self._held_queues if name != group.queue), requested)
        others = {name: self._evictable(name, group.queue, Cause.RECLAIM) for name in names}
        if sum(len(queue.victims) for queue in others.values()) <= MANY_VICTIMS:
            return others
        return {
            name: queue for name, queue in others.items() if queue.victims and not reclaim.comes_first(name, requested)
        }

    def _movable(self, group: PodGroup) -> dict[str, VictimQueue]:
        """Work that consolidation may move, of any queue; computed again after an eviction."""
        if self._moves is None:
            chosen: dict[str, list[PodGroup]] = {}
            weakest = map(itemgetter(1), self.state.ranked(WEAKEST_FIRST))
            for each in islice(filter(self._may_move, weakest), MOST_MOVED):
                chosen.setdefault(each.queue, []).append(each)
            self._moves = {name: by_unit(map(self._staying, found)) for name, found in chosen.items()}
        if not self.state.assignments_of[group.name] or group.queue not in self._moves:
            return self._moves
        return {**self._moves, group.queue: self._moves[group.queue].without([group.name])}

    def _preemptible(self, queue: str) -> list[PodGroup]:
        return [group for group in self.state.holders[queue].values() if group.preemptible]

    def _may_move(self, group: PodGroup) -> bool:
        return self.state.active[group.name] > 0 and group.queue in self.snapshot.queue_by_name

    def _staying(self, group: PodGroup) -> list[Assignment]:
        """Its pods that are not terminating."""
        return [assignment for assignment in self.state.assignments_of[group.name] if not assignment.leaving]

    def _evictable(self, queue: str, taker: str, cause: Cause) -> VictimQueue:
        """A queue's preemptible work in victim order, by minimum runtime; computed again once the queue loses some."""
        least = self._protection.min_runtime_against(queue, taker, cause)
        found = self._leaves.setdefault(queue, {})
        if least not in found:
            found[least] = self._units(queue, least)
        return found[least]

    def _units(self, queue: str, least: int) -> VictimQueue:
        """The same; cached across cycles if no minimum runtime applies and only whole groups were evicted."""
        if self._protection.may_protect(least):
            groups = map(self._staying, self._preemptible(queue))
            return by_unit(groups, spares=lambda group: self._protection.protects(group.started, least))
        robbed = self._robbed.get(queue, ())
        if any(map(self._is_robbed_of_some, robbed)):
            return by_unit(map(self._staying, self._preemptible(queue)))
        units = self.state.cached(
            ("queue", queue), "units", lambda: of_pieces(self.state.ranked(LAST_VICTIMS_FIRST, queue))
        )
        if not robbed:
            return units
        key = ("units left", queue, frozenset(robbed))  # orders of victims are kept by the identity of their queues
        return self.state.cached(ALL_PODS, key, lambda: units.without(robbed))

    def _is_robbed_of_some(self, group: str) -> bool:
        """Whether it lost some but not all pods in this cycle: the others then go in other units."""
        return not all(assignment.leaving for assignment in self.state.assignments_of[group])

    @cached_property
    def _held_queues(self) -> list[str]:
        """Names of the queues that have pods on nodes."""
        return [name for name, groups in self.state.holders.items() if groups and name in self.snapshot.queue_by_name]

    def _adopt(self, case: _KaiCandidate, solution: Solution, cause: Cause) -> None:
        case.accept(PlacedPods(solution.nominated, now=False))
        self._moves = self._line = None
        for assignment in solution.victims:
            self._gone.append(assignment)
            self._robbed[assignment.group.queue].add(assignment.group.name)
            self._leaves.pop(assignment.group.queue, None)
        case.evicts += evictions(solution.victims, cause, case.group, solution.moves)

    def _decisions(self, case: _KaiCandidate, *, assured: bool) -> Iterator[Decision]:
        if case.placements:
            yield Start(case.group, case.placements, case.over_quota)
        yield from case.evicts
        if case.pend is not None:
            yield Wait(case.group, case.pend, case.nominated, assured=assured)


def _moves_all(_requested: Resources, gone: Sequence[Assignment]) -> bool:
    return not gone


def _always(_requested: Resources, _gone: Sequence[Assignment]) -> bool:
    return True
