"""Who an identity of the single sign-on is here: an account it was joined to, or a new one with no rights of its own.

An account that somebody can sign in to is never taken over: not by an address, verified or not, and not by a name. Its
owner joins it after having signed in. Only accounts that were prepared without a password are joined by an address.
"""

import hashlib
import re
from dataclasses import replace
from typing import Final

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils.translation import gettext as _

from portal.audit.services import record
from portal.kit.db.validation import unique_or_conflict
from portal.kit.errors import Conflict, Forbidden
from portal.kit.security.actors import Actor, ActorKind, Channel
from portal.sso.provider import Identity
from tenants.access.models import User
from tenants.access.rules import Permission
from tenants.access.selectors import access_for
from tenants.access.services.access_rules import require_outranks, require_remaining_admin

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
    """Undo it: one's own if there is a password to come back with, somebody else's for admins. The groups go along,
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
    """True where somebody can come in by single sign-on."""
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

    Nobody has come in with it yet: one that was disconnected is not taken up again by an address.
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
    """The provider's word on name and address, where it has one; no address that is somebody else's here."""
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
    standing = access_for(Actor(ActorKind.USER, str(user.pk), user.username, Channel.UI))
    return bool(standing.verbs & POWER)


def _as(user: User, actor: Actor) -> Actor:
    """Who came in acts for themselves."""
    return replace(actor, kind=ActorKind.USER, id=str(user.pk), name=user.username)
