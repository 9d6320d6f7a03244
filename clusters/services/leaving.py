"""Leave a cluster: what Rung made there, which `removing` deletes, and forgetting it. Each is asked for by itself."""

from collections.abc import Iterator
from typing import Final

from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models import ProtectedError
from django.db.models.deletion import Collector

from clusters.errors import NotServed
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import NAMESPACE, WORKLOAD_KINDS
from clusters.models import Cluster
from clusters.ports import ClusterGateway, Kind, Manifest
from clusters.services.former import retired_in
from portal.audit.denials import verb
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict

NAMED: Final = 20


def traces_of(cluster: Cluster) -> dict[str, int]:
    """How many objects of each kind Rung holds there, as the cluster says now. Raises ClusterError."""
    counts: dict[str, int] = {}
    for kind, found in managed_objects(gateway_for(cluster), cluster):
        if found:
            counts[kind.kind] = counts.get(kind.kind, 0) + len(found)
    return counts


def forget_cluster(*, cluster: Cluster, actor: Actor) -> None:
    """Drop the cluster with its credential and everything observed. What Rung made there stays as it is.

    Conflict, with the list, while departments, projects or records name it.
    """
    with verb(actor=actor, action="cluster.forget", entity_type="cluster", entity_name=cluster.name):
        forget(Cluster.objects.select_for_update().get(pk=cluster.pk), actor)


def forget(row: Cluster, actor: Actor) -> None:
    """The same for a cluster that the caller has locked, in its transaction."""
    record(actor, "cluster.forget", row, detail={"flavour": row.flavour, "backend": row.backend, "uid": row.uid})
    try:
        with transaction.atomic():
            row.delete()
    except ProtectedError as error:
        raise _in_use(row, _named(error)) from None


def refuse_in_use(cluster: Cluster) -> None:
    """Conflict, with the list, while departments, projects or records name it."""
    if names := users_of(cluster):
        raise _in_use(cluster, names)


def users_of(cluster: Cluster) -> list[str]:
    """What keeps the cluster from being forgotten, as people call it; cut to a few."""
    try:
        Collector(using=DEFAULT_DB_ALIAS).collect([cluster])
    except ProtectedError as error:
        return _named(error)
    return []


def _in_use(cluster: Cluster, names: list[str]) -> Conflict:
    return Conflict(f"{cluster.name} is still in use: {'; '.join(names)}.", code="cluster_in_use")


def _named(error: ProtectedError) -> list[str]:
    rows = sorted(f"{row._meta.verbose_name} {row}" for row in error.protected_objects)
    more = len(rows) - NAMED
    return [*rows[:NAMED], *([f"and {more} more"] if more > 0 else [])]


def managed_objects(gateway: ClusterGateway, cluster: Cluster) -> Iterator[tuple[Kind, list[Manifest]]]:
    """Every object with our label by kind, in the order in which they go. What a namespace takes along is not named."""
    present = [kind for kind in flavour_for(cluster.flavour).kinds() if kind != NAMESPACE]
    own = [*present, *retired_in(cluster).kinds]
    spaces: set[str] = set()
    for kind in (*WORKLOAD_KINDS, NAMESPACE, *own):
        found = _list(gateway, kind)
        if kind == NAMESPACE:
            spaces = {each["metadata"]["name"] for each in found}
        yield kind, [each for each in found if kind not in own or each["metadata"].get("namespace", "") not in spaces]


def _list(gateway: ClusterGateway, kind: Kind) -> list[Manifest]:
    """Empty for a kind that this cluster does not serve."""
    try:
        return gateway.list(kind)[0]
    except NotServed:
        return []
