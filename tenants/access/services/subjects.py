"""Users and service accounts: created, changed, disabled, deleted; and the accounts of identities of single sign-on.

An account that a user can sign in to is never taken over by an identity: not by an address, verified or not, and
not by a name. Its owner links it after having signed in. Only accounts that were prepared without a password are
linked by an address.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.translation import gettext as _

from portal.audit.services import record, record_refusal
from portal.kit.db.validation import unique_or_conflict, validate_future, validate_instance
from portal.kit.errors import Conflict, Forbidden, Problem, ValidationFailed
from portal.kit.security.actors import Actor, ActorKind, Channel
from portal.sso.provider import Identity
from tenants.access.models import ServiceAccount, User
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, require
from tenants.access.services import credentials
from tenants.access.services.access_rules import grant, require_outranks, require_remaining_admin
from tenants.access.services.credentials import throttle_guess
from tenants.organisation.models import Department, Project

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
    """A temporary password for another user, shown once; the old one and all their sessions end."""
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
    """Change the actor's own password with the old one; all sessions end. Wrong guesses are counted."""
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
    """Sign a user out of every browser. Their access keys stay valid: revoke these, or disable the user."""
    require_outranks(actor, user)
    user.end_sessions()
    record(actor, "user.logout", user)


@transaction.atomic
def record_password_reset(*, user: User, actor: Actor) -> None:
    """Record that an admin set a user's password."""
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


LONGEST_UID: Final = 191
POWER: Final = frozenset({Permission.MANAGE_ACCESS, Permission.MANAGE_MEMBERS})


@transaction.atomic
def account_for(*, identity: Identity, actor: Actor) -> User:
    """The account of who came from the provider, with the groups that the provider names now.

    1. the account it was joined to, else one prepared for this verified address, else a new one
    2. refuse a disabled one
    3. take over name, address and groups
    """
    user = _linked_account(identity) or _prepared_account(identity, actor) or _create_account(identity, actor)
    if not user.is_active:
        raise Forbidden(_("This account is disabled."), code="disabled")
    _update_profile(user, identity)
    _update_groups(user, identity, actor)
    SocialAccount.objects.get(provider=identity.issuer, uid=uid_of(identity)).save()  # keeps when it was last used
    return user


@transaction.atomic
def link_identity(*, user: User, identity: Identity, actor: Actor) -> None:
    """Join an identity to the account of who is signed in. One account has one identity, and the other way round."""
    if is_linked(user):
        raise Conflict(_("This account is already connected."), code="connected")
    owner = _linked_account(identity)
    if owner is not None:
        raise Conflict(
            _("Your identity there is already connected to account “%(name)s”.") % {"name": owner.username},
            code="taken",
        )
    _link(user, identity)
    record(actor, "user.connect", user, entity_type="user", detail={"issuer": identity.issuer})
    _update_groups(user, identity, actor)


@transaction.atomic
def unlink_identity(*, user: User, actor: Actor) -> None:
    """Undo it: one's own if there is a password to come back with, another user's for admins. The groups go along,
    for they are the provider's. Conflict for who is the last platform admin by one of them.
    """
    if actor.id != str(user.pk):
        require_outranks(actor, user)
    elif not user.has_usable_password():
        raise Conflict(_("You have no password, so you cannot disconnect single sign-on."), code="only_way_in")
    if SocialAccount.objects.filter(user=user).delete()[0]:
        left = sorted(user.groups.values_list("name", flat=True))
        with require_remaining_admin():
            user.groups.clear()
        record(actor, "user.disconnect", user, entity_type="user", detail={"left": left})


def is_linked(user: User) -> bool:
    """True where a user can sign in by single sign-on."""
    return bool(SocialAccount.objects.filter(user=user).exists())


def uid_of(identity: Identity) -> str:
    """The subject as stored: as it is, or its digest where the column is too short for it."""
    subject = identity.subject
    return subject if len(subject) <= LONGEST_UID else f"sha256:{hashlib.sha256(subject.encode()).hexdigest()}"


def _linked_account(identity: Identity) -> User | None:
    link = SocialAccount.objects.filter(provider=identity.issuer, uid=uid_of(identity)).first()
    return User.objects.get(pk=link.user_id) if link is not None else None


def _prepared_account(identity: Identity, actor: Actor) -> User | None:
    """An account that an admin made for this address: without a password, an identity or power over others.

    No user has signed in with it yet: one that was disconnected is not linked again by an address.
    """
    if not identity.email:
        return None
    unused = User.objects.filter(is_active=True, is_staff=False, is_superuser=False, last_login=None)
    found = unused.filter(email__iexact=identity.email)
    waiting = [user for user in found if not (user.has_usable_password() or is_linked(user) or _rules(user))]
    if len(waiting) != 1:
        return None
    _link(waiting[0], identity)
    record(_as(waiting[0], actor), "user.connect", waiting[0], detail={"issuer": identity.issuer}, entity_type="user")
    return waiting[0]


def _create_account(identity: Identity, actor: Actor) -> User:
    name = re.sub(r"[^\w.@+-]", "-", User.normalize_username(identity.username))[:150]
    if User.objects.filter(username__iexact=name).exists():
        raise _taken(_("Account “%(name)s” already exists.") % {"name": name}, "name_taken")
    if identity.email and User.objects.filter(email__iexact=identity.email).exists():
        raise _taken(_("An account with your e-mail address already exists."), "email_taken")
    user = User(username=name, email=identity.email, created_by=identity.issuer[:254])
    user.set_unusable_password()
    with unique_or_conflict("/username"):
        user.save()
        _link(user, identity)
    record(_as(user, actor), "user.create", user, detail={"issuer": identity.issuer}, entity_type="user")
    return user


def _taken(text: str, code: str) -> Conflict:
    advice = _("If it is yours, sign in with its password and connect single sign-on under “Sign-in and security”.")
    return Conflict(f"{text} {advice}", code=code)


def _link(user: User, identity: Identity) -> None:
    with unique_or_conflict(""):
        SocialAccount.objects.create(user=user, provider=identity.issuer, uid=uid_of(identity))


def _update_profile(user: User, identity: Identity) -> None:
    """The provider's word on name and address, where it has one; no address that another user has here."""
    wanted = {"first_name": identity.first_name, "last_name": identity.last_name, "email": identity.email}
    changed = {name: value for name, value in wanted.items() if value and value != getattr(user, name)}
    if "email" in changed and User.objects.filter(email__iexact=identity.email).exclude(pk=user.pk).exists():
        del changed["email"]
    for name, value in changed.items():
        setattr(user, name, value)
    if changed:
        user.save(update_fields=list(changed))


def _update_groups(user: User, identity: Identity, actor: Actor) -> None:
    """Exactly the groups that the provider names; a group that is new here is made, and grants nothing."""
    if identity.groups is None:
        return
    before = set(user.groups.values_list("name", flat=True))
    if before == identity.groups:
        return
    Group.objects.bulk_create([Group(name=name) for name in sorted(identity.groups)], ignore_conflicts=True)
    user.groups.set(Group.objects.filter(name__in=identity.groups))
    detail = {"joined": sorted(identity.groups - before), "left": sorted(before - identity.groups)}
    record(_as(user, actor), "user.groups", user, detail=detail, entity_type="user")


def _rules(user: User) -> bool:
    """May they let others in, be it only into one project?"""
    access = access_for(Actor(ActorKind.USER, str(user.pk), user.username, Channel.UI))
    return bool(access.permissions & POWER)


def _as(user: User, actor: Actor) -> Actor:
    """Who came in acts for themselves."""
    return replace(actor, kind=ActorKind.USER, id=str(user.pk), name=user.username)


@transaction.atomic
def create_service_account(
    *,
    name: str,
    actor: Actor,
    role: str = "",
    project: Project | None = None,
    department: Department | None = None,
    secret: str = "",
    expires_at: datetime | None = None,
) -> tuple[ServiceAccount, str]:
    """A new account, its client id being its name, with its secret: the only time that it is seen.

    `role` is given in the project or department, or everywhere without either. A chosen `secret` is hashed slowly.
    """
    require(actor, Permission.MANAGE_ACCESS)
    shown = secret or credentials.generate_secret()
    account = ServiceAccount(
        name=name,
        client_id=name,
        secret_hash=credentials.hash_chosen_secret(shown) if secret else credentials.hash_generated_secret(shown),
        created_by=actor.name,
        expires_at=validate_future("/expiresAt", expires_at),
    )
    validate_instance(account)
    with unique_or_conflict("/name"):
        account.save()
    record(actor, "service-account.create", account)
    if role:
        grant(subject=account, role=role, actor=actor, project=project, department=department)
    return account, shown


@transaction.atomic
def rotate_service_account(*, account: ServiceAccount, actor: Actor) -> str:
    """A new secret, shown once. The old one and every token given out for it stop working."""
    require_outranks(actor, account)
    shown = credentials.generate_secret()
    account.secret_hash = credentials.hash_generated_secret(shown)
    account.save(update_fields=["secret_hash", "updated_at"])
    record(actor, "service-account.rotate", account)
    return shown


@transaction.atomic
def enable_service_account(*, account: ServiceAccount, enabled: bool, actor: Actor) -> ServiceAccount:
    """Let it in or shut it out, from its next request on."""
    require_outranks(actor, account)
    row = ServiceAccount.objects.select_for_update().get(pk=account.pk)
    if row.enabled != enabled:
        row.enabled = enabled
        row.save(update_fields=["enabled", "updated_at"])
        record(actor, "service-account.enable" if enabled else "service-account.disable", row)
    return row


@transaction.atomic
def delete_service_account(*, account: ServiceAccount, actor: Actor) -> None:
    """Remove it with its roles; its tokens die with it."""
    require_outranks(actor, account)
    record(actor, "service-account.delete", account)
    account.delete()
