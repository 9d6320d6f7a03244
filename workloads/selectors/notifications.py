"""Entries of timelines that somebody may want to be told of."""

from django.db.models import Q, QuerySet

from workloads.models import EventType, WorkloadEvent
from workloads.notification_types import PHASES, REASONS


def tellable(after: int) -> QuerySet[WorkloadEvent]:
    """Entries behind this number that have a type of notification, oldest first."""
    told = Q(type=EventType.PREEMPTION) | Q(type=EventType.PHASE, phase__in=PHASES)
    told |= Q(type=EventType.ACTION, reason__in=REASONS)
    return WorkloadEvent.objects.filter(told, pk__gt=after).select_related("workload").order_by("pk")
