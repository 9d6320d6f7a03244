"""Apply one workload: bring its objects to what its row wants. Runs in workers; every step may be repeated.

A row is claimed by compare-and-set for as long as one row takes, so a worker that dies leaves it to another. A claim
keeps two workers from doing the same work twice; that it is right does not depend on it: object names come from the
workload's id, objects carry the row's generation, and a name that is taken is read back before anything is concluded.

A workload ends in *Failed* here only when the API server refuses this very object, refuses it again after a fresh read,
and holds neither the object nor pods of it. A quota without room, missing rights and a cluster that is away wait.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from clusters.connection.services import work_limits
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import ClusterState
from clusters.ports.flavour import JobSpec, PodStatusReason
from clusters.ports.gateway import AdmissionDenied, ClusterError, Invalid, ObjectConflict
from clusters.sync.rules.changes import AT_ONCE
from clusters.sync.services.scheduler_migration import former_flavour_of
from clusters.sync.services.workload_objects import apply_job, delete_job, dropped_fields, is_there
from clusters.watch.models import ObservedPod
from workloads.forecast.selectors.runtime_rules import deferral_of
from workloads.lifecycle.selectors.workloads import job_spec, on_change_of
from workloads.lifecycle.services.pending_reasons import keep_reason, missing_quota_reason
from workloads.state.models import DesiredPhase, EventType, Phase, Workload
from workloads.state.rules import ENDED, HELD
from workloads.state.services import move, note

log = structlog.get_logger(__name__)

CLAIM: Final = timedelta(seconds=30)
LONGEST_WAIT: Final = timedelta(minutes=5)
CLUSTER_WAIT: Final = timedelta(seconds=60)
"""The longest pause of a workload whose cluster is in trouble: it is back within two resync periods."""
CONFIRM_AFTER: Final = timedelta(seconds=3)
SETTLE: Final = timedelta(seconds=2)
ROOM_WAIT: Final = timedelta(seconds=30)
HANDED_OVER: Final = "Queued in the cluster."
MOST_ATTEMPTS: Final = 10
DROPPED: Final = "FieldsDropped"
OBJECT_REFUSALS: Final = (Invalid, AdmissionDenied, ObjectConflict)


def apply(workload_id: UUID | str) -> bool:
    """Apply one workload if it is due and no other worker has it. False: nothing was done."""
    lease = {"claimed_until": Now() + CLAIM, "attempts": F("attempts") + 1}
    if Workload.objects.due().filter(pk=UUID(str(workload_id))).update(**lease) != 1:
        return False
    rows = Workload.objects.select_related("project__cluster", "type", "priority")
    if workload := rows.filter(pk=workload_id).first():
        try:
            _try(workload)
        finally:
            _release(workload)
    return True


def _try(workload: Workload) -> None:
    """Talk to the cluster, then write the outcome if the row still wants what it wanted."""
    cluster = workload.project.cluster
    try:
        if cluster.state == ClusterState.PAUSED:
            _retry_later(workload, CLUSTER_WAIT, cluster.paused_reason or "The cluster is paused.", counts=False)
        elif workload.attempts > MOST_ATTEMPTS:
            _dead_letter(workload)
        else:
            _act(workload)
            work_limits.close_breaker(cluster)
    except ClusterError as error:
        work_limits.record_result(cluster, error)
        _failed(workload, error)
    except Exception as error:
        log.exception("workload.apply_failed", workload=str(workload.pk))
        _retry_later(workload, _backoff(workload.attempts), f"{type(error).__name__}: {error}"[:500])


def _release(workload: Workload) -> None:
    """Give the claim back where no outcome did. A worker that lost it may have written late: look at the row again.

    What it wrote may be the object of a workload that was stopped or deleted meanwhile.
    """
    if workload.claimed_until is None:
        return
    rows = Workload.objects.filter(pk=workload.pk)
    if not rows.filter(claimed_until=workload.claimed_until).update(claimed_until=None):
        log.warning("workload.claim_lost", workload=str(workload.pk))
        rows.update(due_at=timezone.now())


def _act(workload: Workload) -> None:
    cluster, job = workload.project.cluster, job_spec(workload)
    if workload.desired_phase == DesiredPhase.DELETED:
        delete_job(cluster, job)
        _after_delete(workload)
    elif workload.phase in ENDED:
        _done(workload)
    elif workload.desired_phase == DesiredPhase.RUNNING and (held := deferral_of(workload)):
        _wait_outside(workload, held.reading, held.pause)
    elif workload.desired_phase == DesiredPhase.RUNNING and _waits_for_a_former_scheduler(workload):
        _move_over(workload)
    elif workload.desired_phase == DesiredPhase.RUNNING and (stale := _stale_pods(workload, job)):
        _renew(workload, running=any(pod.started_at for pod in stale))
    else:
        pods_run = _live_pods(workload)
        written = apply_job(cluster, job, pods_run=pods_run, pods_wait=pods_run and not _have_nodes(workload))
        workload.applied_scheduling = written
        dropped = dropped_fields(cluster, job)
        if not (pods_run and workload.applied_generation):  # else pods are there, which keep what they were made with
            workload.min_runtime_minutes = job.min_runtime_minutes
        _after_apply(workload)
        _note_dropped_fields(workload, dropped)


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
    name, value = workload.priority.name, workload.priority_value
    if flavour_for(workload.project.cluster.flavour).traits.counts_classes and any(pod.started_at for pod in pods):
        return [pod for pod in pods if pod.priority_class != name]  # the scheduler ignores the number of the pods
    return [pod for pod in pods if (pod.priority_class, pod.priority) != (name, value)]


def _waits_elsewhere(pod: ObservedPod, job: JobSpec) -> bool:
    """It waits for nodes, or in the queue, of another pool than the one that the row now names."""
    if pod.node_name or job.pool is None:
        return False
    label = pod.node_selector.get(job.pool.label_key, job.pool.label_value)
    return label != job.pool.label_value or (pod.queue or job.queue) != job.queue


def _renew(workload: Workload, *, running: bool) -> None:
    """A pod template is never rewritten under running pods: they finish as they are. Waiting ones are recreated.

    A scheduler that queues whole jobs reads the priority from the object itself, which may be written at any time.
    """
    if running:
        cluster = workload.project.cluster
        if flavour_for(cluster.flavour).traits.queues_jobs:
            workload.applied_scheduling = apply_job(cluster, job_spec(workload), pods_run=True)
        _write(workload, applied_scheduling=workload.applied_scheduling, due_at=None, attempts=0, apply_error="")
        return
    delete_job(workload.project.cluster, job_spec(workload))
    _write(workload, applied_generation=0, due_at=timezone.now() + SETTLE, attempts=0, apply_error="")


def _waits_for_a_former_scheduler(workload: Workload) -> bool:
    """Made for a scheduler that the cluster had before, and none of its pods has started: nothing is lost with it."""
    if former_flavour_of(workload.project.cluster, workload.pk) is None:
        return False
    pods = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at__isnull=True, started_at__isnull=False)
    return not pods.exists()


def _move_over(workload: Workload) -> None:
    """Take away what was made for the former scheduler; the next try makes it for the present one."""
    delete_job(workload.project.cluster, job_spec(workload))
    message = f"{workload.project.cluster.name} has a new scheduler: the waiting workload is recreated for it."
    note(workload=workload, at=timezone.now(), type_=EventType.SYNC, reason="SchedulerSwitched", message=message)
    _write(workload, applied_generation=0, due_at=timezone.now() + SETTLE, attempts=0, apply_error="")


def _after_apply(workload: Workload) -> None:
    _done(workload)
    now = timezone.now()
    if workload.phase in {Phase.CREATING, Phase.RESUMING}:
        move(workload=workload, to=Phase.PENDING, at=now, reason="", message=HANDED_OVER)
    elif workload.phase_reason in HELD:
        keep_reason(workload, PodStatusReason("HandedOver", HANDED_OVER), now)
    elif workload.phase == Phase.STOPPING and not _live_pods(workload):
        move(workload=workload, to=Phase.STOPPED, at=now, allocated_gpu_milli=0, running_pods=0)


def _note_dropped_fields(workload: Workload, dropped: Sequence[str]) -> None:
    """Once: what the cluster accepted and does not hold, so that its owner does not rely on it."""
    if not dropped or workload.timeline.filter(reason=DROPPED).exists():
        return
    message = (
        f"The cluster's definition of {workload.type.name} does not support "
        f"{', '.join(dropped[:3])}{f' and {len(dropped) - 3} more' if len(dropped) > 3 else ''}, so its pods do "
        "not start as a gang. A newer version of the operator may support these fields."
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
    if workload.deleted_at is not None or _live_pods(workload):
        due = None if workload.deleted_at else timezone.now() + SETTLE * 5
        _write(workload, due_at=due, attempts=0, apply_error="")
        return
    now = timezone.now()
    done = {"applied_generation": workload.generation, "due_at": None, "attempts": 0, "apply_error": ""}
    if _write(workload, deleted_at=now, allocated_gpu_milli=0, running_pods=0, **done):
        note(workload=workload, at=now, type_=EventType.ACTION, reason="Deleted", message="Its objects are deleted.")


def _live_pods(workload: Workload) -> bool:
    return ObservedPod.objects.live().filter(owner_id=str(workload.pk)).exists()


def _have_nodes(workload: Workload) -> bool:
    return ObservedPod.objects.live().filter(owner_id=str(workload.pk)).exclude(node_name="").exists()


def _done(workload: Workload) -> None:
    done = {"applied_generation": workload.generation, "due_at": None, "attempts": 0, "refusals": 0, "apply_error": ""}
    as_applied = {
        "min_runtime_minutes": workload.min_runtime_minutes,
        "applied_scheduling": workload.applied_scheduling,
    }
    _write(workload, **as_applied, **done)


def _failed(workload: Workload, error: ClusterError) -> None:
    """Decide what an error means for the row: try again later, wait for room, or end it."""
    if work_limits.is_cluster_failure(error) or error.transient:
        pause = min(_backoff(workload.attempts), CLUSTER_WAIT)
        _retry_later(workload, max(pause, timedelta(seconds=error.retry_after or 0)), error.message, counts=False)
    elif workload.desired_phase != DesiredPhase.RUNNING:
        _retry_later(workload, LONGEST_WAIT, error.message, counts=False)
    elif reading := missing_quota_reason(workload, error):
        _wait_outside(workload, reading, min(_backoff(workload.attempts), ROOM_WAIT))
    elif isinstance(error, OBJECT_REFUSALS):
        _handle_refusal(workload, error)
    else:
        _retry_later(workload, _backoff(workload.attempts), error.message, counts=False)


def _handle_refusal(workload: Workload, error: ClusterError) -> None:
    """End a workload whose object was refused twice and of which the cluster holds nothing; else try again."""
    if not workload.refusals:
        _retry_later(workload, CONFIRM_AFTER, error.message, counts=False, refusals=1)
    elif (holds := _cluster_holds(workload)) is False:
        _give_up(workload, error.code, error.message, pointer=error.pointer)
    else:
        message = f"The cluster rejected the change: {error.message}" if holds else error.message
        _retry_later(workload, LONGEST_WAIT if holds else CLUSTER_WAIT, message, counts=False, refusals=1)


def _cluster_holds(workload: Workload) -> bool | None:
    """Return whether the cluster has pods or the object of the workload; None where it does not say."""
    if _live_pods(workload):
        return True
    try:
        return is_there(workload.project.cluster, job_spec(workload))
    except ClusterError:
        return None


def _dead_letter(workload: Workload) -> None:
    """End a workload whose every try broke its worker, unless its cluster holds it or cannot be asked."""
    message = workload.apply_error or "The worker stopped at every attempt."
    if workload.desired_phase != DesiredPhase.RUNNING or _cluster_holds(workload) is not False:
        _retry_later(workload, LONGEST_WAIT, message, counts=False)
    else:
        _give_up(workload, "ApplyFailed", message)


def _wait_outside(workload: Workload, reading: PodStatusReason, pause: timedelta) -> None:
    """A quota has no room for a bare pod, or Rung holds it back: no other process retries, so the row waits here."""
    now = timezone.now()
    if workload.phase in {Phase.CREATING, Phase.RESUMING}:
        reason: dict[str, Any] = {"reason": reading.reason, "message": reading.message, "detail": reading.numbers}
        move(workload=workload, to=Phase.PENDING, at=now, **reason)
    else:
        keep_reason(workload, reading, now)
    waits = {"due_at": now + pause, "attempts": min(workload.attempts, MOST_ATTEMPTS - 1)}
    _write(workload, refusals=0, apply_error="", **waits)


def _backoff(attempts: int) -> timedelta:
    """The pause before the next try: doubled each time, up to LONGEST_WAIT."""
    return min(timedelta(seconds=2 ** min(attempts, 9)), LONGEST_WAIT)


def _retry_later(workload: Workload, pause: timedelta, message: str, *, counts: bool = True, refusals: int = 0) -> None:
    """Make it due after the pause. counts=False: an outage of the cluster never makes it give up."""
    attempts = workload.attempts if counts else min(workload.attempts, MOST_ATTEMPTS - 1)
    if workload.apply_error != message:
        note(workload=workload, at=timezone.now(), type_=EventType.SYNC, reason="ApplyDelayed", message=message)
    _write(workload, due_at=timezone.now() + pause, attempts=attempts, refusals=refusals, apply_error=message)


def _give_up(workload: Workload, reason: str, message: str, *, pointer: str = "") -> None:
    """Move to Failed with the server's sentence and the field it refuses; people may retry it."""
    now = timezone.now()
    done: dict[str, Any] = {"due_at": None, "attempts": 0, "refusals": 0, "completed_at": now, "apply_error": message}
    done["claimed_until"] = None
    detail = {"pointer": pointer} if pointer else {}
    if not move(workload=workload, to=Phase.FAILED, at=now, reason=reason, message=message, detail=detail, **done):
        _retry_later(workload, LONGEST_WAIT, message, counts=False)


def _write(workload: Workload, **values: object) -> bool:
    """Write the outcome and give the claim back, unless the row has moved on or another worker has it."""
    mine = {"generation": workload.generation, "claimed_until": workload.claimed_until}
    if Workload.objects.filter(pk=workload.pk, **mine).update(**values, claimed_until=None) != 1:
        return False
    workload.claimed_until = None
    return True
