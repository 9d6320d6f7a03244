"""The record of a write that its actor may not do, where the service that refused it keeps none itself."""

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from portal.audit.services import record_refusal
from portal.core.answers import DATABASE_AWAY, without_database
from portal.core.http import actor_of
from portal.core.refusals import Denial, denials_of

Handler = Callable[[HttpRequest], HttpResponseBase]


def record_denials(get_response: Handler) -> Handler:
    """After the answer is made: one record per denial, saying who sent what where."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        try:
            for denial in denials_of(request):
                if not denial.error.recorded:
                    _record(request, denial)
        except DATABASE_AWAY as error:
            return without_database(request, error)
        return response

    return middleware


def _record(request: HttpRequest, denial: Denial) -> None:
    record_refusal(
        actor_of(request),
        f"request.{str(request.method).lower()}",
        denial.error,
        entity_type="request",
        entity_name=request.path,
        detail=denial.detail,
    )
