"""REST of streams: one workload while it happens, and the change feed of all that the caller may see."""

import time
from typing import Any, Final
from uuid import UUID

from django.db.models import Q
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from clusters.watch.rules import clean_message
from portal.kit.api.event_stream import EventSource, OpenStreams, end, frame, stream
from portal.kit.api.lists import Column, Columns, KnownWords, as_number, as_time, as_uuid, filters, id_number
from portal.kit.api.parsers import rfc3339
from portal.kit.api.routes import Route, RoutePermission
from portal.kit.api.serializers import ERROR_RESPONSES, ErrorSchema
from portal.kit.errors import BadRequest, RungError, TooManyRequests
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of
from tenants.access.selectors import (
    CLUSTER_ID,
    DEPARTMENT_ID,
    DEPARTMENT_NAME,
    PROJECT_ID,
    PROJECT_NAME,
)
from workloads.lifecycle.serializers.pods import ChangeEventSchema, StreamEventSchema
from workloads.state.models import EventType, Phase, Workload, WorkloadEvent
from workloads.state.selectors.workloads import (
    CurrentPhase,
    change_json,
    changes_after,
    current_phase,
    entries_after,
    feed_end,
    hidden_namespaces,
    is_in_feed,
    newest_entry,
    quietly,
    workload_or_404,
)
from workloads.state.services import place_events

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

A comment every 10 seconds shows that it lives; at each of them token and permissions are checked again, so a stream
closes within 15 seconds once they are gone. `Last-Event-ID` goes on where you were. Ten streams of one subject
may be open in each server process; one more is 429."""
OPEN: Final = OpenStreams()


def _opened(request: Request, source: EventSource) -> HttpResponseBase:
    """The stream. Raises TooManyRequests where the caller has too many of them."""
    actor = actor_of(request)
    reader = f"{actor.kind}:{actor.id}"
    if not OPEN.take(reader):
        raise TooManyRequests(_("You have too many open streams. Close one."), retry_after=10)
    return stream(request._request, source, lambda: OPEN.refund_try(reader))  # DRF's own way to it


def _admitted(view: Route, request: Request) -> Actor:
    """The caller, by everything that a new request would have to pass. Raises what that request would be answered."""
    again = view.initialize_request(request._request)  # as the first time
    view.initial(again)
    return actor_of(again)


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
        workload = workload_or_404(actor_of(request), workload_id)
        return _opened(request, StreamReader(self, request, workload, since=_since(request, workload)))


class StreamReader:
    """One reader's stream of one workload."""

    def __init__(self, view: WorkloadStream, request: Request, workload: Workload, *, since: int) -> None:
        self._view, self._request, self._id, self._last = view, request, workload.pk, since
        self._hidden = hidden_namespaces(workload, actor_of(request))
        self._current: CurrentPhase | None = None

    def read(self) -> tuple[str, bool]:
        """New entries, then the phase if it changed, then the end if the workload ended and every entry was sent.

        The phase is read first: the last entry of a workload that has ended by then is already written.
        """
        current = current_phase(self._id)
        entries, complete = entries_after(self._id, self._last)
        frames = [self._entry(entry) for entry in entries]
        if current is not None and current != self._current:
            self._current = current
            frames.append(frame("phase", _phase(current, self._quietly(current.message)), key=str(self._last)))
        over = current.over if current is not None else "deleted"
        if over and complete:
            frames.append(end(over))
        return "".join(frames), bool(over and complete)

    def still_allowed(self) -> bool:
        """Everything a new request would have to pass: token, subject, limits, the right to see it."""
        try:
            actor = _admitted(self._view, self._request)
            workload = workload_or_404(actor, self._id)
        except (RungError, APIException):
            return False
        self._hidden = hidden_namespaces(workload, actor)
        return True

    def _entry(self, entry: WorkloadEvent) -> str:
        self._last = entry.pk
        data = {
            "at": rfc3339(entry.at),
            "type": entry.type,
            "phase": entry.phase,
            "reason": entry.reason,
            "message": self._quietly(entry.message),
            "actor": entry.actor,
        }
        return frame("timeline", data, key=str(entry.pk))

    def _quietly(self, text: str) -> str:
        return quietly(clean_message(text), self._hidden)


def _phase(current: CurrentPhase, message: str) -> dict[str, str | None]:
    return {
        "phase": current.phase,
        "phaseReason": current.reason,
        "phaseMessage": message,
        "phaseUpdatedAt": rfc3339(current.at),
    }


def _since(request: Request, workload: Workload) -> int:
    """From now on, or after the entry the reader has seen last. One that is not there yet hides nothing."""
    newest, entry = newest_entry(workload.pk), _last_event_id(request)
    return newest if entry is None else min(entry, newest)


def _last_event_id(request: Request) -> int | None:
    """The number in `Last-Event-ID`; None without one."""
    last = request.headers.get("Last-Event-ID", "")
    entry = id_number(last) if last else None
    if last and entry is None:
        raise BadRequest.at("/Last-Event-ID", "bad_event_id", _("Not an event id."))
    return entry


FEED: Final = """Beyond Run:ai. `text/event-stream` of every workload that you may see, an event for each entry of its
timeline:

- `ready`: `{}`, first and then from time to time; its `id` is where to go on
- `change`: `{id, at, type, phase, reason, message, actor, workloadId, workloadName, projectId, projectName}`
- `reset`: `{reason}`: what follows your `Last-Event-ID` is older than seven days, or the id is unknown. List the
  workloads again; the stream goes on after the `id` of this event
- `end`: `{reason}`, the last event: `access` (your token is gone) or `again` (come back: a stream lasts an hour at
  most)

An entry comes after its transaction has committed, usually within two seconds. Ids only grow, and no entry is skipped:
one that commits late gets a later id. Whether you may see an entry is decided when it is sent. To hold a list that is
always right, open the stream, list the workloads at `ready`, then apply the changes.

`filterBy` leaves out what does not match; ids and `Last-Event-ID` are those of the whole feed, so the filter may change
from one stream to the next."""
FILTER: Final = OpenApiParameter(
    "filterBy",
    str,
    description="Conditions on changes, as in lists: projectName==llm-team,type==phase,phase==Running. Fields: type, "
    "phase, reason, at, workloadId, workloadName, projectId, projectName, departmentId, departmentName, clusterId.",
)
COLUMNS: Final[Columns] = {
    "type": Column("type", known=KnownWords(EventType.values)),
    "phase": Column("phase", known=KnownWords(Phase.values)),
    "reason": Column("reason"),
    "at": Column("at", as_time),
    "workloadId": Column("workload_id", as_uuid),
    "workloadName": Column("workload__name"),
    "projectId": Column("workload__project_id", as_number, PROJECT_ID),
    "projectName": Column("workload__project__name", known=PROJECT_NAME),
    "departmentId": Column("workload__project__department_id", as_number, DEPARTMENT_ID),
    "departmentName": Column("workload__project__department__name", known=DEPARTMENT_NAME),
    "clusterId": Column("workload__project__cluster_id", as_uuid, CLUSTER_ID),
}
READY_EVERY: Final = 60.0
"""Seconds after which a reader who sees nothing of what happens gets a newer id."""


class WorkloadChanges(Route):
    """What happens to all workloads that the caller may see."""

    access = {"GET": RoutePermission()}

    @extend_schema(
        operation_id="stream_workload_changes",
        summary="Stream the changes of all workloads",
        description=FEED,
        parameters=[SINCE, FILTER],
        responses={
            (200, "text/event-stream"): OpenApiResponse(
                ChangeEventSchema, description="One event of the feed; `end` is the last."
            ),
            429: ErrorSchema,
            **ERROR_RESPONSES,
        },
    )
    def get(self, request: Request) -> Any:
        """Events, until `end`."""
        wanted = filters(request.query_params.get("filterBy", ""), COLUMNS, actor_of(request))
        return _opened(request, FeedReader(self, request, _last_event_id(request), wanted))


class FeedReader:
    """One reader's place in the change feed."""

    def __init__(self, view: Route, request: Request, after: int | None, wanted: Q) -> None:
        self._view, self._request, self._actor, self._wanted = view, request, actor_of(request), wanted
        self._read_to, self._after, self._started = 0, after, False
        self._said = time.monotonic()
        self._names: dict[UUID, frozenset[str]] = {}

    def read(self) -> tuple[str, bool]:
        """New entries, as far as the actor may see them now."""
        place_events()
        self._names.clear()
        first = "" if self._started else self._start()
        events, read_to = changes_after(self._actor, self._read_to, self._wanted)
        frames = [frame("change", change_json(each, self._hidden(each)), key=str(each.position)) for each in events]
        moved, self._read_to = read_to > self._read_to, read_to
        now = time.monotonic()
        if frames or first:
            self._said = now
        elif moved and now - self._said >= READY_EVERY:
            self._said = now
            frames.append(self._place("ready", {}))
        return first + "".join(frames), False

    def still_allowed(self) -> bool:
        """Token, subject and limits; what they may see is asked with every entry."""
        try:
            self._actor = _admitted(self._view, self._request)
        except (RungError, APIException):
            return False
        return True

    def _start(self) -> str:
        self._started = True
        if self._after is None or not is_in_feed(self._after):
            self._read_to = feed_end()
            return self._place("ready", {}) if self._after is None else self._place("reset", {"reason": "expired"})
        self._read_to = self._after
        return self._place("ready", {})

    def _place(self, event: str, data: dict[str, str]) -> str:
        return frame(event, data, key=str(self._read_to))

    def _hidden(self, event: WorkloadEvent) -> frozenset[str]:
        """By cluster: a project that the actor sees is hidden in none."""
        cluster = event.workload.project.cluster_id
        if cluster not in self._names:
            self._names[cluster] = hidden_namespaces(event.workload, self._actor)
        return self._names[cluster]
