"""What the watches of one cluster brought and nobody has stored yet: bounded, and put together kind by kind.

Nothing in it is the only copy: versions move when it is stored, and until then the API server tells it again.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from clusters.errors import ClusterError
from clusters.fingerprints import FINGERPRINT
from clusters.kinds_core import NODE, POD
from clusters.ports import Kind, Manifest, WatchEvent
from clusters.services.looks import Gathering, Look

ROOM: Final = 5000
"""Objects after which whoever brings more has to wait. A list is let in whole."""
MANY: Final = 1000
LINGER: Final = 0.25
"""A change waits so many seconds for others, unless there are many, or one is urgent: ours says something else."""
LONGER: Final = 2.0
"""One of ours that says what is stored of it, as when the status of a quota moves with a pod, moves the version only,
and that waits so many."""
PROOF: Final = (NODE.key, POD.key)
"""Kinds whose signs of life make a cluster's numbers current."""


class Inbox:
    """Filled by many threads, emptied by one at a time."""

    def __init__(
        self, bell: threading.Event, before: Mapping[str, Any], *, says: Mapping[str, dict[str, str]] | None = None
    ) -> None:
        """`says`: of each kind whose changes are urgent, the fingerprints that are stored, by uid."""
        self._bell = bell
        self._before = before
        self._says = dict(says or {})
        self._change = threading.Condition()
        self._gatherings: dict[str, Gathering] = {}
        self._taken: dict[str, str] = {}
        self._life: dict[str, float] = {}
        self._due_at: float | None = None
        self._hurry = False
        self._fault: ClusterError | None = None
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        """Whoever brings something may stop."""
        return self._closed.is_set()

    def open(self, kind: Kind, *, managed_only: bool) -> str:
        """Expect a kind; answers the version to watch from, empty when it has to be listed."""
        since = str(self._before.get(kind.key, ""))
        with self._change:
            self._gatherings[kind.key] = Gathering(kind, since, managed_only)
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

    def told(self, kind: Kind, event: WatchEvent) -> None:
        """One event of a watch; waits for room. Raises VersionExpired: it cannot be the next one."""
        with self._change:
            self._change.wait_for(lambda: self.closed or self._size() < ROOM)
            gathering = self._gatherings[kind.key]
            waits = str(event.manifest["metadata"].get("uid")) in gathering.present
            uid = gathering.told(event)
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
        """Nobody takes any more."""
        self._closed.set()
        with self._change:
            self._change.notify_all()

    def take(self) -> dict[str, Look]:
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
        said = self._says[key].pop(uid, None)
        if (held := self._gatherings[key].present.get(uid)) is None:
            return True
        self._says[key][uid] = held.get(FINGERPRINT, "")
        return said != self._says[key][uid]

    def _arrived(self, key: str, *, urgent: bool, linger: float) -> None:
        """The bell is for what cannot wait: whoever it called for anything else would be taking breath just then."""
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

    def _has_moved(self, gathering: Gathering) -> bool:
        return gathering.whole or gathering.version != self._taken[gathering.kind.key]
