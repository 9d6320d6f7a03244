"""Trying the next of a workload's node pools. Runs in workers, every few seconds; again changes nothing.

1. find workloads of several pools that wait, hold nothing and were left long enough in their present pool
2. ask the model of their cluster, in their order of preference, for another pool that lets them start
3. move the row by compare-and-set; a worker makes its object anew in that pool's queue, on that pool's nodes
A workload with a pod on a node, or with a node promised to one, is never moved: it is about to start.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from clusters.models import Cluster, ClusterState, NodePool, ObservedPod
from clusters.sources import desired_state
from scheduling.cycle import FLAVOURS, preview
from scheduling.decisions import Kind, Outcome
from scheduling.model import Snapshot
from workloads.admission import could_hold
from workloads.enqueue import wake_apply
from workloads.holding_back import hold_of, is_held
from workloads.lifecycle import HELD
from workloads.models import DesiredPhase, EventType, Phase, Workload
from workloads.pool_turns import PATIENCE, its_turn_is_over, waited_in_pool
from workloads.quota_hold import quota_hold_of
from workloads.sentences import duration_text, pend_sentence
from workloads.services.moves import note
from workloads.snapshots import groups_of, queue_labels, snapshot_of, wanted_of, workload_of

STALE: Final = timedelta(seconds=120)
WORDS: Final = {
    Kind.PLACED: "it starts there now",
    Kind.PREEMPTS: "it starts there after an eviction",
    Kind.RECLAIMS: "it takes its share back there",
    Kind.CONSOLIDATES: "it starts there after others have been moved together",
    Kind.PREEMPTS_AND_RECLAIMS: "it starts there after an eviction",
}


def try_next_pools() -> int:
    """Move whatever another of its pools would let start; answers how many were moved."""
    now = timezone.now()
    by_cluster: dict[Cluster, list[Workload]] = defaultdict(list)
    for workload in _waiting(now):
        by_cluster[workload.project.cluster].append(workload)
    return sum(_in_cluster(cluster, workloads, now) for cluster, workloads in by_cluster.items())


def _waiting(now: datetime) -> Iterator[Workload]:
    """Most important first, as a scheduler would take them."""
    rows = Workload.objects.filter(
        Q(applied_generation=F("generation")) | Q(phase_reason__in=HELD),
        phase=Phase.PENDING,
        desired_phase=DesiredPhase.RUNNING,
        deleted_at=None,
        allocated_gpu_milli=0,
        running_pods=0,
        phase_at__lte=now - PATIENCE,
        node_pools__1__isnull=False,
        project__cluster__state=ClusterState.ACTIVE,
        project__cluster__observed_at__gte=now - STALE,
        project__cluster__flavour__in=list(FLAVOURS),
    )
    rows = rows.select_related("project__cluster", "project__department", "priority")
    for workload in rows.order_by("-priority_value", "created_at"):
        if _waited(workload, now) >= PATIENCE and not _has_a_node(workload):
            yield workload


def _waited(workload: Workload, now: datetime) -> timedelta:
    return waited_in_pool(now=now, waits_since=workload.phase_at, pool_since=workload.pool_since)


def _has_a_node(workload: Workload) -> bool:
    pods = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None)
    return pods.exclude(node_name="", nominated_node="").exists()


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
        others = _without(snapshot, workload)
        here = _outcome(others, workload, present)
        found = _elsewhere(others, workload, chain, present) if _may_go(workload, here, now) else None
        if found and _move(workload, here, *found, now=now):
            snapshot = others.with_groups(groups_of(wanted_of(workload, found[0]), cluster.flavour))
            moved += 1
    return moved


def _may_go(workload: Workload, here: Outcome, now: datetime) -> bool:
    starts_here = here.kind is not Kind.PENDING and not is_held(workload)
    return its_turn_is_over(waited=_waited(workload, now), starts_here=starts_here)


def _without(snapshot: Snapshot, workload: Workload) -> Snapshot:
    own = str(workload.pk)
    return replace(snapshot, groups=tuple(each for each in snapshot.groups if workload_of(each.name) != own))


def _outcome(snapshot: Snapshot, workload: Workload, pool: NodePool) -> Outcome:
    flavour = workload.project.cluster.flavour
    return preview(snapshot, *groups_of(wanted_of(workload, pool), flavour), flavour=flavour)


def _elsewhere(
    snapshot: Snapshot, workload: Workload, chain: Sequence[NodePool], present: NodePool
) -> tuple[NodePool, Outcome] | None:
    """The first other pool, in its order, that could hold it by quota and lets it start by the model."""
    for pool in chain:
        if pool != present and could_hold(workload, pool):
            outcome = _outcome(snapshot, workload, pool)
            held = quota_hold_of(workload, pool) or hold_of(outcome, workload.project)
            if outcome.kind is not Kind.PENDING and not held:
                return pool, outcome
    return None


def _move(workload: Workload, here: Outcome, pool: NodePool, there: Outcome, *, now: datetime) -> bool:
    """False: the row has changed meanwhile."""
    left, why, waited = workload.pool_name, _why(workload, here), duration_text(_waited(workload, now))
    changes = {
        "pool_name": pool.name,
        "pool_since": now,
        "due_at": now,
        "attempts": 0,
        "refusals": 0,
        "apply_error": "",
    }
    with transaction.atomic():
        standing = Workload.objects.filter(
            pk=workload.pk, generation=workload.generation, phase=Phase.PENDING, pool_name=left
        )
        if standing.update(generation=F("generation") + 1, **changes) != 1:
            return False
        workload.pool_name, workload.generation = pool.name, workload.generation + 1
        message = f"After {waited} in {left}, where it {why}, it is tried in {pool.name}: {WORDS[there.kind]}."
        detail = {"from": left, "to": pool.name, "because": _because(workload, here)}
        note(workload=workload, at=now, type_=EventType.SCHEDULING, reason="NextPool", message=message, detail=detail)
        wake_apply(workload.project.cluster_id)
    return True


def _because(workload: Workload, here: Outcome) -> str:
    """The same as a word for programs."""
    if is_held(workload):
        return workload.phase_reason
    return str(here.pend.reason) if here.pend else "slow"


def _why(workload: Workload, here: Outcome) -> str:
    """In the model's words; where it would have started there, in the scheduler's."""
    if here.pend is None:
        said = workload.phase_message.rstrip(".")
        return f"did not start ({said})" if said else "did not start"
    labels = queue_labels(desired_state(workload.project.cluster, domains=False))
    return pend_sentence(here.pend, pool=workload.pool_name, labels=labels)
