"""Runs end when their time is over or their GPUs do nothing for too long, and are announced before.

No scheduler does this, so Rung does on every cluster. A run is what began at `started_at`: an eviction or a stop ends
it, and the next one has the whole time again. Idle time begins when the last of its GPUs falls idle, and again after
each time one worked; where nothing measures them, no idle limit acts. No run is stopped without notice: a rule that
comes or tightens while something runs leaves it the notice from then on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import F, IntegerField, Min
from django.utils import timezone

from portal.kit.errors import RungError
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.selectors.runtime_rules import Allowance, allowances
from workloads.forecast.selectors.runtime_rules import CLOCKS, IDLE, LimitClock, rule_text
from workloads.lifecycle.services.actions import stop
from workloads.state.models import DesiredPhase, EventType, Workload, WorkloadEvent
from workloads.state.rules import HOLDING
from workloads.state.services import lock, note

BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class RunEnd:
    """When a run is stopped, and by whose rule. `notified_at`: None before the notice."""

    clock: LimitClock
    since: datetime
    at: datetime
    allowance: Allowance
    notified_at: datetime | None

    @property
    def idle(self) -> bool:
        """Because its GPUs do nothing."""
        return self.clock is IDLE


def run_end(workload: Workload) -> RunEnd | None:
    """When this run will be stopped if nothing changes: the earlier of its ends; None: nothing bounds it now."""
    if not _runs(workload):
        return None
    now = timezone.now()
    ends = [end for clock in CLOCKS if (end := _end_by(clock, workload, now))]
    return min(ends, key=lambda end: end.at, default=None)


def enforce(now: datetime | None = None) -> int:
    """Tell every run whose end is near, stop every one whose time is over; answers how many were stopped."""
    now = now or timezone.now()
    return sum(_act(workload, end, now) for clock in CLOCKS for workload, end in _runs_near_end(clock, now))


def _runs_near_end(clock: LimitClock, now: datetime) -> Iterator[tuple[Workload, RunEnd]]:
    """Runs that a rule bounds, from their notice on. Reads only what the shortest rule of a category reaches."""
    notice = Min(F("minutes") - F("notice_minutes"), output_field=IntegerField())
    shortest = clock.kind._default_manager.order_by().values_list("category").annotate(minutes=notice)
    for category, minutes in shortest:
        began = clock.began_by(now - timedelta(minutes=minutes))
        rows = Workload.objects.filter(
            began,
            category=category,
            phase__in=HOLDING,
            desired_phase=DesiredPhase.RUNNING,
            started_at__isnull=False,
            deleted_at__isnull=True,
            type__fixed=False,
        ).order_by("pk")
        for batch in _batches(rows.only("project", "category", "started_at", "phase_at").iterator(BATCH)):
            yield from _near_end_of(clock, batch, now)


def _near_end_of(clock: LimitClock, batch: Sequence[Workload], now: datetime) -> Iterator[tuple[Workload, RunEnd]]:
    projects = Project.objects.filter(pk__in={row.project_id for row in batch}).select_related("department")
    limits, starts = allowances(list(projects), clock.kind), clock.starts(batch, now)
    ending: dict[UUID, tuple[Allowance, datetime]] = {}
    for row in batch:
        limit, since = limits.get((row.project_id, row.category)), starts.get(str(row.pk))
        if limit and since and now >= limit.ends(since) - limit.notice:
            ending[row.pk] = limit, since
    whole = Workload.objects.select_related("type", "project__department", "project__cluster")
    notified = _notified(clock, {key: since for key, (_limit, since) in ending.items()})
    for workload in whole.filter(pk__in=ending).order_by("pk"):
        limit, since = ending[workload.pk]
        yield workload, _end(clock, limit, since, notified.get(workload.pk), now)


def _batches(rows: Iterator[Workload]) -> Iterator[list[Workload]]:
    while batch := [row for row, _ in zip(rows, range(BATCH), strict=False)]:
        yield batch


def _notified(clock: LimitClock, since: Mapping[UUID, datetime]) -> dict[UUID, datetime]:
    """When the end of each of these runs was first announced, since its clock started."""
    events = WorkloadEvent.objects.filter(workload__in=since, reason=clock.notice_code).order_by("-at")
    return {key: at for key, at in events.values_list("workload", "at") if at >= since[key]}


def _end_by(clock: LimitClock, workload: Workload, now: datetime) -> RunEnd | None:
    found = allowances([workload.project], clock.kind).get((workload.project_id, workload.category))
    since = clock.starts([workload], now).get(str(workload.pk)) if found else None
    if found is None or since is None:
        return None
    return _end(clock, found, since, _notified(clock, {workload.pk: since}).get(workload.pk), now)


def _end(
    clock: LimitClock, allowance: Allowance, since: datetime, notified_at: datetime | None, now: datetime
) -> RunEnd:
    """The rule's end, or later: after a late notice or none, the whole notice period remains."""
    at = max(allowance.ends(since), (notified_at or now) + allowance.notice)
    return RunEnd(clock, since, at, allowance, notified_at)


def _act(workload: Workload, end: RunEnd, now: datetime) -> bool:
    if end.notified_at is None:
        _notify_near_end(workload, end, now)
        return False
    return now >= end.at and _stop(workload, end, now)


def _notify_near_end(workload: Workload, end: RunEnd, now: datetime) -> None:
    rule = rule_text(end.clock, end.allowance)
    unless = "Use the GPUs or save your work." if end.idle else "Save your work."
    message = f"Stops at {end.at:%Y-%m-%d %H:%M} UTC: {rule}. {unless}"
    note(workload=workload, at=now, type_=EventType.ACTION, reason=end.clock.notice_code, message=message)


def _stop(workload: Workload, end: RunEnd, now: datetime) -> bool:
    """False: the run has ended by itself or by its people, or its kind cannot be stopped."""
    message = f"Stopped: {rule_text(end.clock, end.allowance)}. You can resume it."
    began = workload.started_at
    try:
        with transaction.atomic():
            lock(workload)
            if not _runs(workload) or workload.started_at != began:
                return False
            note(workload=workload, at=now, type_=EventType.ACTION, reason=end.clock.reached_code, message=message)
            stop(workload=workload, actor=SYSTEM)
    except RungError:
        return False
    return True


def _runs(workload: Workload) -> bool:
    return (
        workload.phase in HOLDING
        and workload.desired_phase == DesiredPhase.RUNNING
        and workload.started_at is not None
        and not workload.type.fixed
    )
