"""Celery's beat and consumer, changed so that they outlive their database and their broker.

Celery's beat ends at the first error of a tick; this scheduler logs it, closes the connection and tries again, less and
less often. What a broker cannot take is logged and due again next time. Two schedulers at once are harmless.

Celery 5.6 ends the worker when it finds, on its way back to the broker, a process of its pool that has died but was not
yet replaced: ValueError for the descriptor of the dead process, WorkerLostError before the first task, StopIteration
while the queue of the dead process is not free yet (https://github.com/celery/celery/issues/9250). This consumer starts
again."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import structlog
from celery.exceptions import WorkerLostError
from celery.worker.consumer import Consumer
from django.db import Error, close_old_connections, connection
from django_celery_beat.schedulers import DatabaseScheduler

from portal.kit.messaging import heartbeats

log = structlog.get_logger(__name__)

BEAT_SECONDS: Final = 5.0
LONGEST_PAUSE: Final = 10.0


class HeartbeatScheduler(DatabaseScheduler):
    """Schedules from the database and notes a heartbeat every few seconds."""

    beaten_at = float("-inf")
    is_set_up = False
    _last_timestamp: datetime | None = None
    failures = 0
    """Ticks in a row that the database did not serve."""

    def setup_schedule(self) -> None:
        """Left to the first tick, which can wait for the database."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One round; answers the seconds to sleep."""
        try:
            if self.failures:
                connection.ensure_connection()
            if not self.is_set_up:
                super().setup_schedule()
                self.is_set_up = True
            seconds = float(super().tick(*args, **kwargs))
            self._beat()
        except Error as error:
            return self._without_database(error)
        if self.failures:
            log.warning("beat.database_back", failures=self.failures)
            self.failures = 0
        return seconds

    def update_from_dict(self, mapping: Mapping[str, Any]) -> None:
        """Store entries; unlike the original, raise an error instead of going on without the entry."""
        entries = [self.Entry.from_entry(name, app=self.app, **fields) for name, fields in mapping.items()]
        self.schedule.update({entry.name: entry for entry in entries if entry.model.enabled})

    def schedule_changed(self) -> bool:
        """Has anything been changed in the database? Unlike the original, raise its error: `tick` backs off."""
        close_old_connections()
        before, self._last_timestamp = self._last_timestamp, self.Changes.last_change()
        return bool(before and self._last_timestamp and self._last_timestamp > before)

    def sync(self) -> None:
        """Store when entries ran last. Not while the database is away: at the end it would only be waited for."""
        if not self.failures or connection.connection is not None:
            super().sync()

    def _beat(self) -> None:
        if time.monotonic() - self.beaten_at >= BEAT_SECONDS:
            heartbeats.beat(heartbeats.BEAT)
            self.beaten_at = time.monotonic()

    def _without_database(self, error: Error) -> float:
        """Drop the connection and what was read over it; answers the seconds until the next try."""
        if not self.failures:
            log.warning("beat.database_away", error=str(error).strip())
        connection.close()
        self._initial_read, self._heap = True, None
        self.failures += 1
        return min(2.0 ** (self.failures - 1), LONGEST_PAUSE)


RESTART_TRIES: Final = 50
PAUSE_SECONDS: Final = 0.1


class ReconnectingConsumer(Consumer):
    """Celery's consumer, for which a dead process of the pool is a reason to start again."""

    connection_errors: tuple[type[BaseException], ...]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.connection_errors = (*self.connection_errors, ValueError, WorkerLostError)

    def on_close(self) -> None:
        """Replace the dead processes of the pool. StopIteration: their queues are not free after all tries."""
        for left in reversed(range(RESTART_TRIES)):
            try:
                super().on_close()
                break
            except StopIteration:
                if not left:
                    raise
                log.info("consumer.pool_not_ready")
                time.sleep(PAUSE_SECONDS)
        if self.pool:
            self.pool.maintain_pool()
