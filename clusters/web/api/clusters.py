"""REST of clusters: list, connect, change, disconnect, and how a cluster and its Prometheus are reached.

Rung reaches a cluster itself, with a credential; nothing runs there that would dial home. So a cluster is not made
empty and waited for: it is taken in with its connection.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.connection.models import METRIC, ClusterCredential, MetricsSource
from clusters.connection.rules.connection_form_data import FORM, ConnectionFormData
from clusters.connection.services.registration import (
    ConnectionSource,
    change_connection,
    no_connection,
    register_cluster,
    remove_metrics_source,
    set_metrics_source,
)
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import rename_cluster
from clusters.sync.services.disconnect import disconnect_cluster
from clusters.web.serializers.actions import (
    ClusterCreate,
    ConnectionSchema,
    ConnectionUpdate,
    ForecastAccuracySchema,
    ForecastWeekSchema,
    MetricsSourceChange,
    MetricsSourceSchema,
    MissedForecastSchema,
)
from clusters.web.serializers.inventory import ClusterSchema, ClusterUpdate, clusters_json, removals_requested
from portal.kit.api.lists import LARGEST_OFFSET, LARGEST_PAGE, PAGES, flag_in, number_in, part_of
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import (
    AcceptedSchema,
    map_pointers,
    operation,
    rendered,
    validated_body,
)
from portal.kit.errors import BadRequest, NotFound, ValidationFailed
from portal.kit.security.request_identity import actor_of
from tenants.access.rules import Permission
from tenants.access.selectors import require
from workloads.forecast.selectors.accuracy import (
    ForecastTally,
    MissedForecast,
    in_words,
    missed_forecasts,
    start_calibration,
    tallies,
    together,
)

ADMIN: Final = RoutePermission(Permission.MANAGE_CLUSTERS, "cluster")


def cluster_by_id(key: UUID) -> Cluster:
    """The cluster. Raises NotFound."""
    found = Cluster.objects.filter(pk=key).first()
    if found is None:
        raise NotFound
    return found


def managed_cluster(request: Request, key: UUID) -> Cluster:
    """The cluster, for who may manage it. Raises NotFound or Denied."""
    cluster = cluster_by_id(key)
    require(actor_of(request), Permission.MANAGE_CLUSTERS, cluster=cluster)
    return cluster


READ: Final = RoutePermission(Permission.MANAGE_CLUSTERS, "cluster", reads=True)
OWN: Final = ("/name", "/flavour", "/adopt")
"""Fields beside the connection."""
PARTS: Final = {pointer: "/tlsServerName" if pointer == "/tls_server_name" else pointer for pointer in FORM.values()}


def source_in(body: Mapping[str, Any]) -> ConnectionSource | None:
    """What a body says of a connection; None where it says nothing. Raises Refused for two ways at once."""
    kubeconfig, server = body.get("kubeconfig", ""), body.get("server", "")
    if kubeconfig and server:
        raise ValidationFailed.at(
            "/server", "two_ways", "Send a kubeconfig or the separate connection fields, not both."
        )
    if kubeconfig:
        return str(kubeconfig).encode("utf-8", "replace")
    if not server:
        return None
    parts = {name: body.get(name, "") for name in ("ca", "token")}
    name, insecure = body.get("tlsServerName", ""), body.get("insecure", False)
    return ConnectionFormData(server=server, tls_server_name=name, insecure=insecure, **parts)


@contextmanager
def pointing_at_connection(source: ConnectionSource) -> Iterator[None]:
    """A refusal points at the part that it is about; inside a kubeconfig its message names the place."""
    names = {each: each for each in OWN}
    with map_pointers(PARTS) if isinstance(source, ConnectionFormData) else map_pointers(names, else_at="/kubeconfig"):
        yield


class ClusterConnection(Route):
    """How one cluster is reached."""

    access = {"GET": READ, "PUT": ADMIN}

    @operation("get_cluster_connection", "Read a cluster's connection", ConnectionSchema, also=(409,))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Without any secret; 409 for a simulated cluster, which is reached without."""
        return Response(_connection_json(_stored(managed_cluster(request, cluster_id))))

    @operation("set_cluster_connection", "Change a cluster's connection", ConnectionSchema, request=ConnectionUpdate)
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """The cluster is asked who it is before anything is kept; 409 where another one answers."""
        cluster = managed_cluster(request, cluster_id)
        body = validated_body(ConnectionUpdate, request.data)
        _stored(cluster)
        source = source_in(body)
        if source is None:
            raise ValidationFailed.at("/server", "required", "Send a kubeconfig or the address of the API server.")
        with pointing_at_connection(source):
            row = change_connection(cluster=cluster, source=source, actor=actor_of(request), adopt=body["adopt"])
        return Response(_connection_json(row))


class ClusterMetricsSource(Route):
    """The Prometheus of one cluster."""

    access = {"GET": READ, "PUT": ADMIN, "DELETE": ADMIN}

    @operation("get_cluster_metrics_source", "Read a cluster's Prometheus settings", MetricsSourceSchema)
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """404 where none is named."""
        row = MetricsSource.objects.filter(cluster=managed_cluster(request, cluster_id)).first()
        if row is None:
            raise NotFound
        return Response(_metrics_json(row))

    @operation(
        "set_cluster_metrics_source",
        "Set a cluster's Prometheus",
        MetricsSourceSchema,
        request=MetricsSourceChange,
    )
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """It is asked once before it is kept."""
        cluster = managed_cluster(request, cluster_id)
        body = {"metric": METRIC, **validated_body(MetricsSourceChange, request.data)}
        return Response(_metrics_json(set_metrics_source(cluster=cluster, actor=actor_of(request), **body)))

    @operation("delete_cluster_metrics_source", "Remove a cluster's Prometheus", status=204)
    def delete(self, request: Request, cluster_id: UUID) -> Response:
        """Idle limits do not act on this cluster from now on; without one nothing happens."""
        remove_metrics_source(cluster=managed_cluster(request, cluster_id), actor=actor_of(request))
        return Response(status=204)


WEEKS: Final = OpenApiParameter("weeks", int, description="Newest weeks with forecasts, 1 to 52. Default 12.")


class ForecastAccuracy(Route):
    """What became of forecasts that were followed by a submission."""

    access = {"GET": READ}

    @operation(
        "get_cluster_forecast_accuracy",
        "Read how many forecasts held",
        ForecastAccuracySchema,
        description="Beyond Run:ai. Previews that were followed by the same submission, compared with what happened.",
        parameters=[WEEKS, *PAGES],
    )
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """By week and scheduler; of those that did not hold one page, newest first."""
        cluster = managed_cluster(request, cluster_id)
        weeks = number_in(request.query_params, "weeks", 12, 1, 52)
        found, starts = tallies(cluster, weeks=weeks), start_calibration(cluster, weeks=weeks)
        page = part_of(missed_forecasts(cluster), request, order="-at")
        return Response(
            {
                "sentence": together(found).sentence,
                "startEstimates": {
                    "judged": starts.judged,
                    "startedByMedianPercent": starts.median_percent,
                    "startedByP90Percent": starts.p90_percent,
                    "notJudged": starts.not_judged,
                    "sentence": starts.sentence,
                },
                "weeks": [_week_json(each) for each in found],
                "missed": [_missed_json(each) for each in in_words(page.rows, actor_of(request))],
                **page.ways_on,
            }
        )


def _week_json(tally: ForecastTally) -> dict[str, Any]:
    results = [
        {"result": result, "reason": why, "count": count} for (result, why), count in sorted(tally.counts.items())
    ]
    return rendered(ForecastWeekSchema, tally, results=results)


def _missed_json(each: MissedForecast) -> dict[str, Any]:
    ids = {"workloadId": each.workload, "overtakenById": each.overtaken_by}
    return rendered(MissedForecastSchema, each, **{name: str(row.pk) if row else None for name, row in ids.items()})


def _connection_json(row: ClusterCredential) -> dict[str, Any]:
    return rendered(ConnectionSchema, row, ownAuthority=bool(row.ca))


def _metrics_json(row: MetricsSource) -> dict[str, Any]:
    return rendered(MetricsSourceSchema, row, ownAuthority=bool(row.ca), hasToken=bool(row.sealed))


def _stored(cluster: Cluster) -> ClusterCredential:
    row = ClusterCredential.objects.filter(cluster=cluster).first()
    if row is None:
        raise no_connection(cluster)
    return row


NEEDED: Final = "Rung connects to clusters directly. Send a kubeconfig, or server, ca and token."
VERBOSITIES: Final = ("full", "metadata")
VERBOSITY: Final = OpenApiParameter("verbosity", str, enum=VERBOSITIES)
PART: Final = (
    OpenApiParameter("offset", int, description="Beyond Run:ai: how many clusters to leave out first."),
    OpenApiParameter("limit", int, description="Beyond Run:ai: 1 to 500 clusters; all without it."),
)


class Clusters(Route):
    """Every cluster."""

    access = {"GET": RoutePermission(), "POST": RoutePermission(Permission.MANAGE_CLUSTERS, "installation")}

    @operation(
        "get_clusters",
        "List clusters",
        ClusterSchema(many=True),
        parameters=[VERBOSITY, OpenApiParameter("includeRequestedForDelete", bool), *PART],
    )
    def get(self, request: Request) -> Response:
        """By name; those that are being left only if asked for. All of them, or the part that is asked for."""
        query, removals = request.query_params, removals_requested()
        clusters = Cluster.objects.order_by("name")
        if not flag_in(query, "includeRequestedForDelete"):
            clusters = clusters.exclude(pk__in=list(removals))
        first, size = number_in(query, "offset", 0, 0, LARGEST_OFFSET), number_in(query, "limit", 0, 1, LARGEST_PAGE)
        part = clusters[first : first + size if size else None]
        return Response(clusters_json(part, removals=removals, full=_is_full(request)))

    @operation("create_cluster", "Connect a cluster", ClusterSchema, 201, request=ClusterCreate)
    def post(self, request: Request) -> Response:
        """Beyond Run:ai it needs a kubeconfig, or server, CA and token; the cluster is asked before it is kept.

        It starts paused where Rung's account lacks rights there.
        """
        actor = actor_of(request)
        require(actor, Permission.MANAGE_CLUSTERS)
        body = validated_body(ClusterCreate, request.data)
        source = source_in(body)
        if source is None:
            raise ValidationFailed.at("/kubeconfig", "connection_needed", _(NEEDED))
        with pointing_at_connection(source):
            cluster, _report = register_cluster(name=body["name"], flavour=body["flavour"], source=source, actor=actor)
        return Response(_json(cluster, full=True), status=201)


class ClusterDetail(Route):
    """A cluster by id."""

    access = {"GET": RoutePermission(at="cluster"), "PUT": ADMIN, "DELETE": ADMIN}

    @operation("get_cluster_by_uuid", "Read a cluster", ClusterSchema, parameters=[VERBOSITY])
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """The cluster."""
        return Response(_json(cluster_by_id(cluster_id), full=_is_full(request)))

    @operation("update_cluster", "Rename a cluster", status=204, request=ClusterUpdate)
    def put(self, request: Request, cluster_id: UUID) -> Response:
        """Its name here; nothing changes in the cluster."""
        actor = actor_of(request)
        cluster = managed_cluster(request, cluster_id)
        body = validated_body(ClusterUpdate, request.data)
        rename_cluster(cluster=cluster, name=body["name"], actor=actor)
        return Response(status=204)

    @operation(
        "delete_cluster",
        "Leave a cluster",
        {202: AcceptedSchema, 204: None},
        parameters=[
            OpenApiParameter(
                "force", bool, description="Remove the cluster without deleting the objects that Rung created."
            )
        ],
    )
    def delete(self, request: Request, cluster_id: UUID) -> Response:
        """First a worker deletes what Rung made there (202); asked again after that, the cluster is forgotten (204),
        unless Rung was let at it again meanwhile.

        409 while departments, projects or records name it. With `force` it is forgotten at once.
        """
        actor = actor_of(request)
        cluster, force = managed_cluster(request, cluster_id), flag_in(request.query_params, "force")
        if disconnect_cluster(cluster=cluster, actor=actor, force=force):
            return Response(status=204)
        return Response(_accepted(cluster), status=202)


def _json(cluster: Cluster, *, full: bool) -> dict[str, Any]:
    return clusters_json([cluster], removals=removals_requested(), full=full)[0]


def _accepted(cluster: Cluster) -> dict[str, Any]:
    text = _("Deleting Rung's objects in %(name)s. Delete the cluster again when this has finished.")
    return {"code": 202, "message": text % {"name": cluster.name}}


def _is_full(request: Request) -> bool:
    """Their client sends an enum's member by its name."""
    plain = request.query_params.get("verbosity", "").rpartition(".")[2].lower()
    if plain not in {"", *VERBOSITIES}:
        raise BadRequest.at("/verbosity", "out_of_range", "verbosity must be full or metadata.", allowed=VERBOSITIES)
    return plain != "metadata"
