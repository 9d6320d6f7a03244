"""How a channel of mail is configured in tests."""

from typing import Any


def config(port: int, **more: Any) -> dict[str, Any]:
    """Without a password and without TLS; the rest as told."""
    plain = {"smtpHost": "127.0.0.1", "smtpPort": port, "authType": "auth_none", "smtpTlsEnabled": False}
    return {**plain, "from": "rung@example.org", **more}


def signing_in(**more: Any) -> dict[str, Any]:
    """With a user, over TLS."""
    more = {"authType": "auth_login", "smtpTlsEnabled": True, "username": "u", **more}
    return config(587, **more)
