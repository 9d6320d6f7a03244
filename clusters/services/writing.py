"""Apply changes to a cluster one by one, each with its outcome. A refused change does not stop the others."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from clusters.diff import Change, Conflict, Create, Delete, Fenced, Replace, Update
from clusters.errors import (
    ClusterError,
    ClusterUnreachable,
    LaterGeneration,
    NamespaceInUse,
    ObjectConflict,
    WaitsForLowering,
)
from clusters.kinds_core import NAMESPACE, POD, WORKLOAD_KINDS
from clusters.models import SyncRun
from clusters.order import body_of, is_lowering, is_raising
from clusters.ownership import owner_of
from clusters.ports import ClusterGateway, Manifest, ObjectRef
from clusters.services import runs

NAMED: Final = 3
"""How many objects in the way of a namespace's deletion are named."""


class Guard:
    """What is not even tried, and why. It learns from what fails."""

    def __init__(self, gateway: ClusterGateway, changes: Sequence[Change]) -> None:
        self._inhabited = dict(_inhabited(gateway, changes))
        self._holding: set[str] = set()

    def refuses(self, change: Change) -> ClusterError | None:
        """The reason to leave the change alone; None: try it."""
        owner = owner_of(body_of(change))
        match change:
            case Conflict():
                return ObjectConflict(change.reason)
            case Fenced():
                return LaterGeneration("The cluster holds a later generation of this object: nothing was written.")
            case Delete():
                return self._inhabited.get(owner)
            case _ if is_raising(change) and owner in self._holding:
                return WaitsForLowering("Another quota of the same owner could not be lowered: this one waits for it.")
        return None

    def learn(self, change: Change) -> None:
        """The change failed: what it would have given back is still taken."""
        if is_lowering(change):
            self._holding.add(owner_of(body_of(change)))


def foresee(run: SyncRun, gateway: ClusterGateway, changes: Sequence[Change]) -> Sequence[Change]:
    """A dry run's outcomes: what would be done and what would be refused. Nothing is written."""
    guard = Guard(gateway, changes)
    for change in changes:
        error = guard.refuses(change)
        run.failed += error is not None
        runs.note(run, change, error)
    return changes


def write(run: SyncRun, gateway: ClusterGateway, changes: Sequence[Change]) -> Sequence[Change]:
    """Apply one by one; returns what still differs. An unreachable cluster ends the attempt, a refusal does not."""
    guard = Guard(gateway, changes)
    remaining: list[Change] = []
    stored: dict[ObjectRef, Manifest] = {}
    for change in changes:
        runs.show_life(run)
        error = guard.refuses(change) or _apply(gateway, change, stored)
        runs.note(run, change, error)
        run.written += error is None
        if error is None:
            continue
        run.failed += 1
        remaining.append(change)
        guard.learn(change)
        if isinstance(error, ClusterUnreachable):
            raise error
    return remaining


def _apply(gateway: ClusterGateway, change: Change, stored: dict[ObjectRef, Manifest]) -> ClusterError | None:
    """`stored` keeps what our own first step wrote, so that a second step to the same object builds on it."""
    try:
        match change:
            case Create():
                gateway.create(change.desired)
            case Update():
                observed = stored.get(change.ref, change.observed)
                stored[change.ref] = gateway.update(change.desired, observed=observed)
            case Replace():
                gateway.delete(change.ref, uid=change.observed["metadata"]["uid"])
                gateway.create(change.desired)
            case Delete():
                gateway.delete(change.ref, uid=change.observed["metadata"]["uid"])
            case Conflict() | Fenced():
                pass  # refused before anything is tried
    except ClusterError as error:
        return error
    return None


def _inhabited(gateway: ClusterGateway, changes: Iterable[Change]) -> Iterator[tuple[str, NamespaceInUse]]:
    """Owners whose unwanted namespace still holds work of anybody: its deletion would take that along.

    Nothing of such an owner is deleted, so that its quotas keep bounding the work until it has ended.
    """
    for change in changes:
        if isinstance(change, Delete) and change.ref.kind == NAMESPACE:
            name = change.ref.name
            if inside := list(_inhabitants(gateway, name)):
                named = ", ".join(inside[:NAMED])
                message = f"{name} still holds {len(inside)} objects ({named}); it goes once they are gone."
                yield owner_of(change.observed), NamespaceInUse(message)


def _inhabitants(gateway: ClusterGateway, namespace: str) -> Iterator[str]:
    for kind in dict.fromkeys((POD, *WORKLOAD_KINDS)):
        for manifest in gateway.list(kind, namespace=namespace, managed_only=False)[0]:
            yield f"{kind.kind} {manifest['metadata']['name']}"
