"""Kueue: admission by quota, all pods of a workload or none. Nodes count only in pools with topology levels.

Source: Kueue 0.19, checked against recorded decisions (docs/model.md).

- A pod group that has started, or has a pod on a node, is admitted and counts as a whole. Preemptibility and
  preemptionPolicy have no effect. Another scheduler places its pods later, so a start names no nodes.
- In a pool with topology levels it is admitted to places on nodes, which a start names (`topology`). A workload with
  quota but without places evicts for them as it does for quota, regardless of its deserved quota, unless evicting all
  of Kueue's work there would not be enough.
- Admission runs in rounds. The head of every queue, by priority and age, is judged on the same state; heads that need
  not borrow go first, then higher priority, then age. A head whose victims or capacity are taken meanwhile is judged
  again in the next round.
- With fair sharing, dominant shares decide the order and the victims (`fair_sharing`).
- A request larger than queue and cohorts could ever provide never starts. A request larger than the queue's whole quota
  never evicts, not even in its own queue, unless a cohort below the root could hold it (`preemption`).
- A workload that fits once the victims of this round are gone waits for them and reserves the capacity.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from scheduling.model.decisions import Decision, Evict, Start, Until, Wait, up_to
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Resources, sum_of
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.rules.kueue.fair_sharing import FairVictimSearch, fair_turns
from scheduling.rules.kueue.preemption import (
    AdmittedWorkload,
    KueueCandidate,
    PreemptingWorkload,
    PreemptionTarget,
    VictimSearch,
    without_targets,
)
from scheduling.rules.kueue.quota import QuotaShare, beyond, bounds, tree_of
from scheduling.rules.kueue.topology import TopologyCapacity
from scheduling.state.workspace import check_time, workspace


@dataclass(frozen=True, slots=True)
class _Plan:
    """What would happen to it on the present state. level: how far up the tree it borrows.

    lack: what is missing other than quota while it waits for others to end.
    """

    case: KueueCandidate
    now: bool = False
    targets: tuple[PreemptionTarget, ...] = ()
    pend: PendingReason | None = None
    level: int = 0
    lack: PendingReason | None = None

    @property
    def order(self) -> tuple[int, int, int, str]:
        return (self.level, *_turn(self.case.group))


class KueueState:
    """Quotas in use, admitted work by queue, and capacity of nodes: everything except waiting work."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.rows = {name: row for name, row in snapshot.queue_by_name.items() if name not in snapshot.parents}
        self.shares: Final = tree_of(snapshot.queues)
        self.places: Final = TopologyCapacity(snapshot)
        self.claims: Final[dict[tuple[str, bool], list[AdmittedWorkload]]] = defaultdict(list)
        self._known: Final[dict[str, AdmittedWorkload]] = {}
        self._journal: Final[list[Callable[[], object]]] = []
        for group in snapshot.groups:
            if (claim := self._claim(group)) is not None:
                claim.share.charge(claim.amount)
                self._known[group.name] = claim
                self.claims[claim.line].append(claim)
        for claims in self.claims.values():
            claims.sort(key=_victim_order)

    def _claim(self, group: PodGroup) -> AdmittedWorkload | None:
        """The admitted workload; None if no queue of this tree admitted it."""
        if group.queue not in self.rows or not admitted(group):
            return None
        return AdmittedWorkload(group, group.total, self.shares[group.queue], _leaving(group), self.places)

    def advance(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups permanently: `restore` returns to the new state."""
        names, groups = tuple(gone), tuple(come)
        self.places.advance(names, groups)
        lost: dict[QuotaShare, list[Resources]] = defaultdict(list)
        for name in names:
            if (claim := self._known.pop(name, None)) is not None:
                self.claims[claim.line].remove(claim)
                lost[claim.share].append(claim.amount)
        for share, amounts in lost.items():
            share.charge(ZERO - sum_of(amounts))
        for group in groups:
            if (claim := self._claim(group)) is not None:
                self._know(claim)

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        restore_places, known = self.places.restore_point(), self._known.copy()
        claims = {line: found.copy() for line, found in self.claims.items()}
        uses = [(share, share.used, share.leaving) for share in self.shares.values()]

        def restore() -> None:
            restore_places()
            self._known.clear()
            self._known.update(known)
            self.claims.clear()
            self.claims.update((line, found.copy()) for line, found in claims.items())
            for share, used, leaving in uses:
                share.used, share.leaving = used, leaving

        return restore

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups until `restore`."""
        names, groups = tuple(gone), tuple(come)
        self.places.exchange(names, groups)
        for name in names:
            if (claim := self._known.get(name)) is not None:
                self._do(partial(self._forget, claim), partial(self._know, claim))
        for group in groups:
            if (claim := self._claim(group)) is not None:
                self._do(partial(self._know, claim), partial(self._forget, claim))

    def _know(self, claim: AdmittedWorkload) -> None:
        claim.share.charge(claim.amount)
        self._known[claim.group.name] = claim
        insort(self.claims[claim.line], claim, key=_victim_order)

    def _forget(self, claim: AdmittedWorkload) -> None:
        claim.share.charge(ZERO - claim.amount)
        del self._known[claim.group.name]
        self.claims[claim.line].remove(claim)

    def charge(self, share: QuotaShare, amount: Resources, *, leaving: Resources) -> None:
        """Charge as `QuotaShare.charge` does; undone by `restore`."""
        back = partial(share.charge, ZERO - amount, leaving=ZERO - leaving)
        self._do(partial(share.charge, amount, leaving=leaving), back)

    def evict(self, claim: AdmittedWorkload) -> None:
        """Evict: its quota is free at once, its capacity once its pods are gone."""
        self.charge(claim.share, ZERO - claim.amount, leaving=claim.amount)
        self.places.leave(claim.group)
        claims = self.claims[claim.line]
        self._do(partial(claims.remove, claim), partial(insort, claims, claim, key=_victim_order))

    def _do(self, act: Callable[[], object], back: Callable[[], object]) -> None:
        act()
        self._journal.append(back)

    def restore(self) -> None:
        """Undo everything since the state was created or advanced."""
        while self._journal:
            self._journal.pop()()
        self.places.restore()


def _victim_order(claim: AdmittedWorkload) -> tuple[int, int, str]:
    return claim.order


class KueueRules:
    """Rules of the flavour `kueue`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Run rounds of admission until every waiting group is decided."""
        with workspace(snapshot, KueueState) as state:
            state.places.about(about)
            return up_to(_KueueCycle(snapshot, state).run(), about, until)


class _KueueCycle:
    def __init__(self, snapshot: Snapshot, state: KueueState) -> None:
        self._state = state
        self._fair: Final = snapshot.fair_sharing
        self._places: Final = state.places
        self._claims: Final = state.claims
        self._lines: Final[dict[str, list[KueueCandidate]]] = {name: [] for name in state.rows}
        self._homeless: Final[list[PodGroup]] = []
        self._refused: Final[dict[_Search, PendingReason]] = {}
        for group in sorted(snapshot.waiting, key=_turn, reverse=True):
            if not admitted(group):
                self._enter(group)

    def _enter(self, group: PodGroup) -> None:
        if row := self._state.rows.get(group.queue):
            share = self._state.shares[group.queue]
            self._lines[group.queue].append(KueueCandidate(group, row, share, group.total))
        else:
            self._homeless.append(group)

    def run(self) -> Iterator[Iterable[Decision]]:
        """Decide once about every waiting group."""
        for group in self._homeless:
            yield [Wait(group, PendingReason(Reason.QUEUE_MISSING, group.total, queue=group.queue))]
        while heads := [line[-1] for line in self._lines.values() if line]:
            plans = [self._planned(case) for case in heads]
            for plan in self._in_turn(plans):
                if plan.pend is not None or self._still_holds(plan):
                    self._lines[plan.case.queue.name].pop()
                    yield self._carry_out(plan)

    def _in_turn(self, plans: list[_Plan]) -> Iterator[_Plan]:
        """The order of the heads. Under fair sharing each depends on what earlier heads took."""
        if not self._fair:
            yield from sorted(plans, key=lambda plan: plan.order)
            return
        yield from (plan for plan in plans if plan.pend is not None)
        active = {plan.case.share: plan for plan in plans if plan.pend is None}
        yield from (active[case.share] for case in fair_turns(plan.case for plan in active.values()))

    def _planned(self, case: KueueCandidate) -> _Plan:
        """The plan. A workload equal to a refused one of its queue is refused without a search, until one is admitted.

        Where nodes count, each workload is searched for: topology and node selectors differ.
        """
        if self._places.matter(case.group):
            return self._plan(case)
        search = _search(case)
        if search in self._refused:
            return _Plan(case, pend=self._refused[search])
        plan = self._plan(case)
        if plan.pend is not None:
            self._refused[search] = plan.pend
        return plan

    def _plan(self, case: KueueCandidate) -> _Plan:
        check_time()
        share, needed = case.share, case.needed
        if not needed.served_by(share.capacity):
            return _Plan(case, pend=_never(case))
        short = beyond(needed, share.free()).dimensions
        if not short and (placed := self._places.find(case.group)):
            free = needed.served_by(share.free(now=True))
            lack = self._places.refusal(case.group) if free and not placed.now else None
            return _Plan(case, now=free and placed.now, level=_level(case), lack=lack)
        fair = bool(self._fair) and case.queue.reclaims is not QueuePreemptionPolicy.NEVER
        if not (fair or all(_may_evict(case, each) for each in short)):
            return _Plan(case, pend=_short(case, Reason.LARGER_THAN_DESERVED))
        lack = None if short else self._places.refusal(case.group)
        targets = self._victims(case, short)
        if not targets:
            return _Plan(case, pend=lack or _short(case))
        return _Plan(case, targets=tuple(targets), level=_level(case, targets), lack=lack)

    def _victims(self, case: KueueCandidate, short: tuple[str, ...]) -> list[PreemptionTarget]:
        """For places on nodes, work that uses any requested resource is a potential victim."""
        if self._places.matter(case.group):
            if not self._could_have_places(case.group):
                return []
            short = case.needed.dimensions
        taker = PreemptingWorkload(case.group, case.queue, case.share, case.needed, short, self._places)
        if self._fair:
            return FairVictimSearch(taker, self._claims, self._fair).victims()
        return VictimSearch(taker, self._claims).victims()

    def _could_have_places(self, group: PodGroup) -> bool:
        """Whether it would have places without all of Kueue's work on these nodes."""
        claims = [claim for line in self._claims.values() for claim in line if claim.group.pool == group.pool]
        with without_targets(claims):
            return self._places.suffice(group)

    def _still_holds(self, plan: _Plan) -> bool:
        """Whether its victims are still there, and quota and capacity suffice without them."""
        case, claims = plan.case, [target.claim for target in plan.targets]
        if any(claim not in self._claims[claim.line] for claim in claims):
            return False
        with without_targets(claims):
            placed = self._places.find(case.group) if case.share.has_free(case.needed) else None
        if placed is None or not plan.now:
            return placed is not None
        return placed.now and case.needed.served_by(case.share.free(now=True))

    def _carry_out(self, plan: _Plan) -> Iterator[Decision]:
        case = plan.case
        if plan.pend is not None:
            yield Wait(case.group, plan.pend)
            return
        self._refused.clear()
        over_quota = not case.share.deserves(case.needed)
        for target in plan.targets:
            self._state.evict(target.claim)
            if not target.claim.leaving:
                yield _evict(target, case.group)
        self._state.charge(case.share, case.needed, leaving=ZERO if plan.now else ZERO - case.needed)
        placed = self._places.take(case.group)
        if placed and plan.now:
            yield Start(case.group, placed.nodes, over_quota)
        else:
            yield Wait(case.group, _coming(case, plan.lack))


def admitted(group: PodGroup) -> bool:
    """Whether it holds quota: it has started, or one of its pods has a node."""
    return group.started is not None or any(pod.node is not None for pod in group.pods)


_Search = tuple[str, Resources, int, int]


def _search(case: KueueCandidate) -> _Search:
    """What a refusal depends on beside the state: queue, amount, priority, and the age where a policy compares ages."""
    queue = case.queue
    by_age = QueuePreemptionPolicy.LOWER_OR_NEWER in (queue.preempts, queue.reclaims, queue.reclaims_over_quota)
    return (queue.name, case.needed, case.group.priority, case.group.created if by_age else 0)


def _leaving(group: PodGroup) -> bool:
    """Whether it is being evicted as a whole."""
    return any(pod.terminating for pod in group.pods) and not group.holding


def _turn(group: PodGroup) -> tuple[int, int, str]:
    return (-group.priority, group.created, group.name)


def _may_evict(case: KueueCandidate, dimension: str) -> bool:
    """Whether it may evict at all for what is short in this dimension."""
    asked = case.needed.only((dimension,))
    if case.queue.reclaims_over_quota is not QueuePreemptionPolicy.NEVER or asked.served_by(case.share.nominal):
        return True
    found = case.share.smallest_that_deserves(asked)
    return found is not None and found.parent is not None


def _level(case: KueueCandidate, targets: Sequence[PreemptionTarget] = ()) -> int:
    """How far up the tree it borrows once the victims are gone; 0 within the queue's own quota."""
    with without_targets([target.claim for target in targets]):
        found = case.share.smallest_that_deserves(case.needed)
    return (found or case.share.path[-1]).height


def _evict(target: PreemptionTarget, group: PodGroup) -> Evict:
    """Evict the whole workload."""
    victim = target.claim.group
    staying = tuple(pod for pod in victim.pods if not pod.terminating)
    return Evict(
        victim=victim,
        pods=tuple(pod.name for pod in staying),
        cause=target.cause,
        for_group=group.name,
        nodes={pod.name: pod.node for pod in staying if pod.node is not None},
    )


def _coming(case: KueueCandidate, lack: PendingReason | None) -> PendingReason:
    """The reason for a workload that is admitted once others have ended."""
    pend = PendingReason(Reason.EVICTING, case.needed, pool=case.group.pool)
    return pend if lack is None else replace(pend, also=(lack.reason,), fitting=lack.fitting)


def _never(case: KueueCandidate) -> PendingReason:
    """The refusal of more than its queue could ever use, borrowing included."""
    most = case.share.capacity
    return PendingReason(
        Reason.EXCEEDS_MAX_QUOTA,
        case.needed,
        queue=case.queue.name,
        allowed=bounds(most),
        used=case.share.used,
        missing=beyond(case.needed, most),
    )


def _short(case: KueueCandidate, *also: Reason) -> PendingReason:
    """The refusal for lack of unused quota without possible victims."""
    return PendingReason(
        Reason.WAITING_FOR_QUOTA,
        case.needed,
        queue=case.queue.name,
        allowed=case.queue.deserved,
        used=case.share.used,
        missing=beyond(case.needed, case.share.free()),
        also=also,
    )
