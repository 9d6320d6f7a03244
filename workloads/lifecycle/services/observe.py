"""Take observations into workloads: phases, allocations, evictions, silent controllers. Idempotent.

An API server takes whatever its definitions allow; whether a controller creates pods shows only later. What a
scheduler holds in its queue now, or whose pods were refused, is not silent.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState
from clusters.ports.flavour import WAITS_FOR_VICTIMS, PodStatusReason
from clusters.ports.objects import kind_of_workload
from clusters.ports.workload_kinds import KINDS
from clusters.watch.models import ObservedObject, ObservedPod
from clusters.watch.rules import ACTIVE, BLOCKED, MISSING, SUSPENDED, JobStatus
from clusters.watch.services.observations import Observation
from clusters.watch.services.visibility_poller import JOBS_ACCEPTED
from workloads.forecast.selectors.runtime_rules import is_deferred
from workloads.lifecycle.selectors.workloads import NO_JOB, allocation_of, pod_status_reason, summarize_pods
from workloads.lifecycle.services.apply import HANDED_OVER
from workloads.lifecycle.services.pending_reasons import (
    FAILED_CREATE,
    QUEUED,
    TURNS,
    as_queued,
    in_words,
    keep_reason,
    queued_among,
    reading_of_queue,
    reading_of_refusal,
)
from workloads.preemption.services import (
    UNEXPLAINED,
    name_preemptors,
    pods_named_in_events,
    reading_of_loss,
    record_evictions,
)
from workloads.state.models import DesiredPhase, EventType, Phase, Workload
from workloads.state.rules import (
    ENDED,
    HOLDING,
    NEXT_POOL,
    NO_CONTROLLER,
    REFUSED_PODS,
    WAITING,
    PodCounts,
    next_phase,
)
from workloads.state.selectors.usage import is_over_quota
from workloads.state.selectors.workloads import workload_ids
from workloads.state.services import move, note, notify_apply


def on_observation(cluster: Cluster, observation: Observation) -> None:
    """Take one look's changes in.

    1. find the workloads that the changed pods and objects belong to, and all their present pods
    2. record evictions, once each
    3. bring each row to what its pods hold and do
    """
    refusals = {event.owner_id: event.message for event in observation.events if event.reason == FAILED_CREATE}
    named = pods_named_in_events(cluster, observation.events)
    owners = {pod.owner_id for pod in (*observation.pods, *named)} | observation.jobs.keys() | refusals.keys()
    owners |= {event.owner_id for event in observation.events if event.reason in TURNS}
    if any(event.reason == JOBS_ACCEPTED for event in observation.events):
        _try_again(cluster, observation.at)
    workloads = _workloads(cluster, owners)
    pods = _pods(cluster, workloads)
    record_evictions(cluster, [*named, *observation.pods], workloads, observation.readings)
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
        notify_apply(cluster.pk)


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
    counts = summarize_pods(
        pods, wanted=workload.pod_count, min_member=int(workload.spec.get("min_member") or 1), job=job
    )
    _store_allocation(workload, pods)
    if job.phase == MISSING:
        _recreate(workload, observation.at)
    if workload.desired_phase == DesiredPhase.DELETED:
        _due_when_gone(workload, counts, observation.at)
    elif _settled(workload, counts):
        _advance(workload, counts, pods, job, observation)


def _delete_again(workload: Workload, pods: Sequence[ObservedPod], job: JobStatus, at: datetime) -> None:
    """Delete what a late worker created after the workload was deleted: a tombstone has neither object nor pods."""
    if job.phase in {ACTIVE, SUSPENDED} or any(pod.deletion_at is None for pod in pods):
        Workload.objects.filter(pk=workload.pk, due_at=None).update(due_at=at)
        notify_apply(workload.project.cluster_id)


def _store_allocation(workload: Workload, pods: Sequence[ObservedPod]) -> None:
    """GPUs, pods and pool as they are, whatever the phase; a new value of its priority once all its pods have it."""
    held = allocation_of(pods)
    values: dict[str, Any] = {"allocated_gpu_milli": held.gpu_milli, "running_pods": held.running_pods}
    if held.pool:
        values["pool_name"] = held.pool
    new = (workload.priority.name, workload.priority.value)
    if pods and all((pod.priority_class, pod.priority) == new for pod in pods):
        values["priority_value"] = workload.priority.value
    if any(getattr(workload, name) != value for name, value in values.items()):
        Workload.objects.filter(pk=workload.pk).update(**values)
        for name, value in values.items():
            setattr(workload, name, value)


def _recreate(workload: Workload, at: datetime) -> None:
    """Its object is gone without our doing: not lost, but due again."""
    if workload.desired_phase != DesiredPhase.RUNNING or workload.phase in ENDED:
        return
    unchanged = Workload.objects.filter(pk=workload.pk, generation=workload.generation, applied_generation__gt=0)
    if unchanged.update(applied_generation=0, due_at=at) == 1:
        workload.applied_generation = 0
        message = "Its object was deleted from the cluster and is recreated."
        note(workload=workload, at=at, type_=EventType.SYNC, reason="Recreated", message=message)
        notify_apply(workload.project.cluster_id)


def _due_when_gone(workload: Workload, counts: PodCounts, at: datetime) -> None:
    if not counts.live:
        Workload.objects.filter(pk=workload.pk, deleted_at__isnull=True).update(due_at=at)
        notify_apply(workload.project.cluster_id)


def _settled(workload: Workload, counts: PodCounts) -> bool:
    """A stop is over only once a worker has carried it out: no pods may also mean none yet."""
    stopping = workload.desired_phase == DesiredPhase.STOPPED
    return not stopping or bool(counts.live) or workload.applied_generation == workload.generation


def _advance(
    workload: Workload, counts: PodCounts, pods: Sequence[ObservedPod], job: JobStatus, observation: Observation
) -> None:
    following = next_phase(workload.phase, workload.desired_phase, counts)
    waits = following in WAITING
    reading = in_words(workload, _reading(workload, pods, job, observation.readings)) if waits else PodStatusReason()
    if following != workload.phase:
        _move(workload, following, pods, job, reading, observation.at)
    elif following in WAITING and reading.reason and (pods or not is_deferred(workload)) and not _moves(workload):
        keep_reason(workload, reading, observation.at)
    elif following == Phase.FAILED and EXIT_CODE not in workload.phase_message and (end := _failed_container(pods)):
        message = _joined(end, workload.phase_message)  # its job ended in an earlier look than its pod
        Workload.objects.filter(pk=workload.pk, phase=following).update(phase_message=message)


EXIT_CODE: Final = "exit code"


def _failed_container(pods: Sequence[ObservedPod]) -> str:
    """How the last of its pods failed, deleted and evicted ones apart; empty where its node gave no exit code."""
    own = (pod for pod in pods if pod.phase == "Failed" and pod.deletion_at is None and not pod.disruption_reason)
    failed = [pod for pod in own if EXIT_CODE in pod.message]
    return max(failed, key=lambda pod: pod.ended_at or pod.created_at).message if failed else ""


def _joined(*parts: str) -> str:
    return ". ".join(part.rstrip(".") for part in parts if part)


def _moves(workload: Workload) -> bool:
    """What is on the cluster is still its object in the node pool that it leaves."""
    return workload.phase_reason == NEXT_POOL and workload.applied_generation != workload.generation


def _reading(
    workload: Workload, pods: Sequence[ObservedPod], job: JobStatus, readings: Mapping[str, PodStatusReason]
) -> PodStatusReason:
    """The scheduler's words; where no pod could even be created, its controller's."""
    if job.phase == BLOCKED:
        return reading_of_refusal(workload, job.message)
    if job.phase == QUEUED:
        return _of_queue(workload, job.message)
    found = pod_status_reason(pods, readings, flavour_for(workload.project.cluster.flavour))
    if found.reason or job.reason:
        return found if found.reason else PodStatusReason(job.reason, job.message)
    return reading_of_loss(workload) if _is_unexplained(workload) else found


def _of_queue(workload: Workload, message: str) -> PodStatusReason:
    """The queue's words, unless it has just stopped: that it has its next place already does not say why."""
    queued = reading_of_queue(workload, message)
    if workload.phase in HOLDING and queued.reason == WAITS_FOR_VICTIMS and (lost := reading_of_loss(workload)).reason:
        return lost
    return queued


def _is_unexplained(workload: Workload) -> bool:
    """It has just lost its pods, or nothing has said yet why it did."""
    return workload.phase in HOLDING or (workload.started_at is not None and workload.phase_reason in UNEXPLAINED)


def _move(
    workload: Workload, to: str, pods: Sequence[ObservedPod], job: JobStatus, reading: PodStatusReason, at: datetime
) -> None:
    changes: dict[str, Any] = {}
    if to == Phase.RUNNING and workload.phase in WAITING:
        changes |= {"started_at": allocation_of(pods).started_at or at, "started_over_quota": is_over_quota(workload)}
    elif to in ENDED:
        changes |= {"completed_at": at, "apply_error": ""}
    elif to == Phase.PENDING and workload.generation != workload.applied_generation:
        changes["due_at"] = at
    reason, message = (job.reason, job.message) if to in ENDED else (reading.reason, reading.message)
    if to == Phase.FAILED and (end := _failed_container(pods)):
        message = _joined(end, message)
    move(workload=workload, to=to, at=at, reason=reason, message=message, detail=reading.numbers, **changes)


PATIENCE: Final = timedelta(seconds=60)
UNWATCHED: Final = timedelta(seconds=60)
"""Of a cluster that was not observed for so long nothing is concluded."""
OPERATED: Final = tuple(kind_of_workload(kind).key for kind in KINDS if not kind.core)
"""Every other kind has its controller in every cluster."""
ANSWERED: Final = "HandedOver"


def check_controllers(now: datetime | None = None) -> None:
    """Name workloads that nothing answers, take it back where something did, and keep both with the cluster."""
    now = now or timezone.now()
    for cluster in Cluster.objects.filter(state=ClusterState.ACTIVE, observed_at__gte=now - UNWATCHED):
        _check(cluster, now)


def _check(cluster: Cluster, now: datetime) -> None:
    rows = _objects(cluster).exclude(_answered(cluster)).filter(created_at__lte=now - PATIENCE)
    silent = {row.owner_id: row for row in rows}
    waiting = _waiting(cluster)
    held = queued_among(cluster, silent)
    named = waiting.filter(pk__in=workload_ids(silent.keys() - held.keys())).exclude(phase_reason__in=REFUSED_PODS)
    found = {str(each.pk): each for each in named}
    for owner, workload in found.items():
        keep_reason(workload, PodStatusReason(NO_CONTROLLER, _sentence(silent[owner].kind, cluster)), now)
    for workload in waiting.filter(phase_reason=NO_CONTROLLER).exclude(pk__in=found):
        keep_reason(workload, PodStatusReason(ANSWERED, HANDED_OVER), now)
    _keep_kinds(cluster, [silent[owner] for owner in found])


def _objects(cluster: Cluster) -> QuerySet[ObservedObject]:
    """Workloads' own objects of kinds that need an operator."""
    return ObservedObject.objects.filter(cluster=cluster, kind__in=OPERATED).exclude(owner_id="")


def _answered(cluster: Cluster) -> Q:
    """It has a status, or ever had a pod."""
    pods = ObservedPod.objects.filter(cluster=cluster, owner_id=OuterRef("owner_id"))
    return Q(answered=True) | Q(Exists(pods))


def _waiting(cluster: Cluster) -> QuerySet[Workload]:
    rows = Workload.objects.filter(project__cluster=cluster, phase=Phase.PENDING, deleted_at__isnull=True)
    return rows.filter(desired_phase=DesiredPhase.RUNNING)


def _sentence(kind: str, cluster: Cluster) -> str:
    name = kind.partition(".")[0]
    return (
        f"No controller for {name} seems to run in {cluster.name}: the object got no status and no pods within a "
        "minute. A cluster admin can install the operator."
    )


def _keep_kinds(cluster: Cluster, silent: Iterable[ObservedObject]) -> None:
    """Since when each kind is silent, until an object of it that is no older was answered."""
    known: dict[str, str] = dict(cluster.silent_kinds)
    for kind, created in sorted((row.kind, row.created_at) for row in silent if row.created_at):
        known.setdefault(kind, created.isoformat())
    unanswered = {kind: since for kind, since in known.items() if not _was_answered(cluster, kind, since)}
    if unanswered != cluster.silent_kinds:
        Cluster.objects.filter(pk=cluster.pk).update(silent_kinds=unanswered)


def _was_answered(cluster: Cluster, kind: str, since: str) -> bool:
    later = _objects(cluster).filter(kind=kind, created_at__gte=datetime.fromisoformat(since))
    return later.filter(_answered(cluster)).exists()
