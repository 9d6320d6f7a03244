"""Leave a cluster: delete what Rung made there, and forget it. Each is asked for by itself."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models import ProtectedError
from django.db.models.deletion import Collector

from clusters.errors import ClusterError, NotServed
from clusters.flavours import flavour_for
from clusters.gateways import gateway_for
from clusters.kinds_core import NAMESPACE, WORKLOAD_KINDS, ref_of
from clusters.models import Cluster, ClusterState
from clusters.ports import ClusterGateway, Kind, Manifest
from clusters.services.former import retired_in
from portal.audit.denials import recorded, verb
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict

PATIENCE: Final = 20.0
"""Seconds after which a removal stops; it goes on where it was when it is asked for again."""
NAMED: Final = 20


@dataclass
class Removal:
    """What a removal did: counts per kind, and what refused to go. `complete`: nothing of Rung's is left."""

    deleted: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    left: int = 0

    @property
    def complete(self) -> bool:
        """Nothing is left."""
        return not (self.left or self.refused)


def traces_of(cluster: Cluster) -> dict[str, int]:
    """How many objects of each kind Rung holds there, as the cluster says now. Raises ClusterError."""
    counts: dict[str, int] = {}
    for manifest in _managed(gateway_for(cluster), cluster):
        counts[manifest["kind"]] = counts.get(manifest["kind"], 0) + 1
    return counts


def remove_traces(*, cluster: Cluster, actor: Actor, patience: float = PATIENCE) -> Removal:
    """Delete everything in the cluster that carries Rung's label: workloads, then namespaces, then the rest.

    Conflict unless the cluster is paused: otherwise the next reconcile would bring it all back. Raises ClusterError.
    """
    with recorded(actor=actor, action="cluster.remove_traces", entity_type="cluster", entity_name=cluster.name):
        cluster.refresh_from_db()
        if cluster.state != ClusterState.PAUSED:
            raise Conflict(f"Pause {cluster.name} first: Rung would make everything anew.", code="not_paused")
    removal = Removal()
    try:
        _remove(cluster, removal, until=time.monotonic() + patience)
    finally:  # what was deleted is told, also when the cluster went away in between
        detail = {"deleted": removal.deleted, "refused": removal.refused, "left": removal.left}
        record(actor, "cluster.remove_traces", cluster, detail=detail)
    return removal


def forget_cluster(*, cluster: Cluster, actor: Actor) -> None:
    """Drop the cluster with its credential and everything observed. What Rung made there stays as it is.

    Conflict, with the list, while departments, projects or records name it.
    """
    with verb(actor=actor, action="cluster.forget", entity_type="cluster", entity_name=cluster.name):
        row = Cluster.objects.select_for_update().get(pk=cluster.pk)
        record(actor, "cluster.forget", row, detail={"flavour": row.flavour, "backend": row.backend, "uid": row.uid})
        try:
            with transaction.atomic():
                row.delete()
        except ProtectedError as error:
            raise _in_use(row, error) from None


def users_of(cluster: Cluster) -> list[str]:
    """What keeps the cluster from being forgotten, as people call it; cut to a few."""
    try:
        Collector(using=DEFAULT_DB_ALIAS).collect([cluster])
    except ProtectedError as error:
        return _named(error)
    return []


def _in_use(cluster: Cluster, error: ProtectedError) -> Conflict:
    names = _named(error)
    return Conflict(f"{cluster.name} is still in use: {'; '.join(names)}.", code="cluster_in_use")


def _named(error: ProtectedError) -> list[str]:
    rows = sorted(f"{row._meta.verbose_name} {row}" for row in error.protected_objects)
    more = len(rows) - NAMED
    return [*rows[:NAMED], *([f"and {more} more"] if more > 0 else [])]


def _remove(cluster: Cluster, removal: Removal, *, until: float) -> None:
    gateway = gateway_for(cluster)
    for manifest in _managed(gateway, cluster):
        if "deletionTimestamp" in manifest["metadata"] or time.monotonic() > until:
            removal.left += 1
        else:
            _delete(gateway, manifest, removal)
    if removal.deleted and not removal.left:
        removal.left = sum(traces_of(cluster).values())


def _delete(gateway: ClusterGateway, manifest: Manifest, removal: Removal) -> None:
    ref = ref_of(manifest)
    try:
        gateway.delete(ref, uid=manifest["metadata"]["uid"])
    except ClusterError as error:
        if len(removal.refused) < NAMED:
            removal.refused.append(f"{ref.kind.kind} {ref.namespace}/{ref.name}: {error.message}"[:300])
        return
    removal.deleted[ref.kind.kind] = removal.deleted.get(ref.kind.kind, 0) + 1


def _managed(gateway: ClusterGateway, cluster: Cluster) -> Iterator[Manifest]:
    """Every object with our label, in the order in which they go. What a namespace takes along is not named."""
    present = [kind for kind in flavour_for(cluster.flavour).kinds() if kind != NAMESPACE]
    own = [*present, *retired_in(cluster).kinds]
    spaces: set[str] = set()
    for kind in (*WORKLOAD_KINDS, NAMESPACE, *own):
        for manifest in _list(gateway, kind):
            if kind == NAMESPACE:
                spaces.add(manifest["metadata"]["name"])
            if kind not in own or manifest["metadata"].get("namespace", "") not in spaces:
                yield manifest


def _list(gateway: ClusterGateway, kind: Kind) -> list[Manifest]:
    """Empty for a kind that this cluster does not serve."""
    try:
        return gateway.list(kind)[0]
    except NotServed:
        return []
