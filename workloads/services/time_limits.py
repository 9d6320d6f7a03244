"""Runs end when their time is over, and are told before. No scheduler does this, so Rung does on every cluster.

A run is what began at `started_at`: an eviction or a stop ends it, and the next one has the whole time again. Nobody is
stopped without notice: a rule that comes or tightens while something runs leaves it the notice from then on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from portal.core.actors import SYSTEM
from portal.core.display import duration_text
from portal.core.errors import RungError
from tenants.models import Project
from tenants.time_limits import Allowance, allowances
from workloads.lifecycle import HOLDING
from workloads.models import DesiredPhase, EventType, Workload, WorkloadEvent
from workloads.services.lifecycle import stop
from workloads.services.moves import note

NOTICE = "TimeLimitNear"
REACHED = "TimeLimitReached"


@dataclass(frozen=True, slots=True)
class End:
    """When a run is stopped, and by whose rule. `told_at`: None while nobody has been told."""

    at: datetime
    allowance: Allowance
    told_at: datetime | None


def end_of(workload: Workload) -> End | None:
    """When this run will be stopped; None: nothing runs, or no rule bounds it."""
    if not _runs(workload):
        return None
    found = allowances([workload.project]).get((workload.project_id, workload.category))
    return _end(workload, found, timezone.now()) if found else None


def time_limit_sentences(project: Project, category: str) -> Sequence[str]:
    """What a run of this category is to know beforehand; nothing where no rule bounds it."""
    found = allowances([project]).get((project.pk, category))
    if found is None:
        return ()
    return (f"It will be stopped in the end: {_rule(found)}. It is told {_lasting(found.notice)} before.",)


def enforce(now: datetime | None = None) -> int:
    """Tell every run whose end is near, stop every one whose time is over; answers how many were stopped."""
    now = now or timezone.now()
    return sum(_act(workload, end, now) for workload, end in _near_their_end(now))


def _near_their_end(now: datetime) -> Iterator[tuple[Workload, End]]:
    """Runs that a rule bounds, from their notice on."""
    ruled = Q(timelimit_rules__isnull=False) | Q(department__timelimit_rules__isnull=False)
    projects = list(Project.objects.filter(ruled).distinct().select_related("department"))
    limits = allowances(projects)
    categories = {category for _, category in limits}
    rows = Workload.objects.filter(
        project__in=projects,
        category__in=categories,
        phase__in=HOLDING,
        desired_phase=DesiredPhase.RUNNING,
        started_at__isnull=False,
        deleted_at__isnull=True,
        type__fixed=False,
    )
    for workload in rows.select_related("type", "project__department", "project__cluster").iterator(chunk_size=500):
        found = limits.get((workload.project_id, workload.category))
        if found and now >= found.ends(_began(workload)) - found.notice:
            yield workload, _end(workload, found, now)


def _end(workload: Workload, allowance: Allowance, now: datetime) -> End:
    """The rule's end, or later: whoever was told late, or not yet, has the whole notice."""
    began = _began(workload)
    said = WorkloadEvent.objects.filter(workload=workload, reason=NOTICE, at__gte=began)
    told_at = said.order_by("at").values_list("at", flat=True).first()
    return End(max(allowance.ends(began), (told_at or now) + allowance.notice), allowance, told_at)


def _began(workload: Workload) -> datetime:
    return workload.started_at or workload.phase_at


def _act(workload: Workload, end: End, now: datetime) -> bool:
    if end.told_at is None:
        _tell(workload, end, now)
        return False
    return now >= end.at and _stop(workload, end, now)


def _tell(workload: Workload, end: End, now: datetime) -> None:
    message = f"It will be stopped at {end.at:%Y-%m-%d %H:%M} UTC: {_rule(end.allowance)}. Save what you need."
    note(workload=workload, at=now, type_=EventType.ACTION, reason=NOTICE, message=message)


def _stop(workload: Workload, end: End, now: datetime) -> bool:
    """False: its people were faster, or its kind cannot be stopped."""
    message = f"Stopped: {_rule(end.allowance)}. Resume it for another run."
    try:
        with transaction.atomic():
            note(workload=workload, at=now, type_=EventType.ACTION, reason=REACHED, message=message)
            stop(workload=workload, actor=SYSTEM)
    except RungError:
        return False
    return True


def _rule(allowance: Allowance) -> str:
    return f"runs of {allowance.rule_of} last {_lasting(allowance.lasts)} at most"


def _lasting(time: timedelta) -> str:
    return duration_text(time.total_seconds())


def _runs(workload: Workload) -> bool:
    return (
        workload.phase in HOLDING
        and workload.desired_phase == DesiredPhase.RUNNING
        and workload.started_at is not None
        and not workload.type.fixed
    )
