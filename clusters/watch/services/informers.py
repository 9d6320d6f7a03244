"""Observe one cluster: one informer thread per kind, or polling where the cluster counts its versions.

This is what a worker does for a cluster without an observer, and how clusters are observed whose versions are one
counter. An observer keeps watches open instead (`streams`); both store by the same `storing.store`.

A thread lists and watches, again and again. A version that has expired, an event out of order, a line that cannot be
read: it lists again, and what is missing from the list has gone. A watch is short, so that its end is a sign of life;
one that falls silent ends by its deadline.
"""

import random
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import structlog

from clusters.connection.services.gateways import credential_version, gateway_for
from clusters.flavours.registry import EVENT_SOURCE_KEYS, LABELLED_EVENT_SOURCE_KEYS, flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ClusterChanged, ClusterError, ClusterGateway, ClusterRefused, Kind, VersionExpired
from clusters.ports.objects import EVENT, NODE, POD, WORKLOAD_KINDS
from clusters.watch.rules import version_of
from clusters.watch.services.objects import stored_fingerprints
from clusters.watch.services.observations import NEWEST, Observation, ObservedChanges, lease_of, store_changes
from clusters.watch.services.visibility_poller import (
    VisibilityPoller,
    query_visibility,
    store_visibility,
    visibility_queries,
)
from clusters.watch.services.watch_buffer import PROOF, VersionedGateway, WatchBatch, WatchBuffer, list_or_watch

JOB_KINDS: Final = tuple(kind for kind in WORKLOAD_KINDS if kind.key != POD.key)
ALWAYS: Final = frozenset({NODE.key, POD.key, EVENT.key})
"""Kinds without which a cluster is not observed."""
SHARED_KINDS: Final = ALWAYS | EVENT_SOURCE_KEYS - LABELLED_EVENT_SOURCE_KEYS
"""Kinds of which also objects that are not ours matter."""


def observe_cluster(cluster: Cluster) -> Observation:
    """Read, store, notify. No transaction is open during requests to the cluster.

    Raises ClusterError; whatever a handler raises, after everything was rolled back.
    """
    lease = lease_of(cluster)
    observation = store_changes(cluster, _see(cluster, lease.versions)).observation
    if flavour_for(cluster.flavour).traits.inquiries:
        store_visibility(
            cluster, query_visibility(cluster, gateway_for(cluster), visibility_queries(cluster)), at=observation.at
        )
    return observation


def kinds_of(cluster: Cluster) -> list[Kind]:
    """What is watched: nodes, pods, events, the objects of workloads, their companion objects, and what reconcile owns.

    Each kind once.
    """
    flavour = flavour_for(cluster.flavour)
    kinds = (NODE, POD, EVENT, *JOB_KINDS, *flavour.traits.beside, *flavour.traits.event_sources, *flavour.kinds())
    return list({kind.key: kind for kind in kinds}.values())


def check_identity(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Versions of one cluster mean nothing on another one behind the same address. Raises ClusterChanged."""
    uid, _version = gateway.identity()
    if cluster.uid and uid != cluster.uid:
        raise ClusterChanged(f"{cluster.name} was {cluster.uid} and is now {uid}.")


def _see(cluster: Cluster, before: Mapping[str, Any]) -> ObservedChanges:
    gateway = gateway_for(cluster)
    if not before:
        check_identity(cluster, gateway)
    newest, looks = "", dict[str, WatchBatch]()
    if isinstance(gateway, VersionedGateway):
        newest = gateway.newest()
        if newest == before.get(NEWEST):
            return ObservedChanges(before, newest=newest)
        looks = _unchanged(cluster, gateway, before, newest)
    for kind in kinds_of(cluster):
        if kind.key not in looks and (found := _look(cluster, gateway, kind, before)):
            looks[kind.key] = found
    return ObservedChanges(before, looks, newest)


def _unchanged(
    cluster: Cluster, gateway: VersionedGateway, before: Mapping[str, Any], newest: str
) -> dict[str, WatchBatch]:
    """By key, kinds of which nothing was written since the last look, so that neither a list nor a watch is needed.

    A kind that was not looked at before, as after a change of the scheduler, is left out, except at the first look.
    """
    try:
        changed = gateway.changed_kinds(since=before.get(NEWEST, "0"))
    except VersionExpired:
        return {}
    unchanged = [kind for kind in kinds_of(cluster) if kind.key not in changed and (kind.key in before or not before)]
    return {kind.key: WatchBatch(kind, newest, whole=not before) for kind in unchanged}


def _look(cluster: Cluster, gateway: ClusterGateway, kind: Kind, before: Mapping[str, Any]) -> WatchBatch | None:
    since = str(before.get(kind.key, ""))
    try:
        if kind.key not in ALWAYS and not gateway.serves(kind):
            return None
        found = list_or_watch(gateway, kind, since=since, managed_only=kind.key not in SHARED_KINDS)
    except ClusterRefused:
        if kind.key in ALWAYS:
            raise
        return None  # it may not be read here
    if found.whole and since:
        check_identity(cluster, gateway)
    return found


log = structlog.get_logger(__name__)

SHORT_WATCH: Final = 15.0
LONG_WATCH: Final = 55.0
"""Seconds of one watch: short for the kinds that prove life, long for the rest."""
BETWEEN: Final = 0.25
"""Seconds between the beginnings of two watches that end at once."""
LONGEST_PAUSE: Final = 30.0
SERVED_EVERY: Final = 60.0
SCOUT_AGAIN: Final = 5.0
FIRST_REFUSAL: Final = 2.0
LONGEST_REFUSAL: Final = 600.0
"""Seconds until a kind that may not be read is tried again, twice as many each time: a right that was granted a moment
ago may be in force a moment later."""
LIFE_EVERY: Final = 2.0


class ConcurrentObserver(Exception):
    """Another observer stored later versions, or credential or scheduler changed: start over."""


class Informer(threading.Thread):
    """Lists and watches one kind until its inbox is closed. Speaks to the cluster only, never to the database."""

    def __init__(self, cluster: Cluster, gateway: ClusterGateway, kind: Kind, inbox: WatchBuffer) -> None:
        super().__init__(name=f"feed-{cluster.name}-{kind.plural}", daemon=True)
        self.kind = kind
        self._cluster, self._gateway, self._inbox = cluster, gateway, inbox
        self._always = kind.key in ALWAYS
        self._managed_only = kind.key not in SHARED_KINDS
        self._since = inbox.open(kind, managed_only=self._managed_only)
        self._wait = SHORT_WATCH if kind.key in PROOF else LONG_WATCH
        self._failures = self._refusals = 0

    def run(self) -> None:
        while not self._inbox.closed:
            try:
                self._turn()
            except VersionExpired:
                self._since = ""
                self._again(None)
            except ClusterError as error:
                self._failed(error)
            except Exception:  # a fault of ours in one kind must not leave the cluster unwatched without a word
                log.exception("observer.feed_failed", cluster=self._cluster.name, kind=self.kind.key)
                self._again(None)

    def _turn(self) -> None:
        if not self._since:
            check_identity(self._cluster, self._gateway)
            found, version = self._gateway.list(self.kind, managed_only=self._managed_only)
            self._inbox.listed(self.kind, found, version)
            self._since = version_of(version)
            self._refusals = 0
            return
        begun = time.monotonic()
        for event in self._gateway.watch(self.kind, since=self._since, wait=self._wait):
            self._inbox.add(self.kind, event)
            self._since = version_of(event.manifest["metadata"].get("resourceVersion"))
            if self._inbox.closed:
                return
        self._failures = 0
        self._inbox.alive(self.kind)
        self._inbox.rest(begun + BETWEEN - time.monotonic())

    def _failed(self, error: ClusterError) -> None:
        if error.transient:
            log.warning(
                "observer.feed",
                cluster=self._cluster.name,
                kind=self.kind.key,
                code=error.code,
                message=error.message,
            )
            self._again(error.retry_after)
        elif self._always or not isinstance(error, ClusterRefused):
            self._inbox.failed(error)
            self._inbox.rest(LONGEST_REFUSAL)  # the storing thread gets the error, and closes it
        else:
            log.info("observer.kind_refused", cluster=self._cluster.name, kind=self.kind.key, message=error.message)
            self._inbox.rest(min(FIRST_REFUSAL * 2.0 ** min(self._refusals, 16), LONGEST_REFUSAL))
            self._refusals += 1

    def _again(self, after: int | None) -> None:
        """At once the first time; then later and later, and never all kinds in the same instant."""
        pause = after if after is not None else min(0.5 * 2**self._failures, LONGEST_PAUSE) if self._failures else 0.0
        self._failures += 1
        self._inbox.rest(pause * random.uniform(1.0, 1.25))  # noqa: S311 - spreads retries


class ClusterWatch:
    """One cluster whose watches stay open."""

    def __init__(self, cluster: Cluster, gateway: ClusterGateway, bell: threading.Event) -> None:
        self._cluster, self._gateway = cluster, gateway
        self._credential = credential_version(cluster)
        self._before = lease_of(cluster).versions
        self._inbox = WatchBuffer(bell, self._before, says=stored_fingerprints(cluster))
        self._asking = VisibilityPoller(cluster, gateway, self._inbox, bell)
        self._feeds: dict[str, Informer] = {}
        self._checked_at = self._shown_at = time.monotonic()
        self._life: float | None = None
        threading.Thread(target=self._scout, name=f"scout-{cluster.name}", daemon=True).start()

    def is_due(self) -> bool:
        """Something has come, or the cluster has shown life again."""
        now = time.monotonic()
        if self._inbox.is_due() or self._asking.is_due() or now - self._checked_at >= SERVED_EVERY:
            return True
        return now - self._shown_at >= LIFE_EVERY and self._last_life() != self._life

    def turn(self) -> None:
        """Store what has come. Raises ClusterError, Overtaken, or whatever a handler raises: close it then."""
        if time.monotonic() - self._checked_at >= SERVED_EVERY:
            self._refuse_what_was()
        self._life, self._shown_at = self._last_life(), time.monotonic()
        age, looks = self._inbox.age(), self._inbox.take()
        stored = store_changes(self._cluster, ObservedChanges(self._before, looks, age=age))
        if stored.versions is None:
            raise ConcurrentObserver
        self._before = stored.versions
        self._asking.turn(stored.observation.at)

    def close(self) -> None:
        """Its threads end with their present request."""
        self._inbox.close()

    def _last_life(self) -> float | None:
        age: timedelta | None = self._inbox.age()
        return None if age is None else round(time.monotonic() - age.total_seconds(), 2)

    def _refuse_what_was(self) -> None:
        self._checked_at = time.monotonic()
        flavour = Cluster.objects.filter(pk=self._cluster.pk).values_list("flavour", flat=True).first()
        if (credential_version(self._cluster), flavour) != (self._credential, self._cluster.flavour):
            raise ConcurrentObserver

    def _scout(self) -> None:
        """Open a feed for each kind the cluster serves now, and look for others now and then."""
        while not self._inbox.closed:
            try:
                self._open_feeds()
                pause = SERVED_EVERY
            except ClusterError as error:  # a feed finds it, too, and reports it
                log.warning("observer.scout", cluster=self._cluster.name, code=error.code)
                pause = error.retry_after or SCOUT_AGAIN
            except Exception:  # as in a feed: nothing else would open what is still missing
                log.exception("observer.scout_failed", cluster=self._cluster.name)
                pause = SCOUT_AGAIN
            self._inbox.rest(pause)

    def _open_feeds(self) -> None:
        for kind in kinds_of(self._cluster):
            if kind.key not in self._feeds and (kind.key in ALWAYS or self._gateway.serves(kind)):
                self._feeds[kind.key] = Informer(self._cluster, self._gateway, kind, self._inbox)
                self._feeds[kind.key].start()


class Poller:
    """One cluster that says cheaply if anything changed: it is looked at again and again, nothing stays open."""

    def __init__(self, cluster: Cluster, pause: float) -> None:
        self._cluster, self._pause = cluster, pause
        self._looked_at = float("-inf")

    def is_due(self) -> bool:
        """The pause is over."""
        return time.monotonic() - self._looked_at >= self._pause

    def turn(self) -> None:
        self._looked_at = time.monotonic()
        self._cluster.refresh_from_db(fields=["flavour"])
        observe_cluster(self._cluster)

    def close(self) -> None:
        """There is nothing to close."""


def watcher_for(cluster: Cluster, bell: threading.Event, *, pause: float) -> ClusterWatch | Poller:
    """How this cluster is watched. Raises ClusterError: it cannot be reached at all."""
    gateway = gateway_for(cluster)
    cluster.refresh_from_db(fields=["flavour"])
    if isinstance(gateway, VersionedGateway):
        return Poller(cluster, pause)
    return ClusterWatch(cluster, gateway, bell)
