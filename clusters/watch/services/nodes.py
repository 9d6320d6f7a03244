"""Store nodes with their node pool; a changed topology domain requests a reconcile."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.selectors import domains_by_node
from clusters.inventory.services import dirty_owners
from clusters.inventory.services.dirty_owners import notify_sync
from clusters.ports.gateway import Manifest
from clusters.ports.pods import GPU_PRODUCT, amounts, condition, labels, max_pods, moment_of, more_amounts, taints_of
from clusters.watch.services.watch_buffer import WatchBatch

FIELDS = [
    "uid",
    "pool",
    "labels",
    "gpu_type",
    "gpu_milli",
    "cpu_milli",
    "memory_bytes",
    "max_pods",
    "more_amounts",
    "taints",
    "ready",
    "unschedulable",
    "resource_version",
    "joined_at",
    "observed_at",
]


def store_nodes(cluster: Cluster, look: WatchBatch, pools: list[NodePool], *, at: datetime) -> None:
    """Upsert what is there, drop what is gone, and move nodes whose pool's label has changed."""
    rows = list({each["metadata"]["name"]: _row(cluster, each, pools, at) for each in look.present}.values())
    nodes = Node.objects.filter(cluster=cluster)
    if look.whole:
        nodes.exclude(name__in=[row.name for row in rows]).delete()
    if look.gone:
        nodes.filter(uid__in=[manifest["metadata"]["uid"] for manifest in look.gone]).delete()
    Node.objects.bulk_create(rows, update_conflicts=True, unique_fields=["cluster", "name"], update_fields=FIELDS)


def move_nodes(cluster: Cluster, pools: list[NodePool]) -> None:
    """Pools may be defined after their nodes were seen."""
    moved = []
    for node in Node.objects.filter(cluster=cluster):
        pool = pool_of(node.labels, pools)
        if node.pool_id != (pool.pk if pool else None):
            node.pool = pool
            moved.append(node)
    Node.objects.bulk_update(moved, ["pool"])


def pool_of(marks: dict[str, str], pools: list[NodePool]) -> NodePool | None:
    """The pool whose label these labels carry; without any, the default pool."""
    for pool in pools:
        if marks.get(pool.label_key) == pool.label_value:
            return pool
    return next((pool for pool in pools if pool.is_default), None)


def _row(cluster: Cluster, manifest: Manifest, pools: list[NodePool], at: datetime) -> Node:
    allocatable = (manifest.get("status") or {}).get("allocatable") or {}
    free = amounts(allocatable)
    ready = condition(manifest, "Ready")
    marks = labels(manifest)
    return Node(
        cluster=cluster,
        pool=pool_of(marks, pools),
        uid=manifest["metadata"]["uid"],
        name=manifest["metadata"]["name"],
        labels=marks,
        gpu_type=marks.get(GPU_PRODUCT, "")[:100],
        gpu_milli=free.gpu,
        cpu_milli=free.cpu,
        memory_bytes=free.memory,
        max_pods=max_pods(manifest),
        more_amounts=more_amounts(allocatable),
        taints=[asdict(taint) for taint in taints_of(manifest)],
        ready=ready is not None and ready.get("status") == "True",
        unschedulable=bool((manifest.get("spec") or {}).get("unschedulable")),
        resource_version=manifest["metadata"].get("resourceVersion", ""),
        joined_at=moment_of(manifest["metadata"].get("creationTimestamp")),
        observed_at=at,
    )


@contextmanager
def track_domain_changes(
    cluster: Cluster, pools: Sequence[NodePool], look: WatchBatch | None, *, moved: bool
) -> Iterator[None]:
    """While what was seen of nodes is stored, in its transaction. `moved`: pools have changed, so any node may move.

    Everything is looked at then, since domains may go; a node that says something else of itself costs nothing.
    """
    named = [pool for pool in pools if pool.topology_levels]
    names = _whose(look, moved=moved)
    if not named or not (names is None or names) or not flavour_for(cluster.flavour).traits.names_domains:
        yield
        return
    before = domains_by_node(named, names)
    yield
    if domains_by_node(named, names) != before:
        dirty_owners.enqueue(cluster.pk, [dirty_owners.ALL_OWNERS])
        notify_sync(cluster.pk)


def _whose(look: WatchBatch | None, *, moved: bool) -> Collection[str] | None:
    """Nodes of which something was seen; None: it may be any."""
    if moved or (look and look.whole):
        return None
    return {str(each["metadata"]["name"]) for each in look.every} if look else ()
