"""A workload type: its defaults, and whether it is offered. The API acts at once and keeps the plan of it."""

from collections.abc import Mapping
from typing import Any

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import BadRequest
from workloads.dictionary_rows import current_draft
from workloads.models import WorkloadType
from workloads.permissions import require_dictionary
from workloads.services.denials import verb
from workloads.services.plans import after_of, carry_out, draw


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
    given = _said(priority=priority, preemptibility=preemptibility, category=category)
    with verb(actor=actor, action="workload_type.update", entity_type="workloadtype", entity_name=workload_type.name):
        return _act(workload_type, "workload_type.update", {"op": "type", **given}, actor)


def withdraw_type(*, workload_type: WorkloadType, actor: Actor) -> WorkloadType:
    """Take no more submissions of a type. What runs goes on, and everything stays readable."""
    with verb(actor=actor, action="workload_type.withdraw", entity_type="workloadtype", entity_name=workload_type.name):
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
    given = _said(priority=priority, preemptibility=preemptibility, category=category)
    with verb(actor=actor, action="workload_type.offer", entity_type="workloadtype", entity_name=name):
        require_dictionary(actor)
        return _act(_readable(name, group), "workload_type.offer", {"op": "offer", **given}, actor)


def _said(**given: str | None) -> dict[str, str]:
    return {name: value for name, value in given.items() if value is not None}


def _act(row: WorkloadType, action: str, change: Mapping[str, Any], actor: Actor) -> WorkloadType:
    """Draw the plan and carry it out, within the caller's verb."""
    require_dictionary(actor)
    before = current_draft()
    named = {"name": row.name, **change}
    after = after_of(before, named)
    plan = draw("type", named, actor, before, after)
    carry_out(plan, before, after, actor)
    shown = {"plan": str(plan.pk), "sentence": plan.effect["sentence"], "types": plan.effect["types"]}
    record(actor, action, row, detail=shown)
    return WorkloadType.objects.select_related("category", "priority").get(pk=row.pk)


def _readable(name: str, group: str) -> WorkloadType:
    """The type whose kind the intake reads: there is a row for each, made with Rung itself."""
    row = WorkloadType.objects.filter(name=name).first()
    if row is None:
        kinds = list(WorkloadType.objects.order_by("name").values_list("name", flat=True))
        text = f"Rung cannot read the kind {name[:63]!r}. It reads {', '.join(kinds)}."
        raise BadRequest.at("/name", "kind_unreadable", text, allowed=kinds)
    if row.group != group:
        raise BadRequest.at("/group", "group_differs", f"{row.name} is of the group {row.group}.", allowed=[row.group])
    return row
