"""Resources that projects hold and request, the quotas that bound them, samples of both, and what evictions lose."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import (
    Case,
    Count,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.utils import timezone

from clusters.flavours.registry import KEEPS_NON_PREEMPTIBLE
from clusters.inventory.models import NodePool
from clusters.watch.models import ObservedPod
from clusters.watch.selectors import ALL, CLUSTER, NODE_POOL, Metric, SampleOwner, Samples
from portal.kit.db.read_cache import cached_read
from scheduling.model.preemptibility import Preemptibility
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Queue
from scheduling.state.queue_usage import fits_quota
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.usage.rules import EvictableWork, FixedClaim
from tenants.usage.selectors import DEPARTMENT, PROJECT, Usage, UsageProvider
from workloads.dictionary.models import Category, Priority
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import (
    HELD_FOR_QUOTA,
    HOLDING,
    INTERVAL,
    LAST,
    LIVE,
    WAITING,
    CheckpointMedians,
    checkpoint_medians,
    cost_at_risk,
    last_checkpoint,
    lost_gpu_seconds,
    reports_checkpoints,
)

Key = tuple[int, str]
AMOUNTS: Final = {"gpu": Sum("gpu_milli"), "cpu": Sum("cpu_milli"), "memory": Sum("memory_bytes")}


def live(project_ids: Collection[int]) -> QuerySet[Workload]:
    """Workloads of these projects that are neither finished nor deleted."""
    return Workload.objects.filter(project__in=project_ids, deleted_at__isnull=True, phase__in=LIVE)


def usage(project_ids: Collection[int]) -> Mapping[Key, Usage]:
    """Per (project id, pool name): pods on nodes, the never-evicted part of them, and what live workloads ask for."""
    projects = _by_namespace(Project.objects.filter(pk__in=project_ids))
    pods = ObservedPod.objects.holding().filter(
        cluster__in={cluster for cluster, _namespace in projects},
        namespace__in={namespace for _cluster, namespace in projects},
    )
    found = _allocated(projects, pods)
    rows = live(project_ids).filter(desired_phase=DesiredPhase.RUNNING)
    for row in rows.values("project", "pool_name").annotate(**AMOUNTS).order_by():
        found[row["project"], row["pool_name"]] += Usage(requested=_amount(row))
    return found


def allocated(projects: QuerySet[Project]) -> Mapping[Key, Usage]:
    """`usage` without what is requested, of any number of projects: the queries do not list them. Two queries."""
    return _allocated(_by_namespace(projects), ObservedPod.objects.holding().filter(_of(projects)))


def pool_usage(clusters: Collection[UUID]) -> Mapping[tuple[UUID, str], Usage]:
    """Per (cluster id, pool name) the sum of `usage` over all projects of the cluster. Two queries."""
    pods = ObservedPod.objects.holding().filter(_of(Project.objects.all()), cluster__in=clusters)
    found: defaultdict[tuple[UUID, str], Usage] = defaultdict(Usage)
    for held in pods.values("cluster", "pool_name", "preemptible").annotate(**AMOUNTS).order_by():
        found[held["cluster"], held["pool_name"]] += _held(held)
    rows = Workload.objects.filter(deleted_at__isnull=True, phase__in=LIVE, desired_phase=DesiredPhase.RUNNING)
    rows = rows.filter(project__cluster__in=clusters)
    for row in rows.values("project__cluster", "pool_name").annotate(**AMOUNTS).order_by():
        found[row["project__cluster"], row["pool_name"]] += Usage(requested=_amount(row))
    return found


def _by_namespace(projects: QuerySet[Project]) -> Mapping[tuple[UUID, str], int]:
    """Project ids by cluster and namespace."""
    rows = projects.order_by().values_list("pk", "cluster", "namespace")
    return {(cluster, namespace): pk for pk, cluster, namespace in rows}


def _of(projects: QuerySet[Project]) -> Exists:
    """The condition that a pod is in a namespace of these projects."""
    return Exists(projects.order_by().filter(cluster=OuterRef("cluster"), namespace=OuterRef("namespace")))


def _allocated(projects: Mapping[tuple[UUID, str], int], pods: QuerySet[ObservedPod]) -> defaultdict[Key, Usage]:
    """What these pods hold, per queue. projects: ids by cluster and namespace."""
    found: defaultdict[Key, Usage] = defaultdict(Usage)
    rows = pods.values("cluster", "namespace", "pool_name", "preemptible").annotate(**AMOUNTS).order_by()
    for row in rows:
        project = projects.get((row["cluster"], row["namespace"]))
        if project is not None:
            found[project, row["pool_name"]] += _held(row)
    return found


def _held(row: Mapping[str, Any]) -> Usage:
    amount = _amount(row)
    return Usage(allocated=amount, non_preemptible=Resources() if row["preemptible"] else amount)


def is_over_quota(workload: Workload) -> bool | None:
    """Whether its project holds more GPUs than it deserves, in the pool where the workload runs. Two queries.

    None for work that is not preemptible or requests no GPU.
    """
    if workload.preemptibility == Preemptibility.NON_PREEMPTIBLE or not workload.gpu_milli:
        return None
    project, pool = workload.project, workload.pool_name
    pods = ObservedPod.objects.holding().filter(
        cluster=project.cluster_id, namespace=project.namespace, pool_name=pool, gpu_milli__gt=0
    )
    quota = ProjectQuota.objects.filter(project=project, node_pool__name=pool).first() or ProjectQuota()
    deserved = quota.deserved.gpu
    return deserved is not None and (pods.aggregate(held=Sum("gpu_milli"))["held"] or 0) > deserved


def _amount(row: Mapping[str, Any]) -> Resources:
    return Resources(row["gpu"] or 0, row["cpu"] or 0, row["memory"] or 0)


NEVER_EVICTED: Final = Q(
    preemptibility=Preemptibility.NON_PREEMPTIBLE, project__cluster__flavour__in=KEEPS_NON_PREEMPTIBLE
)


def evictable_work(project_ids: Collection[int], pool: str) -> list[EvictableWork]:
    """Running workloads of these projects in a pool that their schedulers may evict: lowest priority first, of equals
    the newest.
    """
    rows = live(project_ids).filter(pool_name=pool, running_pods__gt=0)
    rows = rows.exclude(NEVER_EVICTED).order_by("priority_value", "-started_at", "-created_at")
    columns = ("pk", "project__name", "name", "priority__name", "priority_value")
    return [
        EvictableWork(f"{project}/{name}, {priority} {value}", Resources(*held), str(pk))
        for pk, project, name, priority, value, *held in rows.values_list(
            *columns, "gpu_milli", "cpu_milli", "memory_bytes"
        )
    ]


def live_workloads(project_ids: Collection[int]) -> Mapping[int, int]:
    """How many live workloads each of these projects has."""
    counted = live(project_ids).values("project").annotate(number=Count("pk")).order_by()
    return {row["project"]: row["number"] for row in counted}


def priority_names() -> frozenset[str]:
    """Names that may be named: aliases too, retired ones not."""
    return frozenset(Priority.objects.filter(retired_at__isnull=True).values_list("name", flat=True))


def category_names() -> frozenset[str]:
    return frozenset(Category.objects.values_list("name", flat=True))


ELSEWHERE: Final = (Phase.CREATING, Phase.RESUMING)
HANDED_OVER: Final = (Q(applied_generation__gt=0) & ~Q(phase__in=ELSEWHERE) & ~Q(phase_reason=HELD_FOR_QUOTA)) | Q(
    running_pods__gt=0
)


def fixed_work() -> QuerySet[Workload]:
    """Non-preemptible workloads that run or want to."""
    rows = Workload.objects.filter(
        preemptibility=Preemptibility.NON_PREEMPTIBLE, phase__in=LIVE, deleted_at__isnull=True
    )
    return rows.filter(Q(desired_phase=DesiredPhase.RUNNING) | Q(running_pods__gt=0))


def fixed_claims(clusters: Collection[UUID]) -> Mapping[Key, FixedClaim]:
    """What they ask for, per (project id, pool name). One query."""
    rows = fixed_work().filter(project__cluster__in=clusters).order_by().values_list("project", "pool_name")
    found = rows.annotate(all=Sum("gpu_milli"), sent=Sum("gpu_milli", filter=HANDED_OVER, default=0))
    return {(project, pool): FixedClaim(*gpus) for project, pool, *gpus in found}


PROVIDER: Final = UsageProvider(
    usage=usage,
    allocated=allocated,
    pool_usage=pool_usage,
    live_workloads=live_workloads,
    priority_names=priority_names,
    category_names=category_names,
    evictable_work=evictable_work,
    fixed_claims=fixed_claims,
)


COUNTED: Final = (Metric.WORKLOADS, Metric.WAITING, Metric.WAITED)


def sample(clusters: Collection[UUID], /, *, at: datetime) -> Samples:
    """Workloads that have not ended, of clusters, pools, departments and projects. A fixed number of queries."""
    pools = {
        (cluster, name): SampleOwner(NODE_POOL, str(pk))
        for cluster, name, pk in NodePool.objects.filter(cluster__in=clusters).values_list("cluster", "name", "pk")
    }
    found: dict[UUID, defaultdict[SampleOwner, defaultdict[str, dict[str, float]]]]
    found = {each: defaultdict(lambda: defaultdict(dict)) for each in clusters}
    for cluster, owner in [*((cluster, owner) for (cluster, _name), owner in pools.items()), *_tenants(clusters)]:
        found[cluster][owner][ALL] = dict.fromkeys(COUNTED, 0)
    for row in _counted(clusters, at):
        cluster, name = row["project__cluster"], row["pool_name"]
        numbers = (row["number"], row["waiting"], row["before"] + (row["now"] or timedelta()).total_seconds())
        pool = pools.get((cluster, name))
        whole = [SampleOwner(CLUSTER, str(cluster)), *([pool] if pool else [])]
        split = [SampleOwner(PROJECT, str(row["project"])), SampleOwner(DEPARTMENT, str(row["project__department"]))]
        for owner, part in [(owner, ALL) for owner in (*whole, *split)] + [(owner, name) for owner in split if name]:
            figures = found[cluster][owner][part]
            for metric, number in zip(COUNTED, numbers, strict=True):
                figures[metric] = figures.get(metric, 0) + number
    return found


def _tenants(clusters: Collection[UUID]) -> Iterable[tuple[UUID, SampleOwner]]:
    """The clusters themselves, their departments and projects, each with its cluster."""
    yield from ((each, SampleOwner(CLUSTER, str(each))) for each in clusters)
    for kind, model in ((DEPARTMENT, Department), (PROJECT, Project)):
        for cluster, pk in model._default_manager.filter(cluster__in=clusters).values_list("cluster", "pk"):
            yield cluster, SampleOwner(kind, str(pk))


def _counted(clusters: Collection[UUID], at: datetime) -> Iterable[Mapping[str, Any]]:
    """Live rows are found by their phase, so that a million ended ones cost nothing."""
    waits = When(phase__in=WAITING, then=ExpressionWrapper(Value(at) - F("phase_at"), DurationField()))
    rows = Workload.objects.filter(deleted_at__isnull=True, phase__in=LIVE, project__cluster__in=clusters)
    counted = rows.values("project", "project__department", "project__cluster", "pool_name").annotate(
        number=Count("pk"),
        waiting=Count(Case(When(phase__in=WAITING, then=1))),
        before=Sum(Case(When(phase__in=WAITING, then=F("pending_seconds")), default=0)),
        now=Sum(Case(waits, output_field=DurationField())),
    )
    return counted.order_by()


LEAF, PARENT = "leaf", "parent"


Bounds = tuple[Limit, Limit]


@cached_read
def _bounds(project_id: int, department_id: int) -> Mapping[tuple[str, int], Bounds]:
    """Deserved and limit of the project and of its department, per pool id."""
    with connection.cursor() as cursor:
        cursor.execute(_BOUNDS, [project_id, department_id])
        return {(whose, pool): (Limit(*row[:3]), Limit(*row[3:])) for whose, pool, *row in cursor.fetchall()}


def bounds_of(projects: Collection[Project]) -> Mapping[int, Mapping[tuple[str, int], Bounds]]:
    """The same of many projects by id, in two queries."""
    leaves: defaultdict[int, dict[tuple[str, int], Bounds]] = defaultdict(dict)
    parents: defaultdict[int, dict[tuple[str, int], Bounds]] = defaultdict(dict)
    for own in ProjectQuota.objects.filter(project__in={project.pk for project in projects}):
        leaves[own.project_id][LEAF, own.node_pool_id] = own.deserved, own.limit
    for above in DepartmentQuota.objects.filter(department__in={project.department_id for project in projects}):
        parents[above.department_id][PARENT, above.node_pool_id] = above.deserved, above.limit
    return {project.pk: leaves[project.pk] | parents[project.department_id] for project in projects}


_COLUMNS: Final = "gpu_deserved, cpu_deserved, memory_deserved, gpu_limit, cpu_limit, memory_limit"


# Written out: the ORM takes four times as long to say the same.
_BOUNDS: Final = f"""
SELECT '{LEAF}', node_pool_id, {_COLUMNS} FROM {ProjectQuota._meta.db_table} WHERE project_id = %s
UNION ALL
SELECT '{PARENT}', node_pool_id, {_COLUMNS} FROM {DepartmentQuota._meta.db_table} WHERE department_id = %s
"""  # noqa: S608  # names of tables and columns, nothing that anybody sent


def _queue(name: str, pool: NodePool, bounds: Bounds | None) -> Queue:
    deserved, limit = bounds or (ProjectQuota().deserved, ProjectQuota().limit)
    return Queue(name, pool=pool.name, deserved=deserved, limit=limit)


def queue_paths(
    project: Project, pools: Sequence[NodePool], bounds: Mapping[tuple[str, int], Bounds] | None = None
) -> dict[int, tuple[Queue, Queue]]:
    """Per pool id the project's and the department's queue, under their people's names. No row: nothing deserved.

    bounds: of `bounds_of`; None: they are read.
    """
    leaf, parent = f"project {project.name}", f"department {project.department.name}"
    if bounds is None:
        bounds = _bounds(project.pk, project.department_id)
    return {
        pool.pk: (_queue(leaf, pool, bounds.get((LEAF, pool.pk))), _queue(parent, pool, bounds.get((PARENT, pool.pk))))
        for pool in pools
    }


def could_hold(
    workload: Workload,
    pool: NodePool,
    preemptibility: str = "",
    *,
    bounds: Mapping[tuple[str, int], Bounds] | None = None,
) -> bool:
    """Check whether the quotas of the pool could ever hold an accepted workload, or it with another preemptibility.

    bounds: as `queue_paths` takes them.
    """
    path = queue_paths(workload.project, [pool], bounds)[pool.pk]
    total = Resources(workload.gpu_milli, workload.cpu_milli, workload.memory_bytes)
    preemptible = (preemptibility or workload.preemptibility) != Preemptibility.NON_PREEMPTIBLE
    return fits_quota(path, {}, total, preemptible=preemptible) is None


def last_checkpoint_at(workload: Workload) -> datetime | None:
    """The last checkpoint of the run that goes on, by what the workload declares; None: no run, or none declared."""
    started = workload.started_at
    return started and last_checkpoint(workload.spec, started=started, now=timezone.now())


def unsaved_gpu_seconds(workload: Workload) -> int:
    """GPU-seconds of the run that goes on since its last checkpoint, or since its start; 0 while it holds no GPU."""
    if workload.started_at is None:
        return 0
    held, saved = workload.allocated_gpu_milli, last_checkpoint_at(workload)
    return lost_gpu_seconds(held, started=workload.started_at, checkpoint=saved, at=timezone.now())


MOST_SAMPLED: Final = 500
"""So many running workloads, in the order of their random ids, are asked for their checkpoints."""


def known_medians(now: datetime) -> CheckpointMedians:
    """The medians of a sample of the running workloads of all projects. One query."""
    running = Workload.objects.filter(phase__in=HOLDING, started_at__lte=now, deleted_at__isnull=True)
    sample = running.order_by("pk").values("pk")[:MOST_SAMPLED]
    rows = Workload.objects.filter(pk__in=sample, spec__annotations__has_any_keys=(LAST, INTERVAL)).order_by()
    return checkpoint_medians(
        (category, now - (last_checkpoint({"annotations": notes}, started=started, now=now) or started))
        for category, started, notes in rows.values_list("category", "started_at", "spec__annotations")
        if started and reports_checkpoints(notes, now=now)
    )


def with_costs(rows: Sequence[Workload]) -> Sequence[Workload]:
    """The same rows, those that hold GPUs and may be evicted with their `cost_at_risk`. At most one query."""
    now, medians = timezone.now(), None
    for row in rows:
        if row.phase in HOLDING and row.allocated_gpu_milli and row.started_at and not _is_kept(row):
            medians = medians or known_medians(now)
            notes = row.spec.get("annotations")
            row.cost_at_risk = cost_at_risk(
                row.allocated_gpu_milli, notes, row.category, started=row.started_at, now=now, medians=medians
            )
    return rows


def _is_kept(row: Workload) -> bool:
    """Whether its scheduler never evicts it."""
    fixed = row.preemptibility == Preemptibility.NON_PREEMPTIBLE
    return fixed and row.project.cluster.flavour in KEEPS_NON_PREEMPTIBLE


def gpu_seconds_at_risk(rows: QuerySet[Workload], *, evictable: bool = False) -> list[int]:
    """What an eviction now would lose of each that holds GPUs and may be evicted, in GPU-seconds. Two queries.

    evictable: all of them may be, even where their present scheduler never evicts them.
    """
    now = timezone.now()
    victims = rows if evictable else rows.exclude(NEVER_EVICTED)
    running = victims.filter(phase__in=HOLDING, started_at__isnull=False, allocated_gpu_milli__gt=0).order_by()
    found = list(running.values_list("allocated_gpu_milli", "spec__annotations", "category", "started_at"))
    medians = known_medians(now) if found else CheckpointMedians({})
    return [
        cost_at_risk(gpus, notes, category, started=started, now=now, medians=medians).gpu_seconds
        for gpus, notes, category, started in found
        if started
    ]
