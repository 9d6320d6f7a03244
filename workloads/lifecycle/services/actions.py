"""Stop, resume, retry, delete, clone, change the priority: lock, decide, write; a worker does the rest.

What is met already succeeds and writes nothing: no second audit record, no second timeline entry.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from portal.audit.services import audited_transaction, record
from portal.kit.errors import BadRequest, Conflict, RungError, ValidationFailed
from portal.kit.pages.formatting import duration_text, gpus_text
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import require
from workloads.dictionary.models import Priority
from workloads.dictionary.rules.resolution import NVCF_NAMESPACE, PriorityEntry, Source
from workloads.dictionary.selectors import current_dictionary
from workloads.forecast.rules.messages import gpu_time_text
from workloads.forecast.selectors.alternatives import PriorityForecast, priority_forecast
from workloads.forecast.selectors.placement_validation import check_resumable
from workloads.intake import WorkloadSpec
from workloads.lifecycle.selectors.workloads import priority_change_effect, priority_takes_effect_now
from workloads.policies.services import check_new_priority
from workloads.state.models import DesiredPhase, EventType, Phase, Workload
from workloads.state.rules import ENDED, HOLDING, STOPPABLE
from workloads.state.selectors.usage import last_checkpoint_at, unsaved_gpu_seconds
from workloads.state.selectors.workloads import failed_to_apply, may_manage, require_manage
from workloads.state.services import audit_entity, audit_scope, lock, move, note, notify_apply

RETRIED: Final = "Retried"
"""The reason of the timeline entry of a retry."""


def stop(*, workload: Workload, actor: Actor) -> Workload:
    """Ask for the end of its pods; the row and its history stay. Met already when it is stopped or has ended."""
    with audited_transaction(actor=actor, action="workload.stop", **audit_entity(workload)):
        ready(workload, actor)
        check_not_fixed(workload, "stopped or resumed")
        if workload.phase in STOPPABLE and workload.desired_phase == DesiredPhase.RUNNING:
            _turn(workload, DesiredPhase.STOPPED, Phase.STOPPING, actor)
    return workload


def resume(*, workload: Workload, actor: Actor) -> Workload:
    """Ask for its pods again. Met already when they are wanted; Conflict when it has ended.

    Refused where the cluster's scheduler would not hold it to its quotas, or not give it its part of a GPU.
    """
    with audited_transaction(actor=actor, action="workload.resume", **audit_entity(workload)):
        ready(workload, actor)
        check_not_fixed(workload, "stopped or resumed")
        if workload.phase in ENDED:
            raise Conflict(_not_resumable(workload), code="not_resumable")
        if workload.desired_phase == DesiredPhase.STOPPED:
            check_resumable(WorkloadSpec.from_json(workload.spec), workload.project)
            value = workload.priority.value  # its class may have got another one since its last pods were created
            _turn(workload, DesiredPhase.RUNNING, Phase.RESUMING, actor, started_at=None, priority_value=value)
    return workload


def retry(*, workload: Workload, actor: Actor) -> Workload:
    """Hand it to its cluster again after that failed. Met already when it was retried; Conflict for all others."""
    with audited_transaction(actor=actor, action="workload.retry", **audit_entity(workload)):
        ready(workload, actor)
        if failed_to_apply(workload):
            _retry(workload, actor)
        elif not _retried(workload):
            message = f"{workload.name} is {workload.phase}: only a workload that failed to apply can be retried."
            raise Conflict(message, code="not_retryable")
    return workload


def delete(*, workload: Workload, actor: Actor) -> Workload:
    """Leave a tombstone: a worker removes the objects, and no late create brings them back. Twice is once."""
    with audited_transaction(actor=actor, action="workload.delete", **audit_entity(workload)):
        require_manage(actor, workload)
        lock(workload)
        if workload.desired_phase != DesiredPhase.DELETED:
            _turn(workload, DesiredPhase.DELETED, Phase.DELETING, actor)
    return workload


def change_priority(*, workload: Workload, priority: str, actor: Actor) -> Workload:
    """Give it another priority. Its stored preemptibility stays, also where the threshold now disagrees.

    Pods copy the integer when they are created, so running pods keep the old one: the new value is stored, and its kind
    says when it reaches pods (`workloads.lifecycle.selectors.workloads`). Waiting pods are recreated with it.
    """
    with audited_transaction(actor=actor, action="workload.change_priority", **audit_entity(workload)):
        ready(workload, actor)
        check_not_fixed(workload, "given another priority", code="priority_fixed", pointer="/priority")
        if workload.phase in ENDED:
            raise Conflict(f"{workload.name} is {workload.phase}; its priority no longer matters.", code="ended")
        entry = known_entry(priority)
        if not _has_priority(workload, entry):
            apply_priority(workload, entry, actor)
    return workload


def forecast_of_priority(*, workload: Workload, priority: str, actor: Actor) -> PriorityForecast | None:
    """What a waiting workload would do with it. None: it has it, the change does not reach its cluster now, or the
    actor may not make it. Raises ValidationFailed where policy, cap or dictionary forbid it.
    """
    if not may_manage(actor, workload) or workload.type.fixed or not priority_takes_effect_now(workload):
        return None
    entry = known_entry(priority)
    if entry.name == workload.priority.name:
        return None
    check_new_priority(workload, entry)
    return priority_forecast(workload=workload, entry=entry, actor=actor)


def clone_spec(*, workload: Workload, actor: Actor) -> WorkloadSpec:
    """What to submit for another one like it: the same body and wishes, with what was chosen for it since.

    Defaults are resolved again; the name is a prefix that submission completes. Absent where the actor may not see it.
    """
    require(actor, Permission.VIEW_PROJECT, project=workload.project)
    spec = WorkloadSpec.from_json(workload.spec)
    request = spec.request
    if workload.priority_source == Source.EXPLICIT:
        request = replace(request, explicit_priority=workload.priority.name)
    name = f"{spec.name[:50].rstrip('-.')}-copy"
    return replace(spec.named(name), generate_name=True, request=request, node_pools=tuple(workload.node_pools))


def apply_priority(workload: Workload, entry: PriorityEntry, actor: Actor) -> None:
    check_new_priority(workload, entry)
    now = timezone.now()
    before = {"priority": workload.priority.name, "value": workload.priority_value}
    values: dict[str, Any] = {
        "priority": Priority.objects.get(name=entry.name),
        "priority_value": entry.value,
        "priority_source": Source.EXPLICIT,
        "warnings": _priority_warnings(workload, entry),
    }
    rewrite(workload, now, **values)
    after = {"priority": entry.name, "value": entry.value, "preemptibility": workload.preemptibility}
    note(
        workload=workload,
        at=now,
        type_=EventType.ACTION,
        reason="PriorityChanged",
        message=f"Priority changed from {before['priority']} {before['value']} to {entry.name} {entry.value}.",
        actor=actor,
        detail={"before": before, "after": after},
    )
    record(
        actor, "workload.change_priority", workload, detail={"before": before, "after": after}, **audit_scope(workload)
    )
    notify_apply(workload.project.cluster_id)


def _priority_warnings(workload: Workload, entry: PriorityEntry) -> list[dict[str, str]]:
    warnings = []
    if entry.by_threshold != workload.preemptibility:
        message = (
            f"Preemptibility stays {workload.preemptibility}, although {entry.name} ({entry.value}) alone means "
            f"{entry.by_threshold}."
        )
        warnings.append({"code": "threshold_disagrees", "message": message})
    if workload.phase in HOLDING and entry.value != workload.priority_value:
        message = f"From {workload.priority_value} to {entry.value}: {priority_change_effect(workload)}"
        warnings.append({"code": "new_pods_only", "message": message})
    return warnings


def known_entry(priority: str) -> PriorityEntry:
    dictionary = current_dictionary()
    entry = dictionary.lookup(priority)
    if entry is None:
        raise ValidationFailed.at(
            "/priority",
            "priority_unknown",
            f"Priority {priority[:80]!r} is not known. Allowed: {', '.join(dictionary.names)}.",
            allowed=dictionary.names,
        )
    return entry


def ready(workload: Workload, actor: Actor) -> None:
    """Lock the row for an actor who may change it. Conflict when it is deleted."""
    require_manage(actor, workload)
    lock(workload)
    if workload.desired_phase == DesiredPhase.DELETED:
        raise Conflict(f"{workload.name} is being deleted.", code="deleting")


def check_not_fixed(workload: Workload, what: str, *, code: str = "type_fixed", pointer: str = "") -> None:
    if workload.type.fixed or workload.project.namespace == NVCF_NAMESPACE:
        raise ValidationFailed.at(pointer, code, f"{workload.type.title} workloads cannot be {what}.")


def _turn(workload: Workload, desired: str, phase: str, actor: Actor, **changes: Any) -> None:
    """Desire and phase of a locked row, then audit and wake-up."""
    now = timezone.now()
    before = {"desired": workload.desired_phase, "phase": workload.phase}
    values = {"desired_phase": desired, "apply_error": "", **_next_generation(workload, now), **changes}
    _move_locked(workload, phase, now, actor, **values)
    after = {"desired": desired, "phase": phase}
    action = {"Stopped": "workload.stop", "Running": "workload.resume", "Deleted": "workload.delete"}[desired]
    record(actor, action, workload, detail={"before": before, "after": after}, **audit_scope(workload))
    notify_apply(workload.project.cluster_id)


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
    record(actor, "workload.retry", workload, detail={"failure": failure}, **audit_scope(workload))
    notify_apply(workload.project.cluster_id)


def _retried(workload: Workload) -> bool:
    """Was it retried before, and has not ended since?"""
    alive = workload.desired_phase == DesiredPhase.RUNNING and workload.phase not in ENDED
    return alive and workload.timeline.filter(reason=RETRIED).exists()


def _not_resumable(workload: Workload) -> str:
    what = "Retry it instead." if failed_to_apply(workload) else "Submit a clone instead."
    return f"{workload.name} is {workload.phase} and cannot be resumed. {what}"


def _has_priority(workload: Workload, entry: PriorityEntry) -> bool:
    """Has it this very priority already, by choice and with the value of now?"""
    now = (workload.priority.name, workload.priority_value, workload.priority_source)
    return now == (entry.name, entry.value, Source.EXPLICIT)


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


MOST: Final = 100
VERBS: Final[Mapping[str, Callable[..., Workload]]] = MappingProxyType(
    {"stop": stop, "resume": resume, "retry": retry, "delete": delete}
)


@dataclass(frozen=True, slots=True)
class RowResult:
    """What happened to one row; an empty refusal means that it is so. changed: it was not so before."""

    name: str
    refusal: str = ""
    workload: Workload | None = None
    changed: bool = False


def act_on_all(*, rows: QuerySet[Workload], ids: Sequence[str], verb: str, actor: Actor) -> list[RowResult]:
    """Stop, resume, retry or delete the visible rows among at most 100 ids; the others are named as not found."""
    found = {str(row.pk): row for row in chosen(rows=rows, ids=ids, verb=verb)}
    return [_act(found.get(each), verb, actor) for each in dict.fromkeys(ids)]


def chosen(*, rows: QuerySet[Workload], ids: Sequence[str], verb: str) -> list[Workload]:
    """The visible rows among them, by name. BadRequest for no verb, no id or more than 100."""
    if verb not in VERBS or not 0 < len(ids) <= MOST:
        raise BadRequest(f"Choose stop, resume, retry or delete, and 1 to {MOST} workloads.", code="bad_bulk")
    return list(rows.filter(pk__in=ids).select_related("project__cluster", "type", "priority").order_by("name", "pk"))


def _act(workload: Workload | None, verb: str, actor: Actor) -> RowResult:
    if workload is None:
        return RowResult("–", "Not found.")
    before = workload.generation
    try:
        VERBS[verb](workload=workload, actor=actor)
    except RungError as refusal:
        return RowResult(workload.name, refusal.message, workload)
    return RowResult(workload.name, workload=workload, changed=workload.generation != before)


@dataclass(frozen=True, slots=True)
class EndingWorkload:
    """One of several workloads that are to end. lost_seconds: GPU-seconds that it has not saved; ends: something of it
    will.
    """

    workload: Workload
    said: str
    lost_seconds: float = 0
    ends: bool = False

    @property
    def lost(self) -> str:
        """The GPU time in words; empty where nothing is lost."""
        return gpu_time_text(self.lost_seconds) if self.lost_seconds else ""


def cost_of(workload: Workload) -> str:
    """What it holds, for how long it has run, and when it saved last by what it declares."""
    if not workload.allocated_gpu_milli or workload.started_at is None:
        return _("No GPUs are allocated.")
    saved = last_checkpoint_at(workload)
    passed = duration_text(timezone.now() - (saved or workload.started_at))
    held = {"gpus": gpus_text(workload.allocated_gpu_milli), "passed": passed}
    if saved:
        return _("It is running on %(gpus)s. Last reported checkpoint: %(passed)s ago.") % held
    return _("It has run on %(gpus)s for %(passed)s without a reported checkpoint.") % held


def before_many(verb: str, rows: Iterable[Workload], actor: Actor) -> list[EndingWorkload]:
    """What a stop or a delete of each would do, what it would lose, and which will be refused or change nothing."""
    return [_ending(verb, each, actor) for each in rows]


def _ending(verb: str, workload: Workload, actor: Actor) -> EndingWorkload:
    if why := _stays(verb, workload, actor):
        return EndingWorkload(workload, why)
    return EndingWorkload(workload, cost_of(workload), unsaved_gpu_seconds(workload), ends=True)


def _stays(verb: str, workload: Workload, actor: Actor) -> str:
    """Why nothing becomes of it; empty where it ends."""
    if not may_manage(actor, workload):
        return _("No permission to change it.")
    if workload.desired_phase == DesiredPhase.DELETED:
        return _("Already being deleted.")
    if verb != "stop":
        return ""
    if workload.type.fixed:
        return _("%(type)s workloads cannot be stopped.") % {"type": workload.type.title}
    if workload.phase in ENDED:
        return _("Already ended.")
    running = workload.desired_phase == DesiredPhase.RUNNING and workload.phase in STOPPABLE
    return "" if running else _("Already stopped.")
