"""Who says what a cluster should hold: the apps above register sources at start-up; their sum is the desired state."""

from collections.abc import Iterable, Sequence
from copy import copy
from functools import reduce
from operator import add
from typing import Final, Protocol

from django.db.models import prefetch_related_objects

from clusters.domains import domains_of
from clusters.flavours import flavour_for
from clusters.models import Cluster, NodePool
from clusters.ports import DesiredState, Domain, PoolSpec

EVERYBODY: Final = ""
OF_A_POOL: Final = "pool."
"""Owners of the objects that are made of node pools."""


class Source(Protocol):
    """What one app wants of a cluster."""

    def __call__(self, cluster: Cluster, /, *, owner: str = EVERYBODY) -> DesiredState:
        """Everything; or, for one owner, at least its own part and what its objects are rendered from."""


_sources: Final[list[Source]] = []
_counted: Final[list[Source]] = []


def register(source: Source, *, counted: bool = False) -> None:
    """Add a source; once is enough, again changes nothing.

    `counted`: whatever changes its answer also counts the cluster's generation up, so it need not be asked in between.
    """
    if source not in _sources:
        _sources.append(source)
        _counted.extend([source] if counted else [])


def desired_state(cluster: Cluster, *, owner: str = EVERYBODY, domains: bool = True) -> DesiredState:
    """The sum of what every source wants of the cluster, with its node pools. With an owner: enough for that one.

    Without `domains` it is for questions about queues and quotas only: what is made of nodes would be missing.
    """
    return _sum(cluster, _sources, owner, domains=domains and (owner == EVERYBODY or owner.startswith(OF_A_POOL)))


def uncounted_state(cluster: Cluster) -> DesiredState:
    """The part that may change under one and the same generation."""
    return _sum(cluster, [source for source in _sources if source not in _counted], EVERYBODY, domains=True)


def pool_spec(pool: NodePool, domains: Sequence[Domain] = ()) -> PoolSpec:
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


def _sum(cluster: Cluster, sources: Iterable[Source], owner: str, *, domains: bool) -> DesiredState:
    """All see the same node pools, read once."""
    known = copy(cluster)
    prefetch_related_objects([known], "node_pools")
    named = domains and flavour_for(known.flavour).traits.names_domains
    pools = tuple(pool_spec(pool, domains_of(pool) if named else ()) for pool in known.node_pools.all())
    return reduce(add, (source(known, owner=owner) for source in sources), DesiredState(pools=pools))
