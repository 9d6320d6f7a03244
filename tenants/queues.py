"""Departments, projects and their quotas as the queues of a cluster: one per owner and node pool."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from clusters.models import NodePool
from clusters.ports import NOTHING, ProjectSpec, QueueSpec, SchedulerFlavour
from clusters.sources import pool_spec
from scheduling.resources import Limit
from tenants.min_runtimes import MinRuntimes
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota, Quota

Quotas = Mapping[tuple[int, int], Quota]
"""Keys: (owner id, node pool id). Without a row the defaults hold: nothing deserved, no limit."""


def by_owner_and_pool(quotas: Iterable[ProjectQuota | DepartmentQuota]) -> Quotas:
    """Index rows by (owner id, pool id)."""
    return {(_owner_id(quota), quota.node_pool_id): quota for quota in quotas}


def _owner_id(quota: ProjectQuota | DepartmentQuota) -> int:
    return quota.project_id if isinstance(quota, ProjectQuota) else quota.department_id


def department_queues(
    department: Department,
    pools: Sequence[NodePool],
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
                pool,
                quotas.get((department.pk, pool.pk)) or DepartmentQuota(department=department, node_pool=pool),
                name=flavour.queue_name(department.owner, pool.name),
                parent=None,
                least=least,
            ),
            promised=promised.get((department.pk, pool.pk), NOTHING),
        )
        for pool in pools
    )


def project_queues(
    project: Project, pools: Sequence[NodePool], quotas: Quotas, flavour: SchedulerFlavour, rules: MinRuntimes
) -> tuple[QueueSpec, ...]:
    """A project's leaf queues, one per pool, each below its department's."""
    least = rules.of_project(project)
    return tuple(
        _queue_spec(
            project,
            pool,
            quotas.get((project.pk, pool.pk)) or ProjectQuota(project=project, node_pool=pool),
            name=flavour.queue_name(project.owner, pool.name),
            parent=flavour.queue_name(project.department.owner, pool.name),
            least=least,
        )
        for pool in pools
    )


def project_spec(
    project: Project,
    pools: Sequence[NodePool],
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
        pod_security=project.cluster.pod_security,
    )


def _queue_spec(
    owner: Department | Project, pool: NodePool, quota: Quota, *, name: str, parent: str | None, least: int | None
) -> QueueSpec:
    return QueueSpec(
        name=name,
        display_name=f"{owner.name} in {pool.name}",
        parent=parent,
        pool=pool_spec(pool),
        deserved=quota.deserved,
        limit=quota.limit,
        over_quota_weight=quota.over_quota_weight,
        rank=quota.rank,
        owner=owner.owner,
        generation=owner.generation,
        min_runtime_minutes=least,
    )
