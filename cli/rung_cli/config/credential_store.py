"""Credentials of profiles, in `credentials.json` of mode 0600: for which address, and never in the configuration.

Where the machine has a keyring, secret and token are in it and the file says so.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from rung_cli.config import keyrings
from rung_cli.config.files import check_owner, folder, read, shut, write_private
from rung_cli.errors import UsageError
from rung_cli.output.stderr import warn

HIDDEN: Final = ("secret", "token")
IN_KEYRING: Final = "keyring"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What signs requests to one origin. `secret` is empty where only the token is stored."""

    origin: str
    client_id: str
    secret: str = ""
    token: str = ""
    expires: float = 0.0

    def __repr__(self) -> str:
        return f"Credentials({self.origin!r}, {self.client_id!r}, …)"

    def with_token(self, token: str, expires: float) -> "Credentials":
        """The same with a newer token."""
        return replace(self, token=token, expires=expires)


def path_of() -> Path:
    """Where they are."""
    return folder() / "credentials.json"


def load(profile: str) -> Credentials | None:
    """What is stored for the profile."""
    found = _all().get(profile)
    try:
        if found and found.pop(IN_KEYRING, False):
            found |= json.loads(keyrings.take(profile, folder()))
        return Credentials(**found) if found else None
    except (TypeError, ValueError):
        raise UsageError(f"{path_of()} is invalid.", hint="Sign in again: rung login") from None


def save(profile: str, credentials: Credentials) -> None:
    """Store them, in place of the previous ones."""
    stored = asdict(credentials)
    if keyrings.put(profile, folder(), json.dumps({name: stored[name] for name in HIDDEN})):
        stored |= {**dict.fromkeys(HIDDEN, ""), IN_KEYRING: True}
    _write({**_all(), profile: stored})


def origins() -> dict[str, str]:
    """The address that each profile is signed in to; no secret is read."""
    return {name: str(each.get("origin") or "") for name, each in _all().items()}


def forget(profile: str) -> bool:
    """Drop them; False where there were none."""
    stored = _all()
    if (dropped := stored.pop(profile, None)) is None:
        return False
    if dropped.get(IN_KEYRING):
        keyrings.drop(profile, folder())
    _write(stored)
    return True


def _all() -> dict[str, dict[str, Any]]:
    path = path_of()
    check_owner(path)
    if shut(path):
        warn(f"{path} was readable by other users. Its mode is now 0600. Rotate the secret in the portal.")
    try:
        found = json.loads(read(path) or "{}")
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise UsageError(f"{path} is invalid.", hint="Remove it and sign in again: rung login")
    return found


def _write(stored: dict[str, dict[str, Any]]) -> None:
    write_private(path_of(), json.dumps(stored, indent=1))
