"""Whose pods a cluster's scheduler decides about one by one, though it knows groups."""

from collections.abc import Collection

from clusters.flavours import flavour_for
from clusters.models import Cluster
from workloads.lifecycle import LIVE
from workloads.models import Workload


def singly(cluster: Cluster) -> Collection[str]:
    """Types of workloads. The simulated Kueue takes every object whole."""
    traits = flavour_for(cluster.flavour).traits
    return () if traits.queues_jobs and cluster.backend == "sandbox" else traits.singly


def single_workloads(cluster: Cluster) -> frozenset[str]:
    """Ids of the live ones of these types."""
    types = singly(cluster)
    if not types:
        return frozenset()
    rows = Workload.objects.filter(project__cluster=cluster, type__name__in=types, phase__in=LIVE)
    return frozenset(str(pk) for pk in rows.values_list("pk", flat=True))
