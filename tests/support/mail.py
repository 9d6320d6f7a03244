"""A mail server on loopback: it takes what it is handed, as its answers say, and keeps it."""

import base64
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import cast


@dataclass
class MailServer:
    """What arrived. `refused` answers RCPT with the code of an address; `greeting` is its first word."""

    port: int
    greeting: int = 220
    refused: dict[str, int] = field(default_factory=dict)
    arrived: list[EmailMessage] = field(default_factory=list)
    envelopes: list[str] = field(default_factory=list)
    connections: int = 0
    drips: bool = False
    """It greets for ever, a letter at a time."""
    tls: ssl.SSLContext | None = None
    """With it, it offers STARTTLS, and to sign in once that is done."""
    passwords: list[str] = field(default_factory=list)


@contextmanager
def mail_server(tls: ssl.SSLContext | None = None) -> Iterator[MailServer]:
    """Listens until the block ends."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        mail = MailServer(server.server_address[1], tls=tls)
        server.mail = mail  # type: ignore[attr-defined]  # the handler's way to it
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield mail
        finally:
            server.shutdown()
            thread.join(5)


class _Handler(socketserver.StreamRequestHandler):
    timeout = 5

    def handle(self) -> None:
        """One conversation; a client may leave at any time."""
        mail: MailServer = self.server.mail  # type: ignore[attr-defined]
        with suppress(OSError):
            while mail.drips:
                self.wfile.write(b"2")
                time.sleep(0.1)
            self.converse()

    def finish(self) -> None:
        """Within TLS the socket is another one."""
        with suppress(OSError):
            super().finish()
        self.connection.close()

    def converse(self) -> None:
        """Word by word."""
        mail: MailServer = self.server.mail  # type: ignore[attr-defined]
        mail.connections += 1
        self.say(mail.greeting)
        while line := self.rfile.readline():
            word = line[:4].upper().strip()
            if word == b"QUIT":
                self.say(221)
                return
            if word == b"RCPT":
                address = line.decode().partition("<")[2].partition(">")[0]
                mail.envelopes.append(address)
                self.say(mail.refused.get(address, 250))
            elif word == b"DATA":
                self.say(354)
                mail.arrived.append(self.read())
                self.say(250)
            elif word == b"STAR" and mail.tls:
                self.say(220)
                self.secure(mail.tls)
            elif word == b"AUTH":
                mail.passwords.append(base64.b64decode(line.split()[2]).decode())
                self.say(235 if mail.passwords[-1].endswith("\0right") else 535)
            elif word == b"EHLO" and mail.tls:
                offered = b"AUTH PLAIN" if isinstance(self.request, ssl.SSLSocket) else b"STARTTLS"
                self.wfile.write(b"250-here\r\n250 " + offered + b"\r\n")
            else:
                self.say(250)

    def secure(self, tls: ssl.SSLContext) -> None:
        """From here on within TLS."""
        self.rfile.close()
        self.wfile.close()
        self.request = self.connection = tls.wrap_socket(self.request, server_side=True)
        self.setup()

    def read(self) -> EmailMessage:
        """A message up to its lone dot."""
        lines = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return cast("EmailMessage", message_from_bytes(b"".join(lines), policy=policy.default))

    def say(self, code: int) -> None:
        """One line of answer."""
        self.wfile.write(f"{code} so it is\r\n".encode())
