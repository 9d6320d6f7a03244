"""Runs end when their time is over or their GPUs do nothing for too long, and are told before.

No scheduler does this, so Rung does on every cluster. A run is what began at `started_at`: an eviction or a stop ends
it, and the next one has the whole time again. Idle time begins when the last of its GPUs falls idle, and anew after
each time one worked; where nothing measures them, no idle limit acts. Nobody is stopped without notice: a rule that
comes or tightens while something runs leaves it the notice from then on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from clusters.services import gpu_use
from portal.core.actors import SYSTEM
from portal.core.display import duration_text
from portal.core.errors import RungError
from tenants.limits import Allowance, allowances
from tenants.models import IdleLimit, Limit, Project, TimeLimit
from workloads.lifecycle import HOLDING
from workloads.models import DesiredPhase, EventType, Workload, WorkloadEvent
from workloads.services.lifecycle import stop
from workloads.services.locking import lock
from workloads.services.moves import note

BATCH: Final = 500
Starts = Callable[[Sequence[Workload], datetime], Mapping[str, datetime]]
"""Workloads and the moment, to when the clock of each started, by id; no key: it does not run."""


def _runs_began(workloads: Sequence[Workload], _now: datetime) -> Mapping[str, datetime]:
    return {str(each.pk): each.started_at or each.phase_at for each in workloads}


def _fell_idle(workloads: Sequence[Workload], now: datetime) -> Mapping[str, datetime]:
    return gpu_use.idle_since([str(each.pk) for each in workloads], now=now)


@dataclass(frozen=True, slots=True)
class Clock:
    """One sort of limit: its rules, when its clock starts, and how people are told."""

    kind: type[Limit]
    starts: Starts
    near: str
    reached: str
    rule: str
    """Of whose rule and how long."""


TIME: Final = Clock(TimeLimit, _runs_began, "TimeLimitNear", "TimeLimitReached", "runs of {0} last {1} at most")
IDLE: Final = Clock(
    IdleLimit, _fell_idle, "IdleLimitNear", "IdleLimitReached", "the GPUs of runs of {0} do nothing for {1} at most"
)
CLOCKS: Final = (TIME, IDLE)


@dataclass(frozen=True, slots=True)
class End:
    """When a run is stopped, and by whose rule. `told_at`: None while nobody has been told."""

    clock: Clock
    since: datetime
    at: datetime
    allowance: Allowance
    told_at: datetime | None

    @property
    def idle(self) -> bool:
        """Because its GPUs do nothing."""
        return self.clock is IDLE


def end_of(workload: Workload) -> End | None:
    """When this run will be stopped if nothing changes: the earlier of its ends; None: nothing bounds it now."""
    if not _runs(workload):
        return None
    now = timezone.now()
    ends = [end for clock in CLOCKS if (end := _end_by(clock, workload, now))]
    return min(ends, key=lambda end: end.at, default=None)


def limit_sentences(project: Project, category: str) -> Sequence[str]:
    """What a run of this category is to know beforehand; nothing where no rule bounds it."""
    found = ((clock, allowances([project], clock.kind).get((project.pk, category))) for clock in CLOCKS)
    return [_beforehand(clock, limit, project) for clock, limit in found if limit]


def enforce(now: datetime | None = None) -> int:
    """Tell every run whose end is near, stop every one whose time is over; answers how many were stopped."""
    now = now or timezone.now()
    return sum(_act(workload, end, now) for clock in CLOCKS for workload, end in _near_their_end(clock, now))


def _beforehand(clock: Clock, allowance: Allowance, project: Project) -> str:
    if clock is IDLE and not gpu_use.measures(project.cluster, now=timezone.now()):
        return (
            f"A rule says that {_rule(clock, allowance)}, but nothing measures GPUs on this cluster: it does not act."
        )
    return f"It will be stopped in the end: {_rule(clock, allowance)}. It is told {_lasting(allowance.notice)} before."


def _near_their_end(clock: Clock, now: datetime) -> Iterator[tuple[Workload, End]]:
    """Runs that a rule bounds, from their notice on."""
    name = clock.kind.__name__.lower()
    ruled = Q(**{f"{name}_rules__isnull": False}) | Q(**{f"department__{name}_rules__isnull": False})
    projects = list(Project.objects.filter(ruled).distinct().select_related("department"))
    limits = allowances(projects, clock.kind)
    categories = {category for _, category in limits}
    rows = Workload.objects.filter(
        project__in=projects,
        category__in=categories,
        phase__in=HOLDING,
        desired_phase=DesiredPhase.RUNNING,
        started_at__isnull=False,
        deleted_at__isnull=True,
        type__fixed=False,
    ).order_by("pk")
    for batch in _batches(rows.select_related("type", "project__department", "project__cluster").iterator(BATCH)):
        starts = clock.starts(batch, now)
        for workload in batch:
            found, since = limits.get((workload.project_id, workload.category)), starts.get(str(workload.pk))
            if found and since and now >= found.ends(since) - found.notice:
                yield workload, _end(clock, workload, found, since, now)


def _batches(rows: Iterator[Workload]) -> Iterator[list[Workload]]:
    while batch := [row for row, _ in zip(rows, range(BATCH), strict=False)]:
        yield batch


def _end_by(clock: Clock, workload: Workload, now: datetime) -> End | None:
    found = allowances([workload.project], clock.kind).get((workload.project_id, workload.category))
    since = clock.starts([workload], now).get(str(workload.pk)) if found else None
    return _end(clock, workload, found, since, now) if found and since else None


def _end(clock: Clock, workload: Workload, allowance: Allowance, since: datetime, now: datetime) -> End:
    """The rule's end, or later: whoever was told late, or not yet, has the whole notice."""
    said = WorkloadEvent.objects.filter(workload=workload, reason=clock.near, at__gte=since)
    told_at = said.order_by("at").values_list("at", flat=True).first()
    at = max(allowance.ends(since), (told_at or now) + allowance.notice)
    return End(clock, since, at, allowance, told_at)


def _act(workload: Workload, end: End, now: datetime) -> bool:
    if end.told_at is None:
        _tell(workload, end, now)
        return False
    return now >= end.at and _stop(workload, end, now)


def _tell(workload: Workload, end: End, now: datetime) -> None:
    rule = _rule(end.clock, end.allowance)
    unless = "Use them, or save what you need." if end.idle else "Save what you need."
    message = f"It will be stopped at {end.at:%Y-%m-%d %H:%M} UTC: {rule}. {unless}"
    note(workload=workload, at=now, type_=EventType.ACTION, reason=end.clock.near, message=message)


def _stop(workload: Workload, end: End, now: datetime) -> bool:
    """False: the run has ended by itself or by its people, or its kind cannot be stopped."""
    message = f"Stopped: {_rule(end.clock, end.allowance)}. Resume it for another run."
    began = workload.started_at
    try:
        with transaction.atomic():
            lock(workload)
            if not _runs(workload) or workload.started_at != began:
                return False
            note(workload=workload, at=now, type_=EventType.ACTION, reason=end.clock.reached, message=message)
            stop(workload=workload, actor=SYSTEM)
    except RungError:
        return False
    return True


def _rule(clock: Clock, allowance: Allowance) -> str:
    return clock.rule.format(allowance.rule_of, _lasting(allowance.lasts))


def _lasting(time: timedelta) -> str:
    return duration_text(time.total_seconds())


def _runs(workload: Workload) -> bool:
    return (
        workload.phase in HOLDING
        and workload.desired_phase == DesiredPhase.RUNNING
        and workload.started_at is not None
        and not workload.type.fixed
    )
