"""Why a workload waits, its place in the queue, and what would change it.

The model answers first; where it cannot, what its scheduler says does, in people's words.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import QuerySet, Sum
from django.utils import timezone

from clusters.connection.services.scheduler_config import shard_forecast_warnings, unserved_because
from clusters.flavours.kueue_status import POSITION_IN_QUEUE, QUEUE_POSITION
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState, NodePool
from clusters.ports.pods import TERMINAL
from clusters.watch.models import ClusterEvent, ObservedPod
from portal.kit.pages.formatting import duration_text
from portal.kit.security.actors import Actor
from scheduling.forecast.cycle import FLAVOURS, preview
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.workspace import OutOfTime
from tenants.access.selectors import visible_projects
from workloads.forecast.rules.messages import pend_sentence
from workloads.forecast.rules.reasons import short_of_department_quota, short_of_quota
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.placement_validation import configured_so, missing_on_nodes
from workloads.forecast.selectors.pod_groups import groups_of, pod_group_request
from workloads.forecast.selectors.pool_selection import pend_labels
from workloads.forecast.selectors.runtime_rules import min_runtime_sentences
from workloads.forecast.selectors.snapshot import observed_cluster
from workloads.forecast.selectors.time_budget import TOO_LONG, time_budget
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import HELD, NO_CONTROLLER, REFUSED_PODS, WAITING
from workloads.state.selectors.workloads import REPORTED_AT, named_object, visible_workloads

FRESH: Final = timedelta(minutes=2)
"""An older answer is of another queue: those before it may have been let go since."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """1 is next. `at`: when the scheduler said so."""

    number: int
    among: int
    at: datetime


def queue_place(workload: Workload) -> QueuePlace | None:
    """None unless it waits and its scheduler has said lately where."""
    if workload.phase not in WAITING or workload.desired_phase != DesiredPhase.RUNNING:
        return None
    events = ClusterEvent.objects.filter(
        cluster=workload.project.cluster_id,
        owner_id=str(workload.pk),
        reason=QUEUE_POSITION,
        at__gt=max(timezone.now() - FRESH, workload.phase_at),
    )
    newest = events.order_by("-at").first()
    found = POSITION_IN_QUEUE.match(newest.message) if newest else None
    if newest is None or found is None:
        return None
    return QueuePlace(int(found["place"]), int(found["among"]), newest.at)


STALE_SECONDS: Final = 300
# The cluster has decided: it evicts for it, and the model would only guess when those have left.
MAKING_ROOM: Final = frozenset({Reason.EVICTING.value, "PreemptionPending"})
# Delays: the workqueues of Kubernetes' controllers.
ASKED_AGAIN: Final = (
    "This is the last response. The controller retries at growing intervals (up to 1 min for a Job, 15 min for a "
    "Deployment), so it does not use freed quota immediately"
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
    reported: str = ""
    """Beside a sentence of the model: what the scheduler reported last, which may be old."""

    @property
    def short_of_quota(self) -> bool:
        return short_of_quota(self.reason, self.numbers)

    @property
    def short_of_department_quota(self) -> bool:
        return short_of_department_quota(self.reason, self.numbers)


def why_waiting(workload: Workload) -> Headline | None:
    """None unless it is meant to run and waits."""
    if workload.phase not in WAITING or workload.desired_phase != DesiredPhase.RUNNING:
        return None
    if workload.phase != Phase.PENDING or workload.project.cluster.state == ClusterState.PAUSED:
        return _not_there_yet(workload)
    if closed := unserved_because(workload.project.cluster, workload.pool_name):
        return _headline(workload, closed, reason=str(Reason.NO_SUCH_POOL), source="rung")
    if workload.phase_reason in {*HELD, NO_CONTROLLER}:
        return _headline(workload, workload.phase_message, reason=workload.phase_reason, source="rung")
    if workload.phase_reason in MAKING_ROOM:
        return _by_scheduler(workload)
    try:
        with time_budget():
            by_model = _by_model(workload)
    except OutOfTime:
        return _by_scheduler(workload, TOO_LONG)
    return _by_scheduler(workload) if by_model is None else _headline(workload, **by_model)


def _not_there_yet(workload: Workload) -> Headline:
    cluster = workload.project.cluster
    words = {
        Phase.CREATING.value: f"Rung is sending it to {cluster.name}",
        Phase.RESUMING.value: f"Rung is sending it to {cluster.name} again",
        Phase.INITIALIZING.value: "its pods have nodes and are starting",
    }
    doing = words.get(workload.phase, "Rung is processing it")
    if cluster.state == ClusterState.PAUSED:
        doing = f"{cluster.name} is paused: {cluster.paused_reason}"
    elif workload.phase == Phase.INITIALIZING and workload.phase_message:
        doing = f"a pod has a node and does not start: {workload.phase_message}"
    elif cluster.breaker_reason:
        doing = f"{cluster.name} does not accept work now and is retried: {cluster.breaker_reason}"
    elif workload.apply_error:
        doing = f"{cluster.name} has not accepted it yet: {workload.apply_error}"
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
        reported=workload.phase_message if source == "model" else "",
    )


def reported_at(workload: Workload) -> datetime | None:
    """When what the scheduler reported last was new."""
    return Workload.objects.filter(pk=workload.pk).values_list(REPORTED_AT, flat=True).first()


def _by_scheduler(workload: Workload, *more: str) -> Headline:
    doing = _joined(_scheduler_sentence(workload), *(f"{each[0].upper()}{each[1:]}" for each in more))
    if workload.phase_reason in REFUSED_PODS:
        doing = _joined(doing, ASKED_AGAIN)
    return _headline(workload, doing, reason=workload.phase_reason, source="scheduler")


def _scheduler_sentence(workload: Workload) -> str:
    """What its scheduler reported, as the rest of a sentence: without a capital, but where it begins with a name."""
    message = workload.phase_message
    plain = message[1:2].islower() or message[1:2] == " "
    return (message[:1].lower() + message[1:] if plain else message) or "the scheduler has not reported a reason"


def _by_model(workload: Workload) -> dict[str, Any] | None:
    """What a headline needs, from the cycle a preview runs. None: the snapshot is old, or it would start at once, or
    once pods have stopped of which none is terminating: the cluster has decided otherwise.
    """
    cluster = workload.project.cluster
    pool = NodePool.objects.filter(cluster=cluster, name=workload.pool_name).first()
    if pool is None or cluster.flavour not in FLAVOURS or _stale(cluster):
        return None
    wanted = pod_group_request(workload, pool)
    observed = observed_cluster(cluster)
    by_pool = flavour_for(cluster.flavour).traits.queues_by_pool
    snapshot = observed.snapshot.shard(pool.name) if by_pool else observed.snapshot
    if missing := missing_on_nodes(wanted.spec, pool, snapshot):
        never = {"reason": str(Reason.NEVER_FITS), "source": "model", "numbers": missing.numbers}
        return {"doing": missing.why, **never}
    snapshot, groups = _apart(snapshot, groups_of(wanted, cluster.flavour))
    outcome = preview(snapshot, *groups, flavour=cluster.flavour, explain=True)
    cautions = shard_forecast_warnings(cluster, pool.name)
    if outcome.pend is None:
        known = {
            "doing": _joined(_scheduler_sentence(workload), *cautions),
            "reason": workload.phase_reason,
            "source": "scheduler",
        }
        return known if cautions else None
    if outcome.pend.reason is Reason.EVICTING and not any(
        pod.terminating for each in snapshot.groups for pod in each.pods
    ):
        return None
    labels = pend_labels(observed.state, outcome.pend)
    doing = pend_sentence(outcome.pend, pool=pool.name, labels=labels)
    until = min_runtime_sentences(snapshot, groups, cluster.flavour)
    return {
        "doing": _joined(doing, *until, *configured_so(cluster, outcome), *cautions),
        "reason": str(outcome.pend.code),
        "source": "model",
        "numbers": _named(outcome.pend.numbers(), labels),
    }


def start_of(workload: Workload, pool: NodePool, snapshot: Snapshot) -> bool | None:
    """Does the model let it start now, by itself? None: it waits; True: it evicts others for it. Raises OutOfTime."""
    wanted = pod_group_request(workload, pool)
    if missing_on_nodes(wanted.spec, pool, snapshot):
        return None
    rest, groups = _apart(snapshot, groups_of(wanted, pool.cluster.flavour))
    outcome = preview(rest, *groups, flavour=pool.cluster.flavour)
    return None if outcome.pend else bool(outcome.victims)


def estimates_possible(cluster: Cluster) -> bool:
    """Is there a model of its scheduler, and a recent observation?"""
    return cluster.flavour in FLAVOURS and not _stale(cluster)


def _joined(*sentences: str) -> str:
    return ". ".join(each.rstrip(".") for each in sentences)


def _stale(cluster: Cluster) -> bool:
    seen = cluster.observed_at
    return seen is None or (timezone.now() - seen).total_seconds() > STALE_SECONDS


def _apart(snapshot: Snapshot, wanted: Sequence[PodGroup]) -> tuple[Snapshot, Sequence[PodGroup]]:
    """The cluster without the workload's own waiting pods, and those; none seen: as it is wanted."""
    mine = workload_of(wanted[0].name)
    own = tuple(group for group in snapshot.waiting if workload_of(group.name) == mine)
    return (snapshot.without_groups(group.name for group in own), own) if own else (snapshot, wanted)


def _named(numbers: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    return {name: labels.get(text, text) for name, text in numbers.items()}


def queue_position(workload: Workload) -> int | None:
    """Its place among the waiting workloads of its project and pool, 1 is next; None when it does not wait there."""
    found = queue_rank(workload)
    return found.number if found else None


@dataclass(frozen=True, slots=True)
class QueueRank:
    """1 is next; by priority, then by age in the cluster."""

    number: int
    among: int


def queue_rank(workload: Workload) -> QueueRank | None:
    """Its place among the waiting workloads of its project and pool; None when it does not wait there.

    As its scheduler has said lately, where it does.
    """
    if not _queues(workload):
        return None
    if rank := queue_place(workload):
        return QueueRank(rank.number, rank.among)
    return _rank(workload, _waiting_in(workload).filter(project=workload.project_id))


def pool_rank(workload: Workload) -> QueueRank | None:
    """The same among all projects in the pool, where its scheduler has one order for all: kube-scheduler.

    Elsewhere each project has a queue, and what each holds decides whose turn it is: None.
    """
    traits = flavour_for(workload.project.cluster.flavour).traits
    if traits.queues_by_pool or not _queues(workload):
        return None
    return _rank(workload, _waiting_in(workload).filter(project__cluster=workload.project.cluster_id))


def _queues(workload: Workload) -> bool:
    waits = workload.phase in WAITING and workload.desired_phase == DesiredPhase.RUNNING
    return waits and workload.phase_reason != NO_CONTROLLER


def _waiting_in(workload: Workload) -> QuerySet[Workload]:
    return Workload.objects.filter(
        pool_name=workload.pool_name,
        phase__in=WAITING,
        desired_phase=DesiredPhase.RUNNING,
        deleted_at__isnull=True,
    ).exclude(phase_reason=NO_CONTROLLER)


_Place = tuple[int, int, str]


def _rank(workload: Workload, queue: QuerySet[Workload]) -> QueueRank:
    """In the order of the scheduler's model, as `PodGroup.age` has it; what is in no queue yet by its submission."""
    rows = queue.values_list("pk", "priority_value", "created_at", "project__namespace", "name")
    places = {
        str(pk): (-value, int(at.timestamp() * 1_000_000), f"{space}/{named_object(name, pk)}")
        for pk, value, at, space, name in rows
    }
    if len(places) > 1:
        places |= _places_by_model(workload.project.cluster, places)
    own = places[str(workload.pk)]
    return QueueRank(sum(each < own for each in places.values()) + 1, len(places))


def _places_by_model(cluster: Cluster, owners: Container[str]) -> dict[str, _Place]:
    """The first place of each owner that waits with its scheduler."""
    found: dict[str, _Place] = {}
    for group in observed_cluster(cluster).snapshot.waiting if cluster.flavour in FLAVOURS else ():
        owner, place = workload_of(group.name), (-group.priority, *group.age)
        if owner in owners:
            found[owner] = min(found.get(owner, place), place)
    return found


def project_names(actor: Actor, cluster: Cluster) -> dict[int, str]:
    """The projects of a cluster that the reader may see, by id."""
    return dict(visible_projects(actor).filter(cluster=cluster).order_by().values_list("pk", "name"))


MOST_HOLDERS: Final = 20


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds GPUs in the pool: a workload that the reader may see, or all others of one sort together."""

    label: str
    gpu_milli: int
    workload: Workload | None = None


def holders(workload: Workload, actor: Actor) -> tuple[Holder, ...]:
    """Who holds the GPUs of the pool it waits for: its own project first, then those that hold most.

    Workloads that are not the reader's to see are together "another project", with their GPUs only.
    """
    cluster, pool = workload.project.cluster, workload.pool_name
    rows = Workload.objects.filter(
        project__cluster=cluster, pool_name=pool, allocated_gpu_milli__gt=0, deleted_at__isnull=True
    )
    seen = visible_workloads(actor).filter(pk__in=rows.values("pk"))
    ordered = sorted(seen, key=lambda row: (row.project_id != workload.project_id, -row.allocated_gpu_milli, row.name))
    found = [Holder(row.name, row.allocated_gpu_milli, row) for row in ordered[:MOST_HOLDERS]]
    more = ordered[MOST_HOLDERS:]
    foreign = ObservedPod.objects.filter(cluster=cluster, pool_name=pool, owner_id="", gone_at__isnull=True)
    held = foreign.exclude(phase__in=TERMINAL).exclude(node_name="")
    total = rows.aggregate(all=Sum("allocated_gpu_milli"))["all"] or 0
    others = {
        f"{len(more)} more workloads": sum(row.allocated_gpu_milli for row in more),
        "another project": total - sum(row.allocated_gpu_milli for row in ordered),
        "pods that Rung did not create": held.aggregate(all=Sum("gpu_milli"))["all"] or 0,
    }
    return (*found, *(Holder(label, milli) for label, milli in others.items() if milli > 0))
