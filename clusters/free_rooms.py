"""How many GPUs are free in node pools: on nodes that take pods, beside what is there and what was promised room."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from django.db.models import Count, Sum

from clusters.models import Node, NodePool, ObservedPod
from scheduling.headroom import Room

_COLUMNS: Final = ("pool_id", "cluster_id", "name", "gpu_milli", "max_pods", "taints")


def free_rooms(pools: Collection[NodePool]) -> Mapping[int, Room]:
    """By pool id, for a pod that bears no taint; pools of which no node was seen are absent. Three queries."""
    held = _held({pool.cluster_id for pool in pools})
    free: defaultdict[int, list[int]] = defaultdict(list)
    nodes = Node.objects.filter(pool__in=pools)
    for ready, cordoned, pool, *node in nodes.values_list("ready", "unschedulable", *_COLUMNS):
        free[pool].append(_free(*node, held=held) if ready and not cordoned else 0)
    return {pool: Room(sum(amounts), max(amounts)) for pool, amounts in free.items()}


def _free(
    cluster: Any,
    name: str,
    gpus: int,
    most_pods: int | None,
    taints: Any,
    *,
    held: Mapping[tuple[Any, str], Counter[str]],
) -> int:
    there = held.get((cluster, name), Counter())
    full = most_pods is not None and there["pods"] >= most_pods
    return 0 if taints or full else max(gpus - there["gpus"], 0)


def _held(clusters: Collection[Any]) -> Mapping[tuple[Any, str], Counter[str]]:
    """GPUs and pods by cluster and node: of pods that are there, and of those that others are evicted for."""
    found: defaultdict[tuple[Any, str], Counter[str]] = defaultdict(Counter)
    live = ObservedPod.objects.live().filter(cluster__in=clusters)
    for place, pods in (("node_name", live), ("nominated_node", live.filter(node_name=""))):
        rows = pods.exclude(**{place: ""}).values_list("cluster_id", place).order_by()
        for cluster, node, gpus, count in rows.annotate(gpus=Sum("gpu_milli"), count=Count("pk")):
            found[cluster, node].update(gpus=gpus, pods=count)
    return found
