"""Recording evictions: exactly one record per (cluster, pod, moment), kept after the pod is gone.

The moment is the transition of the pod's DisruptionTarget condition, so a second look at the same pod finds the record
there. Who gained is resolved from what the scheduler said: a pod's uid, or namespace and name of a workload's object.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import F

from clusters.models import Cluster, ObservedPod
from clusters.ports import Reading
from workloads.checkpoints import last_checkpoint, lost_gpu_seconds
from workloads.models import EventType, PreemptionCause, PreemptionRecord, Workload
from workloads.owners import workload_id
from workloads.queues import object_name
from workloads.sentences import gpus_text
from workloads.services.moves import note

BY_SCHEDULER: Final = "PreemptionByScheduler"
TOGETHER: Final = timedelta(seconds=60)


def record_evictions(
    cluster: Cluster,
    pods: Iterable[ObservedPod],
    victims: Mapping[str, Workload],
    readings: Mapping[str, Reading],
) -> list[PreemptionRecord]:
    """Write what is new among these pods, one timeline entry per victim; and note which evicted pods have gone."""
    fresh: dict[str, list[PreemptionRecord]] = defaultdict(list)
    for pod in pods:
        victim = victims.get(pod.owner_id)
        if victim is None or pod.disrupted_at is None or pod.disruption_reason != BY_SCHEDULER:
            continue
        record, created = _record(cluster, pod, victim, readings.get(pod.uid) or Reading())
        if created:
            fresh[pod.owner_id].append(record)
        elif pod.gone_at and record.gone_at is None:
            PreemptionRecord.objects.filter(pk=record.pk, gone_at__isnull=True).update(gone_at=pod.gone_at)
    for owner, records in fresh.items():
        _tell(victims[owner], records)
    return [record for records in fresh.values() for record in records]


def _record(cluster: Cluster, pod: ObservedPod, victim: Workload, reading: Reading) -> tuple[PreemptionRecord, bool]:
    key = {"cluster": cluster, "pod_uid": pod.uid, "at": pod.disrupted_at}
    if found := PreemptionRecord.objects.filter(**key).first():
        return found, False
    taker = _preemptor(cluster, reading.preemptor)
    return PreemptionRecord.objects.get_or_create(
        **key,
        defaults={
            "pod_name": pod.name,
            "victim": victim,
            "cause": _cause(reading, victim, taker),
            "message": pod.disruption_message,
            "node_name": pod.node_name,
            "grace_seconds": pod.grace_seconds,
            "gone_at": pod.gone_at,
            "gpu_milli": pod.gpu_milli,
            **_taker_fields(taker, reading),
            **_loss(pod, victim),
        },
    )


def _taker_fields(taker: Workload | None, reading: Reading) -> dict[str, Any]:
    if taker is None:
        return {"preemptor_name": reading.preemptor.removeprefix("uid:")[:253]}
    return {
        "preemptor": taker,
        "preemptor_name": taker.name,
        "preemptor_priority": taker.priority.name,
        "preemptor_value": taker.priority_value,
        "preemptor_project": taker.project.name,
    }


def _loss(pod: ObservedPod, victim: Workload) -> dict[str, Any]:
    """How long it ran, when it last saved, and what is lost. A pod that never started loses nothing."""
    at, started = pod.disrupted_at, pod.started_at
    if at is None or started is None:
        return {}
    stated = last_checkpoint(victim.spec.get("annotations") or {}, started=started, now=at)
    known = victim.checkpoint_at if victim.checkpoint_at and started < victim.checkpoint_at <= at else None
    checkpoint = max((each for each in (stated, known) if each), default=None)
    return {
        "ran_seconds": max(0, int((at - started).total_seconds())),
        "checkpoint_at": checkpoint,
        "lost_gpu_seconds": lost_gpu_seconds(pod.gpu_milli, started=started, checkpoint=checkpoint, at=at),
    }


def _cause(reading: Reading, victim: Workload, taker: Workload | None) -> str:
    """As the scheduler said it; else by the queues: the same one is preempt, another is reclaim."""
    if reading.cause in {PreemptionCause.PREEMPT, PreemptionCause.RECLAIM}:
        return reading.cause
    if taker is None:
        return PreemptionCause.UNKNOWN
    same = (taker.project_id, taker.pool_name) == (victim.project_id, victim.pool_name)
    return PreemptionCause.PREEMPT if same else PreemptionCause.RECLAIM


def _preemptor(cluster: Cluster, said: str) -> Workload | None:
    """The workload behind `uid:<pod uid>` or `<namespace>/<name>` of a pod or of a workload's object."""
    if not said:
        return None
    pods = ObservedPod.objects.filter(cluster=cluster).exclude(owner_id="")
    if said.startswith("uid:"):
        return _workload(pods.filter(uid=said.removeprefix("uid:")).values_list("owner_id", flat=True).first())
    namespace, _, name = said.partition("/")
    owner = (
        pods.filter(namespace=namespace, name=name).order_by("-created_at").values_list("owner_id", flat=True).first()
    )
    return _workload(owner) or _by_object(cluster, namespace, name)


def _workload(owner_id: str | None) -> Workload | None:
    key = workload_id(owner_id or "")
    return Workload.objects.select_related("project", "priority").filter(pk=key).first() if key else None


def _by_object(cluster: Cluster, namespace: str, name: str) -> Workload | None:
    """An object's name is the workload's, cut, with the first eight digits of its id."""
    stem = name.rpartition("-")[0]
    rows = Workload.objects.filter(project__cluster=cluster, project__namespace=namespace, name__startswith=stem)
    candidates = rows.select_related("project", "priority").order_by("-created_at")[:100]
    return next((each for each in candidates if object_name(each) == name), None)


def _tell(victim: Workload, records: list[PreemptionRecord]) -> None:
    """One entry for all pods evicted together, without the name of somebody else's workload; and one count."""
    first = records[0]
    own = first.preemptor is not None and first.preemptor.project_id == victim.project_id
    by = f"{first.preemptor_name} ({first.preemptor_priority} {first.preemptor_value})" if own else "another project"
    by = by if first.preemptor_name else "the scheduler"
    gpus, lost = sum(each.gpu_milli for each in records), sum(each.lost_gpu_seconds for each in records)
    word = "Reclaimed" if first.cause == PreemptionCause.RECLAIM else "Preempted"
    message = f"{word} by {by}: {gpus_text(gpus)} on {first.node_name}; about {lost / 3600:.1f} GPU-hours lost."
    detail = {"records": [each.pk for each in records], "cause": first.cause}
    note(workload=victim, at=first.at, type_=EventType.PREEMPTION, reason=word, message=message, detail=detail)
    if not _counted_already(victim, first.at, records):
        Workload.objects.filter(pk=victim.pk).update(preempted_count=F("preempted_count") + 1)


def _counted_already(victim: Workload, at: datetime, records: list[PreemptionRecord]) -> bool:
    """Pods of one gang may be seen to go in several looks."""
    near = victim.preemptions.filter(at__gte=at - TOGETHER, at__lte=at + TOGETHER)
    return near.exclude(pk__in=[each.pk for each in records]).exists()
