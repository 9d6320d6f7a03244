"""Everything of ours that a cluster holds, sifted while it comes: of what is as it is wanted only its place is kept."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from clusters.diff import Wanted, holds
from clusters.errors import NotAuthorized, NotServed
from clusters.kinds_core import NAMESPACE, ref_of
from clusters.ports import ClusterGateway, Kind, Manifest, ObjectRef, Page
from clusters.services.sightings import Place, Seen, objects_of


@dataclass(slots=True)
class _OfKind:
    version: str = ""
    count: int = 0
    held: set[ObjectRef] = field(default_factory=set)
    others: list[Manifest] = field(default_factory=list)
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


def pages_of(gateway: ClusterGateway, retired: Container[str], kind: Kind) -> Iterator[Page]:
    """What is ours of it. Of a former scheduler's kind also nothing, where it is gone: version "0".

    An empty version: it may not be read any more.
    """
    try:
        yield from gateway.pages(kind)
    except NotServed:
        if kind.key not in retired:
            raise
        yield Page([], "0")
    except NotAuthorized:
        if kind.key not in retired:
            raise
        yield Page([], "")
