"""Validate a connection entered in a form: address, certificates, key and token. Pure.

Every problem is noted at its JSON pointer, in one reading; no message holds a secret.
"""

import base64
import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
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

from clusters.ports.connection import Connection, parse_server_url
from clusters.ports.gateway import AddressRefused
from portal.kit.errors import Problem, ValidationFailed

LONGEST_BUNDLE: Final = 64 * 1024
LONGEST_KEY: Final = 8 * 1024
MOST_CERTIFICATES: Final = 20
NO_CERTIFICATE: Final = "Not a PEM certificate (-----BEGIN CERTIFICATE-----)."
_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_PRIVATE: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEYS: Final = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)


class InvalidPem(Exception):
    """A text that is not taken; `code` for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def authorities(text: str) -> str:
    """The certificates of authorities in a PEM text, re-encoded, if OpenSSL accepts them. Raises BadPem.

    OpenSSL judges because it will use them; it takes serial numbers of zero, which tools for small clusters write.
    """
    _check_text(text)
    blocks = _BLOCK.findall(text)
    try:
        written = "".join(ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(block)) for block in blocks)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=written)
    except (ValueError, ssl.SSLError):
        raise InvalidPem("not_pem", NO_CERTIFICATE) from None
    if len(blocks) > MOST_CERTIFICATES:
        raise InvalidPem("too_many", f"{len(blocks)} certificates; the maximum is {MOST_CERTIFICATES}.")
    return written


def certificates(text: str) -> str:
    """A client's certificate, with its chain, re-encoded. Raises BadPem."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in _certificates(text))


def ends_at(certificate: str) -> datetime:
    """When the first certificate of a checked PEM text ends."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def private_key(text: str) -> str:
    """A private key without a passphrase, re-encoded as PKCS #8. Raises BadPem."""
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


def _check_text(text: str) -> None:
    if len(text) > LONGEST_BUNDLE:
        raise InvalidPem("too_large", f"The certificates have {len(text)} characters; the maximum is {LONGEST_BUNDLE}.")
    if _PRIVATE.search(text):
        raise InvalidPem("private_key", "The certificates contain a private key. Remove it.")


def _certificates(text: str) -> list[x509.Certificate]:
    _check_text(text)
    try:
        found = x509.load_pem_x509_certificates(text.encode())
        ends = [each.not_valid_after_utc for each in found]  # read lazily: a bad date shows only now
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidPem("not_pem", NO_CERTIFICATE) from None
    if len(ends) > MOST_CERTIFICATES:
        raise InvalidPem("too_many", f"{len(found)} certificates; the maximum is {MOST_CERTIFICATES}.")
    return found


def _private_key(text: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey:
    if len(text) > LONGEST_KEY:
        raise InvalidPem("too_large", f"The key has {len(text)} characters; the maximum is {LONGEST_KEY}.")
    if "ENCRYPTED" in text:
        raise InvalidPem("encrypted", "The key is encrypted. Use a key without a passphrase.")
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidPem("not_pem", "Not a PEM private key (-----BEGIN PRIVATE KEY-----).") from None
    if not isinstance(key, _KEYS):
        raise InvalidPem("key_type", "Use an RSA, EC or Ed25519 key.")
    return key


LONGEST_TOKEN: Final = 8192
TOKEN: Final = re.compile(r"[\x21-\x7e]+")
TLS_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*")
FORM: Final[Mapping[str, str]] = {
    "server": "/server",
    "ca": "/ca",
    "token": "/token",
    "tls_server_name": "/tls_server_name",
    "insecure": "/insecure",
    "credential": "/token",
}


@dataclass(frozen=True, slots=True)
class ConnectionFormData:
    """The parts as they were entered; the secret ones never show."""

    server: str
    ca: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    tls_server_name: str = ""
    insecure: bool = False


class ProblemCollector:
    """Collects what is wrong, each with its place."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._found: list[Problem] = []

    def add(self, part: str, code: str, message: str) -> None:
        """Note a problem of a part."""
        self._found.append(Problem(self._places.get(part, ""), code, message))

    def checked(self, part: str, check: Callable[[str], str], text: str) -> str:
        """The text as the check writes it; empty when there is none or it is refused, which is noted."""
        try:
            return check(text) if text else ""
        except InvalidPem as error:
            self.add(part, error.code, error.message)
        except AddressRefused as error:
            self.add(part, error.code, error.message)
        return ""

    def settle(self) -> None:
        """Raise ValidationFailed if anything was noted."""
        if self._found:
            raise ValidationFailed(self._found[0].message, code=self._found[0].code, problems=self._found)


def connection_from(
    entered: ConnectionFormData,
    *,
    now: datetime,
    places: Mapping[str, str] = FORM,
    allow_insecure: bool = False,
    needs_secret: bool = True,
) -> Connection:
    """The connection, if every part is valid and they fit. Raises ValidationFailed with a problem per part."""
    problems = ProblemCollector(places)
    if not entered.server:
        problems.add("server", "required", "The address of the API server is missing.")
    connection = Connection(
        server=problems.checked("server", lambda text: parse_server_url(text).url, entered.server.strip()),
        ca=problems.checked("ca", authorities, entered.ca),
        token=_token(entered.token.strip(), problems),
        certificate=problems.checked("certificate", certificates, entered.certificate),
        key=problems.checked("key", private_key, entered.key),
        tls_server_name=_tls_name(entered.tls_server_name.strip(), problems),
        insecure=entered.insecure,
    )
    _trust(entered, problems, allow_insecure=allow_insecure)
    _one_credential(entered, problems, needed=needs_secret)
    problems.settle()
    _living(connection, problems, now)
    problems.settle()
    return connection


def expiry_of(connection: Connection) -> datetime | None:
    """When the credential ends: the certificate's end or the token's `exp`; None when it does not say."""
    if connection.certificate:
        return ends_at(connection.certificate)
    claims = _claims(connection.token)
    moment = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(moment, bool) or not isinstance(moment, int | float) or not 0 < moment < 2**33:
        return None
    return datetime.fromtimestamp(moment, UTC)


def _claims(token: str) -> object:
    """What a JSON web token says; its signature is the API server's affair."""
    middle = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        return json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (ValueError, RecursionError):
        return None


def _token(token: str, problems: ProblemCollector) -> str:
    if token and (len(token) > LONGEST_TOKEN or not TOKEN.fullmatch(token)):
        problems.add("token", "invalid", f"A token must have at most {LONGEST_TOKEN} visible characters and no spaces.")
        return ""
    return token


def _tls_name(name: str, problems: ProblemCollector) -> str:
    if name and not TLS_NAME.fullmatch(name):
        problems.add("tls_server_name", "invalid", "The TLS server name must be a plain host name.")
    return name


def _trust(entered: ConnectionFormData, problems: ProblemCollector, *, allow_insecure: bool) -> None:
    """How to verify the server: by a certificate authority, or not at all where the operator allowed that."""
    if entered.insecure and not allow_insecure:
        problems.add(
            "insecure",
            "insecure",
            "Add the certificate authority (certificate-authority-data). Skipping verification requires the "
            "setting RUNG_ALLOW_INSECURE_CLUSTERS.",
        )
    elif entered.insecure and entered.ca:
        problems.add("insecure", "contradiction", "Use a certificate authority or skip verification, not both.")


def _one_credential(entered: ConnectionFormData, problems: ProblemCollector, *, needed: bool) -> None:
    pair = (bool(entered.certificate), bool(entered.key))
    if entered.token and any(pair):
        problems.add("credential", "two_credentials", "Use a token or a client certificate, not both.")
    elif any(pair) and not all(pair):
        problems.add("credential", "half_a_pair", "A client certificate and its key must be used together.")
    elif needed and not entered.token and not any(pair):
        problems.add("credential", "required", "No credential. Add a token, or a client certificate and key.")


def _living(connection: Connection, problems: ProblemCollector, now: datetime) -> None:
    if connection.certificate and not belong_together(connection.certificate, connection.key):
        problems.add("key", "foreign_key", "The key does not match the client certificate.")
    end = expiry_of(connection)
    if end is not None and end <= now:
        problems.add("credential", "expired", f"The credential expired on {end:%Y-%m-%d %H:%M} UTC. Create a new one.")
