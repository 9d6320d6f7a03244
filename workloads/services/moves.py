"""Moving a workload along the table of phases: compare-and-set, with its timeline entry and the seconds it spent."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, ParamSpec

from portal.core.actors import SYSTEM, Actor
from portal.core.inserting import insert
from workloads.lifecycle import HOLDING, WAITING, may_move
from workloads.models import EventType, Workload, WorkloadEvent

P = ParamSpec("P")


def entry(
    *,
    workload: Workload,
    at: datetime,
    type_: EventType,
    reason: str = "",
    message: str = "",
    actor: Actor = SYSTEM,
    detail: Mapping[str, Any] | None = None,
) -> WorkloadEvent:
    """A timeline entry that is not written yet. The system's own entries name nobody."""
    return WorkloadEvent(
        workload=workload,
        at=at,
        type=type_,
        phase=workload.phase,
        reason=reason[:128],
        message=message,
        actor="" if actor == SYSTEM else actor.name,
        detail=dict(detail or {}),
    )


def _writing(make: Callable[P, WorkloadEvent]) -> Callable[P, WorkloadEvent]:
    def write(*args: P.args, **kwargs: P.kwargs) -> WorkloadEvent:
        event = make(*args, **kwargs)
        insert(event)
        return event

    return write


note: Final = _writing(entry)
"""A timeline entry, written at once."""


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
