"""Plans of changes: created with their effect, then applied once or discarded. A rollback is a plan of the inverse.

Where an admin requires it, a second admin with the same permissions approves a plan before it can be applied.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Protocol

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from clusters.inventory.models import Cluster, NodePool
from portal.audit.services import audited_transaction, record
from portal.kit.db.transactions import rollback_scope, with_external_calls
from portal.kit.errors import Conflict, Forbidden, NotFound, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from portal.kit.security.planned_changes import check_direct_change, planned_change
from tenants.organisation.models import Department
from workloads.plans.models import Plan, PlanApproval, PlanScope, PlanState
from workloads.plans.selectors import (
    Change,
    Facts,
    approval_of,
    kind_named,
    needs_approval,
    require_scopes,
    subject_of,
)

LIFETIME: Final = timedelta(hours=1)
SHOWN: Final = 5
NEEDS_APPROVAL: Final = (
    "A second admin has to approve this change. Create a plan of it on its page or with POST /api/v1/plans, and have "
    "the plan approved. Create new projects and departments without quotas and limits, then plan these."
)
_announcers: Final[list[Callable[[Plan], None]]] = []


def register_announcer(announcer: Callable[[Plan], None]) -> None:
    """The feature that notifies those who may approve a plan; called in the transaction that stores it."""
    _announcers[:] = [announcer]


def plan_change(*, kind: str, change: Change, actor: Actor) -> Plan:
    """Store what a change would do, without making it. It can be applied for an hour, unless its basis moves.

    Raises what the change itself would raise: NotFound or Forbidden without its permissions, ValidationFailed and
    Conflict with pointers into the change.
    """
    named = {"action": "plan.create", "entity_type": "plan", "entity_name": title_of(kind, change)}

    def attempt() -> Plan:
        with audited_transaction(actor=actor, **named):
            plan = draft_plan(kind=kind, change=change, actor=actor)
            _store(plan, actor)
        return plan

    return with_external_calls(attempt)


def plan_page(kind: str, change: Change, actor: Actor) -> str:
    """Plan a change; answers the address of the plan's page."""
    return reverse("workloads:plan", args=[plan_change(kind=kind, change=change, actor=actor).pk])


def apply_plan(*, plan: Plan, actor: Actor) -> Plan:
    """Make the change that the plan shows.

    Conflict when it is old, done or discarded, when its basis moved, or when it lacks an approval that it needs.
    """
    return with_external_calls(lambda: _apply(plan, actor))


def _apply(plan: Plan, actor: Actor) -> Plan:
    with audited_transaction(actor=actor, action="plan.apply", entity_type="plan", entity_name=plan.title):
        row = Plan.objects.select_for_update().get(pk=plan.pk)
        require_scopes(_scopes(row), actor)
        _check_open(row)
        _check_basis(row)
        execute_plan(plan=row, actor=actor)
        record(actor, "plan.apply", row, detail=_detail(row), project_id=_project_id(row))
    return row


def approve_plan(*, plan: Plan, actor: Actor) -> Plan:
    """Approve a plan as a second admin who holds its permissions, so that it can be applied while its basis stays.

    Forbidden for its author. Conflict when it needs no approval, has one, is not open, or when its basis moved.
    """
    with audited_transaction(actor=actor, action="plan.approve", entity_type="plan", entity_name=plan.title):
        row = Plan.objects.select_for_update().get(pk=plan.pk)
        require_scopes(_scopes(row), actor)
        _check_open(row)
        if not needs_approval(_scopes(row)):
            raise Conflict("This plan needs no approval.", code="approval_not_needed")
        if row.approved_at:
            raise Conflict(f"{row.approved_by} has approved this plan already.", code="plan_approved")
        if row.author == subject_of(actor):
            raise Forbidden("The author of a plan cannot approve it. Another admin has to.", code="own_plan")
        _check_basis(row)
        row.approved_by, row.approved_at = actor.name, timezone.now()
        row.save(update_fields=["approved_by", "approved_at"])
        record(actor, "plan.approve", row, detail=_detail(row), project_id=_project_id(row))
    return row


def set_approval(*, department: Department | None, required: bool, actor: Actor) -> None:
    """Require that a second admin approves plans for a department, or all plans; or stop it. By an `ApprovalPlan`."""
    check_direct_change(department.pk if department else None)
    row = approval_of(department)
    if required and row is None:
        row = PlanApproval.objects.create(department=department, created_by=actor.name, created_at=timezone.now())
        record(actor, "plan_approval.set", row, detail={"before": False, "after": True})
    elif row and not required:
        record(actor, "plan_approval.set", row, detail={"before": True, "after": False})
        row.delete()


def check_unplanned(department_id: int | None) -> None:
    """Conflict where plans for this department need an approval; None: those for no department."""
    check_approved([PlanScope(department_id=department_id)])


def check_approved(scopes: Iterable[PlanScope]) -> None:
    """Conflict where plans with these permissions need an approval."""
    if needs_approval(scopes):
        raise Conflict(NEEDS_APPROVAL, code="approval_required")


def discard_plan(*, plan: Plan, actor: Actor) -> Plan:
    """Close the plan without a change. Conflict unless it is open."""
    with audited_transaction(actor=actor, action="plan.discard", entity_type="plan", entity_name=plan.title):
        require_scopes(_scopes(plan), actor)
        if Plan.objects.filter(pk=plan.pk, state=PlanState.OPEN).update(state=PlanState.DISCARDED) != 1:
            raise Conflict("This plan is already applied or discarded.", code="plan_closed")
        plan.state = PlanState.DISCARDED
        record(actor, "plan.discard", plan, project_id=_project_id(plan))
    return plan


def plan_inverse(*, plan: Plan, actor: Actor) -> Plan:
    """Plan the inverse of an applied plan. It warns of what changed since then.

    Conflict where the plan is not applied or has no inverse.
    """
    return with_external_calls(lambda: _plan_inverse(plan, actor))


def _plan_inverse(plan: Plan, actor: Actor) -> Plan:
    with audited_transaction(actor=actor, action="plan.create", entity_type="plan", entity_name=plan.title):
        require_scopes(_scopes(plan), actor)
        if plan.state != PlanState.APPLIED:
            raise Conflict("Only an applied plan can be rolled back.", code="plan_not_applied")
        if plan.undo is None:
            raise Conflict("This plan has no inverse change.", code="plan_not_reversible")
        back = draft_plan(kind=plan.kind, change=plan.undo, actor=actor)
        back.title, back.rolls_back = f"Roll back: {plan.title}"[:254], plan
        if moved := what_moved(plan.outcome or {}, kind_named(plan.kind).facts(plan.change)):
            text = f"Changed since this plan was applied: {'; '.join(moved[:SHOWN])}."
            back.effect["warnings"] = [text, *back.effect["warnings"]]
        _store(back, actor)
    return back


def plan_again(*, plan: Plan, actor: Actor) -> Plan:
    """Plan the same change on the rows of now. Raises what planning it would raise."""
    if plan.rolls_back:
        return plan_inverse(plan=plan.rolls_back, actor=actor)
    return plan_change(kind=plan.kind, change=plan.change, actor=actor)


def title_of(kind: str, change: Change) -> str:
    return kind_named(kind).title(change)[:254]


def draft_plan(*, kind: str, change: Change, actor: Actor) -> Plan:
    """An unsaved plan with its effect, in the caller's transaction."""
    known, now = kind_named(kind), timezone.now()
    require_scopes(known.scopes(change), actor)
    facts = known.facts(change)
    with rollback_scope(), planned_change():  # services that record their refusals have a transaction around them
        effect = known.effect(change, actor)
    return Plan(
        kind=kind,
        title=title_of(kind, change),
        change=dict(change),
        effect={**effect, "basis": facts},
        based_on=fingerprint_of(facts),
        created_by=actor.name,
        author=subject_of(actor),
        created_at=now,
        expires_at=now + LIFETIME,
    )


def execute_plan(*, plan: Plan, actor: Actor) -> None:
    """Make the change and store the plan as applied, with its inverse; in the caller's transaction."""
    kind = kind_named(plan.kind)
    if plan.approved_at is None:
        check_approved(_scopes(plan))
    plan.undo = kind.undo(plan.change)
    with rollback_scope(), planned_change():
        kind.apply(plan.change, actor)
    plan.outcome = kind.facts(plan.change)
    touched = Cluster.objects.filter(name__in=[each["cluster"] for each in plan.effect["objects"]])
    plan.effect = {**plan.effect, "generations": dict(touched.values_list("name", "generation"))}
    plan.state, plan.applied_by, plan.applied_at = PlanState.APPLIED, actor.name, timezone.now()
    _save(plan)


class StartComparison(Protocol):
    """Which waiting workloads start only under planned quotas; the feature of forecasts implements it.

    under_planned: read the quotas, in the savepoint where they are set. compared: as `PlanStartsSchema`, afterwards.
    """

    def under_planned(self) -> None: ...

    def compared(self) -> dict[str, Any]: ...


TrialOfStarts = Callable[[Mapping[NodePool, Collection[int]]], StartComparison]
"""Makes one for the projects of node pools, by their ids."""


@contextmanager
def trial_savepoint() -> Iterator[None]:
    """A savepoint whose writes are taken back at its end, so that a service can be run for its effect alone."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def _store(plan: Plan, actor: Actor) -> None:
    _save(plan)
    record(actor, "plan.create", plan, detail=_detail(plan), project_id=_project_id(plan))
    if needs_approval(_scopes(plan)):
        for announce in _announcers:
            announce(plan)


def _save(plan: Plan) -> None:
    """A new plan is stored with the permissions that it needs."""
    new = plan._state.adding
    plan.save()
    if new:
        scopes = kind_named(plan.kind).scopes(plan.change)
        for scope in scopes:
            scope.plan = plan
        PlanScope.objects.bulk_create(scopes)


def _scopes(plan: Plan) -> list[PlanScope]:
    """Stored ones; those of a plan that is not stored follow from its change."""
    if plan._state.adding:
        return list(kind_named(plan.kind).scopes(plan.change))
    return list(plan.scopes.select_related("project", "department", "cluster"))


def _detail(plan: Plan) -> dict[str, object]:
    return {"kind": plan.kind, "change": plan.change, "sentence": plan.effect["sentence"]}


def _project_id(plan: Plan) -> str:
    """Of a plan for one project, so that its admins read the record."""
    projects = {scope.project_id for scope in plan.scopes.all()}
    return str(projects.pop() or "") if len(projects) == 1 else ""


def _check_open(plan: Plan) -> None:
    if plan.state != PlanState.OPEN:
        raise Conflict("This plan is already applied or discarded.", code="plan_closed")
    if plan.expires_at <= timezone.now():
        raise Conflict("This plan has expired. Create a new one.", code="plan_expired")


def _check_basis(plan: Plan) -> None:
    if found := basis_conflict(plan):
        raise found


def basis_conflict(plan: Plan) -> Conflict | None:
    """Why the plan is out of date: the rows that it was computed on have changed. None: they have not."""
    try:
        facts = kind_named(plan.kind).facts(plan.change)
    except (NotFound, ValidationFailed) as error:
        return Conflict(f"Part of this plan no longer exists: {error.message}", code="plan_moved")
    if fingerprint_of(facts) == plan.based_on:
        return None
    moved = what_moved(plan.effect["basis"], facts)
    message = f"The configuration changed after this plan was created: {'; '.join(moved[:SHOWN])}."
    numbers = {str(number): text for number, text in enumerate(moved[:20])}
    return Conflict(message, code="plan_moved", problems=[Problem("", "plan_moved", message, numbers=numbers)])


def fingerprint_of(facts: Facts) -> str:
    """SHA-256 of the facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def what_moved(before: Facts, now: Facts) -> list[str]:
    """The facts that differ, in words."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name}: {before.get(name, 'absent')} → {now.get(name, 'absent')}"
        for name in names
        if before.get(name) != now.get(name)
    ]
