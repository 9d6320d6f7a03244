"""Who says what a cluster should hold: the apps above register sources at start-up; their sum is the desired state."""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Final, TypeAlias

from clusters.models import Cluster, NodePool
from clusters.ports import DesiredState, PoolSpec

Source: TypeAlias = Callable[[Cluster], DesiredState]

_sources: Final[list[Source]] = []


def register(source: Source) -> None:
    """Add a source; once is enough, again changes nothing."""
    if source not in _sources:
        _sources.append(source)


def desired_state(cluster: Cluster) -> DesiredState:
    """The sum of what every source wants of the cluster, with its node pools."""
    pools = DesiredState(pools=tuple(pool_spec(pool) for pool in cluster.node_pools.all()))
    return reduce(add, (source(cluster) for source in _sources), pools)


def pool_spec(pool: NodePool) -> PoolSpec:
    """A node pool row as flavours see it."""
    return PoolSpec(pool.name, pool.label_key, pool.label_value, is_default=pool.is_default)
