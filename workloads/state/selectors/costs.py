"""What an eviction now would lose: GPU time since the last checkpoint, or what comparable workloads would lose."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from workloads.state.models import Workload
from workloads.state.rules import (
    HOLDING,
    CheckpointMedians,
    checkpoint_medians,
    cost_at_risk,
    last_checkpoint,
    lost_gpu_seconds,
    reports_checkpoints,
)


def last_checkpoint_at(workload: Workload) -> datetime | None:
    """The last checkpoint of the run that goes on, by what the workload declares; None: no run, or none declared."""
    started = workload.started_at
    return started and last_checkpoint(workload.spec, started=started, now=timezone.now())


def unsaved_gpu_seconds(workload: Workload) -> int:
    """GPU-seconds of the run that goes on since its last checkpoint, or since its start; 0 while it holds no GPU."""
    if workload.started_at is None:
        return 0
    held, saved = workload.allocated_gpu_milli, last_checkpoint_at(workload)
    return lost_gpu_seconds(held, started=workload.started_at, checkpoint=saved, at=timezone.now())


MOST_SAMPLED: Final = 500
"""So many running workloads, in the order of their random ids, are asked for their checkpoints."""


def known_medians(now: datetime) -> CheckpointMedians:
    """The medians of a sample of the running workloads of all projects. One query."""
    running = Workload.objects.filter(phase__in=HOLDING, started_at__lte=now, deleted_at__isnull=True)
    sample = running.order_by("pk").values("pk")[:MOST_SAMPLED]
    rows = Workload.objects.filter(pk__in=sample).order_by()
    return checkpoint_medians(
        (category, now - (last_checkpoint({"annotations": notes}, started=started, now=now) or started))
        for category, started, notes in rows.values_list("category", "started_at", "spec__annotations")
        if started and reports_checkpoints(notes, now=now)
    )


def with_costs(rows: Sequence[Workload]) -> Sequence[Workload]:
    """The same rows, those that run and hold GPUs with their `cost_at_risk`. At most one query."""
    now, medians = timezone.now(), None
    for row in rows:
        if row.phase in HOLDING and row.allocated_gpu_milli and row.started_at:
            medians = medians or known_medians(now)
            notes = row.spec.get("annotations")
            row.cost_at_risk = cost_at_risk(
                row.allocated_gpu_milli, notes, row.category, started=row.started_at, now=now, medians=medians
            )
    return rows


def gpu_seconds_at_risk(rows: QuerySet[Workload]) -> list[int]:
    """What an eviction now would lose of each of these that runs and holds GPUs, in GPU-seconds. Two queries."""
    now = timezone.now()
    running = rows.filter(phase__in=HOLDING, started_at__isnull=False, allocated_gpu_milli__gt=0).order_by()
    found = list(running.values_list("allocated_gpu_milli", "spec__annotations", "category", "started_at"))
    medians = known_medians(now) if found else CheckpointMedians({})
    return [
        cost_at_risk(gpus, notes, category, started=started, now=now, medians=medians).gpu_seconds
        for gpus, notes, category, started in found
        if started
    ]
