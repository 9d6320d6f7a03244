"""Whom Kueue evicts so that a workload fits into its quota.

Source: Kueue 0.19, classical preemption, checked against recorded decisions (docs/model.md). `fair_sharing`: the other.

- Borrowers of other queues first, then the own queue; who is being evicted already before all others. In each part the
  lowest priority first, then the latest admission; size plays no part.
- A queue loses work to others only while it borrows, and so do its cohorts up to the one that both have in common. This
  is looked at before each victim, so that a queue may fall below its quota by the last one.
- Work that its queue deserves, with what it has, takes from borrowers whatever else happens. So does work that a cohort
  on the way up deserves, from borrowers outside that cohort. Other work takes from borrowers only if the queue stays
  within its quota in the end (borrowWithinCohort Never), or else makes room in its own queue only and borrows.
- Victims are added until the workload fits, then given back, the last one first, as long as it still does. Where nodes
  matter it fits only with places for all its pods (`kueue_nodes`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from typing import TypeAlias

from scheduling.model.decisions import Cause
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import PodGroup, Queue
from scheduling.rules.kueue.quota import QuotaShare
from scheduling.rules.kueue.topology import TopologyCapacity
from scheduling.state.workspace import check_time


@dataclass(frozen=True, slots=True, eq=False)
class AdmittedWorkload:
    """An admitted pod group: what it uses, and where."""

    group: PodGroup
    amount: Resources
    share: QuotaShare
    leaving: bool
    places: TopologyCapacity

    def go(self) -> None:
        """As if it were not there."""
        self.share.charge(ZERO - self.amount)
        self.places.leave(self.group)

    def come_back(self) -> None:
        """It is there."""
        self.share.charge(self.amount)
        self.places.come_back(self.group)

    @property
    def line(self) -> tuple[str, bool]:
        """Its queue, and whether it is leaving."""
        return (self.share.name, self.leaving)

    @property
    def order(self) -> tuple[int, int, str]:
        """Smaller is evicted first."""
        return (self.group.priority, -self.group.age_key, self.group.name)


@dataclass(frozen=True, slots=True)
class PreemptionTarget:
    """Somebody who may be evicted. common: the cohort in which both meet, None in the own queue."""

    claim: AdmittedWorkload
    common: QuotaShare | None

    @property
    def cause(self) -> Cause:
        return Cause.PREEMPT if self.common is None else Cause.RECLAIM

    @property
    def below(self) -> Iterator[QuotaShare]:
        """Its queue and cohorts that are not the taker's too."""
        return takewhile(lambda share: share is not self.common, self.claim.share.path())


@dataclass(frozen=True, slots=True)
class KueueCandidate:
    """A waiting pod group and its queue."""

    group: PodGroup
    queue: Queue
    share: QuotaShare
    needed: Resources


@dataclass(frozen=True, slots=True)
class PreemptingWorkload(KueueCandidate):
    """The workload that wants in. short: dimensions in which there is not enough; all of them where nodes matter."""

    short: tuple[str, ...]
    places: TopologyCapacity

    def may_evict(self, policy: QueuePreemptionPolicy, victim: AdmittedWorkload) -> bool:
        """Does the policy allow it, and does the victim use what is short?"""
        if policy is QueuePreemptionPolicy.NEVER or not any(getattr(victim.amount, each) for each in self.short):
            return False
        if policy is QueuePreemptionPolicy.ANY or victim.group.priority < self.group.priority:
            return True
        same = victim.group.priority == self.group.priority
        return policy is QueuePreemptionPolicy.LOWER_OR_NEWER and same and victim.group.created > self.group.created

    def fits(self, *, borrowing: bool) -> bool:
        """Is there quota for it now, and room? borrowing: also what others lend."""
        check_time()
        quota = (borrowing or self.share.deserves(self.needed)) and self.needed.served_by(self.share.free())
        return quota and self.places.suffice(self.group)

    def needed_of(self, taken: Sequence[PreemptionTarget], *, borrowing: bool) -> list[PreemptionTarget]:
        """Those of the taken, of whom the last made it fit, without whom it would not. The others come back."""
        victims = list(taken[-1:])
        for target in reversed(taken[:-1]):
            target.claim.come_back()
            if not self.fits(borrowing=borrowing):
                target.claim.go()
                victims.append(target)
        return victims[::-1]


Claims: TypeAlias = Mapping[tuple[str, bool], Sequence[AdmittedWorkload]]
"""By queue and by whether they are leaving, in the order of victims."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A queue with victims. common: the cohort in which it meets the taker's queue; None: it is the taker's queue."""

    share: QuotaShare
    common: QuotaShare | None = None


class VictimSearch:
    """Finds the victims for one taker. Quotas are changed while it tries, and left as they were."""

    def __init__(self, taker: PreemptingWorkload, claims: Claims) -> None:
        self._taker = taker
        self._claims = claims
        self._own = [_Source(taker.share)]
        self._deserved: list[_Source] = []
        self._others: list[_Source] = []
        self._collect()

    def victims(self) -> list[PreemptionTarget]:
        """Who has to go; empty when that would not help."""
        return next(filter(None, (self._attempt(borrowing=each) for each in self._attempts())), [])

    def _collect(self) -> None:
        """Queues that borrow, cohort by cohort on the way up."""
        share, needed = self._taker.share, self._taker.needed
        inside, deserved = share, share.deserves(needed)
        for common in list(share.path())[1:]:
            found = [_Source(each, common) for each in self._borrowers(common, inside)]
            (self._deserved if deserved else self._others).extend(found)
            deserved = deserved or common.deserves(needed)
            inside = common

    def _borrowers(self, cohort: QuotaShare, known: QuotaShare | None = None) -> Iterator[QuotaShare]:
        """Queues with victims that borrow, in cohorts that borrow; `known` has been looked at."""
        for child in cohort.children:
            if child is not known and child.over_quota(self._taker.short):
                if any(any(self._of(_Source(child, cohort), leaving=each)) for each in (True, False)):
                    yield child
                yield from self._borrowers(child)

    def _of(self, source: _Source, *, leaving: bool) -> Iterator[PreemptionTarget]:
        """Its work that may be evicted; no more of it once it does not borrow any more."""
        policy = self._taker.queue.preempts if source.common is None else self._taker.queue.reclaims
        for claim in self._claims.get((source.share.name, leaving), ()):
            if source.common is not None and not source.share.over_quota(self._taker.short):
                return
            if self._taker.may_evict(policy, claim):
                yield PreemptionTarget(claim, source.common)

    def _targets(self, *, borrowing: bool) -> Iterator[PreemptionTarget]:
        """Who is leaving already, then who is not: from borrowers, then from the own queue."""
        for leaving in (True, False):
            yield from self._merged(self._deserved, leaving=leaving)
            for target in self._merged(self._others if self._may_take(borrowing=borrowing) else [], leaving=leaving):
                if not borrowing or self._taker.may_evict(self._taker.queue.reclaims_over_quota, target.claim):
                    yield target
            yield from self._merged(self._own, leaving=leaving)

    def _may_take(self, *, borrowing: bool) -> bool:
        """From queues whose work it does not take as its own share?"""
        return not borrowing or self._taker.queue.reclaims_over_quota is not QueuePreemptionPolicy.NEVER

    def _merged(self, sources: Sequence[_Source], *, leaving: bool) -> Iterator[PreemptionTarget]:
        return merge(*(self._of(each, leaving=leaving) for each in sources), key=lambda target: target.claim.order)

    def _attempts(self) -> tuple[bool, ...]:
        """May the queue borrow in the end? The answers in the order in which they are tried."""
        never = self._taker.queue.reclaims_over_quota is QueuePreemptionPolicy.NEVER
        if not (self._deserved or self._others) or (never and not self._below_quota()):
            return (True,)
        return (False, True) if never and not self._deserved else (True, False)

    def _below_quota(self) -> bool:
        share = self._taker.share
        return all(getattr(share.used, each) < getattr(share.nominal, each) for each in self._taker.short)

    def _attempt(self, *, borrowing: bool) -> list[PreemptionTarget]:
        taken: list[PreemptionTarget] = []
        fits = False
        for target in self._targets(borrowing=borrowing):
            if target.common is None or all(share.over_quota(self._taker.short) for share in target.below):
                target.claim.go()
                taken.append(target)
                if fits := self._taker.fits(borrowing=borrowing):
                    break
        victims = self._taker.needed_of(taken, borrowing=borrowing) if fits else taken
        for target in victims:
            target.claim.come_back()
        return victims if fits else []


@contextmanager
def without_targets(claims: Sequence[AdmittedWorkload]) -> Iterator[None]:
    """As if these were not there."""
    for claim in claims:
        claim.go()
    yield
    for claim in claims:
        claim.come_back()
