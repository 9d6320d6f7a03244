"""REST of the metrics of departments and projects, from what was sampled every minute."""

from typing import Any, Final

from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.selectors import ALL, Metric, SampleOwner, series_of
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import operation
from portal.kit.errors import BadRequest, NotFound
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import visible_departments, visible_projects
from tenants.usage.selectors import DEPARTMENT, PROJECT
from tenants.usage.serializers import (
    NOT_GROUPED,
    POOL,
    MetricsSchema,
    Types,
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
