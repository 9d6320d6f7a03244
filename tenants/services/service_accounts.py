"""Programs that work for the installation: made, given secrets, shut out; and the exchange of a secret for a token."""

import uuid
from typing import Final

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext as _

from portal.audit.services import record, record_refusal
from portal.core.actors import Actor, ActorKind, Channel
from portal.core.errors import BadRequest
from portal.core.marks import Kept
from tenants import secrets, tokens
from tenants.models import Department, Project, ServiceAccount
from tenants.permissions import Verb, require
from tenants.services.checks import checked, unless_taken
from tenants.services.memberships import grant

UNKNOWN_CLIENT: Final = secrets.hash_generated("")


@transaction.atomic
def create(
    *,
    name: str,
    actor: Actor,
    role: str = "",
    project: Project | None = None,
    department: Department | None = None,
    secret: str = "",
) -> tuple[ServiceAccount, str]:
    """A new account, its client id being its name, with its secret: the only time that it is seen.

    `role` is given in the project or department, or everywhere without either. A chosen `secret` is hashed slowly.
    """
    require(actor, Verb.MANAGE_ACCESS)
    shown = secret or secrets.generate()
    account = ServiceAccount(
        name=name,
        client_id=name,
        secret_hash=secrets.hash_chosen(shown) if secret else secrets.hash_generated(shown),
        created_by=actor.name,
    )
    checked(account)
    with unless_taken("/name"):
        account.save()
    record(actor, "service-account.create", account)
    if role:
        grant(subject=account, role=role, actor=actor, project=project, department=department)
    return account, shown


@transaction.atomic
def rotate(*, account: ServiceAccount, actor: Actor) -> str:
    """A new secret, shown once. The old one and every token given out for it stop working."""
    require(actor, Verb.MANAGE_ACCESS)
    shown = secrets.generate()
    account.secret_hash = secrets.hash_generated(shown)
    account.save(update_fields=["secret_hash", "updated_at"])
    record(actor, "service-account.rotate", account)
    return shown


@transaction.atomic
def set_enabled(*, account: ServiceAccount, enabled: bool, actor: Actor) -> ServiceAccount:
    """Let it in or shut it out, from its next request on."""
    require(actor, Verb.MANAGE_ACCESS)
    row = ServiceAccount.objects.select_for_update().get(pk=account.pk)
    if row.enabled != enabled:
        row.enabled = enabled
        row.save(update_fields=["enabled", "updated_at"])
        record(actor, "service-account.enable" if enabled else "service-account.disable", row)
    return row


@transaction.atomic
def delete(*, account: ServiceAccount, actor: Actor) -> None:
    """Remove it with its roles; its tokens die with it."""
    require(actor, Verb.MANAGE_ACCESS)
    record(actor, "service-account.delete", account)
    account.delete()


def exchange(client_id: str, secret: str, *, source_ip: str | None = None, request_id: str = "") -> str:
    """A token for the right secret. BadRequest for everything else, always with the same words; both are recorded."""
    account = ServiceAccount.objects.filter(client_id=client_id).first() if client_id.isprintable() else None
    genuine = secrets.matches(secret, account.secret_hash if account else UNKNOWN_CLIENT)
    if account is None or not genuine or not account.enabled:
        refusal = BadRequest(_("The client id or the secret is wrong."), code="invalid_client")
        stranger = Actor(ActorKind.SERVICE_ACCOUNT, "", "unknown", Channel.API, source_ip, request_id)
        record_refusal(stranger, "session.start", refusal, entity=account, entity_type="serviceaccount")
        raise refusal
    with transaction.atomic():
        ServiceAccount.objects.filter(pk=account.pk).update(last_login=timezone.now())
        record(actor_for(account, source_ip=source_ip, request_id=request_id), "session.start", account)
    return tokens.issue(tokens.Claims(str(account.pk), secrets.stamp_of(account.secret_hash)))


def subject_of_token(token: str) -> ServiceAccount | None:
    """The account behind a bearer token as it is now: None once it is disabled, removed or rotated."""
    claims = tokens.read(token)
    if claims is None or (account := _enabled(claims.account_id)) is None:
        return None
    return account if constant_time_compare(claims.stamp, secrets.stamp_of(account.secret_hash)) else None


_accounts: Final = Kept[ServiceAccount | None]("access")


def _enabled(account_id: str) -> ServiceAccount | None:
    try:
        wanted = uuid.UUID(account_id)
    except ValueError:
        return None
    rows = ServiceAccount.objects.filter(pk=wanted, enabled=True).order_by()
    return _accounts.of(wanted, lambda: next(iter(rows), None))


def actor_for(account: ServiceAccount, *, source_ip: str | None = None, request_id: str = "") -> Actor:
    """The account as an actor on the API."""
    return Actor(ActorKind.SERVICE_ACCOUNT, str(account.pk), account.name, Channel.API, source_ip, request_id)
