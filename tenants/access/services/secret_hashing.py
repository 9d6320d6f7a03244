"""Secrets of service accounts: made, hashed, compared. Only hashes are stored.

A generated secret has 256 random bits, so one SHA-256 is enough and cheap for every exchange. A secret that a person
chose may be guessed, so it gets the password hasher of Django.
"""

import hashlib
import secrets
from typing import Final

from django.contrib.auth.hashers import check_password, make_password
from django.utils.crypto import constant_time_compare

RANDOM_BYTES: Final = 32
LONGEST: Final = 512
_FAST: Final = "sha256$"


def generate() -> str:
    """A new secret of 256 random bits."""
    return secrets.token_urlsafe(RANDOM_BYTES)


def hash_generated(secret: str) -> str:
    """For secrets of `generate` only."""
    return _FAST + hashlib.sha256(secret.encode()).hexdigest()


def hash_chosen(secret: str) -> str:
    """For secrets that somebody thought up."""
    return make_password(secret)


def matches(secret: str, stored: str) -> bool:
    """Is this the secret behind the hash? Takes the same time wherever they differ."""
    if len(secret) > LONGEST or not secret.isprintable():
        return False
    if stored.startswith(_FAST):
        return constant_time_compare(hash_generated(secret), stored)
    return check_password(secret, stored)


def stamp_of(stored: str) -> str:
    """A short fingerprint of the hash: tokens carry it, so that they die with their secret."""
    return hashlib.sha256(stored.encode()).hexdigest()[:16]
