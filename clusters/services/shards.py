"""Which node pools of a cluster share one instance of its scheduler, and which have none.

Rung's model goes pool by pool. An instance that serves several pools counts shares over all of them: forecasts, the
cluster's page and its connection test say so.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from clusters.errors import NotServed
from clusters.flavours import flavour_for
from clusters.flavours.kai_shards import value_of
from clusters.models import Cluster, NodePool
from clusters.ports import Facts, Kind, Manifest, Promise, SchedulerFlavour

SERVED: Final = "shards"
PROMISE: Final = "quota_per_node_pool"
MOST: Final = 500
SHARED: Final = (
    "One {scheduler} serves the node pools {pools}. It counts quotas and fair shares over the nodes of all of them: "
    "work inside its quota in one pool may wait for ever behind work that is over its quota in another. Give every "
    "pool a {kind}, and its nodes and the pool here the label {label}."
)
CAUTION: Final = (
    "One {scheduler} serves {pools} and counts shares over all of their nodes: it may leave waiting what the estimate, "
    "which goes pool by pool, lets start or reclaim."
)
UNSERVED: Final = (
    "No {kind} of {scheduler} takes the nodes of {pool}: nothing that is submitted there starts until one is made for "
    "{what}."
)


class Lister(Protocol):
    """Whatever lists objects."""

    def list(self, kind: Kind, *, managed_only: bool = True) -> tuple[list[Manifest], str]:
        """Every object of the kind."""


@dataclass(frozen=True, slots=True)
class _Division:
    """The pools of a cluster by the label value that decides which instance takes them; empty: all other nodes."""

    scheduler: str
    kind: str
    label: str
    pools: dict[str, Sequence[NodePool]]
    served: Collection[str] | None  # the values that instances take; None: not known

    @property
    def shared(self) -> Sequence[Sequence[NodePool]]:
        return [each for each in self.pools.values() if len(each) > 1]

    def unserved(self, value: str, pool: NodePool) -> str:
        if self.served is None or value in self.served:
            return ""
        what = f"{self.label}={value}" if value else f"nodes without the label {self.label}"
        return UNSERVED.format(kind=self.kind, scheduler=self.scheduler, pool=pool.name, what=what)


def shards_in(gateway: Lister, flavour: SchedulerFlavour) -> Facts:
    """The label values that the instances take; nothing where no object says so: they are started by other means.

    Raises ClusterError.
    """
    if flavour.traits.shards is None:
        return {}
    try:
        found = gateway.list(flavour.traits.shards[0], managed_only=False)[0]
    except NotServed:
        return {}
    values = sorted({value_of(each) for each in found})[:MOST]
    return {SERVED: values} if values else {}


def shard_warnings(cluster: Cluster, facts: Facts | None = None) -> tuple[str, ...]:
    """What admins should change: several pools of one instance, pools of none. `facts`: read later than the row's."""
    by = _division(cluster, cluster.configured if facts is None else facts)
    if by is None:
        return ()
    said = {"scheduler": by.scheduler, "kind": by.kind, "label": by.label}
    shared = [SHARED.format(pools=_named(each), **said) for each in by.shared]
    without = [by.unserved(value, pool) for value, pools in by.pools.items() for pool in pools]
    return (*shared, *filter(None, without))


def unserved(cluster: Cluster, pool: str) -> str:
    """Why nothing starts in the pool: no instance takes its nodes. Empty: one does, or that is not known."""
    by = _division(cluster, cluster.configured)
    found = by and [by.unserved(value, each) for value, rows in by.pools.items() for each in rows if each.name == pool]
    return found[0] if found else ""


def shard_cautions(cluster: Cluster, pool: str) -> tuple[str, ...]:
    """What is to be known of a forecast for the pool, which takes it for an instance's only one."""
    by = _division(cluster, cluster.configured)
    beside = [each for each in by.shared if pool in {row.name for row in each}] if by else []
    return tuple(CAUTION.format(scheduler=by.scheduler, pools=_named(each)) for each in beside) if by else ()


def promises_with_shards(cluster: Cluster, promises: Sequence[Promise]) -> Sequence[Promise]:
    """Quotas do not hold pool by pool where pools share an instance, or have none."""
    warnings = shard_warnings(cluster)
    if not warnings:
        return promises
    said = " ".join(warnings)
    return [
        replace(each, enforced="partly", explanation=said, remedy="") if each.code == PROMISE else each
        for each in promises
    ]


def _division(cluster: Cluster, facts: Facts) -> _Division | None:
    """The sandbox has an instance for every pool, whatever its label."""
    flavour = flavour_for(cluster.flavour)
    if flavour.traits.shards is None or cluster.backend == "sandbox":
        return None
    kind, label = flavour.traits.shards
    found: dict[str, list[NodePool]] = defaultdict(list)
    for pool in cluster.node_pools.order_by("name"):
        found[pool.label_value if pool.label_key == label else ""].append(pool)
    return _Division(flavour.title, kind.kind, label, dict(found), facts.get(SERVED))


def _named(pools: Sequence[NodePool]) -> str:
    *others, last = [pool.name for pool in pools]
    return f"{', '.join(others)} and {last}"
