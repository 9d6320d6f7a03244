"""The observer: keeps an eye on every cluster whose lease it gets, and stores what it sees in batches.

Any number may run; leases share the clusters out evenly. The watches of a cluster have threads of their own; what they
bring is stored by a small pool of threads, which never wait for a cluster that streams. A cluster that is broken or
slow is tried less and less often and never holds up another one.
"""

import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import uniform
from threading import Event
from typing import Final
from uuid import UUID

import structlog
from django.db import DEFAULT_DB_ALIAS, DatabaseError, close_old_connections, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from clusters.errors import ClusterError
from clusters.models import Cluster
from clusters.services.leases import release, share_out
from clusters.services.streams import Overtaken, Rounds, Streams, sight_of
from portal.core import heartbeats

log = structlog.get_logger(__name__)

PAUSE: Final = 0.7
LONGEST_PAUSE: Final = 30.0
THREADS: Final = 8
BREATH: Final = 0.01
"""Seconds between two batches at least."""


def new_holder() -> str:
    """A name no other observer has, also after a restart with the same process id."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@dataclass(slots=True)
class Watched:
    """A cluster of ours: how it is watched, once it could be reached, and when it is tried again."""

    cluster: Cluster
    sight: Streams | Rounds | None = None
    turn: Future[None] | None = None
    failures: int = 0
    not_before: float = 0.0

    def is_due(self) -> bool:
        """Its last turn is over, and there is something to do."""
        if (self.turn is not None and not self.turn.done()) or time.monotonic() < self.not_before:
            return False
        return self.sight is None or self.sight.is_due()

    def close(self) -> None:
        """Begin anew the next time, from the versions that are kept."""
        if self.sight is not None:
            self.sight.close()
        self.sight = None


@dataclass
class Observer:
    """Runs until `stop` is set."""

    stop: Event = field(default_factory=Event)
    holder: str = field(default_factory=new_holder)
    pause: float = PAUSE
    _bell: Event = field(default_factory=Event)
    _watched: dict[UUID, Watched] = field(default_factory=dict)
    _shared_at: float = float("-inf")
    _sharing: Future[dict[UUID, Cluster] | None] | None = None
    _connections: list[BaseDatabaseWrapper] = field(default_factory=list)

    def run(self) -> None:
        """Loop; a database that is away is waited for."""
        with (
            ThreadPoolExecutor(THREADS, "observer", self._begin_thread) as pool,
            ThreadPoolExecutor(1, "share", self._begin_thread) as sharer,
        ):
            while not self.stop.is_set():
                self._share(sharer)
                self._dispatch(pool)
                self.stop.wait(BREATH)
                self._bell.wait(min(self.pause / 4, 0.1))
                self._bell.clear()
            for each in self._watched.values():
                each.close()
        with self._database():
            release(holder=self.holder)
        for open_one in (connection, *self._connections):
            open_one.close()

    def _begin_thread(self) -> None:
        """A thread keeps its connection from turn to turn; who ends the pool closes it."""
        own = connections[DEFAULT_DB_ALIAS]
        own.inc_thread_sharing()
        self._connections.append(own)

    def _share(self, sharer: ThreadPoolExecutor) -> None:
        """Ask now and then which clusters are ours; what is urgent does not wait for the answer."""
        if self._sharing is None and time.monotonic() - self._shared_at >= 2 * self.pause:
            self._shared_at = time.monotonic()
            self._sharing = sharer.submit(self._shared)
            self._sharing.add_done_callback(lambda _answer: self._bell.set())
        elif self._sharing is not None and self._sharing.done():
            answer, self._sharing = self._sharing.result(), None
            if answer is not None:
                self._watch(answer)

    def _shared(self) -> dict[UUID, Cluster] | None:
        """The clusters that are ours now; None: nobody knows."""
        with self._database():
            close_old_connections()
            mine = share_out(holder=self.holder)
            heartbeats.beat(heartbeats.OBSERVER)
            return {cluster.pk: cluster for cluster in Cluster.objects.filter(pk__in=mine)}
        return None

    def _watch(self, clusters: Mapping[UUID, Cluster]) -> None:
        """Those that are no longer ours are let go."""
        for pk in [pk for pk in self._watched if pk not in clusters]:
            self._watched.pop(pk).close()
        for pk, cluster in clusters.items():
            self._watched.setdefault(pk, Watched(cluster)).cluster = cluster

    def _dispatch(self, pool: ThreadPoolExecutor) -> None:
        for each in self._watched.values():
            if each.is_due():
                each.turn = pool.submit(self._turn, each)
                each.turn.add_done_callback(lambda _turn: self._bell.set())  # what came meanwhile is due at once

    def _turn(self, watched: Watched) -> None:
        try:
            if watched.sight is None:
                watched.sight = sight_of(watched.cluster, self._bell, pause=self.pause)
            watched.sight.turn()
            watched.failures = 0
        except Overtaken:
            watched.close()
        except ClusterError as error:
            self._failed(watched, error.code, error.message, after=error.retry_after)
        except Exception as error:  # a handler's fault or a database that is away must not end the observer
            log.exception("observer.failed", cluster=watched.cluster.name)
            self._failed(watched, type(error).__name__, "", after=None)
            connection.close()  # this thread's own; the next turn makes another

    def _failed(self, watched: Watched, code: str, message: str, *, after: int | None) -> None:
        """Nothing that was taken is lost: it comes again from the versions that are kept."""
        watched.close()
        watched.failures += 1
        pause = after or min(self.pause * 2**watched.failures, LONGEST_PAUSE) * uniform(0.8, 1.0)  # noqa: S311 - spread
        watched.not_before = time.monotonic() + pause
        log.warning("observer.cluster_error", cluster=watched.cluster.name, code=code, message=message, pause=pause)

    @contextmanager
    def _database(self) -> Iterator[None]:
        """A database that is away is none of our faults."""
        try:
            yield
        except DatabaseError as error:
            log.warning("observer.database_away", error=type(error).__name__)
