"""Programs that work for the installation: made, given secrets, shut out."""

from datetime import datetime

from django.db import transaction

from portal.audit.services import record
from portal.kit.db.validation import unique_or_conflict, validate_future, validate_instance
from portal.kit.security.actors import Actor
from tenants.access.models import ServiceAccount
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.services import secret_hashing
from tenants.access.services.access_rules import grant, require_outranks
from tenants.organisation.models import Department, Project


@transaction.atomic
def create(
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
    shown = secret or secret_hashing.generate()
    account = ServiceAccount(
        name=name,
        client_id=name,
        secret_hash=secret_hashing.hash_chosen(shown) if secret else secret_hashing.hash_generated(shown),
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
def rotate(*, account: ServiceAccount, actor: Actor) -> str:
    """A new secret, shown once. The old one and every token given out for it stop working."""
    require_outranks(actor, account)
    shown = secret_hashing.generate()
    account.secret_hash = secret_hashing.hash_generated(shown)
    account.save(update_fields=["secret_hash", "updated_at"])
    record(actor, "service-account.rotate", account)
    return shown


@transaction.atomic
def set_enabled(*, account: ServiceAccount, enabled: bool, actor: Actor) -> ServiceAccount:
    """Let it in or shut it out, from its next request on."""
    require_outranks(actor, account)
    row = ServiceAccount.objects.select_for_update().get(pk=account.pk)
    if row.enabled != enabled:
        row.enabled = enabled
        row.save(update_fields=["enabled", "updated_at"])
        record(actor, "service-account.enable" if enabled else "service-account.disable", row)
    return row


@transaction.atomic
def delete(*, account: ServiceAccount, actor: Actor) -> None:
    """Remove it with its roles; its tokens die with it."""
    require_outranks(actor, account)
    record(actor, "service-account.delete", account)
    account.delete()
