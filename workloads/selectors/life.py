"""What happens to one workload from a moment on: its new timeline entries, and where it stands."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from workloads.lifecycle import ENDED
from workloads.models import Workload, WorkloadEvent

MOST: Final = 200


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a workload stands. `over`: `ended` or `deleted`, empty while something may still happen."""

    phase: str
    reason: str
    message: str
    at: datetime
    over: str


def entries_after(workload_id: UUID, key: int) -> tuple[list[WorkloadEvent], bool]:
    """The oldest entries that were written after the one with that key, and whether there are no others."""
    found = list(WorkloadEvent.objects.filter(workload=workload_id, pk__gt=key).order_by("pk")[: MOST + 1])
    return found[:MOST], len(found) <= MOST


def newest_entry(workload_id: UUID) -> int:
    """The key of its last entry, 0 without one."""
    keys = WorkloadEvent.objects.filter(workload=workload_id).order_by("-pk").values_list("pk", flat=True)
    return keys.first() or 0


def standing_now(workload_id: UUID) -> Standing | None:
    """Where it stands; None when it is gone for good."""
    row = Workload.objects.filter(pk=workload_id).only(*_READ).first()
    if row is None:
        return None
    over = "deleted" if row.deleted_at else "ended" if row.phase in ENDED else ""
    return Standing(row.phase, row.phase_reason, row.phase_message, row.phase_at, over)


_READ: Final = ("phase", "phase_reason", "phase_message", "phase_at", "deleted_at")
