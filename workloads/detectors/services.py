"""Running the detectors: open, refresh and end findings, and notify of new ones."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from clusters.inventory.models import Cluster, ClusterState
from portal.kit.messaging.publisher import notify_worker
from workloads.detectors import rules
from workloads.detectors.models import DetectorRun, Finding
from workloads.detectors.rules import SHORT_RUN, THRASH_WINDOW, Detection, FindingKind
from workloads.detectors.selectors import STALE, TITLES, ClusterFacts, facts_of, with_names
from workloads.state.models import EventType, Workload
from workloads.state.rules import WAITING
from workloads.state.services import note

OF_EVICTIONS: Final = (FindingKind.SHORT_EVICTS_LONG, FindingKind.INSIDE_MIN_RUNTIME)
"""Kinds that are about one eviction: found once, and over when its victim no longer waits."""
REOPENED: Final = timedelta(hours=1)
"""What is found again so soon is the same finding, without another notice."""
KEPT: Final = timedelta(days=90)
LONGEST_LOOK_BACK: Final = timedelta(days=2)


def request_checks(now: datetime | None = None) -> int:
    """Notify a worker for each cluster that can be judged, and drop what ended long ago; answers how many."""
    moment = now or timezone.now()
    Finding.objects.filter(ended_at__lt=moment - KEPT).delete()
    clusters = list(_judged(moment).values_list("pk", flat=True))
    for key in clusters:
        notify_worker("workloads.detect_cluster", str(key), queue="maintenance")
    return len(clusters)


def detect_on(cluster_id: str, now: datetime | None = None) -> int:
    """Check one cluster; answers how many findings are new. Gone, paused or not observed lately: none."""
    moment = now or timezone.now()
    cluster = _judged(moment).filter(pk=cluster_id).first()
    return detect(cluster, moment) if cluster else 0


def _judged(now: datetime) -> QuerySet[Cluster]:
    return Cluster.objects.filter(state=ClusterState.ACTIVE, observed_at__gte=now - STALE)


@transaction.atomic
def detect(cluster: Cluster, now: datetime) -> int:
    """Run every detector on one cluster; answers how many findings are new.

    1. read the facts; of history only what happened since the last check, or in the longest window of a detector
    2. refresh what is still found, open what is new, end what is no longer found
    3. write a timeline entry for each new finding about a workload: notifications follow from it
    """
    run, _made = DetectorRun.objects.select_for_update().get_or_create(cluster=cluster, defaults={"checked_at": now})
    since = max(now - LONGEST_LOOK_BACK, min(now - THRASH_WINDOW, run.checked_at - SHORT_RUN))
    facts = facts_of(cluster, since=since, now=now)
    found = {(each.kind.value, each.key): each for each in detections(facts, cluster, now)}
    known = _known(cluster, found, now)
    refreshed = [_fill(known[key], each, now) for key, each in found.items() if key in known]
    fields = ["evidence", "advice", "named", "gpu_seconds", "last_seen", "ended_at"]
    Finding.objects.bulk_update(refreshed, fields, batch_size=200)
    fresh = [_fill(_opened(cluster, each, now), each, now) for key, each in found.items() if key not in known]
    Finding.objects.bulk_create(fresh, batch_size=200)
    _end(cluster, [row.pk for row in (*refreshed, *fresh)], now)
    _notify(fresh, now)
    DetectorRun.objects.filter(cluster=cluster).update(checked_at=now)
    return len(fresh)


def detections(facts: ClusterFacts, cluster: Cluster, now: datetime) -> Iterator[Detection]:
    """What every detector finds in these facts."""
    recent = [each for each in facts.evictions if each.at >= now - THRASH_WINDOW]
    return chain(
        rules.short_evicts_long(facts.evictions),
        rules.inside_min_runtime(facts.evictions, deferring=cluster.defer_preemptors),
        rules.thrashing(recent),
        rules.priority_inversion(facts.waiting, facts.running, now),
        rules.starvation(facts.waiting, facts.running, now),
        rules.fragmentation(facts.waiting, facts.nodes, facts.named, now),
        rules.quota_above_physical(facts.pools),
        rules.idle_gpus(facts.idle, facts.waiting, now),
        rules.pinned_quota(facts.pinned),
    )


def _known(cluster: Cluster, found: dict[tuple[str, str], Detection], now: datetime) -> dict[tuple[str, str], Finding]:
    """The rows of what is found: open, ended a short time ago, or about the same eviction."""
    rows = Finding.objects.filter(cluster=cluster, key__in={key for _kind, key in found}).order_by("pk")
    current = Q(ended_at=None) | Q(ended_at__gte=now - REOPENED) | Q(kind__in=OF_EVICTIONS)
    return {(row.kind, row.key): row for row in rows.filter(current)}


def _opened(cluster: Cluster, found: Detection, now: datetime) -> Finding:
    subject = found.jobs[0] if found.jobs else None
    return Finding(
        cluster=cluster,
        kind=found.kind.value,
        key=found.key,
        project_id=subject.project if subject else None,
        workload_id=UUID(subject.id) if subject else None,
        pool_name=found.pool,
        first_seen=found.since or now,
    )


def _fill(row: Finding, found: Detection, now: datetime) -> Finding:
    held = max(0, int((now - row.first_seen).total_seconds()))
    row.evidence, row.advice = list(found.evidence), found.advice
    row.named = [{"id": job.id, "name": job.name, "project": job.project} for job in found.jobs]
    row.gpu_seconds = found.cost + found.rate * held // 1000
    if found.ended is None or row.ended_at is None:
        row.last_seen, row.ended_at = found.ended or now, found.ended
    return row


def _end(cluster: Cluster, seen: Sequence[int], now: datetime) -> None:
    """What was not found any more; of evictions older than the facts, those whose victim no longer waits."""
    gone = Finding.objects.filter(cluster=cluster, ended_at=None).exclude(pk__in=seen)
    waits = Workload.objects.filter(phase__in=WAITING, deleted_at=None)
    gone.exclude(kind__in=OF_EVICTIONS, workload__in=waits).update(ended_at=now)


def _notify(fresh: Sequence[Finding], now: datetime) -> None:
    """In the words of the workload's own project."""
    subjects = Workload.objects.in_bulk([row.workload_id for row in fresh if row.workload_id])
    for row in fresh:
        if row.workload_id is None:
            continue
        workload = subjects[row.workload_id]
        (readable,) = with_names([row], {workload.project_id})
        message = f"{TITLES[row.kind]}. {' '.join(readable.sentences)}"
        detail = {"finding": row.pk, "kind": row.kind}
        note(
            workload=workload,
            at=now,
            type_=EventType.SCHEDULING,
            reason=reason_of(row.kind),
            message=message,
            detail=detail,
        )


def reason_of(kind: str) -> str:
    """The kind as a timeline entry and a notification type name it: `PriorityInversion`."""
    return "".join(word.capitalize() for word in kind.split("-"))
