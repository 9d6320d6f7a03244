"""The triggers that draw a new mark with every change: made anew after every migration, which may rebuild tables.

An app names in its configuration what is marked, models by topic, such as `marked = {"rules": {"Cluster": ("name",)}}`,
with the fields whose updates count, or none for all. Insertions and deletions always count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from django.apps import AppConfig, apps
from django.db import connections, transaction

from portal.core.models import ChangeMark

PREFIX: Final = "rung_mark_"
_TABLE: Final = ChangeMark._meta.db_table


class Runner(Protocol):
    """Something that runs a statement: a schema editor or a cursor."""

    def execute(self, sql: str, params: None = None) -> object: ...


@dataclass(frozen=True, slots=True)
class Marked:
    """One table whose changes count."""

    topic: str
    table: str
    columns: tuple[str, ...]

    @property
    def trigger(self) -> str:
        return f"{PREFIX}{self.table}"

    @property
    def update(self) -> str:
        """The event of an update that counts."""
        return f"UPDATE OF {', '.join(self.columns)}" if self.columns else "UPDATE"


def install(sender: AppConfig, using: str, **_kwargs: Any) -> None:
    """Receiver of `post_migrate`: (re)make the triggers on the tables of that app, as far as it is migrated."""
    connection = connections[using]
    there = connection.introspection.table_names() if getattr(sender, "marked", None) else ()
    marked = [each for each in _marked_by(sender) if each.table in there]
    if not marked or _TABLE not in there:
        return
    statements = _ON[connection.vendor]
    with transaction.atomic(using=using), connection.cursor() as cursor:
        for each in marked:
            for statement in statements(each):
                cursor.execute(statement)


def remove(runner: Runner, vendor: str) -> None:
    """Take every trigger away, before the table of the marks goes."""
    if vendor == "postgresql":
        for topic in ("access", "rules"):
            runner.execute(f"DROP FUNCTION IF EXISTS {PREFIX}draw_{topic} CASCADE")
        return
    for app in apps.get_app_configs():
        for each in _marked_by(app):
            for event in _EVENTS:
                runner.execute(f"DROP TRIGGER IF EXISTS {each.trigger}_{event}")


def _marked_by(app: AppConfig) -> Iterator[Marked]:
    for topic, tables in getattr(app, "marked", {}).items():
        for name, fields in tables.items():
            meta = app.get_model(name)._meta
            columns = {field.name: str(field.column) for field in meta.concrete_fields}
            yield Marked(topic, meta.db_table, tuple(columns[name] for name in fields))


def _draw(topic: str, random: str) -> str:
    """A new mark for the topic; the very first draws one for every topic."""
    return (
        f"INSERT INTO {_TABLE} (id, access, rules) VALUES (1, {random}, {random}) "  # noqa: S608  # names of ours
        f"ON CONFLICT (id) DO UPDATE SET {topic} = excluded.{topic}"
    )


_EVENTS: Final = ("insert", "update", "delete")


def _on_sqlite(marked: Marked) -> Iterator[str]:
    draw = _draw(marked.topic, "lower(hex(randomblob(16)))")
    for event in _EVENTS:
        when = marked.update if event == "update" else event.upper()
        yield f"DROP TRIGGER IF EXISTS {marked.trigger}_{event}"
        yield f"CREATE TRIGGER {marked.trigger}_{event} AFTER {when} ON {marked.table} BEGIN {draw}; END"


def _on_postgresql(marked: Marked) -> Iterator[str]:
    function = f"{PREFIX}draw_{marked.topic}"
    draw = _draw(marked.topic, "gen_random_uuid()::text")
    yield (
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {draw}; RETURN NULL; END $$"
    )
    yield f"DROP TRIGGER IF EXISTS {marked.trigger} ON {marked.table}"
    yield (
        f"CREATE TRIGGER {marked.trigger} AFTER INSERT OR DELETE OR TRUNCATE OR {marked.update} ON {marked.table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
    )


_ON: Final = {"sqlite": _on_sqlite, "postgresql": _on_postgresql}
