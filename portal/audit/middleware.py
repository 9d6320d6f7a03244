"""The record of a write that its actor may not do, where the service that refused it keeps none itself."""

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from portal.audit.services import record_refusal
from portal.kit.api.error_responses import DATABASE_UNAVAILABLE, database_unavailable_response
from portal.kit.security.denials import Denial, denials_of
from portal.kit.security.request_identity import actor_of

Handler = Callable[[HttpRequest], HttpResponseBase]


def record_denials(get_response: Handler) -> Handler:
    """After the answer is made: one record per denial, saying who sent what where."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        try:
            for denial in denials_of(request):
                if not denial.error.recorded:
                    _record(request, denial)
        except DATABASE_UNAVAILABLE as error:
            return database_unavailable_response(request, error)
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
