"""REST of workloads of every type: list, count, read, act on several, and follow one as events."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.watch.rules import clean_message
from portal.kit.api.event_stream import OpenStreams, end, frame, stream
from portal.kit.api.filters import (
    Column,
    KnownRows,
    KnownWords,
    as_number,
    as_time,
    as_uuid,
    filters,
    flag_in,
    id_number,
    ordering,
)
from portal.kit.api.pagination import PAGES, part_of
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission, count_route
from portal.kit.api.serializers import ERROR_RESPONSES, FILTERS, ErrorSchema, operation, validated_body
from portal.kit.errors import BadRequest, RungError, TooManyRequests
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.api.filter_values import (
    CLUSTER_ID,
    DEPARTMENT_ID,
    DEPARTMENT_NAME,
    POOL_NAME,
    PROJECT_ID,
    PROJECT_NAME,
)
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.forecast.selectors.waiting import why_waiting
from workloads.forecast.serializers import AlternativesSchema, alternatives_json
from workloads.lifecycle.serializers.pods import StreamEventSchema
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
from workloads.state.models import Phase, Workload, WorkloadEvent
from workloads.state.selectors.timeline import (
    CurrentPhase,
    current_phase,
    entries_after,
    hidden_namespaces,
    newest_entry,
    quietly,
)
from workloads.state.selectors.workloads import FAILED_TO_APPLY, visible_workloads, workload_ids, workload_or_404

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
    "totalPendingTimeSeconds": Column("pending_seconds", as_number),
    "totalRunningTimeSeconds": Column("running_seconds", as_number),
}
WANTED: Final = [
    OpenApiParameter("deleted", bool, description="true: only deleted ones."),
    OpenApiParameter("failedToApply", bool, description="true: only workloads that can be retried (beyond Run:ai)."),
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
        return Response({"workloads": [workload_json(row) for row in part.rows], **part.ways_on})


class WorkloadDetail(Route):
    """A workload by id."""

    access = {"GET": RoutePermission("view_project", "project")}

    @operation("get_workload", "Read a workload", WorkloadSchema)
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


def _wanted(request: Request) -> QuerySet[Workload]:
    query = request.query_params
    actor = actor_of(request)
    rows = visible_workloads(actor, deleted=flag_in(query, "deleted"))
    rows = rows.filter(filters(query.get("filterBy", ""), COLUMNS, actor))
    if flag_in(query, "failedToApply"):
        rows = rows.filter(FAILED_TO_APPLY)
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
    """What each would lose, where a suspension or deletion is only rehearsed."""
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


SINCE: Final = OpenApiParameter(
    "Last-Event-ID",
    str,
    OpenApiParameter.HEADER,
    description="The last `id` you received; the stream continues after it.",
)
DESCRIPTION: Final = """Beyond Run:ai. `text/event-stream` from the moment you ask:

- `phase`: `{phase, phaseReason, phaseMessage, phaseUpdatedAt}`, first as it is, then at every change
- `timeline`: `{at, type, phase, reason, message, actor}`, every new entry of the history
- `end`: `{reason}`, the last event: `ended` (Completed or Failed), `deleted`, `access` (your token or your right is
  gone), `again` (come back: a stream lasts an hour at most)

A comment every 10 seconds shows that it lives; at each of them token and rights are looked at anew, so a stream closes
within 15 seconds once they are gone. `Last-Event-ID` goes on where you were. Ten streams of one subject may be open in
each server process; one more is 429."""
OPEN: Final = OpenStreams()


class WorkloadStream(Route):
    """What happens to a workload, while it happens."""

    access = {"GET": RoutePermission("view_project", "project")}

    @extend_schema(
        operation_id="stream_workload",
        summary="Stream a workload's changes",
        description=DESCRIPTION,
        parameters=[SINCE],
        responses={
            (200, "text/event-stream"): OpenApiResponse(
                StreamEventSchema, description="One event of the stream; `end` is the last."
            ),
            429: ErrorSchema,
            **ERROR_RESPONSES,
        },
    )
    def get(self, request: Request, workload_id: str) -> Any:
        """Events, until `end`."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        life = StreamReader(self, request, workload, since=_since(request, workload))
        reader = f"{actor.kind}:{actor.id}"
        if not OPEN.take(reader):
            raise TooManyRequests(_("You have too many open streams. Close one."), retry_after=10)
        return stream(request._request, life, lambda: OPEN.give_back(reader))  # DRF's own way to it


class StreamReader:
    """One reader's stream of one workload."""

    def __init__(self, view: WorkloadStream, request: Request, workload: Workload, *, since: int) -> None:
        self._view, self._request, self._id, self._last = view, request, workload.pk, since
        self._hidden = hidden_namespaces(workload, actor_of(request))
        self._standing: CurrentPhase | None = None

    def read(self) -> tuple[str, bool]:
        """New entries, then the phase where it has changed, then the end: where it is over and all has been told.

        Where it stands is read first: what is over then has had its last entry written.
        """
        standing = current_phase(self._id)
        entries, told = entries_after(self._id, self._last)
        frames = [self._entry(entry) for entry in entries]
        if standing is not None and standing != self._standing:
            self._standing = standing
            frames.append(frame("phase", _phase(standing, self._quietly(standing.message)), key=str(self._last)))
        over = standing.over if standing is not None else "deleted"
        if over and told:
            frames.append(end(over))
        return "".join(frames), bool(over and told)

    def still_allowed(self) -> bool:
        """Everything a new request would have to pass: token, subject, limits, the right to see it."""
        try:
            request = self._view.initialize_request(self._request._request)  # as the first time
            self._view.initial(request)
            actor = actor_of(request)
            workload = workload_or_404(actor, self._id)
        except (RungError, APIException):
            return False
        self._hidden = hidden_namespaces(workload, actor)
        return True

    def _entry(self, entry: WorkloadEvent) -> str:
        self._last = entry.pk
        told = {
            "at": rfc3339(entry.at),
            "type": entry.type,
            "phase": entry.phase,
            "reason": entry.reason,
            "message": self._quietly(entry.message),
            "actor": entry.actor,
        }
        return frame("timeline", told, key=str(entry.pk))

    def _quietly(self, text: str) -> str:
        return quietly(clean_message(text), self._hidden)


def _phase(standing: CurrentPhase, message: str) -> dict[str, str | None]:
    return {
        "phase": standing.phase,
        "phaseReason": standing.reason,
        "phaseMessage": message,
        "phaseUpdatedAt": rfc3339(standing.at),
    }


def _since(request: Request, workload: Workload) -> int:
    """From now on, or after the entry the reader has seen last. One that is not there yet hides nothing."""
    newest, said = newest_entry(workload.pk), request.headers.get("Last-Event-ID", "")
    if not said:
        return newest
    entry = id_number(said)
    if entry is None:
        raise BadRequest.at("/Last-Event-ID", "bad_event_id", _("Not an event id."))
    return min(entry, newest)
