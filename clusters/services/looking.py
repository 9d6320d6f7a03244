"""Look at a cluster: what it holds, what it should hold, and what is between. As little as answers the question.

Near: some owners, because only theirs changed. Warm: what has happened since this process last looked. Whole: all.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

from django.utils import timezone

from clusters.abreast import abreast, nothing, parts_abreast
from clusters.diff import Change, Create, Wanted, by_place, diff, differences
from clusters.errors import VersionExpired
from clusters.flavours import flavour_for
from clusters.kinds_core import BY_RECORD, ref_of
from clusters.models import Adoption, Cluster, Drift, DriftKind, Touch
from clusters.order import body_of
from clusters.ownership import is_managed, owner_of
from clusters.ports import ClusterGateway, DesiredState, Kind, Manifest, ObjectRef
from clusters.services import former, sightings, touches
from clusters.services.listing import Listing, pages_of
from clusters.services.near import Glimpse, Near, generation_of, near, wanted_of
from clusters.services.repairs import adopted_uids
from clusters.services.runs import Journal, follows_a_lost_one
from clusters.services.sightings import Sighting
from clusters.services.touches import Scope
from clusters.services.writing import threads_of
from clusters.sources import desired_state, uncounted_state

CONTENT_AGE: Final = timedelta(hours=1)
FEW: Final = 20
"""Absent objects that a dry run asks for one by one; for more of a kind it lists everybody's."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found. `owners`: whose objects it was about (None: everybody's), `wanted`: what these want.

    `asked`: what of that it asked for by name.
    `retired`: keys of kinds of former schedulers; `left`: how many of their objects there are, None: not known.
    """

    state: DesiredState
    generation: int
    listed: int
    changes: Sequence[Change] = ()
    owners: frozenset[str] | None = None
    wanted: Sequence[Manifest] = ()
    asked: frozenset[ObjectRef] = frozenset()
    adopted: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    left: int | None = None

    @property
    def refs(self) -> frozenset[ObjectRef]:
        """What these owners want."""
        return frozenset(map(ref_of, self.wanted))

    @property
    def spaces(self) -> frozenset[str]:
        """The namespaces of that, in which nothing was listed yet."""
        return frozenset(ref.namespace for ref in self.refs if ref.namespace)


@dataclass(frozen=True, slots=True)
class _Goal:
    """Everything that is wanted, as of a generation."""

    generation: int
    uncounted: DesiredState
    state: DesiredState
    wanted: Wanted


def look_at(journal: Journal, gateway: ClusterGateway, known: Glimpse) -> Look:
    """Raises ClusterError. A dry run looks at everything and leaves no trace."""
    cluster = journal.run.cluster
    if journal.run.dry_run:
        return _whole(journal, gateway)
    if known.scope:
        found = near(journal, gateway, known.scope, known)
        return _as_look(cluster, found, frozenset(known.scope.owners)) if found else _whole(journal, gateway)
    if follows_a_lost_one(journal.run):
        return _whole(journal, gateway, fence=True)
    return _warm(journal, gateway) or _whole(journal, gateway)


def _as_look(cluster: Cluster, found: Near, owners: frozenset[str] | None) -> Look:
    adopted = frozenset[str]() if all(map(is_managed, found.observed)) else adopted_uids(cluster)
    changes = diff(found.observed, found.asked.values(), adopted=adopted)
    wanted, asked = found.wanted, frozenset(found.asked)
    return Look(wanted.state, wanted.generation, len(found.observed), changes, owners, wanted.manifests, asked, adopted)


@contextmanager
def uncollected() -> Iterator[None]:
    """A listing makes a hundred thousand containers, all in use: to look for garbage meanwhile doubles its time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@uncollected()
def _whole(journal: Journal, gateway: ClusterGateway, *, fence: bool = False) -> Look:
    """Observed before desired: what a later generation has just made is then always wanted, never extra.

    What is wanted is read while the first lists come, and again after the last. Where it has changed meanwhile, what
    was sifted by it is listed once more, whole.
    `fence`: what a lost worker may still write over is written, though nothing but its generation has changed.
    """
    cluster = journal.run.cluster
    early: list[_Goal] = []
    retired = former.retired_in(cluster)
    listed = partial(_listed, journal, gateway, retired, fence=fence)
    by_record = _is_vouched_for(cluster)
    listing = listed(early, meanwhile=lambda: early.append(_goal(cluster)), by_record=by_record)
    goal = _goal(cluster, *early)
    if goal not in early:
        listing, goal, by_record = listed([]), _goal(cluster), False
    adopted = adopted_uids(cluster)
    compared = partial(differences, wanted=goal.wanted, held=listing.held, adopted=adopted, fence=fence)
    changes = compared(listing.others)
    if foreign := list(_in_the_way(journal, gateway, listing, changes)):
        changes = compared([*listing.others, *foreign])
    changes = retired.free(changes)
    if not journal.run.dry_run:
        _remember(cluster, goal.uncounted, listing, changes)
        if not by_record:
            _note_content(cluster)
    left = None if "" in listing.versions.values() else listing.count(retired.keys)
    return Look(goal.state, goal.generation, listing.count(), changes, adopted=adopted, retired=retired.keys, left=left)


def _is_vouched_for(cluster: Cluster) -> bool:
    """The API server's record of who wrote what will do, since the content itself was read not long ago.

    A server that changes what we write, or whose schema has changed since, does not show that in its record.
    """
    return cluster.read_whole_at is not None and timezone.now() - cluster.read_whole_at < CONTENT_AGE


def _note_content(cluster: Cluster) -> None:
    """The content of everything has been read, for schedulers of whose objects metadata may do next time."""
    if any(kind.key in BY_RECORD for kind in flavour_for(cluster.flavour).kinds()):
        Cluster.objects.filter(pk=cluster.pk).update(read_whole_at=timezone.now())


def _listed(
    journal: Journal,
    gateway: ClusterGateway,
    retired: former.Retired,
    goals: Sequence[_Goal],
    *,
    fence: bool,
    meanwhile: Callable[[], object] = nothing,
    by_record: bool = False,
) -> Listing:
    """Every list, sifted by the first goal, which `meanwhile` may have set by then; without one all is kept."""
    cluster, threads = journal.run.cluster, threads_of(gateway)
    listing = Listing(remembered=not journal.run.dry_run, fence=fence)
    answers = parts_abreast(
        [*flavour_for(cluster.flavour).kinds(), *retired.kinds],
        partial(pages_of, gateway, retired.keys, by_record=by_record),
        threads=threads,
        idle=journal.keep_up,
        meanwhile=meanwhile,
    )
    for kind, page in answers:
        listing.take(kind, page, goals[0].wanted if goals else {})
    if goals:
        listing.read(gateway, goals[0].wanted, threads=threads, idle=journal.keep_up)
    return listing


def _goal(cluster: Cluster, early: _Goal | None = None) -> _Goal:
    """What is wanted now. What was read earlier is still that if nothing has been counted or changed since."""
    uncounted, generation = uncounted_state(cluster), generation_of(cluster)
    if early and (early.uncounted, early.generation) == (uncounted, generation):
        return early
    state = desired_state(cluster)
    return _Goal(generation, uncounted, state, by_place(flavour_for(cluster.flavour).objects_for(state)))


def _remember(cluster: Cluster, state: DesiredState, listing: Listing, changes: Iterable[Change]) -> None:
    """Worth it only where the next look can be nearer than this one."""
    suspects = {owner_of(body_of(change)) for change in changes}
    if len(suspects) > touches.MOST:
        sightings.forget(cluster.pk)
        return
    seen = Sighting(cluster.uid, cluster.flavour, state, listing.versions, listing.seen, suspects)
    sightings.remember(cluster.pk, seen)


def _warm(journal: Journal, gateway: ClusterGateway) -> Look | None:
    """Everything is as it was seen, but for what has been touched here or there since. None: list it all.

    Whatever changed in the database since then waits as a touch, or a run has settled it: then its writes are events.
    """
    cluster = journal.run.cluster
    uncounted = uncounted_state(cluster)
    seen = sightings.recall(cluster.pk)
    if seen is None or not seen.holds_for(uid=cluster.uid, flavour=cluster.flavour, state=uncounted):
        return None
    if former.is_leaving(cluster):
        return None
    generation = generation_of(cluster)
    seen.suspects.update(Touch.objects.filter(cluster=cluster).values_list("owner", flat=True))
    followed = _follow(journal, gateway, seen)
    if not followed or len(seen.suspects) > touches.MOST or touches.EVERYTHING in seen.suspects:
        sightings.forget(cluster.pk)
        return None
    if not seen.suspects:
        return Look(uncounted, generation, len(seen.objects))
    owners = frozenset(seen.suspects)
    found = near(journal, gateway, Scope(generation, dict.fromkeys(owners, frozenset())))
    if found is None:
        return None
    # whoever is touched after the owners were known waits for the next run, though nothing was listed since
    look = replace(_as_look(cluster, found, None), generation=generation)
    if not look.changes:
        kinds = {kind.kind: kind for kind in flavour_for(cluster.flavour).kinds()}
        seen.learn(owners, kinds, found.observed)
    return look


def _follow(journal: Journal, gateway: ClusterGateway, seen: Sighting) -> bool:
    """Read what has happened to each kind; False: too long ago, or more than can be followed."""
    kinds = list(flavour_for(journal.run.cluster.flavour).kinds())

    def follow(kind: Kind) -> bool:
        return seen.take(kind, gateway.watch(kind, since=seen.versions[kind.key]))

    try:
        known = list(abreast(kinds, follow, threads=threads_of(gateway), idle=journal.keep_up))
    except VersionExpired:
        return False
    return all(followed for _, followed in known)


def extras(journal: Journal, gateway: ClusterGateway, look: Look) -> Sequence[Change]:
    """What of ours stands in the namespaces of a near look and nobody wants. Deletions come last, so it may come late.

    The server's cache is asked: for its store a list waits up to 0.1 s. What has come a moment ago and is missed there
    is found by the next look at everything. A deletion names the uid.
    """
    kinds = [kind for kind in flavour_for(journal.run.cluster.flavour).kinds() if kind.namespaced]
    refs = look.refs
    lists = [(kind, space) for space in sorted(look.spaces) for kind in kinds]

    def listed(task: tuple[Kind, str]) -> list[Manifest]:
        return gateway.list(task[0], namespace=task[1], stale=True)[0]

    answers = abreast(lists, listed, threads=threads_of(gateway), idle=journal.keep_up)
    found = [each for _, inside in answers for each in inside if ref_of(each) not in refs]
    if not found:
        return []
    owners = frozenset(map(owner_of, look.wanted))
    later = set(map(ref_of, wanted_of(journal.run.cluster, owners)[1]))
    return diff([each for each in found if ref_of(each) not in later], [], adopted=look.adopted)


def _in_the_way(
    journal: Journal, gateway: ClusterGateway, listing: Listing, changes: Iterable[Change]
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
