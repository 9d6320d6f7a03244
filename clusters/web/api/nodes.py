"""Node pools and nodes over REST: pools as Run:ai's clients read, create and change them, nodes as last observed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, CharField, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.flavours.objects import MOST_LEVELS
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.services.inventory import create_node_pool, delete_node_pool, update_node_pool
from clusters.sync.selectors import STALE_AFTER
from clusters.web.serializers.inventory import NodePoolCreate, NodePoolUpdate, NodesSchema, PoolSchema, PoolsSchema
from portal.kit.api.lists import NAME_SEARCH, Column, as_time, as_uuid, filters, ordering, without_cursor
from portal.kit.api.parsers import TENANT_ID, rfc3339
from portal.kit.api.routes import PlannedWrite, Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, PAGES, map_pointers, operation, rendered, validated_body
from portal.kit.errors import NotFound, ValidationFailed
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import CLUSTER_ID, POOL_NAME, require
from tenants.organisation.api import cluster_of

ADMIN: Final = RoutePermission(Permission.MANAGE_CLUSTERS, "cluster")
POOL_COLUMNS: Final = {
    "name": Column("name"),
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
    "phase": Column("phase"),
    "createdAt": Column("created_at", as_time),
    "updatedAt": Column("updated_at", as_time),
}
POINTERS: Final = {
    "/label_key": "/labelKey",
    "/label_value": "/labelValue",
    "/is_default": "/isDefault",
    "/gpu_placement": "/schedulingConfiguration/placementStrategy/gpu",
    "/topology_levels": "/topologyLevels",
    **{f"/topology_levels/{index}": f"/topologyLevels/{index}" for index in range(MOST_LEVELS + 1)},
}
NO_TIME: Final = frozenset({"", "0", "0s"})


class NodePools(Route):
    """Node pools of every cluster; new ones."""

    access = {"GET": RoutePermission(), "POST": ADMIN}

    @operation("get_nodepools", "List node pools", PoolsSchema, parameters=[*PAGES, *FILTERS])
    def get(self, request: Request) -> Response:
        """One page, by name unless `sortBy` says otherwise."""
        path = ordering(request.query_params, POOL_COLUMNS, "name")
        rows = _wanted_pools(request).order_by(path, "-pk" if path.startswith("-") else "pk")
        page = without_cursor(rows, request).rows
        return Response({"nodepools": pools_json(page)})

    def planned(self, request: Request) -> PlannedWrite:
        """The pool that the body makes."""
        body = validated_body(NodePoolCreate, request.data)
        named = {"op": "create", "cluster": cluster_of(body["clusterId"]).name, "pool": body["name"]}
        return "node_pool", {**named, **_columns(body)}

    @operation("create_nodepool", "Create a node pool", PoolSchema, 201, request=NodePoolCreate)
    def post(self, request: Request) -> Response:
        """The nodes that carry one label, from now on scheduled apart."""
        actor, body = actor_of(request), validated_body(NodePoolCreate, request.data)
        cluster = cluster_of(body["clusterId"])
        require(actor, Permission.MANAGE_CLUSTERS, cluster=cluster)
        refuse_unsupported(body)
        with map_pointers(POINTERS):
            pool = create_node_pool(
                cluster=cluster,
                name=body["name"],
                label_key=body["labelKey"],
                label_value=body["labelValue"],
                gpu_placement=_placement(body),
                topology_levels=body.get("topologyLevels") or (),
                is_default=bool(body.get("isDefault")),
                actor=actor,
            )
        return Response(pools_json([_pool(pool.pk)])[0], status=201)


class NodePoolDetail(Route):
    """A node pool by id."""

    access = {"GET": RoutePermission(), "PUT": ADMIN, "PATCH": ADMIN, "DELETE": ADMIN}

    @operation("get_nodepool", "Read a node pool", PoolSchema)
    def get(self, request: Request, pool_id: int) -> Response:
        """The node pool."""
        return Response(pools_json([_pool(pool_id)])[0])

    def planned(self, request: Request, pool_id: int) -> PlannedWrite:
        """What the body changes; without a body: the removal."""
        pool = _pool(pool_id)
        named = {"cluster": pool.cluster.name, "pool": pool.name}
        if request.method == "DELETE":
            return "node_pool", {"op": "delete", **named}
        return "node_pool", {"op": "change", **named, **_columns(validated_body(NodePoolUpdate, request.data))}

    @operation("update_nodepool", "Change a node pool", PoolSchema, request=NodePoolUpdate)
    def put(self, request: Request, pool_id: int) -> Response:
        """What is absent stays: every field is optional here too."""
        return _change(request, pool_id)

    @operation("patch_nodepool", "Update a node pool", PoolSchema, request=NodePoolUpdate)
    def patch(self, request: Request, pool_id: int) -> Response:
        """What is absent stays."""
        return _change(request, pool_id)

    @operation("delete_nodepool", "Delete a node pool", status=204)
    def delete(self, request: Request, pool_id: int) -> Response:
        """Gone; 409 while quotas name it, and for the default beside others."""
        actor, pool = actor_of(request), _pool(pool_id)
        require(actor, Permission.MANAGE_CLUSTERS, cluster=pool.cluster)
        delete_node_pool(pool=pool, actor=actor)
        return Response(status=204)


def _change(request: Request, pool_id: int) -> Response:
    actor, pool = actor_of(request), _pool(pool_id)
    require(actor, Permission.MANAGE_CLUSTERS, cluster=pool.cluster)
    body = validated_body(NodePoolUpdate, request.data)
    refuse_unsupported(body)
    with map_pointers(POINTERS):
        update_node_pool(pool=pool, actor=actor, **_columns(body))
    return Response(pools_json([_pool(pool_id)])[0])


def _columns(body: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a body gives."""
    given = {
        "label_key": body.get("labelKey"),
        "label_value": body.get("labelValue"),
        "gpu_placement": _placement(body),
        "topology_levels": body.get("topologyLevels"),
        "is_default": body.get("isDefault"),
    }
    return {name: value for name, value in given.items() if value is not None}


def _wanted_pools(request: Request) -> QuerySet[NodePool]:
    return _pools().filter(filters(request.query_params.get("filterBy", ""), POOL_COLUMNS, actor_of(request)))


NodePoolCount = count_route(
    "count_nodepools", "Count node pools", "The number of node pools the filter finds.", _wanted_pools
)


def _pools() -> QuerySet[NodePool]:
    nodes = Node.objects.filter(pool=OuterRef("pk")).order_by()
    schedulable = nodes.filter(ready=True, unschedulable=False)
    return NodePool.objects.select_related("cluster").annotate(
        phase=Case(
            When(Exists(schedulable), then=Value("Ready")),
            When(Exists(nodes), then=Value("Unschedulable")),
            default=Value("Empty"),
            output_field=CharField(),
        )
    )


def _pool(key: int) -> NodePool:
    found = _pools().filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def pools_json(pools: Sequence[NodePool]) -> list[dict[str, Any]]:
    """Nodepools with the names of their nodes, in one query."""
    names: defaultdict[int | None, list[str]] = defaultdict(list)
    for pool_id, name in Node.objects.filter(pool__in=pools).order_by("name").values_list("pool_id", "name"):
        names[pool_id].append(name)
    return [_pool_json(pool, names[pool.pk]) for pool in pools]


def _pool_json(pool: NodePool, nodes: Sequence[str]) -> dict[str, Any]:
    """The placement is shown where the scheduler has one for each pool."""
    settings: dict[str, Any] = {}
    if flavour_for(pool.cluster.flavour).traits.places_by_pool:
        settings["schedulingConfiguration"] = {"placementStrategy": {"gpu": pool.gpu_placement}}
    phase: str = getattr(pool, "phase", "Empty")
    status = {**settings, "conditions": [], "nodes": nodes}
    about = {"tenantId": TENANT_ID, "phase": phase, "phaseMessage": PHASES[phase], "status": status}
    return rendered(PoolSchema, pool, **about, **settings)


PHASES: Final[Mapping[str, str]] = {
    "Empty": "No node has its label.",
    "Unschedulable": "None of its nodes is schedulable.",
    "Ready": "",
}


def _placement(body: Mapping[str, Any]) -> str | None:
    """The strategy by its newer or its older name. ValidationFailed where they differ, or CPUs ask for their own."""
    ways = {
        "/schedulingConfiguration/placementStrategy": (body.get("schedulingConfiguration") or {}).get(
            "placementStrategy"
        ),
        "/placementStrategy": body.get("placementStrategy"),
    }
    set_ways = {pointer: way for pointer, way in ways.items() if way}
    for pointer, way in set_ways.items():
        if way.get("cpu") == "spread":
            text = _("The placement strategy for CPUs is not supported. Leave it empty.")
            raise ValidationFailed.at(f"{pointer}/cpu", "unsupported", text)
    found = {str(way["gpu"]) for way in set_ways.values() if way.get("gpu")}
    if len(found) > 1:
        raise ValidationFailed.at(
            "/placementStrategy/gpu", "contradiction", _("The two placement strategies for GPUs must be the same.")
        )
    return found.pop() if found else None


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """What would be lost without a word."""
    optimization = body.get("gpuResourceOptimization") or {}
    runtime = (body.get("schedulingConfiguration") or {}).get("minGuaranteedRuntime") or ""
    bad = {
        "/overProvisioningRatio": body.get("overProvisioningRatio") not in {None, 1},
        "/gpuNetworkAccelerationDetection": body.get("gpuNetworkAccelerationDetection") == "Use",
        "/gpuNetworkAccelerationLabelKey": bool(body.get("gpuNetworkAccelerationLabelKey")),
        "/gpuResourceOptimization/swapEnabled": bool(optimization.get("swapEnabled")),
        "/gpuResourceOptimization/nodeLevelSchedulerEnabled": bool(optimization.get("nodeLevelSchedulerEnabled")),
    }
    for pointer in (name for name, wrong in bad.items() if wrong):
        raise ValidationFailed.at(pointer, "unsupported", _("Not supported. Remove this field."))
    if body.get("networkTopologyId"):
        text = _("Set the topology levels in topologyLevels.")
        raise ValidationFailed.at("/networkTopologyId", "unsupported", text)
    if runtime not in NO_TIME:
        text = _("Minimum runtimes are set for departments and projects, not for node pools.")
        raise ValidationFailed.at("/schedulingConfiguration/minGuaranteedRuntime", "unsupported", text)


MILLI: Final = 1000
EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
COLUMNS: Final = {
    "name": Column("name"),
    "status": Column("node_status"),
    "nodePool": Column("pool_called", known=POOL_NAME),
    "gpuType": Column("gpu_type"),
    "nvLinkDomainUid": Column("unknown"),
    "nvLinkCliqueId": Column("unknown"),
    "clusterUuid": Column("cluster_id", as_uuid, CLUSTER_ID),
}


class Nodes(Route):
    """Nodes of every cluster."""

    access = {"GET": RoutePermission()}

    @operation("get_tenant_nodes", "List nodes", NodesSchema, parameters=[*PAGES, *FILTERS, NAME_SEARCH])
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
        parameters=[OpenApiParameter("nodeName", str, description="Exact name."), *PAGES, *FILTERS, NAME_SEARCH],
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
    "count_tenant_nodes",
    "Count nodes",
    "The number of nodes the filter finds.",
    _wanted,
    parameters=[*FILTERS, NAME_SEARCH],
)


def nodes_json() -> QuerySet[Node]:
    """Nodes with their status: unknown in a cluster that was not observed recently."""
    stale = Q(cluster__observed_at=None) | Q(cluster__observed_at__lt=timezone.now() - STALE_AFTER)
    return Node.objects.select_related("pool").annotate(
        node_status=Case(
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
    """Node. Its NVLink clique is in a label, where the node has one: domain, dot, number."""
    node_status: str = getattr(node, "node_status", "Unknown")
    domain, _dot, clique = str(node.labels.get("nvidia.com/gpu.clique", "")).partition(".")
    gpus = {"gpuInfo": {"gpuType": node.gpu_type, "gpuCount": node.gpu_milli // MILLI}} if node.gpu_milli else {}
    links = {"nvLinkDomainUid": domain, "nvLinkCliqueId": clique} if clique else {}
    return {
        "id": str(node.pk),
        "name": node.name,
        "status": node_status,
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
