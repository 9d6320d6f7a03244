"""Clusters as Run:ai's clients read, rename and leave them.

Rung reaches a cluster itself, with a credential; nothing runs there that would dial home. So a cluster is not made
empty and waited for: it is taken in with its connection.
"""

from typing import Any, Final
from uuid import UUID

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import Cluster
from clusters.services.estate import rename_cluster
from clusters.services.registration import register_cluster
from clusters.services.removing import leave_cluster
from portal.core.bodies import REFUSALS, AcceptedSchema, ErrorSchema, checked
from portal.core.errors import BadRequest, Refused
from portal.core.filtering import flag_in
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from tenants.api.cluster_shapes import clusters_json
from tenants.api.connecting import pointing_at_connection, source_in
from tenants.api.connection_schemas import NewCluster
from tenants.api.lookups import ADMIN, cluster_by_id, managed_cluster
from tenants.api.physical_schemas import ClusterChange, ClusterSchema
from tenants.permissions import Verb, require

ANSWERED: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
NEEDED: Final = (
    "Rung reaches a cluster itself and needs its address and a credential: a kubeconfig, or server, ca and token, "
    "here or on the page Clusters."
)
VERBOSITIES: Final = ("full", "metadata")
VERBOSITY: Final = OpenApiParameter("verbosity", str, enum=VERBOSITIES)


class Clusters(Route):
    """Every cluster."""

    access = {"GET": Rule(), "POST": Rule(Verb.MANAGE_CLUSTERS, "installation")}

    @extend_schema(
        operation_id="get_clusters",
        summary="List clusters",
        parameters=[VERBOSITY, OpenApiParameter("includeRequestedForDelete", bool)],
        responses={200: ClusterSchema(many=True), **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """By name; those that are being left only if asked for."""
        full = _is_full(request)
        rows = clusters_json(Cluster.objects.order_by("name"), full=full)
        if not flag_in(request.query_params, "includeRequestedForDelete"):
            rows = [row for row in rows if row["deleteRequestedAt"] is None]
        return Response(rows)

    @extend_schema(
        operation_id="create_cluster",
        summary="Connect a cluster",
        request=NewCluster,
        responses={201: ClusterSchema, 409: ErrorSchema, 422: ErrorSchema, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        """Beyond Run:ai it needs a kubeconfig, or server, CA and token; the cluster is asked before it is kept.

        It starts paused where Rung's account lacks rights there.
        """
        actor = actor_of(request)
        require(actor, Verb.MANAGE_CLUSTERS)
        body = checked(NewCluster, request.data)
        source = source_in(body)
        if source is None:
            raise Refused.at("/kubeconfig", "connection_needed", _(NEEDED))
        with pointing_at_connection(source):
            cluster, _report = register_cluster(name=body["name"], flavour=body["flavour"], source=source, actor=actor)
        return Response(clusters_json([cluster], full=True)[0], status=201)


class OneCluster(Route):
    """A cluster by id."""

    access = {"GET": Rule(at="cluster"), "PUT": ADMIN, "DELETE": ADMIN}

    @extend_schema(
        operation_id="get_cluster_by_uuid",
        summary="Read a cluster",
        parameters=[VERBOSITY],
        responses={200: ClusterSchema, **REFUSALS},
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """The cluster."""
        return Response(clusters_json([cluster_by_id(cluster_id)], full=_is_full(request))[0])

    @extend_schema(
        operation_id="update_cluster",
        summary="Rename a cluster",
        request=ClusterChange,
        responses={204: None, **ANSWERED},
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """Its name here; nothing changes in the cluster."""
        actor = actor_of(request)
        cluster = managed_cluster(request, cluster_id)
        body = checked(ClusterChange, request.data)
        rename_cluster(cluster=cluster, name=body["name"], actor=actor)
        return Response(status=204)

    @extend_schema(
        operation_id="delete_cluster",
        summary="Leave a cluster",
        parameters=[OpenApiParameter("force", bool, description="Forget it and leave there what Rung made.")],
        responses={202: AcceptedSchema, 204: None, **ANSWERED},
    )
    def delete(self, request: Request, cluster_id: UUID) -> Response:
        """First a worker deletes what Rung made there (202); asked again after that, the cluster is forgotten (204),
        unless Rung was let at it again meanwhile.

        409 while departments, projects or records name it. With `force` it is forgotten at once.
        """
        actor = actor_of(request)
        cluster, force = managed_cluster(request, cluster_id), flag_in(request.query_params, "force")
        if leave_cluster(cluster=cluster, actor=actor, force=force):
            return Response(status=204)
        return Response(_accepted(cluster), status=202)


def _accepted(cluster: Cluster) -> dict[str, Any]:
    text = _("A worker deletes what Rung made in %(name)s; delete it again when that is done to forget it.")
    return {"code": 202, "message": text % {"name": cluster.name}}


def _is_full(request: Request) -> bool:
    """Their client sends an enum's member by its name."""
    plain = request.query_params.get("verbosity", "").rpartition(".")[2].lower()
    if plain not in {"", *VERBOSITIES}:
        raise BadRequest.at("/verbosity", "out_of_range", "verbosity is full or metadata.", allowed=VERBOSITIES)
    return plain != "metadata"
