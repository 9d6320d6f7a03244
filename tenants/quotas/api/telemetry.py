"""Telemetry of nodes, projects and departments: numbers of now, from current rows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation
from portal.kit.security.request_identity import actor_of
from scheduling.model.resources import Resources
from tenants.access.selectors.permissions import visible_departments, visible_projects
from tenants.quotas.models import Quota
from tenants.quotas.selectors.quota_rows import DepartmentPool, PoolQuota, department_rows_of, quota_rows_of
from tenants.usage.selectors import Usage
from tenants.usage.serializers import (
    POOL,
    Group,
    TelemetrySchema,
    parse_key,
    parse_telemetry_type,
    parse_uuid,
    parse_words,
    telemetry,
    telemetry_parameters,
)

MEGABYTE: Final = 10**6


CLUSTER: Final = OpenApiParameter("clusterId", str)


DEPARTMENT: Final = OpenApiParameter("departmentId", str)


Key = tuple[Group, ...]


ZERO: Final = Resources()


OfUnit = Callable[[Quota, Usage], float]


OF_UNITS: Final[Mapping[str, OfUnit]] = {
    "GPU_QUOTA": lambda quota, use: quota.gpu_deserved / 1000,
    "CPU_QUOTA": lambda quota, use: quota.cpu_deserved or 0,
    "MEMORY_QUOTA": lambda quota, use: (quota.memory_deserved or 0) / MEGABYTE,
    "GPU_ALLOCATION": lambda quota, use: use.allocated.gpu / 1000,
    "CPU_ALLOCATION": lambda quota, use: use.allocated.cpu,
    "MEMORY_ALLOCATION": lambda quota, use: use.allocated.memory / MEGABYTE,
    "GPU_ALLOCATION_NON_PREEMPTIBLE": lambda quota, use: use.non_preemptible.gpu / 1000,
    "CPU_ALLOCATION_NON_PREEMPTIBLE": lambda quota, use: use.non_preemptible.cpu,
    "MEMORY_ALLOCATION_NON_PREEMPTIBLE": lambda quota, use: use.non_preemptible.memory / MEGABYTE,
}
"""GPUs in devices, CPU in millicores, memory in megabytes, as in the quotas."""


def group_entry(key: str, value: object, name: str = "") -> Group:
    return {"key": key, "value": str(value), **({"name": name} if name else {})}


PROJECT_GROUPS: Final[Mapping[str, Callable[[PoolQuota], Group]]] = {
    "ClusterId": lambda row: group_entry("ClusterId", row.pool.cluster_id, row.pool.cluster.name),
    "NodepoolId": lambda row: group_entry("NodepoolId", row.pool.pk, row.pool.name),
    "ParentId": lambda row: group_entry("ParentId", row.project.department_id, row.project.department.name),
}


DEPARTMENT_GROUPS: Final[Mapping[str, Callable[[DepartmentPool], Group]]] = {
    "ClusterId": lambda row: group_entry("ClusterId", row.pool.cluster_id, row.pool.cluster.name),
}


class ProjectTelemetry(Route):
    """Projects now."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_projects_telemetry",
        "Read projects in numbers",
        TelemetrySchema,
        parameters=telemetry_parameters(
            OF_UNITS, PROJECT_GROUPS, CLUSTER, DEPARTMENT, OpenApiParameter("nodepoolId", str)
        ),
    )
    def get(self, request: Request) -> Response:
        """The sum over the projects you may see, or one per group."""
        query = request.query_params
        name, by = parse_telemetry_type(query, OF_UNITS), parse_words(query, "groupBy", PROJECT_GROUPS, most=2)
        cluster, department, pool = (
            parse_uuid(query, "clusterId"),
            parse_key(query, "departmentId"),
            parse_key(query, "nodepoolId"),
        )
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(department=department) if department else Q())
        projects = visible_projects(actor_of(request)).filter(wanted).select_related("cluster", "department")
        rows = [row for each in quota_rows_of(projects).values() for row in each if pool in {None, row.pool.pk}]
        told = ((tuple(PROJECT_GROUPS[each](row) for each in by), OF_UNITS[name](row.quota, row.usage)) for row in rows)
        return telemetry(name, sum_by_group(told, grouped=bool(by)))


class DepartmentTelemetry(Route):
    """Departments now."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_departments_telemetry",
        "Read departments in numbers",
        TelemetrySchema,
        parameters=telemetry_parameters(OF_UNITS, DEPARTMENT_GROUPS, CLUSTER, DEPARTMENT, POOL),
    )
    def get(self, request: Request) -> Response:
        """The sum over the departments you may see, or one per cluster."""
        query = request.query_params
        name, by = parse_telemetry_type(query, OF_UNITS), parse_words(query, "groupBy", DEPARTMENT_GROUPS, most=2)
        cluster, department, pool = (
            parse_uuid(query, "clusterId"),
            parse_key(query, "departmentId"),
            text_in(request, "nodepoolName"),
        )
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(pk=department) if department else Q())
        departments = visible_departments(actor_of(request)).filter(wanted).select_related("cluster")
        rows = [row for each in department_rows_of(departments).values() for row in each if pool in {"", row.pool.name}]
        told = (
            (tuple(DEPARTMENT_GROUPS[each](row) for each in by), OF_UNITS[name](row.quota, row.usage)) for row in rows
        )
        return telemetry(name, sum_by_group(told, grouped=bool(by)))


def text_in(request: Request, name: str) -> str:
    return request.query_params.get(name, "").replace("\x00", "")


def sum_by_group(told: Iterable[tuple[Key, float]], *, grouped: bool) -> list[tuple[float, Sequence[Group]]]:
    """In the order in which groups come first; without groups one number, also of nothing."""
    sums: defaultdict[tuple[tuple[tuple[str, str], ...], ...], float] = defaultdict(float)
    if not grouped:
        sums[()] = 0
    for groups, number in told:
        sums[tuple(tuple(group.items()) for group in groups)] += number
    return [(number, [dict(group) for group in groups]) for groups, number in sums.items()]
