"""Waiting workloads none of whose pods is there: who gets some at once, and who when its controller tries again.

A Job whose pod has failed or was evicted gets the next one after a pause, ten seconds at first and up to ten minutes;
whom a quota refused is tried again with growing pauses. Until then no scheduler sees any of them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from clusters.flavours import flavour_for
from clusters.flavours.reading import LEFT_OUT
from clusters.models import Cluster, NodePool, ObservedPod
from workloads.lifecycle import HELD, NO_CONTROLLER, REFUSED_PODS, WAITING
from workloads.models import DesiredPhase, Phase, Workload

OUT_OF_TURN: Final = (*HELD, NO_CONTROLLER, LEFT_OUT)
"""Why a workload waits that no scheduler has before it."""


@dataclass(frozen=True, slots=True)
class Unmade:
    """One of them in its node pool. later: its controller pauses before it makes pods."""

    workload: Workload
    pool: NodePool
    later: bool


def unmade(cluster: Cluster, pools: Iterable[NodePool], pods: Collection[ObservedPod]) -> Iterator[Unmade]:
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
        later = owner in tried or _is_refused(workload)
        if (pool := by_name.get(workload.pool_name)) and (later or owner not in seen):
            yield Unmade(workload, pool, later)


def _tried(cluster: Cluster, workloads: dict[str, Workload]) -> set[str]:
    """Those that had pods before, under a controller that pauses; a scheduler of whole jobs has them in its queue."""
    if flavour_for(cluster.flavour).traits.queues_jobs:
        return set()
    handed = [owner for owner, each in workloads.items() if each.applied_generation == each.generation]
    rows = ObservedPod.objects.filter(cluster=cluster, owner_id__in=handed)
    return set(rows.values_list("owner_id", flat=True))


def _is_refused(workload: Workload) -> bool:
    return workload.phase == Phase.PENDING and workload.phase_reason in REFUSED_PODS
