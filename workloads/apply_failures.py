"""Workloads that failed to apply: they ended because their cluster refused their objects. They can be retried."""

from typing import Final

from django.db.models import Q

from workloads.models import DesiredPhase, EventType, Phase, Workload

FAILED_TO_APPLY: Final = Q(
    phase=Phase.FAILED, desired_phase=DesiredPhase.RUNNING, apply_error__gt="", deleted_at__isnull=True
)
"""The same as `failed_to_apply`, for a query. Pods that failed leave no error of applying."""


def failed_to_apply(workload: Workload) -> bool:
    """Did it end in an error of applying, and is it still wanted?"""
    ended = workload.phase == Phase.FAILED and bool(workload.apply_error)
    return ended and workload.desired_phase == DesiredPhase.RUNNING and workload.deleted_at is None


def failed_pointer(workload: Workload) -> str:
    """The field that the cluster refused, as a JSON pointer into the object; empty where it named none."""
    failure = workload.timeline.filter(type=EventType.PHASE, phase=Phase.FAILED).order_by("-at", "-pk").first()
    return str(failure.detail.get("pointer") or "") if failure else ""
