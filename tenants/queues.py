"""Departments, projects and their quotas as the queues of a cluster: one per owner and node pool."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from django.db.models import QuerySet

from clusters.ports import NOTHING, PoolSpec, ProjectSpec, QueueSpec, SchedulerFlavour
from scheduling.resources import Limit
from tenants.min_runtimes import MinRuntimes
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota

DESERVED: Final = ("gpu_deserved", "cpu_deserved", "memory_deserved")
LIMITS: Final = ("gpu_limit", "cpu_limit", "memory_limit")


class QuotaRow(NamedTuple):
    """What a quota's row says to a queue."""

    deserved: Limit
    limit: Limit
    over_quota_weight: int
    rank: str


Quotas = Mapping[tuple[int, int], QuotaRow]
"""Keys: (owner id, node pool id). Without a row the defaults hold: nothing deserved, no limit."""


def quotas_in(rows: QuerySet[ProjectQuota] | QuerySet[DepartmentQuota]) -> Quotas:
    """What the rows say, by (owner id, pool id). Projects times pools of them: none becomes a model."""
    owner = "project_id" if rows.model is ProjectQuota else "department_id"
    found = rows.order_by().values_list(owner, "node_pool_id", *DESERVED, *LIMITS, "over_quota_weight", "rank")
    return {
        (of, pool): QuotaRow(Limit(*amounts[:3]), Limit(*amounts[3:]), weight, rank)
        for of, pool, *amounts, weight, rank in found
    }


class Pool(NamedTuple):
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
    """What the rows say."""
    read = ("pk", "name", "namespace", "generation", "department_id", "cluster__pod_security")
    return [ProjectRow(*row) for row in rows.values_list(*read)]


@lru_cache(maxsize=1)
def _nothing() -> QuotaRow:
    row = ProjectQuota()
    return QuotaRow(row.deserved, row.limit, row.over_quota_weight, row.rank)


def department_queues(
    department: Department,
    pools: Sequence[Pool],
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
                quotas.get((department.pk, pool.pk)) or _nothing(),
                name=flavour.queue_name(department.owner, pool.spec.name),
                parent=None,
                least=least,
            ),
            promised=promised.get((department.pk, pool.pk), NOTHING),
        )
        for pool in pools
    )


def project_queues(
    project: ProjectRow, pools: Sequence[Pool], quotas: Quotas, flavour: SchedulerFlavour, rules: MinRuntimes
) -> tuple[QueueSpec, ...]:
    """A project's leaf queues, one per pool, each below its department's."""
    least = rules.of_project(project.pk, project.department_id)
    owner, above = project.owner, Department.owner_of(project.department_id)
    return tuple(
        _queue_spec(
            project,
            pool.spec,
            quotas.get((project.pk, pool.pk)) or _nothing(),
            name=flavour.queue_name(owner, pool.spec.name),
            parent=flavour.queue_name(above, pool.spec.name),
            least=least,
        )
        for pool in pools
    )


def project_spec(
    project: ProjectRow,
    pools: Sequence[Pool],
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
        rank=quota.rank,
        owner=owner.owner,
        generation=owner.generation,
        min_runtime_minutes=least,
    )
