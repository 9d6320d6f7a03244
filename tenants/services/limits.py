"""Limits for runs, in time and in idleness, set with their reason. A project may only tighten its department's."""

from typing import TypeVar

from django.db import transaction
from django.utils.translation import gettext as _

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from tenants.history import sign
from tenants.models import Department, Limit, Project
from tenants.models.rules import LONGEST_MINUTES
from tenants.services.checks import readable, unless_taken
from tenants.services.organisation import LONGEST_REASON
from tenants.services.rules import owned, permit, scope
from tenants.usage import category_names

AnyLimit = TypeVar("AnyLimit", bound=Limit)


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
    """Stop runs of a category after so many minutes, of running or of idle GPUs, and tell them before.

    Refused: out of range, or a category nobody knows. Conflict, with both numbers: longer than the department allows.
    It acts on what runs now as well: a run that is over its new limit is told at once and has the notice left.
    """
    permit(owner, actor)
    why = readable("/reason", reason, longest=LONGEST_REASON)
    _refuse_out_of_range(category, minutes, notice_minutes)
    if isinstance(owner, Project):
        _refuse_looser(kind, owner, category, minutes)
    rows = kind._default_manager.filter(category=category, **owned(owner))
    row = rows.first() or kind(category=category, **owned(owner))
    before = _said(row) if row.pk else {}
    row.minutes, row.notice_minutes = minutes, notice_minutes
    if _said(row) != before:
        with unless_taken(""):
            sign(row, actor=actor, reason=why).save()
        detail = {"category": category, "before": before, "after": _said(row), "reason": why}
        record(actor, f"{_name(kind)}.set", owner, detail=detail, **scope(owner))
    return row


@transaction.atomic
def lift_limit(*, limit: Limit, actor: Actor, reason: str = "") -> None:
    """Runs of this category may go on: at a project as long as its department lets them."""
    owner = limit.owner
    permit(owner, actor)
    why = readable("/reason", reason, longest=LONGEST_REASON)
    detail = {"category": limit.category, "before": _said(limit), "after": {}, "reason": why}
    record(actor, f"{_name(type(limit))}.lift", owner, detail=detail, **scope(owner))
    sign(limit, actor=actor, reason=why).delete()


def _refuse_out_of_range(category: str, minutes: int, notice_minutes: int) -> None:
    known = category_names()
    if known and category not in known:
        raise Refused.at("/category", "unknown_category", _("There is no such category."), allowed=sorted(known))
    if not 1 <= minutes <= LONGEST_MINUTES:
        text = _("Between 1 minute and %(most)s minutes (366 days).") % {"most": LONGEST_MINUTES}
        raise Refused.at("/minutes", "out_of_range", text, least=1, most=LONGEST_MINUTES)
    if not 0 <= notice_minutes < minutes:
        text = _("The notice must be shorter than the limit of %(minutes)s minutes.") % {"minutes": minutes}
        raise Refused.at("/noticeMinutes", "out_of_range", text, least=0, most=minutes - 1)


def _refuse_looser(kind: type[Limit], project: Project, category: str, minutes: int) -> None:
    above = kind._default_manager.filter(department=project.department_id, category=category).first()
    if above and minutes > above.minutes:
        text = _("%(department)s allows %(most)s minutes for %(category)s; a project may only tighten that.")
        values = {"department": project.department.name, "most": above.minutes, "category": category}
        raise Conflict.at("/minutes", "looser_than_department", text % values, asked=minutes, most=above.minutes)


def _said(row: Limit) -> dict[str, int]:
    return {"minutes": row.minutes, "notice_minutes": row.notice_minutes}


def _name(kind: type[Limit]) -> str:
    return str(kind._meta.verbose_name).replace(" ", "_")
