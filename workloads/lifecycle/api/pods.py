"""REST of pods, and of a workload's events, history and logs."""

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.watch.models import ClusterEvent, ObservedPod
from clusters.watch.rules import clean_message
from portal.kit.api.lists import (
    PAGES,
    Column,
    as_time,
    as_uuid,
    descending,
    filters,
    flag_in,
    number_in,
    ordering,
    part_of,
)
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, operation
from portal.kit.errors import BadRequest, NotFound
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import CLUSTER_ID, POOL_NAME
from workloads.lifecycle.selectors.workloads import homes_of, owners_of, visible_pods
from workloads.lifecycle.serializers.pods import (
    POD_ENDED,
    EventsSchema,
    HistorySchema,
    PodsSchema,
    event_json,
    pod_json,
    record_json,
)
from workloads.preemption.selectors import name_preemptors
from workloads.state.models import Workload
from workloads.state.selectors.workloads import (
    MOST_ENTRIES,
    containers_of,
    hidden_namespaces,
    logs,
    pods_of,
    quietly,
    workload_or_404,
)

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
    OpenApiParameter("deleted", bool, description="true: only pods that no longer exist."),
    *PAGES,
    OpenApiParameter("search", str, description="Part of the name."),
]
COMPLETED: Final = {"true": True, "false": False, "all": None, "": None}
VERBOSITIES: Final = frozenset({"", "brief", "full"})


class WorkloadPods(Route):
    """Pods of one workload."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_workload_pods", "List the pods of a workload", PodsSchema, parameters=PAGING)
    def get(self, request: Request, workload_id: str) -> Response:
        """One page, newest first."""
        workload = workload_or_404(actor_of(request), workload_id)
        rows = ObservedPod.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
        return _page(_searched(rows, request), request)


class Pods(Route):
    """Pods of every workload that the caller may see."""

    access = {"GET": RoutePermission()}

    @operation(
        "list_pods",
        "List pods",
        PodsSchema,
        parameters=[
            *PAGING,
            *FILTERS,
            OpenApiParameter("completed", str, enum=["true", "false", "all"]),
            OpenApiParameter("verbosity", str, enum=["brief", "full"]),
        ],
    )
    def get(self, request: Request) -> Response:
        """One page, newest first unless `sortBy` says otherwise."""
        return _page(_wanted(request), request)


def _wanted(request: Request) -> QuerySet[ObservedPod]:
    query = request.query_params
    actor = actor_of(request)
    rows = _searched(visible_pods(actor), request).filter(filters(query.get("filterBy", ""), COLUMNS, actor))
    completed = COMPLETED.get(requested := query.get("completed", "").lower(), requested)
    if isinstance(completed, str):
        raise BadRequest.at("/completed", "out_of_range", "completed is true, false or all.", allowed=COMPLETED)
    if completed is None:
        return rows
    return rows.filter(phase__in=POD_ENDED) if completed else rows.exclude(phase__in=POD_ENDED)


PodCount = count_route(
    "count_pods", "Count pods", "The number of pods the filter finds.", _wanted, parameters=[*PAGING, *FILTERS]
)


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


def _is_full(requested: str) -> bool:
    """Their client sends an enum's member by its name: `Verbosity.FULL`."""
    plain = requested.rpartition(".")[2].lower()
    if plain not in VERBOSITIES:
        raise BadRequest.at("/verbosity", "out_of_range", "verbosity is brief or full.", allowed=("brief", "full"))
    return plain == "full"


ORDER = OpenApiParameter("sortOrder", str, enum=["asc", "desc"])


class Events(Route):
    """Kubernetes events about its objects, also those that the API server has forgotten."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_workload_events", "List a workload's events", EventsSchema, parameters=[*PAGES, ORDER])
    def get(self, request: Request, workload_id: str) -> Response:
        """One page, newest first unless asked otherwise. Names of projects that are not yours are left out."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        order = "-at" if descending(request.query_params) else "at"
        part = part_of(_events_of(workload), request, order=order)
        hidden = hidden_namespaces(workload, actor)
        for event in part.rows:
            event.message = quietly(clean_message(event.message), hidden)
        return Response({"events": [event_json(event) for event in part.rows], **part.ways_on})


class History(Route):
    """The workload's own timeline: phases, actions, preemptions."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_workload_history", "List a workload's history", HistorySchema, parameters=PAGES)
    def get(self, request: Request, workload_id: str) -> Response:
        """One page, newest first. Names of projects that are not yours are left out."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        part = part_of(workload.timeline.all(), request, order="-at")
        name_preemptors(part.rows, actor)
        hidden = hidden_namespaces(workload, actor)
        for entry in part.rows:
            entry.message = quietly(clean_message(entry.message), hidden)
        return Response({"records": [record_json(entry, workload) for entry in part.rows], **part.ways_on})


def _events_of(workload: Workload) -> QuerySet[ClusterEvent]:
    return ClusterEvent.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)


LINES: Final = 200
MOST_LINES: Final = 3000


class PodLogSchema(serializers.Serializer[Any]):
    """The last lines, oldest first. `pod` is null while the workload has no pod."""

    pod = serializers.CharField(allow_null=True)
    container = serializers.CharField(allow_blank=True)
    pods = serializers.ListField(
        child=serializers.CharField(), help_text=f"Pods, newest first, at most {MOST_ENTRIES}."
    )
    containers = serializers.ListField(child=serializers.CharField())
    lines = serializers.ListField(child=serializers.CharField(allow_blank=True))
    cut = serializers.BooleanField(help_text="More lines exist before these.")
    trouble = serializers.CharField(allow_blank=True, help_text="Why no logs are available.")


class Logs(Route):
    """What one container of a workload said."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation(
        "get_workload_logs",
        "Read the last log lines of a workload",
        PodLogSchema,
        description="Beyond Run:ai. At most 400,000 characters, without escape sequences and control characters.",
        parameters=[
            OpenApiParameter("pod", str, description="Pod name; default: the newest pod."),
            OpenApiParameter("container", str, description="Default: the first container."),
            OpenApiParameter("lines", int, description=f"1 to {MOST_LINES}; default: {LINES}."),
        ],
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """The lines, or the trouble; 404 for a workload, pod or container that is not there."""
        workload = workload_or_404(actor_of(request), workload_id)
        query = request.query_params
        lines = number_in(query, "lines", LINES, 1, MOST_LINES)
        pods = {pod.name: pod for pod in pods_of(workload)}
        pod = _chosen(pods, query.get("pod", ""))
        if pod is None:
            return Response({**_NOTHING, "pods": []})
        return Response(_log_lines(workload, pod, query.get("container", ""), lines) | {"pods": list(pods)})


def _chosen(pods: dict[str, ObservedPod], wanted: str) -> ObservedPod | None:
    if not wanted:
        return next(iter(pods.values()), None)
    if wanted not in pods:
        raise NotFound(f"This workload has no pod {wanted[:80]!r}.")
    return pods[wanted]


def _log_lines(workload: Workload, pod: ObservedPod, wanted: str, lines: int) -> dict[str, Any]:
    containers = containers_of(workload, pod)
    if wanted and wanted not in containers:
        raise NotFound(f"This pod has no container {wanted[:80]!r}.")
    container = wanted or next(iter(containers), "")
    text = logs(workload, pod.name, container=container if len(containers) > 1 else "", lines=lines)
    body = {"lines": list(text.lines), "cut": text.cut, "trouble": str(text.trouble)}
    return {"pod": pod.name, "container": container, "containers": containers, **body}


_NOTHING: Final[Mapping[str, Any]] = {
    "pod": None,
    "container": "",
    "containers": [],
    "lines": [],
    "cut": False,
    "trouble": "",
}
