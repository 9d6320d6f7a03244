"""Lists of Rung's objects in a cluster, reduced to differences while they arrive, and what the last of them showed.

Nothing of that is needed to be right: what is not cached makes a run list everything.
"""

import time
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from uuid import UUID

from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import (
    ClusterGateway,
    Kind,
    ListPage,
    Manifest,
    NotAuthorized,
    NotServed,
    ObjectRef,
    WatchEvent,
)
from clusters.ports.objects import NAMESPACE, is_managed, owner_of, ref_of
from clusters.sync.rules.diff import DesiredObjects, holds

OLDEST: Final = 600.0
"""Seconds after which everything is listed again all the same."""
KEPT: Final = 64
"""Clusters that a process caches."""


@dataclass(frozen=True, slots=True)
class CachedState:
    """What the last whole list of a cluster showed, where it differed in nothing from the desired state.

    `versions`: of each kind's list, by its key. `owners`: the owner of each object, by the object's uid.
    """

    uid: str
    flavour: str
    state: DesiredState
    versions: Mapping[str, str]
    owners: Mapping[str, str]
    made_at: float = field(default_factory=time.monotonic)

    def holds_for(self, *, uid: str, flavour: str, state: DesiredState) -> bool:
        """The same cluster should still hold the same, and the list is recent."""
        is_recent = time.monotonic() - self.made_at < OLDEST
        return is_recent and (self.uid, self.flavour, self.state) == (uid, flavour, state)

    def changed(self, key: str, events: Iterable[WatchEvent]) -> tuple[str, set[str]] | None:
        """The version to follow this kind from, and whose objects the events are about. None: an object is new."""
        version, owners = self.versions[key], set[str]()
        for event in events:
            metadata = event.manifest["metadata"]
            version = str(metadata.get("resourceVersion") or version)
            if event.type == "BOOKMARK":
                continue
            owner = self.owners.get(str(metadata["uid"]))
            if owner is not None:
                owners.add(owner)
            elif event.type != "DELETED" and is_managed(event.manifest):
                return None
        return version, owners


_cache: Final[OrderedDict[UUID, CachedState]] = OrderedDict()
_lock: Final = Lock()


def recall(cluster_id: UUID) -> CachedState | None:
    """What is cached of the cluster."""
    return _cache.get(cluster_id)


def remember(cluster_id: UUID, state: CachedState) -> None:
    """Cache it until the process ends or caches too many other clusters."""
    with _lock:
        _cache[cluster_id] = state
        _cache.move_to_end(cluster_id)
        while len(_cache) > KEPT:
            _cache.popitem(last=False)


def forget(cluster_id: UUID) -> None:
    """The next run lists everything."""
    with _lock:
        _cache.pop(cluster_id, None)


@dataclass(slots=True)
class _OfKind:
    version: str = ""
    owners: dict[str, str] = field(default_factory=dict)
    held: set[ObjectRef] = field(default_factory=set)
    others: list[Manifest] = field(default_factory=list)


class ObjectLists:
    """The lists of every kind of a cluster, as far as they have come.

    `fence`: see `clusters.sync.rules.diff.differences`.
    """

    def __init__(self, *, fence: bool) -> None:
        self._fence = fence
        self._kinds: dict[str, _OfKind] = {}

    def take(self, kind: Kind, page: ListPage, wanted: DesiredObjects) -> None:
        """Reduce a page: of an object that holds all that is wanted only the owner and the place remain."""
        if page.first:
            self._kinds[kind.key] = _OfKind()
        known = self._kinds[kind.key]
        known.version = page.version
        for each in page.objects:
            known.owners[str(each["metadata"].get("uid"))] = owner_of(each)
            desired = wanted.get(ref := ref_of(each))
            if desired is not None and holds(each, desired, fence=self._fence):
                known.held.add(ref)
            else:
                known.others.append(each)

    @property
    def versions(self) -> dict[str, str]:
        """Of each list, by the kind's key; empty: it may not be read."""
        return {key: known.version for key, known in self._kinds.items()}

    @property
    def held(self) -> frozenset[ObjectRef]:
        return frozenset[ObjectRef]().union(*(known.held for known in self._kinds.values()))

    @property
    def others(self) -> list[Manifest]:
        """What differs, is not wanted or not ours to write."""
        return [each for known in self._kinds.values() for each in known.others]

    @property
    def namespaces(self) -> frozenset[str]:
        """Names of those that are there."""
        known = self._kinds.get(NAMESPACE.key, _OfKind())
        return frozenset({*(ref.name for ref in known.held), *(each["metadata"]["name"] for each in known.others)})

    @property
    def owners(self) -> dict[str, str]:
        """The owner of each object, by the object's uid."""
        return {uid: owner for known in self._kinds.values() for uid, owner in known.owners.items()}

    def count(self, keys: Container[str] | None = None) -> int:
        """How many objects there are, of all kinds or of these."""
        return sum(len(known.owners) for key, known in self._kinds.items() if keys is None or key in keys)


def pages_of(gateway: ClusterGateway, retired: Container[str], kind: Kind) -> Iterator[ListPage]:
    """What is ours of it. Of a former scheduler's kind also nothing, where it is gone: version "0".

    An empty version: it may not be read any more.
    """
    try:
        yield from gateway.pages(kind)
    except NotServed:
        if kind.key not in retired:
            raise
        yield ListPage([], "0")
    except NotAuthorized:
        if kind.key not in retired:
            raise
        yield ListPage([], "")
