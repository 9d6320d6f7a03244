"""What the cluster pages show, read in a constant number of queries: room per pool, nodes, runs, drift."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from django.db.models import Count, F, OuterRef, Prefetch, Q, QuerySet, Subquery, Sum
from django.utils import timezone

from clusters.errors import NotServed
from clusters.flavours import flavour_for
from clusters.models import (
    Cluster,
    ClusterState,
    Drift,
    DriftKind,
    LeftBehind,
    Node,
    NodePool,
    ObservedPod,
    SyncOutcome,
    SyncRun,
)

MILLI: Final = 1000
STALE_AFTER: Final = timedelta(seconds=30)
COMPARISON_LASTS: Final = timedelta(minutes=3)
"""Everything is compared once a minute: three comparisons are missing by then."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node and what is held on it. Amounts in GPU thousandths."""

    node: Node
    held: int
    non_preemptible: int

    @property
    def usable(self) -> bool:
        """Takes new pods."""
        return self.node.ready and not self.node.unschedulable

    @property
    def free(self) -> int:
        return max(self.node.gpu_milli - self.held, 0) if self.usable else 0

    @property
    def cells(self) -> list[str]:
        """One word per GPU: fixed (non-preemptible), used, free or away."""
        count = -(-self.node.gpu_milli // MILLI)
        fixed, held = -(-self.non_preemptible // MILLI), -(-self.held // MILLI)
        rest = "free" if self.usable else "away"
        return ["fixed" if at < fixed else "used" if at < held else rest for at in range(count)]


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

    @property
    def is_stale(self) -> bool:
        """Nobody has looked at it for a while, or ever: its numbers are old."""
        seen = self.cluster.observed_at
        return seen is None or timezone.now() - seen > STALE_AFTER


@dataclass(frozen=True, slots=True)
class Leaving:
    """A former scheduler of which something may still be there, and how many workloads were made for it."""

    title: str
    left_at: datetime
    workloads: int


def leavings_of(cluster: Cluster) -> list[Leaving]:
    """What is still being left, oldest first."""
    behind = LeftBehind.objects.filter(cluster=cluster).values_list("flavour").annotate(Count("id"))
    counts = dict(behind.order_by())
    rows = cluster.former_flavours.filter(cleared_at=None)
    return [Leaving(flavour_for(row.flavour).title, row.left_at, counts.get(row.flavour, 0)) for row in rows]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the last complete comparison with a cluster says now, and when that was.

    never: there was none. unknown: it says nothing of now, for the reason `why`. changing: something has been decided
    since. synced: all that was decided has been compared.
    """

    state: Literal["never", "unknown", "changing", "synced"]
    at: datetime | None
    why: str = ""


def comparison_of(cluster: Cluster) -> Comparison:
    """May it be said that the cluster holds what the database wants? Differences that were found are drift rows."""
    if cluster.synced_at is None:
        return Comparison("never", None)
    if why := _not_compared(cluster, cluster.synced_at):
        return Comparison("unknown", cluster.synced_at, why)
    behind = cluster.synced_generation < cluster.generation
    return Comparison("changing" if behind else "synced", cluster.synced_at)


def _not_compared(cluster: Cluster, at: datetime) -> str:
    """Why the comparison of then says nothing of now."""
    if cluster.state == ClusterState.PAUSED:
        return "Rung compares nothing on a paused cluster."
    if cluster.breaker_reason:
        return "The cluster takes no work now."
    if cluster.failures:
        return "The last sync run did not succeed."
    return "No sync run has compared it to the end since." if timezone.now() - at > COMPARISON_LASTS else ""


def work_stopped(cluster: Cluster) -> str:
    """Say why the cluster is handed no work now, "" where it is. Reads the row: the one in hand may be minutes old."""
    row = Cluster.objects.only("name", "state", "paused_reason", "breaker_reason").get(pk=cluster.pk)
    if row.state == ClusterState.PAUSED:
        return f"{row.name} is paused: nothing is handed to it until an admin lets Rung go on. {row.paused_reason}"
    if row.breaker_reason:
        return f"{row.name} takes no work now; Rung tries again by itself. {row.breaker_reason}"
    return ""


def missing_parts(cluster: Cluster) -> str:
    """What the cluster does not serve of its scheduler's kinds, as the last sync run found; "" where all is there."""
    if not cluster.failures:
        return ""
    run = cluster.sync_runs.filter(dry_run=False, finished_at__isnull=False).first()
    if run is None or run.error_code != NotServed.code:
        return ""
    title = flavour_for(cluster.flavour).title
    return f"{title} lacks parts on {cluster.name}, so that its quotas may not hold there. {run.error}"


def silent_kinds(cluster: Cluster) -> list[tuple[str, datetime]]:
    """Kinds of workload of which no controller answered, by name, each with since when."""
    return [
        (kind.partition(".")[0], datetime.fromisoformat(since)) for kind, since in sorted(cluster.silent_kinds.items())
    ]


def held_by_node(clusters: Iterable[Cluster]) -> Mapping[tuple[object, str], tuple[int, int]]:
    """(all, non-preemptible) GPU thousandths of bound pods that have not gone, per cluster and node."""
    rows = (
        ObservedPod.objects.holding()
        .filter(cluster__in=list(clusters))
        .values_list("cluster_id", "node_name")
        .annotate(held=Sum("gpu_milli"), fixed=Sum("gpu_milli", filter=Q(preemptible=False)))
    )
    return {(cluster, node): (held or 0, fixed or 0) for cluster, node, held, fixed in rows.order_by()}


def node_rows(cluster: Cluster) -> list[NodeRow]:
    """Every node with GPUs first, by pool and name."""
    held = held_by_node([cluster])
    nodes = cluster.nodes.select_related("pool").order_by(
        F("pool__is_default").desc(nulls_last=True), "pool__name", "name"
    )
    return [NodeRow(node, *held.get((cluster.pk, node.name), (0, 0))) for node in nodes]


def pool_rows(nodes: Iterable[NodeRow]) -> list[PoolRow]:
    """The same nodes per pool."""
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


def cluster_rows() -> list[ClusterRow]:
    """The list of clusters, each with its figures and its latest run."""
    newest = (
        SyncRun.objects.filter(cluster=OuterRef("pk"), dry_run=False).order_by("-started_at", "-id").values("pk")[:1]
    )
    clusters = list(Cluster.objects.annotate(drift_count=Count("drifts", distinct=True), newest_run=Subquery(newest)))
    runs = {run.cluster_id: run for run in SyncRun.objects.filter(pk__in=[each.newest_run for each in clusters])}
    nodes = _nodes_by_cluster(clusters)
    return [
        ClusterRow(
            cluster=each,
            nodes=len(nodes[each.pk]),
            total=sum(row.node.gpu_milli for row in nodes[each.pk]),
            held=sum(row.held for row in nodes[each.pk]),
            free=sum(row.free for row in nodes[each.pk]),
            drifts=each.drift_count,
            last_run=runs.get(each.pk),
        )
        for each in clusters
    ]


def _nodes_by_cluster(clusters: Iterable[Cluster]) -> Mapping[object, list[NodeRow]]:
    held = held_by_node(clusters)
    rows: dict[object, list[NodeRow]] = defaultdict(list)
    fields = ("cluster_id", "name", "gpu_milli", "ready", "unschedulable")
    for node in Node.objects.filter(cluster__in=list(clusters)).only(*fields):
        rows[node.cluster_id].append(NodeRow(node, *held.get((node.cluster_id, node.name), (0, 0))))
    return rows


def runs_of(cluster: Cluster, *, outcomes: int = 20) -> QuerySet[SyncRun]:
    """Its runs, newest first, each with what happened to its first objects, failures before the rest."""
    shown = Prefetch("outcomes", queryset=SyncOutcome.objects.order_by("ok", "id")[:outcomes], to_attr="first_outcomes")
    return cluster.sync_runs.prefetch_related(shown)


def outcomes_of(run: SyncRun) -> QuerySet[SyncOutcome]:
    """What happened to each object, in the order in which it did."""
    return run.outcomes.all()


def drifts_of(cluster: Cluster) -> QuerySet[Drift]:
    """What differs now."""
    return cluster.drifts.all()


def difference(cluster: Cluster, *, kind: str, namespace: str, name: str) -> Drift | None:
    """How one object of ours differs now. Rows are rewritten at every look: an object is found by what it is called."""
    rows = cluster.drifts.filter(kind=kind, namespace=namespace, name=name)
    return rows.exclude(category=DriftKind.STALE).select_related("cluster").first()
