"""A client id and its secret for a bearer token, and a token for its subject as it is now: one way for service
accounts and for people's access keys.

A token dies at once with its account or key, with the secret it was given out for, with the time either runs out, and
with the person whose key it is.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext as _

from portal.audit.services import record, record_refusal
from portal.core.actors import OVER_REST, Actor, ActorKind, Arrival, Limits
from portal.core.errors import BadRequest
from portal.core.marks import Kept
from tenants import secrets, tokens
from tenants.models import AccessKey, ServiceAccount

ACCOUNT: Final = "service-account"
KEY: Final = "access-key"
UNKNOWN_CLIENT: Final = secrets.hash_generated("")


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a token speaks for: a service account, or a person by one of their keys."""

    kind: ActorKind
    id: str
    """Of the account or the person, never of the key."""
    name: str
    stamp: str
    """Of the secret that counts now."""
    expires_at: datetime | None
    limits: Limits | None = None

    def actor(self, arrival: Arrival = OVER_REST) -> Actor:
        """The subject as it acts over REST."""
        return Actor(self.kind, self.id, self.name, limits=self.limits, **arrival)


def exchange(client_id: str, secret: str, *, arrival: Arrival = OVER_REST) -> tokens.Token:
    """A token for the right secret. BadRequest for everything else, always with the same words; both are recorded."""
    row = _holder_of(client_id)
    genuine = secrets.matches(secret, row.secret_hash if row else UNKNOWN_CLIENT)
    subject = subject_of(row) if row and genuine else None
    if row is None or subject is None or _over(subject):
        refusal = BadRequest(_("The client id or the secret is wrong."), code="invalid_client")
        stranger = Actor(ActorKind.SERVICE_ACCOUNT, "", "unknown", **arrival)
        record_refusal(stranger, "session.start", refusal, entity=row, entity_type="" if row else "serviceaccount")
        raise refusal
    with transaction.atomic():
        type(row)._default_manager.filter(pk=row.pk).update(last_login=timezone.now())
        record(subject.actor(arrival), "session.start", row)
    return tokens.issue(tokens.Claims(_sort_of(row), str(row.pk), subject.stamp), until=subject.expires_at)


def subject_of_token(token: str) -> Subject | None:
    """The subject behind a bearer token as it is now; None once it is gone, shut out, over or has another secret."""
    claims = tokens.read(token)
    if claims is None or (read := _SORTS.get(claims.sort)) is None:
        return None
    try:
        key = uuid.UUID(claims.subject_id)
    except ValueError:
        return None
    subject = _subjects.of((claims.sort, key), lambda: read(key))
    if subject is None or _over(subject) or not constant_time_compare(claims.stamp, subject.stamp):
        return None
    return subject


def subject_of(row: ServiceAccount | AccessKey) -> Subject | None:
    """Who an account or a key speaks for; None while it is shut out."""
    return _SORTS[_sort_of(row)](row.pk)


_subjects: Final = Kept[Subject | None]("access")


def _holder_of(client_id: str) -> ServiceAccount | AccessKey | None:
    """Keys have a dot in their client id, accounts' names cannot."""
    if not client_id.isprintable():
        return None
    if "." in client_id:
        return AccessKey.objects.filter(client_id=client_id).first()
    return ServiceAccount.objects.filter(client_id=client_id).first()


def _over(subject: Subject) -> bool:
    return subject.expires_at is not None and subject.expires_at <= timezone.now()


def _sort_of(row: ServiceAccount | AccessKey) -> str:
    return KEY if isinstance(row, AccessKey) else ACCOUNT


def _account(key: uuid.UUID) -> Subject | None:
    row = ServiceAccount.objects.filter(pk=key, enabled=True).order_by().first()
    if row is None:
        return None
    stamp = secrets.stamp_of(row.secret_hash)
    return Subject(ActorKind.SERVICE_ACCOUNT, str(row.pk), row.name, stamp, row.expires_at)


def _person(key: uuid.UUID) -> Subject | None:
    row = AccessKey.objects.filter(pk=key, owner__is_active=True).select_related("owner").order_by().first()
    if row is None:
        return None
    limits = Limits(str(row.pk), row.read_only, row.project_id, row.department_id)
    stamp = secrets.stamp_of(row.secret_hash)
    return Subject(ActorKind.USER, str(row.owner_id), row.owner.username, stamp, row.expires_at, limits)


_SORTS: Final[Mapping[str, Callable[[uuid.UUID], Subject | None]]] = {ACCOUNT: _account, KEY: _person}
