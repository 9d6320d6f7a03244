"""Bearer tokens of service accounts: JWT, signed with a key derived from the installation's secret key.

Claims are ASCII and free of `?`, `>` and `~`, and `exp` is a number: clients of Run:ai decode the middle part with the
plain base64 alphabet and read it.
"""

import time
import uuid
from dataclasses import dataclass
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

    account_id: str
    stamp: str


def issue(claims: Claims) -> str:
    """A token for the next `LIFETIME` seconds."""
    now = int(time.time())
    payload = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": claims.account_id,
        "stamp": claims.stamp,
        "jti": uuid.uuid4().hex,
        "iat": now,
        "exp": now + LIFETIME,
    }
    return jwt.encode(payload, _key(), algorithm=ALGORITHM)


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
    account_id, stamp = payload["sub"], payload.get("stamp")
    return Claims(account_id, stamp) if isinstance(account_id, str) and isinstance(stamp, str) else None


def _key() -> bytes:
    return salted_hmac("tenants.tokens", "v1", algorithm="sha256").digest()
