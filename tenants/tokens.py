"""Bearer tokens of service accounts and access keys: JWT, signed with a key derived from the installation's secret key.

Claims are ASCII and free of `?`, `>` and `~`, and `exp` is a number: clients of Run:ai decode the middle part with the
plain base64 alphabet and read it.
"""

import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import jwt
from django.utils.crypto import salted_hmac

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
    """What the id is of: one word of `tenants.services.token_exchange`."""
    subject_id: str
    stamp: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was given out, and the seconds it lives."""

    text: str
    seconds: int


def issue(claims: Claims, *, until: datetime | None = None) -> Token:
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


def read(token: str) -> Claims | None:
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
    return salted_hmac("tenants.tokens", "v1", algorithm="sha256").digest()
