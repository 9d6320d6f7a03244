"""GPU usage read from Prometheus, and samples of every cluster once a minute, a part of the clusters at a time.

Silence is not idleness: a pod that was not measured for `LATE` has no idle time, and begins a new one when it is
measured again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import Final
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Avg, Count, FloatField, Max, Q, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast
from django.utils import timezone

from clusters.connection.models import MetricsSource
from clusters.connection.services.gateways import gpu_readings_of, metrics_connection_of
from clusters.inventory.models import Cluster, ClusterState, Node, NodePool
from clusters.ports.gateway import ClusterError, GpuUtilization
from clusters.watch.models import Average, GpuUse, ObservedPod, Sample
from clusters.watch.selectors import ALL, CLUSTER, NODE_POOL, RESOLUTIONS, Metric, SampleOwner, Samples, samplers
from portal.kit.messaging.concurrency import map_concurrently, no_work
from portal.kit.messaging.tasks import period_start

LATE: Final = timedelta(minutes=5)
READINGS_BATCH: Final = 1000
CONCURRENT_SOURCES: Final = 8
"""Sources asked at the same time: a slow one takes half a minute, and all of them have two."""
SourceResult = list[GpuUtilization] | ClusterError


def measure_all(*, now: datetime | None = None) -> None:
    """One look at every source of a cluster that Rung works with; one that fails says so in its row."""
    sources = list(MetricsSource.objects.filter(cluster__state=ClusterState.ACTIVE))
    for source, result in map_concurrently(sources, _ask, threads=CONCURRENT_SOURCES, idle=no_work):
        _take(source, result, now or timezone.now())


def _ask(source: MetricsSource) -> SourceResult:
    """In any thread: it asks no database."""
    try:
        return gpu_readings_of(metrics_connection_of(source), source.metric)
    except ClusterError as error:
        return error


def _take(source: MetricsSource, result: SourceResult, now: datetime) -> None:
    row = MetricsSource.objects.filter(pk=source.pk)
    if isinstance(result, ClusterError):
        row.update(error=result.message[:500])
    else:
        row.update(error="", read_at=now, pods=_keep(source.cluster_id, result, now))


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


def idle_owners(moment: datetime) -> set[str]:
    """Owners (ids of workloads) of pods in a cluster that have done nothing on a GPU since that moment or longer."""
    pods = ObservedPod.objects.filter(gpu_use__idle_since__lte=moment, gone_at=None, ended_at=None, gpu_milli__gt=0)
    return set(pods.exclude(owner_id="").values_list("owner_id", flat=True))


def has_recent_readings(cluster: Cluster, *, now: datetime) -> bool:
    """Was the use of its GPUs read lately?"""
    return MetricsSource.objects.filter(cluster=cluster, read_at__gte=now - LATE).exists()


@transaction.atomic
def _keep(cluster_id: UUID, readings: Iterable[GpuUtilization], now: datetime) -> int:
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
        batch_size=READINGS_BATCH,
    )
    return len(rows)


def _idle_since(percent: int, since: datetime | None, measured_at: datetime | None, now: datetime) -> datetime | None:
    if percent:
        return None
    return since if since and measured_at and now - measured_at <= LATE else now


log = structlog.get_logger(__name__)

EVERY: Final = 60
SAMPLING: Final = 4
"""Seconds between two runs of the task. Each samples a part of the clusters, so that no run grows with their number."""
RUNS: Final = 13
"""Runs that sample every cluster once. A minute has two more."""
TIDYING: Final = 600
"""Seconds in which every cluster has a turn to have its samples averaged and old ones dropped."""
FEWEST: Final = 4
"""Clusters that one run samples even if fewer would do."""
FRESH: Final = timedelta(minutes=2)
"""A cluster that was not looked at for longer is not sampled: its rows say nothing about this minute."""
SPANS: Final = {"day": (timedelta(days=1), 1), "week": (timedelta(days=7), 2), "month": (timedelta(days=30), 2)}
"""How far back an average goes, and the grain it is made of, so that each moment weighs the same."""
AVERAGED: Final = Metric.GPU_HELD
BATCH: Final = 500


def take_samples() -> int:
    """Sample the next watched clusters that have no sample of this minute; how many rows."""
    now = timezone.now()
    at = period_start(now, EVERY)
    watched = list(Cluster.objects.filter(observed_at__gte=now - FRESH).order_by("pk").values_list("pk", flat=True))
    done = set(_of_clusters(watched).filter(at=at).values_list("owner", flat=True))
    due = [each for each in watched if str(each) not in done]
    return sample_clusters(due[: batch_of(len(watched))], at=at)


def batch_of(watched: int) -> int:
    """How many of so many watched clusters one run samples."""
    return max(FEWEST, ceil(watched / RUNS))


def _of_clusters(clusters: Collection[UUID]) -> QuerySet[Sample]:
    return Sample.objects.filter(kind=CLUSTER, owner__in=[str(each) for each in clusters]).order_by()


@transaction.atomic
def sample_clusters(clusters: Collection[UUID], *, at: datetime) -> int:
    """What every sampler says of the clusters at that moment. Again at the same moment adds nothing."""
    found: defaultdict[tuple[UUID, SampleOwner], defaultdict[str, dict[str, float]]]
    found = defaultdict(lambda: defaultdict(dict))
    for sampler in (physical, *samplers()):
        for cluster, owners in sampler(clusters, at=at).items():
            for owner, figures in owners.items():
                for pool, named in figures.items():
                    found[cluster, owner][pool] |= {str(name): number for name, number in named.items()}
    grains = _grains(clusters, at)
    rows = [
        Sample(cluster_id=cluster, kind=owner.kind, owner=owner.id, at=at, grain=grains[cluster], figures=figures)
        for (cluster, owner), figures in found.items()
    ]
    Sample.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def _grains(clusters: Collection[UUID], at: datetime) -> Mapping[UUID, int]:
    """By cluster: the coarsest grain whose period has no sample of it yet."""
    today = period_start(at, int(RESOLUTIONS[-1].every.total_seconds()))
    last = dict(_of_clusters(clusters).filter(at__gte=today).values_list("owner").annotate(last=Max("at")))
    return {each: _grain(last.get(str(each)), at) for each in clusters}


def _grain(last: datetime | None, at: datetime) -> int:
    if last is None:
        return len(RESOLUTIONS) - 1
    seconds = [int(grain.every.total_seconds()) for grain in RESOLUTIONS]
    return max(number for number, size in enumerate(seconds) if not number or last < period_start(at, size))


def physical(clusters: Collection[UUID], /, *, at: datetime) -> Samples:
    """Nodes of each pool, and what pods hold there."""
    pools = {
        (cluster, name): SampleOwner(NODE_POOL, str(pk))
        for cluster, name, pk in NodePool.objects.filter(cluster__in=clusters).values_list("cluster", "name", "pk")
    }
    found = {cluster: {SampleOwner(CLUSTER, str(cluster)): {ALL: _nothing()}} for cluster in clusters}
    for (cluster, _name), owner in pools.items():
        found[cluster][owner] = {ALL: _nothing()}
    for cluster, name, figures in [*_nodes(clusters), *_held(clusters)]:
        whole, pool = SampleOwner(CLUSTER, str(cluster)), pools.get((cluster, name))
        for owner in (whole, *([pool] if pool else [])):
            for key, number in figures.items():
                found[cluster][owner][ALL][key] += number
    return found


def _nothing() -> dict[str, float]:
    return dict.fromkeys(_MEASURED, 0)


_MEASURED: Final = (
    Metric.GPU_NODES,
    Metric.GPU_TOTAL,
    Metric.CPU_TOTAL,
    Metric.MEMORY_TOTAL,
    Metric.GPU_HELD,
    Metric.CPU_HELD,
    Metric.MEMORY_HELD,
)
OfPool = tuple[UUID, str, Mapping[Metric, float]]
"""Cluster, name of the pool (empty: none), figures."""


def _nodes(clusters: Collection[UUID]) -> Iterable[OfPool]:
    rows = Node.objects.filter(cluster__in=clusters).values_list("cluster", "pool__name").order_by()
    counted = rows.annotate(
        with_gpus=Count("pk", filter=Q(gpu_milli__gt=0)),
        gpu=Sum("gpu_milli"),
        cpu=Sum("cpu_milli"),
        memory=Sum("memory_bytes"),
    )
    for cluster, name, *numbers in counted:
        yield cluster, name or "", dict(zip(_MEASURED[:4], numbers, strict=True))


def _held(clusters: Collection[UUID]) -> Iterable[OfPool]:
    rows = ObservedPod.objects.holding().filter(cluster__in=clusters).values_list("cluster", "pool_name").order_by()
    sums = rows.annotate(gpu=Sum("gpu_milli"), cpu=Sum("cpu_milli"), memory=Sum("memory_bytes"))
    for cluster, name, *numbers in sums:
        yield cluster, name, dict(zip(_MEASURED[4:], numbers, strict=True))


def tidy_samples() -> None:
    """Drop and average what was sampled of the clusters whose turn it is; each has one in ten minutes."""
    turns = TIDYING // SAMPLING
    turn = int(timezone.now().timestamp()) // SAMPLING % turns
    clusters = list(Cluster.objects.order_by("pk").values_list("pk", flat=True))[turn::turns]
    if clusters:
        thin(clusters)
        average(clusters)


def thin(clusters: Collection[UUID]) -> int:
    """Drop samples of the clusters that are past the time of their grain; how many."""
    now, rows = timezone.now(), Sample.objects.filter(cluster__in=clusters)
    past = (rows.filter(grain=number, at__lt=now - grain.retention) for number, grain in enumerate(RESOLUTIONS))
    return sum(each.delete()[0] for each in past)


def average(clusters: Collection[UUID]) -> int:
    """Averages of what is held, of every owner in the clusters that was sampled; how many owners."""
    now = timezone.now()
    held = Avg(Cast(KeyTextTransform(AVERAGED.value, KeyTransform(ALL, "figures")), FloatField()))
    found: defaultdict[tuple[UUID, str, str], dict[str, float]] = defaultdict(dict)
    for field, (span, grain) in SPANS.items():
        grains = range(grain, len(RESOLUTIONS))  # by name: an index finds no range of grains and of times at once
        rows = Sample.objects.filter(cluster__in=clusters, grain__in=grains, at__gte=now - span).order_by()
        for cluster, kind, owner, number in rows.values_list("cluster_id", "kind", "owner").annotate(held=held):
            if number is not None:
                found[cluster, kind, owner][field] = number
    made = [
        Average(cluster_id=cluster, kind=kind, owner=owner, name=AVERAGED, at=now, **numbers)
        for (cluster, kind, owner), numbers in found.items()
    ]
    with transaction.atomic():
        Average.objects.filter(cluster__in=clusters, at__lt=now).delete()
        Average.objects.bulk_create(made, batch_size=BATCH)
    return len(made)
