"""The observer: looks at every cluster whose lease it gets, again and again, each in a thread of its own.

A cluster that is broken or slow is tried less and less often and never holds up another one.
"""

import os
import socket
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Final
from uuid import UUID

import structlog
from django.db import DatabaseError, close_old_connections, connection

from clusters.errors import ClusterError
from clusters.models import Cluster, ClusterState
from clusters.services.leases import acquire, release
from clusters.services.observe import observe_cluster
from portal.core import heartbeats

log = structlog.get_logger(__name__)

PAUSE: Final = 0.7
LONGEST_PAUSE: Final = 30.0
THREADS: Final = 8


def new_holder() -> str:
    """A name no other observer has, also after a restart with the same process id."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@dataclass
class Observer:
    """Runs until `stop` is set."""

    stop: Event = field(default_factory=Event)
    holder: str = field(default_factory=new_holder)
    pause: float = PAUSE
    _busy: dict[UUID, Future[None]] = field(default_factory=dict)
    _failures: dict[UUID, int] = field(default_factory=dict)
    _not_before: dict[UUID, float] = field(default_factory=dict)

    def run(self) -> None:
        """Loop; a database that is away is waited for."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="observer") as pool:
            while not self.stop.is_set():
                self._round(pool)
                self.stop.wait(self.pause)
        try:
            release(holder=self.holder)
        except DatabaseError as error:
            log.warning("observer.database_away", error=type(error).__name__)
        finally:
            connection.close()

    def _round(self, pool: ThreadPoolExecutor) -> None:
        close_old_connections()
        try:
            clusters = list(Cluster.objects.filter(state=ClusterState.ACTIVE))
            heartbeats.beat(heartbeats.OBSERVER)
        except DatabaseError as error:
            log.warning("observer.database_away", error=type(error).__name__)
            return
        for cluster in clusters:
            if self._is_due(cluster):
                self._busy[cluster.pk] = pool.submit(self._look, cluster)

    def _is_due(self, cluster: Cluster) -> bool:
        busy = self._busy.get(cluster.pk)
        return (busy is None or busy.done()) and time.monotonic() >= self._not_before.get(cluster.pk, 0.0)

    def _look(self, cluster: Cluster) -> None:
        try:
            if acquire(cluster=cluster, holder=self.holder):
                observe_cluster(cluster)
            self._failures.pop(cluster.pk, None)
        except ClusterError as error:
            self._failed(cluster, error.code, error.message, after=error.retry_after)
        except Exception as error:  # a handler's fault or a database that is away must not end the observer
            log.exception("observer.failed", cluster=cluster.name)
            self._failed(cluster, type(error).__name__, "", after=None)
        finally:
            connection.close()  # this thread's own; the pool's threads come and go

    def _failed(self, cluster: Cluster, code: str, message: str, *, after: int | None) -> None:
        tries = self._failures[cluster.pk] = self._failures.get(cluster.pk, 0) + 1
        pause = after or min(self.pause * 2**tries, LONGEST_PAUSE)
        self._not_before[cluster.pk] = time.monotonic() + pause
        log.warning("observer.cluster_error", cluster=cluster.name, code=code, message=message, pause=pause)
