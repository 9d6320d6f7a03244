"""Nodes of every cluster, as they were last observed."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, CharField, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import Cluster, Node
from clusters.selectors import STALE_AFTER
from portal.core.bodies import FILTERS, PAGES, REFUSALS, CountSchema
from portal.core.errors import Absent
from portal.core.filtering import Column, as_uuid, filters, ordering
from portal.core.http import actor_of
from portal.core.paging import without_cursor
from portal.core.routes import Route, Rule
from portal.core.wire import stamp
from tenants.api.known import CLUSTER_ID, POOL_NAME
from tenants.api.physical_schemas import NodesSchema

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

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_tenant_nodes",
        summary="List nodes",
        parameters=[*PAGES, *FILTERS, SEARCH],
        responses={200: NodesSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        return _page(_wanted(request), request)


class NodeCount(Route):
    """How many the same filter finds."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="count_tenant_nodes",
        summary="Count nodes",
        parameters=[*FILTERS, SEARCH],
        responses={200: CountSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """The number of nodes the filter finds."""
        return Response({"count": _wanted(request).count()})


class ClusterNodes(Route):
    """Nodes of one cluster."""

    access = {"GET": Rule(at="cluster")}

    @extend_schema(
        operation_id="get_nodes",
        summary="List a cluster's nodes",
        deprecated=True,
        parameters=[OpenApiParameter("nodeName", str, description="The whole name."), *PAGES, *FILTERS, SEARCH],
        responses={200: NodesSchema, **REFUSALS},
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        if not Cluster.objects.filter(pk=cluster_id).exists():
            raise Absent
        rows = _wanted(request).filter(cluster=cluster_id)
        name = request.query_params.get("nodeName", "").replace("\x00", "")
        return _page(rows.filter(name=name) if name else rows, request)


def _wanted(request: Request) -> QuerySet[Node]:
    query = request.query_params
    rows = told_nodes().filter(filters(query.get("filterBy", ""), COLUMNS, actor_of(request)))
    search = query.get("search", "").replace("\x00", "")
    return rows.filter(name__icontains=search) if search else rows


def told_nodes() -> QuerySet[Node]:
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
        "createdAt": stamp(node.joined_at or node.observed_at),
        "updatedAt": stamp(node.observed_at),
        "conditions": [],
        "taints": [_taint(each) for each in node.taints if each["effect"] in EFFECTS],
        **gpus,
        **links,
    }


def _taint(taint: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": taint["key"], "value": taint.get("value") or "", "effect": taint["effect"]}
