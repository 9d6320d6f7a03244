"""Why a workload waits: one sentence with its numbers, and what would change it.

The model answers first; where it cannot, what its scheduler says does, in people's words.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from clusters.models import Cluster, ClusterState, NodePool
from clusters.services.shards import shard_cautions, unserved
from clusters.sources import desired_state
from portal.core.marks import Kept, steady
from scheduling.cycle import FLAVOURS, preview
from scheduling.model import PodGroup, Snapshot
from scheduling.reasons import Reason
from workloads.lifecycle import HELD, NO_CONTROLLER, REFUSED_PODS, WAITING
from workloads.models import DesiredPhase, Phase, Workload
from workloads.selectors.configuration import configured_so
from workloads.selectors.protection import held_off
from workloads.sentences import duration_text, pend_sentence
from workloads.snapshots import groups_of, queue_labels, snapshot_of, wanted_of, workload_of

STALE_SECONDS: Final = 300
# The cluster has decided: it evicts for it, and the model would only guess when those have left.
MAKING_ROOM: Final = frozenset({Reason.EVICTING.value, "PreemptionPending"})
# Delays: the workqueues of Kubernetes' controllers.
ASKED_AGAIN: Final = (
    "That was the last answer: its controller asks again with growing delays (a Job's up to a minute, a Deployment's "
    "up to a quarter of an hour), so room that was freed meanwhile is not taken at once"
)


@dataclass(frozen=True, slots=True)
class Headline:
    """`source`: model (an estimate on the last snapshot), scheduler (what it said) or rung (not handed over yet)."""

    sentence: str
    reason: str
    since: datetime
    source: str
    numbers: Mapping[str, str] = field(default_factory=dict)
    observed_at: datetime | None = None
    simulated: bool = False


def why_waiting(workload: Workload) -> Headline | None:
    """None unless it is meant to run and waits."""
    if workload.phase not in WAITING or workload.desired_phase != DesiredPhase.RUNNING:
        return None
    if workload.phase != Phase.PENDING or workload.project.cluster.state == ClusterState.PAUSED:
        return _not_there_yet(workload)
    if closed := unserved(workload.project.cluster, workload.pool_name):
        return _headline(workload, closed, reason=str(Reason.NO_SUCH_POOL), source="rung")
    if workload.phase_reason in {*HELD, NO_CONTROLLER}:
        return _headline(workload, workload.phase_message, reason=workload.phase_reason, source="rung")
    if workload.phase_reason in MAKING_ROOM:
        return _by_scheduler(workload)
    with steady():
        told = _told.of(state_of(workload), lambda: _by_model(workload))
    return _by_scheduler(workload) if told is None else _headline(workload, **told)


# What the model said of a workload on a snapshot: pages ask every few seconds, and its answer stays the same meanwhile.
_told: Final = Kept[dict[str, Any] | None]("rules")


def state_of(workload: Workload) -> Hashable:
    """Everything about it that the model looks at; the cluster by the moment it was observed."""
    cluster = workload.project.cluster
    seen = None if _stale(cluster) else cluster.observed_at
    pair = (workload.priority_value, workload.preemptibility)
    return (workload.pk, workload.generation, workload.phase_at, workload.pool_name, pair, seen)


def _not_there_yet(workload: Workload) -> Headline:
    cluster = workload.project.cluster
    words = {
        Phase.CREATING.value: f"a worker hands it to {cluster.name}",
        Phase.RESUMING.value: f"a worker hands it to {cluster.name} again",
        Phase.INITIALIZING.value: "its pods have nodes and are starting",
    }
    doing = words.get(workload.phase, "a worker looks after it")
    if cluster.state == ClusterState.PAUSED:
        doing = f"{cluster.name} is paused: {cluster.paused_reason}"
    elif workload.phase == Phase.INITIALIZING and workload.phase_message:
        doing = f"a pod has a node and does not start: {workload.phase_message}"
    elif cluster.breaker_reason:
        doing = f"{cluster.name} takes no work now and is tried again: {cluster.breaker_reason}"
    elif workload.apply_error:
        doing = f"{cluster.name} could not take it yet: {workload.apply_error}"
    return _headline(workload, doing, reason=workload.phase, source="rung")


def _headline(
    workload: Workload,
    doing: str,
    *,
    reason: str,
    source: str,
    numbers: Mapping[str, str] | None = None,
) -> Headline:
    cluster = workload.project.cluster
    waited = duration_text(timezone.now() - workload.phase_at)
    return Headline(
        sentence=f"Waiting {waited}: {doing.rstrip('.')}.",
        reason=reason,
        since=workload.phase_at,
        source=source,
        numbers=numbers or {},
        observed_at=cluster.observed_at,
        simulated=cluster.is_simulated,
    )


def _by_scheduler(workload: Workload) -> Headline:
    doing = _said(workload)
    if workload.phase_reason in REFUSED_PODS:
        doing = _joined(doing, ASKED_AGAIN)
    return _headline(workload, doing, reason=workload.phase_reason, source="scheduler")


def _said(workload: Workload) -> str:
    """What its scheduler reported, as the rest of a sentence: without a capital, but where it begins with a name."""
    said = workload.phase_message
    plain = said[1:2].islower() or said[1:2] == " "
    return (said[:1].lower() + said[1:] if plain else said) or "its cluster's scheduler has not said why"


def _by_model(workload: Workload) -> dict[str, Any] | None:
    """What a headline needs, from the cycle a preview runs. None: the snapshot is old, or it would start at once."""
    cluster = workload.project.cluster
    pool = NodePool.objects.filter(cluster=cluster, name=workload.pool_name).first()
    if pool is None or cluster.flavour not in FLAVOURS or _stale(cluster):
        return None
    snapshot, _at = snapshot_of(cluster, pool.name)
    snapshot, groups = _apart(snapshot, groups_of(wanted_of(workload, pool), cluster.flavour))
    outcome = preview(snapshot, *groups, flavour=cluster.flavour)
    cautions = shard_cautions(cluster, pool.name)
    if outcome.pend is None:
        known = {"doing": _joined(_said(workload), *cautions), "reason": workload.phase_reason, "source": "scheduler"}
        return known if cautions else None
    labels = queue_labels(desired_state(cluster, domains=False))
    doing = pend_sentence(outcome.pend, pool=pool.name, labels=labels)
    until = held_off(snapshot, groups, cluster.flavour)
    return {
        "doing": _joined(doing, *until, *configured_so(cluster, outcome), *cautions),
        "reason": str(outcome.pend.reason),
        "source": "model",
        "numbers": _named(outcome.pend.numbers(), labels),
    }


def _joined(*sentences: str) -> str:
    return ". ".join(each.rstrip(".") for each in sentences)


def _stale(cluster: Cluster) -> bool:
    seen = cluster.observed_at
    return seen is None or (timezone.now() - seen).total_seconds() > STALE_SECONDS


def _apart(snapshot: Snapshot, wanted: Sequence[PodGroup]) -> tuple[Snapshot, Sequence[PodGroup]]:
    """The cluster without the workload's own waiting pods, and those; none seen: as it is wanted."""
    mine = workload_of(wanted[0].name)
    own = tuple(group for group in snapshot.groups if workload_of(group.name) == mine and group.waiting)
    if not own:
        return snapshot, wanted
    return replace(snapshot, groups=tuple(group for group in snapshot.groups if group not in own)), own


def _named(numbers: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    return {name: labels.get(text, text) if name == "queue" else text for name, text in numbers.items()}


def queue_position(workload: Workload) -> int | None:
    """Its place among the waiting workloads of its project and pool, 1 is next; None when it does not wait there."""
    if workload.phase not in WAITING or workload.desired_phase != DesiredPhase.RUNNING:
        return None
    if workload.phase_reason == NO_CONTROLLER:
        return None
    queue = Workload.objects.filter(
        project=workload.project_id,
        pool_name=workload.pool_name,
        phase__in=WAITING,
        desired_phase=DesiredPhase.RUNNING,
        deleted_at__isnull=True,
    ).exclude(phase_reason=NO_CONTROLLER)
    ahead = queue.filter(priority_value__gt=workload.priority_value).count()
    older = queue.filter(priority_value=workload.priority_value, created_at__lt=workload.created_at).count()
    return ahead + older + 1
