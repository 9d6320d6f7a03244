"""What happened to a workload: events that its cluster reported, and the history that Rung keeps."""

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.logtext import clean_message
from clusters.models import ClusterEvent
from portal.core.bodies import REFUSALS
from portal.core.filtering import descending
from portal.core.http import actor_of
from portal.core.paging import PAGES, part_of
from portal.core.routes import Route, Rule
from workloads.api.pod_shapes import event_json, record_json
from workloads.api.reading_schemas import EventsSchema, HistorySchema
from workloads.models import Workload
from workloads.selectors import workload_or_404
from workloads.selectors.history import hidden_namespaces, quietly

ORDER = OpenApiParameter("sortOrder", str, enum=["asc", "desc"])


class Events(Route):
    """Kubernetes events about its objects, also those that the API server has forgotten."""

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(
        operation_id="get_workload_events",
        summary="List a workload's events",
        parameters=[*PAGES, ORDER],
        responses={200: EventsSchema, **REFUSALS},
    )
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

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(
        operation_id="get_workload_history",
        summary="List a workload's history",
        parameters=PAGES,
        responses={200: HistorySchema, **REFUSALS},
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """One page, newest first. Names of projects that are not yours are left out."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        part = part_of(workload.timeline.all(), request, order="-at")
        hidden = hidden_namespaces(workload, actor)
        for entry in part.rows:
            entry.message = quietly(clean_message(entry.message), hidden)
        return Response({"records": [record_json(entry, workload) for entry in part.rows], **part.ways_on})


def _events_of(workload: Workload) -> QuerySet[ClusterEvent]:
    return ClusterEvent.objects.filter(owner_id=str(workload.pk), cluster=workload.project.cluster_id)
