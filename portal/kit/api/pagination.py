"""One page of a REST list: by offset, as Run:ai's clients ask, or after the last row seen, which is as cheap anywhere.

Every page names both ways on: `next`, the offset of the next one, and `nextAfter`, the cursor to send as `after`.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from portal.kit.api import serializers as api_serializers
from portal.kit.api.filters import LARGEST_OFFSET, LARGEST_PAGE, PAGE, number_in
from portal.kit.db import keyset_pagination
from portal.kit.errors import BadRequest
from portal.kit.security.request_identity import actor_of

M = TypeVar("M", bound=Model)

AFTER: Final = OpenApiParameter(
    "after",
    str,
    description="Beyond Run:ai: `nextAfter` of the previous page, instead of an offset. Valid for the same "
    "caller, order and filter only.",
)
PAGES: Final = [*api_serializers.PAGES, AFTER]
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
    asked = sorted((name, value) for name, value in request.query_params.items() if name not in _PLACE)
    told = json.dumps([actor.kind, actor.id, request.path, asked])
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


NAME_SEARCH: Final = OpenApiParameter("search", str, description="PageSlice of the name.")
