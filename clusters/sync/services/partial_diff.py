"""Some owners' objects, because only they were touched: what they want, and how that stands. Few steps before a repair.

The cluster is asked who it is, and how the touched objects stand, while the database says what is wanted. What it
answers is believed only once it is recognized.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.inventory.services import dirty_owners
from clusters.inventory.services.dirty_owners import DirtyScope
from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import ClusterError, ClusterGateway, FlavourSwitched, Manifest, ObjectRef
from clusters.ports.objects import NAMESPACE, owner_of, ref_of
from clusters.sync.selectors import desired_state
from clusters.sync.services.applier import thread_limit_of
from clusters.sync.services.sync_runs import RunRecorder
from portal.kit.messaging.concurrency import map_concurrently

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
    stands: Mapping[ObjectRef, Manifest | ClusterError | None] = field(default_factory=dict)

    def identity(self) -> tuple[str, str]:
        """The identity that the cluster reports. Raises ClusterError."""
        return _given(self.who)


@dataclass(frozen=True, slots=True)
class PartialState:
    """What some owners want, which of it was asked for, and what of that is there."""

    wanted: OwnersState
    asked: Mapping[ObjectRef, Manifest]
    observed: Sequence[Manifest]


def preflight(journal: RunRecorder, gateway: ClusterGateway) -> Preflight:
    """Who the cluster is, what the touched owners want, and how what was touched stands: all at a time."""
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
    stands = {ref: each for ref, each in answers if ref is not None}
    return Preflight(who[0], scope, wanted[0], stands)


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
    asked = {ref_of(each): each for each in wanted.manifests if whole or _is_meant(scope, each)}
    stands = dict(known.stands) if known else {}
    missing = [ref for ref in asked if ref not in stands]
    stands |= dict(map_concurrently(missing, gateway.get, threads=thread_limit_of(gateway), idle=journal.keep_up))
    return PartialState(wanted, asked, [found for ref in asked if (found := _given(stands[ref]))])


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
