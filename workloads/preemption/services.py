"""Recording evictions: exactly one record per pod and eviction, kept after the pod and its events are gone.

What is known comes in any order, more than once, and in parts: the pod's DisruptionTarget condition (certain, with the
moment; it names no preemptor on a plain cluster), its deletion and end, and the scheduler's event (names who gained;
expires after an hour). The first part that proves an eviction makes the record, every other one completes it. A pod's
uid is evicted once: a pod recreated under its name has another. Where a scheduler evicts gangs whole, the records of a
gang's pods make one preemption, however many looks they are seen in. Of some evictions only the moment survives: the
record then names no preemptor.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import F, Q, QuerySet

from clusters.flavours.pod_status import PODS_EVICTED
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import PodStatusReason
from clusters.ports.gateway import Manifest
from clusters.watch.models import ClusterEvent, ObservedPod
from portal.kit.pages.formatting import gpus_text
from workloads.forecast.rules.messages import gpu_time_text
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.preemption.selectors import ONE_DECISION, UID, Preemptor, objects_among, preemptor_of, was_moved
from workloads.state.models import EventType, Workload, WorkloadEvent
from workloads.state.rules import last_checkpoint, lost_gpu_seconds
from workloads.state.services import note

BY_SCHEDULER: Final = "PreemptionByScheduler"
EVICTING: Final = ("Preempted", "Evict", "Evicted")
"""Reasons of schedulers' events; what they mean is for the flavour to say (a kubelet evicts, too)."""
TOGETHER: Final = timedelta(seconds=60)
DELETED_WITHIN: Final = timedelta(seconds=10)
"""Of the moment at which pods were evicted: by two clocks, and one pod after the other."""
MOST_UNKNOWN: Final = 100
MOST_NAMED: Final = 200
POD_DELETED: Final = "PodDeleted"
POD_FAILED: Final = "PodFailed"
UNEXPLAINED: Final = frozenset({"", POD_DELETED, "Evicted"})
"""Reasons of a loss of which an event that comes later may say more."""


def pods_named_in_events(cluster: Cluster, events: Iterable[ClusterEvent]) -> list[ObservedPod]:
    """The pods that these events say were evicted: an event may come long after its pod changed for the last time."""
    evicting = [event for event in events if event.reason in {*EVICTING, PODS_EVICTED}]
    uids = {event.object_uid for event in evicting if event.kind == "Pod"}
    owners = {event.owner_id for event in evicting if event.kind != "Pod"}
    if not (uids or owners):
        return []
    return list(ObservedPod.objects.filter(Q(uid__in=uids) | Q(owner_id__in=owners), cluster=cluster))


def record_evictions(
    cluster: Cluster,
    pods: Iterable[ObservedPod],
    victims: Mapping[str, Workload],
    readings: Mapping[str, PodStatusReason],
) -> list[PreemptionRecord]:
    """Write what is new among these pods, one timeline entry per victim, and complete what is known already."""
    fresh: dict[str, list[PreemptionRecord]] = defaultdict(list)
    ending = {pod.uid: pod for pod in pods if pod.owner_id in victims and _may_be_evicted(pod)}
    if not ending:
        return []
    events = _events(cluster, ending)
    known = {row.pod_uid: row for row in PreemptionRecord.objects.filter(cluster=cluster, pod_uid__in=ending)}
    for uid, pod in ending.items():
        victim, described = victims[pod.owner_id], events.get(uid, [])
        reading = _read(cluster, pod, described, readings.get(uid))
        if uid in known:
            _complete(cluster, known[uid], pod, reading)
        elif at := _moment(pod, described, reading):
            record, created = _record(cluster, pod, victim, reading, at)
            if created:
                fresh[pod.owner_id].append(record)
    for owner, records in fresh.items():
        _write_entry(victims[owner], records)
    return [record for records in fresh.values() for record in records]


def name_preemptors(cluster: Cluster, pods: Iterable[ObservedPod]) -> None:
    """Records that knew only a uid learn whose it is once the pod is seen, or the gang's group."""
    uids = {pod.uid for pod in pods}
    if flavour_for(cluster.flavour).traits.names_objects:
        unknown = _nameless(cluster).exclude(preemptor_uid="").values_list("preemptor_uid", flat=True)
        uids |= objects_among(cluster, unknown.distinct()[:MOST_UNKNOWN])
    for record in _nameless(cluster).filter(preemptor_uid__in=uids) if uids else ():
        _name(record, preemptor_of(cluster, UID + record.preemptor_uid))


def reading_of_loss(workload: Workload) -> PodStatusReason:
    """Why a workload that ran has no pods now: its eviction, else what is known of the pod that it lost last.

    Empty where none was lost: it never ran, or its pods succeeded.
    """
    since = workload.started_at
    if since is None:
        return PodStatusReason()
    records = list(workload.preemptions.filter(at__gte=since).select_related("preemptor")[:MOST_NAMED])
    if records:
        last = [each for each in records if records[0].at - each.at <= ONE_DECISION]
        return PodStatusReason(*_words(workload, last))
    lost = ObservedPod.objects.filter(cluster=workload.project.cluster_id, owner_id=str(workload.pk))
    lost = lost.filter(Q(deletion_at__gte=since) | Q(gone_at__gte=since) | Q(phase="Failed", ended_at__gte=since))
    pod = lost.exclude(phase="Succeeded").order_by("-created_at", "uid").first()
    return _of_lost(pod) if pod else PodStatusReason()


def _of_lost(pod: ObservedPod) -> PodStatusReason:
    """A drain, a node that is gone, its own failure; or that nothing says why."""
    if pod.disruption_reason:
        return PodStatusReason(pod.disruption_reason, pod.disruption_message)
    if pod.phase == "Failed":
        why = f": {pod.reason}" if pod.reason else ""
        return PodStatusReason(POD_FAILED, f"Pod {pod.name} failed{why}.")
    requested = pod.deletion_at and pod.deletion_at - timedelta(seconds=pod.grace_seconds)
    when = f"{requested or pod.gone_at:%H:%M:%S} UTC"
    return PodStatusReason(POD_DELETED, f"Pod {pod.name} was deleted at {when}. The cluster gave no reason.")


def _nameless(cluster: Cluster) -> QuerySet[PreemptionRecord]:
    return PreemptionRecord.objects.filter(cluster=cluster, preemptor=None, preemptor_name="")


def _may_be_evicted(pod: ObservedPod) -> bool:
    """Disrupted by the scheduler; or on its way out for a reason that only an event may tell. A drain is none of it."""
    if pod.disrupted_at is not None:
        return pod.disruption_reason == BY_SCHEDULER
    return pod.deletion_at is not None or pod.gone_at is not None


def _events(cluster: Cluster, pods: Mapping[str, ObservedPod]) -> dict[str, list[ClusterEvent]]:
    found: dict[str, list[ClusterEvent]] = defaultdict(list)
    about = (*EVICTING, PODS_EVICTED)
    rows = ClusterEvent.objects.filter(cluster=cluster, kind="Pod", object_uid__in=list(pods), reason__in=about)
    for event in rows.exclude(owner_id="").order_by("at", "pk"):
        found[event.object_uid].append(event)
    for event in _of_jobs(cluster, pods.values()):
        for pod in pods.values():
            if pod.owner_id == event.owner_id and _ended_by(pod, event):
                found[pod.uid].append(event)
    return found


def _of_jobs(cluster: Cluster, pods: Iterable[ObservedPod]) -> Iterable[ClusterEvent]:
    """A scheduler that queues jobs evicts jobs: it says so of the job, and its pods go without a word.

    Another may leave of its evictions no more than the moment, at what it keeps of the job.
    """
    whole = EVICTING if flavour_for(cluster.flavour).traits.queues_jobs else ()
    owners = {pod.owner_id for pod in pods}
    rows = ClusterEvent.objects.filter(cluster=cluster, owner_id__in=owners, reason__in=(*whole, PODS_EVICTED))
    return rows.exclude(kind="Pod").order_by("at", "pk")


def _ended_by(pod: ObservedPod, event: ClusterEvent) -> bool:
    """It was there when its job was evicted, and then had to go: at once, where some of its pods may have stayed."""
    if event.reason == PODS_EVICTED and pod.deletion_at is not None:
        return abs(pod.deletion_at - timedelta(seconds=pod.grace_seconds) - event.at) <= DELETED_WITHIN
    end = pod.deletion_at or pod.gone_at
    return end is not None and pod.created_at <= event.at <= end


def _read(
    cluster: Cluster, pod: ObservedPod, events: list[ClusterEvent], fresh: PodStatusReason | None
) -> PodStatusReason:
    """Condition and events together, in the flavour's reading; a new one that names a preemptor wins."""
    if fresh is not None and fresh.preemptor:
        return fresh
    messages: list[Manifest] = [{"reason": event.reason, "message": event.message} for event in events]
    found = flavour_for(cluster.flavour).interpret(_as_manifest(pod), messages)
    return found if found.cause or fresh is None else fresh


def _as_manifest(pod: ObservedPod) -> Manifest:
    """The part of the pod about its disruption."""
    if pod.disrupted_at is None:
        return {"status": {}}
    condition = {"type": "DisruptionTarget", "status": "True", "reason": pod.disruption_reason}
    return {"status": {"conditions": [{**condition, "message": pod.disruption_message}]}}


def _moment(pod: ObservedPod, events: list[ClusterEvent], reading: PodStatusReason) -> datetime | None:
    """When the scheduler decided: the condition's transition; else an event's time. None: it was no eviction."""
    if pod.disrupted_at is not None:
        return pod.disrupted_at
    return events[0].at if events and reading.cause else None


def _record(
    cluster: Cluster, pod: ObservedPod, victim: Workload, reading: PodStatusReason, at: datetime
) -> tuple[PreemptionRecord, bool]:
    preemptor = preemptor_of(cluster, reading.preemptor)
    first = _gone_before(pod, victim, at) if reading.whole and int(victim.spec.get("min_member") or 1) > 1 else None
    return PreemptionRecord.objects.get_or_create(
        cluster=cluster,
        pod_uid=pod.uid,
        at=at,
        defaults={
            "pod_name": pod.name,
            "victim": victim,
            "first": first,
            "cause": _cause(reading, victim, preemptor.workload),
            "message": pod.disruption_message or reading.message,
            "node_name": pod.node_name,
            "grace_seconds": pod.grace_seconds,
            "gpu_milli": pod.gpu_milli,
            **_end(pod),
            **preemptor.fields(),
            **_loss(pod, victim, at),
        },
    )


def _gone_before(pod: ObservedPod, victim: Workload, at: datetime) -> PreemptionRecord | None:
    """The first pod of its gang that this very decision took."""
    together = victim.preemptions.filter(first=None, at__gte=at - ONE_DECISION, at__lte=at + ONE_DECISION)
    return together.exclude(pod_uid=pod.uid).order_by("pk").first()


def _complete(cluster: Cluster, record: PreemptionRecord, pod: ObservedPod, reading: PodStatusReason) -> None:
    """What was not known when the record was made. Again changes nothing."""
    changes: dict[str, Any] = {}
    if pod.disrupted_at is not None and pod.disrupted_at != record.at:  # an event came before the condition
        changes = {"at": pod.disrupted_at, "message": pod.disruption_message or record.message}
        changes |= _loss(pod, record.victim, pod.disrupted_at)
    if record.cause == PreemptionCause.UNKNOWN and reading.cause not in {"", record.cause}:
        changes |= {"cause": _cause(reading, record.victim, None), "message": reading.message}
    if record.gone_at is None:
        changes |= {"grace_seconds": pod.grace_seconds, **_end(pod)}
    changes = {name: value for name, value in changes.items() if getattr(record, name) != value}
    if changes:
        PreemptionRecord.objects.filter(pk=record.pk).update(**changes)
        if "message" in changes:
            _name_in_entry(record)
    if record.preemptor is None and not record.preemptor_name and reading.preemptor:
        _name(record, preemptor_of(cluster, reading.preemptor))


def _name(record: PreemptionRecord, preemptor: Preemptor) -> None:
    """Fill in who gained, in the record and in its timeline entries."""
    nameless = PreemptionRecord.objects.filter(pk=record.pk, preemptor=None, preemptor_name="")
    fields = preemptor.fields()
    if record.cause == PreemptionCause.UNKNOWN and preemptor.workload is not None:
        fields["cause"] = _cause(PodStatusReason(), record.victim, preemptor.workload)
    if nameless.update(**fields) and preemptor.is_known:
        _name_in_entry(record)


def _end(pod: ObservedPod) -> dict[str, Any]:
    """When it was gone, and how much of its grace it had used: both by the cluster's clocks where they say."""
    if pod.gone_at is None:
        return {}
    end = pod.ended_at or pod.gone_at
    used: int | None = None
    if pod.deletion_at is not None:
        requested = pod.deletion_at - timedelta(seconds=pod.grace_seconds)
        used = max(0, round((end - requested).total_seconds()))
    return {"gone_at": end, "grace_used_seconds": used}


def _loss(pod: ObservedPod, victim: Workload, at: datetime) -> dict[str, Any]:
    """How long it ran, when it last saved, and what is lost. A pod that never started loses nothing."""
    started = pod.started_at
    if started is None:
        return {}
    checkpoint = last_checkpoint(victim.spec, started=started, now=at)
    return {
        "started_over_quota": victim.started_over_quota,
        "ran_seconds": max(0, int((at - started).total_seconds())),
        "checkpoint_at": checkpoint,
        "lost_gpu_seconds": lost_gpu_seconds(pod.gpu_milli, started=started, checkpoint=checkpoint, at=at),
    }


def _cause(reading: PodStatusReason, victim: Workload, preemptor: Workload | None) -> str:
    """As the scheduler said it; else by the queues: the same one is preempt, another is reclaim."""
    if reading.cause in {PreemptionCause.PREEMPT, PreemptionCause.RECLAIM}:
        return reading.cause
    if preemptor is None:
        return PreemptionCause.UNKNOWN
    same = (preemptor.project_id, preemptor.pool_name) == (victim.project_id, victim.pool_name)
    return PreemptionCause.PREEMPT if same else PreemptionCause.RECLAIM


def _write_entry(victim: Workload, records: list[PreemptionRecord]) -> None:
    """One entry for all pods evicted together, and one count."""
    first = records[0]
    if first.first is not None and _extend_entry(first.first, records):
        return
    word, message = _words(victim, records)
    detail = {"records": [each.pk for each in records], "cause": first.cause}
    note(workload=victim, at=first.at, type_=EventType.PREEMPTION, reason=word, message=message, detail=detail)
    if not _counted_already(victim, first.at, records):
        Workload.objects.filter(pk=victim.pk).update(preempted_count=F("preempted_count") + 1)


def _name_in_entry(record: PreemptionRecord) -> None:
    """The entry that could not name who gained, now that it is known."""
    for entry in _entries_of(record):
        _rewrite_entry(entry, record.victim, entry.detail["records"])


def _extend_entry(first: PreemptionRecord, records: list[PreemptionRecord]) -> bool:
    """The entry of a gang whose other pods were seen later. False: there is none yet."""
    for entry in _entries_of(first):
        _rewrite_entry(entry, first.victim, [*entry.detail["records"], *(each.pk for each in records)])
        return True
    return False


def _entries_of(record: PreemptionRecord) -> list[WorkloadEvent]:
    together = record.victim.timeline.filter(
        type=EventType.PREEMPTION, at__gte=record.at - TOGETHER, at__lte=record.at + TOGETHER
    )
    return [entry for entry in together if record.pk in (entry.detail.get("records") or [])]


def _rewrite_entry(entry: WorkloadEvent, victim: Workload, keys: list[int]) -> None:
    records = list(PreemptionRecord.objects.filter(pk__in=keys).select_related("preemptor").order_by("pk"))
    entry.detail = {**entry.detail, "records": keys}
    entry.reason, entry.message = _words(victim, records)
    entry.save(update_fields=["reason", "message", "detail"])


def _words(victim: Workload, records: list[PreemptionRecord]) -> tuple[str, str]:
    """In one word, and in a sentence without the name of another user's workload."""
    first = records[0]
    nodes = sorted({each.node_name for each in records})
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    gpus, lost = sum(each.gpu_milli for each in records), sum(each.lost_gpu_seconds for each in records)
    what = f"{gpus_text(gpus)} on {where}; about {gpu_time_text(lost)} lost."
    if was_moved(records):
        return "Moved", f"Moved to another node to consolidate free GPUs: {what}"
    own = first.preemptor is not None and first.preemptor.project_id == victim.project_id
    by = f"{first.preemptor_name} ({first.preemptor_priority} {first.preemptor_value})" if own else "another project"
    by = by if first.preemptor_name else "the scheduler (preemptor unknown)"
    word = _WORDS.get(first.cause, "Evicted")
    return word, f"{word} by {by}: {what}"


_WORDS: Final = {PreemptionCause.RECLAIM.value: "Reclaimed", PreemptionCause.PREEMPT.value: "Preempted"}


def _counted_already(victim: Workload, at: datetime, records: list[PreemptionRecord]) -> bool:
    """Whether other pods of the same decision were counted: they may be observed one after the other."""
    together = victim.preemptions.filter(at__gte=at - ONE_DECISION, at__lte=at + ONE_DECISION)
    return together.exclude(pk__in=[each.pk for each in records]).exists()
