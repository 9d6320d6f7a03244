"""How a cluster, and its Prometheus, are reached: beyond Run:ai. Secrets go in and never come out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.entered import FORM, Entered
from clusters.models import Cluster, ClusterCredential, MetricsSource
from clusters.models.gpu_use import METRIC
from clusters.services.metrics_source import remove_metrics_source, set_metrics_source
from clusters.services.registration import Source, change_connection, no_connection
from portal.core.bodies import REFUSALS, ErrorSchema, checked, pointing
from portal.core.errors import Absent, Refused
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from portal.core.wire import stamp
from tenants.api.connection_schemas import ConnectionSchema, MetricsSourceChange, MetricsSourceSchema, Reconnection
from tenants.api.lookups import ADMIN, managed_cluster
from tenants.permissions import Verb

READ: Final = Rule(Verb.MANAGE_CLUSTERS, "cluster", reads=True)
ANSWERED: Final = {409: ErrorSchema, 422: ErrorSchema, **REFUSALS}
OWN: Final = ("/name", "/flavour", "/adopt")
"""Fields beside the connection."""
PARTS: Final = {pointer: "/tlsServerName" if pointer == "/tls_server_name" else pointer for pointer in FORM.values()}


def source_in(body: Mapping[str, Any]) -> Source | None:
    """What a body says of a connection; None where it says nothing. Raises Refused for two ways at once."""
    kubeconfig, server = body.get("kubeconfig", ""), body.get("server", "")
    if kubeconfig and server:
        raise Refused.at("/server", "two_ways", "Give a kubeconfig or the parts of a connection, not both.")
    if kubeconfig:
        return str(kubeconfig).encode("utf-8", "replace")
    if not server:
        return None
    parts = {name: body.get(name, "") for name in ("ca", "token")}
    name, insecure = body.get("tlsServerName", ""), body.get("insecure", False)
    return Entered(server=server, tls_server_name=name, insecure=insecure, **parts)


@contextmanager
def pointing_at_connection(source: Source) -> Iterator[None]:
    """A refusal points at the part that it is about; inside a kubeconfig its message names the place."""
    names = {each: each for each in OWN}
    with pointing(PARTS) if isinstance(source, Entered) else pointing(names, else_at="/kubeconfig"):
        yield


class ClusterConnection(Route):
    """How one cluster is reached."""

    access = {"GET": READ, "PUT": ADMIN}

    @extend_schema(
        operation_id="get_cluster_connection",
        summary="Read how a cluster is reached",
        responses={200: ConnectionSchema, 409: ErrorSchema, **REFUSALS},
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Without any secret; 409 for a simulated cluster, which is reached without."""
        return Response(_connection_json(_stored(managed_cluster(request, cluster_id))))

    @extend_schema(
        operation_id="set_cluster_connection",
        summary="Reach a cluster another way",
        request=Reconnection,
        responses={200: ConnectionSchema, **ANSWERED},
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """The cluster is asked who it is before anything is kept; 409 where another one answers."""
        cluster = managed_cluster(request, cluster_id)
        body = checked(Reconnection, request.data)
        _stored(cluster)
        source = source_in(body)
        if source is None:
            raise Refused.at("/server", "required", "A kubeconfig or the address of the API server is needed.")
        with pointing_at_connection(source):
            row = change_connection(cluster=cluster, source=source, actor=actor_of(request), adopt=body["adopt"])
        return Response(_connection_json(row))


class ClusterMetricsSource(Route):
    """The Prometheus of one cluster."""

    access = {"GET": READ, "PUT": ADMIN, "DELETE": ADMIN}

    @extend_schema(
        operation_id="get_cluster_metrics_source",
        summary="Read where a cluster's Prometheus is",
        responses={200: MetricsSourceSchema, **REFUSALS},
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """404 where none is named."""
        row = MetricsSource.objects.filter(cluster=managed_cluster(request, cluster_id)).first()
        if row is None:
            raise Absent
        return Response(_metrics_json(row))

    @extend_schema(
        operation_id="set_cluster_metrics_source",
        summary="Say where a cluster's Prometheus is",
        request=MetricsSourceChange,
        responses={200: MetricsSourceSchema, **ANSWERED},
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """It is asked once before it is kept."""
        cluster = managed_cluster(request, cluster_id)
        body = {"metric": METRIC, **checked(MetricsSourceChange, request.data)}
        return Response(_metrics_json(set_metrics_source(cluster=cluster, actor=actor_of(request), **body)))

    @extend_schema(
        operation_id="delete_cluster_metrics_source",
        summary="Ask a cluster's Prometheus no more",
        responses={204: None, **ANSWERED},
    )
    def delete(self, request: Request, cluster_id: UUID) -> Response:
        """Idle limits do not act on this cluster from now on; without one nothing happens."""
        remove_metrics_source(cluster=managed_cluster(request, cluster_id), actor=actor_of(request))
        return Response(status=204)


def _stored(cluster: Cluster) -> ClusterCredential:
    row = ClusterCredential.objects.filter(cluster=cluster).first()
    if row is None:
        raise no_connection(cluster)
    return row


def _connection_json(row: ClusterCredential) -> dict[str, Any]:
    return {
        "server": row.server,
        "tlsServerName": row.tls_server_name,
        "ownAuthority": bool(row.ca),
        "insecure": row.insecure,
        "kind": row.kind,
        "expiresAt": stamp(row.expires_at),
        "changedAt": stamp(row.changed_at),
    }


def _metrics_json(row: MetricsSource) -> dict[str, Any]:
    return {
        "server": row.server,
        "ownAuthority": bool(row.ca),
        "metric": row.metric,
        "hasToken": bool(row.sealed),
        "readAt": stamp(row.read_at),
        "pods": row.pods,
        "error": row.error,
    }
