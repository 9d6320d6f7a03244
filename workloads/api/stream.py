"""A workload's life as server-sent events, for pipelines that wait."""

from typing import Any, Final

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from clusters.logtext import clean_message
from portal.core.bodies import REFUSALS, ErrorSchema
from portal.core.errors import BadRequest, RungError, TooMany
from portal.core.eventstream import OpenStreams, end, frame, stream
from portal.core.filtering import id_number
from portal.core.http import actor_of
from portal.core.routes import Route, Rule
from portal.core.wire import stamp
from workloads.api.reading_schemas import StreamEventSchema
from workloads.models import Workload, WorkloadEvent
from workloads.selectors import workload_or_404
from workloads.selectors.history import hidden_namespaces, quietly
from workloads.selectors.life import Standing, entries_after, newest_entry, standing_now

SINCE: Final = OpenApiParameter(
    "Last-Event-ID", str, OpenApiParameter.HEADER, description="The last `id` you have read: what came later is told."
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


class Life(Route):
    """What happens to a workload, while it happens."""

    access = {"GET": Rule("view_project", "project")}

    @extend_schema(
        operation_id="stream_workload",
        summary="Follow a workload's life",
        description=DESCRIPTION,
        parameters=[SINCE],
        responses={
            (200, "text/event-stream"): OpenApiResponse(StreamEventSchema, description="One of many, until `end`."),
            429: ErrorSchema,
            **REFUSALS,
        },
    )
    def get(self, request: Request, workload_id: str) -> Any:
        """Events, until `end`."""
        actor = actor_of(request)
        workload = workload_or_404(actor, workload_id)
        life = Told(self, request, workload, since=_since(request, workload))
        reader = f"{actor.kind}:{actor.id}"
        if not OPEN.take(reader):
            raise TooMany(_("Too many streams of yours are open: close one."), retry_after=10)
        return stream(request._request, life, lambda: OPEN.give_back(reader))  # DRF's own way to it


class Told:
    """One reader's stream of one workload."""

    def __init__(self, view: Life, request: Request, workload: Workload, *, since: int) -> None:
        self._view, self._request, self._id, self._last = view, request, workload.pk, since
        self._hidden = hidden_namespaces(workload, actor_of(request))
        self._standing: Standing | None = None

    def read(self) -> tuple[str, bool]:
        """New entries, then the phase where it has changed, then the end: where it is over and all has been told.

        Where it stands is read first: what is over then has had its last entry written.
        """
        standing = standing_now(self._id)
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
            "at": stamp(entry.at),
            "type": entry.type,
            "phase": entry.phase,
            "reason": entry.reason,
            "message": self._quietly(entry.message),
            "actor": entry.actor,
        }
        return frame("timeline", told, key=str(entry.pk))

    def _quietly(self, text: str) -> str:
        return quietly(clean_message(text), self._hidden)


def _phase(standing: Standing, message: str) -> dict[str, str | None]:
    return {
        "phase": standing.phase,
        "phaseReason": standing.reason,
        "phaseMessage": message,
        "phaseUpdatedAt": stamp(standing.at),
    }


def _since(request: Request, workload: Workload) -> int:
    """From now on, or after the entry the reader has seen last. One that is not there yet hides nothing."""
    newest, said = newest_entry(workload.pk), request.headers.get("Last-Event-ID", "")
    if not said:
        return newest
    entry = id_number(said)
    if entry is None:
        raise BadRequest.at("/Last-Event-ID", "bad_event_id", _("This is no id of an event."))
    return min(entry, newest)
