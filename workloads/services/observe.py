"""What the observer saw, brought into the workloads: phases, what they hold, evictions. Again changes nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from clusters.job_status import ACTIVE, BLOCKED, MISSING, SUSPENDED
from clusters.models import Cluster, ObservedPod
from clusters.observation import JobStatus, Observation
from clusters.ports import FOR_VICTIMS, Reading
from clusters.services.inquiries import OPEN
from workloads.enqueue import wake_apply
from workloads.holding_back import is_held
from workloads.lifecycle import ENDED, HOLDING, WAITING, Standing, next_phase
from workloads.models import DesiredPhase, EventType, Phase, Workload
from workloads.owners import workload_ids
from workloads.services.evictions import (
    UNEXPLAINED,
    name_preemptors,
    pods_told_of,
    reading_of_loss,
    record_evictions,
)
from workloads.services.moves import move, note
from workloads.services.queued import QUEUED, TURNS, as_queued, queued_among, reading_of_queue
from workloads.services.reasons import FAILED_CREATE, in_words, keep_reason, reading_of_refusal
from workloads.standings import NO_JOB, holding_of, reading_of, standing_of


def on_observation(cluster: Cluster, observation: Observation) -> None:
    """Take one look's changes in.

    1. find the workloads that the changed pods and objects belong to, and all their present pods
    2. record evictions, once each
    3. bring each row to what its pods hold and do
    """
    refusals = {event.owner_id: event.message for event in observation.events if event.reason == FAILED_CREATE}
    told_of = pods_told_of(cluster, observation.events)
    owners = {pod.owner_id for pod in (*observation.pods, *told_of)} | observation.jobs.keys() | refusals.keys()
    owners |= {event.owner_id for event in observation.events if event.reason in TURNS}
    if any(event.reason == OPEN for event in observation.events):
        _try_again(cluster, observation.at)
    workloads = _workloads(cluster, owners)
    pods = _pods(cluster, workloads)
    record_evictions(cluster, [*told_of, *observation.pods], workloads, observation.readings)
    name_preemptors(cluster, observation.pods)
    queued = queued_among(cluster, workloads.keys())
    for owner, workload in workloads.items():
        job = as_queued(cluster, observation.jobs.get(owner, NO_JOB), queued.get(owner))
        if owner in refusals and job.phase in {"", ACTIVE}:
            job = JobStatus(BLOCKED, FAILED_CREATE, refusals[owner])
        _take_in(workload, pods[owner], job, observation)


def _try_again(cluster: Cluster, at: datetime) -> None:
    """The cluster takes jobs again: who was refused one need not wait for its next try."""
    rows = Workload.objects.filter(project__cluster=cluster, due_at__gt=at, deleted_at__isnull=True)
    if rows.exclude(apply_error="").update(due_at=at):
        wake_apply(cluster.pk)


def _workloads(cluster: Cluster, owners: Iterable[str]) -> dict[str, Workload]:
    ids = workload_ids(owners)
    if not ids:
        return {}
    rows = Workload.objects.filter(pk__in=ids, project__cluster=cluster)
    return {str(row.pk): row for row in rows.select_related("project__cluster", "type", "priority")}


def _pods(cluster: Cluster, workloads: Mapping[str, Workload]) -> dict[str, list[ObservedPod]]:
    found: dict[str, list[ObservedPod]] = defaultdict(list)
    if not workloads:
        return found
    rows = ObservedPod.objects.filter(cluster=cluster, owner_id__in=workloads.keys(), gone_at__isnull=True)
    for pod in rows.order_by("created_at", "uid"):
        found[pod.owner_id].append(pod)
    return found


def _take_in(workload: Workload, pods: Sequence[ObservedPod], job: JobStatus, observation: Observation) -> None:
    if workload.deleted_at is not None:
        _delete_again(workload, pods, job, observation.at)
        return
    standing = standing_of(
        pods, wanted=workload.pod_count, min_member=int(workload.spec.get("min_member") or 1), job=job
    )
    _keep_holding(workload, pods)
    if job.phase == MISSING:
        _make_anew(workload, observation.at)
    if workload.desired_phase == DesiredPhase.DELETED:
        _due_when_gone(workload, standing, observation.at)
    elif _settled(workload, standing):
        _advance(workload, standing, pods, job, observation)


def _delete_again(workload: Workload, pods: Sequence[ObservedPod], job: JobStatus, at: datetime) -> None:
    """Delete what a late worker created after the workload was deleted: a tombstone has neither object nor pods."""
    if job.phase in {ACTIVE, SUSPENDED} or any(pod.deletion_at is None for pod in pods):
        Workload.objects.filter(pk=workload.pk, due_at=None).update(due_at=at)
        wake_apply(workload.project.cluster_id)


def _keep_holding(workload: Workload, pods: Sequence[ObservedPod]) -> None:
    """GPUs, pods and pool as they are, whatever the phase."""
    held = holding_of(pods)
    values: dict[str, Any] = {"allocated_gpu_milli": held.gpu_milli, "running_pods": held.running_pods}
    if held.pool:
        values["pool_name"] = held.pool
    if any(getattr(workload, name) != value for name, value in values.items()):
        Workload.objects.filter(pk=workload.pk).update(**values)
        for name, value in values.items():
            setattr(workload, name, value)


def _make_anew(workload: Workload, at: datetime) -> None:
    """Its object is gone without our doing: not lost, but due again."""
    if workload.desired_phase != DesiredPhase.RUNNING or workload.phase in ENDED:
        return
    standing = Workload.objects.filter(pk=workload.pk, generation=workload.generation, applied_generation__gt=0)
    if standing.update(applied_generation=0, due_at=at) == 1:
        workload.applied_generation = 0
        message = "Its object vanished from the cluster; it is created anew."
        note(workload=workload, at=at, type_=EventType.SYNC, reason="Recreated", message=message)
        wake_apply(workload.project.cluster_id)


def _due_when_gone(workload: Workload, standing: Standing, at: datetime) -> None:
    if not standing.live:
        Workload.objects.filter(pk=workload.pk, deleted_at__isnull=True).update(due_at=at)
        wake_apply(workload.project.cluster_id)


def _settled(workload: Workload, standing: Standing) -> bool:
    """A stop is over only once a worker has carried it out: no pods may also mean none yet."""
    stopping = workload.desired_phase == DesiredPhase.STOPPED
    return not stopping or bool(standing.live) or workload.applied_generation == workload.generation


def _advance(
    workload: Workload, standing: Standing, pods: Sequence[ObservedPod], job: JobStatus, observation: Observation
) -> None:
    following = next_phase(workload.phase, workload.desired_phase, standing)
    waits = following in WAITING
    reading = in_words(workload, _reading(workload, pods, job, observation.readings)) if waits else Reading()
    if following != workload.phase:
        _move(workload, following, pods, job, reading, observation.at)
    elif following in WAITING and reading.reason and (pods or not is_held(workload)):
        keep_reason(workload, reading, observation.at)


def _reading(
    workload: Workload, pods: Sequence[ObservedPod], job: JobStatus, readings: Mapping[str, Reading]
) -> Reading:
    """The scheduler's words; where no pod could even be created, its controller's."""
    if job.phase == BLOCKED:
        return reading_of_refusal(workload, job.message)
    if job.phase == QUEUED:
        return _of_queue(workload, job.message)
    found = reading_of(pods, readings)
    if found.reason or job.reason:
        return found if found.reason else Reading(job.reason, job.message)
    return reading_of_loss(workload) if _is_unexplained(workload) else found


def _of_queue(workload: Workload, message: str) -> Reading:
    """The queue's words, unless it has just stopped: that it has its next place already does not say why."""
    queued = reading_of_queue(workload, message)
    if workload.phase in HOLDING and queued.reason == FOR_VICTIMS and (lost := reading_of_loss(workload)).reason:
        return lost
    return queued


def _is_unexplained(workload: Workload) -> bool:
    """It has just lost its pods, or nothing has said yet why it did."""
    return workload.phase in HOLDING or (workload.started_at is not None and workload.phase_reason in UNEXPLAINED)


def _move(
    workload: Workload, to: str, pods: Sequence[ObservedPod], job: JobStatus, reading: Reading, at: datetime
) -> None:
    changes: dict[str, Any] = {}
    if to == Phase.RUNNING and workload.phase in WAITING:
        changes["started_at"] = holding_of(pods).started_at or at
    elif to in ENDED:
        changes |= {"completed_at": at, "apply_error": ""}
    elif to == Phase.PENDING and workload.generation != workload.applied_generation:
        changes["due_at"] = at
    reason, message = (job.reason, job.message) if to in ENDED else (reading.reason, reading.message)
    move(workload=workload, to=to, at=at, reason=reason, message=message, detail=reading.numbers, **changes)
