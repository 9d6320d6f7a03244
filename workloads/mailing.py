"""Mail leaves by a channel's own server: its address is checked as a cluster's, then only the checked one is used."""

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

from clusters.addresses import out_of_bounds, system_resolver
from clusters.errors import ClusterUnreachable

TIMEOUT: Final = 8
"""Seconds for each step of talking to a mail server."""
LONGEST: Final = 30
"""Seconds after which a connection is cut, however busy the server pretends to be."""
IMPLICIT_TLS: Final = 465


class MailTrouble(Exception):
    """The server was not reached or did not take it. `final`: another try would not help."""

    def __init__(self, words: str, *, final: bool = False) -> None:
        super().__init__(words)
        self.final = final


@dataclass(frozen=True, slots=True)
class Server:
    """A mail server and who signs in there."""

    host: str
    port: int
    tls: bool
    username: str = ""
    password: str = field(default="", repr=False)


def pinned_address(host: str, port: int) -> str:
    """The one address to connect to. Raises MailTrouble, also where any address of the name is out of bounds."""
    try:
        found = [ip_address(each) for each in system_resolver(host, port)]
    except (ClusterUnreachable, ValueError):
        raise MailTrouble(f"{host} does not resolve.") from None
    for address in found:
        if why := out_of_bounds(address, settings.RUNG_CLUSTER_ADDRESSES):
            raise MailTrouble(f"{host} stands for {address}: {why}.", final=True)
    return str(found[0])


class Connection:
    """An open connection to a mail server; leave it by `with`."""

    def __init__(self, server: Server) -> None:
        self._backend = _Backend(server, pinned_address(server.host, server.port))

    def __enter__(self) -> "Connection":
        try:
            self._backend.open()
        except Exception as error:
            self._backend.hang_up()
            raise _told(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.drop()

    def send(self, message: EmailMessage) -> None:
        """Hand one message over. Raises MailTrouble."""
        try:
            self._backend.send_messages([message])
        except Exception as error:
            if not isinstance(error, smtplib.SMTPResponseException | smtplib.SMTPRecipientsRefused):
                self._backend.hang_up()
            raise _told(error) from None

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

    def __init__(self, server: Server, address: str) -> None:
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
        """How a connection is opened."""
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


def _told(error: Exception) -> MailTrouble:
    """What went wrong, without the words of the server: they may repeat what was sent."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return MailTrouble("The mail server refused the user name or password.", final=True)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _words in error.recipients.values()]
        return MailTrouble(f"The mail server refused the address ({_numbers(codes)}).", final=_for_good(codes))
    if isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
        return MailTrouble(f"The mail server answered {code}.", final=_for_good([code]))
    if isinstance(error, ssl.SSLCertVerificationError):
        return MailTrouble("The certificate of the mail server is not trusted.")
    if isinstance(error, OSError | smtplib.SMTPException):
        return MailTrouble(f"The mail server was not reached or went away ({type(error).__name__}).")
    return MailTrouble(f"The message could not be written ({type(error).__name__}).", final=True)


def _for_good(codes: Sequence[int]) -> bool:
    return bool(codes) and all(500 <= code < 600 for code in codes)


def _numbers(codes: Sequence[int]) -> str:
    return ", ".join(str(code) for code in codes) or "no reason"
