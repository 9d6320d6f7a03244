"""Bearer tokens: readable by Run:ai's clients, believed only when genuine and alive."""

import base64
import json
import time
import uuid

import jwt
import pytest

from tenants.access.services import credentials
from tenants.access.services.credentials import Claims

CLAIMS = Claims(sort="service-account", subject_id=str(uuid.UUID(int=7)), stamp="0123456789abcdef")


def test_what_was_issued_is_read() -> None:
    assert credentials.decode_token(credentials.encode_token(CLAIMS).text) == CLAIMS


@pytest.mark.parametrize("attempt", range(20))
def test_the_payload_is_plain_base64_with_a_numeric_expiry(attempt: int) -> None:
    part = credentials.encode_token(CLAIMS).text.split(".")[1]
    assert not {"-", "_"} & set(part)
    payload = json.loads(base64.b64decode(part + "=" * (-len(part) % 4)))
    assert isinstance(payload["exp"], int)
    assert payload["exp"] == pytest.approx(time.time() + 86400, abs=5)


def forged(**changes: object) -> str:
    """A token with our key but other claims; None leaves a claim out."""
    now = int(time.time())
    said = {"sub": CLAIMS.subject_id, "sort": CLAIMS.sort, "stamp": "x"}
    good = {"iss": "rung", "aud": "rung-api", **said, "iat": now, "exp": now + 60}
    claims = {name: value for name, value in {**good, **changes}.items() if value is not None}
    return jwt.encode(claims, credentials._signing_key(), algorithm="HS256")


def unsigned() -> str:
    payload = jwt.decode(forged(), options={"verify_signature": False})
    return jwt.encode(payload, "", algorithm="none")


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param("abc", id="no token"),
        pytest.param("a.b.c", id="three dots of nothing"),
        pytest.param("\x00.\ud800.x", id="control characters"),
        pytest.param("x" * 100_000, id="huge"),
    ],
)
def test_other_text_is_no_token(token: str) -> None:
    assert credentials.decode_token(token) is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"exp": int(time.time()) - 1}, id="expired"),
        pytest.param({"exp": None}, id="never expires"),
        pytest.param({"iss": "else"}, id="another issuer"),
        pytest.param({"aud": "else"}, id="another audience"),
        pytest.param({"sub": None}, id="of nobody"),
        pytest.param({"stamp": None}, id="under no secret"),
        pytest.param({"sort": None}, id="of no sort"),
        pytest.param({"stamp": 7}, id="stamp of another type"),
        pytest.param({"iat": int(time.time()) + 3600}, id="dated in the future"),
    ],
)
def test_claims_must_all_be_right(changes: dict[str, object]) -> None:
    assert credentials.decode_token(forged()) is not None
    assert credentials.decode_token(forged(**changes)) is None


def test_t65_unsigned_tokens_are_refused() -> None:
    assert credentials.decode_token(unsigned()) is None


def test_a_token_of_another_installation_is_refused(settings: object) -> None:
    token = credentials.encode_token(CLAIMS).text
    settings.SECRET_KEY = "another-installation-0123456789-abcdefghijklmnop"
    assert credentials.decode_token(token) is None
