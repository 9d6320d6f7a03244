"""What another scheduler, or a pool of other nodes, means for workloads: what runs stays, what waits is made anew."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from clusters.models import Cluster, NodePool
from clusters.ports import SchedulerFlavour
from clusters.services.configured import left_alone
from clusters.switches import Some, Work
from scheduling.cycle import FLAVOURS, cycle
from scheduling.decisions import Evict
from workloads.lifecycle import ENDED, HOLDING
from workloads.models import DesiredPhase, Phase, Workload
from workloads.owners import workload_ids
from workloads.snapshots import snapshot_after, workload_of

SAMPLES: Final = 5
CHUNK: Final = 1000  # ids in one query
FIRST_THE_QUEUES: Final = timedelta(seconds=5)
"""What is made anew comes after the first run of the reconcile, which makes the queues that it names."""
RUNS: Final = Q(running_pods__gt=0) | Q(phase__in=[*HOLDING, Phase.INITIALIZING, Phase.STOPPING, Phase.UNKNOWN])


class _Workforce:
    """Answers the cluster mechanism."""

    def work_in(self, target: Cluster, after: SchedulerFlavour, /) -> Work:
        """What becomes of each living workload."""
        living = _living().filter(project__cluster=target)
        stays = living.filter(RUNS)
        alone = [kind for kind in living.values_list("spec__kind", flat=True).distinct() if left_alone(target, kind)]
        counts = after.traits.queues_by_pool
        return Work(
            stays=_some(stays),
            anew=_some(living.exclude(RUNS)),
            unexpressed=_some(living.exclude(preemptibility__in=after.preemptibilities)),
            unmanaged=_some(living.filter(spec__kind__in=alone)),
            evicted=_evicted(target, stays),
            uncounted=stays.aggregate(held=Sum("allocated_gpu_milli"))["held"] or 0 if counts else 0,
        )

    def begin(self, cluster: Cluster, /) -> Iterable[str]:
        """What does not run is due with another generation, so that a worker who is at it now writes nothing late."""
        living = _living().filter(project__cluster=cluster)
        ids = [str(key) for key in living.values_list("pk", flat=True)]
        _make_due(living)
        return ids

    def tend(self, ids: frozenset[str], /) -> Iterable[str]:
        """What was evicted or has lost its pods since is made anew as well."""
        keys = workload_ids(ids)
        found: list[str] = []
        for start in range(0, len(keys), CHUNK):
            living = _living().filter(pk__in=keys[start : start + CHUNK])
            found += [str(key) for key in living.values_list("pk", flat=True)]
            _make_due(living.filter(due_at=None))
        return found

    def move(self, pool: NodePool, /) -> int:
        """Its pods would wait for nodes that are no longer the pool's, or by levels that it no longer has."""
        return _make_due(_living().filter(project__cluster=pool.cluster_id, pool_name=pool.name))


def _evicted(target: Cluster, stays: QuerySet[Workload]) -> Some | None:
    """Of what stays, what the model of the new scheduler evicts for what waits now. None: there is no such model."""
    if target.flavour not in FLAVOURS:
        return None
    ids = frozenset(str(key) for key in stays.values_list("pk", flat=True))
    decisions = cycle(snapshot_after(target, ids), flavour=target.flavour)
    victims = {workload_of(each.victim.name) for each in decisions if isinstance(each, Evict)}
    return _some(stays.filter(pk__in=workload_ids(victims & ids)))


def _living() -> QuerySet[Workload]:
    return Workload.objects.filter(deleted_at__isnull=True).exclude(phase__in=ENDED)


def _make_due(rows: QuerySet[Workload]) -> int:
    wanted = rows.exclude(RUNS).exclude(desired_phase=DesiredPhase.DELETED)
    due = timezone.now() + FIRST_THE_QUEUES
    return wanted.update(generation=F("generation") + 1, due_at=due, attempts=0, refusals=0, apply_error="")


def _some(rows: QuerySet[Workload]) -> Some:
    first = rows.order_by("created_at", "pk").values_list("pk", "name", "project__name")[:SAMPLES]
    return Some(rows.count(), tuple((str(key), f"{name} ({project})") for key, name, project in first))


WORKFORCE: Final = _Workforce()
