"""Nodes as rows, each with the pool its labels put it in."""

from dataclasses import asdict
from datetime import datetime

from clusters.models import Cluster, Node, NodePool
from clusters.pods import amounts, condition, labels, max_pods, moment_of, taints_of
from clusters.ports import Manifest
from clusters.services.looks import Look

GPU_PRODUCT = "nvidia.com/gpu.product"
FIELDS = [
    "uid",
    "pool",
    "labels",
    "gpu_type",
    "gpu_milli",
    "cpu_milli",
    "memory_bytes",
    "max_pods",
    "taints",
    "ready",
    "unschedulable",
    "resource_version",
    "joined_at",
    "observed_at",
]


def store_nodes(cluster: Cluster, look: Look, pools: list[NodePool], *, at: datetime) -> None:
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
    free = amounts((manifest.get("status") or {}).get("allocatable") or {})
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
        taints=[asdict(taint) for taint in taints_of(manifest)],
        ready=ready is not None and ready.get("status") == "True",
        unschedulable=bool((manifest.get("spec") or {}).get("unschedulable")),
        resource_version=manifest["metadata"].get("resourceVersion", ""),
        joined_at=moment_of(manifest["metadata"].get("creationTimestamp")),
        observed_at=at,
    )
