"""Open watches of a cluster in memory, stored when the test says so; its API server can be made to misbehave."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from clusters.backends.memory import MemoryGateway, store_of
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ClusterError, ClusterGateway, Kind, Manifest, WatchEvent
from clusters.ports.objects import POD, ref_of
from clusters.watch.services.informers import ClusterWatch
from tests.clusters.sandboxes import TEAM, bare_pod

SECONDS = 10.0
Twist = Callable[[Iterator[WatchEvent]], Iterator[WatchEvent]]


class Misbehaving(MemoryGateway):
    """Memory whose next watches of pods that have something to tell are twisted, one twist each."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(store_of(str(cluster.pk)))
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        self.twists: list[Twist] = []
        self.refusals: list[ClusterError] = []
        self.lists: list[tuple[list[Manifest], str]] = []
        self.listed = 0
        self.silent = False

    def list(self, kind: Kind, **requested: Any) -> tuple[list[Manifest], str]:
        if kind != POD:
            return super().list(kind, **requested)
        self.listed += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return self.lists.pop(0) if self.lists else super().list(kind, **requested)

    def watch(self, kind: Kind, *, since: str, **requested: Any) -> Iterator[WatchEvent]:
        events = super().watch(kind, since=since, **requested)
        if kind != POD:
            yield from events
        elif seen := list(events):
            yield from self.twists.pop(0)(iter(seen)) if self.twists else seen

    def compact(self) -> None:
        """Something happens elsewhere, and then the history is forgotten: open watches of pods have expired."""
        with self.store.lock:
            name = f"at-{self.store.version}"
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            self.store.forget_events()

    def pod(self, name: str, **requested: Any) -> Manifest:
        """A new pod of the team."""
        return self.create(bare_pod(name, **requested))

    def now(self, pod: Manifest, **status: Any) -> Manifest:
        """The pod with this status from now on."""
        with self.store.lock:
            self.store.objects["Pod", TEAM, pod["metadata"]["name"]]["status"] = status
            live = self.get(ref_of(pod))
            assert live is not None
            return self.update(live, observed=live)


class Watching:
    """The watches of one cluster; a turn stores what has come."""

    def __init__(self, streams: ClusterWatch) -> None:
        self.streams = streams

    def until(self, wanted: Callable[[], object], *, seconds: float = SECONDS) -> None:
        """Turn until it is so."""
        deadline = time.monotonic() + seconds
        while not wanted():
            assert time.monotonic() < deadline, "it did not come about"
            if self.streams.is_due():
                self.streams.turn()
            time.sleep(0.01)


@contextmanager
def streaming(cluster: Cluster, gateway: ClusterGateway) -> Iterator[Watching]:
    """Watches that are open inside."""
    streams = ClusterWatch(cluster, gateway, threading.Event())
    try:
        yield Watching(streams)
    finally:
        streams.close()
