"""Apply changes to a cluster one by one, each with its outcome. A refused change does not stop the others."""

from collections.abc import Iterable, Iterator
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
from clusters.ports import ClusterGateway, ObjectRef
from clusters.services import runs

NAMED: Final = 3
"""How many objects in the way of a namespace's deletion are named."""


def write(run: SyncRun, gateway: ClusterGateway, changes: Iterable[Change]) -> list[Change]:
    """Apply one by one; returns what still differs. An unreachable cluster ends the attempt, a refusal does not."""
    remaining: list[Change] = []
    holding: set[str] = set()
    for change in changes:
        runs.show_life(run)
        error = _refusal(change, holding) or _apply(gateway, change)
        runs.note(
            run, change, ok=error is None, code=error.code if error else "", message=error.message if error else ""
        )
        if error is None:
            run.written += 1
            continue
        run.failed += 1
        remaining.append(change)
        if is_lowering(change):
            holding.add(owner_of(body_of(change)))
        if isinstance(error, ClusterUnreachable):
            raise error
    return remaining


def _refusal(change: Change, holding: set[str]) -> ClusterError | None:
    """Why the change is not even tried."""
    match change:
        case Conflict():
            return ObjectConflict(change.reason)
        case Fenced():
            return LaterGeneration("The cluster holds a later generation of this object: nothing was written.")
        case _ if is_raising(change) and owner_of(body_of(change)) in holding:
            return WaitsForLowering("Another quota of the same owner could not be lowered: this one waits for it.")
    return None


def _apply(gateway: ClusterGateway, change: Change) -> ClusterError | None:
    try:
        match change:
            case Create():
                gateway.create(change.desired)
            case Update():
                gateway.update(change.desired, observed=change.observed)
            case Replace():
                gateway.delete(change.ref, uid=change.observed["metadata"]["uid"])
                gateway.create(change.desired)
            case Delete():
                _refuse_occupied(gateway, change.ref)
                gateway.delete(change.ref, uid=change.observed["metadata"]["uid"])
            case Conflict() | Fenced():
                pass  # refused before anything is tried
    except ClusterError as error:
        return error
    return None


def _refuse_occupied(gateway: ClusterGateway, ref: ObjectRef) -> None:
    """A namespace's deletion takes everything in it along: not while it holds pods or workloads of anybody."""
    if ref.kind != NAMESPACE:
        return
    inside = list(_inhabitants(gateway, ref.name))
    if inside:
        named = ", ".join(inside[:NAMED])
        raise NamespaceInUse(f"{ref.name} still holds {len(inside)} objects ({named}); it goes once they are gone.")


def _inhabitants(gateway: ClusterGateway, namespace: str) -> Iterator[str]:
    for kind in dict.fromkeys((POD, *WORKLOAD_KINDS)):
        for manifest in gateway.list(kind, namespace=namespace, managed_only=False)[0]:
            yield f"{kind.kind} {manifest['metadata']['name']}"
