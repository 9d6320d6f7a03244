"""Pages by keyset: the cursor names the last row seen, so page one thousand costs what page one costs."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from portal.core.errors import BadRequest

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """Rows of one page, and the cursor of the next one (empty on the last)."""

    rows: list[M]
    next: str = ""


def page_of(rows: QuerySet[M], *, column: str, after: str, size: int) -> Page[M]:
    """One page ordered by a column (a minus for descending) and the id. Raises BadRequest for a forged cursor."""
    descending = column.startswith("-")
    name = column.lstrip("-")
    sign = "-" if descending else ""
    if after:
        rows = rows.filter(_beyond(rows.model, name, after, descending=descending))
    found = list(rows.order_by(column, f"{sign}id")[: size + 1])
    more = len(found) > size
    return Page(found[:size], _cursor(found[size - 1], name) if more else "")


def _cursor(row: Model, name: str) -> str:
    field = row._meta.get_field(name)
    value = field.value_to_string(row) if hasattr(field, "value_to_string") else ""
    return base64.urlsafe_b64encode(json.dumps([value, str(row.pk)]).encode()).decode().rstrip("=")


def _beyond(model: type[Model], name: str, cursor: str, *, descending: bool) -> Q:
    """Rows after the cursor's: not before its value, and not the value itself with the same or an earlier id."""
    value, key = _read(model, name, cursor)
    bound, tie = ("lte", "gte") if descending else ("gte", "lte")
    return Q(**{f"{name}__{bound}": value}) & ~Q(**{name: value, f"id__{tie}": key})


def _read(model: type[Model], name: str, cursor: str) -> tuple[Any, Any]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        value, key = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        column, primary = model._meta.get_field(name), model._meta.get_field("id")
        return _typed(column, value), _typed(primary, key)
    except (ValueError, TypeError, binascii.Error, ValidationError):
        raise BadRequest.at(
            "/after", "bad_cursor", "This link to a page is damaged: start at the first page."
        ) from None


def _typed(field: Any, value: object) -> Any:
    if not isinstance(value, str) or "\x00" in value:
        raise ValueError(value)
    typed = field.to_python(value)
    if typed is None:
        raise ValueError(value)
    return typed
