"""Kueue's victims for a workload that does not fit into its quota.

Source: Kueue 0.19, classical preemption, checked against recorded decisions (docs/model.md). `fair_sharing`: the other.

- Work that is being evicted already comes first, then work of borrowing queues, then the own queue. Inside each, the
  lowest priority first, then the latest admission. Size does not matter.
- A queue loses work only while it and its cohorts below the common one borrow. This is checked before each victim, so
  the last victim may leave a queue below its quota.
- A workload within the nominal quota of its queue always reclaims from borrowers. A workload within the quota of a
  cohort on its path reclaims from borrowers outside that cohort. Other workloads evict borrowers only if their queue
  stays within its quota in the end (borrowWithinCohort Never), or else evict in their own queue only and borrow.
- Victims are added until the workload fits, then put back, the last one first, as long as it still fits. Where nodes
  count, it fits only with places for all its pods (`capacity`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from scheduling.model.preemptibility import Cause, QueuePreemptionPolicy
from scheduling.model.resources import Resources, sum_of
from scheduling.model.snapshot import PodGroup, Queue
from scheduling.rules.kueue.capacity import QuotaShare, TopologyCapacity, lacking
from scheduling.state.workspace import check_time


@dataclass(slots=True, eq=False)
class AdmittedWorkload:
    """An admitted pod group with its use of quota and nodes. order: sort key; victims are evicted in this order."""

    group: Final[PodGroup]
    amount: Final[Resources]
    share: Final[QuotaShare]
    leaving: Final[bool]
    places: Final[TopologyCapacity]
    order: Final[tuple[int, int, str]]

    def go(self) -> None:
        """Remove its use."""
        self.share.release(self.amount)
        if self.places.counted:
            self.places.leave(self.group)

    def come_back(self) -> None:
        """Restore its use."""
        self.share.charge(self.amount)
        if self.places.counted:
            self.places.come_back(self.group)

    @property
    def line(self) -> tuple[str, bool]:
        """Its queue, and whether it is being evicted."""
        return (self.share.name, self.leaving)


class PreemptionTarget(NamedTuple):
    """A potential victim. common: the lowest common cohort, None in the own queue."""

    claim: AdmittedWorkload
    common: QuotaShare | None

    @property
    def cause(self) -> Cause:
        return Cause.PREEMPT if self.common is None else Cause.RECLAIM

    @property
    def below(self) -> Iterator[QuotaShare]:
        """Its queue and those of its cohorts that do not contain the preemptor's queue."""
        return takewhile(lambda share: share is not self.common, self.claim.share.path)


@dataclass(slots=True, unsafe_hash=True)
class KueueCandidate:
    """A waiting pod group and its queue."""

    group: Final[PodGroup]
    queue: Final[Queue]
    share: Final[QuotaShare]
    needed: Final[Resources]


@dataclass(slots=True, unsafe_hash=True)
class PreemptingWorkload(KueueCandidate):
    """The workload to admit. short: resources of which there is not enough; all of them where nodes count."""

    short: Final[tuple[str, ...]]
    places: Final[TopologyCapacity]

    def may_evict(self, policy: QueuePreemptionPolicy, victim: AdmittedWorkload) -> bool:
        """Whether the policy allows it and the victim uses what is short."""
        if policy is QueuePreemptionPolicy.NEVER or not victim.amount.has_any(self.short):
            return False
        if policy is QueuePreemptionPolicy.ANY or victim.group.priority < self.group.priority:
            return True
        same = victim.group.priority == self.group.priority
        return policy is QueuePreemptionPolicy.LOWER_OR_NEWER and same and victim.group.created > self.group.created

    def fits(self, *, borrowing: bool) -> bool:
        """Whether quota and capacity suffice now. borrowing: borrowed quota counts."""
        check_time()
        quota = (borrowing or self.share.deserves(self.needed)) and self.share.has_free(self.needed)
        return quota and self.places.suffice(self.group)

    def needed_of(self, taken: Sequence[PreemptionTarget], *, borrowing: bool) -> list[PreemptionTarget]:
        """The victims without which it would not fit, given that the last one made it fit. Restores the others."""
        victims = list(taken[-1:])
        for target in reversed(taken[:-1]):
            if not self._lacks_quota_beside(target.claim):
                target.claim.come_back()
                if self.fits(borrowing=borrowing):
                    continue
                target.claim.go()
            victims.append(target)
        return victims[::-1]

    def _lacks_quota_beside(self, claim: AdmittedWorkload) -> bool:
        """Whether it lacks quota if this workload comes back: true of most victims, and cheaper than to try it."""
        return not self.share.has_free_beside(self.needed, claim.amount, claim.share)


Claims: TypeAlias = Mapping[tuple[str, bool], Sequence[AdmittedWorkload]]
"""By (queue, whether being evicted), in the order of victims."""


@dataclass(slots=True, unsafe_hash=True)
class _Source:
    """A queue with victims. common: the lowest common cohort; None for the preemptor's own queue."""

    share: Final[QuotaShare]
    common: Final[QuotaShare | None] = None


def may_gain(case: KueueCandidate, claims: Claims, reach: int) -> bool:
    """Whether a search can find enough GPUs for it. False is certain, and stays so for all that follow in its queue.

    reach: its queue's `gpus_in_reach`.
    """
    preempts, missing = case.queue.preempts, case.needed.gpu - reach
    if missing <= 0 or preempts is QueuePreemptionPolicy.ANY:
        return True
    if case.queue.reclaims_over_quota is not QueuePreemptionPolicy.NEVER:
        return True
    too_high = case.group.priority + (preempts is QueuePreemptionPolicy.LOWER_OR_NEWER)
    for leaving in (True, False):
        for claim in claims.get((case.queue.name, leaving), ()):
            if claim.group.priority >= too_high:
                break
            missing -= claim.amount.gpu
            if missing <= 0:
                return True
    return False


class VictimSearch:
    """Finds the victims for one preemptor. Changes quotas during the search and restores them."""

    def __init__(self, taker: PreemptingWorkload, claims: Claims) -> None:
        self._taker = taker
        self._claims = claims
        self._own = [_Source(taker.share)]
        self._deserved: list[_Source] = []
        self._others: list[_Source] = []
        self._collect()

    def victims(self) -> list[PreemptionTarget]:
        """The victims; empty if evicting would not help."""
        if not (self._deserved or self._others or self._has_victims(self._own[0])):
            return []
        return next(filter(None, (self._attempt(borrowing=each) for each in self._attempts())), [])

    def _has_victims(self, source: _Source) -> bool:
        return any(any(self._of(source, leaving=leaving)) for leaving in (True, False))

    def _collect(self) -> None:
        """Collect borrowing queues, cohort by cohort on the way up, where they can be searched for victims."""
        share, needed = self._taker.share, self._taker.needed
        inside, deserved = share, share.deserves(needed)
        evicts_others = self._may_take(borrowing=True) or self._below_quota()
        for common in share.path[1:]:
            if deserved or evicts_others:
                found = [_Source(each, common) for each in self._borrowers(common, inside)]
                (self._deserved if deserved else self._others).extend(found)
            deserved = deserved or common.deserves(needed)
            inside = common

    def _borrowers(self, cohort: QuotaShare, known: QuotaShare | None = None) -> Iterator[QuotaShare]:
        """Borrowing queues with victims in borrowing cohorts, except below `known`."""
        for child in cohort.children:
            if child is not known and child.over_quota(self._taker.short):
                if self._has_victims(_Source(child, cohort)):
                    yield child
                yield from self._borrowers(child)

    def _of(self, source: _Source, *, leaving: bool) -> Iterator[PreemptionTarget]:
        """Its potential victims, until it does not borrow any more."""
        policy = self._taker.queue.preempts if source.common is None else self._taker.queue.reclaims
        too_high = self._taker.group.priority + (policy is QueuePreemptionPolicy.LOWER_OR_NEWER)
        for claim in self._claims.get((source.share.name, leaving), ()):
            if claim.group.priority >= too_high and policy is not QueuePreemptionPolicy.ANY:  # so are all after it
                return
            if source.common is not None and not source.share.over_quota(self._taker.short):
                return
            if self._taker.may_evict(policy, claim):
                yield PreemptionTarget(claim, source.common)

    def _targets(self, *, borrowing: bool) -> Iterator[PreemptionTarget]:
        """Work that is being evicted, then other work; of borrowers, then of the own queue."""
        for leaving in (True, False):
            yield from self._merged(self._deserved, leaving=leaving)
            for target in self._merged(self._others if self._may_take(borrowing=borrowing) else [], leaving=leaving):
                if not borrowing or self._taker.may_evict(self._taker.queue.reclaims_over_quota, target.claim):
                    yield target
            yield from self._merged(self._own, leaving=leaving)

    def _may_take(self, *, borrowing: bool) -> bool:
        """Whether it may also evict work that is not above its own nominal share."""
        return not borrowing or self._taker.queue.reclaims_over_quota is not QueuePreemptionPolicy.NEVER

    def _merged(self, sources: Sequence[_Source], *, leaving: bool) -> Iterator[PreemptionTarget]:
        if len(sources) == 1:
            return self._of(sources[0], leaving=leaving)
        return merge(*(self._of(each, leaving=leaving) for each in sources), key=lambda target: target.claim.order)

    def _attempts(self) -> tuple[bool, ...]:
        """Whether the queue may borrow in the end: the values in the order in which they are tried."""
        never = self._taker.queue.reclaims_over_quota is QueuePreemptionPolicy.NEVER
        if not (self._deserved or self._others) or (never and not self._below_quota()):
            return (True,)
        return (False, True) if never and not self._deserved else (True, False)

    def _below_quota(self) -> bool:
        share = self._taker.share
        return all(getattr(share.used, each) < getattr(share.nominal, each) for each in self._taker.short)

    def _could_fit(self, *, borrowing: bool) -> bool:
        """Whether the own queue could give up what no other queue can: what exceeds its limit, or its quota."""
        needed, share = self._taker.needed, self._taker.share
        unused = (share.most if borrowing else share.nominal) - share.used
        if not lacking(needed, unused):
            return True
        targets = (target for leaving in (True, False) for target in self._of(self._own[0], leaving=leaving))
        return not lacking(needed, unused + sum_of(target.claim.amount for target in targets))

    def _attempt(self, *, borrowing: bool) -> list[PreemptionTarget]:
        if not self._could_fit(borrowing=borrowing):
            return []
        taken: list[PreemptionTarget] = []
        fits, needed = False, self._taker.needed
        missing = needed.gpu and needed.gpu - self._taker.share.free().gpu  # a victim gives at most the GPUs it holds
        for target in self._targets(borrowing=borrowing):
            if target.common is None or all(share.over_quota(self._taker.short) for share in target.below):
                target.claim.go()
                taken.append(target)
                missing -= target.claim.amount.gpu
                if missing <= 0 and (fits := self._taker.fits(borrowing=borrowing)):
                    break
        victims = self._taker.needed_of(taken, borrowing=borrowing) if fits else taken
        _come_back([target.claim for target in victims])
        return victims if fits else []


@contextmanager
def without_targets(claims: Sequence[AdmittedWorkload]) -> Iterator[None]:
    """A context in which these workloads are removed."""
    for share, amount in by_share(claims).items():
        share.release(amount)
    for claim in claims:
        if claim.places.counted:
            claim.places.leave(claim.group)
    yield
    _come_back(claims)


def _come_back(claims: Sequence[AdmittedWorkload]) -> None:
    """Restore the use of all of them, once for each queue: a search removes hundreds."""
    for share, amount in by_share(claims).items():
        share.charge(amount)
    for claim in claims:
        if claim.places.counted:
            claim.places.come_back(claim.group)


def by_share(claims: Iterable[AdmittedWorkload]) -> dict[QuotaShare, Resources]:
    """The amounts of all of them by queue."""
    amounts: dict[QuotaShare, list[Resources]] = {}
    for claim in claims:
        amounts.setdefault(claim.share, []).append(claim.amount)
    return {share: sum_of(found) for share, found in amounts.items()}
