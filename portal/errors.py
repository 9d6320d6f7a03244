"""The last answers: what no view answered, as JSON below /api/ and as a page elsewhere. No internals, no secrets."""

import sys

from django.http import HttpRequest, HttpResponse

from portal.core.answers import DATABASE_AWAY, answer, without_database
from portal.core.errors import Absent, BadRequest, Denied, RungError


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """400: a forged host, too many fields."""
    return answer(request, BadRequest("The request cannot be read."))


def denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """403: identity known, action not allowed."""
    return answer(request, Denied("You may not do this."))


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: a form that this portal did not give out, or that is too old."""
    error = Denied("This form is too old, or came from another site. Go back, reload and try again.", code="csrf")
    return answer(request, error)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """404: absent or foreign, the same answer."""
    return answer(request, Absent())


def failed(request: HttpRequest) -> HttpResponse:
    """500: a defect. The log has the rest, under the request's id.

    503: a database that is away where a middleware needs it, as for the session; `AnswerErrors` answers for views.
    """
    error = sys.exception()
    if isinstance(error, DATABASE_AWAY):
        return without_database(request, error)
    return answer(request, RungError("Something broke on our side. It has been logged.", code="internal"))
