"""Workloads that failed to apply: they ended because their cluster refused their objects. They can be retried."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ApplyFailure:
    """What the cluster's server said, and the field it refused as a JSON pointer into the object, if it named one."""

    message: str
    pointer: str = ""


def failure_of(workload: Workload) -> ApplyFailure | None:
    """None unless it failed to apply."""
    if not failed_to_apply(workload):
        return None
    ends = workload.timeline.filter(type=EventType.PHASE, phase=Phase.FAILED).order_by("-at", "-pk")
    pointer = next((str(end.detail.get("pointer") or "") for end in ends[:1]), "")
    return ApplyFailure(workload.apply_error, pointer)
