"""The observer process: watches every cluster whose lease it holds; leases divide clusters evenly among observers.

Holding one is an optimization, no more: two observers of one cluster find out by the versions that they store.

Any number may run; leases share the clusters out evenly. The watches of a cluster have threads of their own; what
they bring is stored by a small pool of threads, which never wait for a cluster that streams. A cluster that is broken
or slow is tried less and less often and never holds up another one.
"""

import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import uniform
from threading import Event
from typing import Final
from uuid import UUID

import structlog
from django.db import DEFAULT_DB_ALIAS, DatabaseError, close_old_connections, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from clusters.inventory.models import Cluster, ClusterState
from clusters.ports.gateway import ClusterError
from clusters.watch.models import ObserverLease, ObserverSeat
from clusters.watch.services.informers import ClusterWatch, ConcurrentObserver, Poller, watcher_for
from clusters.watch.services.observations import lease_of
from portal.kit.messaging import heartbeats

LEASE: Final = timedelta(seconds=15)


def acquire(*, cluster: Cluster, holder: str) -> bool:
    """Take or renew the lease; False while another observer holds it."""
    lease_of(cluster)
    free = ObserverLease.objects.filter(Q(holder=holder) | Q(expires_at__lt=Now()), cluster=cluster)
    return free.update(holder=holder, expires_at=Now() + LEASE) == 1


def balance_leases(*, holder: str) -> set[UUID]:
    """Show life, renew, give away what is too much and take what is missing; the clusters that are the holder's now.

    1. take a seat among the living; the seats' order says who takes one more where it does not come out even
    2. renew the leases of active clusters
    3. release those beyond the share, or take free ones up to it
    """
    share = _share(holder)
    mine = _renewed(holder)
    for cluster_id in mine[share:]:
        ObserverLease.objects.filter(cluster=cluster_id, holder=holder).update(holder="", expires_at=Now())
    taken = mine[:share]
    if len(taken) < share:
        taken += _taken(holder, share - len(taken), taken)
    return set(taken)


def release(*, holder: str) -> None:
    """Give every lease of this holder back, and its seat."""
    ObserverLease.objects.filter(holder=holder).update(holder="", expires_at=Now())
    ObserverSeat.objects.filter(holder=holder).delete()


def unwatched() -> list[UUID]:
    """Active clusters without a held lease."""
    watched = ObserverLease.objects.filter(expires_at__gte=Now()).exclude(holder="").values("cluster")
    return list(_active().exclude(pk__in=watched).values_list("pk", flat=True))


def _active() -> QuerySet[Cluster]:
    return Cluster.objects.filter(state=ClusterState.ACTIVE).order_by("pk")


def _share(holder: str) -> int:
    seat = ObserverSeat(holder=holder, seen_at=Now())
    ObserverSeat.objects.bulk_create([seat], update_conflicts=True, unique_fields=["holder"], update_fields=["seen_at"])
    ObserverSeat.objects.filter(seen_at__lt=Now() - LEASE).delete()
    living = list(ObserverSeat.objects.order_by("holder").values_list("holder", flat=True))
    place = living.index(holder) if holder in living else len(living)
    each, more = divmod(_active().count(), max(len(living), 1))
    return each + (place < more)


def _renewed(holder: str) -> list[UUID]:
    leases = ObserverLease.objects.filter(holder=holder, cluster__state=ClusterState.ACTIVE)
    mine = list(leases.order_by("cluster").values_list("cluster", flat=True))
    renewed = ObserverLease.objects.filter(holder=holder, cluster__in=mine).update(expires_at=Now() + LEASE)
    if renewed != len(mine):  # one was taken over in between
        mine = list(leases.order_by("cluster").values_list("cluster", flat=True))
    return mine


def _taken(holder: str, count: int, mine: Iterable[UUID]) -> list[UUID]:
    taken: list[UUID] = []
    for cluster in _active().exclude(pk__in=mine).filter(pk__in=unwatched()):
        if len(taken) < count and acquire(cluster=cluster, holder=holder):
            taken.append(cluster.pk)
    return taken


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
class WatchedCluster:
    """A cluster of ours: how it is watched, once it could be reached, and when it is tried again."""

    cluster: Cluster
    watcher: ClusterWatch | Poller | None = None
    turn: Future[None] | None = None
    failures: int = 0
    not_before: float = 0.0
    ended: bool = False

    def is_due(self) -> bool:
        """Its last turn is over, and there is something to do."""
        if (self.turn is not None and not self.turn.done()) or time.monotonic() < self.not_before:
            return False
        return self.watcher is None or self.watcher.is_due()

    def close(self) -> None:
        """Start over the next time, from the stored versions."""
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            watcher.close()

    def end(self) -> None:
        """Watch it no longer. What a turn is opening at this moment, that turn closes."""
        self.ended = True
        self.close()


@dataclass
class Observer:
    """Runs until `stop` is set."""

    stop: Event = field(default_factory=Event)
    holder: str = field(default_factory=new_holder)
    pause: float = PAUSE
    _bell: Event = field(default_factory=Event)
    _watched: dict[UUID, WatchedCluster] = field(default_factory=dict)
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
                each.end()
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
        """The clusters that are ours now; None: unknown."""
        with self._database():
            close_old_connections()
            mine = balance_leases(holder=self.holder)
            heartbeats.beat(heartbeats.OBSERVER)
            return {cluster.pk: cluster for cluster in Cluster.objects.filter(pk__in=mine)}
        return None

    def _watch(self, clusters: Mapping[UUID, Cluster]) -> None:
        """Those that are no longer ours are let go."""
        for pk in [pk for pk in self._watched if pk not in clusters]:
            self._watched.pop(pk).end()
        for pk, cluster in clusters.items():
            self._watched.setdefault(pk, WatchedCluster(cluster)).cluster = cluster

    def _dispatch(self, pool: ThreadPoolExecutor) -> None:
        for each in self._watched.values():
            if each.is_due():
                each.turn = pool.submit(self._turn, each)
                each.turn.add_done_callback(lambda _turn: self._bell.set())  # what arrived since is due at once

    def _turn(self, watched: WatchedCluster) -> None:
        try:
            watcher = watched.watcher or watcher_for(watched.cluster, self._bell, pause=self.pause)
            watched.watcher = watcher
            watcher.turn()
            watched.failures = 0
        except ConcurrentObserver:
            watched.close()
        except ClusterError as error:
            self._failed(watched, error.code, error.message, after=error.retry_after)
        except Exception as error:  # a handler's fault or a database that is away must not end the observer
            log.exception("observer.failed", cluster=watched.cluster.name)
            self._failed(watched, type(error).__name__, "", after=None)
            connection.close()  # this thread's own; the next turn makes another
        finally:
            if watched.ended:
                watched.close()

    def _failed(self, watched: WatchedCluster, code: str, message: str, *, after: int | None) -> None:
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
