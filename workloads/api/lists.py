"""Reading workloads of every type: list, count, one."""

from typing import Final

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.core.bodies import FILTERS, REFUSALS, CountSchema
from portal.core.filtering import Column, Known, Words, as_number, as_time, as_uuid, filters, flag_in, ordering
from portal.core.http import actor_of
from portal.core.paging import PAGES, part_of
from portal.core.routes import Route, Rule
from tenants.api.known import CLUSTER_ID, DEPARTMENT_ID, DEPARTMENT_NAME, POOL_NAME, PROJECT_ID, PROJECT_NAME
from workloads.api.schemas import WorkloadSchema, WorkloadsSchema
from workloads.api.shapes import PENDING_REASONS, workload_json
from workloads.apply_failures import FAILED_TO_APPLY
from workloads.models import Category, Phase, Priority, Workload, WorkloadType
from workloads.selectors import visible_workloads, workload_or_404
from workloads.selectors.waiting import why_waiting

COLUMNS: Final = {
    "type": Column("type__name", known=Known(lambda _actor: WorkloadType.objects.all())),
    "name": Column("name"),
    "clusterId": Column("project__cluster_id", as_uuid, CLUSTER_ID),
    "projectId": Column("project_id", as_number, PROJECT_ID),
    "projectName": Column("project__name", known=PROJECT_NAME),
    "departmentId": Column("project__department_id", as_number, DEPARTMENT_ID),
    "departmentName": Column("project__department__name", known=DEPARTMENT_NAME),
    "createdAt": Column("created_at", as_time),
    "deletedAt": Column("deleted_at", as_time),
    "completedAt": Column("completed_at", as_time),
    "phaseUpdatedAt": Column("phase_at", as_time),
    "submittedBy": Column("submitted_by"),
    "phase": Column("phase", known=Words(Phase.values)),
    "nodepool": Column("pool_name", known=POOL_NAME),
    "allocatedGPU": Column("allocated_gpu_milli", as_number),
    "category": Column("category", known=Known(lambda _actor: Category.objects.all())),
    "priority": Column("priority_value", as_number),
    "priorityClassName": Column("priority__name", known=Known(lambda _actor: Priority.objects.all())),
    "totalPendingTimeSeconds": Column("pending_seconds", as_number),
    "totalRunningTimeSeconds": Column("running_seconds", as_number),
}
WANTED: Final = [
    OpenApiParameter("deleted", bool, description="true: only deleted ones."),
    OpenApiParameter("failedToApply", bool, description="true: only those that can be retried (beyond Run:ai)."),
    OpenApiParameter("search", str, description="Part of a name."),
    *FILTERS,
]


class Workloads(Route):
    """Workloads of every type that the caller may see."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="get_workloads",
        summary="List workloads",
        parameters=[*PAGES, *WANTED],
        responses={200: WorkloadsSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """One page, newest first unless `sortBy` says otherwise."""
        order = ordering(request.query_params, COLUMNS, "-created_at")
        part = part_of(_wanted(request), request, order=order)
        return Response({"workloads": [workload_json(row) for row in part.rows], **part.ways_on})


class WorkloadCount(Route):
    """How many the same filter finds."""

    access = {"GET": Rule()}

    @extend_schema(
        operation_id="count_workloads",
        summary="Count workloads",
        parameters=WANTED,
        responses={200: CountSchema, **REFUSALS},
    )
    def get(self, request: Request) -> Response:
        """The number of workloads the filter finds."""
        return Response({"count": _wanted(request).count()})


class OneWorkload(Route):
    """A workload by id."""

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(operation_id="get_workload", summary="Read a workload", responses={200: WorkloadSchema, **REFUSALS})
    def get(self, request: Request, workload_id: str) -> Response:
        """The workload; 404 if it is absent or not yours."""
        workload = workload_or_404(actor_of(request), workload_id)
        return Response(workload_json(workload) | {"pendingSchedulingMessages": _why_pending(workload)})


def _why_pending(workload: Workload) -> list[dict[str, str]] | None:
    """As their model has it: for the two reasons that it knows. Every other reason stands in `phaseMessage`."""
    headline = why_waiting(workload) if workload.phase_reason in PENDING_REASONS else None
    if headline is None:
        return None
    reason, words = workload.phase_reason, headline.sentence
    return [{"nodePool": workload.pool_name, "phaseReason": reason, "reason": reason, "userMessage": words}]


def _wanted(request: Request) -> QuerySet[Workload]:
    query = request.query_params
    actor = actor_of(request)
    rows = visible_workloads(actor, deleted=flag_in(query, "deleted"))
    rows = rows.filter(filters(query.get("filterBy", ""), COLUMNS, actor))
    if flag_in(query, "failedToApply"):
        rows = rows.filter(FAILED_TO_APPLY)
    search = query.get("search", "").replace("\x00", "")
    return rows.filter(name__icontains=search) if search else rows
