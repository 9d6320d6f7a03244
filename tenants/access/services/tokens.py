"""Exchange a client id and secret for a bearer token (JWT), and find the subject of a token.

A token dies at once with its account or key, with the secret it was given out for, with the time either runs out, and
with the person whose key it is.

Claims are ASCII and free of `?`, `>` and `~`, and `exp` is a number: clients of Run:ai decode the middle part with
the plain base64 alphabet and read it.

Tries of secrets over REST: a wrong one is counted, a right one is not.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import jwt
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext as _

from portal.audit.services import record, record_refusal
from portal.kit.db.read_cache import cached_read
from portal.kit.errors import BadRequest
from portal.kit.security import rate_limit
from portal.kit.security.actors import OVER_REST, Actor, ActorKind, CredentialLimits, RequestOrigin
from tenants.access.models import AccessKey, ServiceAccount
from tenants.access.services import secret_hashing

ACCOUNT: Final = "service-account"


KEY: Final = "access-key"


UNKNOWN_CLIENT: Final = secret_hashing.hash_generated("")


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
    genuine = secret_hashing.matches(secret, row.secret_hash if row else UNKNOWN_CLIENT)
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
    stamp = secret_hashing.stamp_of(row.secret_hash)
    return Subject(ActorKind.SERVICE_ACCOUNT, str(row.pk), row.name, stamp, row.expires_at)


@cached_read
def _person(key: uuid.UUID) -> Subject | None:
    row = AccessKey.objects.filter(pk=key, owner__is_active=True).select_related("owner").order_by().first()
    if row is None:
        return None
    limits = CredentialLimits(str(row.pk), row.read_only, row.project_id, row.department_id)
    stamp = secret_hashing.stamp_of(row.secret_hash)
    return Subject(ActorKind.USER, str(row.owner_id), row.owner.username, stamp, row.expires_at, limits)


_SORTS: Final[Mapping[str, Callable[[uuid.UUID], Subject | None]]] = {ACCOUNT: _account, KEY: _person}


LIFETIME: Final = 86_400


ALGORITHM: Final = "HS256"


ISSUER: Final = "rung"


AUDIENCE: Final = "rung-api"


LONGEST: Final = 4096


_REQUIRED: Final = ["exp", "iat", "sub", "aud", "iss"]


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says: whose it is, and under which secret it was given out."""

    sort: str
    """What the id is of: one word of `tenants.access.services.tokens`."""
    subject_id: str
    stamp: str


def encode_token(claims: Claims, *, until: datetime | None = None) -> Token:
    """A token for `LIFETIME` seconds, but never beyond `until`."""
    now = int(time.time())
    expires = now + LIFETIME if until is None else min(now + LIFETIME, int(until.timestamp()))
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
    return Token(jwt.encode(payload, _key(), algorithm=ALGORITHM), expires - now)


def decode_token(token: str) -> Claims | None:
    """What a genuine, living token says; None for every other text."""
    if len(token) > LONGEST:
        return None
    try:
        payload: dict[str, Any] = jwt.decode(
            token, _key(), algorithms=[ALGORITHM], audience=AUDIENCE, issuer=ISSUER, options={"require": _REQUIRED}
        )
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    said = [payload[name] for name in ("sort", "sub", "stamp") if isinstance(payload.get(name), str)]
    return Claims(*said) if len(said) == 3 else None


def _key() -> bytes:
    return salted_hmac("tenants.access.services.tokens", "v1", algorithm="sha256").digest()


@contextmanager
def throttle_guess(what: str, *, name: str, address: str) -> Iterator[None]:
    """One try of `what` for a name from an address: TooMany before it is looked at; given back unless it fails."""
    keys = {"name": f"{address} {name}", "address": address}
    for scope, key in keys.items():
        tries, seconds = settings.RUNG_SIGN_IN_LIMITS[scope]
        rate_limit.hit(f"{what} {scope}", key, limit=tries, per=seconds)
    yield
    for scope, key in keys.items():
        rate_limit.refund(f"{what} {scope}", key)
