"""What somebody entered to reach a cluster, from a kubeconfig or a form, becomes a checked `Connection`. Pure.

Every problem is noted at its JSON pointer, in one reading; no message holds a secret.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from clusters.addresses import server_of
from clusters.connections import Connection
from clusters.errors import AddressRefused
from clusters.pem import BadPem, authorities, belong_together, certificates, ends_at, private_key
from portal.core.errors import Problem, Refused

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
class Entered:
    """The parts as they were entered; the secret ones never show."""

    server: str
    ca: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    tls_server_name: str = ""
    insecure: bool = False


class Problems:
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
        except BadPem as error:
            self.add(part, error.code, error.message)
        except AddressRefused as error:
            self.add(part, error.code, error.message)
        return ""

    def settle(self) -> None:
        """Raise Refused if anything was noted."""
        if self._found:
            raise Refused(self._found[0].message, code=self._found[0].code, problems=self._found)


def connection_from(
    entered: Entered,
    *,
    now: datetime,
    places: Mapping[str, str] = FORM,
    allow_insecure: bool = False,
    needs_secret: bool = True,
) -> Connection:
    """The connection, if every part is right and they fit each other. Raises Refused with a problem per part."""
    problems = Problems(places)
    if not entered.server:
        problems.add("server", "required", "The address of the API server is missing.")
    connection = Connection(
        server=problems.checked("server", lambda text: server_of(text).url, entered.server.strip()),
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


def _token(token: str, problems: Problems) -> str:
    if token and (len(token) > LONGEST_TOKEN or not TOKEN.fullmatch(token)):
        problems.add("token", "invalid", f"A token has up to {LONGEST_TOKEN} visible characters and no space.")
        return ""
    return token


def _tls_name(name: str, problems: Problems) -> str:
    if name and not TLS_NAME.fullmatch(name):
        problems.add("tls_server_name", "invalid", "The TLS server name must be a plain host name.")
    return name


def _trust(entered: Entered, problems: Problems, *, allow_insecure: bool) -> None:
    """Whom to believe: a certificate authority, or nobody's word where the operator allowed that."""
    if entered.insecure and not allow_insecure:
        problems.add(
            "insecure",
            "insecure",
            "The server's certificate must be checked: give its authority (certificate-authority-data)."
            " Only the operator's setting RUNG_ALLOW_INSECURE_CLUSTERS allows otherwise.",
        )
    elif entered.insecure and entered.ca:
        problems.add("insecure", "contradiction", "Give an authority or skip the check, not both.")


def _one_credential(entered: Entered, problems: Problems, *, needed: bool) -> None:
    pair = (bool(entered.certificate), bool(entered.key))
    if entered.token and any(pair):
        problems.add("credential", "two_credentials", "Give a token or a client certificate, not both.")
    elif any(pair) and not all(pair):
        problems.add("credential", "half_a_pair", "A client certificate needs its key, and a key its certificate.")
    elif needed and not entered.token and not any(pair):
        problems.add("credential", "required", "There is no credential: give a token or a client certificate and key.")


def _living(connection: Connection, problems: Problems, now: datetime) -> None:
    if connection.certificate and not belong_together(connection.certificate, connection.key):
        problems.add("key", "foreign_key", "The key does not belong to the client certificate.")
    end = expiry_of(connection)
    if end is not None and end <= now:
        problems.add("credential", "expired", f"The credential ended on {end:%Y-%m-%d %H:%M} UTC: make a new one.")
