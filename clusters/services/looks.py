"""List, then watch: what of one kind has changed in a cluster since the version that is kept.

A version that is no longer known means listing again; what was known and is not listed has gone meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from clusters.errors import ClusterBusy, VersionExpired
from clusters.ownership import is_managed
from clusters.ports import ClusterGateway, Kind, Manifest


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
    def is_empty(self) -> bool:
        """Nothing new."""
        return not (self.present or self.gone or self.whole)


def look(gateway: ClusterGateway, kind: Kind, *, since: str, managed_only: bool) -> Look:
    """Watch from `since`, or list when there is none or it has expired. Raises ClusterError."""
    if since:
        try:
            return _watched(gateway, kind, since, managed_only=managed_only)
        except VersionExpired:
            pass
    found, version = gateway.list(kind, managed_only=managed_only)
    if since and number(version) < number(since):
        raise ClusterBusy(f"The list of {kind.plural} ({version}) is older than what was seen ({since}).")
    return Look(kind, version, found, whole=True)


def _watched(gateway: ClusterGateway, kind: Kind, since: str, *, managed_only: bool) -> Look:
    present: dict[str, Manifest] = {}
    gone: dict[str, Manifest] = {}
    version = since
    for event in gateway.watch(kind, since=since):
        meta = event.manifest["metadata"]
        version = newer(version, str(meta.get("resourceVersion", "")))
        if managed_only and not is_managed(event.manifest):
            continue
        if event.type == "DELETED":
            gone[meta["uid"]] = event.manifest
            present.pop(meta["uid"], None)
        elif meta["uid"] not in gone:
            present[meta["uid"]] = event.manifest
    return Look(kind, version, list(present.values()), list(gone.values()))


def newer(one: str, other: str) -> str:
    """The larger of two resourceVersions."""
    return other if number(other) > number(one) else one


def number(version: str) -> int:
    """A resourceVersion as a number; 0 when it is none."""
    return int(version) if version.isascii() and version.isdecimal() else 0
