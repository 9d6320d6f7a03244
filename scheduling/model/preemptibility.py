"""Preemptibility of workloads, its default by priority value, policies of queues, and what a scheduler never evicts."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

THRESHOLD: Final = 100


class Preemptibility(StrEnum):
    """Whether the scheduler may evict a workload. An open enum: stored as text, never as a boolean."""

    PREEMPTIBLE = "preemptible"
    SEMI_PREEMPTIBLE = "semi-preemptible"
    NON_PREEMPTIBLE = "non-preemptible"


def by_value(value: int) -> Preemptibility:
    """Default by priority value: 100 and more is non-preemptible."""
    return Preemptibility.NON_PREEMPTIBLE if value >= THRESHOLD else Preemptibility.PREEMPTIBLE


def as_scheduled(preemptibility: str, value: int) -> Preemptibility:
    """What schedulers make of it. None supports semi-preemptible: KAI 0.17 ignores a value that it does not know."""
    if preemptibility in {Preemptibility.PREEMPTIBLE, Preemptibility.NON_PREEMPTIBLE}:
        return Preemptibility(preemptibility)
    return by_value(value)


class QueuePreemptionPolicy(StrEnum):
    """What workloads of a queue may evict, in Kueue's terms. Newer: created after the preemptor."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class FairSharingStrategy(StrEnum):
    """When Kueue's fair sharing lets a queue evict work of another, in Kueue's terms.

    The preemptor's share, with its workload, is at most the other's share without the victim; or less than the other's
    present share.
    """

    AT_MOST_FINAL = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL = "LessThanInitialShare"


class Cause(StrEnum):
    """Why a victim is evicted: for a workload of higher priority in its queue (kube: in any), for another queue's
    quota, or to move to another node so that free GPUs are contiguous.
    """

    PREEMPT = "preempt"
    RECLAIM = "reclaim"
    CONSOLIDATE = "consolidate"


@dataclass(frozen=True, slots=True)
class EvictionExemptions:
    """What a scheduler never evicts, by its configuration.

    causes: it evicts nothing for these. inside_min_runtime: for these causes, nothing that is younger than the minimum
    runtime that its pods carry. below_minimum: it preempts no pod of what then lacks its minimum.
    """

    causes: frozenset[Cause] = frozenset()
    inside_min_runtime: frozenset[Cause] = frozenset()
    below_minimum: bool = False

    @property
    def ordered(self) -> tuple[list[Cause], list[Cause], bool]:
        """The same in an order that every process has."""
        return sorted(self.causes), sorted(self.inside_min_runtime), self.below_minimum


NO_EXEMPTIONS: Final = EvictionExemptions()
MIN_RUNTIME_CAUSES: Final = frozenset({Cause.PREEMPT, Cause.RECLAIM})
"""Causes that a minimum runtime may protect from."""
