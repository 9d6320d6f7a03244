"""Django's PostgreSQL with fewer round trips in a transaction.

A statement whose answer nobody waits for leaves with the next one, or with the COMMIT: they are sent as one text. BEGIN
is such a statement, and so is what a service has done last (`leave`). psycopg would send BEGIN by itself and wait for
it, so it stays in autocommit and is told in words.
"""

import select
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from django.db.backends.postgresql import base
from django.db.backends.utils import debug_transaction
from psycopg import ClientCursor
from psycopg_pool import PoolTimeout

Said = tuple[str, Sequence[Any]]
BEGIN: Final[Said] = ("BEGIN", ())
IN_VAIN_SECONDS: Final = 5.0
_OF_THE_SERVER: Final[Any] = base.ServerSideCursor


class Cursor(ClientCursor[Any]):
    """Says what is due before its own statement, in the same round trip where the text allows it."""

    wrapper: "DatabaseWrapper | None" = None
    """None for psycopg's own cursors, as those that a pool looks at its connections with."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Run what is due and the query; the answer is the query's. An error may be that of any of them."""
        due = self._due()
        if not due:
            return super().execute(query, params, **options)
        text, values = joined(due)
        if not isinstance(query, str) or isinstance(params, Mapping):
            super().execute(text, values)
            return super().execute(query, params, **options)
        if params is None:
            query = query.replace("%", "%%")
        super().execute(f"{text}; {query}", [*values, *(params or ())], **options)
        for _ in due:
            self.nextset()
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        """Run what is due, then the query with each of these values."""
        self.catch_up()
        super().executemany(query, params_seq, **options)

    def copy(self, *args: Any, **options: Any) -> Any:
        """Run what is due, then copy."""
        self.catch_up()
        return super().copy(*args, **options)

    def catch_up(self) -> None:
        """Run what is due by itself."""
        if due := self._due():
            text, values = joined(due)
            super().execute(text, values)

    def _due(self) -> list[Said]:
        return self.wrapper.take_due() if self.wrapper is not None else []


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that keeps what is due: all of it in the open transaction, none of it outside of one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._due: list[Said] = []
        self._in_vain_until = 0.0

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Django's, or one of the pool that its server has not closed meanwhile: nothing is sent to find that out.

        A request that waited for the pool in vain does not wait a second time, as for the log or the page of its error.
        """
        if not self.pool:
            return super().get_new_connection(conn_params)
        if time.monotonic() < self._in_vain_until:
            raise PoolTimeout("has just waited for a connection in vain")
        try:
            while (found := super().get_new_connection(conn_params)) and _has_ended(found):
                found.close()
                self.pool.putconn(found)
        except PoolTimeout:
            self._in_vain_until = time.monotonic() + IN_VAIN_SECONDS
            raise
        return found

    def leave(self, statements: Sequence[Said]) -> None:
        """Run these with the next statement of this transaction or with its COMMIT, whose error may then be theirs.

        Their texts are formats, with or without values: a per cent sign stands doubled.
        """
        self.validate_no_broken_transaction()
        self._due += statements
        if not self.in_atomic_block:
            self._catch_up()

    def take_due(self) -> list[Said]:
        """What is due; whoever takes it runs it."""
        due, self._due = self._due, []
        return due

    def get_connection_params(self) -> dict[str, Any]:
        """Django's, with our cursor."""
        return {**super().get_connection_params(), "cursor_factory": Cursor}

    def create_cursor(self, name: str | None = None) -> Any:
        """A cursor that says what is due. A named one is of the server: it is for one statement, read in parts.

        Django lets a named cursor outlive its transaction where psycopg is in autocommit; here that says nothing.
        """
        if name is not None:
            self._catch_up()
            return _OF_THE_SERVER(self.connection, name=name, scrollable=False, withhold=self.autocommit)
        cursor = super().create_cursor()
        cursor.wrapper = self
        return cursor

    # What Django's types do not know: the parts of its wrapper that backends are there to replace.

    def _set_autocommit(self, autocommit: bool) -> None:  # noqa: FBT001  # Django's signature
        self._due = [] if autocommit else [BEGIN]
        if autocommit:
            super()._set_autocommit(autocommit)  # type: ignore[misc]

    def _commit(self) -> None:
        due = self.take_due()
        if due in ([], [BEGIN]):
            super()._commit()  # type: ignore[misc]
            return
        text, values = joined(due)
        with debug_transaction(self, "COMMIT"), self.wrap_database_errors, self.connection.cursor() as cursor:
            cursor.execute(f"{text}; COMMIT", values)

    def _rollback(self) -> None:
        self._due = []
        super()._rollback()  # type: ignore[misc]

    def _catch_up(self) -> None:
        if self._due:
            with self.cursor() as cursor:
                cursor.cursor.catch_up()


def _has_ended(connection: Any) -> bool:
    """Is there anything to read in an idle connection? It is its end, or what comes right before it."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def joined(due: Sequence[Said]) -> tuple[str, list[Any]]:
    """Statements as one text, with all their values."""
    return "; ".join(text for text, _ in due), [value for _, values in due for value in values]
