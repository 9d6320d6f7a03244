"""How REST bodies are read and written: strict JSON in, JSON out, whatever the headers say; and tables as CSV."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Final
from urllib.parse import parse_qsl

from django.http import HttpResponse
from django.utils.text import slugify
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from portal.kit.errors import BadRequest, PayloadTooLarge, ValidationFailed
from portal.kit.security.strict_json import DocumentInvalid, ParseLimits, hold_caps

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
            raise PayloadTooLarge(f"The body must be at most {LARGEST_BODY} bytes.")
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
        raise BadRequest(f"Not UTF-8 at byte {error.start}.", code="not_utf8") from None
    except json.JSONDecodeError as error:
        raise BadRequest(f"Not JSON: {error.msg} at line {error.lineno}.", code="json_syntax") from None
    except RecursionError:
        raise ValidationFailed("Nested too deeply.", code="too_deep") from None


def _loads(text: str) -> Any:
    try:
        hold_caps(text, LIMITS)
    except DocumentInvalid as error:
        refusal = PayloadTooLarge if error.status == PayloadTooLarge.status else ValidationFailed
        raise refusal(error.problems[0].message, code=error.problems[0].code) from None
    return json.loads(text, object_pairs_hook=_members, parse_constant=_no_constant, parse_int=_whole)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValidationFailed.at(f"/{twice[:100]}", "repeated_key", "Duplicate key in one object.")
    return members


def _no_constant(written: str) -> Any:
    raise ValidationFailed.at("", "not_a_number", f"{written} is not a JSON number.")


def _whole(written: str) -> int:
    if len(written) > 19:
        raise ValidationFailed.at("", "number_too_large", f"An integer of {len(written)} digits is too large.")
    return int(written)


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
