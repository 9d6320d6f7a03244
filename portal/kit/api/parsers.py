"""How REST bodies are read and written: strict JSON in, JSON out, whatever the headers say; and tables as CSV."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import IO, Any, Final
from urllib.parse import parse_qsl

from django.http import HttpResponse
from django.utils.text import slugify
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from portal.kit.errors import BadRequest, PayloadTooLarge, Problem, ValidationFailed
from portal.kit.security.strict_json import (
    DocumentInvalid,
    ParseLimits,
    Unreadable,
    hold_caps,
    no_number,
    real_number,
    token,
    whole_number,
)

LARGEST_BODY = 512 * 1024
LIMITS: Final = ParseLimits(size=LARGEST_BODY, depth=100, nodes=20_000)
"""Of a JSON body. Time and memory go by the number of its parts, not by its bytes."""
LARGEST_FORM = 16 * 1024
"""The only form over REST asks for a token. Unquoting a form takes a microsecond for three of its bytes."""
TENANT_ID = 1
"""Run:ai's number of the tenant; an installation is one."""


def rfc3339(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, or null."""
    return moment.isoformat().replace("+00:00", "Z") if moment else None


class StrictJSONParser(BaseParser):
    """JSON whatever the content type says; an absent body is `{}`. See `strict_json` for what is refused."""

    media_type = "*/*"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The body as plain values. Raises PayloadTooLarge, BadRequest or ValidationFailed."""
        body = stream.read(LARGEST_BODY + 1)
        if len(body) > LARGEST_BODY:
            raise PayloadTooLarge.at("", "too_large", f"The body must be at most {LARGEST_BODY} bytes.")
        return strict_json(body) if body.strip() else {}


class StrictFormParser(BaseParser):
    """A form whatever the content type says; an absent body is an empty one. A field twice is refused."""

    media_type = "*/*"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """The fields as text; of what cannot be read nothing."""
        body = stream.read(LARGEST_FORM + 1)
        if len(body) > LARGEST_FORM:
            raise PayloadTooLarge(f"The body must be at most {LARGEST_FORM} bytes.")
        try:
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=20, errors="strict")
        except ValueError:
            return {}
        fields = dict(pairs)
        return fields if len(fields) == len(pairs) else {}


def strict_json(body: bytes) -> Any:
    """Parse JSON text; a JSON string that holds JSON is parsed once more, as an asynchronous Run:ai client sends it.

    Refused are repeated keys, NaN, huge numbers, more than 20,000 keys and values, and more than 100 levels.
    """
    try:
        value = _loads(body.decode("utf-8"))
        return _loads(value) if isinstance(value, str) and value[:1] in {"{", "["} else value
    except UnicodeDecodeError as error:
        raise BadRequest.at("", "not_utf8", f"Not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise BadRequest.at("", "json_syntax", f"Not JSON: {error.msg} at line {error.lineno}.") from None
    except RecursionError:
        raise ValidationFailed.at("", "too_deep", "Nested too deeply.") from None


def _loads(text: str) -> Any:
    try:
        hold_caps(text, LIMITS)
    except DocumentInvalid as error:
        refusal = PayloadTooLarge if error.status == PayloadTooLarge.status else ValidationFailed
        (found,) = error.problems
        raise refusal.at(found.pointer, found.code, found.message) from None
    reading = _Reading()
    value = json.loads(
        text,
        object_pairs_hook=reading.members,
        parse_constant=reading.number(no_number),
        parse_int=reading.number(whole_number),
        parse_float=reading.number(_real),
    )
    if reading.refused:
        # The last one is in the value: what a repeated key has replaced was read before the refusal of that key.
        part, problem = reading.refused[-1]
        place = _pointer_to(part, value) or ""
        raise ValidationFailed.at(place + problem.pointer, problem.code, problem.message)
    return value


class _Reading:
    """Keeps the refused parts of one text, each with its problem: their places are known when all is read."""

    def __init__(self) -> None:
        self.refused: list[tuple[object, Problem]] = []

    def members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            problem = Problem(f"/{token(twice)}", "repeated_key", "Duplicate key in one object.")
            self.refused.append((members, problem))
        return members

    def number(self, read: Callable[[str], Any]) -> Callable[[str], Any]:
        def parse(written: str) -> Any:
            found = read(written)
            if isinstance(found, Unreadable):
                self.refused.append((found, Problem("", found.code, found.message)))
            return found

        return parse


def _real(written: str) -> float | Unreadable:
    """A number of any precision, unlike in documents."""
    found = float(written)
    return found if isfinite(found) else real_number(written)


def _pointer_to(part: object, value: Any) -> str | None:
    """Where a part is in the value; None: not there."""
    if value is part:
        return ""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = ((key, _pointer_to(part, each)) for key, each in inner)
    return next((f"/{token(key)}{below}" for key, below in found if below is not None), None)


class JSONOnlyNegotiation(BaseContentNegotiation):
    """JSON for every caller, whatever its Accept header says; browsers typing an address get it too."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        return next(iter(parsers))

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The view's first renderer."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type or ""


class PlainJSONRenderer(JSONRenderer):
    """JSON for every caller; clients of Run:ai send no Accept header."""

    charset = "utf-8"


FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A head and rows; every cell is text."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return text.getvalue()


def csv_cell(text: str) -> str:
    """The text, with a quote before what a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip().startswith(FORMULA) else text


def csv_response(text: str, *, name: str) -> HttpResponse:
    """A sheet as a file that is called so, as far as file names go."""
    headers = {"Content-Disposition": f'attachment; filename="{slugify(name) or "table"}.csv"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
