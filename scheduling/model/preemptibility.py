"""Preemptibility of a workload, what follows from the value of its priority alone, and whom queues may evict."""

from enum import StrEnum
from typing import Final

THRESHOLD: Final = 100


class Preemptibility(StrEnum):
    """May the scheduler evict it? An open enum: stored as text, never as a boolean."""

    PREEMPTIBLE = "preemptible"
    SEMI_PREEMPTIBLE = "semi-preemptible"
    NON_PREEMPTIBLE = "non-preemptible"


def by_value(value: int) -> Preemptibility:
    """What follows from a priority's value alone: exactly 100 is already non-preemptible."""
    return Preemptibility.NON_PREEMPTIBLE if value >= THRESHOLD else Preemptibility.PREEMPTIBLE


class QueuePreemptionPolicy(StrEnum):
    """Whom a queue's workloads may evict, in Kueue's words. Newer: created after the one that wants to start."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class FairSharingStrategy(StrEnum):
    """When Kueue's fair sharing lets a queue take from another, in Kueue's words.

    Its own share, with what wants to start, is at most what the other's is without the victim; or less than what the
    other's is now.
    """

    AT_MOST_FINAL = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL = "LessThanInitialShare"
