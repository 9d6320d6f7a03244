"""Preemptibility of workloads, its default by priority value, and the preemption policies of queues."""

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
