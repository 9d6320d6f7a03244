"""List, then watch: changes of each kind, buffered in bounded memory until they are stored.

A version that is no longer known means listing again; what was known and is not listed has gone meanwhile. An event
that is older than the one before it cannot be trusted to be all that went wrong: that, too, means listing again.

Nothing in it is the only copy: versions advance when it is stored, and until then the API server repeats it.
"""

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import structlog

from clusters.ports.gateway import ClusterBusy, ClusterError, ClusterGateway, Kind, Manifest, VersionExpired, WatchEvent
from clusters.ports.objects import FINGERPRINT, NODE, POD, is_managed
from clusters.watch.rules import sanitize, sanitize_all, version_of

log = structlog.get_logger(__name__)

CHUNK = 1000  # rows in one statement
Item = TypeVar("Item")


@runtime_checkable
class VersionedGateway(Protocol):
    """A gateway whose resourceVersions are one counter for all kinds, so it says cheaply what changed."""

    def newest(self) -> str:
        """The version of the last write."""

    def changed_kinds(self, *, since: str) -> frozenset[str]:
        """Keys of the kinds of which something was written since that version. Raises VersionExpired."""


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """One kind. `present`: everything if `whole`, else what changed. `gone`: deletions that the watch reported."""

    kind: Kind
    version: str
    present: Sequence[Manifest] = ()
    gone: Sequence[Manifest] = ()
    whole: bool = False

    @property
    def every(self) -> Sequence[Manifest]:
        """What is there and what went."""
        return (*self.present, *self.gone)

    @property
    def is_empty(self) -> bool:
        """Nothing new."""
        return not (self.present or self.gone or self.whole)


@dataclass(slots=True)
class WatchBatchBuilder:
    """Results of lists and watches of one kind, collected until they are taken."""

    kind: Kind
    version: str
    managed_only: bool
    whole: bool = False
    present: dict[str, Manifest] = field(default_factory=dict)
    gone: dict[str, Manifest] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.present) + len(self.gone)

    def listed(self, found: Sequence[Manifest], version: str) -> None:
        """Everything there is. ClusterBusy: it is older than what was seen; another server may know more."""
        if number(version) < number(self.version):
            raise ClusterBusy(f"The list of {self.kind.plural} ({version}) is older than what was seen: {self.version}")
        self.version, self.whole = version_of(version), True
        self.present = {each["metadata"]["uid"]: each for each in sanitize_all(self.kind, found)}
        if len(self.present) < len(found):
            log.warning("observe.not_believed", kind=self.kind.key, objects=len(found) - len(self.present))

    def add(self, event: WatchEvent) -> str:
        """Add one event of the watch; return the uid it is about. VersionExpired: it is older than the one before."""
        version = version_of(event.manifest["metadata"].get("resourceVersion"))
        if number(version) < number(self.version):
            raise VersionExpired(f"{self.kind.plural} went back from {self.version} to {version}.")
        self.version = version
        return self._fold(event) if event.type != "BOOKMARK" else ""

    def _fold(self, event: WatchEvent) -> str:
        """An object that lost our label has left, as far as we are concerned."""
        manifest = sanitize(self.kind, event.manifest)
        if manifest is None:
            log.warning("observe.not_believed", kind=self.kind.key, objects=1)
            return ""
        uid = str(manifest["metadata"]["uid"])
        if event.type == "DELETED" or (self.managed_only and not is_managed(manifest)):
            self.gone[uid] = manifest
            self.present.pop(uid, None)
        else:
            self.present[uid] = manifest
            self.gone.pop(uid, None)
        return uid

    def take(self) -> WatchBatch:
        """What came since the last time; the version stays."""
        taken = WatchBatch(self.kind, self.version, list(self.present.values()), list(self.gone.values()), self.whole)
        self.present, self.gone, self.whole = {}, {}, False
        return taken


def list_or_watch(gateway: ClusterGateway, kind: Kind, *, since: str, managed_only: bool) -> WatchBatch:
    """Watch from `since`, or list when there is none or it has expired. Raises ClusterError."""
    if since:
        gathering = WatchBatchBuilder(kind, since, managed_only)
        try:
            for event in gateway.watch(kind, since=since):
                gathering.add(event)
            return gathering.take()
        except VersionExpired:
            pass
    gathering = WatchBatchBuilder(kind, since, managed_only)
    gathering.listed(*gateway.list(kind, managed_only=managed_only))
    return gathering.take()


def newer(one: str, other: str) -> str:
    """The larger of two resourceVersions."""
    return other if number(other) > number(one) else one


def number(version: str) -> int:
    """A resourceVersion as a number; 0 when it is none."""
    return int(version) if version_of(version) else 0


def batched(items: Iterable[Item], size: int = CHUNK) -> Iterator[list[Item]]:
    """The items in lists of at most `size`."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


ROOM: Final = 5000
"""Number of objects after which producers have to wait. A list is accepted whole."""
MANY: Final = 1000
LINGER: Final = 0.25
"""A change waits so many seconds for others, unless there are many, or one is urgent: ours says something else."""
LONGER: Final = 2.0
"""One of ours that says what is stored of it, as when the status of a quota moves with a pod, moves the version only,
and that waits so many."""
PROOF: Final = (NODE.key, POD.key)
"""Kinds whose signs of life make a cluster's numbers current."""


class WatchBuffer:
    """Filled by many threads, emptied by one at a time."""

    def __init__(
        self, bell: threading.Event, before: Mapping[str, Any], *, says: Mapping[str, dict[str, str]] | None = None
    ) -> None:
        """`says`: of each kind whose changes are urgent, the fingerprints that are stored, by uid."""
        self._bell = bell
        self._before = before
        self._says = dict(says or {})
        self._change = threading.Condition()
        self._gatherings: dict[str, WatchBatchBuilder] = {}
        self._taken: dict[str, str] = {}
        self._life: dict[str, float] = {}
        self._due_at: float | None = None
        self._hurry = False
        self._fault: ClusterError | None = None
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def open(self, kind: Kind, *, managed_only: bool) -> str:
        """Expect a kind; answers the version to watch from, empty when it has to be listed."""
        since = str(self._before.get(kind.key, ""))
        with self._change:
            self._gatherings[kind.key] = WatchBatchBuilder(kind, since, managed_only)
            self._taken[kind.key] = since
        return since

    def listed(self, kind: Kind, found: Sequence[Manifest], version: str) -> None:
        """Everything there is of a kind. Raises ClusterBusy: the list is older than what was seen."""
        with self._change:
            gathering = self._gatherings[kind.key]
            gathering.listed(found, version)
            if urgent := kind.key in self._says:
                self._says[kind.key] = {uid: each.get(FINGERPRINT, "") for uid, each in gathering.present.items()}
            self._arrived(kind.key, urgent=urgent, linger=LINGER)

    def add(self, kind: Kind, event: WatchEvent) -> None:
        """One event of a watch; waits for room. Raises VersionExpired: it cannot be the next one."""
        with self._change:
            self._change.wait_for(lambda: self.closed or self._size() < ROOM)
            gathering = self._gatherings[kind.key]
            waits = str(event.manifest["metadata"].get("uid")) in gathering.present
            uid = gathering.add(event)
            if event.type == "BOOKMARK":
                self._life[kind.key] = time.monotonic()
            elif kind.key not in self._says:
                self._arrived(kind.key, urgent=False, linger=LINGER)
            elif self._is_news(kind.key, uid):
                self._arrived(kind.key, urgent=True, linger=LINGER)
            else:
                if not waits:
                    gathering.present.pop(uid, None)
                self._arrived(kind.key, urgent=False, linger=LONGER)

    def alive(self, kind: Kind) -> None:
        """The server has shown life without anything new."""
        with self._change:
            self._life[kind.key] = time.monotonic()

    def failed(self, error: ClusterError) -> None:
        """Nothing further comes of this cluster."""
        with self._change:
            self._fault = self._fault or error
        self._bell.set()

    def rest(self, seconds: float) -> None:
        """Wait, or until it is closed."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """Stop accepting and returning events."""
        self._closed.set()
        with self._change:
            self._change.notify_all()

    def take(self) -> dict[str, WatchBatch]:
        """Everything that came, by kind; also a kind of which only the version moved. Raises what made it fail."""
        with self._change:
            if self._fault is not None:
                raise self._fault
            moved = {key: each for key, each in self._gatherings.items() if len(each) or self._has_moved(each)}
            self._taken |= {key: each.version for key, each in moved.items()}
            self._due_at, self._hurry = None, False
            looks = {key: each.take() for key, each in moved.items()}
            self._change.notify_all()
            return looks

    def is_due(self) -> bool:
        """Enough has come, or it has waited long enough, or something is urgent or wrong."""
        with self._change:
            return self._cannot_wait() or (self._due_at is not None and time.monotonic() >= self._due_at)

    def age(self) -> timedelta | None:
        """How long ago every kind that proves life had shown some; None: one of them never has."""
        with self._change:
            if any(key not in self._life for key in PROOF):
                return None
            return timedelta(seconds=time.monotonic() - min(self._life[key] for key in PROOF))

    def _is_news(self, key: str, uid: str) -> bool:
        """It says something else than it did, or has gone. What others note beside that, or a status, can wait."""
        before = self._says[key].pop(uid, None)
        if (held := self._gatherings[key].present.get(uid)) is None:
            return True
        self._says[key][uid] = held.get(FINGERPRINT, "")
        return before != self._says[key][uid]

    def _arrived(self, key: str, *, urgent: bool, linger: float) -> None:
        """Wake the consumer only for urgent events; it collects all others at its own pace."""
        now = time.monotonic()
        self._life[key] = now
        self._hurry = self._hurry or urgent
        self._due_at = min(self._due_at or math.inf, now + linger)
        if self._cannot_wait():
            self._bell.set()

    def _cannot_wait(self) -> bool:
        return self._fault is not None or self._hurry or self._size() >= MANY

    def _size(self) -> int:
        return sum(len(each) for each in self._gatherings.values())

    def _has_moved(self, gathering: WatchBatchBuilder) -> bool:
        return gathering.whole or gathering.version != self._taken[gathering.kind.key]
