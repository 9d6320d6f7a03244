"""A mail channel's configuration, checked field by field, and the connection to its server."""

import re
import smtplib
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.headerregistry import Address
from ipaddress import ip_address
from threading import Timer
from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from clusters.ports.connection import parse_server_url, refused_because, system_resolver
from clusters.ports.gateway import AddressRefused, ClusterUnreachable
from portal.kit.errors import Problem
from workloads.notifications.selectors import is_mail_address

TYPES: Final = ("email",)


SIGN_IN: Final = ("auth_login", "auth_plain")


NO_SIGN_IN: Final = ("auth_none", "")


SUBJECT: Final = "Run:ai notification - {{ .category }} {{ .reason }}"


MOST_RECIPIENTS: Final = 20


_PLACE: Final = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")


_PLACES: Final = ("category", "reason", "workload", "project")


_DEFAULTS: Final[Mapping[str, Any]] = {
    "username": "",
    "smtpHost": "",
    "smtpPort": 587,
    "from": "",
    "authType": "auth_login",
    "smtpTlsEnabled": True,
    "recipients": [],
    "fromDisplayName": "Rung",
    "directNotifications": True,
    "subject": SUBJECT,
}


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with its defaults, without the password and what is always absent."""
    return {key: default if given.get(key) is None else given[key] for key, default in _DEFAULTS.items()}


def problems_of(config: Mapping[str, Any], given: Mapping[str, Any], password: str) -> Sequence[Problem]:
    """All that is wrong with a completed configuration, with pointers."""
    found = [*_host_problems(config["smtpHost"]), *_text_problems(config), *_address_problems(config)]
    if given.get("apiToken"):
        found.append(_problem("apiToken", "unsupported", "Not supported by mail servers."))
    if given.get("useAttachments"):
        found.append(_problem("useAttachments", "unsupported", "Attachments are not supported. Remove this field."))
    return [*found, *_sign_in_problems(config, password)]


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server and who signs in there."""

    host: str
    port: int
    tls: bool
    username: str = ""
    password: str = field(default="", repr=False)


def server_for(config: Mapping[str, Any], password: str) -> MailServer:
    signs_in = config["authType"] in SIGN_IN
    return MailServer(
        config["smtpHost"],
        config["smtpPort"],
        config["smtpTlsEnabled"],
        config["username"] if signs_in else "",
        password if signs_in else "",
    )


def subject_of(config: Mapping[str, Any], values: Mapping[str, str]) -> str:
    """The subject with its places filled in; what fills them is never read as a place itself."""
    return _PLACE.sub(lambda match: values.get(match[1], ""), config["subject"])


def _problem(field: str, code: str, message: str, allowed: Sequence[str] = ()) -> Problem:
    return Problem(f"/config/{field}", code, message, tuple(allowed))


def _host_problems(host: str) -> list[Problem]:
    if not host:
        return [_problem("smtpHost", "required", "Enter the mail server.")]
    try:
        found = parse_server_url(f"https://[{host}]" if ":" in host else f"https://{host}")
    except AddressRefused:
        found = None
    good = found is not None and found.port == 443 and not found.path
    return [] if good else [_problem("smtpHost", "bad_host", "Enter a host name or an IP address.")]


def _text_problems(config: Mapping[str, Any]) -> list[Problem]:
    texts = ("fromDisplayName", "subject", "username")
    found = [
        _problem(name, "control_character", "Must be one line of printable text.")
        for name in texts
        if not config[name].isprintable()
    ]
    if unknown := set(_PLACE.findall(config["subject"])) - set(_PLACES):
        named = ", ".join(sorted(unknown))[:100]
        found.append(_problem("subject", "unknown_place", f"Unknown placeholder {named}.", _PLACES))
    return found


def _address_problems(config: Mapping[str, Any]) -> list[Problem]:
    sender = _problem("from", "bad_address", "Enter one e-mail address.")
    found = [] if is_mail_address(config["from"]) else [sender]
    if len(config["recipients"]) > MOST_RECIPIENTS:
        found.append(_problem("recipients", "too_many", f"At most {MOST_RECIPIENTS} addresses."))
    found += [
        _problem(f"recipients/{place}", "bad_address", f"{each[:80]!r} is not an e-mail address.")
        for place, each in enumerate(config["recipients"][:MOST_RECIPIENTS])
        if not is_mail_address(each)
    ]
    if not config["directNotifications"] and not config["recipients"]:
        found.append(_problem("recipients", "required", "Add recipients or enable direct notifications."))
    return found


def _sign_in_problems(config: Mapping[str, Any], password: str) -> list[Problem]:
    if config["authType"] in NO_SIGN_IN:
        return []
    found = [] if config["smtpTlsEnabled"] else [_problem("smtpTlsEnabled", "required", "Passwords require TLS.")]
    if not config["username"]:
        found.append(_problem("username", "required", "Enter the user name, or set authType to auth_none."))
    if not password:
        message = "Enter the password. A new channel, server or user name needs it."
        found.append(_problem("password", "required", message))
    return found


TIMEOUT: Final = 8
"""Seconds for each step of talking to a mail server."""


LONGEST: Final = 30
"""Seconds after which a connection is cut, however busy the server pretends to be."""


IMPLICIT_TLS: Final = 465


class DeliveryError(Exception):
    """The server was not reached or did not take it. `final`: another try would not help."""

    def __init__(self, words: str, *, final: bool = False) -> None:
        super().__init__(words)
        self.final = final


def pinned_address(host: str, port: int) -> str:
    """The one address to connect to. Raises DeliveryError, also where any address of the name is out of bounds."""
    try:
        found = [ip_address(each) for each in system_resolver(host, port)]
    except (ClusterUnreachable, ValueError):
        raise DeliveryError(f"{host} does not resolve.") from None
    for address in found:
        if why := refused_because(address, settings.RUNG_CLUSTER_ADDRESSES):
            raise DeliveryError(f"{host} resolves to {address}: {why}.", final=True)
    return str(found[0])


class SmtpConnection:
    """An open connection to a mail server; leave it by `with`."""

    def __init__(self, server: MailServer) -> None:
        self._backend = _Backend(server, pinned_address(server.host, server.port))

    def __enter__(self) -> "SmtpConnection":
        try:
            self._backend.open()
        except Exception as error:
            self._backend.hang_up()
            raise _mail_error(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.drop()

    def send(self, message: EmailMessage) -> None:
        """Hand one message over. Raises DeliveryError."""
        try:
            self._backend.send_messages([message])
        except Exception as error:
            if not isinstance(error, smtplib.SMTPResponseException | smtplib.SMTPRecipientsRefused):
                self._backend.hang_up()
            raise _mail_error(error) from None

    @property
    def lost(self) -> bool:
        """Has it broken on the way?"""
        return self._backend.connection is None


def message_of(
    config: Mapping[str, Any], *, to: str, subject: str, body: str, headers: Mapping[str, str]
) -> EmailMessage:
    """A plain text message; whatever breaks a line in its head is a space before it gets here."""
    user, _at, domain = str(config["from"]).rpartition("@")
    sender = str(Address(one_line(str(config.get("fromDisplayName") or "Rung")), user, domain))
    return EmailMessage(one_line(subject)[:200], body, sender, [to], headers=dict(headers))


def one_line(text: str) -> str:
    """The text without anything that could end a header."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


class _Pinned(smtplib.SMTP):
    """Connects to the checked address; names and certificates stay those of the host."""

    def __init__(self, *args: Any, address: str, over: ssl.SSLContext | None = None, **kwargs: Any) -> None:
        self._address, self._over = address, over
        self._cutter = Timer(LONGEST, self._cut)
        self._cutter.daemon = True
        super().__init__(*args, **kwargs)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain = socket.create_connection((self._address, port), timeout)
        self._cutter.start()
        return self._over.wrap_socket(plain, server_hostname=host) if self._over else plain

    def close(self) -> None:
        """Leave; nothing is to be cut any more."""
        self._cutter.cancel()
        super().close()

    def _cut(self) -> None:
        with suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)


class _Backend(EmailBackend):
    """Django's, with a connection of ours."""

    def __init__(self, server: MailServer, address: str) -> None:
        super().__init__(
            host=server.host,
            port=server.port,
            username=server.username,
            password=server.password,
            use_tls=server.tls and server.port != IMPLICIT_TLS,
            use_ssl=False,
            timeout=TIMEOUT,
        )
        self._pinned = address
        self._over = self.ssl_context if server.tls and server.port == IMPLICIT_TLS else None

    @property
    def connection_class(self) -> Any:
        return lambda *args, **kwargs: _Pinned(*args, address=self._pinned, over=self._over, **kwargs)

    def drop(self) -> None:
        """Leave, politely if the server listens."""
        with suppress(Exception):
            self.close()
        self.connection = None

    def hang_up(self) -> None:
        """Leave without a word: the server does not answer."""
        for name in ("connection", "_partial_connection"):
            with suppress(Exception):
                getattr(self, name).close()
            setattr(self, name, None)


def _mail_error(error: Exception) -> DeliveryError:
    """What went wrong, without the words of the server: they may repeat what was sent."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return DeliveryError("The mail server rejected the user name or password.", final=True)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _words in error.recipients.values()]
        return DeliveryError(f"The mail server rejected the address ({_numbers(codes)}).", final=_is_permanent(codes))
    if isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
        return DeliveryError(f"Mail server error {code}.", final=_is_permanent([code]))
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeliveryError("The certificate of the mail server is not trusted.")
    if isinstance(error, OSError | smtplib.SMTPException):
        return DeliveryError(f"The mail server is not reachable ({type(error).__name__}).")
    return DeliveryError(f"The message could not be created ({type(error).__name__}).", final=True)


def _is_permanent(codes: Sequence[int]) -> bool:
    return bool(codes) and all(500 <= code < 600 for code in codes)


def _numbers(codes: Sequence[int]) -> str:
    return ", ".join(str(code) for code in codes) or "no reason"
