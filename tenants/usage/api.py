"""REST of the metrics of departments and projects, from what was sampled every minute."""

from collections.abc import Collection
from typing import Any, Final

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
from tenants.organisation.models import Project
from tenants.usage.selectors import DEPARTMENT, PROJECT, SPANS, basis_of_borrowing, borrowing_of
from tenants.usage.serializers import (
    NOT_GROUPED,
    POOL,
    BorrowingSchema,
    MetricsSchema,
    Types,
    borrowing_json,
    metric_parameters,
    metrics,
    parse_metrics_query,
    scaled,
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
    asked, pool = parse_metrics_query(request.query_params, ORGANISATION), node_pool_in(request, cluster)
    points = series_of([owner], asked.window, pool=pool.name if pool else ALL)
    return metrics(asked, ORGANISATION, [(NOT_GROUPED, points.get(owner, []))])


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
    "Beyond Run:ai. From usage samples. What projects leave unused of their deserved quota counts as lent in "
    "proportion, because schedulers do not say which idle GPU went to whom. Names of projects you may not see are "
    "withheld."
)


def _borrowing(request: Request, projects: Collection[Project], cluster: Cluster) -> Response:
    span = request.query_params.get("span") or next(iter(SPANS))
    if span not in SPANS:
        raise BadRequest.at("/span", "unknown", f"{span[:20]!r} is not a valid span.", allowed=SPANS)
    visible = dict(visible_projects(actor_of(request)).filter(cluster=cluster).values_list("pk", "name"))
    found = borrowing_of(projects, cluster.pk, visible=visible, span=span, now=timezone.now())
    return Response(borrowing_json(found, basis_of_borrowing(cluster)))


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
        return _borrowing(request, [unit], unit.cluster)


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
        return _borrowing(request, list(unit.projects.all()), unit.cluster)
