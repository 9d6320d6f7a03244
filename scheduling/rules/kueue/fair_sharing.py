"""Kueue's fair sharing: order of admission and victims by dominant shares of borrowed quota.

Source: Kueue 0.19 (`fairSharing` of its configuration), checked against a real Kueue (docs/model.md). A share is what a
queue or cohort borrows, relative to what it could borrow, divided by its weight (`dominant_share`).

- Order: per cohort from the leaves up, workloads that need not borrow go first, then the smallest resulting share,
  then higher priority, then age. Each admission changes the shares for the following ones.
- Potential victims: work of borrowing queues anywhere in the tree, and lower-priority work in the own queue. The next
  victim belongs to the child with the largest share, from the root down; inside a queue, work that is being evicted
  already, then the lowest priority, then the latest admission.
- A queue that stays within its nominal quota may evict all of them. Otherwise the first strategy limits what it may
  take; if that is not enough and there is a second strategy, one more workload of each queue that this allows. Shares
  are compared below the common cohort.
- Victims are put back, the last one first, as long as the workload still fits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from scheduling.model.preemptibility import FairSharingStrategy
from scheduling.model.resources import ZERO
from scheduling.rules.kueue.capacity import QuotaShare
from scheduling.rules.kueue.preemption import (
    AdmittedWorkload,
    Claims,
    KueueCandidate,
    PreemptingWorkload,
    PreemptionTarget,
)

Lines = Mapping[str, list[AdmittedWorkload]]
"""By queue, the next victim first."""


def fair_turns(candidates: Iterable[KueueCandidate]) -> Iterator[KueueCandidate]:
    """Yield one candidate at a time, by the present shares. At most one candidate per queue."""
    waiting = {candidate.share: candidate for candidate in candidates}
    while waiting:
        for found in _winner(next(iter(waiting)).root, waiting):
            del waiting[found.share]
            yield found


def _winner(share: QuotaShare, waiting: Mapping[QuotaShare, KueueCandidate]) -> list[KueueCandidate]:
    """The candidate of a queue, or the best one below a cohort; empty if there is none."""
    if share in waiting:
        return [waiting[share]]
    found = [winner for child in share.children for winner in _winner(child, waiting)]
    return sorted(found, key=lambda candidate: _turn(candidate, share))[:1]


def _turn(candidate: KueueCandidate, cohort: QuotaShare) -> tuple[bool, tuple[bool, float], int, int, str]:
    """Sort key: the smallest is admitted first, by the shares after its admission."""
    child, group = _below(candidate.share, cohort), candidate.group
    candidate.share.charge(candidate.needed)
    borrowing, share = child.over_quota(candidate.needed.dimensions), child.dominant_share()
    candidate.share.charge(ZERO - candidate.needed)
    return (borrowing, share, -group.priority, *group.age)


def _below(share: QuotaShare, cohort: QuotaShare) -> QuotaShare:
    """The child of the cohort that is or contains it."""
    return list(takewhile(lambda each: each is not cohort, share.path))[-1]


class FairVictimSearch:
    """Finds the victims for one preemptor. Changes quotas during the search and restores them."""

    def __init__(self, taker: PreemptingWorkload, claims: Claims, strategies: Sequence[FairSharingStrategy]) -> None:
        self._taker = taker
        self._claims = claims
        self._first, self._has_second = strategies[0], len(strategies) > 1
        self._taken: list[PreemptionTarget] = []

    def victims(self) -> list[PreemptionTarget]:
        """The victims; empty if evicting would not help."""
        share, needed = self._taker.share, self._taker.needed
        candidates = self._candidates()
        share.charge(needed)
        fits = self._try_first(candidates)
        share.charge(ZERO - needed)
        victims = self._taker.needed_of(self._taken, borrowing=True) if fits else self._taken
        for target in victims:
            target.claim.come_back()
        return victims if fits else []

    def _candidates(self) -> Lines:
        """Work of lower priority in the own queue, and work of queues that borrow what is short."""
        taker, found = self._taker, dict[str, list[AdmittedWorkload]]()
        for share in _queues(taker.share.root):
            own = share is taker.share
            if own or share.over_quota(taker.short):
                policy = taker.queue.preempts if own else taker.queue.reclaims
                claims = (claim for leaving in (True, False) for claim in self._claims.get((share.name, leaving), ()))
                found[share.name] = [claim for claim in claims if taker.may_evict(policy, claim)]
        return found

    def _try_first(self, lines: Lines) -> bool:
        """Evict until it fits by the first strategy, then by the second among those that the first refused."""
        share, refused = self._taker.share, dict[str, list[AdmittedWorkload]]()
        everything = not share.over_quota(self._taker.short)
        for queue in (order := _FairOrder(self._taker, lines)):
            line = lines[queue.name]
            if (own_work := queue is share) or everything:
                if self._take(line.pop(0), None if own_work else order.common(queue)):
                    return True
                continue
            common = order.common(queue)
            own, before = _below(share, common).dominant_share(), _below(queue, common).dominant_share()
            while line:
                claim = line.pop(0)
                if self._allows(claim, own, before, common):
                    if self._take(claim, common):
                        return True
                    break
                refused.setdefault(queue.name, []).append(claim)
        return self._has_second and self._try_second(refused)

    def _allows(
        self, claim: AdmittedWorkload, own: tuple[bool, float], before: tuple[bool, float], common: QuotaShare
    ) -> bool:
        if self._first is FairSharingStrategy.LESS_THAN_INITIAL:
            return own < before
        claim.go()
        after = _below(claim.share, common).dominant_share()
        claim.come_back()
        return own <= after

    def _try_second(self, lines: Lines) -> bool:
        """One workload of each queue whose share is still larger."""
        for queue in (order := _FairOrder(self._taker, lines)):
            common = order.common(queue)
            larger = _below(self._taker.share, common).dominant_share() < _below(queue, common).dominant_share()
            order.drop(queue)
            if larger and self._take(lines[queue.name][0], common):
                return True
        return False

    def _take(self, claim: AdmittedWorkload, common: QuotaShare | None) -> bool:
        """Add a victim; return whether the preemptor fits now. Its own use counts for the shares."""
        share, needed = self._taker.share, self._taker.needed
        claim.go()
        self._taken.append(PreemptionTarget(claim, common))
        share.charge(ZERO - needed)
        fits = self._taker.fits(borrowing=True)
        share.charge(needed)
        return fits


class _FairOrder:
    """Yields, repeatedly, the queue of the next victim by the present shares."""

    def __init__(self, taker: PreemptingWorkload, lines: Lines) -> None:
        self._own, self._lines = taker.share, lines
        self._cohorts = taker.share.path[1:]
        self._done: set[QuotaShare] = set()

    def common(self, queue: QuotaShare) -> QuotaShare:
        """The lowest cohort that contains this queue and the preemptor's."""
        return next(share for share in queue.path if share in self._cohorts)

    def drop(self, queue: QuotaShare) -> None:
        """Take no more victims of this queue."""
        self._done.add(queue)

    def __iter__(self) -> Iterator[QuotaShare]:
        root = self._cohorts[-1] if self._cohorts else self._own
        while root not in self._done:
            if not self._cohorts and not self._lines.get(root.name):
                return
            if (found := root if root is self._own else self._next(root)) is not None:
                yield found

    def _next(self, cohort: QuotaShare) -> QuotaShare | None:
        """The next queue below this cohort; None, remembered, if there is none."""
        children = [child for child in cohort.children if child not in self._done and not self._is_done(child)]
        queues = [child for child in children if not child.children]
        cohorts = [child for child in children if child.children]
        if not children:
            self._done.add(cohort)
            return None
        queue = min(queues, key=self._order, default=None)
        nested = max(cohorts, key=QuotaShare.dominant_share, default=None)
        if nested is not None and (queue is None or nested.dominant_share() >= queue.dominant_share()):
            return self._next(nested)
        return queue

    def _is_done(self, child: QuotaShare) -> bool:
        """Whether it has no more victims: it has no work left, or does not borrow and is not the preemptor's queue."""
        if child.children:
            gives = child.borrows or child in self._cohorts
        else:
            gives = bool(self._lines.get(child.name)) and (child.borrows or child is self._own)
        if not gives:
            self._done.add(child)
        return not gives

    def _order(self, queue: QuotaShare) -> tuple[tuple[bool, float], bool, bool, tuple[int, int, str]]:
        """Sort key: the larger share first, then the next victim of all."""
        zero_weight, part = queue.dominant_share()
        claim = self._lines[queue.name][0]
        return ((not zero_weight, -part), not claim.leaving, queue is self._own, claim.order)


def _queues(root: QuotaShare) -> Iterator[QuotaShare]:
    """The leaves of a tree."""
    if not root.children:
        yield root
    for child in root.children:
        yield from _queues(child)
