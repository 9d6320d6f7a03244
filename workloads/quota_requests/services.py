"""Ask for quota, decide, withdraw, and take back what was granted until a date.

The impact is computed by the service that would write the quota, in a savepoint that is rolled back. It rests on the
quotas of its department and pool: an approval names the base that was shown, and is refused once that has moved.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from functools import partial
from math import isfinite
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from clusters.inventory.models import Cluster, NodePool
from portal.audit.services import audited_transaction, record
from portal.kit.db.validation import MAX_REASON_LENGTH, unique_or_conflict, validate_text
from portal.kit.errors import Conflict, Forbidden, RungError, ValidationFailed
from portal.kit.pages.formatting import gpus_text
from portal.kit.security.actors import SYSTEM, Actor
from portal.kit.security.planned_changes import planned_change
from scheduling.model.resources import LARGEST
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.organisation.models import Department, Project
from tenants.quotas.models import ProjectQuota
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import physical_gpus, set_project_quota
from workloads.forecast.services.start_estimates import StartTrial
from workloads.notifications.models import Notice
from workloads.notifications.services.delivery import send_notice
from workloads.plans.selectors import Change, Effect, PlanKind
from workloads.plans.services import quota_plans
from workloads.plans.services.plans import trial_savepoint
from workloads.plans.services.setting_plans import owner_scope, setting_requests
from workloads.quota_requests.models import QuotaRequest, QuotaRequestState, end_of
from workloads.quota_requests.selectors import (
    DECISION,
    base_of,
    decidable_request,
    ends_grant,
    impact_of,
    lowered,
    plan_facts,
    plan_title,
    planned_grant,
    public_impact,
    raised,
    request_of,
    request_or_404,
    values_of,
)

LONGEST: Final = timedelta(days=5 * 366)
"""Quota can be requested until so far ahead."""


MOST_AT_ONCE: Final = 200
"""Requests that one run of a task looks at."""
EXACT: Final = 1e-6


class BaseMoved(Conflict):
    """The quotas have changed since the impact was shown: 409 with the new one."""

    code = "base_moved"

    def __init__(self, row: QuotaRequest) -> None:
        text = _("The quotas have changed since this impact was computed. Review the new impact, then approve again.")
        super().__init__(text)
        self._row = row

    @property
    def beside(self) -> Mapping[str, Any]:
        return {"base": self._row.base, "impact": public_impact(self._row.impact)}


def create_request(
    *, project: Project, node_pool: NodePool, gpus: float, until: date | None, reason: str, actor: Actor
) -> QuotaRequest:
    """Ask for so many GPUs on top of what the project deserves in the pool. Refused at the field."""
    with audited_transaction(
        actor=actor,
        action="quota_request.create",
        entity_type="quotarequest",
        entity_name=project.name,
        project_id=str(project.pk),
    ):
        require(actor, Permission.SUBMIT, project=project)
        if node_pool.cluster_id != project.cluster_id:
            text = _("This node pool belongs to another cluster.")
            raise ValidationFailed.at("/nodePoolId", "foreign_node_pool", text)
        now = timezone.now()
        why = _reason(reason)
        row = QuotaRequest(project=project, node_pool=node_pool, reason=why, created_at=now, impact_at=now)
        row.gpu_milli, row.until = _amount(gpus, node_pool), _last_day(until, now)
        row.author_kind, row.author_id, row.author_name = str(actor.kind), actor.id, actor.name
        row.base, row.impact = base_of(project, node_pool), impact_of(project, node_pool, row.gpu_milli)
        _check_once(row)
        with unique_or_conflict(""):
            row.save(force_insert=True)
        record(actor, "quota_request.create", row, detail=_requested(row), project_id=str(project.pk))
        title = f"{actor.name} requests {gpus_text(row.gpu_milli)} more for {project.name} in {node_pool.name}."
        _notify(row, "QuotaRequested", title, why, permission=DECISION.value)
    return row


def approve_request(
    *, key: UUID, base: str, actor: Actor, gpus: float | None = None, until: date | None = None, reason: str = ""
) -> QuotaRequest:
    """Grant all or part of it, until its date or an earlier one.

    1. compute the impact again where its base has moved, and store that
    2. BaseMoved unless `base` is the one of the present impact, under the lock of the department
    3. set the quota, which may be refused by its own rules, and wake the cluster's reconcile
    """
    refresh_impact(decidable_request(actor, key))
    with _deciding(key, actor, "approve") as row:
        if base != row.base or base != base_of(row.project, row.node_pool):
            raise BaseMoved(row)
        now = timezone.now()
        granted = row.gpu_milli if gpus is None else _amount(gpus, row.node_pool)
        if granted > row.gpu_milli:
            text = _("At most the %(gpus)s that were requested.") % {"gpus": gpus_text(row.gpu_milli)}
            raise ValidationFailed.at("/gpus", "more_than_requested", text)
        last = _last_day(until or row.until, now)
        if last and row.until and last > row.until:
            text = _("Not later than the requested date, %(day)s.") % {"day": row.until.isoformat()}
            raise ValidationFailed.at("/until", "later_than_requested", text)
        row.impact, row.impact_at = impact_of(row.project, row.node_pool, granted), now
        before = values_of(row.project, row.node_pool)
        row.before, row.granted_milli, row.granted_until = before.as_fields(), granted, last
        row.ends_at = end_of(last)
        _decide(row, QuotaRequestState.APPROVED, actor, _optional(reason), now)
        _set(row, raised(before, granted), actor, f"Quota request of {row.author_name}: {row.reason}")
        row.save()
        record(actor, "quota_request.approve", row, detail=_decided(row), project_id=str(row.project_id))
        title = f"{actor.name} approved {gpus_text(granted)} more for {row.project.name} in {row.node_pool.name}."
        _notify_author(row, "QuotaDecided", title, row.decision_reason)
    return row


def end_request(*, key: UUID, actor: Actor) -> QuotaRequest:
    """Take back what was granted before its date. Conflict unless it is approved."""
    with _changing(decidable_request(actor, key), actor, "end") as row:
        if row.state != QuotaRequestState.APPROVED:
            raise Conflict(_("This request is %(state)s.") % {"state": row.state}, code="not_approved")
        _take_back(row, timezone.now(), actor, f"The quota request of {row.author_name} was rolled back.")
    return row


def decline_request(*, key: UUID, reason: str, actor: Actor) -> QuotaRequest:
    """Say no, with a reason; no quota changes."""
    with _deciding(key, actor, "decline") as row:
        _decide(row, QuotaRequestState.DECLINED, actor, _reason(reason), timezone.now())
        row.save()
        record(actor, "quota_request.decline", row, detail=_decided(row), project_id=str(row.project_id))
        title = f"{actor.name} declined your quota request for {row.project.name} in {row.node_pool.name}."
        _notify_author(row, "QuotaDecided", title, row.decision_reason)
    return row


def withdraw_request(*, key: UUID, actor: Actor) -> QuotaRequest:
    """Take one's own request back while it is open."""
    row = request_or_404(actor, key)
    with _changing(row, actor, "withdraw") as row:
        if not row.is_by(actor):
            raise Forbidden(_("Only its author can withdraw a request."))
        _check_open(row)
        row.state = QuotaRequestState.WITHDRAWN
        row.save(update_fields=["state"])
        record(actor, "quota_request.withdraw", row, detail=_requested(row), project_id=str(row.project_id))
    return row


def refresh_impact(row: QuotaRequest) -> bool:
    """Compute the impact of an open request again where its base has moved. Return whether it had."""
    with transaction.atomic():
        row = _locked(row.pk)
        base = base_of(row.project, row.node_pool)
        if row.state != QuotaRequestState.OPEN or base == row.base:
            return False
        row.base, row.impact_at = base, timezone.now()
        row.impact = impact_of(row.project, row.node_pool, row.gpu_milli)
        row.save(update_fields=["base", "impact", "impact_at"])
        record(SYSTEM, "quota_request.recompute", row, detail={"base": base}, project_id=str(row.project_id))
    return True


def refresh_open() -> int:
    """Compute again the impact of every open request whose base has moved; return how many had."""
    rows = QuotaRequest.objects.filter(state=QuotaRequestState.OPEN).order_by("impact_at")
    return sum(refresh_impact(row) for row in rows[:MOST_AT_ONCE])


def end_due(now: datetime) -> int:
    """Take back what was granted until a date that has passed; answers how many requests ended.

    One that cannot be ended, as non-preemptible work holds its GPUs, stays with the reason, and is tried again.
    """
    due = QuotaRequest.objects.filter(state=QuotaRequestState.APPROVED, ends_at__lte=now).order_by("ends_at")
    return sum(_end(key, now) for key in list(due.values_list("pk", flat=True)[:MOST_AT_ONCE]))


def _end(key: UUID, now: datetime) -> bool:
    try:
        with transaction.atomic(), planned_change():  # the grant was decided together with its end
            row = _locked(key)
            if row.state != QuotaRequestState.APPROVED:
                return False
            _take_back(row, now, SYSTEM, f"The date of a quota request of {row.author_name} has passed.")
    except RungError as error:
        _keep(key, error.message)
        return False
    return True


def _take_back(row: QuotaRequest, now: datetime, actor: Actor, reason: str) -> None:
    if ProjectQuota.objects.filter(project=row.project, node_pool=row.node_pool).exists():
        values = lowered(values_of(row.project, row.node_pool), row.granted_milli or 0)
        _set(row, values, actor, reason)
    row.state, row.ended_at, row.kept_because = QuotaRequestState.ENDED, now, ""
    row.save()
    record(actor, "quota_request.end", row, detail=_decided(row), project_id=str(row.project_id))
    _notify_ended(row, _("%(gpus)s of %(project)s in %(pool)s were taken back."), "")


@transaction.atomic
def _keep(key: UUID, message: str) -> None:
    """Say once why the GPUs stay; the next try may find another reason."""
    row, why = _locked(key), message[:MAX_REASON_LENGTH]
    if row.kept_because == why:
        return
    row.kept_because = why
    row.save(update_fields=["kept_because"])
    record(SYSTEM, "quota_request.keep", row, detail={"reason": why}, project_id=str(row.project_id))
    _notify_ended(row, _("%(gpus)s of %(project)s in %(pool)s cannot be taken back yet."), why)


def _set(row: QuotaRequest, values: QuotaValues, actor: Actor, reason: str) -> None:
    """Write the quota; the request knows the generation of the cluster that brings it."""
    why = reason[:MAX_REASON_LENGTH]
    set_project_quota(project=row.project, node_pool=row.node_pool, values=values, actor=actor, reason=why)
    row.generation = Cluster.objects.values_list("generation", flat=True).get(pk=row.project.cluster_id)


def _locked(key: UUID) -> QuotaRequest:
    """The row until the end of the transaction, and its department, which every writer of its quotas locks."""
    rows = QuotaRequest.objects.select_related("project__department", "project__cluster", "node_pool__cluster")
    row = rows.select_for_update(of=("self",)).get(pk=key)
    Department.objects.select_for_update().get(pk=row.project.department_id)
    return row


@contextmanager
def _deciding(key: UUID, actor: Actor, verb: str) -> Iterator[QuotaRequest]:
    """An open request that the actor may decide; a refusal leaves one audit record."""
    with _changing(request_or_404(actor, key), actor, verb) as row:
        require(actor, DECISION, project=row.project)
        _check_open(row)
        yield row


@contextmanager
def _changing(row: QuotaRequest, actor: Actor, verb: str) -> Iterator[QuotaRequest]:
    with audited_transaction(
        actor=actor,
        action=f"quota_request.{verb}",
        entity_type="quotarequest",
        entity_name=str(row),
        project_id=str(row.project_id),
    ):
        yield _locked(row.pk)


def _check_open(row: QuotaRequest) -> None:
    if row.state != QuotaRequestState.OPEN:
        raise Conflict(_("This request is %(state)s already.") % {"state": row.state}, code="not_open")


def _check_once(row: QuotaRequest) -> None:
    mine = {name: getattr(row, name) for name in ("project", "node_pool", "author_kind", "author_id")}
    if QuotaRequest.objects.filter(state=QuotaRequestState.OPEN, **mine).exists():
        text = _("You already have an open request for this project and node pool. Withdraw it first.")
        raise Conflict(text, code="already_open")


def _amount(gpus: float, node_pool: NodePool) -> int:
    """GPU thousandths: more than none, and no more than the pool has."""
    physical = physical_gpus(node_pool)
    most = LARGEST if physical is None else physical
    if isfinite(gpus) and gpus * 1000 > most:
        text = _("%(pool)s has %(most)s in total.") % {"pool": node_pool.name, "most": gpus_text(most)}
        raise ValidationFailed.at("/gpus", "more_than_pool", text, largest=most / 1000)
    if not isfinite(gpus) or round(gpus * 1000) < 1 or abs(gpus * 1000 - round(gpus * 1000)) > EXACT:
        text = _("Enter more than 0 GPUs, with at most 3 decimals.")
        raise ValidationFailed.at("/gpus", "out_of_range", text)
    return round(gpus * 1000)


def _last_day(day: date | None, now: datetime) -> date | None:
    if day is not None and not now.date() <= day <= (now + LONGEST).date():
        text = _("Must be from today to %(last)s.") % {"last": (now + LONGEST).date().isoformat()}
        raise ValidationFailed.at("/until", "out_of_range", text)
    return day


def _reason(text: str) -> str:
    if found := _optional(text):
        return found
    raise ValidationFailed.at("/reason", "required", _("Enter a reason."))


def _optional(text: str) -> str:
    return validate_text("/reason", text, longest=MAX_REASON_LENGTH)


def _decide(row: QuotaRequest, state: QuotaRequestState, actor: Actor, reason: str, now: datetime) -> None:
    row.state, row.decided_by, row.decided_at, row.decision_reason = state, actor.name, now, reason


def _requested(row: QuotaRequest) -> dict[str, Any]:
    return {"node_pool": row.node_pool.name, "gpus": row.gpu_milli / 1000, "until": row.until, "reason": row.reason}


def _decided(row: QuotaRequest) -> dict[str, Any]:
    granted = None if row.granted_milli is None else row.granted_milli / 1000
    decision = {"granted": granted, "granted_until": row.granted_until, "decision": row.decision_reason}
    return {**_requested(row), **decision}


def _notify_author(row: QuotaRequest, type_: str, title: str, text: str) -> None:
    _notify(row, type_, title, text, subject_kind=row.author_kind, subject_id=row.author_id)


def _notify_ended(row: QuotaRequest, title: str, text: str) -> None:
    """Both sides: the author, and those who may set the quota."""
    words = {"gpus": gpus_text(row.granted_milli or 0), "project": row.project.name, "pool": row.node_pool.name}
    _notify_author(row, "QuotaEnded", title % words, text)
    _notify(row, "QuotaEnded", title % words, text, permission=DECISION.value)


def _notify(row: QuotaRequest, type_: str, title: str, text: str, **audience: str) -> None:
    path = reverse("workloads:quota-request", args=[row.pk])
    notice = Notice(type=type_, project=row.project, title=title[:200], text=text, path=path, at=timezone.now())
    for name, value in audience.items():
        setattr(notice, name, value)
    send_notice(notice)


def _plan_effect(change: Change, actor: Actor) -> Effect:
    """That of the quota, once the decision itself was tried."""
    found = quota_plans.effect(planned_grant(change), actor, StartTrial)
    with trial_savepoint():
        _decide_as(change, actor)
    return found


def _decide_as(change: Change, actor: Actor) -> None:
    row = request_of(change)
    if ends_grant(change):
        end_request(key=row.pk, actor=actor)
        return
    until = date.fromisoformat(change["until"]) if change.get("until") else None
    base, reason = base_of(row.project, row.node_pool), change.get("reason", "")
    approve_request(key=row.pk, base=base, gpus=change.get("gpus"), until=until, reason=reason, actor=actor)


def _plan_undo(change: Change) -> Change | None:
    return None if ends_grant(change) else {"request": change["request"], "op": "end"}


KINDS: Final = {
    "quota_request": PlanKind(
        plan_title,
        lambda change: [owner_scope(request_of(change).project)],
        plan_facts,
        _plan_effect,
        _decide_as,
        _plan_undo,
        requests=partial(setting_requests, "quota_request"),
        page="workloads:quota-requests",
    )
}
"""The approval of a request as a plan, for where a second admin has to approve it."""
