"""The facts of a cluster that detectors judge, and findings as their reader may see them."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Count, Q, QuerySet, Sum

from clusters.connection.services.scheduler_config import guarantee_on
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState, Node
from clusters.watch.models import ObservedPod
from clusters.watch.selectors import allocated_by_node
from clusters.watch.services.usage import LATE, idle_since
from portal.kit.security.actors import Actor
from scheduling.model.preemptibility import Preemptibility
from scheduling.state.shortage import HeldGpus, NodeGpus
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, visible_among
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.selectors.runtime_rules import min_runtimes_of
from workloads.detectors.models import Finding
from workloads.detectors.rules import (
    IDLE_WHILE_OTHERS_WAIT,
    WAITED,
    EvictionFacts,
    FindingKind,
    JobFacts,
    PinnedQueue,
    PoolGpus,
)
from workloads.forecast.rules.messages import gpu_time_text
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.preemption.selectors import decisions_among, was_moved
from workloads.state.models import DesiredPhase, Workload
from workloads.state.rules import HOLDING, WAITING, cost_at_risk
from workloads.state.selectors.usage import known_medians
from workloads.state.selectors.workloads import OTHERS, workload_ids

TITLES: Final[Mapping[str, str]] = {
    FindingKind.SHORT_EVICTS_LONG: "Short job evicted a long one",
    FindingKind.INSIDE_MIN_RUNTIME: "Evicted inside its minimum runtime",
    FindingKind.PRIORITY_INVERSION: "Priority inversion",
    FindingKind.STARVATION: "Starvation",
    FindingKind.FRAGMENTATION: "Fragmentation",
    FindingKind.THRASHING: "Thrashing",
    FindingKind.QUOTA_ABOVE_PHYSICAL: "Quota above physical GPUs",
    FindingKind.IDLE_GPUS: "Idle GPUs",
    FindingKind.PINNED_QUOTA: "Non-preemptible work above its quota",
}
COSTS: Final[Mapping[str, str]] = {
    FindingKind.SHORT_EVICTS_LONG: "{} lost",
    FindingKind.INSIDE_MIN_RUNTIME: "{} lost",
    FindingKind.PRIORITY_INVERSION: "{} delayed",
    FindingKind.STARVATION: "{} delayed",
    FindingKind.FRAGMENTATION: "{} delayed",
    FindingKind.THRASHING: "{} lost",
    FindingKind.QUOTA_ABOVE_PHYSICAL: "{} promised that do not exist",
    FindingKind.IDLE_GPUS: "{} idle",
    FindingKind.PINNED_QUOTA: "{} above the quota",
}
"""What the GPU-hours of a finding are."""
_JOB: Final = (
    *("pk", "name", "project_id", "pool_name", "priority__name", "priority_value", "gpu_milli", "allocated_gpu_milli"),
    *("pod_count", "phase", "phase_reason", "phase_at", "created_at", "started_at", "completed_at"),
)
"""Columns of `_job`, as tuples: rows of models cost several times as much."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What detectors judge. `named`: the workloads of `nodes` by id. The number of queries does not grow with them."""

    waiting: Sequence[JobFacts]
    running: Sequence[JobFacts]
    evictions: Sequence[EvictionFacts]
    idle: Sequence[tuple[JobFacts, datetime]]
    pools: Sequence[PoolGpus]
    pinned: Sequence[PinnedQueue]
    nodes: Sequence[NodeGpus] = ()
    named: Mapping[str, JobFacts] = field(default_factory=dict)


def facts_of(cluster: Cluster, *, since: datetime, now: datetime) -> ClusterFacts:
    """As they are now; evictions since that moment."""
    live = Workload.objects.filter(project__cluster=cluster, deleted_at=None, desired_phase=DesiredPhase.RUNNING)
    waiting = _jobs(cluster, live.filter(phase__in=WAITING, phase_at__lte=now - WAITED))
    first = min((job.phase_at for job in waiting), default=None)
    holding = live.filter(phase__in=HOLDING)
    nodes, named = _blocked_nodes(cluster, waiting, now)
    return ClusterFacts(
        waiting=waiting,
        running=_jobs(cluster, holding.filter(started_at__gt=first), held=True) if first else [],
        evictions=list(_evictions(cluster, since)),
        idle=_idle(cluster, now),
        pools=_pools(cluster),
        pinned=_pinned(cluster, holding.filter(preemptibility=Preemptibility.NON_PREEMPTIBLE)),
        nodes=nodes,
        named=named,
    )


def _jobs(cluster: Cluster, rows: QuerySet[Workload], *, held: bool = False) -> list[JobFacts]:
    return [_job(cluster, values, held=held) for values in rows.order_by().values_list(*_JOB)]


def _job(cluster: Cluster, values: Sequence[Any], *, held: bool = False) -> JobFacts:
    key, name, project, pool, priority, value, requested, allocated, *rest = values
    queue = str(project) if flavour_for(cluster.flavour).traits.queues_by_pool else ""
    return JobFacts(str(key), name, project, queue, pool, priority, value, allocated if held else requested, *rest)


def _evictions(cluster: Cluster, since: datetime) -> Iterator[EvictionFacts]:
    rows = PreemptionRecord.objects.filter(cluster=cluster, at__gte=since).order_by("victim", "-at", "-id")
    records = list(rows.select_related("cluster"))
    if not records:
        return
    keys = {key for record in records for key in (record.victim_id, record.preemptor_id) if key}
    found = Workload.objects.filter(pk__in=keys).values_list(*_JOB, "project__department_id", "min_runtime_minutes")
    jobs = {values[0]: (_job(cluster, values[:-2]), *values[-2:]) for values in found}
    rules = min_runtimes_of(cluster)
    by_pods = flavour_for(cluster.flavour).traits.protects_minimum_runtime == "pods"
    for decision in decisions_among(records):
        first = decision[0]
        victim, department, carried = jobs[first.victim_id]
        preemptor = jobs.get(first.preemptor_id)
        guaranteed = rules.against(preemptor[1] if preemptor else department, victim.project, department)
        yield EvictionFacts(
            id=min(record.head for record in decision),
            at=min(record.at for record in decision),
            reclaim=first.cause == PreemptionCause.RECLAIM,
            moved=was_moved(decision),
            victim=victim,
            preemptor=preemptor[0] if preemptor else None,
            ran=timedelta(seconds=max(record.ran_seconds for record in decision)),
            gpu_milli=sum(record.gpu_milli for record in decision),
            lost_gpu_seconds=sum(record.lost_gpu_seconds for record in decision),
            minimum=timedelta(minutes=carried if by_pods else guaranteed),
        )


def _idle(cluster: Cluster, now: datetime) -> list[tuple[JobFacts, datetime]]:
    pods = ObservedPod.objects.filter(cluster=cluster, gone_at=None, ended_at=None, gpu_milli__gt=0)
    owners = pods.filter(gpu_use__idle_since__lte=now - IDLE_WHILE_OTHERS_WAIT).exclude(owner_id="")
    since = idle_since(set(owners.values_list("owner_id", flat=True)), now=now)
    rows = Workload.objects.filter(pk__in=workload_ids(since), deleted_at=None, phase__in=HOLDING)
    return [(job, since[job.id]) for job in _jobs(cluster, rows, held=True)] if since else []


def _pools(cluster: Cluster) -> list[PoolGpus]:
    def summed(rows: QuerySet[Any], pool: str, amount: str) -> dict[str, int]:
        return dict(rows.order_by().values_list(pool).annotate(Sum(amount)))

    physical = summed(Node.objects.filter(cluster=cluster).exclude(pool=None), "pool__name", "gpu_milli")
    inside = {"node_pool__cluster": cluster}
    projects = summed(ProjectQuota.objects.filter(**inside), "node_pool__name", "gpu_deserved")
    departments = summed(DepartmentQuota.objects.filter(**inside), "node_pool__name", "gpu_deserved")
    return [PoolGpus(name, gpus, projects.get(name, 0), departments.get(name, 0)) for name, gpus in physical.items()]


def _pinned(cluster: Cluster, holding: QuerySet[Workload]) -> list[PinnedQueue]:
    """Queues above their quota. None where the scheduler may evict non-preemptible work: it takes that back itself."""
    if guarantee_on(cluster, "non_preemptible_stays").enforced == "no":
        return []
    held = holding.order_by().values_list("project", "project__name", "pool_name").annotate(Sum("allocated_gpu_milli"))
    quotas = ProjectQuota.objects.filter(node_pool__cluster=cluster)
    deserved = {(project, pool): gpus for project, pool, gpus in quotas.values_list(*_QUOTA)}
    over = {
        (project, pool): name for project, name, pool, gpus in held if gpus > deserved.get((project, pool), 0) and pool
    }
    if not over:
        return []
    jobs: dict[tuple[int, str], list[JobFacts]] = defaultdict(list)
    for job in _jobs(cluster, holding.filter(project__in={project for project, _pool in over}), held=True):
        jobs[job.project, job.pool].append(job)
    cuts = _cuts({project for project, _pool in over}, deserved)
    return [
        PinnedQueue(
            name,
            key[1],
            deserved.get(key, 0),
            tuple(sorted(jobs[key], key=lambda job: job.began, reverse=True)),
            *cuts.get(key, (0, None)),
        )
        for key, name in over.items()
        if jobs[key]
    ]


_QUOTA: Final = ("project", "node_pool__name", "gpu_deserved")


def _cuts(
    projects: Collection[int], deserved: Mapping[tuple[int, str], int]
) -> Mapping[tuple[int, str], tuple[int, datetime]]:
    """By queue: the last higher quota, and when it was lowered."""
    rows = ProjectQuota.history.filter(project_id__in=projects).order_by("-history_date", "-history_id")
    later: dict[tuple[int, str], datetime] = {}
    found: dict[tuple[int, str], tuple[int, datetime]] = {}
    for project, pool, gpus, at in rows.values_list(*_QUOTA, "history_date"):
        key = (project, pool)
        if gpus > deserved.get(key, 0) and key in later:
            found.setdefault(key, (gpus, later[key]))
        later[key] = at
    return found


def _blocked_nodes(
    cluster: Cluster, waiting: Iterable[JobFacts], now: datetime
) -> tuple[list[NodeGpus], Mapping[str, JobFacts]]:
    """Nodes of the pools that have room for a waiting pod, but not on one node, with what is on them."""
    wanted = [job for job in waiting if job.pods == 1 and job.gpu_milli]
    if not wanted:
        return [], {}
    allocated = allocated_by_node([cluster])
    rows = Node.objects.filter(cluster=cluster, ready=True, unschedulable=False, taints=[], gpu_milli__gt=0)
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    free: dict[str, list[int]] = defaultdict(list)
    for name, pool, gpus in rows.exclude(pool=None).values_list("name", "pool__name", "gpu_milli"):
        used = allocated.get((cluster.pk, name))
        sizes[pool][name] = gpus
        free[pool].append(max(0, gpus - (used.gpu if used else 0)))
    pools = {
        job.pool for job in wanted if free[job.pool] and max(free[job.pool]) < job.gpu_milli <= sum(free[job.pool])
    }
    return _nodes(cluster, {pool: sizes[pool] for pool in pools}, now) if pools else ([], {})


def _nodes(
    cluster: Cluster, pools: Mapping[str, Mapping[str, int]], now: datetime
) -> tuple[list[NodeGpus], Mapping[str, JobFacts]]:
    names = [name for sizes in pools.values() for name in sizes]
    on_nodes = ObservedPod.objects.holding().filter(cluster=cluster, node_name__in=names, gpu_milli__gt=0)
    pods = list(on_nodes.values_list("node_name", "owner_id", "gpu_milli", "started_at"))
    rows = Workload.objects.filter(pk__in=workload_ids({owner for _node, owner, _gpus, _at in pods})).order_by()
    owners = {str(row[0]): row for row in rows.values_list(*_JOB, "preemptibility", "category", "spec__annotations")}
    medians = known_medians(now)
    held: dict[str, list[HeldGpus]] = defaultdict(list)
    for node, owner, gpus, started in pods:
        *_values, preemptibility, category, notes = owners.get(owner, ("", "", {}))
        movable = preemptibility == Preemptibility.PREEMPTIBLE and owners[owner][_JOB.index("pod_count")] == 1
        cost = cost_at_risk(gpus, notes, category, started=started or now, now=now, medians=medians)
        held[node].append(HeldGpus(owner, gpus, cost.gpu_seconds, movable))
    nodes = [
        NodeGpus(name, pool, gpus, tuple(held[name])) for pool, sizes in pools.items() for name, gpus in sizes.items()
    ]
    return nodes, {key: _job(cluster, values[:-3], held=True) for key, values in owners.items()}


PLACEHOLDER: Final = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True)
class SentencePart:
    """A piece of a sentence. `workload`: what it names, where the reader may see it."""

    text: str
    workload: str = ""


@dataclass(frozen=True, slots=True)
class ReadableFinding:
    """A finding with the names that its reader may see."""

    finding: Finding
    evidence: tuple[tuple[SentencePart, ...], ...]
    advice: tuple[SentencePart, ...]

    @property
    def title(self) -> str:
        return TITLES.get(self.finding.kind, self.finding.kind)

    @property
    def cost(self) -> str:
        return COSTS.get(self.finding.kind, "{}").format(gpu_time_text(self.finding.gpu_seconds))

    @property
    def sentences(self) -> list[str]:
        return [_text(parts) for parts in self.evidence]

    @property
    def advice_text(self) -> str:
        return _text(self.advice)


def visible_findings(actor: Actor) -> QuerySet[Finding]:
    """Of the actor's projects; those of whole clusters for who manages these."""
    access = access_for(actor)
    seen = Q(project__in=access.projects()) | Q(project=None, cluster__in=access.clusters(Permission.MANAGE_CLUSTERS))
    return Finding.objects.filter(seen).select_related("cluster", "project", "workload")


STALE: Final = timedelta(minutes=5)
"""A cluster that was not observed for longer is not judged: nothing is found and nothing ends."""
CHECK_LATE: Final = timedelta(minutes=30)
"""Twice the time between two checks."""
NAMED: Final = 3
OPEN: Final = "open"
ENDED: Final = "ended"
STATES: Final = (OPEN, ENDED)


def in_state(rows: QuerySet[Finding], state: str) -> QuerySet[Finding]:
    """Open or ended ones; all for the empty state."""
    return rows.filter(ended_at__isnull=state == OPEN) if state else rows


def open_findings(*, using: str) -> Mapping[tuple[str, str], int]:
    """How many are open, by name of the cluster and kind. One query."""
    rows = Finding.objects.using(using).filter(ended_at=None).order_by()
    counted = rows.values_list("cluster__name", "kind").annotate(Count("pk"))
    return {(cluster, kind): number for cluster, kind, number in counted}


@dataclass(frozen=True, slots=True)
class Checks:
    """How far clusters are checked: the oldest last check of the `number` that are checked in turn, and what is not."""

    checked_at: datetime | None
    number: int
    not_checked: tuple[str, ...]


def checks_for(actor: Actor, *, now: datetime, cluster: str = "") -> Checks:
    """Of the clusters whose findings the actor may see, or the one of this name. One query."""
    access = access_for(actor)
    seen = Q(pk__in=access.projects().order_by().values("cluster")) | Q(
        pk__in=access.clusters(Permission.MANAGE_CLUSTERS).order_by().values("pk")
    )
    rows = Cluster.objects.filter(seen, **({"name": cluster} if cluster else {})).order_by("name")
    late: list[str] = []
    idle: dict[str, list[str]] = defaultdict(list)
    times: list[datetime] = []
    for name, state, observed, checked, source, read in rows.values_list(*_CHECKED):
        if checked is None or checked < now - CHECK_LATE or state == ClusterState.PAUSED:
            since = f"not checked since {checked:%Y-%m-%d %H:%M} UTC" if checked else "not checked yet"
            late.append(f"{name}: {since}{_why_not(state, observed, now)}.")
            continue
        times.append(checked)
        if source is None:
            idle["no GPU metrics"].append(name)
        elif read is None or read < checked - LATE:
            idle["GPU use was not read in the 5 min before the last check"].append(name)
    rest = len(late) - NAMED
    more = [f"Not checked either: {rest} more {'cluster' if rest == 1 else 'clusters'}."] if rest > 0 else []
    blind = [f"Idle GPUs: not checked on {_few(names)}: {why}." for why, names in idle.items()]
    return Checks(min(times, default=None), len(times), (*late[:NAMED], *more, *blind))


_CHECKED: Final = (
    *("name", "state", "observed_at", "detector_run__checked_at"),
    *("metrics_source__cluster", "metrics_source__read_at"),
)


def _why_not(state: str, observed: datetime | None, now: datetime) -> str:
    if state == ClusterState.PAUSED:
        return ", paused"
    if observed is None:
        return ", never observed"
    return f", not observed since {observed:%Y-%m-%d %H:%M} UTC" if observed < now - STALE else ""


def _few(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def readable_findings(rows: Sequence[Finding], actor: Actor) -> list[ReadableFinding]:
    """These as the actor may read them. One query."""
    return with_names(rows, visible_among(actor, {who["project"] for row in rows for who in row.named}))


def with_names(rows: Sequence[Finding], projects: Collection[int]) -> list[ReadableFinding]:
    """With the names of the workloads of these projects; any other is "a workload of another project"."""
    return [
        ReadableFinding(
            row,
            tuple(tuple(_parts(text, row.named, projects)) for text in row.evidence),
            tuple(_parts(row.advice, row.named, projects)),
        )
        for row in rows
    ]


def _parts(text: str, named: Sequence[Mapping[str, Any]], projects: Collection[int]) -> Iterator[SentencePart]:
    for number, piece in enumerate(PLACEHOLDER.split(text)):
        if number % 2 == 0:
            yield SentencePart(piece)
        elif (who := named[int(piece)])["project"] in projects:
            yield SentencePart(who["name"], who["id"])
        else:
            yield SentencePart(f"{'a' if number > 1 or text[:1] != '{' else 'A'} workload of {OTHERS}")


def _text(parts: Iterable[SentencePart]) -> str:
    return "".join(part.text for part in parts)
