"""Set and remove time limits, idle limits and minimum runtimes. A project can only tighten its department's rule."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from django.db import transaction
from django.utils.translation import gettext as _

from clusters.inventory.services.inventory import mark_dirty
from portal.audit.services import record
from portal.kit.db.validation import MAX_REASON_LENGTH, unique_or_conflict, validate_text
from portal.kit.errors import Conflict, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.services.subjects import set_change_author
from tenants.organisation.models import Department, Project
from tenants.quotas.models import LONGEST_MINUTES, IdleLimit, MinRuntime, RuntimeLimit, TimeLimit
from tenants.quotas.services.quotas import bump_generation, check_direct
from tenants.usage.selectors import category_names


def require_quota_permission(owner: Department | Project, actor: Actor) -> None:
    """Refuse an actor who may not set quotas there."""
    if isinstance(owner, Project):
        require(actor, Permission.MANAGE_PROJECT_QUOTA, project=owner)
    else:
        require(actor, Permission.MANAGE_DEPARTMENT_QUOTA, department=owner)


def owner_fields(owner: Department | Project) -> dict[str, Department | Project]:
    """The owner as fields of a rule."""
    return {"project": owner} if isinstance(owner, Project) else {"department": owner}


def audit_scope(owner: Department | Project) -> dict[str, str]:
    """The owner as the scope of an audit record."""
    return {"project_id": str(owner.pk)} if isinstance(owner, Project) else {}


AnyLimit = TypeVar("AnyLimit", bound=RuntimeLimit)


@transaction.atomic
def set_limit(
    kind: type[AnyLimit],
    *,
    owner: Department | Project,
    category: str,
    minutes: int,
    notice_minutes: int,
    actor: Actor,
    reason: str = "",
) -> AnyLimit:
    """Stop runs of a category after so many minutes, of running or of idle GPUs, and notify their owners before.

    Refused: out of range, or an unknown category. Conflict, with both numbers: longer than the department allows.
    It acts on what runs now as well: a run that is over its new limit ends after the notice, which starts at once.
    """
    require_quota_permission(owner, actor)
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    _check_range(category, minutes, notice_minutes)
    if isinstance(owner, Project):
        _check_not_looser(kind, owner, category, minutes)
    rows = kind._default_manager.filter(category=category, **owner_fields(owner))
    row = rows.first() or kind(category=category, **owner_fields(owner))
    before = _said(row) if row.pk else {}
    row.minutes, row.notice_minutes = minutes, notice_minutes
    if _said(row) != before:
        check_direct(owner)
        with unique_or_conflict(""):
            set_change_author(row, actor=actor, reason=why).save()
        detail = {"category": category, "before": before, "after": _said(row), "reason": why}
        record(actor, f"{_name(kind)}.set", owner, detail=detail, **audit_scope(owner))
    return row


@transaction.atomic
def remove_limit(*, limit: RuntimeLimit, actor: Actor, reason: str = "") -> None:
    """Runs of this category may go on: at a project as long as its department lets them."""
    owner = limit.owner
    require_quota_permission(owner, actor)
    check_direct(owner)
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    detail = {"category": limit.category, "before": _said(limit), "after": {}, "reason": why}
    record(actor, f"{_name(type(limit))}.lift", owner, detail=detail, **audit_scope(owner))
    set_change_author(limit, actor=actor, reason=why).delete()


def _check_range(category: str, minutes: int, notice_minutes: int) -> None:
    known = category_names()
    if known and category not in known:
        raise ValidationFailed.at("/category", "unknown_category", _("Unknown category."), allowed=sorted(known))
    if not 1 <= minutes <= LONGEST_MINUTES:
        text = _("Between 1 minute and %(most)s minutes (366 days).") % {"most": LONGEST_MINUTES}
        raise ValidationFailed.at("/minutes", "out_of_range", text, least=1, most=LONGEST_MINUTES)
    if not 0 <= notice_minutes < minutes:
        text = _("The notice must be shorter than the limit of %(minutes)s minutes.") % {"minutes": minutes}
        raise ValidationFailed.at("/noticeMinutes", "out_of_range", text, least=0, most=minutes - 1)


def _check_not_looser(kind: type[RuntimeLimit], project: Project, category: str, minutes: int) -> None:
    above = kind._default_manager.filter(department=project.department_id, category=category).first()
    if above and minutes > above.minutes:
        text = _("%(department)s allows %(most)s minutes for %(category)s. A project can only lower this.")
        values = {"department": project.department.name, "most": above.minutes, "category": category}
        raise Conflict.at("/minutes", "looser_than_department", text % values, requested=minutes, most=above.minutes)


def _said(row: RuntimeLimit) -> dict[str, int]:
    return {"minutes": row.minutes, "notice_minutes": row.notice_minutes}


def _name(kind: type[RuntimeLimit]) -> str:
    return str(kind._meta.verbose_name).replace(" ", "_")


@transaction.atomic
def set_min_runtime(*, owner: Department | Project, minutes: int, actor: Actor, reason: str = "") -> MinRuntime:
    """Leave preemptible runs alone for so many minutes from their start, where the cluster's scheduler can.

    Refused: out of range. Conflict, with both numbers: longer than the department guarantees.
    """
    require_quota_permission(owner, actor)
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    if not 0 <= minutes <= LONGEST_MINUTES:
        text = _("Between 0 and %(most)s minutes (366 days).") % {"most": LONGEST_MINUTES}
        raise ValidationFailed.at("/minutes", "out_of_range", text, least=0, most=LONGEST_MINUTES)
    if isinstance(owner, Project):
        _check_not_longer(owner, minutes)
    row = MinRuntime.objects.filter(**owner_fields(owner)).first() or MinRuntime(**owner_fields(owner))
    before = row.minutes if row.pk else None
    row.minutes = minutes
    if before != minutes:
        check_direct(owner)
        with unique_or_conflict(""):
            set_change_author(row, actor=actor, reason=why).save()
        detail = {"before": before, "after": minutes, "reason": why}
        record(actor, "min_runtime.set", owner, detail=detail, **audit_scope(owner))
        _changed(owner)
    return row


@transaction.atomic
def remove_min_runtime(*, rule: MinRuntime, actor: Actor, reason: str = "") -> None:
    """Guarantee nothing here any more: in a project what its department guarantees holds again."""
    owner = rule.owner
    require_quota_permission(owner, actor)
    check_direct(owner)
    why = validate_text("/reason", reason, longest=MAX_REASON_LENGTH)
    detail = {"before": rule.minutes, "after": None, "reason": why}
    record(actor, "min_runtime.lift", owner, detail=detail, **audit_scope(owner))
    set_change_author(rule, actor=actor, reason=why).delete()
    _changed(owner)


def _check_not_longer(project: Project, minutes: int) -> None:
    above = MinRuntime.objects.filter(department=project.department_id).first()
    if above and minutes > above.minutes:
        text = _("%(department)s guarantees %(most)s minutes. A project can only lower this.")
        values = {"department": project.department.name, "most": above.minutes}
        raise Conflict.at("/minutes", "looser_than_department", text % values, requested=minutes, most=above.minutes)


def _changed(owner: Department | Project) -> None:
    """Move the fence of everybody whose queues say something else now, and wake the cluster for each."""
    rows = Project.objects.filter(department=owner.pk, minruntime_rules__isnull=False)
    for each in (owner, *(rows if isinstance(owner, Department) else ())):
        bump_generation(each)
        mark_dirty(each.cluster, owner=each.owner)


RuleKey = tuple[type[RuntimeLimit], str]
"""A sort of limit and a category."""

RULES: Final[Mapping[str, RuleKey]] = {
    "interactiveJobTimeLimitSeconds": (TimeLimit, "Build"),
    "interactiveJobMaxIdleDurationSeconds": (IdleLimit, "Build"),
    "trainingJobTimeLimitSeconds": (TimeLimit, "Train"),
    "trainingJobMaxIdleDurationSeconds": (IdleLimit, "Train"),
}
PREEMPT_IDLE: Final = "interactiveJobPreemptIdleDurationSeconds"
NOTICE: Final = 15
"""Minutes for a new limit without a notice of its own; Run:ai's rules have none."""


def rules_json(minutes: Mapping[RuleKey, int]) -> dict[str, int | None]:
    """Seconds per rule. Rung stops idle runs and does not make them preemptible, so that rule is null."""
    return {**{name: seconds_of(minutes.get(which)) for name, which in RULES.items()}, PREEMPT_IDLE: None}


def seconds_of(minutes: int | None) -> int | None:
    return None if minutes is None else minutes * 60


@transaction.atomic
def set_scheduling_rules(*, owner: Department | Project, rules: Mapping[str, Any] | None, actor: Actor) -> None:
    """Set and lift limits; null lifts, an absent key keeps. Refused: the rule that Rung has not, parts of a minute."""
    given = dict.fromkeys(RULES) if rules is None else rules
    if problems := [*_unknown(given), *_unsupported(given)]:
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)
    for name in RULES.keys() & given.keys():
        _set(owner, RULES[name], given[name], f"/schedulingRules/{name}", actor)


def _unknown(given: Mapping[str, Any]) -> list[Problem]:
    known = (*RULES, PREEMPT_IDLE)
    text = _("Unknown field.")
    return [
        Problem(f"/schedulingRules/{name[:100]}", "unknown_field", text, allowed=known)
        for name in given
        if name not in known
    ]


def _unsupported(given: Mapping[str, Any]) -> list[Problem]:
    if given.get(PREEMPT_IDLE) is None:
        return []
    text = _("Rung stops idle workloads instead of making them preemptible. Leave this empty.")
    return [Problem(f"/schedulingRules/{PREEMPT_IDLE}", "unsupported", text)]


def _set(owner: Department | Project, which: RuleKey, seconds: object, pointer: str, actor: Actor) -> None:
    kind, category = which
    row = kind._default_manager.filter(category=category, **owner_fields(owner)).first()
    if seconds is None:
        if row:
            remove_limit(limit=row, actor=actor)
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 60 or seconds % 60:
        raise ValidationFailed.at(pointer, "whole_minutes", _("Whole minutes, as seconds: 60, 120 and so on."))
    minutes = seconds // 60
    notice = min(row.notice_minutes if row else NOTICE, minutes - 1)
    set_limit(kind, owner=owner, category=category, minutes=minutes, notice_minutes=notice, actor=actor)
