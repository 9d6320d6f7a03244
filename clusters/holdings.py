"""What pods hold on each node now."""

from collections.abc import Collection, Mapping
from uuid import UUID

from django.db.models import Sum

from clusters.models import Cluster, ObservedPod
from scheduling.resources import Resources


def held_on_nodes(clusters: Collection[Cluster]) -> Mapping[tuple[UUID, str], Resources]:
    """By cluster and name of the node: bound pods that have neither ended nor gone. One query."""
    held = ObservedPod.objects.holding().filter(cluster__in=clusters)
    rows = held.values_list("cluster_id", "node_name").order_by()
    summed = rows.annotate(gpu=Sum("gpu_milli"), cpu=Sum("cpu_milli"), memory=Sum("memory_bytes"))
    return {(cluster, node): Resources(gpu, cpu, memory) for cluster, node, gpu, cpu, memory in summed}
