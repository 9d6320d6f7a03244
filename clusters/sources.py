"""Who says what a cluster should hold: the apps above register sources at start-up; their sum is the desired state."""

from collections.abc import Iterable
from copy import copy
from functools import reduce
from operator import add
from typing import Final, Protocol

from django.db.models import prefetch_related_objects

from clusters.models import Cluster, NodePool
from clusters.ports import DesiredState, PoolSpec

EVERYBODY: Final = ""


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


def desired_state(cluster: Cluster, *, owner: str = EVERYBODY) -> DesiredState:
    """The sum of what every source wants of the cluster, with its node pools. With an owner: enough for that one."""
    return _sum(cluster, _sources, owner)


def uncounted_state(cluster: Cluster) -> DesiredState:
    """The part that may change under one and the same generation."""
    return _sum(cluster, [source for source in _sources if source not in _counted], EVERYBODY)


def pool_spec(pool: NodePool) -> PoolSpec:
    """A node pool row as flavours see it."""
    return PoolSpec(
        pool.name,
        pool.label_key,
        pool.label_value,
        is_default=pool.is_default,
        topology_levels=tuple(pool.topology_levels),
        topology_revision=pool.topology_revision,
    )


def _sum(cluster: Cluster, sources: Iterable[Source], owner: str) -> DesiredState:
    """All see the same node pools, read once."""
    known = copy(cluster)
    prefetch_related_objects([known], "node_pools")
    pools = DesiredState(pools=tuple(map(pool_spec, known.node_pools.all())))
    return reduce(add, (source(known, owner=owner) for source in sources), pools)
