"""Secrets of second factors lie in the database sealed with a key made of the secret key, never in the clear."""

import base64
from typing import Final

from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

PURPOSE: Final = b"rung second factor"


class EncryptedSecretsAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth carries no types
    """allauth's hook for secrets at rest. What an older secret key sealed can be read while that key is still named."""

    def encrypt(self, text: str) -> str:
        """Seal with the newest key."""
        return _sealer().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Open; empty, which no code fits, if no key of ours does."""
        try:
            return _sealer().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            return ""


def _sealer() -> MultiFernet:
    return MultiFernet([_key(secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


def _key(secret: str) -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=PURPOSE).derive(secret.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
