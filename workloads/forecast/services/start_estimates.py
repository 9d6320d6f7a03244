"""Start estimates: by the model, or by a worker where that takes too long; stored where shown, and compared. And what
would start now under other quotas.

A page or request whose estimate runs out of time asks for one; a worker then computes all that waits in the node pool,
and pages show it for some minutes. The first estimate of a wait that was shown is compared with the real start.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from scheduling.model.snapshot import Snapshot
from scheduling.state.workspace import OutOfTime
from workloads.forecast.models import ComputedStarts, ForecastQuestion, StartResult, StoredStartEstimate
from workloads.forecast.rules.estimates import EstimateBasis, ExpectedMove, StartEstimate
from workloads.forecast.selectors.snapshot import observed_cluster, with_present_queues
from workloads.forecast.selectors.start_estimate import OUT_OF_TIME, expected_move, start_estimate, start_estimates
from workloads.forecast.selectors.time_budget import time_budget
from workloads.forecast.selectors.waiting import estimates_possible, start_of
from workloads.forecast.services.scoring import AT_ONCE, RETENTION, UNWATCHED, count_result
from workloads.state.models import DesiredPhase, EventType, Phase, Workload
from workloads.state.rules import HOLDING, NO_CONTROLLER, WAITING

WORKER_SECONDS: Final = 60.0
"""How long the model may take in a worker."""
RENEWED: Final = timedelta(minutes=5)
"""An older estimate is computed again when it is shown. A request without a result for so long is repeated."""
SHOWN: Final = timedelta(minutes=15)
"""Older ones are not shown."""
CLAIM: Final = timedelta(minutes=2)
"""For so long no other worker takes what a worker has begun."""
KEPT: Final = timedelta(days=1)
NEXT_POOL: Final = "next_pool"
COMPUTING: Final = "computing"
COMPUTING_WHY: Final = (
    "the model needs more than 3 s for this cluster, and a worker was asked to compute it: look again in a minute"
)


def estimated_start(workload: Workload) -> StartEstimate | None:
    """By the model now, or by a worker in the last minutes. None: it does not wait for its scheduler.

    The estimate has no times where Rung tries another node pool before the workload would start.
    """
    move = expected_move(workload)
    if move and move.comes_before(None):
        return _none_before(move, workload.project.cluster.observed_at)
    found = _in_its_pool(workload)
    if found and move and move.comes_before(found.p90):
        return _none_before(move, found.data_at)
    return found and replace(found, move=move)


def _none_before(move: ExpectedMove, data_at: datetime | None) -> StartEstimate:
    why = f"Rung tries {move.pool} before it would start in {move.here}"
    return StartEstimate(move.now, data_at, code=NEXT_POOL, why=why, move=move)


def _in_its_pool(workload: Workload) -> StartEstimate | None:
    """As if it stayed there."""
    now = timezone.now()
    row = ComputedStarts.objects.filter(cluster=workload.project.cluster_id, pool_name=workload.pool_name).first()
    found = start_estimate(workload, seconds=0 if row and (_is_shown(row, now) or _is_awaited(row, now)) else None)
    if found is None or found.code != OUT_OF_TIME:
        return found
    known = _stored(row, workload, now) if row else None
    if row is None or not (_is_awaited(row, now) or (known and _age(row, now) <= RENEWED)):
        _request(workload, now)
    return known or replace(found, code=COMPUTING, why=COMPUTING_WHY)


def _age(row: ComputedStarts, now: datetime) -> timedelta:
    return now - row.computed_at if row.computed_at else timedelta.max


def _is_shown(row: ComputedStarts, now: datetime) -> bool:
    return _age(row, now) <= SHOWN


def _is_awaited(row: ComputedStarts, now: datetime) -> bool:
    return row.is_due and now - row.requested_at <= RENEWED


def _stored(row: ComputedStarts, workload: Workload, now: datetime) -> StartEstimate | None:
    """None: too old, or of another wait or another version of the workload."""
    stored = row.starts.get(str(workload.pk))
    if not stored or not _is_shown(row, now) or stored["generation"] != workload.generation:
        return None
    if row.computed_at and row.computed_at < workload.phase_at:
        return None
    median, p90 = (datetime.fromisoformat(stored[name]) if stored[name] else None for name in ("median", "p90"))
    return StartEstimate(now, row.data_at, median, p90, stored["why"], stored["code"], EstimateBasis.of_json(row.basis))


def _request(workload: Workload, now: datetime) -> None:
    ComputedStarts.objects.update_or_create(
        cluster_id=workload.project.cluster_id, pool_name=workload.pool_name, defaults={"requested_at": now}
    )


def compute_requested(now: datetime | None = None) -> bool:
    """Compute the pool that was asked for first and that no other worker has; was there one? Drops old ones."""
    now = now or timezone.now()
    ComputedStarts.objects.filter(requested_at__lt=now - KEPT).delete()
    due = ComputedStarts.objects.filter(Q(computed_at=None) | Q(computed_at__lt=F("requested_at")))
    free = due.filter(Q(claimed_until=None) | Q(claimed_until__lt=now)).select_related("cluster")
    row = free.order_by("requested_at").first()
    if row is None:
        return False
    same = ComputedStarts.objects.filter(pk=row.pk, claimed_until=row.claimed_until)
    if same.update(claimed_until=now + CLAIM):
        _compute(row, now)
    return True


def _compute(row: ComputedStarts, now: datetime) -> None:
    waiting = Workload.objects.filter(project__cluster=row.cluster, pool_name=row.pool_name, phase=Phase.PENDING)
    waiting = waiting.filter(desired_phase=DesiredPhase.RUNNING, deleted_at=None).select_related("project__cluster")
    found = start_estimates(list(waiting), seconds=WORKER_SECONDS)
    basis = next((each.basis for each in found.values() if each.basis != EstimateBasis()), EstimateBasis())
    ComputedStarts.objects.filter(pk=row.pk).update(
        computed_at=now,
        claimed_until=None,
        data_at=row.cluster.observed_at,
        starts={str(workload.pk): _json(workload, each) for workload, each in found.items()},
        basis=basis.as_json(),
    )


def _json(workload: Workload, found: StartEstimate) -> Mapping[str, Any]:
    return {
        "generation": workload.generation,
        "median": found.median and found.median.isoformat(),
        "p90": found.p90 and found.p90.isoformat(),
        "code": found.code,
        "why": found.why,
    }


LATEST: Final = timedelta(minutes=2)
"""How long after its p90 Rung still waits for the observation of the start."""
STARTED: Final = (*sorted(HOLDING), Phase.INITIALIZING, Phase.COMPLETED, Phase.FAILED)


def shown_estimate(workload: Workload) -> StartEstimate | None:
    """An estimate that a reader is about to see; the first one of each wait is stored."""
    found = estimated_start(workload)
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
    """Whether a user stopped, deleted or changed the workload before it started."""
    done = row.workload.timeline.filter(type=EventType.ACTION, at__gt=row.at, at__lte=until)
    stopped = row.workload.desired_phase != DesiredPhase.RUNNING and row.workload.started_at is None
    return stopped or done.exclude(reason="Submitted").exists()


MOST_TRIED: Final = 25
"""Waiting workloads that one trial asks the model about."""
TRIAL_SECONDS: Final = 1.0


class StartTrial:
    """Which waiting workloads start, each by itself, under other quotas and not under those of now.

    1. `StartTrial(queues)` reads who waits there, the first in the queue first, and their clusters. queues: ids of
       projects by node pool.
    2. `under_planned()`, called in a savepoint where the other quotas are set, reads these.
    3. `compared()` asks the model.
    """

    def __init__(self, queues: Mapping[NodePool, Collection[int]]) -> None:
        self._pools = {(each.cluster_id, each.name): each for each in queues if estimates_possible(each.cluster)}
        self._estimated = len(self._pools) == len(queues)
        self._waiting = _first_waiting(queues) if queues else []
        clusters = {self._pools[key].cluster for row in self._waiting if (key := _place(row)) in self._pools}
        self._now = {each: observed_cluster(each).snapshot for each in clusters}
        self._planned: dict[Cluster, Snapshot] = {}

    def under_planned(self) -> None:
        self._planned = {each: with_present_queues(each, snapshot) for each, snapshot in self._now.items()}

    def compared(self) -> dict[str, Any]:
        """As JSON. tried: how many were, within TRIAL_SECONDS; more: others wait there, too."""
        tried: list[Workload] = []
        found: list[dict[str, Any]] = []
        try:
            with time_budget(TRIAL_SECONDS):
                for row in self._waiting[:MOST_TRIED]:
                    if pool := self._pools.get(_place(row)):
                        found += self._started(row, pool)
                        tried.append(row)
        except OutOfTime:
            pass
        estimated = self._estimated and (bool(tried) or not self._waiting)
        more = bool(tried) and len(self._waiting) > len(tried)
        return {"estimated": estimated, "tried": len(tried), "more": more, "workloads": found}

    def _started(self, row: Workload, pool: NodePool) -> Iterator[dict[str, Any]]:
        planned, now = (_shard(each[pool.cluster], pool) for each in (self._planned, self._now))
        evicts = start_of(row, pool, planned)
        if evicts is not None and start_of(row, pool, now) is None:
            gpus = row.gpu_milli / 1000 if row.gpu_milli % 1000 else row.gpu_milli // 1000
            names = {"name": row.name, "project": row.project.name}
            yield {"id": str(row.pk), **names, "gpus": gpus, "evicts": evicts}


def _place(row: Workload) -> tuple[Any, str]:
    return row.project.cluster_id, row.pool_name


def _shard(snapshot: Snapshot, pool: NodePool) -> Snapshot:
    return snapshot.shard(pool.name) if flavour_for(pool.cluster.flavour).traits.queues_by_pool else snapshot


def _first_waiting(queues: Mapping[NodePool, Collection[int]]) -> list[Workload]:
    """One more than is tried. Workloads without a controller are left out."""
    there = Q(pk__in=())
    for pool, projects in queues.items():
        there |= Q(project__in=projects, pool_name=pool.name)
    rows = Workload.objects.filter(
        there, phase__in=WAITING, desired_phase=DesiredPhase.RUNNING, deleted_at__isnull=True
    ).exclude(phase_reason=NO_CONTROLLER)
    known = rows.select_related("project__cluster", "project__department", "type", "priority")
    return list(known.order_by("-priority_value", "created_at")[: MOST_TRIED + 1])
