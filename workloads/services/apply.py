"""Bringing a workload's objects to what its row wants. Runs in workers; every step may be repeated.

Due rows are claimed by compare-and-set: the claim moves `due_at` ahead by a lease and counts the attempt, so a worker
that dies leaves the row to the next sweep, and a row that kills its workers is given up after `MOST_ATTEMPTS`. What
cannot be reached is tried again, further apart each time, for ever: a cluster that is away is no reason to lose a
workload.
"""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from clusters.descriptions import AT_ONCE
from clusters.errors import ClusterChanged, ClusterError
from clusters.flavours import flavour_for
from clusters.models import ClusterState, ObservedPod
from clusters.ports import JobSpec, Reading
from clusters.services.former import made_for
from clusters.services.jobs import apply_job, delete_job
from clusters.services.pruned import dropped_by
from workloads.holding_back import held_back
from workloads.lifecycle import ENDED, HELD_BACK
from workloads.models import DesiredPhase, EventType, Phase, Workload
from workloads.queues import job_spec
from workloads.reprioritising import on_change_of
from workloads.services.moves import move, note
from workloads.services.reasons import keep_reason, room_is_missing

log = structlog.get_logger(__name__)

LEASE: Final = timedelta(seconds=20)
LONGEST_WAIT: Final = timedelta(minutes=5)
SETTLE: Final = timedelta(seconds=2)
ROOM_WAIT: Final = timedelta(seconds=30)
HANDED_OVER: Final = "Handed to the scheduler."
MOST_ATTEMPTS: Final = 10
BATCH: Final = 20
SWEEP_SECONDS: Final = 4.0
DROPPED: Final = "FieldsDropped"


def sweep() -> int:
    """Claim what is due and bring it about, oldest first, for a few seconds; answers how many rows were looked at."""
    until, looked = time.monotonic() + SWEEP_SECONDS, 0
    while claimed := _claim_due():
        for workload_id in claimed:
            _bring(workload_id)
        looked += len(claimed)
        if time.monotonic() > until:
            break
    return looked


def apply(workload_id: UUID | str) -> bool:
    """Bring one workload about if it is due and nobody else has it. False: nothing to do."""
    claimed = _claim([UUID(str(workload_id))])
    for each in claimed:
        _bring(each)
    return bool(claimed)


def _due(now: datetime) -> list[UUID]:
    rows = Workload.objects.filter(due_at__lte=now, deleted_at__isnull=True).order_by("due_at")
    if connection.features.has_select_for_update_skip_locked:
        rows = rows.select_for_update(skip_locked=True)
    return list(rows.values_list("pk", flat=True)[:BATCH])


def _claim_due() -> list[UUID]:
    with transaction.atomic():
        return _claim(_due(timezone.now()))


def _claim(candidates: list[UUID]) -> list[UUID]:
    """The candidates whose lease this caller got: exactly one row changed for each."""
    now = timezone.now()
    lease = {"due_at": now + LEASE, "attempts": F("attempts") + 1}
    due = Workload.objects.filter(due_at__lte=now, deleted_at__isnull=True)
    return [each for each in candidates if due.filter(pk=each).update(**lease) == 1]


def _bring(workload_id: UUID) -> None:
    """One claimed row: talk to the cluster, then write the outcome if the row still wants what it wanted."""
    rows = Workload.objects.select_related("project__cluster", "type", "priority")
    workload = rows.filter(pk=workload_id).first()
    if workload is None:
        return
    if workload.project.cluster.state == ClusterState.PAUSED:
        _again(workload, LONGEST_WAIT, workload.project.cluster.paused_reason or "The cluster is paused.")
    elif workload.attempts > MOST_ATTEMPTS:
        _give_up(workload, "ApplyFailed", workload.apply_error or "Every try ended its worker.")
    else:
        _try(workload)


def _try(workload: Workload) -> None:
    try:
        _act(workload)
    except ClusterError as error:
        _failed(workload, error)
    except Exception as error:
        log.exception("workload.apply_failed", workload=str(workload.pk))
        _again(workload, _pause(workload.attempts), f"{type(error).__name__}: {error}"[:500])


def _act(workload: Workload) -> None:
    cluster, job = workload.project.cluster, job_spec(workload)
    if workload.desired_phase == DesiredPhase.DELETED:
        delete_job(cluster, job)
        _after_delete(workload)
    elif workload.phase in ENDED:
        _done(workload)
    elif workload.desired_phase == DesiredPhase.RUNNING and (held := held_back(workload)):
        _wait_outside(workload, held.reading, held.pause)
    elif workload.desired_phase == DesiredPhase.RUNNING and _waits_for_a_former_scheduler(workload):
        _move_over(workload)
    elif workload.desired_phase == DesiredPhase.RUNNING and (stale := _stale_pods(workload, job)):
        _renew(workload, running=any(pod.started_at for pod in stale))
    else:
        pods_run = _live_pods(workload)
        apply_job(cluster, job, pods_run=pods_run, pods_wait=pods_run and not _have_nodes(workload))
        dropped = dropped_by(cluster, job)
        if not (pods_run and workload.applied_generation):  # else pods are there, which keep what they were made with
            workload.min_runtime_minutes = job.min_runtime_minutes
        _after_apply(workload)
        _tell_dropped(workload, dropped)


def _stale_pods(workload: Workload, job: JobSpec) -> list[ObservedPod]:
    """Pods of an earlier application that wait in another pool, or carry another priority where that is in the way."""
    if workload.applied_generation in {0, workload.generation}:
        return []
    found = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at__isnull=True, deletion_at__isnull=True)
    pods = list(found)
    if any(_waits_elsewhere(pod, job) for pod in pods):
        return pods
    if on_change_of(workload) in AT_ONCE:
        return []
    return [
        pod for pod in pods if pod.priority_class != workload.priority.name or pod.priority != workload.priority_value
    ]


def _waits_elsewhere(pod: ObservedPod, job: JobSpec) -> bool:
    """It waits for nodes, or in the queue, of another pool than the one that the row now names."""
    if pod.node_name or job.pool is None:
        return False
    label = pod.node_selector.get(job.pool.label_key, job.pool.label_value)
    return label != job.pool.label_value or (pod.queue or job.queue) != job.queue


def _renew(workload: Workload, *, running: bool) -> None:
    """A pod template is never rewritten under running pods: they finish as they are. Waiting ones are made anew.

    A scheduler that queues whole jobs reads the priority from the object itself, which may be written at any time.
    """
    if running:
        cluster = workload.project.cluster
        if flavour_for(cluster.flavour).traits.queues_jobs:
            apply_job(cluster, job_spec(workload), pods_run=True)
        _write(workload, due_at=None, attempts=0, apply_error="")
        return
    delete_job(workload.project.cluster, job_spec(workload))
    _write(workload, applied_generation=0, due_at=timezone.now() + SETTLE, attempts=0, apply_error="")


def _waits_for_a_former_scheduler(workload: Workload) -> bool:
    """Made for a scheduler that the cluster had before, and none of its pods has started: nothing is lost with it."""
    if made_for(workload.project.cluster, workload.pk) is None:
        return False
    pods = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at__isnull=True, started_at__isnull=False)
    return not pods.exists()


def _move_over(workload: Workload) -> None:
    """Take away what was made for the former scheduler; the next try makes it for the present one."""
    delete_job(workload.project.cluster, job_spec(workload))
    message = f"{workload.project.cluster.name} has another scheduler: what waits is made anew for it."
    note(workload=workload, at=timezone.now(), type_=EventType.SYNC, reason="SchedulerSwitched", message=message)
    _write(workload, applied_generation=0, due_at=timezone.now() + SETTLE, attempts=0, apply_error="")


def _after_apply(workload: Workload) -> None:
    _done(workload)
    now = timezone.now()
    if workload.phase in {Phase.CREATING, Phase.RESUMING}:
        move(workload=workload, to=Phase.PENDING, at=now, reason="", message=HANDED_OVER)
    elif workload.phase_reason == HELD_BACK:
        keep_reason(workload, Reading("HandedOver", HANDED_OVER), now)
    elif workload.phase == Phase.STOPPING and not _live_pods(workload):
        move(workload=workload, to=Phase.STOPPED, at=now, allocated_gpu_milli=0, running_pods=0)


def _tell_dropped(workload: Workload, dropped: Sequence[str]) -> None:
    """Once: what the cluster accepted and does not hold, so that nobody counts on it."""
    if not dropped or workload.timeline.filter(reason=DROPPED).exists():
        return
    message = (
        f"The cluster's definition of {workload.type.name} leaves out {', '.join(dropped[:3])}"
        f"{f' and {len(dropped) - 3} more' if len(dropped) > 3 else ''}: its pods do not start as a gang. "
        "A newer definition of its operator may know these fields."
    )
    detail = {"dropped": list(dropped[:50])}
    note(
        workload=workload,
        at=timezone.now(),
        type_=EventType.SYNC,
        reason=DROPPED,
        message=message,
        detail=detail,
    )


def _after_delete(workload: Workload) -> None:
    """The tombstone is final once its pods are gone; until then it is looked at again."""
    if _live_pods(workload):
        _write(workload, due_at=timezone.now() + SETTLE * 5, attempts=0, apply_error="")
        return
    now = timezone.now()
    done = {"applied_generation": workload.generation, "due_at": None, "attempts": 0, "apply_error": ""}
    if _write(workload, deleted_at=now, allocated_gpu_milli=0, running_pods=0, **done):
        note(workload=workload, at=now, type_=EventType.ACTION, reason="Deleted", message="Its objects are gone.")


def _live_pods(workload: Workload) -> bool:
    return ObservedPod.objects.live().filter(owner_id=str(workload.pk)).exists()


def _have_nodes(workload: Workload) -> bool:
    return ObservedPod.objects.live().filter(owner_id=str(workload.pk)).exclude(node_name="").exists()


def _done(workload: Workload) -> None:
    done = {"applied_generation": workload.generation, "due_at": None, "attempts": 0, "apply_error": ""}
    _write(workload, min_runtime_minutes=workload.min_runtime_minutes, **done)


def _failed(workload: Workload, error: ClusterError) -> None:
    """Transient, or the whole cluster's trouble: again, later. Refused for good: Failed with the server's reason."""
    if error.transient or isinstance(error, ClusterChanged):
        pause = max(_pause(workload.attempts), timedelta(seconds=error.retry_after or 0))
        _again(workload, pause, error.message, counts=False)
    elif workload.desired_phase != DesiredPhase.RUNNING:
        _again(workload, LONGEST_WAIT, error.message, counts=False)
    elif reading := room_is_missing(workload, error):
        _wait_outside(workload, reading, min(_pause(workload.attempts), ROOM_WAIT))
    else:
        _give_up(workload, error.code, error.message)


def _wait_outside(workload: Workload, reading: Reading, pause: timedelta) -> None:
    """A quota has no room for a bare pod, or Rung holds it back: nobody else asks again, so it waits like others do."""
    now = timezone.now()
    if workload.phase in {Phase.CREATING, Phase.RESUMING}:
        said: dict[str, Any] = {"reason": reading.reason, "message": reading.message, "detail": reading.numbers}
        move(workload=workload, to=Phase.PENDING, at=now, **said)
    else:
        keep_reason(workload, reading, now)
    _write(workload, due_at=now + pause, attempts=min(workload.attempts, MOST_ATTEMPTS - 1), apply_error="")


def _pause(attempts: int) -> timedelta:
    return min(timedelta(seconds=2 ** min(attempts, 9)), LONGEST_WAIT)


def _again(workload: Workload, pause: timedelta, message: str, *, counts: bool = True) -> None:
    """Due later. What does not count against the row (the cluster is away) never makes it give up."""
    attempts = workload.attempts if counts else min(workload.attempts, MOST_ATTEMPTS - 1)
    if workload.apply_error != message:
        note(workload=workload, at=timezone.now(), type_=EventType.SYNC, reason="ApplyDelayed", message=message)
    _write(workload, due_at=timezone.now() + pause, attempts=attempts, apply_error=message)


def _give_up(workload: Workload, reason: str, message: str) -> None:
    now = timezone.now()
    done: dict[str, Any] = {"due_at": None, "attempts": 0, "apply_error": message, "completed_at": now}
    if not move(workload=workload, to=Phase.FAILED, at=now, reason=reason, message=message, **done):
        _again(workload, LONGEST_WAIT, message, counts=False)


def _write(workload: Workload, **values: object) -> bool:
    """Write the outcome unless the row has moved on meanwhile: then it is due again already."""
    return Workload.objects.filter(pk=workload.pk, generation=workload.generation).update(**values) == 1
