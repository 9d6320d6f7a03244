"""List, then watch: what of one kind has changed in a cluster since the version that is kept.

A version that is no longer known means listing again; what was known and is not listed has gone meanwhile. An event
that is older than the one before it cannot be trusted to be all that went wrong: that, too, means listing again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, TypeVar, runtime_checkable

import structlog

from clusters.believed import all_believed, believed, version_of
from clusters.errors import ClusterBusy, VersionExpired
from clusters.ownership import is_managed
from clusters.ports import ClusterGateway, Kind, Manifest, WatchEvent

log = structlog.get_logger(__name__)

CHUNK = 1000  # rows in one statement
Item = TypeVar("Item")


@runtime_checkable
class CountsVersions(Protocol):
    """A gateway whose resourceVersions are one counter for all kinds, so it says cheaply if anything changed."""

    def newest(self) -> str:
        """The version of the last write."""


@dataclass(frozen=True, slots=True)
class Look:
    """One kind. `present`: everything if `whole`, else what changed. `gone`: deletions that the watch told."""

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
class Gathering:
    """What lists and watches of one kind say, put together until somebody takes it."""

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
        self.present = {each["metadata"]["uid"]: each for each in all_believed(self.kind, found)}
        if len(self.present) < len(found):
            log.warning("observe.not_believed", kind=self.kind.key, objects=len(found) - len(self.present))

    def told(self, event: WatchEvent) -> str:
        """One event of the watch; answers whom it is about, by uid. VersionExpired: it is older than the one before."""
        version = version_of(event.manifest["metadata"].get("resourceVersion"))
        if number(version) < number(self.version):
            raise VersionExpired(f"{self.kind.plural} went back from {self.version} to {version}.")
        self.version = version
        return self._fold(event) if event.type != "BOOKMARK" else ""

    def _fold(self, event: WatchEvent) -> str:
        """An object that lost our label has left, as far as we are concerned."""
        manifest = believed(self.kind, event.manifest)
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

    def take(self) -> Look:
        """What came since the last time; the version stays."""
        taken = Look(self.kind, self.version, list(self.present.values()), list(self.gone.values()), self.whole)
        self.present, self.gone, self.whole = {}, {}, False
        return taken


def look(gateway: ClusterGateway, kind: Kind, *, since: str, managed_only: bool) -> Look:
    """Watch from `since`, or list when there is none or it has expired. Raises ClusterError."""
    if since:
        gathering = Gathering(kind, since, managed_only)
        try:
            for event in gateway.watch(kind, since=since):
                gathering.told(event)
            return gathering.take()
        except VersionExpired:
            pass
    gathering = Gathering(kind, since, managed_only)
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
