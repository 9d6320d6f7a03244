"""Lock a workload's row, move it along the table of phases, write its timeline, notify workers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from portal.kit.db.transactions import rollback_scope
from portal.kit.errors import NotFound
from portal.kit.messaging.publisher import notify_worker
from portal.kit.security.actors import SYSTEM, Actor
from workloads.state.models import EventType, Workload, WorkloadEvent
from workloads.state.rules import HOLDING, WAITING, may_move

APPLY = "workloads.apply_due"
QUEUE = "workloads"


def notify_apply(cluster_id: UUID) -> None:
    """Ask a worker to apply the due workloads of this cluster. One message serves any number of them."""
    notify_worker(APPLY, str(cluster_id), queue=QUEUE)


def lock(workload: Workload) -> None:
    """Lock the row until the transaction ends, and bring the instance to what the row holds.

    No related rows are joined: PostgreSQL drops a row from the answer when a column it was joined by changed while the
    lock was waited for. On SQLite the transaction itself is the lock.
    """
    fresh = Workload.objects.select_for_update(no_key=True).filter(pk=workload.pk).first()
    if fresh is None:
        raise NotFound
    for field in Workload._meta.concrete_fields:
        setattr(workload, field.attname, getattr(fresh, field.attname))


@contextmanager
def locked(workload: Workload) -> Iterator[None]:
    """One transaction around reading the row, deciding what to change and the service that changes it.

    A refusal inside it still leaves its audit record.
    """
    with rollback_scope():
        lock(workload)
        yield


def note(
    *,
    workload: Workload,
    at: datetime,
    type_: EventType,
    reason: str = "",
    message: str = "",
    actor: Actor = SYSTEM,
    detail: Mapping[str, Any] | None = None,
) -> WorkloadEvent:
    """Write a timeline entry. Entries of the system have no actor."""
    return WorkloadEvent.objects.create(
        workload=workload,
        at=at,
        type=type_,
        phase=workload.phase,
        reason=reason[:128],
        message=message,
        actor="" if actor == SYSTEM else actor.name,
        detail=dict(detail or {}),
    )


def move(
    *,
    workload: Workload,
    to: str,
    at: datetime,
    reason: str = "",
    message: str = "",
    actor: Actor = SYSTEM,
    detail: Mapping[str, Any] | None = None,
    retrying: bool = False,
    **changes: Any,
) -> bool:
    """Move to a phase if the row still stands where it was read and the table allows it. False: somebody else won.

    `changes` are written with it, `retrying` allows the moves of a retry. The instance follows the row.
    """
    if not may_move(workload.phase, to, retrying=retrying):
        return False
    values = {
        "phase": to,
        "phase_reason": reason[:64],
        "phase_message": message,
        "phase_at": at,
        "updated_at": at,
        **_spent(workload, at),
        **changes,
    }
    standing = Workload.objects.filter(
        pk=workload.pk,
        phase=workload.phase,
        desired_phase=workload.desired_phase,
        generation=workload.generation,
    )
    if standing.update(**values) != 1:
        return False
    for name, value in values.items():
        setattr(workload, name, value)
    note(workload=workload, at=at, type_=EventType.PHASE, reason=reason, message=message, actor=actor, detail=detail)
    return True


def _spent(workload: Workload, at: datetime) -> dict[str, int]:
    """Seconds of the phase that ends now, added to waiting or running."""
    seconds = max(0, int((at - workload.phase_at).total_seconds()))
    if workload.phase in WAITING:
        return {"pending_seconds": workload.pending_seconds + seconds}
    if workload.phase in HOLDING:
        return {"running_seconds": workload.running_seconds + seconds}
    return {}


def audit_scope(workload: Workload) -> dict[str, str]:
    return {"project_id": str(workload.project_id)}


def audit_entity(workload: Workload) -> dict[str, str]:
    return {"entity_type": "workload", "entity_name": workload.name, **audit_scope(workload)}
