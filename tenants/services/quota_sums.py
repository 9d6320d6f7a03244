"""What quotas add up to: projects against their department, everything against the GPUs that are there."""

from collections.abc import Iterator

from django.db.models import QuerySet, Sum

from clusters.models import Node, NodePool
from portal.core.errors import Problem
from scheduling.resources import Limit, Resources
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota
from tenants.quota_values import DIMENSIONS, sum_beyond
from tenants.usage import Usage, usage_by_queue


def deserved_sum(quotas: QuerySet[ProjectQuota] | QuerySet[DepartmentQuota]) -> Resources:
    """All deserved amounts of these rows together; what is not counted adds nothing."""
    sums = quotas.aggregate(**{dimension: Sum(f"{dimension}_deserved", default=0) for dimension in DIMENSIONS})
    return Resources(**sums)


def deserved_by_projects(department: Department, node_pool: NodePool, *, but: Project | None = None) -> Resources:
    """What the department's projects deserve in a pool, one of them left out."""
    rows = ProjectQuota.objects.filter(project__department=department, node_pool=node_pool)
    return deserved_sum(rows.exclude(project=but) if but else rows)


def amounts(deserved: Limit) -> Resources:
    """Deserved as plain amounts; what is not counted is zero."""
    return Resources(deserved.gpu or 0, deserved.cpu or 0, deserved.memory or 0)


def physical_gpus(node_pool: NodePool) -> int | None:
    """GPU thousandths of the pool's nodes as last observed, None while no node was."""
    answer: int | None = Node.objects.filter(pool=node_pool).aggregate(sum=Sum("gpu_milli"))["sum"]
    return answer


def department_usage(department: Department, node_pool: NodePool) -> Usage:
    """Use of all projects of a department in a pool."""
    used = usage_by_queue(list(department.projects.values_list("pk", flat=True)))
    return sum((use for (_project, pool), use in used.items() if pool == node_pool.name), Usage())


def departments_overrun(department: Department) -> Iterator[Problem]:
    """Where, in any pool, the projects deserve more together than their department."""
    owned = {quota.node_pool_id: quota.deserved for quota in DepartmentQuota.objects.filter(department=department)}
    for pool in department.cluster.node_pools.all():
        own = owned.get(pool.pk, Limit(gpu=0))
        yield from sum_beyond(deserved_by_projects(department, pool), own, department=department.name, pool=pool.name)
