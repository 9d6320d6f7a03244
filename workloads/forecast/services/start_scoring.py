"""Start estimates that were shown are stored once a wait, and compared with the moment at which it really started."""

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from workloads.forecast.models import ForecastQuestion, StartResult, StoredStartEstimate
from workloads.forecast.rules.estimates import StartEstimate
from workloads.forecast.selectors.start_estimate import start_estimate
from workloads.forecast.services.scoring import AT_ONCE, RETENTION, UNWATCHED, count_result
from workloads.state.models import DesiredPhase, EventType, Phase, Workload
from workloads.state.rules import HOLDING

LATEST: Final = timedelta(minutes=2)
"""So long past its p90 an observation of the start is waited for."""
STARTED: Final = (*sorted(HOLDING), Phase.INITIALIZING, Phase.COMPLETED, Phase.FAILED)


def shown_estimate(workload: Workload) -> StartEstimate | None:
    """An estimate that a reader is about to see; the first one of each wait is stored."""
    found = start_estimate(workload)
    if found is None or found.median is None or found.p90 is None:
        return found
    cluster = workload.project.cluster
    StoredStartEstimate.objects.get_or_create(
        workload=workload,
        waits_since=workload.phase_at,
        defaults={
            "cluster": cluster,
            "at": found.at,
            "flavour": cluster.flavour,
            "median_at": found.median,
            "p90_at": found.p90,
        },
    )
    return found


def score_starts(now: datetime | None = None) -> int:
    """Judge the estimates of what has started, or should have; answers how many. Drops old ones."""
    now = now or timezone.now()
    rows = StoredStartEstimate.objects.filter(result="").select_related("cluster", "workload").order_by("at")
    judged = sum(_judge(row, now) for row in rows[:AT_ONCE])
    StoredStartEstimate.objects.filter(at__lt=now - RETENTION).delete()
    return judged


def _judge(row: StoredStartEstimate, now: datetime) -> bool:
    started = _started(row)
    result = _result(row, started, now)
    if result is None:
        return False
    with transaction.atomic():
        values = {"result": result, "started_at": started, "judged_at": now}
        judged = StoredStartEstimate.objects.filter(pk=row.pk, result="").update(**values)
        if judged:
            count_result(row.cluster, row.flavour, row.at, result, question=ForecastQuestion.START)
    return bool(judged)


def _started(row: StoredStartEstimate) -> datetime | None:
    """When its pods first had nodes in this wait or after it."""
    phases = row.workload.timeline.filter(type=EventType.PHASE, phase__in=STARTED, at__gte=row.waits_since)
    return phases.order_by("at").values_list("at", flat=True).first()


def _result(row: StoredStartEstimate, started: datetime | None, now: datetime) -> StartResult | None:
    """None: it still waits, and its p90 has not passed."""
    if _acted_on(row, started or now) or row.cluster.flavour != row.flavour:
        return StartResult.NOT_JUDGED
    if started is None:
        if now <= row.p90_at + LATEST:
            return None
        seen = row.cluster.observed_at
        watched = seen is not None and now - seen <= UNWATCHED
        return StartResult.LATE if watched else StartResult.NOT_JUDGED
    if started <= row.median_at:
        return StartResult.BY_MEDIAN
    return StartResult.BY_P90 if started <= row.p90_at else StartResult.LATE


def _acted_on(row: StoredStartEstimate, until: datetime) -> bool:
    """Has it been stopped, deleted or changed by its people before it started?"""
    done = row.workload.timeline.filter(type=EventType.ACTION, at__gt=row.at, at__lte=until)
    stopped = row.workload.desired_phase != DesiredPhase.RUNNING and row.workload.started_at is None
    return stopped or done.exclude(reason="Submitted").exists()
