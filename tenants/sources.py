"""What the tenants' side wants of a cluster: namespaces, queues with their quotas, GPU caps."""

from typing import TypeVar

from django.db.models import QuerySet

from clusters.flavours import flavour_for
from clusters.models import Cluster
from clusters.ports import DesiredState
from clusters.sources import EVERYBODY
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota
from tenants.queues import by_owner_and_pool, department_queues, project_spec

Row = TypeVar("Row", Department, Project)


def desired_state(cluster: Cluster, *, owner: str = EVERYBODY) -> DesiredState:
    """Departments and projects of the cluster, with a queue in each of its node pools, in a fixed number of queries.

    With an owner (`project.7`, `department.2`): that one alone.
    """
    flavour = flavour_for(cluster.flavour)
    pools = list(cluster.node_pools.all())
    departments = _only(Department.objects.filter(cluster=cluster), owner, "department.")
    projects = _only(Project.objects.filter(cluster=cluster), owner, "project.")
    parents = by_owner_and_pool(DepartmentQuota.objects.filter(department__in=departments))
    leaves = by_owner_and_pool(ProjectQuota.objects.filter(project__in=projects))
    return DesiredState(
        departments=tuple(
            queue for department in departments for queue in department_queues(department, pools, parents, flavour)
        ),
        projects=tuple(
            project_spec(project, pools, leaves, flavour)
            for project in projects.select_related("department", "cluster").prefetch_related("priority_caps")
        ),
    )


def _only(rows: QuerySet[Row], owner: str, prefix: str) -> QuerySet[Row]:
    """The rows an owner label names; all of them for everybody."""
    if owner == EVERYBODY:
        return rows
    number = owner.removeprefix(prefix)
    return rows.filter(pk=number) if owner.startswith(prefix) and number.isdecimal() else rows.none()
