"""Read Rung's objects in a cluster: whole lists, reduced to differences while they arrive, or those of dirty owners
only.

What the last whole list showed is cached, but correctness does not depend on it: without it a run lists everything.
For dirty owners the cluster is asked for its identity and for their objects while the database says what is wanted;
the response counts only once the cluster is recognized.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final, TypeVar
from uuid import UUID

from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.inventory.services import dirty_owners
from clusters.inventory.services.dirty_owners import DirtyScope
from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import (
    ClusterError,
    ClusterGateway,
    FlavourSwitched,
    Kind,
    ListPage,
    Manifest,
    NotAuthorized,
    NotServed,
    ObjectRef,
    WatchEvent,
)
from clusters.ports.objects import NAMESPACE, is_managed, owner_of, ref_of
from clusters.sync.rules.diff import DesiredObjects, is_up_to_date
from clusters.sync.selectors import desired_state
from clusters.sync.services.applier import thread_limit_of
from clusters.sync.services.sync_runs import RunRecorder
from portal.kit.messaging.concurrency import map_concurrently

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
            if desired is not None and is_up_to_date(each, desired, fence=self._fence):
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


TRIES: Final = 3
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class OwnersState:
    """What some owners want, as of a generation."""

    generation: int
    state: DesiredState
    manifests: Sequence[Manifest]


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a run knows before it looks. `scope`: who was touched; None: look at everything. Errors are answers, too."""

    who: tuple[str, str] | ClusterError
    scope: DirtyScope | None = None
    wanted: OwnersState | None = None
    observed: Mapping[ObjectRef, Manifest | ClusterError | None] = field(default_factory=dict)

    def identity(self) -> tuple[str, str]:
        """The identity that the cluster reports. Raises ClusterError."""
        return _given(self.who)


@dataclass(frozen=True, slots=True)
class PartialState:
    """What some owners want, which of it was asked for, and what of that is there."""

    wanted: OwnersState
    requested: Mapping[ObjectRef, Manifest]
    observed: Sequence[Manifest]


def preflight(journal: RunRecorder, gateway: ClusterGateway) -> Preflight:
    """Who the cluster is, what the touched owners want, and the state of the touched objects: all at a time."""
    cluster = journal.run.cluster
    scope = None if journal.run.dry_run else dirty_owners.dirty_scope_of(cluster, now=timezone.now())
    who: list[tuple[str, str] | ClusterError] = []
    wanted: list[OwnersState | None] = []

    def ask(ref: ObjectRef | None) -> Manifest | ClusterError | None:
        if ref is not None:
            return _outcome(partial(gateway.get, ref))
        who.append(_outcome(gateway.identity))
        return None

    answers = map_concurrently(
        [None, *(_touched(cluster, scope) if scope else ())],
        ask,
        threads=thread_limit_of(gateway),
        idle=journal.keep_up,
        meanwhile=lambda: wanted.append(read_owners_state(cluster, scope) if scope else None),
    )
    observed = {ref: each for ref, each in answers if ref is not None}
    return Preflight(who[0], scope, wanted[0], observed)


def read_owners_state(cluster: Cluster, scope: DirtyScope) -> OwnersState | None:
    """What these owners want now. What has been changed while it was read is read again; None: too often."""
    generation = scope.generation
    for _ in range(TRIES):
        state, manifests = wanted_of(cluster, scope.owners)
        before, generation = generation, generation_of(cluster)
        if generation == before:
            return OwnersState(generation, state, manifests)
    return None


def wanted_of(cluster: Cluster, owners: Iterable[str]) -> tuple[DesiredState, list[Manifest]]:
    """What these owners want, and a state it was rendered from."""
    flavour = flavour_for(cluster.flavour)
    states = [(owner, desired_state(cluster, owner=owner)) for owner in sorted(owners)]
    wanted = [each for owner, state in states for each in flavour.objects_for(state) if owner_of(each) == owner]
    return states[0][1], wanted


def diff_owners(
    journal: RunRecorder, gateway: ClusterGateway, scope: DirtyScope, known: Preflight | None = None
) -> PartialState | None:
    """The objects of a scope, as far as they are not known already. None: look at everything.

    An owner that wants none any more may have left some. What was touched while it was read may be any of theirs.
    """
    wanted = known.wanted if known else read_owners_state(journal.run.cluster, scope)
    if wanted is None or set(map(owner_of, wanted.manifests)) != scope.owners.keys():
        return None
    whole = wanted.generation != scope.generation
    requested = {ref_of(each): each for each in wanted.manifests if whole or _is_meant(scope, each)}
    observed = dict(known.observed) if known else {}
    missing = [ref for ref in requested if ref not in observed]
    observed |= dict(map_concurrently(missing, gateway.get, threads=thread_limit_of(gateway), idle=journal.keep_up))
    return PartialState(wanted, requested, [found for ref in requested if (found := _given(observed[ref]))])


def generation_of(cluster: Cluster) -> int:
    """Of the scheduler that is looked at: what is wanted for another one must never pass for this generation."""
    generation, flavour = Cluster.objects.values_list("generation", "flavour").get(pk=cluster.pk)
    if flavour != cluster.flavour:
        raise FlavourSwitched(f"The scheduler of {cluster.name} was changed in the meantime.")
    return generation


def _touched(cluster: Cluster, scope: DirtyScope) -> list[ObjectRef]:
    """Objects that are known to be touched, with their namespaces, on which it depends what may be written."""
    kinds = {kind.key: kind for kind in flavour_for(cluster.flavour).kinds()}
    places = [place for only in scope.owners.values() for place in only if place.kind in kinds]
    spaces = {ObjectRef(NAMESPACE, place.namespace) for place in places if place.namespace}
    return sorted(spaces | {ObjectRef(kinds[place.kind], place.name, place.namespace) for place in places})


def _is_meant(scope: DirtyScope, manifest: Manifest) -> bool:
    only, ref = scope.owners[owner_of(manifest)], ref_of(manifest)
    if ref.kind == NAMESPACE and any(place.namespace == ref.name for place in only):
        return True
    return not only or (ref.kind.key, ref.namespace, ref.name) in only


def _outcome(call: Callable[[], Found]) -> Found | ClusterError:
    try:
        return call()
    except ClusterError as error:
        return error


def _given(answer: Found | ClusterError) -> Found:
    if isinstance(answer, ClusterError):
        raise answer
    return answer
