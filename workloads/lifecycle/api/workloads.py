"""REST of workloads of every type: list, count, read, and act on several."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kit.api.lists import (
    PAGES,
    Column,
    KnownRows,
    KnownWords,
    as_number,
    as_time,
    as_uuid,
    filters,
    flag_in,
    ordering,
    part_of,
)
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import FILTERS, operation, validated_body
from portal.kit.errors import RungError
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from scheduling.model.preemptibility import Preemptibility
from tenants.access.selectors import (
    CLUSTER_ID,
    DEPARTMENT_ID,
    DEPARTMENT_NAME,
    POOL_NAME,
    PROJECT_ID,
    PROJECT_NAME,
)
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.forecast.selectors.accuracy import CALIBRATION_WEEKS, start_calibration
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.forecast.selectors.waiting import (
    holders,
    pool_rank,
    project_names,
    queue_rank,
    reported_at,
    why_waiting,
)
from workloads.forecast.serializers import (
    AlternativesSchema,
    WaitingSchema,
    alternatives_json,
    holder_json,
    next_pool_json,
    rank_json,
    start_estimate_json,
)
from workloads.forecast.services.start_estimates import shown_estimate
from workloads.lifecycle.serializers.workloads import (
    PENDING_REASONS,
    Batch,
    BatchResult,
    WorkloadSchema,
    WorkloadsSchema,
    ending_json,
    workload_json,
)
from workloads.lifecycle.services import actions
from workloads.state.models import Phase, Workload
from workloads.state.selectors.usage import with_costs
from workloads.state.selectors.workloads import (
    EVICTED,
    FAILED_TO_APPLY,
    visible_workloads,
    workload_ids,
    workload_or_404,
)

COLUMNS: Final = {
    "type": Column("type__name", known=KnownRows(lambda _actor: WorkloadType.objects.all())),
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
    "phase": Column("phase", known=KnownWords(Phase.values)),
    "nodepool": Column("pool_name", known=POOL_NAME),
    "allocatedGPU": Column("allocated_gpu_milli", as_number),
    "category": Column("classification", known=KnownRows(lambda _actor: Category.objects.all())),
    "priority": Column("priority_value", as_number),
    "priorityClassName": Column("priority__name", known=KnownRows(lambda _actor: Priority.objects.all())),
    "preemptibility": Column("preemptibility", known=KnownWords(list(Preemptibility))),
    "totalPendingTimeSeconds": Column("pending_seconds", as_number),
    "totalRunningTimeSeconds": Column("running_seconds", as_number),
}
WANTED: Final = [
    OpenApiParameter("deleted", bool, description="true: only deleted ones."),
    OpenApiParameter("failedToApply", bool, description="true: only workloads that can be retried (beyond Run:ai)."),
    OpenApiParameter("evicted", bool, description="true: only workloads that were evicted before (beyond Run:ai)."),
    OpenApiParameter("search", str, description="Part of a name."),
    *FILTERS,
]


class Workloads(Route):
    """Workloads of every type that the caller may see."""

    access = {"GET": RoutePermission()}

    @operation("get_workloads", "List workloads", WorkloadsSchema, parameters=[*PAGES, *WANTED])
    def get(self, request: Request) -> Response:
        """One page, newest first unless `sortBy` says otherwise."""
        order = ordering(request.query_params, COLUMNS, "-created_at")
        part = part_of(_wanted(request), request, order=order)
        return Response({"workloads": [workload_json(row) for row in with_costs(part.rows)], **part.ways_on})


class WorkloadDetail(Route):
    """A workload by id."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_workload", "Read a workload", WorkloadSchema)
    def get(self, request: Request, workload_id: str) -> Response:
        """The workload; 404 if it is absent or not yours."""
        workload = workload_or_404(actor_of(request), workload_id)
        with_costs([workload])
        return Response(workload_json(workload) | {"pendingSchedulingMessages": _why_pending(workload)})


def _why_pending(workload: Workload) -> list[dict[str, str]] | None:
    """As their model has it: for the two reasons that it knows. Of every other one `/waiting` has the sentence."""
    headline = why_waiting(workload) if workload.phase_reason in PENDING_REASONS else None
    if headline is None:
        return None
    reason, words = workload.phase_reason, headline.sentence
    return [{"nodePool": workload.pool_name, "phaseReason": reason, "reason": reason, "userMessage": words}]


class WorkloadAlternatives(Route):
    """What would let a waiting workload start at once."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation(
        "get_workload_alternatives",
        "What would let a waiting workload start",
        AlternativesSchema,
        description="Beyond Run:ai. As on its page: the scheduler's model with one thing of the workload changed.",
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """The changes, for who may change it; 404 if it is absent or not yours."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        found = waiting_alternatives(workload=workload, actor=actor)
        return Response(alternatives_json(workload.project.cluster, found))


class WorkloadWaiting(Route):
    """The wait of a workload: its places in queues, who holds the GPUs, and when it will probably start."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation(
        "get_workload_waiting",
        "Why a workload waits, and when it will probably start",
        WaitingSchema,
        description="Beyond Run:ai. The estimate takes up to 3 s, or a worker computes it (`computing`: ask again in "
        "a minute); the first one of each wait is kept and compared with the real start.",
    )
    def get(self, request: Request, workload_id: str) -> Response:
        """All of it as far as the caller may see; 404 if it is absent or not yours."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        cluster, headline = workload.project.cluster, why_waiting(workload)
        found, reported = shown_estimate(workload), headline.reported if headline else ""
        calibration = start_calibration(cluster, weeks=CALIBRATION_WEEKS).sentence
        return Response(
            {
                "sentence": headline.sentence if headline else "",
                "reason": headline.reason if headline else "",
                "schedulerMessage": reported,
                "schedulerMessageAt": rfc3339(reported_at(workload)) if reported else None,
                "nodePool": workload.pool_name,
                "projectQueue": rank_json(queue_rank(workload)),
                "poolQueue": rank_json(pool_rank(workload)),
                "holders": [holder_json(each) for each in holders(workload, actor)] if headline else [],
                "startEstimate": start_estimate_json(cluster, found, project_names(actor, cluster), calibration)
                if found
                else None,
                "nextPool": next_pool_json(found.move) if found else None,
            }
        )


def _wanted(request: Request) -> QuerySet[Workload]:
    query = request.query_params
    actor = actor_of(request)
    rows = visible_workloads(actor, deleted=flag_in(query, "deleted"))
    rows = rows.filter(filters(query.get("filterBy", ""), COLUMNS, actor))
    for name, condition in (("failedToApply", FAILED_TO_APPLY), ("evicted", EVICTED)):
        if flag_in(query, name):
            rows = rows.filter(condition)
    search = query.get("search", "").replace("\x00", "")
    return rows.filter(name__icontains=search) if search else rows


WorkloadCount = count_route(
    "count_workloads", "Count workloads", "The number of workloads the filter finds.", _wanted, parameters=WANTED
)


ACTIONS: Final[dict[str, Callable[..., Workload]]] = {
    "suspend": actions.stop,
    "resume": actions.resume,
    "retry": actions.retry,
    "delete": actions.delete,
}


ENDING: Final = {"suspend": "stop", "delete": "delete"}


class BatchAction(Route):
    """One action on up to a hundred workloads of any type."""

    access = {"POST": RoutePermission("manage_workload", "somewhere")}

    @operation("batch_workloads", "Suspend, resume, retry or delete several workloads", BatchResult, request=Batch)
    def post(self, request: Request) -> Response:
        """Each on its own: refusals are listed beside it, unknown ids included. What is met already succeeds.

        `retry` is beyond Run:ai: it hands workloads that failed to apply to their clusters again. So is `effects`: with
        `dryRun`, what a suspension or deletion would cost each.
        """
        wanted = validated_body(Batch, request.data)
        actor, done, failed = actor_of(request), [], []
        effects = _effects(request, wanted, actor)
        for workload_id in wanted["ids"]:
            refusal = _try(wanted["action"], workload_id, actor)
            if refusal is None:
                done.append(workload_id)
            else:
                failed.append({"id": workload_id, "code": refusal.status, "message": refusal.message})
        return Response({"id": str(uuid.uuid4()), "succeeded": done, "failed": failed, **effects})


def _effects(request: Request, wanted: Mapping[str, Any], actor: Actor) -> dict[str, Any]:
    """What each would lose, where a suspension or deletion is a dry run."""
    verb = ENDING.get(wanted["action"])
    if verb is None or not flag_in(request.query_params, "dryRun"):
        return {}
    ids = [str(each) for each in workload_ids(wanted["ids"])]
    found = actions.chosen(rows=visible_workloads(actor), ids=ids, verb=verb) if ids else []
    return {"effects": [ending_json(each) for each in actions.before_many(verb, found, actor)]}


def _try(action: str, workload_id: str, actor: Actor) -> RungError | None:
    try:
        ACTIONS[action](workload=workload_or_404(actor, workload_id), actor=actor)
    except RungError as refusal:
        return refusal
    return None
