"""Roles: those that come with Rung, and those that admins make, change and delete."""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from django.apps.registry import Apps
from django.db import transaction
from django.utils.translation import gettext as _

from portal.audit.services import record
from portal.kit.db.validation import raise_problems, unique_or_conflict, validate_instance, validate_text
from portal.kit.errors import Conflict, Forbidden, Problem, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.access.models import AccessRole, Membership, Role
from tenants.access.rules import SETS, Permission
from tenants.access.selectors import access_for, require


@transaction.atomic
def create_role(
    *, name: str, permission_sets: Sequence[str], actor: Actor, description: str = "", enabled: bool = True
) -> AccessRole:
    """A custom role. Its key is drawn: names may change. Refused for unknown sets and for none."""
    require(actor, Permission.MANAGE_ACCESS)
    role = AccessRole(key=f"custom-{uuid.uuid4().hex}", created_by=actor.name[:254])
    _fill(role, name, description, permission_sets, enabled=enabled)
    _check_not_stronger(actor, role)
    _store(role)
    record(actor, "role.create", role, detail=_as_audit(role))
    return role


@transaction.atomic
def update_role(
    *, role: AccessRole, name: str, permission_sets: Sequence[str], actor: Actor, description: str, enabled: bool
) -> AccessRole:
    """Another name or other permissions; they apply from the next request of each holder on."""
    require(actor, Permission.MANAGE_ACCESS)
    row = _locked(role)
    _check_not_stronger(actor, row)
    before = _as_audit(row)
    _fill(row, name, description, permission_sets, enabled=enabled)
    if _as_audit(row) == before:
        return row
    _check_not_stronger(actor, row)
    _store(row)
    record(actor, "role.update", row, detail={"before": before, "after": _as_audit(row)})
    return row


@transaction.atomic
def delete_role(*, role: AccessRole, actor: Actor) -> None:
    """Remove a role that is not granted. Conflict with the number of access rules that give it."""
    require(actor, Permission.MANAGE_ACCESS)
    row = _locked(role)
    _check_not_stronger(actor, row)
    if held := Membership.objects.filter(role=row).count():
        text = _("%(held)s access rules use this role. Delete them first.") % {"held": held}
        raise Conflict.at("", "role_in_use", text, accessRules=held)
    record(actor, "role.delete", row, detail=_as_audit(row))
    row.delete()


def _locked(role: AccessRole) -> AccessRole:
    row = AccessRole.objects.select_for_update().get(pk=role.pk)
    if not row.custom:
        raise Conflict.at("", "predefined_role", _("Built-in roles cannot be changed. Create a custom role."))
    return row


def _fill(role: AccessRole, name: str, description: str, sets: Sequence[str], *, enabled: bool) -> None:
    raise_problems(
        Problem(
            f"/permissionSets/{place}/id", "unknown_permission_set", _("Permission set not found."), allowed=tuple(SETS)
        )
        for place, each in enumerate(sets)
        if each not in SETS
    )
    if not sets:
        raise ValidationFailed.at(
            "/permissionSets", "required", _("A role needs at least one permission set."), allowed=SETS
        )
    role.name = validate_text("/name", name, longest=100)
    role.description = validate_text("/description", description)
    role.permission_sets = [each for each in SETS if each in set(sets)]
    role.enabled = enabled


def _store(role: AccessRole) -> None:
    validate_instance(role)
    with unique_or_conflict("/name"):
        role.save()


def _check_not_stronger(actor: Actor, role: AccessRole) -> None:
    """A role can be given anywhere, so what is in it must be held everywhere."""
    if not role.permissions <= access_for(actor).permissions_in():
        raise Forbidden(_("The role has permissions that you do not have."))


def _as_audit(role: AccessRole) -> dict[str, object]:
    return {
        "name": role.name,
        "description": role.description,
        "permission_sets": list(role.permission_sets),
        "enabled": role.enabled,
    }


PREDEFINED: Final = (
    (Role.VIEWER, "Views departments, projects and their workloads."),
    (Role.MEMBER, "Submits workloads; changes, stops and deletes their own."),
    (Role.OWNER, "Manages all workloads and the members of a project."),
    (Role.DEPARTMENT_ADMIN, "Manages projects of a department, their quotas and members."),
    (Role.PLATFORM_ADMIN, "Full access."),
)


def install_roles(*, apps: Apps, using: str, **_signal: Any) -> None:
    """Create the built-in roles that are missing, after `migrate`.

    `apps` are the models as migrated; a database without them (migrated to an earlier state) is left alone.
    """
    try:
        role = apps.get_model("tenants", "AccessRole")
    except LookupError:
        return
    present = set(role._default_manager.using(using).values_list("key", flat=True))
    role._default_manager.using(using).bulk_create(
        role(key=each.value, name=str(each.label), description=description, custom=False, created_by="rung")
        for each, description in PREDEFINED
        if each.value not in present
    )
