"""Everything of ours that a cluster holds, sifted while it comes: of what is as it is wanted only its place is kept.

Of kinds of which there are thousands the metadata are asked for, and what these do not vouch for is read afterwards.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Final

from clusters.abreast import abreast
from clusters.diff import Wanted, holds
from clusters.errors import NotAuthorized, NotServed
from clusters.kinds_core import BY_RECORD, NAMESPACE, ref_of
from clusters.ports import ClusterGateway, Kind, Manifest, ObjectRef, Page
from clusters.services.sightings import Place, Seen, objects_of

FEW: Final = 50
"""Up to so many objects of a kind are read one by one; for more, all of it is listed."""


@dataclass(slots=True)
class _OfKind:
    version: str = ""
    count: int = 0
    held: set[ObjectRef] = field(default_factory=set)
    others: list[Manifest] = field(default_factory=list)
    unread: set[ObjectRef] = field(default_factory=set)
    seen: dict[Place, Seen] = field(default_factory=dict)


class Listing:
    """The lists of every kind of a cluster, as far as they have come.

    `remembered`: what was seen is indexed for the next look. `fence`: see `clusters.diff.differences`.
    """

    def __init__(self, *, remembered: bool, fence: bool) -> None:
        self._remembered = remembered
        self._fence = fence
        self._kinds: dict[str, _OfKind] = {}

    def take(self, kind: Kind, page: Page, wanted: Wanted) -> None:
        """Sift a page; what holds all that is wanted of it is not kept."""
        if page.first:
            self._kinds[kind.key] = _OfKind()
        known = self._kinds[kind.key]
        known.version = page.version
        known.count += len(page.objects)
        if self._remembered:
            known.seen |= objects_of([(kind, page.objects)])
        for each in page.objects:
            desired = wanted.get(ref := ref_of(each))
            if desired is not None and holds(each, desired, fence=self._fence, whole=page.whole):
                known.held.add(ref)
            elif page.whole:
                known.others.append(each)
            else:
                known.unread.add(ref)

    def read(self, gateway: ClusterGateway, wanted: Wanted, *, threads: int, idle: Callable[[], None]) -> None:
        """Read whole what metadata alone did not vouch for, as far as it is still there."""
        for known in list(self._kinds.values()):
            refs, known.unread = sorted(known.unread), set()
            if len(refs) > FEW:
                for page in gateway.pages(refs[0].kind):
                    self.take(refs[0].kind, page, wanted)
            else:
                found = abreast(refs, gateway.get, threads=threads, idle=idle)
                known.others += [each for _, each in found if each is not None]

    @property
    def versions(self) -> dict[str, str]:
        """Of each list, by the kind's key; empty: it may not be read."""
        return {key: known.version for key, known in self._kinds.items()}

    @property
    def held(self) -> frozenset[ObjectRef]:
        """What holds."""
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
    def seen(self) -> dict[Place, Seen]:
        """The index of everything; empty unless it is remembered."""
        return {place: said for known in self._kinds.values() for place, said in known.seen.items()}

    def count(self, keys: Container[str] | None = None) -> int:
        """How many objects there are, of all kinds or of these."""
        return sum(known.count for key, known in self._kinds.items() if keys is None or key in keys)


def pages_of(
    gateway: ClusterGateway, retired: Container[str], kind: Kind, *, by_record: bool = False
) -> Iterator[Page]:
    """What is ours of it. Of a former scheduler's kind also nothing, where it is gone: version "0".

    An empty version: it may not be read any more. `by_record`: metadata will do of what they may vouch for.
    """
    try:
        yield from gateway.pages(kind, by_record=by_record and kind.key in BY_RECORD and kind.key not in retired)
    except NotServed:
        if kind.key not in retired:
            raise
        yield Page([], "0")
    except NotAuthorized:
        if kind.key not in retired:
            raise
        yield Page([], "")
