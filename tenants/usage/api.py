"""REST of departments and projects in numbers: metrics, sampled every minute, and telemetry of now."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.selectors import ALL, Metric, SampleOwner, series_of
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation
from portal.kit.errors import BadRequest, NotFound
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import visible_departments, visible_projects
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.usage.selectors import (
    DEPARTMENT,
    PROJECT,
    SPANS,
    Usage,
    allocated_by_queue,
    basis_of_borrowing,
    borrowing_of,
)
from tenants.usage.serializers import (
    NOT_GROUPED,
    POOL,
    BorrowingSchema,
    Group,
    GroupColumns,
    MetricsSchema,
    TelemetrySchema,
    Types,
    borrowing_json,
    columns_of,
    groups_in,
    metric_parameters,
    metrics,
    parse_key,
    parse_metrics_query,
    parse_telemetry_type,
    parse_uuid,
    parse_words,
    scaled,
    sums_by_group,
    telemetry,
    telemetry_parameters,
)

MEGABYTE: Final = 10**6


METRIC_RESPONSES: Final[dict[int, Any]] = {200: MetricsSchema, 207: MetricsSchema}


ORGANISATION: Final[Types] = {
    "GPU_QUOTA": scaled(Metric.GPU_DESERVED, 1000),
    "CPU_QUOTA_MILLICORES": scaled(Metric.CPU_DESERVED),
    "CPU_MEMORY_QUOTA_MB": scaled(Metric.MEMORY_DESERVED, MEGABYTE),
    "GPU_ALLOCATION": scaled(Metric.GPU_HELD, 1000),
    "CPU_ALLOCATION_MILLICORES": scaled(Metric.CPU_HELD),
    "CPU_MEMORY_ALLOCATION_MB": scaled(Metric.MEMORY_HELD, MEGABYTE),
    "GPU_MEMORY_UTILIZATION": None,
}


def node_pool_in(request: Request, cluster: Cluster) -> NodePool | None:
    name = request.query_params.get("nodepoolName", "")
    pools = {pool.name: pool for pool in cluster.node_pools.all()} if name else {}
    if name and name not in pools:
        text = f"{cluster.name} has no node pool {name[:63]!r}."
        raise BadRequest.at("/nodepoolName", "unknown_pool", text, allowed=pools)
    return pools.get(name)


def _unit_metrics(request: Request, owner: SampleOwner, cluster: Cluster) -> Response:
    requested, pool = parse_metrics_query(request.query_params, ORGANISATION), node_pool_in(request, cluster)
    points = series_of([owner], requested.window, pool=pool.name if pool else ALL)
    return metrics(requested, ORGANISATION, [(NOT_GROUPED, points.get(owner, []))])


class DepartmentMetrics(Route):
    """A department over time."""

    access = {"GET": RoutePermission("view_department", "department")}

    @operation(
        "get_department_metrics",
        "Read a department's metrics",
        METRIC_RESPONSES,
        parameters=metric_parameters(ORGANISATION, POOL),
    )
    def get(self, request: Request, unit_id: int) -> Response:
        """All node pools, or one."""
        unit = visible_departments(actor_of(request)).select_related("cluster").filter(pk=unit_id).first()
        if unit is None:
            raise NotFound
        return _unit_metrics(request, SampleOwner(DEPARTMENT, str(unit.pk)), unit.cluster)


class ProjectMetrics(Route):
    """A project over time."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation(
        "get_project_metrics",
        "Read a project's metrics",
        METRIC_RESPONSES,
        parameters=metric_parameters(ORGANISATION, POOL),
    )
    def get(self, request: Request, unit_id: int) -> Response:
        """All node pools, or one."""
        unit = visible_projects(actor_of(request)).select_related("cluster").filter(pk=unit_id).first()
        if unit is None:
            raise NotFound
        return _unit_metrics(request, SampleOwner(PROJECT, str(unit.pk)), unit.cluster)


SPAN: Final = OpenApiParameter("span", str, enum=list(SPANS), description="How far back; default: 24h.")
BORROWING: Final = (
    "Beyond Run:ai. From usage samples. What projects hold above their deserved quota is borrowed inside their "
    "department first; only the excess of a whole department is borrowed from other departments. What lies unused "
    "counts as lent in proportion, because schedulers do not say which idle GPU went to whom. Names of projects you "
    "may not see are withheld."
)


def _borrowing(request: Request, unit: Project | Department) -> Response:
    span = request.query_params.get("span") or next(iter(SPANS))
    if span not in SPANS:
        raise BadRequest.at("/span", "unknown", f"{span[:20]!r} is not a valid span.", allowed=SPANS)
    visible = dict(visible_projects(actor_of(request)).filter(cluster=unit.cluster).values_list("pk", "name"))
    found = borrowing_of(unit, visible=visible, span=span, now=timezone.now())
    return Response(borrowing_json(found, basis_of_borrowing(unit.cluster)))


class ProjectBorrowing(Route):
    """What a project borrows and lends."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation(
        "get_project_borrowing",
        "Read who borrows GPUs from whom",
        BorrowingSchema,
        description=BORROWING,
        parameters=[SPAN],
    )
    def get(self, request: Request, unit_id: int) -> Response:
        """By node pool and counterparty."""
        unit = visible_projects(actor_of(request)).select_related("cluster").filter(pk=unit_id).first()
        if unit is None:
            raise NotFound
        return _borrowing(request, unit)


class DepartmentBorrowing(Route):
    """What the projects of a department borrow from other departments and lend to them."""

    access = {"GET": RoutePermission("view_department", "department")}

    @operation(
        "get_department_borrowing",
        "Read who borrows GPUs from whom across departments",
        BorrowingSchema,
        description=BORROWING,
        parameters=[SPAN],
    )
    def get(self, request: Request, unit_id: int) -> Response:
        """By node pool and counterparty; loans inside the department are left out."""
        unit = visible_departments(actor_of(request)).select_related("cluster").filter(pk=unit_id).first()
        if unit is None:
            raise NotFound
        return _borrowing(request, unit)


UnitRow = TypeVar("UnitRow", Project, Department)
Units = QuerySet[Project] | QuerySet[Department]
CLUSTER_ID: Final = OpenApiParameter("clusterId", str)
DEPARTMENT_ID: Final = OpenApiParameter("departmentId", str)
OF_QUOTAS: Final[Mapping[str, tuple[str, float]]] = {
    "GPU_QUOTA": ("gpu_deserved", 1000),
    "CPU_QUOTA": ("cpu_deserved", 1),
    "MEMORY_QUOTA": ("memory_deserved", MEGABYTE),
}
"""The column of a quota, and its unit: GPUs in devices, CPU in millicores, memory in megabytes, as in the quotas."""
OF_USE: Final[Mapping[str, Callable[[Usage], float]]] = {
    "GPU_ALLOCATION": lambda use: use.allocated.gpu / 1000,
    "CPU_ALLOCATION": lambda use: use.allocated.cpu,
    "MEMORY_ALLOCATION": lambda use: use.allocated.memory / MEGABYTE,
    "GPU_ALLOCATION_NON_PREEMPTIBLE": lambda use: use.non_preemptible.gpu / 1000,
    "CPU_ALLOCATION_NON_PREEMPTIBLE": lambda use: use.non_preemptible.cpu,
    "MEMORY_ALLOCATION_NON_PREEMPTIBLE": lambda use: use.non_preemptible.memory / MEGABYTE,
}
OF_UNITS: Final = (*OF_QUOTAS, *OF_USE)
PROJECT_GROUPS: Final[GroupColumns] = {
    "ClusterId": ("cluster_id", "cluster__name"),
    "NodepoolId": ("pool", "pool_called"),
    "ParentId": ("department_id", "department__name"),
}
DEPARTMENT_GROUPS: Final[GroupColumns] = {"ClusterId": ("cluster_id", "cluster__name")}


class ProjectTelemetry(Route):
    """Projects now."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_projects_telemetry",
        "Read project telemetry",
        TelemetrySchema,
        parameters=telemetry_parameters(
            OF_UNITS, PROJECT_GROUPS, CLUSTER_ID, DEPARTMENT_ID, OpenApiParameter("nodepoolId", str)
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
        rows = _by_pool(visible_projects(actor_of(request)).filter(wanted), Q() if pool is None else Q(pool=pool))
        if name in OF_QUOTAS:
            return telemetry(
                name, _quota_sums(name, rows, ProjectQuota.objects.filter(project=OuterRef("pk")), PROJECT_GROUPS, by)
            )
        return telemetry(name, _use_sums(name, rows, rows, PROJECT_GROUPS, by))


class DepartmentTelemetry(Route):
    """Departments now."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_departments_telemetry",
        "Read department telemetry",
        TelemetrySchema,
        parameters=telemetry_parameters(OF_UNITS, DEPARTMENT_GROUPS, CLUSTER_ID, DEPARTMENT_ID, POOL),
    )
    def get(self, request: Request) -> Response:
        """The sum over the departments you may see, or one per cluster."""
        query = request.query_params
        name, by = parse_telemetry_type(query, OF_UNITS), parse_words(query, "groupBy", DEPARTMENT_GROUPS, most=2)
        cluster, department, pool = (
            parse_uuid(query, "clusterId"),
            parse_key(query, "departmentId"),
            query.get("nodepoolName", "").replace("\x00", ""),
        )
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(pk=department) if department else Q())
        chosen = Q(pool_called=pool) if pool else Q()
        rows = _by_pool(visible_departments(actor_of(request)).filter(wanted), chosen)
        if name in OF_QUOTAS:
            quotas = DepartmentQuota.objects.filter(department=OuterRef("pk"))
            return telemetry(name, _quota_sums(name, rows, quotas, DEPARTMENT_GROUPS, by))
        projects = _by_pool(Project.objects.filter(department__in=rows.values("pk")), chosen)
        return telemetry(name, _use_sums(name, rows, projects, DEPARTMENT_GROUPS, by))


def _by_pool(units: QuerySet[UnitRow], wanted: Q) -> QuerySet[UnitRow]:
    """A row per unit and pool of its cluster, of the pools that are wanted."""
    rows = units.annotate(pool=F("cluster__node_pools"), pool_called=F("cluster__node_pools__name"))
    return rows.exclude(pool=None).filter(wanted)


def _quota_sums(
    name: str,
    rows: Units,
    quotas: QuerySet[ProjectQuota] | QuerySet[DepartmentQuota],
    groups: GroupColumns,
    by: Sequence[str],
) -> list[tuple[float, Sequence[Group]]]:
    """Added up by the database. A unit without a quota in a pool deserves nothing there."""
    column, unit = OF_QUOTAS[name]
    deserved = Subquery(quotas.filter(node_pool=OuterRef("cluster__node_pools")).order_by().values(column)[:1])
    return sums_by_group(rows, Sum(deserved), groups, by, unit=unit)


def _use_sums(
    name: str, rows: Units, projects: QuerySet[Project], groups: GroupColumns, by: Sequence[str]
) -> list[tuple[float, Sequence[Group]]]:
    """Use is known by project and pool. Also groups of `rows` that use nothing have a number."""
    columns = columns_of(groups, by)
    order = [groups[each][1] or groups[each][0] for each in by]
    sums = dict.fromkeys(rows.order_by(*order).values_list(*columns).distinct() if by else [()], Usage())
    found = {
        (row["pk"], row["pool_called"]): tuple(row[column] for column in columns)
        for row in projects.order_by().values("pk", "pool_called", *columns)
    }
    for queue, use in allocated_by_queue(Project.objects.filter(pk__in=projects.values("pk"))).items():
        if queue in found:
            sums[found[queue]] += use
    read = OF_USE[name]
    return [(read(use), groups_in(dict(zip(columns, values, strict=True)), groups, by)) for values, use in sums.items()]
