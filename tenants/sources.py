"""What the tenants' side wants of a cluster: namespaces, queues with their quotas, GPU caps."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from django.db.models import Count, QuerySet, Sum

from clusters.flavours import flavour_for
from clusters.models import Cluster
from clusters.ports import DesiredState
from clusters.sources import EVERYBODY, pool_spec
from scheduling.resources import Limit
from tenants.min_runtimes import MinRuntimes, min_runtimes_of
from tenants.models import Department, DepartmentQuota, PriorityCap, Project, ProjectQuota
from tenants.queues import DESERVED, Pool, department_queues, project_spec, projects_in, quotas_in

Row = TypeVar("Row", Department, Project)


def desired_state(cluster: Cluster, *, owner: str = EVERYBODY) -> DesiredState:
    """Departments and projects of the cluster, with a queue in each of its node pools, in a fixed number of queries.

    With an owner (`project.7`, `department.2`): that one alone.
    """
    flavour = flavour_for(cluster.flavour)
    pools = [Pool(pool.pk, pool_spec(pool)) for pool in cluster.node_pools.all()]
    departments = _only(Department.objects.filter(cluster=cluster), owner, "department.")
    projects = _only(Project.objects.filter(cluster=cluster), owner, "project.")
    rows = projects_in(projects)
    few = [row.pk for row in rows] if owner else projects
    parents = quotas_in(DepartmentQuota.objects.filter(department__in=departments))
    leaves = quotas_in(ProjectQuota.objects.filter(project__in=few))
    caps = _caps(few)
    rules = min_runtimes_of(cluster) if flavour.traits.spares_young == "queues" else MinRuntimes()
    promised = _promised(departments) if flavour.traits.sums_projects else {}
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


def _promised(departments: QuerySet[Department]) -> dict[tuple[int, int], Limit]:
    """What the projects of each (department, pool) deserve together; unlimited as soon as one of them is."""
    rows = ProjectQuota.objects.filter(project__department__in=departments).order_by()
    counted = [each for name in DESERVED for each in (Sum(name), Count(name))]
    found = rows.values_list("project__department_id", "node_pool_id").annotate(Count("pk"), *counted)
    return {(department, pool): _together(rows, *sums) for department, pool, rows, *sums in found}


def _together(rows: int, *sums: int) -> Limit:
    """`sums`: of each resource the sum, and of how many rows; a row that leaves it out is unlimited in it."""
    gpu, cpu, memory = (amount if said == rows else None for amount, said in zip(sums[::2], sums[1::2], strict=True))
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
    if owner == EVERYBODY:
        return rows
    number = owner.removeprefix(prefix)
    return rows.filter(pk=number) if owner.startswith(prefix) and number.isdecimal() else rows.none()
