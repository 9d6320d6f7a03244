"""A waiting workload's place in its queue, as its scheduler counts: told when asked, and shown with its age."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from clusters.flavours.kueue_inquiries import PLACE, PLACED
from clusters.models import ClusterEvent
from workloads.lifecycle import WAITING
from workloads.models import DesiredPhase, Workload

FRESH: Final = timedelta(minutes=2)
"""An older answer is of another queue: those before it may have been let go since."""


@dataclass(frozen=True, slots=True)
class Place:
    """1 is next. `at`: when the scheduler said so."""

    number: int
    among: int
    at: datetime


def told_place(workload: Workload) -> Place | None:
    """None unless it waits and its scheduler has said lately where."""
    if workload.phase not in WAITING or workload.desired_phase != DesiredPhase.RUNNING:
        return None
    said = ClusterEvent.objects.filter(
        cluster=workload.project.cluster_id,
        owner_id=str(workload.pk),
        reason=PLACE,
        at__gt=max(timezone.now() - FRESH, workload.phase_at),
    )
    newest = said.order_by("-at").first()
    found = PLACED.match(newest.message) if newest else None
    if newest is None or found is None:
        return None
    return Place(int(found["place"]), int(found["among"]), newest.at)
