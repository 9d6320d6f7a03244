"""Change entries and types in one step: each service creates a plan and applies it at once."""

from collections.abc import Mapping
from typing import Any

from portal.audit.services import audited_transaction, record
from portal.kit.errors import BadRequest
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import check_direct_change
from workloads.dictionary.models import PreemptionPolicy, WorkloadType
from workloads.dictionary.selectors import require_dictionary
from workloads.dictionary.services.plans import plan_priority_change
from workloads.plans.models import Plan
from workloads.plans.services.plans import apply_plan, draft_plan, execute_plan


def add_priority(
    *,
    name: str,
    value: int,
    actor: Actor,
    preemption_policy: str = PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
    description: str = "",
    alias_of: str = "",
) -> Plan:
    """Add an entry. Refused: a name or value that is taken or out of range, `system-`, an unknown policy."""
    change = {
        "op": "add",
        "name": name,
        "value": value,
        "preemption_policy": str(preemption_policy),
        "description": description,
        "alias_of": alias_of,
    }
    return _at_once(change, actor)


def change_priority_entry(
    *,
    name: str,
    actor: Actor,
    value: int | None = None,
    preemption_policy: str | None = None,
    description: str | None = None,
) -> Plan:
    """Change an entry; None leaves a field. Pods keep the old number, which KAI does not go by."""
    change = {
        "op": "change",
        "name": name,
        "value": value,
        "preemption_policy": preemption_policy,
        "description": description,
    }
    return _at_once(change, actor)


def rename_priority(*, name: str, new_name: str, actor: Actor) -> Plan:
    """A PriorityClass keeps its name for good: a new entry takes over, the old name stays behind as its alias."""
    return _at_once({"op": "rename", "name": name, "new_name": new_name}, actor)


def retire_priority(*, name: str, actor: Actor) -> Plan:
    """Take an entry out of use. Conflict with the list while anything uses it."""
    return _at_once({"op": "retire", "name": name}, actor)


def _at_once(change: Mapping[str, object], actor: Actor) -> Plan:
    require_dictionary(actor)
    check_direct_change()
    return apply_plan(plan=plan_priority_change(change=change, actor=actor), actor=actor)


def update_type(
    *,
    workload_type: WorkloadType,
    actor: Actor,
    priority: str | None = None,
    preemptibility: str | None = None,
    category: str | None = None,
) -> WorkloadType:
    """Set other defaults by name; None leaves a field. Existing workloads are never touched.

    Refused with a pointer for unknown names and for types whose pair is fixed.
    """
    given = _given(priority=priority, preemptibility=preemptibility, category=category)
    with audited_transaction(
        actor=actor, action="workload_type.update", entity_type="workloadtype", entity_name=workload_type.name
    ):
        return _act(workload_type, "workload_type.update", {"op": "type", **given}, actor)


def withdraw_type(*, workload_type: WorkloadType, actor: Actor) -> WorkloadType:
    """Take no more submissions of a type. What runs goes on, and everything stays readable."""
    with audited_transaction(
        actor=actor, action="workload_type.withdraw", entity_type="workloadtype", entity_name=workload_type.name
    ):
        return _act(workload_type, "workload_type.withdraw", {"op": "withdraw"}, actor)


def offer_type(
    *,
    name: str,
    group: str,
    actor: Actor,
    priority: str | None = None,
    preemptibility: str | None = None,
    category: str | None = None,
) -> WorkloadType:
    """Offer a withdrawn type again with these defaults; None leaves what it had.

    BadRequest for kinds that Rung cannot read, Conflict for a type that is offered.
    """
    given = _given(priority=priority, preemptibility=preemptibility, category=category)
    with audited_transaction(actor=actor, action="workload_type.offer", entity_type="workloadtype", entity_name=name):
        require_dictionary(actor)
        return _act(_readable(name, group), "workload_type.offer", {"op": "offer", **given}, actor)


def _given(**given: str | None) -> dict[str, str]:
    return {name: value for name, value in given.items() if value is not None}


def _act(row: WorkloadType, action: str, change: Mapping[str, Any], actor: Actor) -> WorkloadType:
    """Draw the plan and carry it out, within the caller's verb."""
    plan = draft_plan(kind="type", change={"name": row.name, **change}, actor=actor)
    execute_plan(plan=plan, actor=actor)
    shown = {"plan": str(plan.pk), "sentence": plan.effect["sentence"], "types": plan.effect["types"]}
    record(actor, action, row, detail=shown)
    return WorkloadType.objects.select_related("category", "priority").get(pk=row.pk)


def _readable(name: str, group: str) -> WorkloadType:
    """The type whose kind the intake reads: there is a row for each, made with Rung itself."""
    row = WorkloadType.objects.filter(name=name).first()
    if row is None:
        kinds = list(WorkloadType.objects.order_by("name").values_list("name", flat=True))
        text = f"Rung does not support the kind {name[:63]!r}. Supported: {', '.join(kinds)}."
        raise BadRequest.at("/name", "kind_unreadable", text, allowed=kinds)
    if row.group != group:
        raise BadRequest.at(
            "/group", "group_differs", f"{row.name} belongs to the API group {row.group}.", allowed=[row.group]
        )
    return row
