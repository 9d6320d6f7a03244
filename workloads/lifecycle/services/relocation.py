"""Move waiting workloads to their next node pool, or to another scheduler. Idempotent.

1. find workloads of several pools that wait, hold nothing and were left long enough in their present pool
2. ask the model of their cluster, in their order of preference, for another pool that lets them start
3. move the row by compare-and-set; a worker recreates its object in that pool's queue, on that pool's nodes
A workload with a pod on a node, or with a node promised to one, is never moved: it is about to start.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from clusters.connection.services.scheduler_config import unmanaged_because
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.workload_hooks import HeldOtherwise, SwitchEffect, WorkloadSample
from clusters.ports.flavour import SchedulerFlavour
from clusters.sync.selectors import desired_state
from clusters.watch.models import ObservedObject
from portal.kit.pages.formatting import duration_text
from scheduling.forecast.cycle import FLAVOURS, cycle
from scheduling.model.decisions import Evict, Outcome
from scheduling.state.workspace import OutOfTime
from workloads.forecast.rules.estimates import WAIT_IN_POOL, time_in_pool
from workloads.forecast.rules.messages import pend_sentence
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.pod_groups import groups_of, pod_group_request
from workloads.forecast.selectors.pool_selection import has_a_node, movable, queue_labels, waited_here
from workloads.forecast.selectors.runtime_rules import is_deferred
from workloads.forecast.selectors.snapshot import snapshot_after, snapshot_of
from workloads.forecast.selectors.start_estimate import HOW, elsewhere, outcome_in, starts_here, without
from workloads.forecast.selectors.time_budget import time_budget
from workloads.state.models import DesiredPhase, EventType, Phase, Workload
from workloads.state.rules import ENDED, HELD, HOLDING, NEXT_POOL
from workloads.state.selectors.usage import gpu_seconds_at_risk
from workloads.state.selectors.workloads import named_object, workload_ids
from workloads.state.services import note, notify_apply

MOST_SECONDS: Final = 20.0
"""For the model on one cluster; who is not decided by then waits for the next round."""


def try_next_pools() -> int:
    """Move whatever another of its pools would let start; answers how many were moved."""
    now = timezone.now()
    by_cluster: dict[Cluster, list[Workload]] = defaultdict(list)
    for workload in _waiting(now):
        by_cluster[workload.project.cluster].append(workload)
    return sum(_in_cluster(cluster, workloads, now) for cluster, workloads in by_cluster.items())


def _waiting(now: datetime) -> Iterator[Workload]:
    """Most important first, as a scheduler would take them."""
    handed_over = Q(applied_generation=F("generation")) | Q(phase_reason__in=HELD)
    rows = movable(now).filter(handed_over, phase_at__lte=now - WAIT_IN_POOL)
    rows = rows.select_related("project__cluster", "project__department", "priority")
    for workload in rows.order_by("-priority_value", "created_at"):
        if waited_here(workload, now) >= WAIT_IN_POOL and not has_a_node(workload):
            yield workload


@time_budget(MOST_SECONDS)
def _in_cluster(cluster: Cluster, workloads: Iterable[Workload], now: datetime) -> int:
    """Each decision counts for the next: who was moved waits in its new pool from then on."""
    snapshot, _at = snapshot_of(cluster)
    pools = {pool.name: pool for pool in cluster.node_pools.all()}
    moved = 0
    for workload in workloads:
        chain = [pools[name] for name in workload.node_pools if name in pools]
        present = pools.get(workload.pool_name)
        if present is None:
            continue
        others = without(snapshot, workload)
        try:
            with time_budget():
                here = outcome_in(others, workload, present)
                found = elsewhere(others, workload, chain, present) if _may_go(workload, here, now) else None
        except OutOfTime:
            continue
        if found and _move(workload, here, *found, now=now):
            snapshot = others.with_groups(groups_of(pod_group_request(workload, found[0]), cluster.flavour))
            moved += 1
    return moved


def _may_go(workload: Workload, here: Outcome, now: datetime) -> bool:
    return waited_here(workload, now) >= time_in_pool(starts_here=starts_here(workload, here))


def _move(workload: Workload, here: Outcome, pool: NodePool, there: Outcome, *, now: datetime) -> bool:
    """False: the row has changed meanwhile."""
    left, why, waited = workload.pool_name, _why(workload, here), duration_text(waited_here(workload, now))
    changes = {
        "pool_name": pool.name,
        "pool_since": now,
        "due_at": now,
        "attempts": 0,
        "refusals": 0,
        "apply_error": "",
        "updated_at": now,
        **_new_reason(workload, left, pool, there),
    }
    with transaction.atomic():
        placed = Workload.objects.filter(
            pk=workload.pk, generation=workload.generation, phase=Phase.PENDING, pool_name=left
        )
        if placed.update(generation=F("generation") + 1, **changes) != 1:
            return False
        workload.pool_name, workload.generation = pool.name, workload.generation + 1
        message = f"After {waited} in {left}, where it {why}, it moves to {pool.name}: {HOW[there.kind]}."
        detail = {"from": left, "to": pool.name, "because": _because(workload, here)}
        note(workload=workload, at=now, type_=EventType.SCHEDULING, reason=NEXT_POOL, message=message, detail=detail)
        notify_apply(workload.project.cluster_id)
    return True


def _new_reason(workload: Workload, left: str, pool: NodePool, there: Outcome) -> dict[str, str]:
    """Instead of what was said of the nodes and queues of the pool that it leaves. What is held back stays so until it
    is handed over.
    """
    message = f"Moved from {left} to {pool.name}: {HOW[there.kind]}."
    return {"phase_message": message} | ({} if workload.phase_reason in HELD else {"phase_reason": NEXT_POOL})


def _because(workload: Workload, here: Outcome) -> str:
    """The same as a word for programs."""
    if is_deferred(workload):
        return workload.phase_reason
    return str(here.pend.reason) if here.pend else "slow"


def _why(workload: Workload, here: Outcome) -> str:
    """In the model's words; where it would have started there, in the scheduler's."""
    if here.pend is None:
        message = workload.phase_message.rstrip(".")
        return f"did not start ({message})" if message else "did not start"
    labels = queue_labels(desired_state(workload.project.cluster, domains=False))
    return pend_sentence(here.pend, pool=workload.pool_name, labels=labels)


SAMPLES: Final = 5
CHUNK: Final = 1000  # ids in one query
OWNED: Final = "workload."
FIRST_THE_QUEUES: Final = timedelta(seconds=5)
"""Objects are recreated after the first run of the reconcile, which creates the queues that they name."""
RUNS: Final = Q(running_pods__gt=0) | Q(phase__in=[*HOLDING, Phase.INITIALIZING, Phase.STOPPING, Phase.UNKNOWN])


class _Workforce:
    """Answers the cluster mechanism."""

    def work_in(self, target: Cluster, after: SchedulerFlavour, /) -> SwitchEffect:
        """What becomes of each living workload."""
        living = _living().filter(project__cluster=target)
        stays = living.filter(RUNS)
        alone = [
            kind for kind in living.values_list("spec__kind", flat=True).distinct() if unmanaged_because(target, kind)
        ]
        counts, evicted = after.traits.queues_by_pool, _evicted(target, stays)
        return SwitchEffect(
            stays=_some(stays),
            recreated=_some(living.exclude(RUNS)),
            unexpressed=_some(living.exclude(preemptibility__in=after.preemptibilities)),
            unmanaged=_some(living.filter(spec__kind__in=alone)),
            evicted=None if evicted is None else _some(evicted),
            seconds_at_risk=0 if evicted is None else sum(gpu_seconds_at_risk(evicted, evictable=True)),
            uncounted=stays.aggregate(held=Sum("allocated_gpu_milli"))["held"] or 0 if counts else 0,
        )

    def begin(self, cluster: Cluster, /) -> Iterable[str]:
        """What does not run is due with another generation, so that a worker who is at it now writes nothing late."""
        living = _living().filter(project__cluster=cluster)
        ids = [str(key) for key in living.values_list("pk", flat=True)]
        _make_due(living)
        return ids

    def tend(self, ids: frozenset[str], /) -> Iterable[str]:
        """What was evicted or has lost its pods since is recreated as well."""
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

    def held_otherwise(self, cluster: Cluster, /) -> Iterable[HeldOtherwise]:
        """Of what is meant to run and is applied; the observation has to be no older than what was written."""
        rows = _living().filter(
            project__cluster=cluster,
            desired_phase=DesiredPhase.RUNNING,
            due_at=None,
            applied_generation=F("generation"),
        )
        fields = ("pk", "name", "project__name", "project__namespace", "generation", "applied_scheduling", "spec__kind")
        wanted = {str(row["pk"]): row for row in rows.exclude(applied_scheduling={}).values(*fields)}
        seen = ObservedObject.objects.filter(cluster=cluster).exclude(owner_id="").exclude(scheduling={})
        for each in seen.only("owner_id", "kind", "namespace", "name", "generation", "scheduling"):
            row = wanted.get(each.owner_id)
            if row and _is_own(each, row) and each.scheduling != row["applied_scheduling"]:
                yield HeldOtherwise(
                    kind=each.kind,
                    namespace=each.namespace,
                    name=each.name,
                    owner=f"{OWNED}{each.owner_id}",
                    workload=f"{row['name']} ({row['project__name']})",
                    held=each.scheduling,
                    written=row["applied_scheduling"],
                )

    def apply_again(self, owner: str, /) -> bool:
        """Due at once, as it is wanted now."""
        ids = workload_ids({owner.removeprefix(OWNED)}) if owner.startswith(OWNED) else []
        row = _living().filter(pk__in=ids).select_related("project").first()
        if row is None:
            return False
        Workload.objects.filter(pk=row.pk).update(due_at=timezone.now())
        notify_apply(row.project.cluster_id)
        return True


def _is_own(seen: ObservedObject, row: Mapping[str, Any]) -> bool:
    """Not of what a controller made below it, and no older than what was written last."""
    place = (row["spec__kind"], row["project__namespace"], named_object(row["name"], row["pk"]))
    return (seen.kind.partition(".")[0], seen.namespace, seen.name) == place and seen.generation >= row["generation"]


def _evicted(target: Cluster, stays: QuerySet[Workload]) -> QuerySet[Workload] | None:
    """Of what stays, what the model of the new scheduler evicts for what waits now. None: there is no such model."""
    if target.flavour not in FLAVOURS:
        return None
    ids = frozenset(str(key) for key in stays.values_list("pk", flat=True))
    decisions = cycle(snapshot_after(target, ids), flavour=target.flavour)
    victims = {workload_of(each.victim.name) for each in decisions if isinstance(each, Evict)}
    return stays.filter(pk__in=workload_ids(victims & ids))


def _living() -> QuerySet[Workload]:
    return Workload.objects.filter(deleted_at__isnull=True).exclude(phase__in=ENDED)


def _make_due(rows: QuerySet[Workload]) -> int:
    wanted = rows.exclude(RUNS).exclude(desired_phase=DesiredPhase.DELETED)
    due = timezone.now() + FIRST_THE_QUEUES
    return wanted.update(generation=F("generation") + 1, due_at=due, attempts=0, refusals=0, apply_error="")


def _some(rows: QuerySet[Workload]) -> WorkloadSample:
    first = rows.order_by("created_at", "pk").values_list("pk", "name", "project__name")[:SAMPLES]
    return WorkloadSample(rows.count(), tuple((str(key), f"{name} ({project})") for key, name, project in first))


WORKFORCE: Final = _Workforce()
