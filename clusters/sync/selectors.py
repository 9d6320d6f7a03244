"""The desired state of a cluster, and whether what is known of the cluster is current."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import Final, Literal, Protocol

from django.db.models import prefetch_related_objects
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState, NodePool
from clusters.inventory.selectors import domains_of
from clusters.ports.flavour import DesiredState, PoolSpec, TopologyDomain
from clusters.ports.gateway import NotServed

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
