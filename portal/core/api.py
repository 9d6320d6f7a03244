"""What every REST route shares: one error shape.

The shape is Run:ai's `{code, message, details}`, with Rung's `errors: [{pointer, code, message, …}]` beside it.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from portal.core.errors import Absent, Conflict, Denied, Problem, RungError, Unavailable


def error_body(status: int, message: str, code: str = "", problems: tuple[Problem, ...] = ()) -> dict[str, Any]:
    """Run:ai's error shape, with ours beside it."""
    body: dict[str, Any] = {"code": status, "message": message, "details": code}
    if problems:
        body["errors"] = [problem.as_json() for problem in problems]
    return body


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn what a view raised into an answer; None leaves it to Django's 500, which tells nothing."""
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
    Http404: lambda _: Absent(),
    PermissionDenied: lambda _: Denied("Not allowed."),
    exceptions.APIException: _from_drf,
    IntegrityError: lambda _: Conflict("Somebody else changed this at the same moment; nothing was stored."),
    OperationalError: lambda _: Unavailable("The database cannot take this now; nothing was stored.", retry_after=2),
    InterfaceError: lambda _: Unavailable("The database cannot take this now; nothing was stored.", retry_after=2),
}
