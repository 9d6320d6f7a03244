"""Who has which role where. Nobody can hand out more than they hold themselves."""

from django.db import transaction
from django.utils.translation import gettext as _

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict, Denied, Refused
from tenants.models import Department, Membership, Project, Role, ServiceAccount, User
from tenants.permissions import STRENGTH, Verb, require, role_in
from tenants.services.checks import checked, unless_taken


@transaction.atomic
def grant(
    *,
    subject: User | ServiceAccount,
    role: str,
    actor: Actor,
    project: Project | None = None,
    department: Department | None = None,
) -> Membership:
    """Give a role in a project, in a department, or (neither) in the whole installation. Conflict if there is one."""
    _require_rule(actor, project=project, department=department)
    membership = Membership(
        user=subject if isinstance(subject, User) else None,
        service_account=subject if isinstance(subject, ServiceAccount) else None,
        role=_known(role),
        project=project,
        department=department,
    )
    _refuse_stronger(actor, membership, role)
    checked(membership)
    with unless_taken(""):
        membership.save()
    _record(actor, "membership.grant", membership, {"role": role})
    return membership


@transaction.atomic
def change_role(*, membership: Membership, role: str, actor: Actor) -> Membership:
    """Give another role in the same scope."""
    row = _locked(membership)
    _require_rule(actor, project=row.project, department=row.department)
    _refuse_stronger(actor, row, row.role)
    before, row.role = row.role, _known(role)
    if row.role == before:
        return row
    _refuse_stronger(actor, row, role)
    checked(row)
    row.save(update_fields=["role"])
    _refuse_without_admin(before)
    _record(actor, "membership.change", row, {"before": before, "after": role})
    return row


@transaction.atomic
def revoke(*, membership: Membership, actor: Actor) -> None:
    """Take a role away; it counts from the subject's next request on."""
    row = _locked(membership)
    _require_rule(actor, project=row.project, department=row.department)
    _refuse_stronger(actor, row, row.role)
    _record(actor, "membership.revoke", row, {"role": row.role})
    row.delete()
    _refuse_without_admin(row.role)


def _locked(membership: Membership) -> Membership:
    return Membership.objects.select_for_update().get(pk=membership.pk)


def _require_rule(actor: Actor, *, project: Project | None, department: Department | None) -> None:
    """Owners rule over their project, department admins over their department, platform admins over everything."""
    if project is not None:
        require(actor, Verb.MANAGE_MEMBERS, project=project)
    elif department is not None:
        require(actor, Verb.MANAGE_DEPARTMENT, department=department)
    else:
        require(actor, Verb.MANAGE_ACCESS)


def _known(role: str) -> Role:
    if role not in Role.values:
        raise Refused.at("/role", "unknown_role", _("There is no such role."), allowed=Role.values)
    return Role(role)


def _refuse_stronger(actor: Actor, membership: Membership, role: str) -> None:
    own = role_in(actor, project=membership.project, department=membership.department)
    if own is None or STRENGTH[Role(role)] > STRENGTH[own]:
        raise Denied(_("You hold a weaker role here than this one."))


def _refuse_without_admin(lost: str) -> None:
    """Somebody must be left who can let others in."""
    if lost == Role.PLATFORM_ADMIN and not admins_remain():
        raise Conflict.at("", "last_platform_admin", _("This would leave the installation without a platform admin."))


def admins_remain() -> bool:
    """Is there an active person who is a superuser or a platform admin?"""
    active = User.objects.filter(is_active=True)
    return (
        active.filter(is_superuser=True).exists()
        or active.filter(memberships__role=Role.PLATFORM_ADMIN, memberships__project=None).exists()
    )


def _record(actor: Actor, action: str, membership: Membership, detail: dict[str, str]) -> None:
    project_id = str(membership.project_id or "")
    detail = {"subject": membership.subject, "scope": membership.scope, **detail}
    record(actor, action, membership, detail=detail, project_id=project_id, entity_name=membership.subject)
