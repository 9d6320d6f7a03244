"""Keys of people for their own programs: made, given new secrets, revoked. Each is the business of its owner alone;
those who look at access see whose keys there are, those who manage it revoke them.
"""

import secrets as randomness
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from portal.audit.services import record
from portal.kit.db.validation import unique_or_conflict, validate_future, validate_instance
from portal.kit.errors import Conflict, Forbidden, NotFound
from portal.kit.security.actors import Actor, ActorKind
from tenants.access.models import AccessKey, User
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.services import secret_hashing
from tenants.access.services.access_rules import require_outranks
from tenants.organisation.models import Department, Project

MOST: Final = 100
"""Keys of one person."""


def keys_of(actor: Actor) -> QuerySet[AccessKey]:
    """One's own keys; programs have none."""
    if actor.kind is not ActorKind.USER or not actor.id:
        return AccessKey.objects.none()
    return AccessKey.objects.filter(owner=int(actor.id)).select_related("project", "department")


def all_keys(actor: Actor) -> QuerySet[AccessKey]:
    """Everybody's keys, for those who look at access. Denied for others."""
    require(actor, Permission.VIEW_ACCESS)
    return AccessKey.objects.all()


@transaction.atomic
def create(
    *,
    name: str,
    actor: Actor,
    expires_at: datetime | None = None,
    read_only: bool = False,
    project: Project | None = None,
    department: Department | None = None,
) -> tuple[AccessKey, str]:
    """A new key of the actor's own with its secret: the only time that it is seen.

    Through another key, no more can be made than that key itself reaches, and nothing that outlives it.
    """
    if actor.kind is not ActorKind.USER or not actor.id:
        raise Forbidden(_("Only users can have access keys. Scripts can use a service account."), code="only_people")
    _check_visible(actor, project, department)
    shown = secret_hashing.generate()
    key = AccessKey(
        owner=User.objects.select_for_update().get(pk=int(actor.id)),
        name=name,
        client_id=f"{name}.{randomness.token_hex(6)}",
        secret_hash=secret_hashing.hash_generated(shown),
        created_by=actor.name,
        expires_at=validate_future("/expiresAt", expires_at),
        read_only=read_only,
        project=project,
        department=department,
    )
    validate_instance(key, exclude=["client_id"])
    _check_not_wider(actor, key)
    if AccessKey.objects.filter(owner=key.owner).count() >= MOST:
        raise Conflict(
            _("You have the maximum of %(most)s keys. Revoke one first.") % {"most": MOST}, code="too_many_keys"
        )
    with unique_or_conflict("/name"):
        key.save()
    record(actor, "access-key.create", key, detail=_audit_detail(key))
    return key, shown


@transaction.atomic
def rotate(*, key: AccessKey, actor: Actor) -> str:
    """A new secret for one's own key, shown once. The old one and every token given out for it stop working."""
    row = _locked(keys_of(actor), key)
    _check_not_wider(actor, row)
    shown = secret_hashing.generate()
    row.secret_hash = secret_hashing.hash_generated(shown)
    row.save(update_fields=["secret_hash"])
    record(actor, "access-key.rotate", row)
    return shown


@transaction.atomic
def revoke(*, key: AccessKey, actor: Actor) -> None:
    """Take one's own key away; it and its tokens stop working at once."""
    row = _locked(keys_of(actor), key)
    _check_not_wider(actor, row)
    record(actor, "access-key.revoke", row, detail=_audit_detail(row))
    row.delete()


@transaction.atomic
def revoke_any(*, key: AccessKey, actor: Actor) -> None:
    """Take somebody's key away. Denied for those who do not manage access, and for keys of who may do more."""
    row = _locked(all_keys(actor), key)
    require_outranks(actor, row.owner)
    record(actor, "access-key.revoke", row, detail={**_audit_detail(row), "owner": row.owner.username})
    row.delete()


def _locked(keys: QuerySet[AccessKey], key: AccessKey) -> AccessKey:
    row = keys.select_related(None).select_for_update().filter(pk=key.pk).first()
    if row is None:
        raise NotFound
    return row


def _check_visible(actor: Actor, project: Project | None, department: Department | None) -> None:
    """A key is bound only to what its owner can see."""
    if project is not None:
        require(actor, Permission.VIEW_PROJECT, project=project)
    if department is not None:
        require(actor, Permission.VIEW_DEPARTMENT, department=department)


def _check_not_wider(actor: Actor, key: AccessKey) -> None:
    """Else whoever got hold of a narrow or short-lived key could make themselves a better one."""
    if actor.limits is None or not actor.limits.key:
        return
    own = AccessKey.objects.filter(pk=actor.limits.key).first()
    if own is None:
        raise NotFound
    outlives = own.expires_at is not None and (key.expires_at is None or key.expires_at > own.expires_at)
    if outlives or (own.read_only and not key.read_only) or not _covers(own, key):
        raise Forbidden(
            _("Your current access key has a narrower scope or expires sooner than this one."), code="wider_key"
        )


def _covers(own: AccessKey, key: AccessKey) -> bool:
    if own.project_id is not None:
        return key.project_id == own.project_id
    if own.department_id is not None:
        inside = key.project.department_id if key.project else key.department_id
        return inside == own.department_id
    return True


def _audit_detail(key: AccessKey) -> dict[str, object]:
    return {
        "readOnly": key.read_only,
        "expiresAt": key.expires_at.isoformat() if key.expires_at else None,
        "projectId": key.project_id,
        "departmentId": key.department_id,
    }
