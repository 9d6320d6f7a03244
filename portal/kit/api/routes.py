"""What every REST route is: a view that says who may ask, makes dry runs of writes, and executes a retried write once.

- `access` names the right each method needs and where; the matrix of routes is generated from it, and a route without
  it fails the build. The services check the same right.
- `?dryRun=true` on any write runs it whole and rolls everything back: the answer is what it would have been, as 200.
- A POST with an `Idempotency-Key` that was sent before is answered again, never done again. The key is claimed, the
  work done and the answer kept in one transaction: the key exists exactly when its work does. The unique constraint
  orders concurrent requests; the second waits for the first and repeats its answer. A refusal frees the key, for the
  corrected request. Keys of other subjects are independent.
- `If-Match` on a PUT, PATCH or DELETE: 412 unless it has the `ETag` of what a GET of the same thing answers now.
- A read-only credential is refused every method that writes.
- A query parameter that the route's document does not name is 400, as is one that is too long: `?dryrun=true` must not
  write.
- A write that its actor may not do is kept for the audit trail.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from hashlib import blake2b
from typing import Any, ClassVar, Final, Literal, Protocol, cast

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.urls import resolve
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.http import parse_etags
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.kit.api.lists import LONGEST_PARAMETER, closest_name, flag_in
from portal.kit.api.serializers import FILTERS, CountSchema, operation
from portal.kit.db.transactions import rollback_scope, with_external_calls
from portal.kit.errors import BadRequest, Forbidden, PreconditionFailed, RungError, ValidationFailed
from portal.kit.models import StoredResponse
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import planned_change
from portal.kit.security.request_identity import READING, actor_of, note_denial

LONGEST_KEY: Final = 200
RESPONSE_RETENTION: Final = timedelta(days=7)
StatusAndBody = tuple[int, Any]
"""Status and plain JSON body."""


def validate_idempotency_key(key: str) -> str:
    """The key itself. BadRequest when it is empty, longer than 200 characters or not printable ASCII."""
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        text = _("An Idempotency-Key must have 1 to %(most)s printable ASCII characters.") % {"most": LONGEST_KEY}
        raise BadRequest(text, code="bad_idempotency_key")
    return key


def fingerprint_of(*parts: Any) -> str:
    """Tells one request from another: method, path and body."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    # A keyed hash, because a body may hold a password: readers of the table must not be able to try guesses.
    return salted_hmac("core.repeats", text.encode("utf-8", "surrogatepass"), algorithm="sha256").hexdigest()


def replay_or_run(
    work: Callable[[], StatusAndBody], *, subject: str, key: str, fingerprint: str, shown_once: Collection[str] = ()
) -> tuple[StatusAndBody, bool]:
    """The answer, and whether it is a replay. Refused (422) when the key came with another request before.

    `shown_once` names keys of the body that are not kept: a replay lacks them.
    """
    try:
        with rollback_scope():
            with transaction.atomic():
                row = StoredResponse.objects.create(subject=subject, key=key, fingerprint=fingerprint)
            try:
                answer = work()
            except RungError:
                row.delete()
                raise
            _store(row, answer, shown_once)
    except IntegrityError:
        if (stored := _replay(subject, key, fingerprint)) is None:
            raise  # the constraint that was hurt is not ours
        return stored, True
    return answer, False


def forget_old_responses() -> int:
    """Drop answers older than a week; answers how many."""
    return StoredResponse.objects.filter(created_at__lt=timezone.now() - RESPONSE_RETENTION).delete()[0]


def _store(row: StoredResponse, answer: StatusAndBody, shown_once: Collection[str]) -> None:
    status, body = answer
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in shown_once}
    row.status, row.body = status, body
    row.save(update_fields=["status", "body"])


def _replay(subject: str, key: str, fingerprint: str) -> StatusAndBody | None:
    row = StoredResponse.objects.filter(subject=subject, key=key).first()
    if row is None:
        return None
    if row.fingerprint != fingerprint:
        text = _("This Idempotency-Key was already used with a different request.")
        raise ValidationFailed.at("", "idempotency_mismatch", text, key=key)
    return row.status, row.body


WRAPPED: Final = "rung_wrapped"
DRY_RUN_HEADER: Final = "Rung-Dry-Run"
REPLAYED_HEADER: Final = "Idempotent-Replayed"
Handler = Callable[..., Response]
Where = Literal["nowhere", "self", "somewhere", "installation", "cluster", "department", "project"]


@dataclass(frozen=True, slots=True)
class RoutePermission:
    """The right that one method of a route needs.

    `verb`: a value of `tenants.access.selectors.Permission`, empty where every signed-in subject may ask.
    `at`: what the path or the body names and the right must reach; `self` for one's own things, `somewhere` where
    holding the right anywhere is enough (lists show what it reaches), `nowhere` where no sign-in is needed.
    `reads`: True for a POST that changes nothing: a read-only key may send it. It has no dry run and no stored answer.
    """

    verb: str = ""
    at: Where = "somewhere"
    reads: bool = False


ANYWHERE: Final = RoutePermission()
PlannedWrite = tuple[str, Mapping[str, Any]]
"""A kind of change plan, and the change as data."""


class Planner(Protocol):
    """The feature above that plans changes."""

    def document(self, planned: PlannedWrite, actor: Actor, /) -> dict[str, Any]:
        """A new plan as REST shows it. Refused as the change is."""

    def page(self, planned: PlannedWrite, actor: Actor, /) -> str:
        """The address of a new plan's page. Refused as the change is."""


_planners: Final[list[Planner]] = []


def register_planner(planner: Planner) -> None:
    """The app above plans changes."""
    _planners[:] = [planner]


def planner() -> Planner:
    """The registered one."""
    return _planners[0]


class Route(APIView):
    """Base of every REST view."""

    access: ClassVar[Mapping[str, RoutePermission]] = {}
    own_repeats: ClassVar[bool] = False
    """True where the service itself keeps the idempotency key beside what it made."""
    shown_once: ClassVar[tuple[str, ...]] = ()
    """Keys of the answer that are never kept: a repeated request is answered without them."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """After the subject is known: a read-only credential ends here."""
        super().initial(request, *args, **kwargs)
        check_parameters(request.query_params, documented_parameters(self, str(request.method)))
        if self._writes(request) and getattr(request.auth, "read_only", False):
            raise Forbidden(_("This access key is read-only."), code="read_only_key")

    def handle_exception(self, exc: Exception) -> Response:
        """Whatever a service refuses, for a whole request, comes by here, outside of every transaction."""
        if self._writes(self.request):
            note_denial(self.request, exc)
        return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """What `ETag` is made of for `If-Match`: without what changes by itself."""
        found = super().finalize_response(request, response, *args, **kwargs)
        data = getattr(found, "data", None)
        if request.method == "GET" and isinstance(data, dict) and OBSERVED & data.keys():
            found.settings_tag = settings_tag(data)  # type: ignore[attr-defined]  # read by the middleware
        return found

    def planned(self, request: Request, *args: Any, **kwargs: Any) -> PlannedWrite | None:
        """The plan that makes the same change as this request; None where changes are not planned.

        A dry run answers it as `plan`.
        """
        del request, args, kwargs
        return None

    def current(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """What a GET answers of the thing that a write is about: by the same path, else by the one above it."""
        if read := getattr(self, "get", None):
            return cast("Response", read(request, *args, **kwargs))
        above = resolve(request.path_info.rpartition("/")[0])
        view = above.func.cls()  # type: ignore[attr-defined]  # every path of the API is that of a view class
        if not hasattr(view, "get"):
            raise PreconditionFailed(_("This has no ETag."))
        view.request, view.args, view.kwargs = request, above.args, above.kwargs
        return cast("Response", view.get(request, *above.args, **above.kwargs))

    def _writes(self, request: Request) -> bool:
        return request.method not in READING and not self.access.get(str(request.method), RoutePermission()).reads

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Every writing method is wrapped once, here, so that none can forget it, whichever class brings it along."""
        super().__init_subclass__(**kwargs)
        for name in ("post", "put", "patch", "delete"):
            method = getattr(cls, name, None)
            if method is not None and not hasattr(method, WRAPPED):
                setattr(cls, name, _writing(method))


def count_route(
    operation_id: str,
    summary: str,
    about: str,
    find: Callable[[Request], QuerySet[Any]],
    *,
    access: RoutePermission = ANYWHERE,
    parameters: Sequence[OpenApiParameter] = FILTERS,
) -> type[Route]:
    """How many rows the list beside it finds."""
    may = access

    class Count(Route):
        """How many the same filter finds."""

        access = {"GET": may}

        @operation(operation_id, summary, CountSchema, description=about, parameters=list(parameters))
        def get(self, request: Request) -> Response:
            return Response({"count": find(request).count()})

    return Count


def documented_parameters(view: APIView, method: str) -> frozenset[str]:
    """The query parameters that the OpenAPI document names for a method of this view."""
    return _read_documented(view, "GET" if method == "HEAD" else method)


def check_parameters(query: Mapping[str, str], known: Collection[str]) -> None:
    """400 at the first parameter that is too long, or not known, with the one that may be meant."""
    for name, value in query.items():
        if len(value) > LONGEST_PARAMETER:
            message = _("%(name)s may have at most %(most)s characters.")
            raise BadRequest.at(f"/{name[:80]}", "too_long", message % {"name": name[:80], "most": LONGEST_PARAMETER})
        if name not in known:
            close = closest_name(name, known)
            hint = _(" Did you mean %(name)s?") % {"name": close} if close else ""
            message = _("Unknown parameter %(name)s.") % {"name": name[:80]} + hint
            raise BadRequest.at(f"/{name[:80]}", "unknown_parameter", message, allowed=sorted(known))


def _read_documented(view: APIView, method: str) -> frozenset[str]:
    key = (type(view), method)
    if key not in _NAMED:
        made = getattr(getattr(view, method.lower(), None), "kwargs", {}).get("schema")
        schema: Any = made() if made else view.schema
        schema.view, schema.method = view, method
        named = schema.get_override_parameters()
        _NAMED[key] = frozenset(each.name for each in named if each.location == OpenApiParameter.QUERY)
    return _NAMED[key]


_NAMED: Final[dict[tuple[type[APIView], str], frozenset[str]]] = {}


def _writing(method: Handler) -> Handler:
    @wraps(method)
    def handler(self: Route, request: Request, *args: Any, **kwargs: Any) -> Response:
        work = partial(method, self, request, *args, **kwargs)
        if self.access.get(str(request.method), RoutePermission()).reads:
            return work()
        tags = None if request.method == "POST" else request.headers.get("If-Match")
        if tags is not None:
            lock = digest_of(request.path.encode())
            work = partial(_unless_changed, work, tags, lock, partial(self.current, request, *args, **kwargs))
        if flag_in(request.query_params, "dryRun"):
            change = partial(self.planned, request, *args, **kwargs)
            return with_external_calls(lambda: _dry_run(work, change, actor_of(request)))
        if tags is not None:
            return with_external_calls(work)
        key = request.headers.get("Idempotency-Key")
        if key is None or request.method != "POST" or self.own_repeats or not actor_of(request).id:
            return work()
        return with_external_calls(lambda: _idempotent(work, request, validate_idempotency_key(key), self.shown_once))

    setattr(handler, WRAPPED, True)
    return handler


def _dry_run(work: Callable[[], Response], change: Callable[[], PlannedWrite | None], actor: Actor) -> Response:
    """Do it and take it back: nothing that waits for the commit is called. A refusal stays counted and recorded.

    What is planned elsewhere is answered with its plan beside.
    """
    with rollback_scope(), planned_change():
        response = work()
        transaction.set_rollback(True)
    body = response.data
    if body is None:
        body = {"code": 200, "message": _("Dry run: nothing was changed.")}
    if (planned := change()) is not None:
        with rollback_scope():
            plan = planner().document(planned, actor)
            transaction.set_rollback(True)
        body = {**(body if isinstance(body, dict) else {"resources": body}), "plan": plan}
    return Response(body, status=200, headers={DRY_RUN_HEADER: "true"})


OBSERVED: Final = frozenset(
    {
        "actualPhase",
        "aggregatedPhase",
        "clusterStatuses",
        "lastLiveness",
        "lastLogin",
        "overtimeData",
        "phase",
        "phaseMessage",
        "status",
        "syncInfo",
    }
)
"""Keys of answers whose values change without a change of settings."""


def settings_tag(data: Any) -> str:
    """A digest of an answer without what changes by itself."""
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name not in OBSERVED}
    return digest_of(JSONRenderer().render(data))


def digest_of(content: bytes) -> str:
    """What distinguishes one answer from another."""
    return blake2b(content, digest_size=16).hexdigest()


def _unless_changed(work: Callable[[], Response], tags: str, key: str, current: Callable[[], Response]) -> Response:
    """Do the work, unless `current` has another tag by now: `<answer>`, or `<answer>.<settings>`.

    The row of the key is a lock, never kept: of two such writes of one path the second sees what the first did.
    """
    with rollback_scope():
        with transaction.atomic():
            lock = StoredResponse.objects.create(subject="if-match", key=key, fingerprint="")
        try:
            known = {each.removeprefix("W/").strip('"').rpartition(".")[2] for each in parse_etags(tags)}
            if settings_tag(current().data) not in known and known != {"*"}:
                raise PreconditionFailed(_("This was changed since you read it. Read it again. Nothing was changed."))
            response = work()
        except RungError:
            lock.delete()
            raise
        lock.delete()
    return response


def _idempotent(work: Callable[[], Response], request: Request, key: str, shown_once: tuple[str, ...]) -> Response:
    def answer() -> StatusAndBody:
        response = work()
        return response.status_code, response.data

    actor = actor_of(request)
    (status, body), again = replay_or_run(
        answer,
        subject=f"{actor.kind}:{actor.id}",
        key=key,
        fingerprint=fingerprint_of(request.method, request.path, request.data),
        shown_once=shown_once,
    )
    return Response(body, status=status, headers={REPLAYED_HEADER: "true"} if again else None)
