"""Credentials: access keys of users, secrets of keys and service accounts, and the bearer tokens (JWT) given for them.

Only hashes of secrets are stored. A generated secret has 256 random bits, so one SHA-256 is enough and cheap for
every exchange. A secret that a person chose may be guessed, so it gets the password hasher of Django.

A user manages their own keys alone; those who look at access list all keys, those who manage it revoke them.

A token ends with its account or key, with the secret it was given for, when either expires, and with the owner of
its key. Claims are ASCII and free of `?`, `>` and `~`, and `exp` is a number: clients of Run:ai decode the middle
part with the plain base64 alphabet and read it. Wrong secrets sent over REST are counted, right ones are not.
"""

import hashlib
import secrets
import secrets as randomness
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import jwt
from django.contrib.auth.hashers import check_password, make_password
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext as _

from portal.audit.services import record, record_refusal
from portal.kit.db.read_cache import cached_read
from portal.kit.db.validation import unique_or_conflict, validate_future, validate_instance
from portal.kit.errors import BadRequest, Conflict, Forbidden, NotFound
from portal.kit.security import rate_limit
from portal.kit.security.actors import OVER_REST, Actor, ActorKind, CredentialLimits, RequestOrigin
from tenants.access.models import AccessKey, ServiceAccount, User
from tenants.access.rules import Permission
from tenants.access.selectors import require
from tenants.access.services.access_rules import require_outranks
from tenants.organisation.models import Department, Project

RANDOM_BYTES: Final = 32
LONGEST_SECRET: Final = 512
_FAST: Final = "sha256$"


def generate_secret() -> str:
    """A new secret of 256 random bits."""
    return secrets.token_urlsafe(RANDOM_BYTES)


def hash_generated_secret(secret: str) -> str:
    """For secrets of `generate_secret` only."""
    return _FAST + hashlib.sha256(secret.encode()).hexdigest()


def hash_chosen_secret(secret: str) -> str:
    """For secrets that a person chose."""
    return make_password(secret)


def secret_matches(secret: str, stored: str) -> bool:
    """Is this the secret behind the hash? Takes the same time wherever they differ."""
    if len(secret) > LONGEST_SECRET or not secret.isprintable():
        return False
    if stored.startswith(_FAST):
        return constant_time_compare(hash_generated_secret(secret), stored)
    return check_password(secret, stored)


def secret_stamp(stored: str) -> str:
    """A short fingerprint of the hash: tokens carry it, so that they die with their secret."""
    return hashlib.sha256(stored.encode()).hexdigest()[:16]


MOST_KEYS: Final = 100
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
def create_access_key(
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
    shown = generate_secret()
    key = AccessKey(
        owner=User.objects.select_for_update().get(pk=int(actor.id)),
        name=name,
        client_id=f"{name}.{randomness.token_hex(6)}",
        secret_hash=hash_generated_secret(shown),
        created_by=actor.name,
        expires_at=validate_future("/expiresAt", expires_at),
        read_only=read_only,
        project=project,
        department=department,
    )
    validate_instance(key, exclude=["client_id"])
    _check_not_wider(actor, key)
    if AccessKey.objects.filter(owner=key.owner).count() >= MOST_KEYS:
        raise Conflict(
            _("You have the maximum of %(most)s keys. Revoke one first.") % {"most": MOST_KEYS}, code="too_many_keys"
        )
    with unique_or_conflict("/name"):
        key.save()
    record(actor, "access-key.create", key, detail=_audit_detail(key))
    return key, shown


@transaction.atomic
def rotate_access_key(*, key: AccessKey, actor: Actor) -> str:
    """A new secret for one's own key, shown once. The old one and every token given out for it stop working."""
    row = _locked_key(keys_of(actor), key)
    _check_not_wider(actor, row)
    shown = generate_secret()
    row.secret_hash = hash_generated_secret(shown)
    row.save(update_fields=["secret_hash"])
    record(actor, "access-key.rotate", row)
    return shown


@transaction.atomic
def revoke_own_key(*, key: AccessKey, actor: Actor) -> None:
    """Take one's own key away; it and its tokens stop working at once."""
    row = _locked_key(keys_of(actor), key)
    _check_not_wider(actor, row)
    record(actor, "access-key.revoke", row, detail=_audit_detail(row))
    row.delete()


@transaction.atomic
def revoke_any_key(*, key: AccessKey, actor: Actor) -> None:
    """Revoke any user's key. Denied for those who do not manage access, and for keys of users with more permissions."""
    row = _locked_key(all_keys(actor), key)
    require_outranks(actor, row.owner)
    record(actor, "access-key.revoke", row, detail={**_audit_detail(row), "owner": row.owner.username})
    row.delete()


def _locked_key(keys: QuerySet[AccessKey], key: AccessKey) -> AccessKey:
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
    """Else a stolen narrow or short-lived key could create a better one."""
    if actor.limits is None or not actor.limits.key:
        return
    own = AccessKey.objects.filter(pk=actor.limits.key).first()
    if own is None:
        raise NotFound
    outlives = own.expires_at is not None and (key.expires_at is None or key.expires_at > own.expires_at)
    if outlives or (own.read_only and not key.read_only) or not _key_covers(own, key):
        raise Forbidden(
            _("Your current access key has a narrower scope or expires sooner than this one."), code="wider_key"
        )


def _key_covers(own: AccessKey, key: AccessKey) -> bool:
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


ACCOUNT: Final = "service-account"
KEY: Final = "access-key"
UNKNOWN_CLIENT: Final = hash_generated_secret("")


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
    limits: CredentialLimits | None = None

    def actor(self, arrival: RequestOrigin = OVER_REST) -> Actor:
        """The subject as it acts over REST."""
        return Actor(self.kind, self.id, self.name, limits=self.limits, **arrival)


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was given out, and the seconds it lives."""

    text: str
    seconds: int


def exchange(client_id: str, secret: str, *, arrival: RequestOrigin = OVER_REST) -> Token:
    """A token for the right secret. BadRequest for everything else, always with the same words; both are recorded."""
    row = _holder_of(client_id)
    genuine = secret_matches(secret, row.secret_hash if row else UNKNOWN_CLIENT)
    subject = subject_of(row) if row and genuine else None
    if row is None or subject is None or _over(subject):
        refusal = BadRequest(_("Wrong client id or secret."), code="invalid_client")
        stranger = Actor(ActorKind.SERVICE_ACCOUNT, "", "unknown", **arrival)
        record_refusal(stranger, "session.start", refusal, entity=row, entity_type="" if row else "serviceaccount")
        raise refusal
    with transaction.atomic():
        type(row)._default_manager.filter(pk=row.pk).update(last_login=timezone.now())
        record(subject.actor(arrival), "session.start", row)
    return encode_token(Claims(_sort_of(row), str(row.pk), subject.stamp), until=subject.expires_at)


def subject_of_token(token: str) -> Subject | None:
    """The subject behind a bearer token as it is now; None once it is gone, shut out, over or has another secret."""
    claims = decode_token(token)
    if claims is None or (read := _SORTS.get(claims.sort)) is None:
        return None
    try:
        key = uuid.UUID(claims.subject_id)
    except ValueError:
        return None
    subject = read(key)
    if subject is None or _over(subject) or not constant_time_compare(claims.stamp, subject.stamp):
        return None
    return subject


def subject_of(row: ServiceAccount | AccessKey) -> Subject | None:
    """Who an account or a key speaks for; None while it is shut out."""
    return _SORTS[_sort_of(row)](row.pk)


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


@cached_read
def _account(key: uuid.UUID) -> Subject | None:
    row = ServiceAccount.objects.filter(pk=key, enabled=True).order_by().first()
    if row is None:
        return None
    stamp = secret_stamp(row.secret_hash)
    return Subject(ActorKind.SERVICE_ACCOUNT, str(row.pk), row.name, stamp, row.expires_at)


@cached_read
def _person(key: uuid.UUID) -> Subject | None:
    row = AccessKey.objects.filter(pk=key, owner__is_active=True).select_related("owner").order_by().first()
    if row is None:
        return None
    limits = CredentialLimits(str(row.pk), row.read_only, row.project_id, row.department_id)
    stamp = secret_stamp(row.secret_hash)
    return Subject(ActorKind.USER, str(row.owner_id), row.owner.username, stamp, row.expires_at, limits)


_SORTS: Final[Mapping[str, Callable[[uuid.UUID], Subject | None]]] = {ACCOUNT: _account, KEY: _person}


TOKEN_SECONDS: Final = 86_400
ALGORITHM: Final = "HS256"
ISSUER: Final = "rung"
AUDIENCE: Final = "rung-api"
LONGEST_TOKEN: Final = 4096
_REQUIRED: Final = ["exp", "iat", "sub", "aud", "iss"]


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says: whose it is, and under which secret it was given out."""

    sort: str
    """What the id is of: one word of `tenants.access.services.credentials`."""
    subject_id: str
    stamp: str


def encode_token(claims: Claims, *, until: datetime | None = None) -> Token:
    """A token for `TOKEN_SECONDS` seconds, but never beyond `until`."""
    now = int(time.time())
    expires = now + TOKEN_SECONDS if until is None else min(now + TOKEN_SECONDS, int(until.timestamp()))
    payload = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": claims.subject_id,
        "sort": claims.sort,
        "stamp": claims.stamp,
        "jti": uuid.uuid4().hex,
        "iat": now,
        "exp": expires,
    }
    return Token(jwt.encode(payload, _signing_key(), algorithm=ALGORITHM), expires - now)


def decode_token(token: str) -> Claims | None:
    """What a genuine, living token says; None for every other text."""
    if len(token) > LONGEST_TOKEN:
        return None
    try:
        payload: dict[str, Any] = jwt.decode(
            token,
            _signing_key(),
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            options={"require": _REQUIRED},
        )
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    parts = [payload[name] for name in ("sort", "sub", "stamp") if isinstance(payload.get(name), str)]
    return Claims(*parts) if len(parts) == 3 else None


def _signing_key() -> bytes:
    return salted_hmac("tenants.access.services.credentials", "v1", algorithm="sha256").digest()


@contextmanager
def throttle_guess(what: str, *, name: str, address: str) -> Iterator[None]:
    """Count a try of `what` before the secret is checked; take it back if the block ends without an exception.

    Raises TooManyRequests if the name from this address, or the address, is over its limit.
    """
    keys = [("name", f"{address} {name}"), ("address", address)]
    rate_limit.count_try(keys, what=what)
    yield
    rate_limit.refund_try(keys, what=what)
