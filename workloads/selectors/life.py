"""One workload over time: its waits and runs, its last checkpoint, its new timeline entries, and where it stands."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.utils import timezone

from workloads.checkpoints import last_checkpoint, lost_gpu_seconds
from workloads.lifecycle import ENDED, HOLDING, WAITING
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


def waited_seconds(workload: Workload) -> float:
    """Seconds without its pods since it was submitted, all waits together, up to now."""
    return workload.pending_seconds + (_since(workload.phase_at) if workload.phase in WAITING else 0)


def ran_seconds(workload: Workload) -> float:
    """Seconds with its pods, all runs together, up to now."""
    return workload.running_seconds + (_since(workload.phase_at) if workload.phase in HOLDING else 0)


def saved_at(workload: Workload) -> datetime | None:
    """The last checkpoint of the run that goes on, by what the workload declares; None: no run, or none declared."""
    started = workload.started_at
    return started and last_checkpoint(workload.spec, started=started, now=timezone.now())


def unsaved_gpu_seconds(workload: Workload) -> int:
    """GPU-seconds of the run that goes on since its last checkpoint, or since its start; 0 while it holds no GPU."""
    if workload.started_at is None:
        return 0
    held, saved = workload.allocated_gpu_milli, saved_at(workload)
    return lost_gpu_seconds(held, started=workload.started_at, checkpoint=saved, at=timezone.now())


def _since(moment: datetime) -> float:
    return max((timezone.now() - moment).total_seconds(), 0)


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
