"""Lists over REST: Run:ai's parameters `filterBy`, `sortBy`, `sortOrder`, `offset` and `limit`; cursors.

A route names its columns once. Everything else is 400, never ignored. So is the name or id of something that is
absent or not visible to the caller: an empty list would say that it exists and has nothing.
Every page names both ways on: `next`, the offset of the next page, and `nextAfter`, the cursor to send as `after`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from portal.kit.api import serializers as api_serializers
from portal.kit.db import keyset_pagination
from portal.kit.errors import BadRequest, RungError
from portal.kit.security.actors import Actor
from portal.kit.security.request_identity import actor_of

LARGEST_PAGE: Final = 500
PAGE: Final = 50
LARGEST_OFFSET: Final = 10**9
LONGEST_NUMBER: Final = 18
YEARS: Final = range(1900, 3000)
MOST_NAMES: Final = 2000
LONGEST_NAME: Final = 100
MOST_CLAUSES: Final = 50
"""Of one `filterBy`. SQLite takes expressions of up to 1,000 levels, and each clause may read a table of names."""
LONGEST_PARAMETER: Final = 8000
"""Characters of one query parameter. SQLite takes patterns of up to 50,000 bytes."""

# Operator -> (lookup, negated). The longest match wins, so the order does not matter.
OPERATORS: Final[Mapping[str, tuple[str, bool]]] = {
    "==": ("", False),
    "!=": ("", True),
    "<=": ("__lte", False),
    ">=": ("__gte", False),
    "=@": ("__icontains", False),
    "!@": ("__icontains", True),
    "=^": ("__istartswith", False),
    "=$": ("__iendswith", False),
}
_CLAUSE = re.compile(r"^(?P<field>[A-Za-z0-9_]+)(?P<operator>==|!=|<=|>=|=@|!@|=\^|=\$)(?P<value>.+)$", re.DOTALL)


def as_text(value: str) -> str:
    """Text columns take the value as it is, without NUL, which no database stores."""
    if "\x00" in value:
        raise ValueError(value)
    return value


def as_number(value: str) -> int:
    """Whole numbers of a size the database knows."""
    if not re.fullmatch(r"-?\d{1,18}", value):
        raise ValueError(value)
    return int(value)


def as_uuid(value: str) -> UUID:
    """An id as clusters and workloads have it."""
    return UUID(value)


def as_time(value: str) -> datetime:
    """ISO 8601; a time without a zone is UTC. None near the ends of the calendar, which other zones do not have."""
    found = parse_datetime(value.replace(" ", "+"))
    if found is None or found.year not in YEARS:
        raise ValueError(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


EXPECTED: Final[Mapping[Callable[[str], Any], str]] = {
    as_number: "a whole number",
    as_uuid: "a UUID",
    as_time: "an ISO 8601 time",
}


@dataclass(frozen=True, slots=True)
class KnownRows:
    """What a column may be compared with for equality: a field of the rows that an actor may know of."""

    rows: Callable[[Actor], QuerySet[Any]]
    field: str = "name"

    def has(self, actor: Actor, value: Any) -> bool:
        return self.rows(actor).filter(**{self.field: value}).exists()

    def names(self, actor: Actor) -> Collection[str]:
        """What could have been meant: names, as ids resemble each other without meaning it."""
        return list(self.rows(actor).values_list("name", flat=True)[:MOST_NAMES]) if self.field == "name" else ()


@dataclass(frozen=True, slots=True)
class KnownWords:
    """The same for a closed list of words."""

    words: Collection[str]

    def has(self, _actor: Actor, value: Any) -> bool:
        return value in self.words

    def names(self, _actor: Actor) -> Collection[str]:
        return self.words


@dataclass(frozen=True, slots=True)
class Column:
    """What a public field name means in the database, how its values are read, and which there are."""

    path: str
    read: Callable[[str], Any] = as_text
    known: KnownRows | KnownWords | None = None


Columns = Mapping[str, Column]


def filters(text: str, columns: Columns, actor: Actor) -> Q:
    """`name=@llm,phase==Running` as one condition; all parts must hold. Raises BadRequest naming the part."""
    clauses = [clause for clause in text.split(",") if clause]
    if len(clauses) > MOST_CLAUSES:
        message = f"filterBy has {len(clauses)} clauses; at most {MOST_CLAUSES} are allowed."
        raise BadRequest.at("/filterBy", "too_many", message)
    return Q(*(_condition(clause, columns, actor) for clause in clauses))


def closest_name(value: str, names: Iterable[str]) -> str | None:
    """The name that is most like the value, whatever its case; None: none is."""
    plain = {name.lower(): name for name in names}
    found = get_close_matches(value[:LONGEST_NAME].lower(), plain, n=1)
    return plain[found[0]] if found else None


def _condition(clause: str, columns: Columns, actor: Actor) -> Q:
    match = _CLAUSE.match(clause)
    if match is None or match["field"] not in columns:
        raise _bad("filterBy", f"Cannot filter by {clause[:80]!r}.", columns)
    column = columns[match["field"]]
    lookup, negated = OPERATORS[match["operator"]]
    try:
        value = column.read(match["value"])
    except ValueError:
        expected = f": expected {EXPECTED[column.read]}" if column.read in EXPECTED else ""
        raise _bad("filterBy", f"{match['value'][:80]!r} is not a valid {match['field']}{expected}.") from None
    if lookup.startswith("__i") and not isinstance(value, str):
        raise _bad("filterBy", f"{match['operator']} works on texts only, and {match['field']} is not a text.")
    if not lookup and column.known and not column.known.has(actor, value):
        raise _unknown(match["field"], match["value"], column.known.names(actor))
    condition = Q(**{column.path + lookup: value})
    return ~condition if negated else condition


def descending(query: Mapping[str, str], *, default: bool = True) -> bool:
    """`sortOrder` of a list with one order. Enum names such as `Order.DESC` are understood."""
    requested = query.get("sortOrder", "").rpartition(".")[2].lower()
    if requested not in {"", "asc", "desc"}:
        raise BadRequest.at("/sortOrder", "out_of_range", "sortOrder must be asc or desc.", allowed=("asc", "desc"))
    return requested == "desc" if requested else default


def ordering(query: Mapping[str, str], columns: Columns, default: str) -> str:
    """The database path to sort by, with a minus for `desc`. Enum names such as `Fields.NAME` are understood."""
    downwards = descending(query, default=False)
    wanted = query.get("sortBy", "")
    if not wanted:
        return default
    plain = wanted.rpartition(".")[2].replace("_", "").lower()
    path = next((column.path for name, column in columns.items() if name.replace("_", "").lower() == plain), None)
    if path is None:
        raise _bad("sortBy", f"Cannot sort by {wanted[:80]!r}.", columns)
    return f"-{path}" if downwards else path


def number_in(query: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """A bounded whole number of the query string. Raises BadRequest with the bounds."""
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not lowest <= int(text) <= highest:
        message = f"{name} must be a whole number from {lowest} to {highest}."
        raise BadRequest.at(f"/{name}", "out_of_range", message)
    return int(text)


def bounds_in(query: Mapping[str, str], *, size: int = PAGE) -> slice:
    """The rows of the page that `offset` and `limit` name; `size` without a limit. Raises BadRequest."""
    offset = number_in(query, "offset", 0, 0, LARGEST_OFFSET)
    return slice(offset, offset + number_in(query, "limit", size, 1, LARGEST_PAGE))


def id_number(text: str) -> int | None:
    """The number that an id is; None for a text that is none, or one longer than any."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else None


def time_in(query: Mapping[str, str], name: str) -> datetime:
    """A time that the query string must name. Raises BadRequest."""
    try:
        return as_time(query.get(name, ""))
    except ValueError:
        raise BadRequest.at(f"/{name}", "not_a_time", f"{name} must be an ISO 8601 time.") from None


def flag_in(query: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """`true` or `false` of the query string."""
    text = query.get(name, "").lower()
    if text not in {"", "true", "false"}:
        raise BadRequest.at(f"/{name}", "not_a_boolean", f"{name} must be true or false.", allowed=("true", "false"))
    return text == "true" if text else default


def _unknown(field: str, value: str, names: Collection[str]) -> RungError:
    close = closest_name(value, names)
    hint = f" Did you mean {close!r}?" if close else ""
    return BadRequest.at(
        "/filterBy",
        "unknown_name",
        f"No {field} {value[:80]!r} found.{hint}",
        allowed=[close] if close else [],
    )


def _bad(name: str, message: str, columns: Columns = MappingProxyType({})) -> BadRequest:
    return BadRequest(
        message, code="bad_filter", problems=BadRequest.at(f"/{name}", "bad_filter", message, allowed=columns).problems
    )


M = TypeVar("M", bound=Model)

AFTER: Final = OpenApiParameter(
    "after",
    str,
    description="Beyond Run:ai: `nextAfter` of the previous page, instead of an offset. Valid for the same "
    "caller, order and filter only.",
)
PAGES: Final = [*api_serializers.PAGES, AFTER]
NAME_SEARCH: Final = OpenApiParameter("search", str, description="Part of the name.")
_PLACE: Final = frozenset({"after", "offset", "limit"})


class ListSchema(serializers.Serializer[Any]):
    """The two ways on that every list names."""

    next = serializers.IntegerField(
        allow_null=True, help_text="Offset of the next page; null on the last page and with cursors."
    )
    nextAfter = serializers.CharField(  # the wire's name
        allow_null=True, required=False, help_text="Beyond Run:ai: cursor of the next page; null on the last page."
    )


@dataclass(frozen=True, slots=True)
class PageSlice(Generic[M]):
    """Rows of one page, and where the next one begins."""

    rows: list[M]
    next: int | None
    after: str | None

    @property
    def ways_on(self) -> dict[str, Any]:
        return {"next": self.next, "nextAfter": self.after}


def part_of(rows: QuerySet[M], request: Request, *, order: str, size: int | None = None) -> PageSlice[M]:
    """The page that the query asks for, ordered by a column (a minus for descending) and the id.

    Raises BadRequest for a cursor that is forged, or issued to another subject or for another list, order or filter.
    `size`: where a list has its own word for it.
    """
    query = request.query_params
    size = number_in(query, "limit", PAGE, 1, LARGEST_PAGE) if size is None else size
    scope = _scope(request)
    if after := query.get("after", ""):
        if query.get("offset", ""):
            raise BadRequest.at("/after", "one_place", "Send either after or offset.")
        page = keyset_pagination.page_of(rows, column=order, after=after, size=size or 1, scope=scope)
        return PageSlice(page.rows, None, page.next or None) if size else PageSlice([], None, None)
    part = without_cursor(rows.order_by(*keyset_pagination.Order.of(rows.model, order).terms), request, size=size)
    return part if part.next is None else replace(part, after=keyset_pagination.cursor_of(part.rows[-1], order, scope))


def without_cursor(rows: QuerySet[M], request: Request, *, size: int | None = None) -> PageSlice[M]:
    """A page of rows in an order that no cursor can name: one of figures. Raises BadRequest when one is sent."""
    query = request.query_params
    if query.get("after", ""):
        raise BadRequest.at("/after", "no_cursor", "This order does not support cursors. Send offset.")
    size = number_in(query, "limit", PAGE, 1, LARGEST_PAGE) if size is None else size
    offset = number_in(query, "offset", 0, 0, LARGEST_OFFSET)
    found = list(rows[offset : offset + size + 1]) if size else []  # none wanted, nothing follows
    return PageSlice(found[:size], offset + size if len(found) > size else None, None)


def _scope(request: Request) -> str:
    """Whose list, and which one: everything that was asked but the place in it."""
    actor = actor_of(request)
    requested = sorted((name, value) for name, value in request.query_params.items() if name not in _PLACE)
    identity = json.dumps([actor.kind, actor.id, request.path, requested])
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
