"""New rows of the hot paths, in statements whose texts are made once per process.

The ORM says the same at three times the cost. PostgreSQL reads a row out of one JSON text, so that no value is bound by
itself; other databases get them bound. No signals are sent, and nothing else happens but the INSERT. What is
written together is one round trip where the database takes several statements at once.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Protocol, runtime_checkable

import orjson
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import BooleanField, CharField, Field, IntegerField, Model, TextField

TOGETHER: Final = 1000
PLAIN: Final = (BooleanField, CharField, IntegerField, TextField)
"""Fields whose values every database takes as they are."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """How rows of one model are written: the fields it fills, and the key that the database draws, if it does.

    `asking`: what follows where the key is wanted; `said`: places of the fields that have their own say about a new
    row's value.
    """

    bound: str
    from_json: str
    asking: str
    fields: tuple["Field[Any, Any]", ...]
    columns: tuple[str, ...]
    said: tuple[int, ...]
    read: Callable[[Model], tuple[Any, ...]]
    drawn: str


@runtime_checkable
class Leaving(Protocol):
    """A connection on which statements may wait for the next one: that of `portal.core.postgresql`."""

    def leave(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, its values, and the row whose key it draws, if it does."""

    text: str
    values: Sequence[Any]
    row: Model | None = None


@dataclass(frozen=True, slots=True)
class Upsertion:
    """How rows of one model are written where some are there already."""

    text: str
    names: tuple[str, ...]
    values: Callable[[Model], tuple[Any, ...]]


def insert(*rows: Model, then: Sequence[Statement] = ()) -> tuple[Any, ...] | None:
    """Write new rows as `save(force_insert=True)` does, then run the rest; answers the first row that the last gives.

    Keys that the database draws are set.
    """
    statements = [*(_written(row, asking=True) for row in rows), *then]
    with connection.cursor() as cursor:
        for together in [statements] if connection.vendor == "postgresql" else [[each] for each in statements]:
            cursor.execute("; ".join(each.text for each in together), [v for each in together for v in each.values])
            for number, each in enumerate(together):
                if number:
                    cursor.nextset()
                if each.row is not None:
                    each.row.pk = cursor.fetchone()[0]
        answer: tuple[Any, ...] | None = cursor.fetchone() if cursor.description else None
    for row in rows:
        row._state.adding, row._state.db = False, connection.alias
    return answer


def leave(row: Model, *then: Statement) -> None:
    """Write a new row and run the rest before anything else is asked in this transaction, or with its commit.

    The row need not learn its key, and an error comes from whatever takes them along: `portal.core.postgresql` saves
    the round trip. Other databases run them now.
    """
    database = connections[connection.alias]
    if isinstance(database, Leaving):
        database.leave([(each.text, each.values) for each in (_written(row, asking=False), *then)])
    else:
        insert(row, then=then)


def _written(row: Model, *, asking: bool) -> Statement:
    database = connections[connection.alias]
    how = _insertion(type(row), database.vendor)
    drawing = row if how.drawn and asking else None
    asked = how.asking if drawing else ""
    values = list(how.read(row))
    for place in how.said:
        values[place] = how.fields[place].pre_save(row, add=True)
    if database.vendor == "postgresql":
        return Statement(how.from_json + asked, [_as_json(dict(zip(how.columns, values, strict=True)))], drawing)
    bound = [_prepared(field, value, database) for field, value in zip(how.fields, values, strict=True)]
    return Statement(how.bound + asked, bound, drawing)


def _as_json(said: object) -> str:
    """Values as PostgreSQL reads them; `orjson` takes no integer of more than 64 bits."""
    try:
        return orjson.dumps(said, default=str).decode()
    except TypeError:
        return json.dumps(said, default=str)


def insert_many(model: type[Model], rows: Sequence[Sequence[Any]]) -> None:
    """Write new rows together: each the values of every field but a drawn key, in the order of the model's fields."""
    if not rows:
        return
    how, database = _insertion(model, connection.vendor), connections[connection.alias]
    values = [[_prepared(field, value, database) for field, value in zip(how.fields, row, strict=True)] for row in rows]
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.executemany(how.bound, values)


def upsert(rows: Sequence[Model], *, unique: Sequence[str], update: Sequence[str]) -> None:
    """Write rows, or these fields of the ones that are there under the same unique fields; keys are set.

    PostgreSQL reads them out of one JSON text, so that no value is bound by itself; other databases take the ORM's way.
    Every value is already as its column holds it.
    """
    if rows and connection.vendor == "postgresql":
        how = _upsertion(type(rows[0]), tuple(unique), tuple(update))
        with transaction.atomic(savepoint=False), connection.cursor() as cursor:
            for start in range(0, len(rows), TOGETHER):
                _upsert_from_json(cursor, how, rows[start : start + TOGETHER])
    elif rows:
        type(rows[0])._default_manager.bulk_create(
            rows, update_conflicts=True, unique_fields=unique, update_fields=update, batch_size=TOGETHER
        )


def _upsert_from_json(cursor: CursorWrapper, how: Upsertion, rows: Sequence[Model]) -> None:
    said = [dict(zip(how.names, how.values(row), strict=True)) for row in rows]
    cursor.execute(how.text, [_as_json(said)])
    for row, (key,) in zip(rows, cursor.fetchall(), strict=True):
        row.pk, row._state.adding, row._state.db = key, False, connection.alias


@lru_cache(maxsize=16)
def _upsertion(model: type[Model], unique: tuple[str, ...], update: tuple[str, ...]) -> Upsertion:
    meta, quote = model._meta, connection.ops.quote_name
    fields = [field for field in meta.local_concrete_fields if not field.primary_key]
    columns = {field.name: str(field.column) for field in fields}
    table, names = quote(meta.db_table), ", ".join(map(quote, columns.values()))
    known = ", ".join(quote(columns[name]) for name in unique)
    changes = ", ".join(f"{quote(columns[name])} = EXCLUDED.{quote(columns[name])}" for name in update)
    source = f"SELECT {names} FROM json_populate_recordset(NULL::{table}, %s)"  # noqa: S608  # names of the model's own
    conflict = f"ON CONFLICT ({known}) DO UPDATE SET {changes} RETURNING {quote(str(meta.pk.column))}"
    text = f"INSERT INTO {table} ({names}) {source} {conflict}"
    return Upsertion(text, tuple(columns.values()), attrgetter(*(field.attname for field in fields)))


def _prepared(field: "Field[Any, Any]", value: Any, database: BaseDatabaseWrapper) -> Any:
    return value if isinstance(field, PLAIN) else field.get_db_prep_save(value, database)


@lru_cache(maxsize=64)
def _insertion(model: type[Model], _vendor: str) -> Insertion:
    meta, quote = model._meta, connection.ops.quote_name
    drawn = meta.pk.attname if meta.pk.db_returning else ""
    fields = tuple(field for field in meta.local_concrete_fields if field.attname != drawn)
    names = ", ".join(quote(str(field.column)) for field in fields)
    table, marks = quote(meta.db_table), ", ".join(["%s"] * len(fields))
    into = f"INSERT INTO {table} ({names})"
    source = f"SELECT {names} FROM json_populate_record(NULL::{table}, %s)"  # noqa: S608  # names of the model's own
    return Insertion(
        bound=f"{into} VALUES ({marks})",
        from_json=f"{into} {source}",
        asking=f" RETURNING {quote(str(meta.pk.column))}" if drawn else "",
        fields=fields,
        columns=tuple(str(field.column) for field in fields),
        said=tuple(place for place, field in enumerate(fields) if type(field).pre_save is not Field.pre_save),
        read=attrgetter(*(field.attname for field in fields)),
        drawn=drawn,
    )
