"""Non-preemptible work stays inside the deserved quota of its node pool where the cluster counts all pools together.

kube-scheduler's only quota is a namespace's, for the priority classes of 100 and more: it knows neither node pools nor
preemptibility. Where that would let more start than the pool's deserved quota, Rung hands over the oldest first and
holds the others back. The order alone decides, so two workers that look at the same moment cannot both hand over.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from django.db.models import Count, Q, Sum

from clusters.flavours import flavour_for
from clusters.models import NodePool
from scheduling.capacity import Usage, over_guarantee
from scheduling.priority import THRESHOLD, Preemptibility
from scheduling.reasons import Pend
from scheduling.resources import Resources
from workloads.admission import queue_paths
from workloads.lifecycle import HELD_FOR_QUOTA, LIVE
from workloads.models import DesiredPhase, Phase, Workload
from workloads.snapshots import Wanted, wanted_of

ELSEWHERE: Final = (Phase.CREATING, Phase.RESUMING)


@dataclass(frozen=True, slots=True)
class QuotaHold:
    """Why it is held back: the pool, the refusal with its numbers, and how many workloads hold or come first."""

    pool: str
    pend: Pend
    count: int
    reason: ClassVar[str] = HELD_FOR_QUOTA

    def __str__(self) -> str:
        """As a sentence about what is held back."""
        return f"Rung holds it back: {self.why}"

    @property
    def why(self) -> str:
        """As the rest of a sentence."""
        pend = self.pend
        return (
            f"it needs {pend.needed} in {self.pool} and is non-preemptible; of the {pend.allowed} that {pend.queue} "
            f"deserves there, workloads that run or are older ({self.count}) need {pend.used}"
        )

    def numbers(self) -> dict[str, str]:
        """The same for programs."""
        return {"pool": self.pool, **self.pend.numbers()}


def quota_hold_of(workload: Workload, pool: NodePool) -> QuotaHold | None:
    """Why a stored workload is not handed over now; None: its pool's deserved quota has room for it."""
    older = Q(created_at__lt=workload.created_at) | Q(created_at=workload.created_at, pk__lt=workload.pk)
    handed_over = Q(applied_generation__gt=0) & ~Q(phase__in=ELSEWHERE) & ~Q(phase_reason=HELD_FOR_QUOTA)
    first = older | handed_over | Q(running_pods__gt=0)
    return _hold(wanted_of(workload, pool), first & ~Q(pk=workload.pk))


def quota_hold_for(wanted: Wanted, *, besides: Workload | None = None) -> QuotaHold | None:
    """The same for a workload that is only thought of, or for another size of one: what was accepted comes first."""
    return _hold(wanted, Q() if besides is None else ~Q(pk=besides.pk))


def _hold(wanted: Wanted, first: Q) -> QuotaHold | None:
    if wanted.preemptibility != Preemptibility.NON_PREEMPTIBLE or _cluster_counts(wanted):
        return None
    rows = Workload.objects.filter(
        first,
        project=wanted.project,
        pool_name=wanted.pool.name,
        preemptibility=Preemptibility.NON_PREEMPTIBLE,
        phase__in=LIVE,
        deleted_at__isnull=True,
    ).filter(Q(desired_phase=DesiredPhase.RUNNING) | Q(running_pods__gt=0))
    sums = {"gpu": Sum("gpu_milli", default=0), "cpu": Sum("cpu_milli", default=0)}
    held = rows.aggregate(**sums, memory=Sum("memory_bytes", default=0), count=Count("pk"))
    count = held.pop("count")
    leaf, _department = queue_paths(wanted.project, [wanted.pool])[wanted.pool.pk]
    pend = over_guarantee(leaf, Usage(non_preemptible=Resources(**held)), wanted.spec.total)
    return QuotaHold(wanted.pool.name, pend, count) if pend else None


def _cluster_counts(wanted: Wanted) -> bool:
    """Does the cluster itself hold this workload inside the pool's deserved quota?"""
    if flavour_for(wanted.project.cluster.flavour).traits.queues_by_pool:
        return True
    pools = list(wanted.project.cluster.node_pools.all())
    paths = queue_paths(wanted.project, pools)
    others = [paths[pool.pk][0].deserved for pool in pools if pool.pk != wanted.pool.pk]
    return wanted.value >= THRESHOLD and not any(deserved.gpu != 0 for deserved in others)
