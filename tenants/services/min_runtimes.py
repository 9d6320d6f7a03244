"""Min guaranteed runtimes, set with their reason. A project's rule may only shorten its department's."""

from django.db import transaction
from django.utils.translation import gettext as _

from clusters.services.estate import touch
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Refused
from tenants.history import sign
from tenants.models import Department, MinRuntime, Project
from tenants.models.rules import LONGEST_MINUTES
from tenants.services.checks import readable, unless_taken
from tenants.services.organisation import LONGEST_REASON, bump
from tenants.services.rules import owned, permit, scope


@transaction.atomic
def set_min_runtime(*, owner: Department | Project, minutes: int, actor: Actor, reason: str = "") -> MinRuntime:
    """Leave preemptible runs alone for so many minutes from their start, where the cluster's scheduler can.

    Refused: out of range. Conflict, with both numbers: longer than the department guarantees.
    """
    permit(owner, actor)
    why = readable("/reason", reason, longest=LONGEST_REASON)
    if not 0 <= minutes <= LONGEST_MINUTES:
        text = _("Between 0 and %(most)s minutes (366 days).") % {"most": LONGEST_MINUTES}
        raise Refused.at("/minutes", "out_of_range", text, least=0, most=LONGEST_MINUTES)
    if isinstance(owner, Project):
        _refuse_longer(owner, minutes)
    row = MinRuntime.objects.filter(**owned(owner)).first() or MinRuntime(**owned(owner))
    before = row.minutes if row.pk else None
    row.minutes = minutes
    if before != minutes:
        with unless_taken(""):
            sign(row, actor=actor, reason=why).save()
        detail = {"before": before, "after": minutes, "reason": why}
        record(actor, "min_runtime.set", owner, detail=detail, **scope(owner))
        _changed(owner)
    return row


@transaction.atomic
def lift_min_runtime(*, rule: MinRuntime, actor: Actor, reason: str = "") -> None:
    """Guarantee nothing here any more: in a project what its department guarantees holds again."""
    owner = rule.owner
    permit(owner, actor)
    why = readable("/reason", reason, longest=LONGEST_REASON)
    detail = {"before": rule.minutes, "after": None, "reason": why}
    record(actor, "min_runtime.lift", owner, detail=detail, **scope(owner))
    sign(rule, actor=actor, reason=why).delete()
    _changed(owner)


def _refuse_longer(project: Project, minutes: int) -> None:
    above = MinRuntime.objects.filter(department=project.department_id).first()
    if above and minutes > above.minutes:
        text = _("%(department)s guarantees %(most)s minutes; a project may only shorten that, for others wait for it.")
        values = {"department": project.department.name, "most": above.minutes}
        raise Conflict.at("/minutes", "looser_than_department", text % values, asked=minutes, most=above.minutes)


def _changed(owner: Department | Project) -> None:
    """Move the fence of everybody whose queues say something else now, and wake the cluster for each."""
    rows = Project.objects.filter(department=owner.pk, minruntime_rules__isnull=False)
    for each in (owner, *(rows if isinstance(owner, Department) else ())):
        bump(each)
        touch(each.cluster, owner=each.owner)
