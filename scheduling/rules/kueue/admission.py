"""Kueue: admission by quota, all pods of a workload or none. Nodes count only in pools with topology levels.

Source: Kueue 0.19, checked against recorded decisions (docs/model.md).

- A pod group that has started, or has a pod on a node, is admitted and counts as a whole. Preemptibility and
  preemptionPolicy have no effect. Another scheduler places its pods later, so a start names no nodes.
- In a pool with topology levels it is admitted to places on nodes, which a start names (`capacity`). A workload with
  quota but without places evicts for them as it does for quota, regardless of its deserved quota, unless evicting all
  of Kueue's work there would not be enough.
- Admission runs in rounds. The head of every queue, by priority and age, is judged on the same state; heads that need
  not borrow go first, then higher priority, then age. A head whose victims or capacity are taken meanwhile is judged
  again in the next round.
- With fair sharing, dominant shares decide the order and the victims (`fair_sharing`).
- A request larger than queue and cohorts could ever provide never starts. A request larger than the queue's whole quota
  never evicts, not even in its own queue, unless a cohort below the root could hold it (`preemption`).
- A workload that fits once the victims of this round are gone waits for them and reserves the capacity. Until it is
  admitted it is the head of its queue, and Kueue decides about nothing else there.
- Cycles over time (`Until.CHANGES`) do the same: it is nominated to `QUOTA`, and in every round its quota is reserved
  in its turn. What is admitted in one round may be evicted in the next, the first of its priority. Other cycles decide
  about the rest of its queue as well, with that capacity taken, and evict nothing that starts in them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduling.model.decisions import QUOTA, Decision, Evict, Start, Until, Wait, up_to
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.rules.kueue.capacity import beyond, bounds, lacking
from scheduling.rules.kueue.fair_sharing import FairVictimSearch, fair_turns
from scheduling.rules.kueue.preemption import (
    Claims,
    KueueCandidate,
    PreemptingWorkload,
    PreemptionTarget,
    VictimSearch,
    may_gain,
    without_targets,
)
from scheduling.rules.kueue.state import KueueState, QuotaTree, Search, WaitingLine, turn_key
from scheduling.state.workspace import check_time, workspace


@dataclass(slots=True, unsafe_hash=True)
class _Plan:
    """What would happen to it on the present state. level: how far up the tree it borrows.

    lack: what is missing other than quota while it waits for others to end.
    """

    case: Final[KueueCandidate]
    now: Final[bool] = False
    targets: Final[tuple[PreemptionTarget, ...]] = ()
    pend: Final[PendingReason | None] = None
    level: Final[int] = 0
    lack: Final[PendingReason | None] = None

    @property
    def order(self) -> tuple[int, int, int, str]:
        return (self.level, *turn_key(self.case.group))


class KueueRules:
    """Rules of the flavour `kueue`."""

    def decide(
        self, snapshot: Snapshot, about: Collection[str] | None = None, until: Until = Until.ALL
    ) -> list[Decision]:
        """Run rounds of admission until every waiting group is decided."""
        with workspace(snapshot, KueueState) as state:
            state.places.about(about)
            return up_to(_KueueCycle(snapshot, state, until).run(), about, until)


@dataclass(slots=True, eq=False)
class _Head:
    """How far the line of a queue has come in this cycle: the number of turns, and the next that may not be in vain.

    version: that of the tree when this was looked up.
    """

    line: Final[WaitingLine]
    tree: Final[QuotaTree]
    at: int = 0
    hope: int = -1
    version: int = -1

    def rounds(self, claims: Claims) -> int | None:
        """Rounds from now on in which its head is refused in any case; None: until the end, on the present state."""
        if self.at >= len(self.line.turns):
            return None
        if self.hope < self.at or self.version != self.tree.version:
            self.hope, self.version = self.line.next_hope(self.at, claims), self.tree.version
        return self.hope - self.at if self.hope < len(self.line.turns) else None


class _KueueCycle:
    """skips: whether it leaves out refusals that are certain, without a look at the workloads.

    over_time: whether other cycles follow, so that a workload that waits for its victims holds its queue.
    preempting: those of this cycle; each round reserves quota for them in their turn. reserved: in the present round.
    """

    def __init__(self, snapshot: Snapshot, state: KueueState, until: Until) -> None:
        self._state = state
        self._fair: Final = snapshot.fair_sharing
        self._places: Final = state.places
        self._claims: Final = state.claims
        self._trees: Final = [*dict.fromkeys(state.trees.values())]
        self._over_time: Final = until is Until.CHANGES
        self._now: Final = snapshot.now or 0
        self._preempting: Final[list[_Plan]] = []
        self._reserved: Final[list[KueueCandidate]] = []
        self._skips: Final = self._over_time and not (self._fair or state.counts_nodes)
        self._refusals: Final[dict[QuotaTree, list[Wait]]] = {}

    def run(self) -> Iterator[Iterable[Decision]]:
        """Decide once about every waiting group: first what is admitted, then the refusals of each tree."""
        for group in self._state.homeless.values():
            yield [Wait(group, PendingReason(Reason.QUEUE_MISSING, group.total, queue=group.queue))]
        yield from self._rounds([tree for tree in self._trees if not self._is_known(tree)])
        for tree in self._trees:
            yield self._refusals.get(tree) or (tree.waits and tree.waits[1]) or ()

    def _is_known(self, tree: QuotaTree) -> bool:
        """Whether all that waits there was refused before on the same state."""
        known = tree.waits if self._skips or (tree.waits and tree.waits[1] is not None) else None
        return known is not None and known[0] == tree.version

    def _rounds(self, trees: Sequence[QuotaTree]) -> Iterator[Iterable[Decision]]:
        """Decide about what waits in these trees; keep the refusals, also for the next cycle if nothing is admitted."""
        self._refusals.update((tree, []) for tree in trees)
        heads = {name: _Head(line, tree) for tree in trees for name, line in tree.lines.items() if line.turns}
        versions = [tree.version for tree in trees]
        while ahead := {name: rounds for name, head in heads.items() if (rounds := self._ahead(head)) is not None}:
            in_vain = min(ahead.values())
            for head in heads.values():
                head.at += in_vain + 1
            judged = [heads[name] for name, rounds in ahead.items() if rounds == in_vain]
            plans = [self._planned(head.line.turns[head.at - 1][-1]) for head in judged]
            self._reserved.clear()
            for plan in self._in_turn([*plans, *self._preempting]):
                yield self._turn(plan, heads[plan.case.queue.name])
        for tree, version in zip(trees, versions, strict=True):
            unchanged = tree.version == version and not self._state.counts_nodes
            tree.waits = (version, None if self._skips else self._refusals[tree]) if unchanged else None

    def _turn(self, plan: _Plan, head: _Head) -> Iterator[Decision]:
        """Carry the plan out, or let its workload be judged again. Over time, what does not start holds its queue."""
        if plan.pend is not None:
            self._refusals[head.tree].append(Wait(plan.case.group, plan.pend))
        elif any(plan is each for each in self._preempting):
            if plan.case.share.has_free(plan.case.needed):
                self._reserved.append(plan.case)
        elif not self._still_holds(plan):
            head.at -= 1
        else:
            fits = self._fits_beside_reserved(plan)
            if fits:
                yield from self._carry_out(plan)
            if self._over_time and not (fits and plan.now):
                head.at = len(head.line.turns)

    def _ahead(self, head: _Head) -> int | None:
        """Rounds until its next workload is judged; None if there is none left to judge."""
        if self._skips:
            return head.rounds(self._claims)
        return 0 if head.at < len(head.line.turns) else None

    def _in_turn(self, plans: list[_Plan]) -> Iterator[_Plan]:
        """The order of the heads. Under fair sharing each depends on what earlier heads took."""
        if not self._fair:
            yield from sorted(plans, key=lambda plan: plan.order)
            return
        yield from (plan for plan in plans if plan.pend is not None)
        active = {plan.case.share: plan for plan in plans if plan.pend is None}
        yield from (active[case.share] for case in fair_turns(plan.case for plan in active.values()))

    def _planned(self, case: KueueCandidate) -> _Plan:
        """The plan. A workload equal to a refused one of its queue is refused without a search until use changes.

        Where nodes count, each workload is searched for: topology and node selectors differ.
        """
        if self._places.matter(case.group):
            return self._plan(case)
        search, tree = _search(case), self._state.trees[case.queue.name]
        known = tree.searches.get(search)
        if known is not None and known[0] == tree.version:
            return _Plan(case, pend=known[1])
        plan = self._plan(case)
        if plan.pend is not None:
            tree.searches[search] = (tree.version, plan.pend)
        return plan

    def _plan(self, case: KueueCandidate) -> _Plan:
        check_time()
        share, needed, unused = case.share, case.needed, case.share.free()
        if not needed.served_by(share.capacity):
            return _Plan(case, pend=_never(case))
        short = lacking(needed, unused)
        if not short and (placed := self._places.find(case.group)):
            free = share.has_free(needed, now=True)
            lack = self._places.refusal(case.group) if free and not placed.now else None
            return _Plan(case, now=free and placed.now, level=_level(case), lack=lack)
        fair = bool(self._fair) and case.queue.reclaims is not QueuePreemptionPolicy.NEVER
        if not (fair or all(_may_evict(case, each) for each in short)):
            return _Plan(case, pend=_short(case, unused, Reason.LARGER_THAN_DESERVED))
        if not (self._fair or self._places.matter(case.group) or self._may_gain(case)):
            return _Plan(case, pend=_short(case, unused))
        lack = None if short else self._places.refusal(case.group)
        targets = self._victims(case, short)
        if not targets:
            return _Plan(case, pend=lack or _short(case, unused))
        return _Plan(case, targets=tuple(targets), level=_level(case, targets), lack=lack)

    def _may_gain(self, case: KueueCandidate) -> bool:
        return may_gain(case, self._claims, case.share.gpus_in_reach())

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
        return placed.now and case.share.has_free(case.needed, now=True)

    def _fits_beside_reserved(self, plan: _Plan) -> bool:
        """Whether it still holds beside what waits for its victims and had its turn in this round."""
        for case in self._reserved:
            case.share.charge(case.needed, leaving=ZERO - case.needed)
        fits = not self._reserved or self._still_holds(plan)
        for case in self._reserved:
            case.share.charge(ZERO - case.needed, leaving=case.needed)
        return fits

    def _carry_out(self, plan: _Plan) -> Iterator[Decision]:
        case = plan.case
        over_quota = not case.share.deserves(case.needed)
        self._state.evict([target.claim for target in plan.targets])
        yield from (_evict(target, case.group) for target in plan.targets if not target.claim.leaving)
        if not self._over_time or self._places.matter(case.group):
            self._state.charge(case.share, case.needed, leaving=ZERO if plan.now else ZERO - case.needed)
        elif plan.now:
            self._state.admit(case.group, self._now)
        else:
            self._preempting.append(replace(plan, targets=()))
            self._reserved.append(case)
        placed = self._places.take(case.group)
        if placed and plan.now:
            yield Start(case.group, placed.nodes, over_quota)
        else:
            nominated = {pod.name: QUOTA for pod in case.group.waiting} if self._over_time else {}
            yield Wait(case.group, _coming(case, plan.lack), nominated)


def _search(case: KueueCandidate) -> Search:
    """What a refusal depends on beside the state: queue, amount, priority, and the age where a policy compares ages."""
    queue, needed = case.queue, case.needed
    by_age = QueuePreemptionPolicy.LOWER_OR_NEWER in (queue.preempts, queue.reclaims, queue.reclaims_over_quota)
    age = case.group.created if by_age else 0
    return (queue.name, needed.gpu, needed.cpu, needed.memory, case.group.priority, age)


def _may_evict(case: KueueCandidate, dimension: str) -> bool:
    """Whether it may evict at all for what is short in this dimension."""
    if case.queue.reclaims_over_quota is not QueuePreemptionPolicy.NEVER:
        return True
    if getattr(case.needed, dimension) <= getattr(case.share.nominal, dimension):
        return True
    found = case.share.smallest_that_deserves(case.needed.only((dimension,)))
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


def _short(case: KueueCandidate, unused: Resources, *also: Reason) -> PendingReason:
    """The refusal for lack of unused quota without possible victims."""
    return PendingReason(
        Reason.WAITING_FOR_QUOTA,
        case.needed,
        queue=case.queue.name,
        allowed=case.queue.deserved,
        used=case.share.used,
        missing=beyond(case.needed, unused),
        also=also,
    )
