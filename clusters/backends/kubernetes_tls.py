"""TLS to an API server: a context made of what an admin gave, and a socket whose waits end at a deadline.

The environment has no say: no SSLKEYLOGFILE, no certificate of this machine's own.
"""

import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clusters.connections import Connection
from clusters.errors import ClusterRefused


class _Clock(threading.local):
    """The instant (monotonic) until which this thread waits for bytes now."""

    until: float | None = None


_clock = _Clock()


@contextmanager
def deadline(until: float) -> Iterator[None]:
    before, _clock.until = _clock.until, until
    try:
        yield
    finally:
        _clock.until = before


class _DeadlineSocket(ssl.SSLSocket):
    """A socket whose every read and write ends at the thread's deadline: timeouts alone start anew with each byte."""

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        with self._bounded():
            return super().recv_into(*args, **kwargs)

    def send(self, *args: Any, **kwargs: Any) -> int:
        with self._bounded():
            return super().send(*args, **kwargs)

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        if _clock.until is None:
            yield
            return
        left = _clock.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline is over")
        before = self.gettimeout()
        self.settimeout(left if before is None else min(before, left))
        try:
            yield
        finally:
            if self.fileno() != -1:
                self.settimeout(before)


def tls_context(connection: Connection) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = _DeadlineSocket
    context.set_alpn_protocols(["http/1.1"])
    try:
        if connection.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif connection.ca:
            context.load_verify_locations(cadata=connection.ca)
        else:
            context.load_default_certs()
        if connection.certificate:
            _load_certificate(context, connection)
    except (OSError, ValueError):
        raise ClusterRefused("The certificate authority, certificate or key cannot be read.") from None
    return context


def _load_certificate(context: ssl.SSLContext, connection: Connection) -> None:
    """OpenSSL takes a client certificate from a file only: one that nobody else can read, gone a moment later."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(f"{connection.certificate}\n{connection.key}\n".encode())
        file.flush()
        context.load_cert_chain(file.name, password=_no_password)


def _no_password() -> str:
    """OpenSSL would ask the terminal for the password of an encrypted key."""
    raise ValueError("the key is encrypted")
