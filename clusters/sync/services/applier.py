"""Apply changes to a cluster, wave after wave, side by side inside each. A refused change does not stop the others."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, runtime_checkable

from clusters.ports.gateway import (
    ClusterError,
    ClusterGateway,
    ClusterUnreachable,
    Kind,
    LaterGeneration,
    Manifest,
    NamespaceInUse,
    NotAuthorized,
    ObjectConflict,
    ObjectRef,
    VersionConflict,
    WaitsForLowering,
    WaitsForSuccessor,
)
from clusters.ports.objects import NAMESPACE, POD, WORKLOAD_KINDS, is_managed, owner_of
from clusters.sync.rules.changes import body_of, in_waves, is_lowering, is_raising, is_retiring
from clusters.sync.rules.diff import (
    Change,
    Create,
    Delete,
    Fenced,
    NameConflict,
    Replace,
    Update,
    conflict_with,
    same_but_status,
)
from clusters.sync.services.sync_runs import RunRecorder
from portal.kit.messaging.concurrency import map_concurrently

NAMED: Final = 3
"""How many objects in the way of a namespace's deletion are named."""
TRIES: Final = 3
"""How often an update is retried when only the object's status changed in between."""
FEW: Final = 5
"""Up to so many namespaces are asked one by one what lives in them; for more, the whole cluster is listed once."""

Remarks: TypeAlias = Mapping[ObjectRef, str]
"""What an outcome says beside what was done."""
NO_REMARKS: Final[Remarks] = MappingProxyType({})


@runtime_checkable
class ConcurrentGateway(Protocol):
    """A gateway that may be used from several threads, and says from how many now."""

    @property
    def at_once(self) -> int:
        """Calls that the cluster takes at a time."""


def thread_limit_of(gateway: ClusterGateway) -> int:
    """How many calls may be made at a time; 1: only from the thread that asks."""
    return max(1, gateway.at_once) if isinstance(gateway, ConcurrentGateway) else 1


class ApplyPolicy:
    """What is not even tried, and why. It learns from what fails."""

    def __init__(self, gateway: ClusterGateway, changes: Sequence[Change], retired: Container[str] = ()) -> None:
        self._inhabited = _inhabited(gateway, changes)
        self._retired = retired
        self._incomplete = False
        self._holding: set[str] = set()
        self._foreign: set[str] = set()

    def conflict_if_foreign(self, change: Change) -> Change:
        """The change; in a namespace that was found to be foreign, a conflict."""
        name = change.ref.namespace
        if name not in self._foreign or not isinstance(change, Create | Update):
            return change
        return NameConflict(change.ref, change.desired, f"The namespace {name} is not managed by Rung.")

    def refuses(self, change: Change) -> ClusterError | None:
        """The reason to leave the change alone; None: try it."""
        owner = owner_of(body_of(change))
        match change:
            case NameConflict():
                return ObjectConflict(change.reason)
            case Fenced():
                return LaterGeneration("Skipped: the cluster has a newer generation of this object.")
            case Delete() if self._incomplete and is_retiring(change, self._retired):
                return WaitsForSuccessor("Kept until all objects of the new scheduler exist.")
            case Delete():
                return self._inhabited.get(owner)
            case _ if is_raising(change) and owner in self._holding:
                return WaitsForLowering("Waiting: another quota of the same owner could not be lowered.")
        return None

    def learn(self, change: Change) -> None:
        """Record a failed change: the quota it would have freed is still in use, its blockers remain."""
        self._incomplete |= not isinstance(change, Delete)
        if is_lowering(change):
            self._holding.add(owner_of(body_of(change)))
        if isinstance(change, NameConflict) and change.ref.kind == NAMESPACE:
            self._foreign.add(change.ref.name)


def dry_run_changes(
    journal: RunRecorder,
    gateway: ClusterGateway,
    changes: Sequence[Change],
    remarks: Remarks = NO_REMARKS,
    *,
    retired: Container[str] = (),
) -> list[Change]:
    """A dry run's outcomes: what would be done and what would be refused. Nothing is written."""
    guard = ApplyPolicy(gateway, changes, retired)
    for wave in in_waves(changes, retired=retired):
        for change in wave:
            if error := guard.refuses(change):
                journal.run.failed += 1
                guard.learn(change)
            journal.note(change, error, remarks.get(change.ref, ""))
            journal.keep_up()
    return list(changes)


@dataclass(slots=True)
class Applier:
    """Writes one run's changes. `verify_identity` reads again which cluster this is; it raises if that changed."""

    journal: RunRecorder
    gateway: ClusterGateway
    verify_identity: Callable[[], None]
    remarks: Remarks = field(default_factory=dict)
    retired: Container[str] = ()
    remaining: list[Change] = field(default_factory=list)
    _stored: dict[ObjectRef, Manifest] = field(default_factory=dict)
    _verified: bool = False

    def write(self, changes: Sequence[Change]) -> list[Change]:
        """Each change with its outcome; returns what still differs.

        A wave begins when the one before it has ended: at no instant are more amounts granted than before or after.
        An unreachable cluster, or one that does not know us any more, ends the attempt; a refusal does not. Between two
        waves the run is seen to be ours still.
        """
        guard = ApplyPolicy(self.gateway, changes, self.retired)
        for number, wave in enumerate(in_waves(changes, retired=self.retired)):
            (self.journal.show_life if number else self.journal.keep_up)()
            self._wave(guard, wave)
        return self.remaining

    def _wave(self, guard: ApplyPolicy, wave: Sequence[Change]) -> None:
        tried: list[Change] = []
        for change in map(guard.conflict_if_foreign, wave):
            if error := guard.refuses(change):
                self._note(guard, change, error)
            else:
                tried.append(change)
        threads = thread_limit_of(self.gateway)
        for _, (change, error) in map_concurrently(tried, self._apply, threads=threads, idle=self.journal.keep_up):
            self._note(guard, change, error)
            self._end_if_broken(error)

    def _note(self, guard: ApplyPolicy, change: Change, error: ClusterError | None) -> None:
        run = self.journal.run
        self.journal.note(change, error, self.remarks.get(change.ref, ""))
        if error is None:
            run.written += 1
            return
        run.failed += 1
        self.remaining.append(change)
        guard.learn(change)

    def _end_if_broken(self, error: ClusterError | None) -> None:
        if isinstance(error, ClusterUnreachable):
            raise error
        if isinstance(error, NotAuthorized) and not self._verified:
            self._verified = True
            self.verify_identity()

    def _apply(self, change: Change) -> tuple[Change, ClusterError | None]:
        """One change, in any thread. What our own first step wrote is what a second step to the object builds on."""
        self.journal.require_fresh()
        try:
            match change:
                case Create():
                    return self._create(change)
                case Update():
                    self._stored[change.ref] = self._update(change)
                case Replace():
                    self.gateway.delete(change.ref, uid=change.observed["metadata"]["uid"])
                    self.gateway.create(change.desired)
                case Delete():
                    self.gateway.delete(change.ref, uid=change.observed["metadata"]["uid"])
                case NameConflict() | Fenced():
                    pass  # refused before anything is tried
        except ClusterError as error:
            return change, error
        return change, None

    def _update(self, change: Update) -> Manifest:
        """A status that a controller writes in between changes nothing that was compared: then read and write again."""
        observed = self._stored.get(change.ref, change.observed)
        for _ in range(TRIES):
            try:
                return self.gateway.update(change.desired, observed=observed)
            except VersionConflict:
                found = self.gateway.get(change.ref)
                if found is None or not same_but_status(found, observed):
                    raise
                observed = found
        return self.gateway.update(change.desired, observed=observed)

    def _create(self, change: Create) -> tuple[Change, ClusterError | None]:
        """Whether the name is free was not checked before; the holder is read only if it is not."""
        try:
            self.gateway.create(change.desired)
        except VersionConflict as error:
            return change, error
        except ObjectConflict as error:
            found = self.gateway.get(change.ref)
            if found is None or is_managed(found):
                return change, VersionConflict(
                    f"{change.ref.kind.kind} {change.ref.name} was created or deleted in the meantime."
                )
            return conflict_with(change.ref, found, change.desired), error
        return change, None


def _inhabited(gateway: ClusterGateway, changes: Iterable[Change]) -> dict[str, NamespaceInUse]:
    """Owners whose unwanted namespace still holds work of anybody: its deletion would take that along.

    Nothing of such an owner is deleted, so that its quotas keep bounding the work until it has ended.
    """
    owners = {
        change.ref.name: owner_of(change.observed)
        for change in changes
        if isinstance(change, Delete) and change.ref.kind == NAMESPACE
    }
    inside: dict[str, list[str]] = {}
    for namespace in owners if len(owners) <= FEW else [""]:
        for name, found in _inhabitants(gateway, namespace):
            if name in owners:
                inside.setdefault(name, []).append(found)
    return {owners[name]: _in_use(name, found) for name, found in inside.items()}


def _in_use(name: str, inside: Sequence[str]) -> NamespaceInUse:
    named = ", ".join(inside[:NAMED])
    return NamespaceInUse(f"{name} still has {len(inside)} objects ({named}). It is deleted after them.")


def _inhabitants(gateway: ClusterGateway, namespace: str) -> Iterator[tuple[str, str]]:
    """(namespace, what) of every pod and workload, in one namespace or in all."""
    kinds: Iterable[Kind] = dict.fromkeys((POD, *WORKLOAD_KINDS))
    for kind in kinds:
        if gateway.serves(kind):
            for manifest in gateway.list(kind, namespace=namespace, managed_only=False, metadata_only=True)[0]:
                metadata = manifest["metadata"]
                yield str(metadata.get("namespace", "")), f"{kind.kind} {metadata['name']}"
