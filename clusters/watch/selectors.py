"""Allocated and free GPUs of nodes, and time series of the usage samples.

An owner has figures for all node pools together (`ALL`) and, where it is split, for each by name. A pool that is not
named has nothing. Units: GPU thousandths, CPU millicores, memory bytes, seconds.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from operator import add, itemgetter
from typing import Final, Protocol
from uuid import UUID

from django.db.models import BooleanField, Count, ExpressionWrapper, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import Average, ObservedPod, Sample
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


_TAKES_PODS: Final = ExpressionWrapper(Q(ready=True, unschedulable=False, taints=[]), BooleanField())
_NODE: Final = ("pool_id", "name", "gpu_milli", "cpu_milli", "memory_bytes", "max_pods")


def free_by_pool(pools: Collection[NodePool]) -> Mapping[int, PoolCapacity]:
    """By pool id, for a pod that bears no taint; pools of which no node was seen are absent. Three queries.

    A list of projects reads every node of many clusters: plain numbers are added up.
    """
    by_cluster = _held({pool.cluster_id for pool in pools})
    held = {pool.pk: by_cluster[pool.cluster_id] for pool in pools}
    nodes: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    rows = Node.objects.filter(pool__in=pools).order_by().values_list(*_NODE, _TAKES_PODS)
    for pool, name, gpus, cpu, memory, most_pods, takes_pods in rows:
        found = nodes[pool]
        held_gpus, held_cpu, held_memory, pods = held[pool].get(name, _NOTHING)
        if takes_pods and gpus > held_gpus and (most_pods is None or pods < most_pods):
            beside = max(cpu - held_cpu, 0), max(memory - held_memory, 0)
            found.append((gpus - held_gpus, *beside, gpus, cpu, memory))
    return {pool: _capacity(found) for pool, found in nodes.items()}


def _capacity(nodes: Sequence[tuple[int, ...]]) -> PoolCapacity:
    """nodes: free GPUs, CPU and memory, and all of them, of each node with a free GPU."""
    if not nodes:
        return PoolCapacity(0, 0)
    free, cpu, memory, *whole = (sum(column) for column in zip(*nodes, strict=True))
    return PoolCapacity(free, max(node[0] for node in nodes), Resources(0, cpu, memory), Resources(*whole))


_Held = tuple[int, ...]
"""GPU thousandths, CPU millicores, memory bytes and the number of pods."""
_NOTHING: Final[_Held] = (0, 0, 0, 0)


def _held(clusters: Collection[UUID]) -> Mapping[UUID, Mapping[str, _Held]]:
    """What pods hold by cluster and node: those there, and those that others are evicted for."""
    found: dict[UUID, dict[str, _Held]] = {cluster: {} for cluster in clusters}
    live = ObservedPod.objects.live().filter(cluster__in=clusters)
    sums = {"gpus": Sum("gpu_milli"), "cpu": Sum("cpu_milli"), "memory": Sum("memory_bytes"), "pods": Count("pk")}
    for place, pods in (("node_name", live), ("nominated_node", live.filter(node_name=""))):
        rows = pods.exclude(**{place: ""}).values_list("cluster_id", place).order_by()
        for cluster, node, *amounts in rows.annotate(**sums):
            found[cluster][node] = tuple(map(add, found[cluster].get(node, _NOTHING), amounts))
    return found


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
    kept: timedelta


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


def moments_of(
    kind: str, cluster: UUID, *, start: datetime, grain: int
) -> Iterator[tuple[datetime, Mapping[str, Figures]]]:
    """All samples of one kind of owner in a cluster by moment, oldest first: figures by the owner's key. One query."""
    rows = Sample.objects.filter(kind=kind, cluster=cluster, grain__gte=grain, at__gte=start).order_by("at")
    for at, same in groupby(rows.values_list("at", "owner", "figures"), key=itemgetter(0)):
        yield at, {owner: figures for _at, owner, figures in same}


def resolution_for(owners: int, span: timedelta, *, most: int = MOST_ROWS) -> int:
    """The finest grain of which no more than `most` samples of so many owners are to be read."""
    for number, grain in enumerate(RESOLUTIONS):
        if owners * min(span, grain.kept) / grain.every <= most:
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
