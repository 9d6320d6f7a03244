"""The people who sign in: made, changed, shut out. Passwords are Django's business; this keeps the record of them."""

from collections.abc import Mapping

from django.db import transaction
from django.utils.translation import gettext as _

from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Conflict
from tenants.models import User
from tenants.permissions import Verb, require
from tenants.services.checks import checked, unless_taken
from tenants.services.memberships import admins_remain


@transaction.atomic
def save_user(*, user: User, actor: Actor, changed: Mapping[str, object] | None = None) -> User:
    """Store a new or changed person. `changed` names the fields for the record; values of passwords never get there."""
    require(actor, Verb.MANAGE_ACCESS)
    created, guarded = user._state.adding, admins_remain()
    checked(user)
    with unless_taken("/username"):
        user.save()
    _refuse_lockout(guarded=guarded)
    detail = {key: "changed" if "password" in key else value for key, value in (changed or {}).items()}
    record(actor, "user.create" if created else "user.update", user, detail=detail)
    return user


@transaction.atomic
def record_password(*, user: User, actor: Actor) -> None:
    """Keep that somebody's password was set by an admin."""
    require(actor, Verb.MANAGE_ACCESS)
    record(actor, "user.password", user)


@transaction.atomic
def delete_user(*, user: User, actor: Actor) -> None:
    """Remove a person with their roles. Their records and their workloads' history keep the name."""
    require(actor, Verb.MANAGE_ACCESS)
    guarded = admins_remain()
    record(actor, "user.delete", user)
    user.delete()
    _refuse_lockout(guarded=guarded)


def _refuse_lockout(*, guarded: bool) -> None:
    """Somebody must be left who can let others in, if there was anybody."""
    if guarded and not admins_remain():
        raise Conflict.at("", "last_platform_admin", _("This would leave the installation without a platform admin."))
