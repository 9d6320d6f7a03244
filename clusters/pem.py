"""Certificates and keys that somebody pasted: parsed, checked and written anew, so that only what was read is kept.

Pure. No message ever holds a part of what was read.
"""

import re
import ssl
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

LONGEST_BUNDLE: Final = 64 * 1024
LONGEST_KEY: Final = 8 * 1024
MOST_CERTIFICATES: Final = 20
NO_CERTIFICATE: Final = "This is no certificate in PEM form (-----BEGIN CERTIFICATE-----)."
_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_PRIVATE: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEYS: Final = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)


class BadPem(Exception):
    """A text that is not taken; `code` for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def authorities(text: str) -> str:
    """The certificates of authorities in a PEM text, written anew, if OpenSSL takes them. Raises BadPem.

    OpenSSL judges because it will use them; it takes serial numbers of zero, which tools for small clusters write.
    """
    _refuse_by_look(text)
    blocks = _BLOCK.findall(text)
    try:
        written = "".join(ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(block)) for block in blocks)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=written)
    except (ValueError, ssl.SSLError):
        raise BadPem("not_pem", NO_CERTIFICATE) from None
    if len(blocks) > MOST_CERTIFICATES:
        raise BadPem("too_many", f"{len(blocks)} certificates; {MOST_CERTIFICATES} are read.")
    return written


def certificates(text: str) -> str:
    """A client's certificate, with those that lead to its authority, written anew. Raises BadPem."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in _certificates(text))


def ends_at(certificate: str) -> datetime:
    """When the first certificate of a checked PEM text ends."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def private_key(text: str) -> str:
    """A private key without a passphrase, written anew as PKCS #8. Raises BadPem."""
    key = _private_key(text)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def belong_together(certificate: str, key: str) -> bool:
    """True when the key is that of the first certificate. Both were checked."""
    try:
        public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False
    ours = _private_key(key).public_key()
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return public.public_bytes(*form) == ours.public_bytes(*form)


def _refuse_by_look(text: str) -> None:
    if len(text) > LONGEST_BUNDLE:
        raise BadPem("too_large", f"Certificates of {len(text)} characters; {LONGEST_BUNDLE} are read.")
    if _PRIVATE.search(text):
        raise BadPem("private_key", "A private key stands among the certificates: remove it here.")


def _certificates(text: str) -> list[x509.Certificate]:
    _refuse_by_look(text)
    try:
        found = x509.load_pem_x509_certificates(text.encode())
        ends = [each.not_valid_after_utc for each in found]  # read lazily: a bad date shows only now
    except (ValueError, UnsupportedAlgorithm):
        raise BadPem("not_pem", NO_CERTIFICATE) from None
    if len(ends) > MOST_CERTIFICATES:
        raise BadPem("too_many", f"{len(found)} certificates; {MOST_CERTIFICATES} are read.")
    return found


def _private_key(text: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey:
    if len(text) > LONGEST_KEY:
        raise BadPem("too_large", f"A key of {len(text)} characters; {LONGEST_KEY} are read.")
    if "ENCRYPTED" in text:
        raise BadPem("encrypted", "The key is encrypted: Rung has no passphrase for it. Use one without.")
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadPem("not_pem", "This is no private key in PEM form (-----BEGIN PRIVATE KEY-----).") from None
    if not isinstance(key, _KEYS):
        raise BadPem("key_type", "Keys are taken of the kinds RSA, EC and Ed25519.")
    return key
