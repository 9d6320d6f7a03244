"""Telemetry of nodes, projects and departments: numbers of now, from current rows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.holdings import held_on_nodes
from clusters.models import Cluster, Node
from portal.core.bodies import REFUSALS
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from scheduling.resources import Resources
from tenants.api.measuring import (
    POOL,
    Group,
    TelemetrySchema,
    asked_telemetry,
    key_in,
    telemetry,
    telemetry_parameters,
    uuid_in,
    words_in,
)
from tenants.models import Quota
from tenants.permissions import visible_departments, visible_projects
from tenants.selectors import DepartmentPool, PoolQuota, department_rows_of, quota_rows_of
from tenants.usage import Usage

MEGABYTE: Final = 10**6
CLUSTER: Final = OpenApiParameter("clusterId", str)
DEPARTMENT: Final = OpenApiParameter("departmentId", str)
ANSWERS: Final[dict[int, Any]] = {200: TelemetrySchema, **REFUSALS}
Key = tuple[Group, ...]
OfNode = Callable[[Node, Resources], float]


def _usable(node: Node) -> bool:
    return node.ready and not node.unschedulable


OF_NODES: Final[Mapping[str, OfNode | None]] = {
    "READY_GPU_NODES": lambda node, held: bool(node.gpu_milli) and node.ready,
    "READY_GPUS": lambda node, held: node.gpu_milli / 1000 if node.ready else 0,
    "TOTAL_GPU_NODES": lambda node, held: bool(node.gpu_milli),
    "TOTAL_GPUS": lambda node, held: node.gpu_milli / 1000,
    "IDLE_ALLOCATED_GPUS": None,
    "FREE_GPUS": lambda node, held: max(node.gpu_milli - held.gpu, 0) / 1000 if _usable(node) else 0,
    "ALLOCATED_GPUS": lambda node, held: held.gpu / 1000,
    "TOTAL_CPU_CORES": lambda node, held: node.cpu_milli / 1000,
    "USED_CPU_CORES": None,
    "ALLOCATED_CPU_CORES": lambda node, held: held.cpu / 1000,
    "TOTAL_GPU_MEMORY_BYTES": None,
    "USED_GPU_MEMORY_BYTES": None,
    "TOTAL_CPU_MEMORY_BYTES": lambda node, held: node.memory_bytes,
    "USED_CPU_MEMORY_BYTES": None,
    "ALLOCATED_CPU_MEMORY_BYTES": lambda node, held: held.memory,
    "FULLY_FREE_GPU_NODES": lambda node, held: bool(node.gpu_milli) and _usable(node) and not held.gpu,
}
"""None: nothing that Rung reads measures it."""
NODE_GROUPS: Final[Mapping[str, Callable[[Node], Group]]] = {
    "ClusterId": lambda node: _group("ClusterId", node.cluster_id, node.cluster.name),
    "Nodepool": lambda node: _group("Nodepool", node.pool.name if node.pool else ""),
    "Node": lambda node: _group("Node", node.name),
}


class NodeTelemetry(Route):
    """Nodes now."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_node_telemetry",
        summary="Read nodes in numbers",
        parameters=telemetry_parameters(OF_NODES, NODE_GROUPS, CLUSTER, POOL),
        responses=ANSWERS,
    )
    def get(self, request: Request) -> Response:
        """One number, or one per group. None at all of a type that Rung does not measure."""
        query = request.query_params
        name = asked_telemetry(query, OF_NODES)
        by = words_in(query, "groupBy", NODE_GROUPS, most=2)
        reading = OF_NODES[name]
        cluster, pool = uuid_in(query, "clusterId"), _text_in(request, "nodepoolName")
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(pool__name=pool) if pool else Q())
        if reading is None:
            return telemetry(name, [])
        nodes = list(Node.objects.filter(wanted).select_related("cluster", "pool").order_by("cluster__name", "name"))
        held = held_on_nodes(Cluster.objects.filter(pk=cluster) if cluster else Cluster.objects.all())
        told = (
            (tuple(NODE_GROUPS[each](node) for each in by), reading(node, held.get((node.cluster_id, node.name), ZERO)))
            for node in nodes
        )
        return telemetry(name, _summed(told, grouped=bool(by)))


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
PROJECT_GROUPS: Final[Mapping[str, Callable[[PoolQuota], Group]]] = {
    "ClusterId": lambda row: _group("ClusterId", row.pool.cluster_id, row.pool.cluster.name),
    "NodepoolId": lambda row: _group("NodepoolId", row.pool.pk, row.pool.name),
    "ParentId": lambda row: _group("ParentId", row.project.department_id, row.project.department.name),
}
DEPARTMENT_GROUPS: Final[Mapping[str, Callable[[DepartmentPool], Group]]] = {
    "ClusterId": lambda row: _group("ClusterId", row.pool.cluster_id, row.pool.cluster.name),
}


class ProjectTelemetry(Route):
    """Projects now."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_projects_telemetry",
        summary="Read projects in numbers",
        parameters=telemetry_parameters(
            OF_UNITS, PROJECT_GROUPS, CLUSTER, DEPARTMENT, OpenApiParameter("nodepoolId", str)
        ),
        responses=ANSWERS,
    )
    def get(self, request: Request) -> Response:
        """The sum over the projects you may see, or one per group."""
        query = request.query_params
        name, by = asked_telemetry(query, OF_UNITS), words_in(query, "groupBy", PROJECT_GROUPS, most=2)
        cluster, department, pool = (
            uuid_in(query, "clusterId"),
            key_in(query, "departmentId"),
            key_in(query, "nodepoolId"),
        )
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(department=department) if department else Q())
        projects = visible_projects(actor_of(request)).filter(wanted).select_related("cluster", "department")
        rows = [row for each in quota_rows_of(projects).values() for row in each if pool in {None, row.pool.pk}]
        told = ((tuple(PROJECT_GROUPS[each](row) for each in by), OF_UNITS[name](row.quota, row.usage)) for row in rows)
        return telemetry(name, _summed(told, grouped=bool(by)))


class DepartmentTelemetry(Route):
    """Departments now."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_departments_telemetry",
        summary="Read departments in numbers",
        parameters=telemetry_parameters(OF_UNITS, DEPARTMENT_GROUPS, CLUSTER, DEPARTMENT, POOL),
        responses=ANSWERS,
    )
    def get(self, request: Request) -> Response:
        """The sum over the departments you may see, or one per cluster."""
        query = request.query_params
        name, by = asked_telemetry(query, OF_UNITS), words_in(query, "groupBy", DEPARTMENT_GROUPS, most=2)
        cluster, department, pool = (
            uuid_in(query, "clusterId"),
            key_in(query, "departmentId"),
            _text_in(request, "nodepoolName"),
        )
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(pk=department) if department else Q())
        departments = visible_departments(actor_of(request)).filter(wanted).select_related("cluster")
        rows = [row for each in department_rows_of(departments).values() for row in each if pool in {"", row.pool.name}]
        told = (
            (tuple(DEPARTMENT_GROUPS[each](row) for each in by), OF_UNITS[name](row.quota, row.usage)) for row in rows
        )
        return telemetry(name, _summed(told, grouped=bool(by)))


def _text_in(request: Request, name: str) -> str:
    return request.query_params.get(name, "").replace("\x00", "")


def _group(key: str, value: object, name: str = "") -> Group:
    return {"key": key, "value": str(value), **({"name": name} if name else {})}


def _summed(told: Iterable[tuple[Key, float]], *, grouped: bool) -> list[tuple[float, Sequence[Group]]]:
    """In the order in which groups come first; without groups one number, also of nothing."""
    sums: defaultdict[tuple[tuple[tuple[str, str], ...], ...], float] = defaultdict(float)
    if not grouped:
        sums[()] = 0
    for groups, number in told:
        sums[tuple(tuple(group.items()) for group in groups)] += number
    return [(number, [dict(group) for group in groups]) for groups, number in sums.items()]
