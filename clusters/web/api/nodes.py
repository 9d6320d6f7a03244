"""Nodes of every cluster, as they were last observed."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, CharField, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.inventory.models import Cluster, Node
from clusters.sync.selectors import STALE_AFTER
from clusters.watch.selectors import allocated_by_node
from clusters.web.serializers.inventory import NodesSchema
from portal.kit.api.lists import Column, as_uuid, filters, ordering, without_cursor
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, PAGES, operation
from portal.kit.errors import NotFound
from portal.kit.security.request_identity import actor_of
from scheduling.model.resources import Resources
from tenants.access.selectors import CLUSTER_ID, POOL_NAME
from tenants.quotas.api.pool_quotas import CLUSTER, ZERO, group_entry, sum_by_group, text_in
from tenants.usage.serializers import (
    POOL,
    Group,
    TelemetrySchema,
    parse_telemetry_type,
    parse_uuid,
    parse_words,
    telemetry,
    telemetry_parameters,
)

MILLI: Final = 1000
EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
COLUMNS: Final = {
    "name": Column("name"),
    "status": Column("standing"),
    "nodePool": Column("pool_called", known=POOL_NAME),
    "gpuType": Column("gpu_type"),
    "nvLinkDomainUid": Column("unknown"),
    "nvLinkCliqueId": Column("unknown"),
    "clusterUuid": Column("cluster_id", as_uuid, CLUSTER_ID),
}
SEARCH: Final = OpenApiParameter("search", str, description="Part of the name.")


class Nodes(Route):
    """Nodes of every cluster."""

    access = {"GET": RoutePermission()}

    @operation("get_tenant_nodes", "List nodes", NodesSchema, parameters=[*PAGES, *FILTERS, SEARCH])
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        return _page(_wanted(request), request)


class ClusterNodes(Route):
    """Nodes of one cluster."""

    access = {"GET": RoutePermission(at="cluster")}

    @operation(
        "get_nodes",
        "List a cluster's nodes",
        NodesSchema,
        deprecated=True,
        parameters=[OpenApiParameter("nodeName", str, description="Exact name."), *PAGES, *FILTERS, SEARCH],
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        if not Cluster.objects.filter(pk=cluster_id).exists():
            raise NotFound
        rows = _wanted(request).filter(cluster=cluster_id)
        name = request.query_params.get("nodeName", "").replace("\x00", "")
        return _page(rows.filter(name=name) if name else rows, request)


def _wanted(request: Request) -> QuerySet[Node]:
    query = request.query_params
    rows = nodes_json().filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request)))
    search = query.get("search", "").replace("\x00", "")
    return rows.filter(name__icontains=search) if search else rows


NodeCount = count_route(
    "count_tenant_nodes", "Count nodes", "The number of nodes the filter finds.", _wanted, parameters=[*FILTERS, SEARCH]
)


def nodes_json() -> QuerySet[Node]:
    """Nodes with how they stand: nobody knows that of a cluster that was not looked at for a while."""
    stale = Q(cluster__observed_at=None) | Q(cluster__observed_at__lt=timezone.now() - STALE_AFTER)
    return Node.objects.select_related("pool").annotate(
        standing=Case(
            When(stale, then=Value("Unknown")),
            When(ready=True, then=Value("Ready")),
            default=Value("NotReady"),
            output_field=CharField(),
        ),
        pool_called=Coalesce("pool__name", Value("")),
        unknown=Value(""),
    )


def _page(rows: QuerySet[Node], request: Request) -> Response:
    path = ordering(request.query_params, COLUMNS, "name")
    page = without_cursor(rows.order_by(path, "-pk" if path.startswith("-") else "pk"), request).rows
    return Response({"nodes": [node_json(each) for each in page]})


def node_json(node: Node) -> dict[str, Any]:
    """Node. Its clique of NVLink stands in a label, where the node has one: domain, dot, number."""
    standing: str = getattr(node, "standing", "Unknown")
    domain, _dot, clique = str(node.labels.get("nvidia.com/gpu.clique", "")).partition(".")
    gpus = {"gpuInfo": {"gpuType": node.gpu_type, "gpuCount": node.gpu_milli // MILLI}} if node.gpu_milli else {}
    links = {"nvLinkDomainUid": domain, "nvLinkCliqueId": clique} if clique else {}
    return {
        "id": str(node.pk),
        "name": node.name,
        "status": standing,
        "nodePool": node.pool.name if node.pool else "",
        "clusterUuid": str(node.cluster_id),
        "createdAt": rfc3339(node.joined_at or node.observed_at),
        "updatedAt": rfc3339(node.observed_at),
        "conditions": [],
        "taints": [_taint(each) for each in node.taints if each["effect"] in EFFECTS],
        **gpus,
        **links,
    }


def _taint(taint: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": taint["key"], "value": taint.get("value") or "", "effect": taint["effect"]}


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
    "ClusterId": lambda node: group_entry("ClusterId", node.cluster_id, node.cluster.name),
    "Nodepool": lambda node: group_entry("Nodepool", node.pool.name if node.pool else ""),
    "Node": lambda node: group_entry("Node", node.name),
}


class NodeTelemetry(Route):
    """Nodes now."""

    access = {"GET": RoutePermission()}

    @operation(
        "get_node_telemetry",
        "Read node telemetry",
        TelemetrySchema,
        parameters=telemetry_parameters(OF_NODES, NODE_GROUPS, CLUSTER, POOL),
    )
    def get(self, request: Request) -> Response:
        """One number, or one per group. None at all of a type that Rung does not measure."""
        query = request.query_params
        name = parse_telemetry_type(query, OF_NODES)
        by = parse_words(query, "groupBy", NODE_GROUPS, most=2)
        reading = OF_NODES[name]
        cluster, pool = parse_uuid(query, "clusterId"), text_in(request, "nodepoolName")
        wanted = (Q(cluster=cluster) if cluster else Q()) & (Q(pool__name=pool) if pool else Q())
        if reading is None:
            return telemetry(name, [])
        nodes = list(Node.objects.filter(wanted).select_related("cluster", "pool").order_by("cluster__name", "name"))
        held = allocated_by_node(Cluster.objects.filter(pk=cluster) if cluster else Cluster.objects.all())
        told = (
            (tuple(NODE_GROUPS[each](node) for each in by), reading(node, held.get((node.cluster_id, node.name), ZERO)))
            for node in nodes
        )
        return telemetry(name, sum_by_group(told, grouped=bool(by)))
