"""How busy GPUs are: asked of each cluster's Prometheus once a minute, kept per pod.

Silence is not idleness: a pod that was not measured for `LATE` has no idle time, and begins a new one when it is
measured again.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from clusters.abreast import abreast, nothing
from clusters.credentials import metrics_connection_of
from clusters.errors import ClusterError
from clusters.gateways import gpu_readings_of
from clusters.gpu_readings import GpuReading
from clusters.models import Cluster, ClusterState, GpuUse, MetricsSource, ObservedPod

LATE: Final = timedelta(minutes=5)
BATCH: Final = 1000
ABREAST: Final = 8
"""Sources asked at the same time: a slow one takes half a minute, and all of them have two."""
Said = list[GpuReading] | ClusterError


def measure_all() -> None:
    """One look at every source of a cluster that Rung works with; one that fails says so in its row."""
    sources = list(MetricsSource.objects.filter(cluster__state=ClusterState.ACTIVE))
    for source, said in abreast(sources, _ask, threads=ABREAST, idle=nothing):
        _take(source, said, timezone.now())


def measure(source: MetricsSource, *, now: datetime | None = None) -> None:
    """Ask one source and keep what it says of pods that run. What fails is kept as a sentence."""
    _take(source, _ask(source), now or timezone.now())


def _ask(source: MetricsSource) -> Said:
    """In any thread: it asks no database."""
    try:
        return gpu_readings_of(metrics_connection_of(source), source.metric)
    except ClusterError as error:
        return error


def _take(source: MetricsSource, said: Said, now: datetime) -> None:
    row = MetricsSource.objects.filter(pk=source.pk)
    if isinstance(said, ClusterError):
        row.update(error=said.message[:500])
    else:
        row.update(error="", read_at=now, pods=_keep(source.cluster_id, said, now))


def idle_since(owners: Iterable[str], *, now: datetime) -> Mapping[str, datetime]:
    """For owners (ids of workloads) whose GPU pods were all measured lately and all do nothing: since when."""
    pods = ObservedPod.objects.filter(owner_id__in=owners, gone_at=None, ended_at=None, gpu_milli__gt=0)
    found: dict[str, datetime] = {}
    busy: set[str] = set()
    for owner, since, at in pods.values_list("owner_id", "gpu_use__idle_since", "gpu_use__measured_at"):
        if since is None or at < now - LATE:
            busy.add(owner)
        else:
            found[owner] = max(since, found.get(owner, since))
    return {owner: since for owner, since in found.items() if owner not in busy}


def measures(cluster: Cluster, *, now: datetime) -> bool:
    """Was the use of its GPUs read lately?"""
    return MetricsSource.objects.filter(cluster=cluster, read_at__gte=now - LATE).exists()


@transaction.atomic
def _keep(cluster_id: UUID, readings: Iterable[GpuReading], now: datetime) -> int:
    percents = {(each.namespace, each.pod): each.percent for each in readings}
    pods = ObservedPod.objects.filter(cluster_id=cluster_id, gone_at=None, ended_at=None, gpu_milli__gt=0)
    rows = [
        GpuUse(
            pod_id=pk,
            percent=percents[namespace, name],
            idle_since=_idle_since(percents[namespace, name], since, at, now),
            measured_at=now,
        )
        for pk, namespace, name, since, at in pods.values_list(
            "pk", "namespace", "name", "gpu_use__idle_since", "gpu_use__measured_at"
        )
        if (namespace, name) in percents
    ]
    GpuUse.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["pod"],
        update_fields=["percent", "idle_since", "measured_at"],
        batch_size=BATCH,
    )
    return len(rows)


def _idle_since(percent: int, since: datetime | None, measured_at: datetime | None, now: datetime) -> datetime | None:
    if percent:
        return None
    return since if since and measured_at and now - measured_at <= LATE else now
