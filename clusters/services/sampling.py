"""Measure every cluster once a minute, keep what was measured ever sparser, and average it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Avg, Count, FloatField, Max, Q, Sum
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast
from django.utils import timezone

from clusters.models import Average, Cluster, Node, ObservedPod, Sample
from clusters.samples import ALL, CLUSTER, GRAINS, NODE_POOL, Figures, Name, Owner, samplers
from portal.core.periods import period_start

log = structlog.get_logger(__name__)

EVERY: Final = 60
FRESH: Final = timedelta(minutes=2)
"""A cluster that was not looked at for longer is not sampled: its rows say nothing about this minute."""
SPANS: Final = {"day": (timedelta(days=1), 1), "week": (timedelta(days=7), 2), "month": (timedelta(days=30), 2)}
"""How far back an average goes, and the grain it is made of, so that each moment weighs the same."""
AVERAGED: Final = Name.GPU_HELD
BATCH: Final = 500

Sums = dict[Owner, dict[str, dict[str, float]]]


def take_samples() -> int:
    """One sample of each cluster that is being watched; how many rows. One that fails does not stop the others."""
    now = timezone.now()
    at, rows = period_start(now, EVERY), 0
    for cluster in Cluster.objects.filter(observed_at__gte=now - FRESH):
        try:
            rows += sample_cluster(cluster, at=at)
        except Exception:  # a sampler's fault: the others' minute counts all the same
            log.exception("sample.failed", cluster=cluster.name)
    return rows


@transaction.atomic
def sample_cluster(cluster: Cluster, *, at: datetime) -> int:
    """What every sampler says of the cluster at that moment, in one INSERT. Again at the same moment adds nothing."""
    found: defaultdict[Owner, defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for sampler in (physical, *samplers()):
        for owner, figures in sampler(cluster, at=at).items():
            for pool, named in figures.items():
                found[owner][pool] |= {str(name): number for name, number in named.items()}
    grain = _grain(cluster, at)
    rows = [
        Sample(cluster=cluster, kind=owner.kind, owner=owner.id, at=at, grain=grain, figures=figures)
        for owner, figures in found.items()
    ]
    Sample.objects.bulk_create(rows, ignore_conflicts=True, batch_size=BATCH)
    return len(rows)


def _grain(cluster: Cluster, at: datetime) -> int:
    """The coarsest grain whose period has no sample of this cluster yet."""
    last = Sample.objects.filter(kind=CLUSTER, owner=str(cluster.pk)).aggregate(at=Max("at"))["at"]
    if last is None:
        return len(GRAINS) - 1
    seconds = [int(grain.every.total_seconds()) for grain in GRAINS]
    return max(number for number, size in enumerate(seconds) if not number or last < period_start(at, size))


def physical(cluster: Cluster, /, *, at: datetime) -> Mapping[Owner, Figures]:
    """Nodes of each pool, and what pods hold there."""
    pools = dict(cluster.node_pools.values_list("name", "pk"))
    whole, found = _nothing(), {name: _nothing() for name in pools}
    for name, figures in [*_nodes(cluster), *_held(cluster)]:
        for target in (whole, *([found[name]] if name in found else [])):
            for key, number in figures.items():
                target[key] += number
    owned: dict[Owner, Figures] = {Owner(NODE_POOL, str(pools[name])): {ALL: each} for name, each in found.items()}
    return {Owner(CLUSTER, str(cluster.pk)): {ALL: whole}, **owned}


def _nothing() -> dict[str, float]:
    return dict.fromkeys(_MEASURED, 0)


_MEASURED: Final = (
    Name.GPU_NODES,
    Name.GPU_TOTAL,
    Name.CPU_TOTAL,
    Name.MEMORY_TOTAL,
    Name.GPU_HELD,
    Name.CPU_HELD,
    Name.MEMORY_HELD,
)


def _nodes(cluster: Cluster) -> Iterable[tuple[str, Mapping[Name, float]]]:
    rows = Node.objects.filter(cluster=cluster).values_list("pool__name").order_by()
    counted = rows.annotate(
        with_gpus=Count("pk", filter=Q(gpu_milli__gt=0)),
        gpu=Sum("gpu_milli"),
        cpu=Sum("cpu_milli"),
        memory=Sum("memory_bytes"),
    )
    for name, *numbers in counted:
        yield name or "", dict(zip(_MEASURED[:4], numbers, strict=True))


def _held(cluster: Cluster) -> Iterable[tuple[str, Mapping[Name, float]]]:
    held = ObservedPod.objects.holding().filter(cluster=cluster)
    rows = held.values_list("pool_name").order_by()
    for name, *numbers in rows.annotate(gpu=Sum("gpu_milli"), cpu=Sum("cpu_milli"), memory=Sum("memory_bytes")):
        yield name, dict(zip(_MEASURED[4:], numbers, strict=True))


def thin() -> int:
    """Drop samples that are past the time of their grain; how many."""
    now = timezone.now()
    past = (Sample.objects.filter(grain=number, at__lt=now - grain.kept) for number, grain in enumerate(GRAINS))
    return sum(rows.delete()[0] for rows in past)


def average() -> int:
    """Averages of what is held, of every owner that was sampled; how many owners."""
    now = timezone.now()
    held = Avg(Cast(KeyTextTransform(AVERAGED.value, KeyTransform(ALL, "figures")), FloatField()))
    found: defaultdict[tuple[UUID, str, str], dict[str, float]] = defaultdict(dict)
    for field, (span, grain) in SPANS.items():
        rows = Sample.objects.filter(grain__gte=grain, at__gte=now - span).order_by()
        for cluster, kind, owner, number in rows.values_list("cluster_id", "kind", "owner").annotate(held=held):
            if number is not None:
                found[cluster, kind, owner][field] = number
    made = [
        Average(cluster_id=cluster, kind=kind, owner=owner, name=AVERAGED, at=now, **numbers)
        for (cluster, kind, owner), numbers in found.items()
    ]
    with transaction.atomic():
        Average.objects.filter(at__lt=now).delete()
        Average.objects.bulk_create(made, batch_size=BATCH)
    return len(made)
