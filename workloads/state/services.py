"""Lock a workload's row, move it along the table of phases, write its timeline, notify workers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from portal.kit.db.transactions import rollback_scope
from portal.kit.errors import NotFound
from portal.kit.messaging.publisher import notify_worker
from portal.kit.security.actors import SYSTEM, Actor
from workloads.state.models import EventType, FeedState, Workload, WorkloadEvent
from workloads.state.rules import HOLDING, WAITING, may_move

APPLY = "workloads.apply_due"
QUEUE = "workloads"
PLACED_AT_ONCE: Final = 1000


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
    store: bool = True,
) -> WorkloadEvent:
    """Write a timeline entry. Entries of the system have no actor. `store`: False for who stores several at once."""
    entry = WorkloadEvent(
        workload=workload,
        at=at,
        type=type_,
        phase=workload.phase,
        reason=reason[:128],
        message=message,
        actor="" if actor == SYSTEM else actor.name,
        detail=dict(detail or {}),
    )
    if store:
        entry.save(force_insert=True)
    return entry


def place_events() -> int:
    """Give timeline entries that have committed their positions in the change feed; answers how many.

    Primary keys are drawn before the commit, so a key may become visible after a higher one. Positions are given to
    committed rows only, under a lock that is held until they are committed themselves: a reader of a position sees
    every lower one, and an entry that commits late comes later in the feed instead of being skipped.
    """
    waiting = WorkloadEvent.objects.filter(position=None)
    if not waiting.exists():
        return 0
    FeedState.objects.get_or_create(pk=1)
    with transaction.atomic():
        skips = connection.features.has_select_for_update_skip_locked
        state = FeedState.objects.select_for_update(skip_locked=skips).filter(pk=1).first()
        if state is None:
            return 0  # another process is doing it
        rows = list(waiting.only("pk").order_by("pk")[:PLACED_AT_ONCE])
        for row in rows:
            state.last += 1
            row.position = state.last
        WorkloadEvent.objects.bulk_update(rows, ["position"], batch_size=200)
        state.save(update_fields=["last"])
    return len(rows)


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
    """Move to a phase if the row is unchanged since it was read and the table allows it. False: another writer won.

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
    unchanged = Workload.objects.filter(
        pk=workload.pk,
        phase=workload.phase,
        desired_phase=workload.desired_phase,
        generation=workload.generation,
    )
    if unchanged.update(**values) != 1:
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
