"""Allocated and free GPUs of nodes, and time series of the usage samples.

An owner has figures for all node pools together (`ALL`) and, where it is split, for each by name. A pool that is not
named has nothing. Units: GPU thousandths, CPU millicores, memory bytes, seconds.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from django.db import connection
from django.db.models import OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import LIVE_PHASES, Average, ObservedPod, Sample
from scheduling.forecast.headroom import PoolCapacity
from scheduling.model.resources import Resources


def allocated_by_node(clusters: Collection[Cluster]) -> Mapping[tuple[UUID, str], Resources]:
    """By cluster and name of the node: bound pods that have neither ended nor gone. One query."""
    held = ObservedPod.objects.holding().filter(cluster__in=clusters)
    rows = held.values_list("cluster_id", "node_name").order_by()
    summed = rows.annotate(gpu=Sum("gpu_milli"), cpu=Sum("cpu_milli"), memory=Sum("memory_bytes"))
    return {(cluster, node): Resources(gpu, cpu, memory) for cluster, node, gpu, cpu, memory in summed}


def allocated_on_node(column: str) -> Coalesce:
    """For a query of nodes: the sum of a column of the pods that `allocated_by_node` counts."""
    pods = ObservedPod.objects.holding().filter(cluster=OuterRef("cluster"), node_name=OuterRef("name")).order_by()
    return Coalesce(Subquery(pods.values("node_name").annotate(held=Sum(column)).values("held")), 0)


_FREE: Final = """
WITH held AS (
  SELECT cluster_id, CASE WHEN node_name = '' THEN nominated_node ELSE node_name END AS node_name,
    CAST(SUM(gpu_milli) AS bigint) AS gpu, CAST(SUM(cpu_milli) AS bigint) AS cpu,
    CAST(SUM(memory_bytes) AS bigint) AS memory, COUNT(*) AS pods
  FROM clusters_observedpod
  WHERE gone_at IS NULL AND phase IN (PHASES)
    AND cluster_id IN (SELECT cluster_id FROM clusters_nodepool WHERE id IN (POOLS))
  GROUP BY 1, 2
), nodes AS (
  SELECT node.pool_id, node.gpu_milli, node.cpu_milli, node.memory_bytes,
    node.gpu_milli - COALESCE(held.gpu, 0) AS gpu,
    node.cpu_milli - COALESCE(held.cpu, 0) AS cpu,
    node.memory_bytes - COALESCE(held.memory, 0) AS memory,
    node.ready AND NOT node.unschedulable AND node.taints = '[]' AND node.gpu_milli > COALESCE(held.gpu, 0)
      AND (node.max_pods IS NULL OR node.max_pods > COALESCE(held.pods, 0)) AS open
  FROM clusters_node AS node
  LEFT JOIN held ON held.cluster_id = node.cluster_id AND held.node_name = node.name
  WHERE node.pool_id IN (POOLS)
)
SELECT pool_id, open, CAST(SUM(gpu) AS bigint), MAX(gpu),
  CAST(SUM(CASE WHEN cpu > 0 THEN cpu ELSE 0 END) AS bigint),
  CAST(SUM(CASE WHEN memory > 0 THEN memory ELSE 0 END) AS bigint),
  CAST(SUM(gpu_milli) AS bigint), CAST(SUM(cpu_milli) AS bigint), CAST(SUM(memory_bytes) AS bigint)
FROM nodes GROUP BY pool_id, open ORDER BY open
"""
"""Sums over the nodes of each pool: a row for those with room for a pod (`open`), after one for the others.

In SQL, since Django's ORM joins no sums, and a list of projects would read every node of many clusters. A pod for which
others are evicted already counts on its node. PostgreSQL sums integers as `numeric`, hence the casts.
"""

NO_CAPACITY: Final = PoolCapacity(0, 0)


def free_by_pool(pools: Collection[NodePool]) -> Mapping[int, PoolCapacity]:
    """By pool id, for a pod that tolerates no taint; pools without observed nodes are absent. One query."""
    if not pools:
        return {}
    keys = ", ".join(str(pool.pk) for pool in pools)  # numbers: psycopg takes over 50 parameters apart each time
    statement = _FREE.replace("POOLS", keys).replace("PHASES", ", ".join(["%s"] * len(LIVE_PHASES)))
    with connection.cursor() as cursor:
        cursor.execute(statement, LIVE_PHASES)
        return {
            pool: PoolCapacity(free, largest, Resources(0, cpu, memory), Resources(*whole)) if is_open else NO_CAPACITY
            for pool, is_open, free, largest, cpu, memory, *whole in cursor.fetchall()
        }


ALL: Final = "*"
"""All node pools together; no pool can be called so."""
CLUSTER: Final = "cluster"
NODE_POOL: Final = "node-pool"


class Metric(StrEnum):
    """What a figure is called. `waited` is what those that wait now have waited so far, all together."""

    GPU_NODES = "gpu_nodes"
    GPU_TOTAL = "gpu_total"
    GPU_HELD = "gpu_held"
    CPU_TOTAL = "cpu_total"
    CPU_HELD = "cpu_held"
    MEMORY_TOTAL = "memory_total"
    MEMORY_HELD = "memory_held"
    GPU_DESERVED = "gpu_deserved"
    CPU_DESERVED = "cpu_deserved"
    MEMORY_DESERVED = "memory_deserved"
    WORKLOADS = "workloads"
    WAITING = "waiting"
    WAITED = "waited"


Figures = Mapping[str, Mapping[str, float]]
"""By node pool or `ALL`, then by name."""


@dataclass(frozen=True, slots=True)
class SampleOwner:
    """Whose figures: a kind, and a primary key as text."""

    kind: str
    id: str


Samples = Mapping[UUID, Mapping["SampleOwner", Figures]]
"""By cluster and owner."""


class Sampler(Protocol):
    """What one app measures of clusters. The number of queries does not grow with what is there."""

    def __call__(self, clusters: Collection[UUID], /, *, at: datetime) -> Samples: ...


@dataclass(frozen=True, slots=True)
class Resolution:
    """Samples so far apart are kept for so long."""

    every: timedelta
    retention: timedelta


RESOLUTIONS: Final = (
    Resolution(timedelta(minutes=1), timedelta(hours=6)),
    Resolution(timedelta(minutes=10), timedelta(days=8)),
    Resolution(timedelta(hours=1), timedelta(days=35)),
    Resolution(timedelta(days=1), timedelta(days=400)),
)
"""The older, the sparser; 2,600 rows of an owner at most."""

_samplers: Final[list[Sampler]] = []


def register_sampler(sampler: Sampler) -> None:
    """Add a sampler; once is enough, again changes nothing."""
    if sampler not in _samplers:
        _samplers.append(sampler)


def samplers() -> tuple[Sampler, ...]:
    """In order of registration."""
    return tuple(_samplers)


MOST_ROWS: Final = 20_000
"""Samples that one question reads at most, as far as a coarser grain can serve it."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From start to end, cut into so many equal parts."""

    start: datetime
    end: datetime
    parts: int

    def part_of(self, at: datetime) -> int:
        """The part that a moment of the window lies in."""
        return min(int((at - self.start) / (self.end - self.start) * self.parts), self.parts - 1)


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """Means over one part of the window, at its last sample."""

    at: datetime
    figures: Mapping[str, float]


def series_of(
    owners: Collection[SampleOwner], window: TimeWindow, *, pool: str = ALL
) -> Mapping[SampleOwner, list[SeriesPoint]]:
    """Points of each owner, oldest first; parts without a sample have none. One query."""
    if not window.parts or not owners:
        return {}
    kind = next(iter(owners)).kind
    rows = Sample.objects.filter(
        kind=kind,
        owner__in=[owner.id for owner in owners],
        grain__gte=resolution_for(len(owners), window.end - window.start),
        at__gte=window.start,
        at__lte=window.end,
    )
    parts: defaultdict[SampleOwner, defaultdict[int, list[tuple[datetime, Mapping[str, float]]]]]
    parts = defaultdict(lambda: defaultdict(list))
    for owner, at, figures in rows.order_by("at").values_list("owner", "at", "figures"):
        parts[SampleOwner(kind, owner)][window.part_of(at)].append((at, _in_pool(figures, pool)))
    return {owner: [_point(found) for _number, found in sorted(each.items())] for owner, each in parts.items()}


def samples_of(owner: SampleOwner, *, start: datetime, grain: int) -> list[tuple[datetime, Figures]]:
    """Moments and figures of one owner in this or a coarser grain, oldest first. One query."""
    rows = Sample.objects.filter(kind=owner.kind, owner=owner.id, grain__gte=grain, at__gte=start)
    return list(rows.order_by("at").values_list("at", "figures"))


def newest_sample(owner: SampleOwner) -> tuple[datetime, Figures] | None:
    """The last moment and figures of one owner, of any grain. One query of one row."""
    rows = Sample.objects.filter(kind=owner.kind, owner=owner.id)
    return rows.order_by("-at").values_list("at", "figures").first()


def resolution_for(owners: int, span: timedelta, *, most: int = MOST_ROWS) -> int:
    """The finest grain of which no more than `most` samples of so many owners are to be read."""
    for number, grain in enumerate(RESOLUTIONS):
        if owners * min(span, grain.retention) / grain.every <= most:
            return number
    return len(RESOLUTIONS) - 1


def _in_pool(figures: Figures, pool: str) -> Mapping[str, float]:
    """What a sample does not name of a pool was nothing."""
    return {**dict.fromkeys(figures.get(ALL, {}), 0), **figures.get(pool, {})}


def _point(found: Iterable[tuple[datetime, Mapping[str, float]]]) -> SeriesPoint:
    rows = list(found)
    named: defaultdict[str, list[float]] = defaultdict(list)
    for _at, figures in rows:
        for name, number in figures.items():
            named[name].append(number)
    return SeriesPoint(rows[-1][0], {name: sum(numbers) / len(numbers) for name, numbers in named.items()})


def averages_of(kind: str, owners: Collection[object], *, name: Metric = Metric.GPU_HELD) -> Mapping[str, Average]:
    """Averages by the owner's key as text. One query."""
    rows = Average.objects.filter(kind=kind, owner__in=[str(owner) for owner in owners], name=name)
    return {row.owner: row for row in rows}
