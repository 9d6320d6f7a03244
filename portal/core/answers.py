"""One error, one answer: the API's JSON shape below /api/, otherwise a page. Neither ever shows internals."""

from typing import Final

import structlog
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from portal.core.api import error_body
from portal.core.errors import RungError, Unavailable
from portal.core.http import is_api

log = structlog.get_logger(__name__)

DATABASE_AWAY: Final = (OperationalError, InterfaceError)
"""What Django raises where the database is away, full or read-only, or has closed the connection."""


def answer(request: HttpRequest, error: RungError) -> HttpResponse:
    """The response to a refusal, with `Retry-After` where it says when to come back."""
    response = as_json(error) if is_api(request) else as_page(request, error)
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    return response


def without_database(request: HttpRequest, error: OperationalError | InterfaceError) -> HttpResponse:
    """The response where the database is away, full or read-only."""
    log.error("database.unavailable", error=str(error))
    return answer(request, Unavailable("The database cannot take this now; nothing was stored.", retry_after=2))


def as_json(error: RungError) -> HttpResponse:
    """The error as JSON."""
    return JsonResponse(error_body(error.status, error.message, error.code, error.problems), status=error.status)


def as_page(request: HttpRequest, error: RungError) -> HttpResponse:
    """The error as a page; from 500 on it asks neither session nor database, which may be what is broken."""
    page = render_to_string("error.html", {"error": error}, None if error.status >= 500 else request)
    return HttpResponse(page, status=error.status)
