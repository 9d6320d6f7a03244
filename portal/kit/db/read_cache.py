"""Settings that most requests read, cached until one of them changes: grants, projects, quotas, priorities, types.

Within `cached_reads` a `cached_read` function queries once for the same arguments. On PostgreSQL its answer is used by
later requests of the process, too, for as long as the version of the settings is the same: triggers on the tables that
apps name as `cached` insert a row in the transaction of each change, whichever program makes it. The version is the
number of these rows with the highest id and the latest time. Inserts wait for no other transaction. An id never
returns, so that what was read in a transaction that was rolled back is never used again; a database that was restored
counts its ids again, but at other times.
Cached rows are shared between requests: they are not to be changed.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeVar, cast

from django.apps import AppConfig
from django.db import connection, connections, transaction

from portal.kit.models import SettingsVersion

Function = TypeVar("Function", bound=Callable[..., Any])
Reads = dict[Hashable, Any]
LARGEST: Final = 50_000
_TABLE: Final = SettingsVersion._meta.db_table
SETTINGS_VERSION: Final = f"SELECT count(*), max(id), max(changed_at) FROM {_TABLE}"  # noqa: S608  # the table's name
"""On PostgreSQL the version of the settings, one row."""
_current: ContextVar[Reads | None] = ContextVar("_current", default=None)
_of_version: tuple[object, Reads] = (None, {})


def current_reads() -> Reads:
    """What was read under the version of now, in `cached_reads` what it has; empty where a database has no triggers."""
    global _of_version  # noqa: PLW0603  # one assignment of a pair, which threads see whole
    if (outer := _current.get()) is not None:
        return outer
    if connection.vendor != "postgresql":
        return {}
    with connection.cursor() as cursor:
        cursor.execute(SETTINGS_VERSION)
        version = cursor.fetchone()
    known, reads = _of_version
    if version != known or len(reads) > LARGEST:
        reads = {}
        _of_version = version, reads
    return reads


@contextmanager
def cached_reads(reads: Reads | None = None) -> Iterator[None]:
    """For a unit of work that does not change what it reads. `reads`: of a `current_reads` earlier in the request."""
    outer = _current.get()
    if outer is None:
        outer = current_reads() if reads is None else reads
    token = _current.set(outer)
    try:
        yield
    finally:
        _current.reset(token)


def cached_read(function: Function) -> Function:
    """Decorate a function that reads rows. Outside of `cached_reads` every call reads them."""

    @wraps(function)
    def read(*arguments: Hashable) -> Any:
        reads = _current.get()
        if reads is None:
            return function(*arguments)
        key = (function, *arguments)
        if key not in reads:
            reads[key] = function(*arguments)
        return reads[key]

    return cast("Function", read)


_DRAW: Final = f"""
CREATE OR REPLACE FUNCTION rung_settings_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO {_TABLE} DEFAULT VALUES; RETURN NULL; END $$
"""


def forget_old() -> None:
    """Delete the rows of all changes so far. A new row makes the version one that never was."""
    SettingsVersion.objects.filter(pk__lt=SettingsVersion.objects.create().pk).delete()


def install_triggers(sender: AppConfig, using: str, **_kwargs: Any) -> None:
    """Receiver of `post_migrate`: watch the tables that the app names as `cached`, with the fields whose updates count.

    Without fields all of them count. Insertions and deletions always do.
    """
    database = connections[using]
    if database.vendor != "postgresql" or not hasattr(sender, "cached"):
        return
    tables = database.introspection.table_names()
    with transaction.atomic(using=using), database.cursor() as cursor:
        for name, fields in sender.cached.items():
            meta = sender.get_model(name)._meta
            if {meta.db_table, _TABLE} <= set(tables):
                columns = ", ".join(str(each.column) for each in meta.concrete_fields if each.name in fields)
                cursor.execute(_DRAW)
                cursor.execute(
                    f"CREATE OR REPLACE TRIGGER rung_settings_changed AFTER INSERT OR DELETE OR TRUNCATE "
                    f"OR UPDATE {columns and f'OF {columns}'} ON {meta.db_table} "
                    f"FOR EACH STATEMENT EXECUTE FUNCTION rung_settings_changed()"
                )
