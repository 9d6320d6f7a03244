"""Pages by keyset: the cursor names the last row seen, so page one thousand costs what page one costs.

A cursor is signed, with the scope it was given out in: another list, order, filter or reader is another scope. What it
says is only where to go on; which rows a reader may see is checked again for every page.
"""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.core.signing import BadSignature, Signer
from django.db.models import F, Model, Q, QuerySet

from portal.kit.errors import BadRequest

M = TypeVar("M", bound=Model)
LONGEST: Final = 2000


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """Rows of one page, and the cursor of the next one (empty on the last)."""

    rows: list[M]
    next: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """One column of a model or of one it points at, and a unique one as the last word. Nulls come last both ways."""

    name: str
    descending: bool
    field: Any
    nullable: bool
    tie: str
    key: Any

    @classmethod
    def of(cls, model: type[Model], column: str, tie: str = "pk") -> "Order":
        """The order that a column means, a minus for descending; `tie` is the unique column."""
        name, at, nullable = column.lstrip("-"), model, False
        field: Any = None
        for step in name.split("__"):
            field = at._meta.get_field(step)
            nullable |= bool(field.null)
            at = field.related_model or at
        key = model._meta.pk if tie == "pk" else model._meta.get_field(tie)
        return cls(name, column.startswith("-"), field, nullable, tie, key)

    @property
    def terms(self) -> tuple[Any, str]:
        """What to order by."""
        tie = ("-" if self.descending else "") + self.tie
        if not self.nullable:
            return ("-" if self.descending else "") + self.name, tie
        column = F(self.name)
        return column.desc(nulls_last=True) if self.descending else column.asc(nulls_last=True), tie

    def beyond(self, value: Any, key: Any) -> Q:
        """Rows after that one: not before its value, and not the value itself with the same or an earlier key."""
        bound, tie, later = ("lte", "gte", "lt") if self.descending else ("gte", "lte", "gt")
        if value is None:
            return Q(**{f"{self.name}__isnull": True, f"{self.tie}__{later}": key})
        rest = Q(**{f"{self.name}__{bound}": value}) & ~Q(**{self.name: value, f"{self.tie}__{tie}": key})
        return rest | Q(**{f"{self.name}__isnull": True}) if self.nullable else rest


def page_of(rows: QuerySet[M], *, column: str, after: str, size: int, scope: str = "", tie: str = "pk") -> Page[M]:
    """One page ordered by a column (a minus for descending) and a unique one. Raises BadRequest for a forged cursor.

    A column of a related row is read from that row: select it.
    """
    order = Order.of(rows.model, column, tie)
    if after:
        rows = rows.filter(order.beyond(*_read(order, after, _signer(column, scope))))
    found = list(rows.order_by(*order.terms)[: size + 1])
    more = len(found) > size
    return Page(found[:size], cursor_of(found[size - 1], column, scope, tie) if more else "")


def cursor_of(row: Model, column: str, scope: str = "", tie: str = "pk") -> str:
    """The cursor after this row."""
    value = attrgetter(column.lstrip("-").replace("__", "."))(row)
    packed = json.dumps([_text(value), str(getattr(row, tie))], separators=(",", ":")).encode()
    return _signer(column, scope).sign(base64.urlsafe_b64encode(packed).decode().rstrip("="))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _signer(column: str, scope: str) -> Signer:
    return Signer(sep=".", salt=f"portal.kit.db.keyset_pagination {column} {scope}")


def _read(order: Order, cursor: str, signer: Signer) -> tuple[Any, Any]:
    try:
        packed = signer.unsign(cursor[:LONGEST])
        value, key = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        return None if value is None else order.field.to_python(value), order.key.to_python(key)
    except (BadSignature, ValueError, TypeError, ValidationError):
        message = "Unknown position in the list. Start at the first page."
        raise BadRequest.at("/after", "bad_cursor", message) from None
