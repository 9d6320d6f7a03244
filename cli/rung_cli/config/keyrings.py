"""The keyring of this machine, where the optional library `keyring` is installed and has one; else there is none.

A keyring that keeps what it is given in plain text counts as none: the file of mode 0600 is not worse, and simpler.
"""

import importlib
from pathlib import Path
from typing import Any, Final

from rung_cli.errors import NotSignedIn
from rung_cli.output.stderr import warn

SERVICE: Final = "rung"
PROTECTING: Final = 1
"""The library gives backends that protect nothing, or that are none, a priority below this."""


def put(profile: str, folder: Path, text: str) -> bool:
    """Keep a text; False where there is no keyring, or it does not take it."""
    if (ring := _ring()) is None:
        return False
    try:
        ring.set_password(SERVICE, _name(profile, folder), text)
    except ring.errors.KeyringError as error:
        warn(f"The keyring rejected the secret ({error}). It is stored in the file instead.")
        return False
    return True


def take(profile: str, folder: Path) -> str:
    """The stored text. NotSignedIn where it cannot be read."""
    ring = _ring()
    try:
        found = ring.get_password(SERVICE, _name(profile, folder)) if ring else None
    except ring.errors.KeyringError as error:
        raise NotSignedIn(f"The keyring is locked: {error}.", hint="Unlock it, or sign in again: rung login") from None
    if not isinstance(found, str):
        text = f"The secret of profile {profile} is missing from the keyring."
        raise NotSignedIn(text, hint="Sign in again: rung login")
    return found


def drop(profile: str, folder: Path) -> None:
    """Take it out, if it is there."""
    if (ring := _ring()) is None:
        return
    try:
        ring.delete_password(SERVICE, _name(profile, folder))
    except ring.errors.KeyringError as error:
        warn(f"The secret of profile {profile} could not be removed from the keyring: {error}.")


def _ring() -> Any:
    """The library, if it is there and has a keyring that protects."""
    try:
        ring = importlib.import_module("keyring")
        importlib.import_module("keyring.errors")
    except ImportError:
        return None
    return ring if ring.get_keyring().priority >= PROTECTING else None


def _name(profile: str, folder: Path) -> str:
    """Profiles of different folders are different ones."""
    return f"{profile} of {folder}"
