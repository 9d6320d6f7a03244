"""Turn an error into its response: JSON below /api/, a page elsewhere, never with internals.

The shape is Run:ai's `{code, message, details}`, with Rung's `errors: [{pointer, code, message, …}]` beside it.
"""

import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from django.core.exceptions import DisallowedHost, PermissionDenied
from django.db import IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils.http import url_has_allowed_host_and_scheme
from rest_framework import exceptions
from rest_framework.response import Response

from portal.kit.errors import BadRequest, Conflict, Forbidden, NotFound, Problem, RungError, ServiceUnavailable
from portal.kit.security.request_identity import is_api


def error_body(status: int, message: str, code: str = "", problems: tuple[Problem, ...] = ()) -> dict[str, Any]:
    """Run:ai's error shape, with ours beside it."""
    body: dict[str, Any] = {"code": status, "message": message, "details": code}
    if problems:
        body["errors"] = [problem.as_json() for problem in problems]
    return body


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn what a view raised into an answer; None leaves it to Django's 500, which has no details."""
    known = _as_rung_error(error)
    if known is None:
        return None
    headers = {"Retry-After": str(known.retry_after)} if known.retry_after else {}
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        headers["WWW-Authenticate"] = "Bearer"
    status = getattr(error, "status_code", known.status)
    body = error_body(status, known.message, known.code, known.problems) | dict(known.beside)
    return Response(body, status=status, headers=headers)


def _as_rung_error(error: Exception) -> RungError | None:
    if isinstance(error, RungError):
        return error
    return next((make(error) for kinds, make in _FOREIGN.items() if isinstance(error, kinds)), None)


def _from_drf(error: Exception) -> RungError:
    status = getattr(error, "status_code", 500)
    phrase = HTTPStatus(status).phrase.lower().replace(" ", "_")
    wait = getattr(error, "wait", None)
    return RungError(str(error), code=phrase, retry_after=int(wait) + 1 if wait else None)


_FOREIGN: Mapping[type[Exception], Callable[[Exception], RungError]] = {
    Http404: lambda _: NotFound(),
    PermissionDenied: lambda _: Forbidden("Not allowed."),
    exceptions.APIException: _from_drf,
    IntegrityError: lambda _: Conflict("Another user changed this at the same time. Nothing was saved."),
    OperationalError: lambda _: ServiceUnavailable("The database is not available. Nothing was saved.", retry_after=2),
    InterfaceError: lambda _: ServiceUnavailable("The database is not available. Nothing was saved.", retry_after=2),
}


log = structlog.get_logger(__name__)

DATABASE_UNAVAILABLE: Final = (OperationalError, InterfaceError)
"""What Django raises where the database is away, full or read-only, or has closed the connection."""


def error_response(request: HttpRequest, error: RungError) -> HttpResponse:
    """The response to a refusal, with `Retry-After` where it says when to come back."""
    response = error_as_json(error) if is_api(request) else error_as_page(request, error)
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    return response


def database_unavailable_response(request: HttpRequest, error: OperationalError | InterfaceError) -> HttpResponse:
    """The response where the database is away, full or read-only."""
    log.error("database.unavailable", error=str(error))
    return error_response(
        request, ServiceUnavailable("The database is not available. Nothing was saved.", retry_after=2)
    )


def forget_user(request: HttpRequest, **_kwargs: Any) -> None:
    """Receiver of `got_request_exception`, before the log's: a request that failed for lack of a database does not
    wait for the database a second time to log its user.
    """
    if isinstance(sys.exception(), DATABASE_UNAVAILABLE):
        request.user = None  # type: ignore[assignment]  # the log takes it for "no user"


def error_as_json(error: RungError) -> HttpResponse:
    """The error as JSON."""
    return JsonResponse(error_body(error.status, error.message, error.code, error.problems), status=error.status)


def error_as_page(request: HttpRequest, error: RungError) -> HttpResponse:
    """The error as a page; from 500 on it asks neither session nor database, which may be what is broken."""
    context = {"error": error, "back": _page_before(request)}
    page = render_to_string("error.html", context, None if error.status >= 500 else request)
    return HttpResponse(page, status=error.status)


def _page_before(request: HttpRequest) -> str:
    """The address of the portal's page whose button was pressed; empty where it is not known."""
    before = request.headers.get("Referer", "")
    try:
        own = request.method == "POST" and url_has_allowed_host_and_scheme(before, {request.get_host()})
    except DisallowedHost:
        return ""
    return before if own else ""


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """400: a forged host, too many fields."""
    return error_response(request, BadRequest("Invalid request."))


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """403: identity known, action not allowed."""
    return error_response(request, Forbidden("Permission denied."))


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: a form that this portal did not give out, or that is too old."""
    error = Forbidden("This form has expired or came from another site. Reload the page and try again.", code="csrf")
    return error_response(request, error)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """404: absent or foreign, the same answer."""
    return error_response(request, NotFound())


def server_error(request: HttpRequest) -> HttpResponse:
    """500: a defect. The log has the rest, under the request's id.

    503: a database that is away where a middleware needs it, as for the session; `AnswerErrors` answers for views.
    """
    error = sys.exception()
    if isinstance(error, DATABASE_UNAVAILABLE):
        return database_unavailable_response(request, error)
    return error_response(request, RungError("Internal error. It has been logged.", code="internal"))
