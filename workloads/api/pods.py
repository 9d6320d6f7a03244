"""Reading pods: those of one workload, or of every workload that the caller may see."""

from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import ObservedPod
from portal.core.bodies import FILTERS, REFUSALS, CountSchema
from portal.core.errors import BadRequest
from portal.core.filtering import Column, as_time, as_uuid, filters, flag_in, ordering
from portal.core.http import actor_of
from portal.core.paging import PAGES, part_of
from portal.core.routes import Route, Rule
from tenants.api.known import CLUSTER_ID, POOL_NAME
from workloads.api.pod_shapes import ENDED, pod_json
from workloads.api.reading_schemas import PodsSchema
from workloads.selectors import workload_or_404
from workloads.selectors.pods import homes_of, owners_of, visible_pods

COLUMNS: Final = {
    "clusterId": Column("cluster_id", as_uuid, CLUSTER_ID),
    "workloadId": Column("owner_id"),
    "nodeName": Column("node_name"),
    "currentNodepool": Column("pool_name", known=POOL_NAME),
    "createdAt": Column("created_at", as_time),
    "completedAt": Column("ended_at", as_time),
    "deletedAt": Column("gone_at", as_time),
}
PAGING: Final = [
    OpenApiParameter("deleted", bool, description="true: only those that have left the cluster."),
    *PAGES,
    OpenApiParameter("search", str, description="Part of the name."),
]
COMPLETED: Final = {"true": True, "false": False, "all": None, "": None}
VERBOSITIES: Final = frozenset({"", "brief", "full"})


class WorkloadPods(Route):
    """Pods of one workload."""

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(
        operation_id="get_workload_pods",
        summary="List the pods of a workload",
        parameters=PAGING,
        responses={200: PodsSchema, **REFUSALS},
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """One page, newest first."""
        workload = workload_or_404(actor_of(request), workload_id)
        rows = ObservedPod.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
        return _page(_searched(rows, request), request)


class Pods(Route):
    """Pods of every workload that the caller may see."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="list_pods",
        summary="List pods",
        parameters=[
            *PAGING,
            *FILTERS,
            OpenApiParameter("completed", str, enum=["true", "false", "all"]),
            OpenApiParameter("verbosity", str, enum=["brief", "full"]),
        ],
        responses={200: PodsSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """One page, newest first unless `sortBy` says otherwise."""
        return _page(_wanted(request), request)


class PodCount(Route):
    """How many the same filter finds."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="count_pods",
        summary="Count pods",
        parameters=[*PAGING, *FILTERS],
        responses={200: CountSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """The number of pods the filter finds."""
        return Response({"count": _wanted(request).count()})


def _wanted(request: Request) -> QuerySet[ObservedPod]:
    query = request.query_params
    actor = actor_of(request)
    rows = _searched(visible_pods(actor), request).filter(filters(query.get("filterBy", ""), COLUMNS, actor))
    completed = COMPLETED.get(asked := query.get("completed", "").lower(), asked)
    if isinstance(completed, str):
        raise BadRequest.at("/completed", "out_of_range", "completed is true, false or all.", allowed=COMPLETED)
    if completed is None:
        return rows
    return rows.filter(phase__in=ENDED) if completed else rows.exclude(phase__in=ENDED)


def _searched(rows: QuerySet[ObservedPod], request: Request) -> QuerySet[ObservedPod]:
    query = request.query_params
    rows = rows.filter(gone_at__isnull=not flag_in(query, "deleted"))
    search = query.get("search", "").replace("\x00", "")
    return rows.filter(name__icontains=search) if search else rows


def _page(rows: QuerySet[ObservedPod], request: Request) -> Response:
    query = request.query_params
    part = part_of(rows, request, order=ordering(query, COLUMNS, "-created_at"))
    projects, workloads = homes_of(part.rows), owners_of(part.rows)
    full = _is_full(query.get("verbosity", ""))
    pods: list[dict[str, Any]] = [
        pod_json(pod, workloads.get(pod.owner_id), projects[pod.cluster_id, pod.namespace], full=full)
        for pod in part.rows
    ]
    return Response({"pods": pods, **part.ways_on})


def _is_full(asked: str) -> bool:
    """Their client sends an enum's member by its name: `Verbosity.FULL`."""
    plain = asked.rpartition(".")[2].lower()
    if plain not in VERBOSITIES:
        raise BadRequest.at("/verbosity", "out_of_range", "verbosity is brief or full.", allowed=("brief", "full"))
    return plain == "full"
