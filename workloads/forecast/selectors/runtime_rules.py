"""Minimum runtimes and run limits: what protects a run, what ends it, and which workloads Rung defers for it.

So is non-preemptible work beyond its pool's deserved quota where the cluster does not count that (`quota_hold`).

Only what is not in its cluster can be held; the model forecasts on the last snapshot whom it would evict. Runs that
began after a preemptor was deferred do not defer it any longer: else newcomers would for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import ClassVar, Final
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from clusters.connection.services.scheduler_config import eviction_exemptions
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.flavour import PodStatusReason
from clusters.watch.services import usage
from portal.kit.pages.formatting import duration_text
from scheduling.forecast.cycle import FLAVOURS, preview
from scheduling.model.decisions import Outcome
from scheduling.model.preemptibility import MIN_RUNTIME_CAUSES, Preemptibility
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.min_runtime import any_min_runtime, protected_until
from scheduling.state.workspace import OutOfTime
from tenants.organisation.models import Project
from tenants.quotas.models import IdleLimit, RuntimeLimit, TimeLimit
from tenants.quotas.selectors.runtime_rules import (
    Allowance,
    MinRuntimeGuarantee,
    allowances,
    guarantee_of,
    min_runtimes_of,
)
from workloads.forecast.selectors.observed_groups import workload_of
from workloads.forecast.selectors.pod_groups import groups_of, pod_group_request
from workloads.forecast.selectors.pool_selection import quota_hold_of
from workloads.forecast.selectors.snapshot import snapshot_of
from workloads.forecast.selectors.time_budget import time_budget
from workloads.state.models import Phase, Workload
from workloads.state.rules import HELD, HELD_BACK, HOLDING
from workloads.state.selectors.workloads import workload_ids

STALE: Final = timedelta(seconds=120)
SOONEST: Final = timedelta(seconds=5)
QUOTA_PAUSE: Final = timedelta(seconds=30)
"""How long what waits for its pool's deserved quota is left alone at most."""
SHARE: Final = 4
"""Checks of deferred workloads of a cluster take at most this fraction of a worker's time."""


@dataclass(frozen=True, slots=True)
class Deferral:
    """The latest end of the deferral, and how many workloads inside their minimum runtime cause it."""

    until: datetime
    count: int
    reason: ClassVar[str] = HELD_BACK

    def __str__(self) -> str:
        """As a sentence about the deferred workload."""
        victims = "1 workload inside its" if self.count == 1 else f"{self.count} workloads inside their"
        until = f"{self.until:%Y-%m-%d %H:%M} UTC at the latest"
        return f"Rung defers it until {until}: it would evict {victims} minimum runtime"

    def numbers(self) -> dict[str, str]:
        """The same for programs: `until` as a moment, `workloads` as a count."""
        return {"until": f"{self.until:%Y-%m-%dT%H:%M:%SZ}", "workloads": str(self.count)}


def lacks_min_runtime(cluster: Cluster) -> bool:
    """Whether its scheduler, as configured, can evict workloads inside their minimum runtime."""
    asks_queues = flavour_for(cluster.flavour).traits.protects_minimum_runtime == "queues"
    return not asks_queues and bool(MIN_RUNTIME_CAUSES - eviction_exemptions(cluster).inside_min_runtime)


def guards_min_runtime(cluster: Cluster) -> bool:
    """Whether Rung defers preemptors of such workloads: if the scheduler lacks that and an admin enabled it."""
    return cluster.defer_preemptors and lacks_min_runtime(cluster)


def keeps_min_runtime(cluster: Cluster) -> bool:
    """Whether workloads inside their minimum runtime are protected there, by the scheduler or by deferral."""
    return cluster.defer_preemptors or not lacks_min_runtime(cluster)


@dataclass(frozen=True, slots=True)
class DeferredApply:
    """What is said of a workload that is held back, and after which time it is looked at again."""

    reading: PodStatusReason
    pause: timedelta


def deferral_of(workload: Workload) -> DeferredApply | None:
    """Why it is deferred. None: it is not, was handed over before, or its victims are unknown."""
    cluster = workload.project.cluster
    if not _is_outside(workload):
        return None
    pool = NodePool.objects.filter(cluster=cluster, name=workload.pool_name).first()
    if pool and (over := quota_hold_of(workload, pool)):
        return DeferredApply(
            PodStatusReason(over.reason, f"{over}.", over.numbers()), min(SOONEST * (1 + over.count), QUOTA_PAUSE)
        )
    if not guards_min_runtime(cluster) or cluster.flavour not in FLAVOURS:
        return None
    if cluster.observed_at is None or timezone.now() - cluster.observed_at > STALE:
        return None
    began, since = monotonic(), _since(workload)
    if pool is None or not _inside_min_runtime(workload.project, since):
        return None
    snapshot, _at = snapshot_of(cluster)
    own = str(workload.pk)
    others = replace(snapshot, groups=tuple(each for each in snapshot.groups if workload_of(each.name) != own))
    try:
        with time_budget():
            outcome = preview(
                others, *groups_of(pod_group_request(workload, pool), cluster.flavour), flavour=cluster.flavour
            )
    except OutOfTime:
        return None
    found = expected_deferral(outcome, workload.project, since=since)
    if found is None:
        return None
    pause = _pause(found, cluster, took=monotonic() - began)
    return DeferredApply(PodStatusReason(HELD_BACK, f"{found}.", found.numbers()), pause)


def _pause(hold: Deferral, cluster: Cluster, *, took: float) -> timedelta:
    """Soon, since room may come free; the later the more are held back, but at the end of its time at the latest."""
    held = Workload.objects.filter(project__cluster=cluster, phase=Phase.PENDING, phase_reason=HELD_BACK).count()
    pause = max(SOONEST, timedelta(seconds=SHARE * took * held))
    return min(pause, max(hold.until - timezone.now(), timedelta(seconds=1)))


def expected_deferral(outcome: Outcome, project: Project, *, since: datetime | None = None) -> Deferral | None:
    """The deferral for evicting these: those inside their minimum runtime that started before `since`."""
    if not outcome.victims or not guards_min_runtime(project.cluster):
        return None
    protected = _inside_min_runtime(project, since)
    ids = workload_ids({workload_of(each.victim.name) for each in outcome.victims})
    ends = [protected[each] for each in ids if each in protected]
    return Deferral(max(ends), len(ends)) if ends else None


def _inside_min_runtime(project: Project, since: datetime | None) -> Mapping[UUID, datetime]:
    """Runs inside their time that began before `since`, each with the moment from which the project may take it."""
    now, cluster = timezone.now(), project.cluster
    asks_pods, rules = flavour_for(cluster.flavour).traits.protects_minimum_runtime == "pods", min_runtimes_of(cluster)
    if not asks_pods and not rules:
        return {}
    rows = Workload.objects.filter(
        project__cluster=cluster,
        phase__in=HOLDING,
        preemptibility=Preemptibility.PREEMPTIBLE,
        started_at__isnull=False,
    )
    protected = {}
    wanted = ("pk", "started_at", "min_runtime_minutes", "project", "project__department")
    for pk, started, carried, owner, department in rows.values_list(*wanted):
        minutes = carried if asks_pods else rules.against(project.department_id, owner, department)
        end = started + timedelta(minutes=minutes)
        if minutes and end > now and (since is None or started <= since):
            protected[pk] = end
    return protected


def _is_outside(workload: Workload) -> bool:
    """Its cluster does not have it, or has it suspended."""
    if workload.phase == Phase.PENDING:
        return is_deferred(workload) or workload.applied_generation == 0
    return workload.phase in {Phase.CREATING, Phase.RESUMING}


def _since(workload: Workload) -> datetime | None:
    """When it was first held back this time; None: it is not yet."""
    held = workload.timeline.filter(reason=HELD_BACK).order_by("-at").first() if is_deferred(workload) else None
    return held.at if held else None


def is_deferred(workload: Workload) -> bool:
    """Does Rung hold it back now?"""
    return workload.phase == Phase.PENDING and workload.phase_reason in HELD


@dataclass(frozen=True, slots=True)
class RunProtection:
    """Until when a run is left alone inside its department and by other departments, and by whose rule.

    core: how many of its pods that holds for; None: for all. by_rung: its scheduler knows of no such time, so it holds
    as far as Rung can hold back who would evict it.
    """

    inside: datetime
    across: datetime
    rule_of: str
    core: int | None
    by_rung: bool = False

    @property
    def differs(self) -> bool:
        """Other departments may take it at another moment than its own."""
        return self.inside != self.across


def protection_of(workload: Workload) -> RunProtection | None:
    """What protects this run now. None: nothing does, or nothing has to, since it is not preemptible."""
    cluster = workload.project.cluster
    if workload.phase not in HOLDING or workload.started_at is None or not keeps_min_runtime(cluster):
        return None
    if workload.preemptibility != Preemptibility.PREEMPTIBLE:
        return None
    found = _guarantee(workload)
    if found is None or timezone.now() >= workload.started_at + max(found.inside, found.across):
        return None
    minimum = workload.spec.get("min_member") or 1
    core = minimum if minimum < workload.pod_count and _queues_say(workload.project) else None
    return RunProtection(
        inside=workload.started_at + found.inside,
        across=workload.started_at + found.across,
        rule_of=found.rule_of,
        core=core,
        by_rung=guards_min_runtime(cluster),
    )


def protection_sentences(project: Project, *, preemptibility: str, pods: int, minimum: int) -> Sequence[str]:
    """What is to be known of it before something preemptible is submitted."""
    found = guarantee_of(project) if preemptibility == Preemptibility.PREEMPTIBLE else None
    if found is None:
        return ()
    if not keeps_min_runtime(project.cluster):
        return (f"The minimum runtime of {found.rule_of} is not enforced on {project.cluster.name}.",)
    subject = f"{minimum} of its pods are" if minimum < pods and _queues_say(project) else "it is"
    limited = ", if Rung can defer the workloads that would evict it" if guards_min_runtime(project.cluster) else ""
    return (f"After the start {subject} protected from eviction {found}{limited}: minimum runtime of {found.rule_of}.",)


def min_runtime_sentences(snapshot: Snapshot, candidates: Sequence[PodGroup], flavour: str) -> Sequence[str]:
    """For a waiting workload: its victims if no minimum runtime applied, and from when on it may evict them.

    Nothing where the time budget is over before that is known.
    """
    if not any_min_runtime(snapshot):
        return ()
    try:
        found = preview(snapshot.at(None), *candidates, flavour=flavour).victims
    except OutOfTime:
        return ()
    if not found:
        return ()
    last = max(protected_until(snapshot, each, candidates[0]) for each in found)
    number = len({each.victim.name for each in found})
    victims = f"{number} workload{'' if number == 1 else 's'}"
    when = datetime.fromtimestamp(last / 1_000_000, tz=UTC)
    return (f"It may evict {victims} when their minimum runtime ends, at {when:%Y-%m-%d %H:%M} UTC.",)


def _queues_say(project: Project) -> bool:
    """Its scheduler asks the queue, and then only about as many pods as the group needs."""
    return flavour_for(project.cluster.flavour).traits.protects_minimum_runtime == "queues"


def _pods_say(project: Project) -> bool:
    """Its pods carry it, each for itself, as they were made."""
    return flavour_for(project.cluster.flavour).traits.protects_minimum_runtime == "pods"


def _guarantee(workload: Workload) -> MinRuntimeGuarantee | None:
    """What holds for this run: the rules as they are, or what its pods were made with."""
    found = guarantee_of(workload.project)
    if not _pods_say(workload.project):
        return found
    time = timedelta(minutes=workload.min_runtime_minutes)
    if found and found.inside == time:
        return found
    return MinRuntimeGuarantee(time, time, f"project {workload.project.name} when its pods were made")


Starts = Callable[[Sequence[Workload], datetime], Mapping[str, datetime]]
"""Workloads and the moment, to when the clock of each started, by id; no key: it does not run."""


def _runs_began(workloads: Sequence[Workload], _now: datetime) -> Mapping[str, datetime]:
    return {str(each.pk): each.started_at or each.phase_at for each in workloads}


def _began_by(moment: datetime) -> Q:
    return Q(started_at__lte=moment)


def _idle_by(moment: datetime) -> Q:
    return _began_by(moment) & Q(pk__in=workload_ids(usage.idle_owners(moment)))


def _fell_idle(workloads: Sequence[Workload], now: datetime) -> Mapping[str, datetime]:
    return usage.idle_since([str(each.pk) for each in workloads], now=now)


@dataclass(frozen=True, slots=True)
class LimitClock:
    """One kind of limit: its rules, when its clock starts, and how users are notified."""

    kind: type[RuntimeLimit]
    starts: Starts
    began_by: Callable[[datetime], Q]
    """Narrows running workloads to those whose clock may have started by that moment."""
    notice_code: str
    reached_code: str
    rule: str
    """Of whose rule and how long."""


TIME: Final = LimitClock(
    TimeLimit, _runs_began, _began_by, "TimeLimitNear", "TimeLimitReached", "workloads of {0} run at most {1}"
)


IDLE: Final = LimitClock(
    IdleLimit,
    _fell_idle,
    _idle_by,
    "IdleLimitNear",
    "IdleLimitReached",
    "the GPUs of workloads of {0} may be idle for at most {1}",
)


CLOCKS: Final = (TIME, IDLE)


def limit_sentences(project: Project, category: str) -> Sequence[str]:
    """What a run of this category is to know beforehand; nothing where no rule bounds it."""
    found = ((clock, allowances([project], clock.kind).get((project.pk, category))) for clock in CLOCKS)
    return [_beforehand(clock, limit, project) for clock, limit in found if limit]


def _beforehand(clock: LimitClock, allowance: Allowance, project: Project) -> str:
    rule = rule_text(clock, allowance)
    if clock is IDLE and not usage.has_recent_readings(project.cluster, now=timezone.now()):
        return f"A rule says that {rule}, but it has no effect: this cluster has no GPU metrics."
    return f"It will be stopped: {rule}. Notice: {duration_text(allowance.notice)}."


def rule_text(clock: LimitClock, allowance: Allowance) -> str:
    return clock.rule.format(allowance.rule_of, duration_text(allowance.lasts))
