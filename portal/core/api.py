"""What every REST route shares: one error shape, strict JSON in, JSON out.

The shape is Run:ai's `{code, message, details}`, with Rung's `errors: [{pointer, code, message, …}]` beside it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import IO, Any

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import set_rollback

from portal.core.errors import Absent, BadRequest, Conflict, Denied, Problem, Refused, RungError, TooLarge, Unavailable

LARGEST_BODY = 512 * 1024


class StrictJSONParser(BaseParser):
    """JSON whatever the content type says; an absent body is `{}`. Repeated keys, NaN and huge numbers are refused."""

    media_type = "*/*"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The body as plain values. Raises TooLarge, BadRequest or Refused."""
        body = stream.read(LARGEST_BODY + 1)
        if len(body) > LARGEST_BODY:
            raise TooLarge(f"Up to {LARGEST_BODY} bytes are read.")
        return strict_json(body) if body.strip() else {}


def strict_json(body: bytes) -> Any:
    """Parse JSON text; a JSON string that holds JSON is parsed once more, as an asynchronous Run:ai client sends it."""
    try:
        value = _loads(body.decode("utf-8"))
        return _loads(value) if isinstance(value, str) and value[:1] in {"{", "["} else value
    except UnicodeDecodeError as error:
        raise BadRequest(f"Not UTF-8 at byte {error.start}.", code="not_utf8") from None
    except json.JSONDecodeError as error:
        raise BadRequest(f"Not JSON: {error.msg} at line {error.lineno}.", code="json_syntax") from None
    except RecursionError:
        raise Refused("Nested too deeply.", code="too_deep") from None


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_members, parse_constant=_no_constant, parse_int=_whole)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Refused.at(f"/{twice[:100]}", "repeated_key", "This key stands twice in one object.")
    return members


def _no_constant(written: str) -> Any:
    raise Refused.at("", "not_a_number", f"{written} is no JSON number.")


def _whole(written: str) -> int:
    if len(written) > 19:
        raise Refused.at("", "number_too_large", f"An integer of {len(written)} digits is more than any field takes.")
    return int(written)


class AlwaysJSON(BaseContentNegotiation):
    """JSON for every caller, whatever its Accept header says; browsers typing an address get it too."""

    def select_parser(self, request: Request, parsers: Sequence[BaseParser]) -> BaseParser:
        """The one parser."""
        return parsers[0]

    def select_renderer(
        self, request: Request, renderers: Sequence[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The view's first renderer."""
        return renderers[0], renderers[0].media_type or ""


class PlainJSONRenderer(JSONRenderer):
    """JSON for every caller; clients of Run:ai send no Accept header."""

    charset = "utf-8"


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
    set_rollback()
    headers = {"Retry-After": str(known.retry_after)} if known.retry_after else {}
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        headers["WWW-Authenticate"] = "Bearer"
    status = getattr(error, "status_code", known.status)
    return Response(error_body(status, known.message, known.code, known.problems), status=status, headers=headers)


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
}
