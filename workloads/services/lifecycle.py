"""Stop, resume, retry, delete, clone, re-prioritise: each locks the row, decides and writes; a worker does the rest.

What is met already succeeds and writes nothing: no second audit record, no second timeline entry.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from scheduling.priority import Level, Source
from tenants.permissions import Verb, require
from workloads.apply_failures import failed_to_apply
from workloads.compliance import refuse_new_priority
from workloads.enqueue import wake_apply
from workloads.intake import WorkloadSpec
from workloads.lifecycle import ENDED, HOLDING, STOPPABLE
from workloads.models import DesiredPhase, EventType, Phase, Priority, Workload
from workloads.permissions import require_manage
from workloads.placing import refuse_resuming
from workloads.reprioritising import consequence
from workloads.resolution import current_dictionary
from workloads.services.denials import verb
from workloads.services.locking import lock
from workloads.services.moves import move, note

RETRIED: Final = "Retried"
"""The reason of the timeline entry of a retry."""


def stop(*, workload: Workload, actor: Actor) -> Workload:
    """Ask for the end of its pods; the row and its history stay. Met already when it is stopped or has ended."""
    with verb(actor=actor, action="workload.stop", **entity_of(workload)):
        ready(workload, actor)
        refuse_fixed(workload, "stopped or resumed")
        if workload.phase in STOPPABLE and workload.desired_phase == DesiredPhase.RUNNING:
            _turn(workload, DesiredPhase.STOPPED, Phase.STOPPING, actor)
    return workload


def resume(*, workload: Workload, actor: Actor) -> Workload:
    """Ask for its pods again. Met already when they are wanted; Conflict when it has ended.

    Refused where the cluster's scheduler would not hold it to its quotas, or not give it its part of a GPU.
    """
    with verb(actor=actor, action="workload.resume", **entity_of(workload)):
        ready(workload, actor)
        refuse_fixed(workload, "stopped or resumed")
        if workload.phase in ENDED:
            raise Conflict(_not_resumable(workload), code="not_resumable")
        if workload.desired_phase == DesiredPhase.STOPPED:
            refuse_resuming(WorkloadSpec.from_json(workload.spec), workload.project)
            _turn(workload, DesiredPhase.RUNNING, Phase.RESUMING, actor, started_at=None)
    return workload


def retry(*, workload: Workload, actor: Actor) -> Workload:
    """Hand it to its cluster again after that failed. Met already when it was retried; Conflict for all others."""
    with verb(actor=actor, action="workload.retry", **entity_of(workload)):
        ready(workload, actor)
        if failed_to_apply(workload):
            _retry(workload, actor)
        elif not _retried(workload):
            message = f"{workload.name} is {workload.phase}: only a workload that failed to apply can be retried."
            raise Conflict(message, code="not_retryable")
    return workload


def delete(*, workload: Workload, actor: Actor) -> Workload:
    """Leave a tombstone: a worker removes the objects, and no late create brings them back. Twice is once."""
    with verb(actor=actor, action="workload.delete", **entity_of(workload)):
        require_manage(actor, workload)
        lock(workload)
        if workload.desired_phase != DesiredPhase.DELETED:
            _turn(workload, DesiredPhase.DELETED, Phase.DELETING, actor)
    return workload


def change_priority(*, workload: Workload, priority: str, actor: Actor) -> Workload:
    """Give it another priority. Its stored preemptibility stays, also where the threshold now disagrees.

    Pods copy the integer when they are created, so running pods keep the old one: the new value is stored, and its kind
    says when it reaches pods (`workloads.reprioritising`).
    """
    with verb(actor=actor, action="workload.change_priority", **entity_of(workload)):
        ready(workload, actor)
        refuse_fixed(workload, "given another priority", code="priority_fixed", pointer="/priority")
        if workload.phase in ENDED:
            raise Conflict(f"{workload.name} is {workload.phase}; its priority means nothing now.", code="ended")
        level = known_level(priority)
        if not _has_priority(workload, level):
            apply_priority(workload, level, actor)
    return workload


def clone_spec(*, workload: Workload, actor: Actor) -> WorkloadSpec:
    """What to submit for another one like it: the same body and wishes, with what was chosen for it since.

    Defaults are resolved anew; the name is a prefix that submission completes. Absent where the actor may not see it.
    """
    require(actor, Verb.VIEW_PROJECT, project=workload.project)
    spec = WorkloadSpec.from_json(workload.spec)
    request = spec.request
    if workload.priority_source == Source.EXPLICIT:
        request = replace(request, explicit_priority=workload.priority.name)
    name = f"{spec.name[:50].rstrip('-.')}-copy"
    return replace(spec.named(name), generate_name=True, request=request, node_pools=tuple(workload.node_pools))


def apply_priority(workload: Workload, level: Level, actor: Actor) -> None:
    refuse_new_priority(workload, level)
    now = timezone.now()
    before = {"priority": workload.priority.name, "value": workload.priority_value}
    values: dict[str, Any] = {
        "priority": Priority.objects.get(name=level.name),
        "priority_value": level.value,
        "priority_source": Source.EXPLICIT,
        "warnings": _priority_warnings(workload, level),
    }
    rewrite(workload, now, **values)
    after = {"priority": level.name, "value": level.value, "preemptibility": workload.preemptibility}
    note(
        workload=workload,
        at=now,
        type_=EventType.ACTION,
        reason="PriorityChanged",
        message=f"Priority changed from {before['priority']} {before['value']} to {level.name} {level.value}.",
        actor=actor,
        detail={"before": before, "after": after},
    )
    record(actor, "workload.change_priority", workload, detail={"before": before, "after": after}, **scope_of(workload))
    wake_apply(workload.project.cluster_id)


def _priority_warnings(workload: Workload, level: Level) -> list[dict[str, str]]:
    warnings = []
    if level.by_threshold != workload.preemptibility:
        message = (
            f"It stays {workload.preemptibility}, though {level.name} ({level.value}) alone means {level.by_threshold}."
        )
        warnings.append({"code": "threshold_disagrees", "message": message})
    if workload.phase in HOLDING and level.value != workload.priority_value:
        message = f"From {workload.priority_value} to {level.value}: {consequence(workload)}"
        warnings.append({"code": "new_pods_only", "message": message})
    return warnings


def known_level(priority: str) -> Level:
    dictionary = current_dictionary()
    level = dictionary.lookup(priority)
    if level is None:
        raise Refused.at(
            "/priority",
            "priority_unknown",
            f"Priority {priority[:80]!r} is not known. Allowed: {', '.join(dictionary.names)}.",
            allowed=dictionary.names,
        )
    return level


def ready(workload: Workload, actor: Actor) -> None:
    """Lock the row for an actor who may change it. Conflict when it is deleted."""
    require_manage(actor, workload)
    lock(workload)
    if workload.desired_phase == DesiredPhase.DELETED:
        raise Conflict(f"{workload.name} is being deleted.", code="deleting")


def refuse_fixed(workload: Workload, what: str, *, code: str = "type_fixed", pointer: str = "") -> None:
    if workload.type.fixed:
        raise Refused.at(pointer, code, f"{workload.type.title} workloads cannot be {what}.")


def _turn(workload: Workload, desired: str, phase: str, actor: Actor, **changes: Any) -> None:
    """Desire and phase of a locked row, then audit and wake-up."""
    now = timezone.now()
    before = {"desired": workload.desired_phase, "phase": workload.phase}
    values = {"desired_phase": desired, "apply_error": "", **_next_generation(workload, now), **changes}
    _move_locked(workload, phase, now, actor, **values)
    after = {"desired": desired, "phase": phase}
    action = {"Stopped": "workload.stop", "Running": "workload.resume", "Deleted": "workload.delete"}[desired]
    record(actor, action, workload, detail={"before": before, "after": after}, **scope_of(workload))
    wake_apply(workload.project.cluster_id)


def _retry(workload: Workload, actor: Actor) -> None:
    """The one way out of an end: a new generation that starts from nothing applied."""
    now = timezone.now()
    failure = {"reason": workload.phase_reason, "message": workload.apply_error}
    again: dict[str, Any] = {
        "apply_error": "",
        "applied_generation": 0,
        "started_at": None,
        "completed_at": None,
        **_next_generation(workload, now),
    }
    _move_locked(workload, Phase.CREATING, now, actor, retrying=True, **again)
    note(
        workload=workload,
        at=now,
        type_=EventType.ACTION,
        reason=RETRIED,
        message="Retried.",
        actor=actor,
        detail=failure,
    )
    record(actor, "workload.retry", workload, detail={"failure": failure}, **scope_of(workload))
    wake_apply(workload.project.cluster_id)


def _retried(workload: Workload) -> bool:
    """Was it retried before, and has not ended since?"""
    alive = workload.desired_phase == DesiredPhase.RUNNING and workload.phase not in ENDED
    return alive and workload.timeline.filter(reason=RETRIED).exists()


def _not_resumable(workload: Workload) -> str:
    what = "Retry it instead." if failed_to_apply(workload) else "Submit a clone of it instead."
    return f"{workload.name} is {workload.phase} and cannot be resumed. {what}"


def _has_priority(workload: Workload, level: Level) -> bool:
    """Has it this very priority already, by choice and with the value of now?"""
    now = (workload.priority.name, workload.priority_value, workload.priority_source)
    return now == (level.name, level.value, Source.EXPLICIT)


def _next_generation(workload: Workload, now: datetime) -> dict[str, Any]:
    """Due at once for a worker that has tried nothing of it yet."""
    return {"generation": workload.generation + 1, "due_at": now, "attempts": 0, "refusals": 0}


def _move_locked(workload: Workload, to: str, at: datetime, actor: Actor, **how: Any) -> None:
    """Move a locked row, which no other move can overtake: False would be a hole in the table."""
    if not move(workload=workload, to=to, at=at, actor=actor, **how):
        raise RuntimeError(f"A locked workload cannot move from {workload.phase} to {to}.")


def rewrite(workload: Workload, now: datetime, **values: Any) -> None:
    """Change fields of a locked row, raise its generation and make it due."""
    values = {**values, **_next_generation(workload, now), "updated_at": now}
    Workload.objects.filter(pk=workload.pk).update(**values)
    for name, value in values.items():
        setattr(workload, name, value)


def scope_of(workload: Workload) -> dict[str, str]:
    return {"project_id": str(workload.project_id)}


def entity_of(workload: Workload) -> dict[str, str]:
    return {"entity_type": "workload", "entity_name": workload.name, **scope_of(workload)}
