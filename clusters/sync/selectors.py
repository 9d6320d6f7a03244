"""The desired state of a cluster, and whether what is known of the cluster is current."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add, or_
from typing import Any, Final, Literal, Protocol

from django.db.models import OuterRef, Q, Subquery, prefetch_related_objects
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState, NodePool
from clusters.inventory.selectors import domains_of
from clusters.ports.flavour import DesiredState, PoolSpec, TopologyDomain
from clusters.ports.gateway import NotServed
from clusters.sync.models import SyncRun, SyncState

ALL_OWNERS: Final = ""
OF_A_POOL: Final = "pool."
"""Owners of the objects that are made of node pools."""


class DesiredStateSource(Protocol):
    """What one app wants of a cluster."""

    def __call__(self, cluster: Cluster, /, *, owner: str = ALL_OWNERS) -> DesiredState:
        """Everything; or, for one owner, at least its own part and what its objects are rendered from."""


_sources: Final[list[DesiredStateSource]] = []
_counted: Final[list[DesiredStateSource]] = []


def register_source(source: DesiredStateSource, *, counted: bool = False) -> None:
    """Add a source; once is enough, again changes nothing.

    `counted`: whatever changes its answer also counts the cluster's generation up, so it need not be asked in between.
    """
    if source not in _sources:
        _sources.append(source)
        _counted.extend([source] if counted else [])


def desired_state(cluster: Cluster, *, owner: str = ALL_OWNERS, domains: bool = True) -> DesiredState:
    """The sum of what every source wants of the cluster, with its node pools. With an owner: enough for that one.

    Without `domains` it is for questions about queues and quotas only: what is made of nodes would be missing.
    """
    return _sum(cluster, _sources, owner, domains=domains and (owner == ALL_OWNERS or owner.startswith(OF_A_POOL)))


def unversioned_state(cluster: Cluster) -> DesiredState:
    """The part that may change under one and the same generation."""
    return _sum(cluster, [source for source in _sources if source not in _counted], ALL_OWNERS, domains=True)


def pool_spec(pool: NodePool, domains: Sequence[TopologyDomain] = ()) -> PoolSpec:
    """A node pool row as flavours see it. Its domains are for who makes objects of them."""
    return PoolSpec(
        pool.name,
        pool.label_key,
        pool.label_value,
        is_default=pool.is_default,
        topology_levels=tuple(pool.topology_levels),
        topology_revision=pool.topology_revision,
        domains=tuple(domains),
    )


def _sum(cluster: Cluster, sources: Iterable[DesiredStateSource], owner: str, *, domains: bool) -> DesiredState:
    """All see the same node pools, read once."""
    known = copy(cluster)
    prefetch_related_objects([known], "node_pools")
    named = domains and flavour_for(known.flavour).traits.names_domains
    pools = tuple(pool_spec(pool, domains_of(pool) if named else ()) for pool in known.node_pools.all())
    return reduce(add, (source(known, owner=owner) for source in sources), DesiredState(pools=pools))


STALE_AFTER: Final = timedelta(seconds=30)


COMPARISON_LASTS: Final = timedelta(minutes=3)
"""Everything is compared once a minute: three comparisons are missing by then."""


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
        return "The cluster is paused."
    if cluster.breaker_reason:
        return "The cluster does not accept work now."
    if cluster.failures:
        return "The last sync run failed."
    return "No sync run has finished since." if timezone.now() - at > COMPARISON_LASTS else ""


@dataclass(frozen=True, slots=True)
class SyncSince:
    """What became of the sync runs of a cluster that began after a moment.

    synced: `run` is the first that succeeded. Else none has: `run` is the newest, which is running or has failed;
    waiting and paused: there is none; gone: the cluster is no longer connected. `next_at`: when the next one is due.
    """

    cluster: str
    state: Literal["synced", "running", "failed", "waiting", "paused", "gone"]
    run: SyncRun | None = None
    next_at: datetime | None = None


def syncs_since(at: datetime, generations: Mapping[str, int]) -> list[SyncSince]:
    """By name of cluster: has a run succeeded that began after the moment and read at least this generation?

    It has then dealt with every owner that was still dirty, whatever its scope. Two queries.
    """
    current = (Q(cluster__name=name, generation__gte=number) for name, number in generations.items())
    own = SyncRun.objects.filter(cluster=OuterRef("pk"), dry_run=False, started_at__gt=at)
    good = own.filter(reduce(or_, current, Q(pk__in=())), state=SyncState.SUCCEEDED).order_by("started_at", "id")
    found = Cluster.objects.filter(name__in=generations).annotate(
        good_run=Subquery(good.values("pk")[:1]), newest_run=Subquery(own.values("pk")[:1])
    )
    rows = {row.name: row for row in found}
    runs = SyncRun.objects.in_bulk({row.good_run or row.newest_run for row in rows.values()} - {None})
    return [_since(name, rows.get(name), runs) for name in sorted(generations)]


def _since(name: str, row: Any, runs: Mapping[int, SyncRun]) -> SyncSince:
    """`row`: the cluster with its `good_run` and `newest_run`."""
    if row is None:
        return SyncSince(name, "gone")
    if row.good_run:
        return SyncSince(name, "synced", runs.get(row.good_run))
    paused, run = row.state == ClusterState.PAUSED, runs.get(row.newest_run)
    next_at = None if paused else row.sync_due_at
    if run is None or run.state == SyncState.SUCCEEDED:  # one that read an earlier generation says nothing
        return SyncSince(name, "paused" if paused else "waiting", None, next_at)
    return SyncSince(name, "running" if run.state == SyncState.RUNNING else "failed", run, next_at)


def work_stopped(cluster: Cluster) -> str:
    """Say why the cluster is handed no work now, "" where it is. Reads the row: the one in hand may be minutes old."""
    row = Cluster.objects.only("name", "state", "paused_reason", "breaker_reason").get(pk=cluster.pk)
    if row.state == ClusterState.PAUSED:
        return f"{row.name} is paused. No workloads are sent until an admin resumes it. {row.paused_reason}"
    if row.breaker_reason:
        return f"{row.name} does not accept work now. Rung retries automatically. {row.breaker_reason}"
    return ""


def unserved_kinds(cluster: Cluster) -> str:
    """What the cluster does not serve of its scheduler's kinds, as the last sync run found; "" where all is there."""
    if not cluster.failures:
        return ""
    run = cluster.sync_runs.filter(dry_run=False, finished_at__isnull=False).first()
    if run is None or run.error_code != NotServed.code:
        return ""
    title = flavour_for(cluster.flavour).title
    return f"{title} is incomplete on {cluster.name}, so its quotas may not be enforced. {run.error}"
