"""What this process saw of a cluster at its last look, so that the next one asks only what has happened since.

Per object whose it is, its uid and a digest of what it says; per kind the version to follow it from. What it does not
know makes a look list everything again: nothing here is needed for being right, only for being quick. Versions move
on only past events that were read, so an event that comes late is read next time.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

import orjson

from clusters.fingerprints import NOT_CONTENT
from clusters.kinds_core import BY_RECORD
from clusters.ownership import is_managed, owner_of
from clusters.ports import DesiredState, Kind, Manifest, WatchEvent

OLDEST: Final = 600.0
"""Seconds after which everything is listed again all the same."""
KEPT: Final = 64
"""Clusters a process remembers."""

Place = tuple[str, str, str]


class Seen(NamedTuple):
    """One object: whose it was, its uid, what it said."""

    owner: str
    uid: str
    digest: int


@dataclass(slots=True)
class Sighting:
    """`suspects`: owners that have to be looked at, since something of theirs differed or has happened since."""

    uid: str
    flavour: str
    state: DesiredState
    versions: dict[str, str]
    objects: dict[Place, Seen]
    suspects: set[str]
    made_at: float = field(default_factory=time.monotonic)

    def holds_for(self, *, uid: str, flavour: str, state: DesiredState) -> bool:
        """The same cluster should still hold the same, and it is not too long ago."""
        young = time.monotonic() - self.made_at < OLDEST
        return young and (self.uid, self.flavour, self.state) == (uid, flavour, state)

    def take(self, kind: Kind, events: Iterable[WatchEvent]) -> bool:
        """Note what has happened; False when a new object of ours makes it necessary to list everything."""
        for event in events:
            metadata = event.manifest["metadata"]
            self.versions[kind.key] = str(metadata.get("resourceVersion") or self.versions[kind.key])
            if event.type == "BOOKMARK":
                continue
            place = place_of(kind, event.manifest)
            known = self.objects.get(place)
            if known is None and event.type != "DELETED" and is_managed(event.manifest):
                return False
            if known and (event.type == "DELETED" or (known.uid, known.digest) != _says(kind, event.manifest)):
                self.suspects.add(known.owner)
        return True

    def learn(self, owners: Iterable[str], kinds: Mapping[str, Kind], observed: Iterable[Manifest]) -> None:
        """These owners have just been looked at and are as they should be."""
        self.suspects -= set(owners)
        self.objects |= _objects(kinds, observed)


_known: Final[OrderedDict[UUID, Sighting]] = OrderedDict()
_lock: Final = Lock()


def recall(cluster_id: UUID) -> Sighting | None:
    """What is remembered of the cluster."""
    return _known.get(cluster_id)


def remember(cluster_id: UUID, sighting: Sighting) -> None:
    """Keep it until the process ends or knows too many other clusters."""
    with _lock:
        _known[cluster_id] = sighting
        _known.move_to_end(cluster_id)
        while len(_known) > KEPT:
            _known.popitem(last=False)


def forget(cluster_id: UUID) -> None:
    """The next look lists everything."""
    with _lock:
        _known.pop(cluster_id, None)


def objects_of(found: Iterable[tuple[Kind, Iterable[Manifest]]]) -> dict[Place, Seen]:
    """An index of listed objects."""
    return {place_of(kind, each): Seen(owner_of(each), *_says(kind, each)) for kind, listed in found for each in listed}


def place_of(kind: Kind, manifest: Manifest) -> Place:
    """Kind, namespace, name."""
    metadata = manifest["metadata"]
    return kind.key, str(metadata.get("namespace", "")), str(metadata["name"])


def _objects(kinds: Mapping[str, Kind], observed: Iterable[Manifest]) -> dict[Place, Seen]:
    return objects_of((kinds[each["kind"]], [each]) for each in observed if is_managed(each))


def _says(kind: Kind, manifest: Manifest) -> tuple[str, int]:
    """uid, and a digest of everything in it that is not its status. It holds in this process only.

    What may be listed without its content is known by its generation, which the server counts up with every change.
    """
    metadata = manifest["metadata"]
    said: object = metadata.get("generation") if kind.key in BY_RECORD else None
    if said is None:
        said = {key: value for key, value in manifest.items() if key not in NOT_CONTENT}
    content = (metadata.get("labels"), metadata.get("annotations"), metadata.get("deletionTimestamp"), said)
    return str(metadata["uid"]), hash(orjson.dumps(content))  # an API server orders what it sends
