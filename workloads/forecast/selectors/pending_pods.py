"""Waiting workloads without pods, pods that are scheduled one by one, admissions of queued jobs.

A Job whose pod has failed or was evicted gets the next one after a pause, ten seconds at first and up to ten minutes;
whom a quota refused is tried again with growing pauses. Until then no scheduler sees any of them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from django.db.models import Q, QuerySet

from clusters.flavours.pod_status import ADMITTED, LEFT_OUT
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.kinds import POD
from clusters.watch.models import ClusterEvent, ObservedPod
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import HELD, LIVE, NO_CONTROLLER, REFUSED_PODS, WAITING


def pods_scheduled_singly(cluster: Cluster) -> Collection[str]:
    """Types of workloads. The simulated Kueue takes every object whole."""
    traits = flavour_for(cluster.flavour).traits
    return () if traits.queues_jobs and cluster.backend == "sandbox" else traits.singly


def single_workloads(cluster: Cluster) -> frozenset[str]:
    """Ids of the live ones of these types."""
    types = pods_scheduled_singly(cluster)
    if not types:
        return frozenset()
    rows = Workload.objects.filter(project__cluster=cluster, type__name__in=types, phase__in=LIVE)
    return frozenset(str(pk) for pk in rows.values_list("pk", flat=True))


OUT_OF_TURN: Final = (*HELD, NO_CONTROLLER, LEFT_OUT)
"""Why a workload waits that no scheduler has before it."""


@dataclass(frozen=True, slots=True)
class WithoutPods:
    """One of them in its node pool. later: its controller pauses before it makes pods."""

    workload: Workload
    pool: NodePool
    later: bool


def waiting_without_pods(
    cluster: Cluster, pools: Iterable[NodePool], pods: Collection[ObservedPod]
) -> Iterator[WithoutPods]:
    """Of these live pods none is theirs, or all are ending. Rung holds none of them back, and a controller has them."""
    seen, staying = {pod.owner_id for pod in pods}, {pod.owner_id for pod in pods if pod.deletion_at is None}
    by_name = {pool.name: pool for pool in pools}
    rows = Workload.objects.filter(
        project__cluster=cluster, phase__in=WAITING, desired_phase=DesiredPhase.RUNNING, deleted_at__isnull=True
    )
    found = rows.exclude(phase_reason__in=OUT_OF_TURN).select_related("project__cluster", "priority")
    without = {str(each.pk): each for each in found if str(each.pk) not in staying}
    tried = _tried(cluster, without)
    for owner, workload in without.items():
        later = owner in tried or _has_refused_pods(workload)
        if (pool := by_name.get(workload.pool_name)) and (later or owner not in seen):
            yield WithoutPods(workload, pool, later)


def _tried(cluster: Cluster, workloads: dict[str, Workload]) -> set[str]:
    """Those that had pods before, under a controller that pauses; a scheduler of whole jobs has them in its queue."""
    if flavour_for(cluster.flavour).traits.queues_jobs:
        return set()
    handed = [owner for owner, each in workloads.items() if each.applied_generation == each.generation]
    rows = ObservedPod.objects.filter(cluster=cluster, owner_id__in=handed)
    return set(rows.values_list("owner_id", flat=True))


def _has_refused_pods(workload: Workload) -> bool:
    return workload.phase == Phase.PENDING and workload.phase_reason in REFUSED_PODS


SECOND: Final = 1_000_000  # microseconds, the unit of time stamps in a snapshot


def admission_times(cluster: Cluster, pods: Collection[ObservedPod]) -> dict[str, int]:
    """When each pod group was let in, by its name. It may wait for a node long after."""
    owners, uids = {pod.owner_id for pod in pods if pod.owner_id}, [pod.uid for pod in pods]
    said = ClusterEvent.objects.filter(cluster=cluster, owner_id__in=owners, reason=ADMITTED)
    rows = said.filter(~Q(kind=POD.kind) | Q(object_uid__in=uids)).order_by("at")
    return {
        f"{owner}:{uid}" if kind == POD.kind else owner: int(at.timestamp() * SECOND)
        for owner, kind, uid, at in rows.values_list("owner_id", "kind", "object_uid", "at")
    }


def never_requeued(cluster: Cluster) -> QuerySet[ClusterEvent, str]:
    """Uids of pods that stay gated until they are deleted: only another pod in their place is queued."""
    said = ClusterEvent.objects.filter(cluster=cluster, kind=POD.kind, reason=LEFT_OUT)
    return said.values_list("object_uid", flat=True)
