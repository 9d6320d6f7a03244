"""Departments, projects and quotas as the namespaces, queues and caps that a cluster should hold."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from django.db.models import Count, QuerySet, Sum

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import NOTHING, DesiredState, PoolSpec, ProjectSpec, QueueSpec, SchedulerFlavour, Traits
from clusters.sync.selectors import ALL_OWNERS, pool_spec
from scheduling.model.resources import MILLI, Limit
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, PriorityCap, ProjectQuota
from tenants.quotas.selectors.runtime_rules import MinRuntimes, min_runtimes_of

DESERVED: Final = ("gpu_deserved", "cpu_deserved", "memory_deserved")
LIMITS: Final = ("gpu_limit", "cpu_limit", "memory_limit")
WEIGHTS: Final = ("over_quota_weight", "cpu_weight", "memory_weight")


class QuotaRow(NamedTuple):
    """What a quota's row says to a queue."""

    deserved: Limit
    limit: Limit
    over_quota_weight: float
    cpu_weight: float | None
    memory_weight: float | None
    rank: str


Quotas = Mapping[tuple[int, int], QuotaRow]
"""Keys: (owner id, node pool id). Without a row the defaults hold: nothing deserved, no limit."""


def quotas_in(rows: QuerySet[ProjectQuota] | QuerySet[DepartmentQuota]) -> Quotas:
    """What the rows say, by (owner id, pool id). Projects times pools of them: none becomes a model."""
    owner = "project_id" if rows.model is ProjectQuota else "department_id"
    found = rows.order_by().values_list(owner, "node_pool_id", *DESERVED, *LIMITS, *WEIGHTS, "rank")
    return {
        (of, pool): QuotaRow(Limit(*amounts[:3]), Limit(*amounts[3:]), gpu, cpu, memory, rank)
        for of, pool, *amounts, gpu, cpu, memory, rank in found
    }


class KeyedPool(NamedTuple):
    """A node pool's key, and the pool as flavours see it."""

    pk: int
    spec: PoolSpec


class ProjectRow(NamedTuple):
    """A project as its queues need it: of thousands at once, none becomes a model."""

    pk: int
    name: str
    namespace: str
    generation: int
    department_id: int
    pod_security: str

    @property
    def owner(self) -> str:
        """Value of the owner label on its objects."""
        return Project.owner_of(self.pk)


def projects_in(rows: QuerySet[Project]) -> list[ProjectRow]:
    read = ("pk", "name", "namespace", "generation", "department_id", "cluster__pod_security")
    return [ProjectRow(*row) for row in rows.values_list(*read)]


@lru_cache(maxsize=1)
def no_quota() -> QuotaRow:
    """What an owner without a row has: the defaults of the columns."""
    row = ProjectQuota()
    return QuotaRow(row.deserved, row.limit, row.over_quota_weight, None, None, row.rank)


def department_queues(
    department: Department,
    pools: Sequence[KeyedPool],
    quotas: Quotas,
    flavour: SchedulerFlavour,
    promised: Mapping[tuple[int, int], Limit],
    rules: MinRuntimes,
) -> tuple[QueueSpec, ...]:
    """A department's parent queues, one per pool. `promised`: by (department id, pool id), where the flavour asks."""
    least = rules.of_department(department.pk)
    return tuple(
        replace(
            _queue_spec(
                department,
                pool.spec,
                quotas.get((department.pk, pool.pk)) or no_quota(),
                name=flavour.queue_name(department.owner, pool.spec.name),
                parent=None,
                least=least,
            ),
            promised=promised.get((department.pk, pool.pk), NOTHING),
        )
        for pool in pools
    )


def project_queues(
    project: ProjectRow, pools: Sequence[KeyedPool], quotas: Quotas, flavour: SchedulerFlavour, rules: MinRuntimes
) -> tuple[QueueSpec, ...]:
    """A project's leaf queues, one per pool, each below its department's."""
    least = rules.of_project(project.pk, project.department_id)
    owner, above = project.owner, Department.owner_of(project.department_id)
    return tuple(
        _queue_spec(
            project,
            pool.spec,
            quotas.get((project.pk, pool.pk)) or no_quota(),
            name=flavour.queue_name(owner, pool.spec.name),
            parent=flavour.queue_name(above, pool.spec.name),
            least=least,
        )
        for pool in pools
    )


def project_spec(
    project: ProjectRow,
    pools: Sequence[KeyedPool],
    quotas: Quotas,
    flavour: SchedulerFlavour,
    caps: Mapping[str, int],
    rules: MinRuntimes,
) -> ProjectSpec:
    """A project's namespace, queues and GPU caps (milli) per priority."""
    return ProjectSpec(
        name=project.name,
        namespace=project.namespace,
        queues=project_queues(project, pools, quotas, flavour, rules),
        priority_caps=caps,
        owner=project.owner,
        generation=project.generation,
        pod_security=project.pod_security,
    )


def _queue_spec(
    owner: Department | ProjectRow, pool: PoolSpec, quota: QuotaRow, *, name: str, parent: str | None, least: int | None
) -> QueueSpec:
    return QueueSpec(
        name=name,
        display_name=f"{owner.name} in {pool.name}",
        parent=parent,
        pool=pool,
        deserved=quota.deserved,
        limit=quota.limit,
        over_quota_weight=quota.over_quota_weight,
        cpu_weight=quota.cpu_weight,
        memory_weight=quota.memory_weight,
        rank=quota.rank,
        owner=owner.owner,
        generation=owner.generation,
        min_runtime_minutes=least,
    )


def queue_weights(spec: QueueSpec | QuotaRow, traits: Traits) -> tuple[int, int | None, int | None]:
    """Of GPUs, CPU and memory in thousandths, as many as the scheduler has; None is that of GPUs."""
    gpu = max(round(spec.over_quota_weight), 1) if traits.weights == "whole" else spec.over_quota_weight
    own = (spec.cpu_weight, spec.memory_weight) if traits.weights == "resources" else (None, None)
    cpu, memory = (None if weight is None else round(weight * MILLI) for weight in own)
    return round(gpu * MILLI), cpu, memory


Row = TypeVar("Row", Department, Project)


def desired_state(cluster: Cluster, *, owner: str = ALL_OWNERS) -> DesiredState:
    """Departments and projects of the cluster, with a queue in each of its node pools, in a fixed number of queries.

    With an owner (`project.7`, `department.2`): that one alone.
    """
    flavour = flavour_for(cluster.flavour)
    pools = [KeyedPool(pool.pk, pool_spec(pool)) for pool in cluster.node_pools.all()]
    departments = _only(Department.objects.filter(cluster=cluster), owner, "department.")
    projects = _only(Project.objects.filter(cluster=cluster), owner, "project.")
    rows = projects_in(projects)
    few = [row.pk for row in rows] if owner else projects
    parents = quotas_in(DepartmentQuota.objects.filter(department__in=departments))
    leaves = quotas_in(ProjectQuota.objects.filter(project__in=few))
    caps = _caps(few)
    rules = min_runtimes_of(cluster) if flavour.traits.protects_minimum_runtime == "queues" else MinRuntimes()
    promised = _deserved_by_projects(departments) if flavour.traits.sums_projects else {}
    return DesiredState(
        departments=tuple(
            queue
            for department in departments
            for queue in department_queues(department, pools, parents, flavour, promised, rules)
        ),
        projects=tuple(
            project_spec(project, pools, leaves, flavour, caps.get(project.pk, {}), rules) for project in rows
        ),
    )


def _deserved_by_projects(departments: QuerySet[Department]) -> dict[tuple[int, int], Limit]:
    """What the projects of each (department, pool) deserve together; unlimited as soon as one of them is."""
    rows = ProjectQuota.objects.filter(project__department__in=departments).order_by()
    counted = [each for name in DESERVED for each in (Sum(name), Count(name))]
    found = rows.values_list("project__department_id", "node_pool_id").annotate(Count("pk"), *counted)
    return {(department, pool): _together(rows, *sums) for department, pool, rows, *sums in found}


def _together(rows: int, *sums: int) -> Limit:
    """`sums`: of each resource the sum, and of how many rows; a row that leaves it out is unlimited in it."""
    gpu, cpu, memory = (amount if known == rows else None for amount, known in zip(sums[::2], sums[1::2], strict=True))
    return Limit(gpu, cpu, memory)


def _caps(projects: QuerySet[Project] | Sequence[int]) -> Mapping[int, Mapping[str, int]]:
    """GPU caps by priority, of each project that has some."""
    found: dict[int, dict[str, int]] = {}
    rows = PriorityCap.objects.filter(project__in=projects).order_by()
    for project, priority, gpus in rows.values_list("project_id", "priority", "gpu_limit"):
        found.setdefault(project, {})[priority] = gpus
    return found


def _only(rows: QuerySet[Row], owner: str, prefix: str) -> QuerySet[Row]:
    """The rows an owner label names; all of them for everybody."""
    if owner == ALL_OWNERS:
        return rows
    number = owner.removeprefix(prefix)
    return rows.filter(pk=number) if owner.startswith(prefix) and number.isdecimal() else rows.none()
