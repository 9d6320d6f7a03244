"""Preemptibility of a workload, and what follows from the value of its priority alone."""

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
