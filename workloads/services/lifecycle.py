"""Stop, resume, delete, clone, re-prioritise: each claims the row by compare-and-set; a worker does the rest."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import F
from django.utils import timezone

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from scheduling.priority import Level, Source
from tenants.permissions import Verb, require
from workloads.compliance import refuse_new_priority
from workloads.enqueue import wake_apply
from workloads.intake import WorkloadSpec
from workloads.lifecycle import ENDED, HOLDING, RESUMABLE, STOPPABLE
from workloads.models import DesiredPhase, EventType, Phase, Priority, Workload
from workloads.permissions import require_manage
from workloads.reprioritising import consequence
from workloads.resolution import current_dictionary
from workloads.services.denials import verb
from workloads.services.moves import move, note


def stop(*, workload: Workload, actor: Actor) -> Workload:
    """Ask for the end of its pods; the row and its history stay. Conflict when it has ended or is stopped already."""
    with verb(actor=actor, action="workload.stop", **entity_of(workload)):
        ready(workload, actor)
        refuse_fixed(workload, "stopped or resumed")
        if workload.phase not in STOPPABLE or workload.desired_phase != DesiredPhase.RUNNING:
            raise Conflict(f"{workload.name} is {workload.phase} and cannot be stopped.", code="not_stoppable")
        _turn(workload, DesiredPhase.STOPPED, Phase.STOPPING, actor)
    return workload


def resume(*, workload: Workload, actor: Actor) -> Workload:
    """Ask for its pods again. Conflict unless it is stopped or stopping."""
    with verb(actor=actor, action="workload.resume", **entity_of(workload)):
        ready(workload, actor)
        refuse_fixed(workload, "stopped or resumed")
        if workload.phase not in RESUMABLE or workload.desired_phase != DesiredPhase.STOPPED:
            raise Conflict(f"{workload.name} is {workload.phase} and cannot be resumed.", code="not_resumable")
        _turn(workload, DesiredPhase.RUNNING, Phase.RESUMING, actor, started_at=None)
    return workload


def delete(*, workload: Workload, actor: Actor) -> Workload:
    """Leave a tombstone: a worker removes the objects, and no late create brings them back. Twice is once."""
    with verb(actor=actor, action="workload.delete", **entity_of(workload)):
        require_manage(actor, workload)
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
        apply_priority(workload, known_level(priority), actor)
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
        "priority_source": "explicit",
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
    require_manage(actor, workload)
    if workload.desired_phase == DesiredPhase.DELETED:
        raise Conflict(f"{workload.name} is being deleted.", code="deleting")


def refuse_fixed(workload: Workload, what: str, *, code: str = "type_fixed", pointer: str = "") -> None:
    if workload.type.fixed:
        raise Refused.at(pointer, code, f"{workload.type.title} workloads cannot be {what}.")


def _turn(workload: Workload, desired: str, phase: str, actor: Actor, **changes: Any) -> None:
    """One compare-and-set for desire and phase, then audit and wake-up."""
    now = timezone.now()
    before = {"desired": workload.desired_phase, "phase": workload.phase}
    fence: dict[str, Any] = {
        "desired_phase": desired,
        "generation": workload.generation + 1,
        "due_at": now,
        "attempts": 0,
    }
    if not move(workload=workload, to=phase, at=now, actor=actor, apply_error="", **fence, **changes):
        raise Conflict(f"{workload.name} has just changed; look again.", code="moved_on")
    after = {"desired": desired, "phase": phase}
    action = {"Stopped": "workload.stop", "Running": "workload.resume", "Deleted": "workload.delete"}[desired]
    record(actor, action, workload, detail={"before": before, "after": after}, **scope_of(workload))
    wake_apply(workload.project.cluster_id)


def rewrite(workload: Workload, now: datetime, **values: Any) -> None:
    """Change fields of the row as it was read, raise its generation and make it due."""
    standing = Workload.objects.filter(pk=workload.pk, generation=workload.generation, deleted_at__isnull=True)
    fence = {"due_at": now, "updated_at": now, "attempts": 0}
    if standing.update(generation=F("generation") + 1, **values, **fence) != 1:
        raise Conflict(f"{workload.name} has just changed; look again.", code="moved_on")
    workload.generation += 1
    for name, value in {**values, **fence}.items():
        setattr(workload, name, value)


def scope_of(workload: Workload) -> dict[str, str]:
    return {"project_id": str(workload.project_id)}


def entity_of(workload: Workload) -> dict[str, str]:
    return {"entity_type": "workload", "entity_name": workload.name, **scope_of(workload)}
