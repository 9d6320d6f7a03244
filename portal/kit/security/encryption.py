"""Secrets at rest: Fernet (AES-128-CBC with HMAC-SHA256) under keys that are not in the database, newest first.

What a secret belongs to is sealed in with it: a sealed text copied to another row does not open there.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

ID_LENGTH: Final = 12


class DecryptionFailed(Exception):
    """The text does not open here: an unknown key, a foreign row, or a changed text. Never says what it held."""


class NoEncryptionKey(Exception):
    """There is no key to seal with."""


class SecretBox:
    """Encrypts with the first key, decrypts with any. Raises NoEncryptionKey without keys, ValueError for a bad key."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise NoEncryptionKey("No encryption key for credentials is set.")
        self.key_id: Final = key_id(keys[0])
        self._keys: Final = MultiFernet([Fernet(key) for key in keys])

    def seal(self, secret: Mapping[str, str], *, bound_to: Sequence[str]) -> str:
        """The secret as a text for the database."""
        return self._keys.encrypt(json.dumps([list(bound_to), dict(secret)]).encode()).decode()

    def open(self, sealed: str, *, bound_to: Sequence[str]) -> dict[str, str]:
        """The secret, if it was sealed for exactly this. Raises DecryptionFailed."""
        try:
            belongs, secret = json.loads(self._keys.decrypt(sealed.encode()))
        except (InvalidToken, ValueError):
            raise DecryptionFailed(
                "The credential cannot be decrypted: its key is missing or the row was changed."
            ) from None
        if belongs != list(bound_to):
            raise DecryptionFailed("The credential was encrypted for another cluster or address.")
        return {str(name): str(value) for name, value in secret.items()}

    def renewed(self, sealed: str) -> str:
        """The same secret under the newest key. Raises DecryptionFailed."""
        try:
            return self._keys.rotate(sealed.encode()).decode()
        except (InvalidToken, ValueError):
            raise DecryptionFailed(
                "The credential cannot be decrypted: its key is missing or the row was changed."
            ) from None


def key_id(key: str) -> str:
    """A short name of a key that reveals nothing about it."""
    return hashlib.sha256(b"rung credential key\0" + key.encode()).hexdigest()[:ID_LENGTH]


def new_key() -> str:
    """A fresh key, as `RUNG_CREDENTIAL_KEYS` takes it."""
    return Fernet.generate_key().decode()
