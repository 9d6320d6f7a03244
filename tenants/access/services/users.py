"""The people who sign in: made, changed, shut out. Passwords are Django's business; this keeps the record of them.

Who changed a row and why, as the history tables keep it.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TypeVar

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.translation import gettext as _

from portal.audit.services import record, record_refusal
from portal.kit.db.validation import unique_or_conflict, validate_instance
from portal.kit.errors import Conflict, Forbidden, Problem, ValidationFailed
from portal.kit.security.actors import Actor, ActorKind
from tenants.access.models import User
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.services.access_rules import require_outranks, require_remaining_admin
from tenants.access.services.tokens import throttle_guess

TEMPORARY: Final = 20
"""Letters of a temporary password."""
PASSWORD_FIELDS: Final = ("password", "password_expires_at")


@transaction.atomic
def save_user(*, user: User, actor: Actor, changed: Mapping[str, object] | None = None) -> User:
    """Store a new or changed person. `changed` names the fields for the record; values of passwords never get there."""
    for each in (user, *User.objects.filter(pk=user.pk)):
        require_outranks(actor, each)
    created = user._state.adding
    if created:
        user.created_by = actor.name
    validate_instance(user)
    with require_remaining_admin(), unique_or_conflict("/username"):
        user.save()
    detail = {key: "changed" if "password" in key else value for key, value in (changed or {}).items()}
    record(actor, "user.create" if created else "user.update", user, detail=detail)
    return user


def create_user(*, email: str, actor: Actor) -> tuple[User, str]:
    """A new person without roles, their e-mail address being their name, with a temporary password, shown once."""
    require(actor, Permission.MANAGE_ACCESS)
    if User.objects.filter(username__iexact=email).exists():
        raise Conflict.at("/email", "taken", _("A user with this name already exists."))
    user = User(username=email, email=email)
    password = _set_temporary_password(user)
    return save_user(user=user, actor=actor, changed={"username": email}), password


@transaction.atomic
def reset_password(*, user: User, actor: Actor) -> str:
    """A temporary password for somebody else, shown once; the old one and all their sessions end."""
    if actor.kind is ActorKind.USER and actor.id == str(user.pk):  # else a short-lived key would get a lasting password
        raise Forbidden(_("To change your own password, enter the current one."), code="own_password")
    require_outranks(actor, user)
    password = _set_temporary_password(user)
    user.save(update_fields=PASSWORD_FIELDS)
    record(actor, "user.password", user)
    return password


def _set_temporary_password(user: User) -> str:
    """A password that signs in until `RUNG_TEMPORARY_PASSWORD_HOURS` are over."""
    password = get_random_string(TEMPORARY)
    user.set_password(password)
    user.password_expires_at = timezone.now() + timedelta(hours=settings.RUNG_TEMPORARY_PASSWORD_HOURS)
    return password


def change_own_password(*, current: str, new: str, actor: Actor) -> None:
    """Another password for oneself, for whoever knows the old one; all sessions end. Wrong guesses are counted."""
    user = User.objects.filter(pk=int(actor.id)).first() if actor.kind is ActorKind.USER and actor.id else None
    if user is None:
        raise Forbidden(_("Only users have passwords."), code="only_people")
    with throttle_guess("password", name=actor.id, address=actor.source_ip or ""):
        if not user.check_password(current):
            wrong = ValidationFailed.at("/currentPassword", "wrong_password", _("Wrong password."))
            record_refusal(actor, "user.password", wrong, entity=user)
            raise wrong
    _validate_password(new, user)
    with transaction.atomic():
        user.set_password(new)
        user.save(update_fields=PASSWORD_FIELDS)
        record(actor, "user.password", user)


@transaction.atomic
def end_sessions(*, user: User, actor: Actor) -> None:
    """Sign somebody out of every browser. Their access keys go on: revoke these, or shut the person out."""
    require_outranks(actor, user)
    user.end_sessions()
    record(actor, "user.logout", user)


@transaction.atomic
def record_password_reset(*, user: User, actor: Actor) -> None:
    """Keep that somebody's password was set by an admin."""
    require_outranks(actor, user)
    record(actor, "user.password", user)


@transaction.atomic
def delete_user(*, user: User, actor: Actor) -> None:
    """Remove a person with their roles and keys. Their records and their workloads' history keep the name."""
    require_outranks(actor, user)
    record(actor, "user.delete", user)
    with require_remaining_admin():
        user.delete()


def _validate_password(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        found = [Problem("/newPassword", each.code or "weak", " ".join(each.messages)) for each in error.error_list]
        raise ValidationFailed(found[0].message, code="weak_password", problems=found) from None


M = TypeVar("M", bound=Model)


def set_change_author(instance: M, *, actor: Actor, reason: str = "") -> M:
    """Name the author and the reason of the next save or deletion. Programs and the system leave the author empty."""
    author = User(pk=int(actor.id)) if actor.kind is ActorKind.USER else None
    vars(instance).update(_history_user=author, _change_reason=reason or None)
    return instance
