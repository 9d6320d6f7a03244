"""Which of a person's workloads need them now: evicted and not back, not handed over, unanswered, waiting long.

Cheap on purpose, as home refreshes itself: the reason is the scheduler's own; the workload's page runs the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from workloads.lifecycle import NO_CONTROLLER
from workloads.models import DesiredPhase, Phase, Workload

LONG: Final = timedelta(minutes=10)
MOST: Final = 6
WAITING: Final = (Phase.PENDING, Phase.CREATING, Phase.INITIALIZING, Phase.RESUMING)


@dataclass(frozen=True, slots=True)
class Need:
    """One workload, why it is listed, and the sentence that explains its state."""

    workload: Workload
    why: str
    sentence: str


def needs_attention(rows: QuerySet[Workload]) -> list[Need]:
    """At most six, the longest wait first."""
    wanted = rows.filter(desired_phase=DesiredPhase.RUNNING, phase__in=WAITING)
    long_ago = timezone.now() - LONG
    unanswered = Q(phase_reason=NO_CONTROLLER)
    chosen = wanted.filter(Q(preempted_count__gt=0) | Q(phase_at__lte=long_ago) | ~Q(apply_error="") | unanswered)
    return list(_needs(chosen.order_by("phase_at", "id")[:MOST]))


def _needs(rows: QuerySet[Workload]) -> Iterator[Need]:
    for workload in rows:
        yield Need(workload, _why(workload), workload.apply_error or workload.phase_message)


def _why(workload: Workload) -> str:
    if workload.phase_reason == NO_CONTROLLER:
        return "unanswered"
    if workload.preempted_count:
        return "evicted"
    return "unreachable" if workload.apply_error else "waiting"
