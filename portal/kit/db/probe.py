"""Reads for health end within a second, whatever the database does: refuse, hang, or vanish from the network."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Final, Generic, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connections

DEADLINE_SECONDS: Final = 0.8

Value = TypeVar("Value")


class Probe(Generic[Value]):
    """A read in a thread and over a connection of its own. One runs at a time; requests meanwhile share its result.

    Where no separate connection is configured (SQLite), it reads in the thread of the request.
    """

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read = read
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(1, "health")
        self._running: Future[Value] | None = None

    def read(self) -> Value:
        """The result; OperationalError where there is none in time."""
        if settings.RUNG_HEALTH_DATABASE == DEFAULT_DB_ALIAS:
            return self._read()
        with self._lock:
            if self._running is None or self._running.done():
                self._running = self._threads.submit(self._read_beside)
            running = self._running
        try:
            return running.result(DEADLINE_SECONDS)
        except TimeoutError:
            raise OperationalError(f"The database did not respond within {DEADLINE_SECONDS} s.") from None

    def _read_beside(self) -> Value:
        """Over the connection of the last read; over another one where that has ended meanwhile."""
        try:
            return self._read()
        except Error:
            connections[settings.RUNG_HEALTH_DATABASE].close()
            return self._read()
