"""What was read from the database may be kept in a process for as long as nothing it was made of has changed.

The database holds a mark per topic, random and drawn anew by triggers with every change of the rows that apps name in
their configuration: no writer can forget it, and no mark ever comes back, neither after a rollback nor in another
process. A reader asks for the marks first, in one statement, and reads anew whatever it kept under other ones. A writer
that decides by marks of a moment ago has them compared when its audit record is linked (`confirmed`), which spares it
the question at its beginning.

- `access`: accounts and what they may do
- `rules`: what decides about a submit: projects, quotas, caps, node pools, the dictionary, the workload types
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, cast

from django.db import connection

from portal.core.models import ChangeMark

Topic = Literal["access", "rules"]
MOST_KEPT: Final = 10_000
_TABLE: Final = ChangeMark._meta.db_table
_READ: Final = f"SELECT access, rules FROM {_TABLE}"  # noqa: S608  # the table's own name
BESIDE: Final = f"(SELECT access FROM {_TABLE}), (SELECT rules FROM {_TABLE})"  # noqa: S608  # the table's own name
"""The marks as two columns of another statement; NULL before the first change. See `marks_of_row`."""
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks at one moment; empty where nothing may be kept."""

    access: str = ""
    rules: str = ""


class Moved(Exception):
    """What was decided by has changed before it was written: decide again."""


_now: ContextVar[Marks | None] = ContextVar("_now", default=None)
_to_confirm: ContextVar[Marks | None] = ContextVar("_to_confirm", default=None)


def read_marks() -> Marks:
    """The marks as the current transaction sees them. Before the first change there are none."""
    with connection.cursor() as cursor:
        cursor.execute(_READ)
        found = cursor.fetchone()
    return marks_of_row(found or ())


def marks_of_row(row: Sequence[Any]) -> Marks:
    """The marks out of the columns of `BESIDE`."""
    return Marks(*(mark or "" for mark in row))


@contextmanager
def steady(marks: Marks | None = None) -> Iterator[Marks]:
    """Within it `Kept` values are taken as they are if they were read under these marks; by default those of now."""
    marks = read_marks() if marks is None else marks
    before = _now.set(marks)
    try:
        yield marks
    finally:
        _now.reset(before)


def marks_now() -> Marks | None:
    """Those of the `steady` around the caller; None outside of one."""
    return _now.get()


@contextmanager
def confirmed() -> Iterator[None]:
    """Within a `steady`: whoever writes an audit record here compares its marks, by `confirm`."""
    before = _to_confirm.set(_now.get())
    try:
        yield
    finally:
        _to_confirm.reset(before)


def confirm(marks: Marks) -> None:
    """Compare the marks at the moment of writing. Moved when they are not those that a `confirmed` was entered with."""
    if _to_confirm.get() not in {None, marks}:
        raise Moved


class Kept(Generic[Value]):
    """Values of this process by key, all read under one mark of a topic. They are shared: nobody changes them."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._held: tuple[str, dict[Hashable, Value]] = ("", {})

    def of(self, key: Hashable, read: Callable[[], Value]) -> Value:
        """What was read for the key under the current mark, else `read()`. Outside of `steady` always the latter."""
        values = self._values()
        if values is None:
            return read()
        found = values.get(key, _ABSENT)
        if found is _ABSENT:
            found = read()
            if len(values) >= MOST_KEPT:
                values.clear()
            values[key] = found
        return cast("Value", found)

    def _values(self) -> dict[Hashable, Any] | None:
        """The values under the current mark: each mark has a dictionary of its own, so a late thread spoils none."""
        mark = getattr(_now.get(), self._topic, "")
        if not mark:
            return None
        held, values = self._held
        if held != mark:
            values = {}
            self._held = (mark, values)
        return values


_ABSENT: Final = object()
