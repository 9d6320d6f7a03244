"""Look at a cluster: what it holds, what it should hold, and what is between. As little as answers the question.

Near: some owners, because only theirs changed. Warm: what has happened since this process last looked. Whole: all.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, DirtyOwner
from clusters.inventory.services import dirty_owners
from clusters.inventory.services.dirty_owners import DirtyScope
from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import ClusterGateway, Kind, Manifest, ObjectRef, VersionExpired
from clusters.ports.objects import is_managed, owner_of, ref_of
from clusters.sync.models import Adoption, Drift, DriftKind
from clusters.sync.rules.diff import Change, Create, DesiredObjects, by_place, diff, differences
from clusters.sync.selectors import desired_state, unversioned_state
from clusters.sync.services import object_reads, scheduler_migration
from clusters.sync.services.applier import thread_limit_of
from clusters.sync.services.drift import adopted_uids
from clusters.sync.services.object_reads import (
    CachedState,
    ObjectLists,
    PartialState,
    Preflight,
    diff_owners,
    generation_of,
    pages_of,
    wanted_of,
)
from clusters.sync.services.sync_runs import RunRecorder, follows_abandoned_run
from portal.kit.messaging.concurrency import flat_map_concurrently, map_concurrently, no_work

FEW: Final = 20
"""Absent objects that a dry run asks for one by one; for more of a kind it lists everybody's."""


@dataclass(frozen=True, slots=True)
class ObservedState:
    """What one look found. `owners`: whose objects it was about (None: everybody's), `wanted`: what these want.

    `requested`: what of that it asked for by name.
    `retired`: keys of kinds of former schedulers; `left`: how many of their objects there are, None: not known.
    """

    state: DesiredState
    generation: int
    listed: int
    changes: Sequence[Change] = ()
    owners: frozenset[str] | None = None
    wanted: Sequence[Manifest] = ()
    requested: frozenset[ObjectRef] = frozenset()
    adopted: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    left: int | None = None

    @property
    def refs(self) -> frozenset[ObjectRef]:
        return frozenset(map(ref_of, self.wanted))

    @property
    def spaces(self) -> frozenset[str]:
        """The namespaces of that, in which nothing was listed yet."""
        return frozenset(ref.namespace for ref in self.refs if ref.namespace)


@dataclass(frozen=True, slots=True)
class _DesiredObjects:
    """Everything that is wanted, as of a generation."""

    generation: int
    uncounted: DesiredState
    state: DesiredState
    wanted: DesiredObjects


def read_observed_state(journal: RunRecorder, gateway: ClusterGateway, known: Preflight) -> ObservedState:
    """Raises ClusterError. A dry run looks at everything and leaves no trace."""
    cluster = journal.run.cluster
    if journal.run.dry_run:
        return _whole(journal, gateway)
    if known.scope:
        found = diff_owners(journal, gateway, known.scope, known)
        return _as_look(cluster, found, frozenset(known.scope.owners)) if found else _whole(journal, gateway)
    if follows_abandoned_run(journal.run):
        return _whole(journal, gateway, fence=True)
    return _warm(journal, gateway) or _whole(journal, gateway)


def _as_look(cluster: Cluster, found: PartialState, owners: frozenset[str] | None) -> ObservedState:
    adopted = frozenset[str]() if all(map(is_managed, found.observed)) else adopted_uids(cluster)
    changes = diff(found.observed, found.requested.values(), adopted=adopted)
    wanted, requested = found.wanted, frozenset(found.requested)
    return ObservedState(
        wanted.state, wanted.generation, len(found.observed), changes, owners, wanted.manifests, requested, adopted
    )


@contextmanager
def gc_disabled() -> Iterator[None]:
    """A listing creates a hundred thousand live containers: collecting garbage during it doubles its time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@gc_disabled()
def _whole(journal: RunRecorder, gateway: ClusterGateway, *, fence: bool = False) -> ObservedState:
    """Observed before desired: what a later generation has just made is then always wanted, never extra.

    What is wanted is read while the first lists come, and again after the last. Where it has changed meanwhile, what
    was sifted by it is listed once more, whole.
    `fence`: what a lost worker may still write over is written, though nothing but its generation has changed.
    """
    cluster = journal.run.cluster
    early: list[_DesiredObjects] = []
    retired = scheduler_migration.retired_in(cluster)
    listed = partial(_listed, journal, gateway, retired, fence=fence)
    listing = listed(early, meanwhile=lambda: early.append(_goal(cluster)))
    goal = _goal(cluster, *early)
    if goal not in early:
        listing, goal = listed([]), _goal(cluster)
    adopted = adopted_uids(cluster)
    compared = partial(differences, wanted=goal.wanted, held=listing.held, adopted=adopted, fence=fence)
    changes = compared(listing.others)
    if foreign := list(_in_the_way(journal, gateway, listing, changes)):
        changes = compared([*listing.others, *foreign])
    changes = retired.free(changes)
    if not journal.run.dry_run:
        _remember(cluster, goal.uncounted, listing, changes)
    left = None if "" in listing.versions.values() else listing.count(retired.keys)
    return ObservedState(
        goal.state, goal.generation, listing.count(), changes, adopted=adopted, retired=retired.keys, left=left
    )


def _listed(
    journal: RunRecorder,
    gateway: ClusterGateway,
    retired: scheduler_migration.RetiredKinds,
    goals: Sequence[_DesiredObjects],
    *,
    fence: bool,
    meanwhile: Callable[[], object] = no_work,
) -> ObjectLists:
    """Every list, sifted by the first goal, which `meanwhile` may have set by then; without one all is kept."""
    listing = ObjectLists(fence=fence)
    answers = flat_map_concurrently(
        [*flavour_for(journal.run.cluster.flavour).kinds(), *retired.kinds],
        partial(pages_of, gateway, retired.keys),
        threads=thread_limit_of(gateway),
        idle=journal.keep_up,
        meanwhile=meanwhile,
    )
    for kind, page in answers:
        listing.take(kind, page, goals[0].wanted if goals else {})
    return listing


def _goal(cluster: Cluster, early: _DesiredObjects | None = None) -> _DesiredObjects:
    """What is wanted now. What was read earlier is still that if nothing has been counted or changed since."""
    uncounted, generation = unversioned_state(cluster), generation_of(cluster)
    if early and (early.uncounted, early.generation) == (uncounted, generation):
        return early
    state = desired_state(cluster)
    return _DesiredObjects(generation, uncounted, state, by_place(flavour_for(cluster.flavour).objects_for(state)))


def _remember(cluster: Cluster, state: DesiredState, listing: ObjectLists, changes: Sequence[Change]) -> None:
    """Only where nothing differs: after changes the next run lists everything."""
    if changes:
        object_reads.forget(cluster.pk)
        return
    seen = CachedState(cluster.uid, cluster.flavour, state, listing.versions, listing.owners)
    object_reads.remember(cluster.pk, seen)


def _warm(journal: RunRecorder, gateway: ClusterGateway) -> ObservedState | None:
    """Everything is as it was seen, but for what has been touched here or there since. None: list it all.

    Whatever changed in the database since then waits as a touch, or a run has settled it: then its writes are events.
    """
    cluster = journal.run.cluster
    uncounted = unversioned_state(cluster)
    seen = object_reads.recall(cluster.pk)
    if seen is None or not seen.holds_for(uid=cluster.uid, flavour=cluster.flavour, state=uncounted):
        return None
    if scheduler_migration.is_leaving(cluster):
        return None
    generation = generation_of(cluster)
    touched = set(DirtyOwner.objects.filter(cluster=cluster).values_list("owner", flat=True))
    followed = _follow(journal, gateway, seen)
    if followed is None or dirty_owners.ALL_OWNERS in touched:
        return None
    versions, changed = followed
    owners = frozenset(touched | changed)
    if len(owners) > dirty_owners.MOST:
        return None
    look: ObservedState | None = ObservedState(uncounted, generation, len(seen.owners))
    if owners:
        found = diff_owners(journal, gateway, DirtyScope(generation, dict.fromkeys(owners, frozenset())))
        # owners that become dirty after this point wait for the next run, though nothing was listed since
        look = replace(_as_look(cluster, found, None), generation=generation) if found else None
    if look and not look.changes:
        object_reads.remember(cluster.pk, replace(seen, versions=versions))
    else:
        object_reads.forget(cluster.pk)
    return look


def _follow(journal: RunRecorder, gateway: ClusterGateway, seen: CachedState) -> tuple[dict[str, str], set[str]] | None:
    """The versions of now, and whose objects have changed since. None: too long ago, or an object is new."""
    kinds = list(flavour_for(journal.run.cluster.flavour).kinds())

    def follow(kind: Kind) -> tuple[str, set[str]] | None:
        return seen.changed(kind.key, gateway.watch(kind, since=seen.versions[kind.key]))

    try:
        answers = list(map_concurrently(kinds, follow, threads=thread_limit_of(gateway), idle=journal.keep_up))
    except VersionExpired:
        return None
    versions, owners = dict[str, str](), set[str]()
    for kind, answer in answers:
        if answer is None:
            return None
        versions[kind.key] = answer[0]
        owners |= answer[1]
    return versions, owners


def extras(journal: RunRecorder, gateway: ClusterGateway, look: ObservedState) -> Sequence[Change]:
    """Our objects in the namespaces of a partial read that are not wanted. Deletions come last, so it may come late.

    The server's cache is asked: for its store a list waits up to 0.1 s. What has come a moment ago and is missed there
    is found by the next look at everything. A deletion names the uid.
    """
    kinds = [kind for kind in flavour_for(journal.run.cluster.flavour).kinds() if kind.namespaced]
    refs = look.refs
    lists = [(kind, space) for space in sorted(look.spaces) for kind in kinds]

    def listed(task: tuple[Kind, str]) -> list[Manifest]:
        return gateway.list(task[0], namespace=task[1], stale=True)[0]

    answers = map_concurrently(lists, listed, threads=thread_limit_of(gateway), idle=journal.keep_up)
    found = [each for _, inside in answers for each in inside if ref_of(each) not in refs]
    if not found:
        return []
    owners = frozenset(map(owner_of, look.wanted))
    later = set(map(ref_of, wanted_of(journal.run.cluster, owners)[1]))
    return diff([each for each in found if ref_of(each) not in later], [], adopted=look.adopted)


def _in_the_way(
    journal: RunRecorder, gateway: ClusterGateway, listing: ObjectLists, changes: Iterable[Change]
) -> Iterator[Manifest]:
    """Foreign objects that hold a wanted name. What would stand in a namespace that is not there cannot exist.

    A run asks for those it knows of and finds others when it creates; a dry run creates nothing, so it asks for all.
    """
    absent = [change.ref for change in changes if isinstance(change, Create)]
    if not journal.run.dry_run:
        known = _known_conflicts(journal.run.cluster) if absent else frozenset()
        places = {ref: (ref.kind.key, ref.namespace, ref.name) for ref in absent}
        yield from filter(None, (gateway.get(ref) for ref in absent if places[ref] in known))
        return
    spaces = listing.namespaces
    for kind in dict.fromkeys(ref.kind for ref in absent):
        journal.keep_up()
        refs = {ref for ref in absent if ref.kind == kind and ref.namespace in {"", *spaces}}
        if len(refs) > FEW:
            everybodys = gateway.list(kind, managed_only=False)[0]
            yield from (each for each in everybodys if ref_of(each) in refs)
        else:
            yield from filter(None, map(gateway.get, refs))


def _known_conflicts(cluster: Cluster) -> frozenset[tuple[str, str, str]]:
    fields = ("kind", "namespace", "name")
    drifts = Drift.objects.filter(cluster=cluster, category=DriftKind.CONFLICT).values_list(*fields)
    return frozenset({*drifts, *Adoption.objects.filter(cluster=cluster).values_list(*fields)})
