"""Why a workload waits, as its cluster said last: stored, with a timeline entry per new reason."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from clusters.flavours import pod_status
from clusters.flavours.pod_status import ADMITTED, LEFT_OUT, NOT_BOUND, NOT_READY, PIPELINED
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import PodStatusReason
from clusters.ports.gateway import ClusterError, QuotaExceeded
from clusters.watch.models import ClusterEvent, ObservedObject, ObservedPod
from clusters.watch.rules import ACTIVE, SUSPENDED, JobStatus
from tenants.organisation.models import Department
from workloads.forecast.rules.reasons import SCHEDULER_MESSAGE, sentence
from workloads.state.models import EventType, Workload
from workloads.state.services import note

FAILED_CREATE = "FailedCreate"


def keep_reason(workload: Workload, reading: PodStatusReason, at: datetime) -> None:
    """Still waiting, for another reason or with other numbers; only another reason is worth a line."""
    if (workload.phase_reason, workload.phase_message) == (reading.reason[:64], reading.message):
        return
    changed = workload.phase_reason != reading.reason[:64]
    values = {"phase_reason": reading.reason[:64], "phase_message": reading.message, "updated_at": at}
    if Workload.objects.filter(pk=workload.pk, phase=workload.phase).update(**values) == 1 and changed:
        note(
            workload=workload,
            at=at,
            type_=EventType.SCHEDULING,
            reason=reading.reason,
            message=reading.message,
            detail=reading.numbers,
        )


def in_words(workload: Workload, reading: PodStatusReason) -> PodStatusReason:
    """The reading with its sentence as the message; the scheduler's own words go among its numbers."""
    if not (reading.reason or reading.message):
        return reading
    words = sentence(reading, pool=workload.pool_name, names=_queues(workload))
    return replace(reading, message=f"{words}.", numbers={**reading.numbers, SCHEDULER_MESSAGE: reading.message})


def _queues(workload: Workload) -> Mapping[str, str]:
    """Whose the queues are that may say no to it, by their names on the cluster."""
    project = workload.project
    name = flavour_for(project.cluster.flavour).queue_name
    owners = {project.owner: f"project {project.name}", Department.owner_of(project.department_id): "its department"}
    pools = {workload.pool_name, *workload.node_pools}
    shown = {f"{project.name} in {pool}": owners[project.owner] for pool in pools}
    return owners | shown | {name(owner, pool): words for owner, words in owners.items() for pool in pools}


def reading_of_refusal(workload: Workload, message: str) -> PodStatusReason:
    """Why no pod could be created: the quota in Rung's words with its numbers, else what its controller says."""
    found = flavour_for(workload.project.cluster.flavour).interpret({}, [{"reason": FAILED_CREATE, "message": message}])
    return found if found.reason else PodStatusReason(FAILED_CREATE, message)


def missing_quota_reason(workload: Workload, error: ClusterError) -> PodStatusReason | None:
    """The reading of a quota that has no room for a bare pod now; None for every other refusal."""
    found = reading_of_refusal(workload, error.message)
    missing = isinstance(error, QuotaExceeded) or found.reason != FAILED_CREATE
    return in_words(workload, found) if missing else None


QUEUED: Final = "queued"
TURNS: Final = frozenset({pod_status.QUEUED, ADMITTED, LEFT_OUT, NOT_READY, NOT_BOUND, PIPELINED})
"""Reasons of events that tell of a place in a queue."""


def queued_among(cluster: Cluster, owners: Collection[str]) -> dict[str, str]:
    """The scheduler's words by workload id, of those whose present object waits in a queue now."""
    if not owners or not flavour_for(cluster.flavour).traits.event_sources:
        return {}
    rows = ClusterEvent.objects.filter(cluster=cluster, owner_id__in=owners, reason__in=TURNS).order_by("at", "pk")
    events = rows.values_list("at", "object_uid", "reason", "owner_id", "message")
    # Times are of whole seconds: what got its place and started within one started last.
    words = _words(each[1:] for each in sorted(events, key=lambda each: (each[0], each[2] == ADMITTED)))
    objects = ObservedObject.objects.filter(cluster=cluster, uid__in=words)
    pods = ObservedPod.objects.filter(cluster=cluster, uid__in=words, gone_at__isnull=True)
    there = {*objects.values_list("uid", flat=True), *pods.values_list("uid", flat=True)}
    return {owner: message for uid, (owner, message) in words.items() if uid in there}


def _words(events: Iterable[tuple[str, str, str, str]]) -> dict[str, tuple[str, str]]:
    """Owner and last words by object. That pods are missing counts only until its scheduler says anything else of it.

    Some schedulers never take it back, and say nothing new where what held it back before does so again. Who has a
    place for a pod, though it could not be bound there, is held back no more: the pod says what went wrong.
    """
    held: dict[str, tuple[str, str]] = {}
    missing: dict[str, tuple[str, str]] = {}
    for uid, reason, owner, message in events:
        if reason in {NOT_BOUND, PIPELINED}:
            held = {each: words for each, words in held.items() if words[0] != owner}
            held |= {uid: (owner, message)} if reason == PIPELINED else {}
        elif reason == ADMITTED:
            missing.pop(uid, None)
            held.pop(uid, None)
        else:
            (missing if reason == NOT_READY else held)[uid] = (owner, message)
    return missing | held


def as_queued(cluster: Cluster, job: JobStatus, message: str | None) -> JobStatus:
    """A job that its scheduler holds back is queued. Where that suspends it, it is about to be let go otherwise."""
    held = {SUSPENDED} if flavour_for(cluster.flavour).traits.queues_jobs else set()
    if job.phase not in {"", ACTIVE} | held:
        return job
    if message is None:
        return JobStatus(ACTIVE) if job.phase in held else job
    return JobStatus(QUEUED, pod_status.QUEUED, message)


def reading_of_queue(workload: Workload, message: str) -> PodStatusReason:
    """Why it waits, in Rung's words."""
    return flavour_for(workload.project.cluster.flavour).interpret(
        {}, [{"reason": pod_status.QUEUED, "message": message}]
    )
