"""What the cluster pages show, read in a constant number of queries: room per pool, nodes, runs, drift."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Final

from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    F,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Greatest

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.sync.models import Drift, DriftKind, OrphanedObject, SyncOutcome, SyncRun
from clusters.sync.selectors import Comparison, comparison_of
from clusters.watch.models import ObservedPod
from clusters.watch.selectors import allocated_on_node
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, can
from tenants.organisation.models import Department, Project

MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node and what is held on it. Amounts in GPU thousandths."""

    node: Node
    held: int
    non_preemptible: int

    @property
    def usable(self) -> bool:
        return self.node.ready and not self.node.unschedulable

    @property
    def free(self) -> int:
        return max(self.node.gpu_milli - self.held, 0) if self.usable else 0

    @property
    def cells(self) -> list[str]:
        """One word per GPU: fixed (non-preemptible), used, part (of which a part is held), free or away."""
        return [self._cell(first) for first in range(0, self.node.gpu_milli, MILLI)]

    def _cell(self, first: int) -> str:
        if min(first + MILLI, self.node.gpu_milli) <= self.held:
            return "fixed" if first < self.non_preemptible else "used"
        if first < self.held:
            return "part"
        return "free" if self.usable else "away"


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A node pool in figures. `largest`: the most GPUs that one pod can get now."""

    name: str
    nodes: int
    total: int
    held: int
    free: int
    largest: int


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A topology level of a pool as its nodes carry it: how many domains there are, and nodes that are in none."""

    key: str
    domains: int
    without: int


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One line of the list. Amounts in GPU thousandths; free counts only nodes that take pods."""

    cluster: Cluster
    nodes: int
    total: int
    held: int
    free: int
    drifts: int
    last_run: SyncRun | None

    @property
    def comparison(self) -> "Comparison":
        """What the last complete comparison says now."""
        return comparison_of(self.cluster)


@dataclass(frozen=True, slots=True)
class FormerScheduler:
    """A former scheduler of which something may still be there, and how many workloads were made for it."""

    title: str
    left_at: datetime
    workloads: int


def former_schedulers_of(cluster: Cluster) -> list[FormerScheduler]:
    """What is still being left, oldest first."""
    behind = OrphanedObject.objects.filter(cluster=cluster).values_list("flavour").annotate(Count("id"))
    counts = dict(behind.order_by())
    rows = cluster.former_flavours.filter(cleared_at=None)
    return [FormerScheduler(flavour_for(row.flavour).title, row.left_at, counts.get(row.flavour, 0)) for row in rows]


def unanswered_kinds(cluster: Cluster) -> list[tuple[str, datetime]]:
    """Kinds of workload of which no controller answered, by name, each with since when."""
    return [
        (kind.partition(".")[0], datetime.fromisoformat(since)) for kind, since in sorted(cluster.silent_kinds.items())
    ]


def held_by_node(cluster: Cluster) -> Mapping[str, tuple[int, int]]:
    """(all, non-preemptible) GPU thousandths of bound pods that have not gone, per node."""
    rows = ObservedPod.objects.holding().filter(cluster=cluster).values_list("node_name").order_by()
    sums = rows.annotate(held=Sum("gpu_milli"), fixed=Sum("gpu_milli", filter=Q(preemptible=False)))
    return {node: (held or 0, fixed or 0) for node, held, fixed in sums}


def node_rows(cluster: Cluster) -> list[NodeRow]:
    """Every node with GPUs first, by pool and name."""
    held = held_by_node(cluster)
    shown = ("name", "gpu_type", "gpu_milli", "ready", "unschedulable", "cluster", "pool__name")
    order = (F("pool__is_default").desc(nulls_last=True), "pool__name", "name")
    nodes = cluster.nodes.select_related("pool").only(*shown).order_by(*order)
    return [NodeRow(node, *held.get(node.name, (0, 0))) for node in nodes]


def pool_rows(nodes: Iterable[NodeRow]) -> list[PoolRow]:
    pools: dict[str, list[NodeRow]] = defaultdict(list)
    for row in nodes:
        pools[row.node.pool.name if row.node.pool else ""].append(row)
    return [
        PoolRow(
            name,
            len(rows),
            sum(row.node.gpu_milli for row in rows),
            sum(row.held for row in rows),
            sum(row.free for row in rows),
            max(row.free for row in rows),
        )
        for name, rows in pools.items()
    ]


def level_rows(pools: Iterable[NodePool]) -> Mapping[int, list[LevelRow]]:
    """The levels of each pool by its id, widest first."""
    named = [pool for pool in pools if pool.topology_levels]
    labels: dict[int, list[Mapping[str, str]]] = defaultdict(list)
    for pool_id, found in Node.objects.filter(pool__in=named).values_list("pool_id", "labels"):
        labels[pool_id].append(found)
    return {pool.pk: [_level(key, labels[pool.pk]) for key in pool.topology_levels] for pool in named}


def _level(key: str, nodes: Iterable[Mapping[str, str]]) -> LevelRow:
    values = [labels.get(key) for labels in nodes]
    return LevelRow(key, len({*values} - {None}), values.count(None))


def cluster_rows(clusters: Sequence[Cluster]) -> list[ClusterRow]:
    """These clusters, each with its figures and its latest run. Three queries."""
    drifts = Drift.objects.filter(cluster__in=clusters).order_by().values_list("cluster").annotate(Count("pk"))
    counts, figures, runs = dict(drifts), _gpu_figures(clusters), _latest_runs(clusters)
    return [
        ClusterRow(
            cluster=each,
            **figures.get(each.pk, dict.fromkeys(_FIGURES, 0)),
            drifts=counts.get(each.pk, 0),
            last_run=runs.get(each.pk),
        )
        for each in clusters
    ]


def _latest_runs(clusters: Sequence[Cluster]) -> Mapping[object, SyncRun]:
    own = SyncRun.objects.filter(cluster=OuterRef("pk"), dry_run=False).order_by("-started_at", "-id")
    newest = Cluster.objects.filter(pk__in=[each.pk for each in clusters]).values_list(Subquery(own.values("pk")[:1]))
    return {run.cluster_id: run for run in SyncRun.objects.filter(pk__in=newest)}


_FIGURES: Final = ("nodes", "total", "held", "free")


def _gpu_figures(clusters: Sequence[Cluster]) -> Mapping[object, dict[str, int]]:
    """Per cluster: its nodes, and their GPUs in thousandths, added up by the database."""
    free = Greatest(F("gpu_milli") - F("on_it"), 0, output_field=BigIntegerField())
    rows = Node.objects.filter(cluster__in=clusters).order_by()
    counted = (
        rows.annotate(on_it=allocated_on_node("gpu_milli"))
        .values("cluster")
        .annotate(
            nodes=Count("pk"),
            total=Sum("gpu_milli"),
            held=Sum("on_it"),
            free=Sum(Case(When(ready=True, unschedulable=False, then=free), default=0)),
        )
    )
    return {row["cluster"]: {name: row[name] for name in _FIGURES} for row in counted}


SHARED_OWNERS: Final = ("pool.", "priority.")
"""Owners that belong to no project or department, as the owner label begins."""


@dataclass(frozen=True, slots=True)
class ObjectVisibility:
    """Which objects of a cluster a reader sees: all of them, or shared ones and those of visible projects."""

    everything: bool = False
    owners: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()

    @property
    def condition(self) -> Q:
        """For rows with an owner and a namespace. Without an owner they are an admin's to see."""
        if self.everything:
            return Q()
        shared = (Q(owner__startswith=prefix) for prefix in SHARED_OWNERS)
        return reduce(or_, shared, Q(owner__in=self.owners) | Q(namespace__in=self.namespaces))

    def owners_in(self, scope: str) -> list[str]:
        """Those of a run's owners, one a line, that the reader may know."""
        owners = scope.splitlines()
        return [each for each in owners if self.everything or each in self.owners or each.startswith(SHARED_OWNERS)]


def object_visibility(actor: Actor, cluster: Cluster) -> ObjectVisibility:
    """What an actor sees of a cluster's sync runs and drift."""
    if can(actor, Permission.MANAGE_CLUSTERS):
        return ObjectVisibility(everything=True)
    access = access_for(actor)
    projects = dict(access.projects().filter(cluster=cluster).values_list("pk", "namespace"))
    departments = access.departments().filter(cluster=cluster).values_list("pk", flat=True)
    owners = (*map(Project.owner_of, projects), *map(Department.owner_of, departments))
    return ObjectVisibility(owners=frozenset(owners), namespaces=frozenset(projects.values()))


def runs_of(cluster: Cluster, visible: ObjectVisibility, *, outcomes: int = 20) -> QuerySet[SyncRun]:
    """Its runs, newest first, each with what happened to its first objects, failures before the rest.

    hidden_outcomes: how many objects of a run the reader may not see.
    """
    rows = SyncOutcome.objects.filter(visible.condition).order_by("ok", "id")
    runs = cluster.sync_runs.prefetch_related(Prefetch("outcomes", queryset=rows[:outcomes], to_attr="first_outcomes"))
    return runs.annotate(hidden_outcomes=Value(0) if visible.everything else _hidden_outcomes(visible))


def _hidden_outcomes(visible: ObjectVisibility) -> Coalesce:
    rows = SyncOutcome.objects.filter(run=OuterRef("pk")).exclude(visible.condition).order_by()
    return Coalesce(Subquery(rows.values("run").annotate(count=Count("pk")).values("count")), 0)


def outcomes_of(run: SyncRun, visible: ObjectVisibility) -> QuerySet[SyncOutcome]:
    """What happened to each object, in the order in which it did."""
    return run.outcomes.filter(visible.condition)


def drifts_of(cluster: Cluster, visible: ObjectVisibility) -> QuerySet[Drift]:
    return cluster.drifts.filter(visible.condition)


def hidden_drifts(cluster: Cluster, visible: ObjectVisibility) -> int:
    """How many differences the reader may not see."""
    return 0 if visible.everything else cluster.drifts.exclude(visible.condition).count()


def difference(cluster: Cluster, visible: ObjectVisibility, *, kind: str, namespace: str, name: str) -> Drift | None:
    """How one object of ours differs now. Rows are rewritten at every look: an object is found by what it is called."""
    rows = drifts_of(cluster, visible).filter(kind=kind, namespace=namespace, name=name)
    return rows.exclude(category=DriftKind.STALE).select_related("cluster").first()
