"""Bytes to an API server and back: TLS context, deadlines, short requests and streams.

The environment has no say: no SSLKEYLOGFILE, no certificate of this machine's own.

Nothing ambient takes part: no default configuration, no proxy or .netrc of the environment, no redirect, no retry, no
name resolution. Every wait has an end: the deadline holds for the whole answer, however slowly its bytes come.
"""

import math
import re
import select
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from typing import Any, Final, cast

from clusters.ports.connection import CheckedAddress, Connection, parse_server_url
from clusters.ports.gateway import ClusterRefused, ClusterUnreachable


class DeadlineSocket(ssl.SSLSocket):
    """A socket on which each wait ends after `pause` seconds, and every wait ends at the instant `until` (monotonic).

    A socket's own timeout restarts with each byte.
    """

    until: float = math.inf
    pause: float = 60.0

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self._bound()
        return super().recv_into(*args, **kwargs)

    def send(self, *args: Any, **kwargs: Any) -> int:
        self._bound()
        return super().send(*args, **kwargs)

    def is_quiet(self) -> bool:
        """Nothing has come since the last answer: neither the end of the connection nor bytes without a request."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return not self.pending() and not poll.poll(0)

    def _bound(self) -> None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline exceeded")
        self.settimeout(min(self.pause, left))


def connected(context: ssl.SSLContext, target: CheckedAddress, name: str, seconds: float) -> DeadlineSocket:
    """A TLS connection to the address that was checked. The certificate must be valid for the name."""
    plain = socket.create_connection((target.address, target.port), timeout=seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cast("DeadlineSocket", context.wrap_socket(plain, server_hostname=name))
    except BaseException:
        plain.close()
        raise


def tls_context(connection: Connection) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = DeadlineSocket
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
    """OpenSSL takes a client certificate from a file only: one that only this user can read, deleted a moment later."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(f"{connection.certificate}\n{connection.key}\n".encode())
        file.flush()
        context.load_cert_chain(file.name, password=_no_password)


def _no_password() -> str:
    """OpenSSL would ask the terminal for the password of an encrypted key."""
    raise ValueError("the key is encrypted")


CHUNK: Final = 1 << 16
FOREIGN: Final = (HTTPException, OSError, ValueError)
"""What the layers below raise. ssl.SSLError and timeouts are OSErrors."""
_NOT_IN_A_LINE: Final = re.compile(r"[^\x21-\x7e]")
_NOT_IN_A_HEADER: Final = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """How long to wait (seconds) and how much to read (bytes)."""

    connect: float = 5.0
    read: float = 15.0
    total: float = 60.0
    body: int = 64 << 20
    line: int = 16 << 20
    list: int = 2 << 30  # all pages of one list together: 150,000 pods, as many as a cluster may have, are 1 GB


LIMITS: Final = TransportLimits()


class StreamIdle(Exception):
    """Nothing came for as long as the reader wanted to wait. The stream is over."""


class HttpTransport:
    """One API server, one credential, its connections. Thread-safe. Raises only ClusterError."""

    def __init__(
        self, connection: Connection, target: CheckedAddress, *, connections: int, limits: TransportLimits = LIMITS
    ) -> None:
        if _NOT_IN_A_HEADER.search(connection.token):
            raise ClusterRefused("The credential contains an invalid character.")
        self._limits = limits
        name = connection.tls_server_name or target.host
        self._connect = partial(connected, tls_context(connection), target, name, limits.connect)
        self._root = parse_server_url(connection.server).path
        self._most = connections
        self._idle: list[DeadlineSocket] = []
        host = f"[{target.host}]" if ":" in target.host else target.host
        lines = [
            f"Host: {host if target.port == 443 else f'{host}:{target.port}'}",
            "User-Agent: rung",
            "Accept-Encoding: identity",
            *([f"Authorization: Bearer {connection.token}"] if connection.token else []),
        ]
        self._head = "".join(f"{line}\r\n" for line in lines)

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        accept: str = "",
        cap: int = 0,
        seconds: float = 0.0,
    ) -> Answer:
        """One request, one whole answer of at most `cap` bytes in at most `seconds`. ClusterUnreachable: there is none.

        What is not given is as the limits say. What was begun is never sent again.
        """
        until = time.monotonic() + min(self._limits.total, seconds or self._limits.total)
        request = self._request(method, path, body, accept)
        with _translated(), self._sent(request, until=until) as (response, _):
            return Answer(response.status, _headers(response), _whole(response, cap or self._limits.body))

    @contextmanager
    def stream(self, path: str, *, accept: str = "") -> Iterator["HttpStream"]:
        """An answer that is read while it comes, until its reader's deadlines."""
        until = time.monotonic() + self._limits.connect + self._limits.read
        with self._sent(self._request("GET", path, None, accept), until=until) as (response, socket):
            yield HttpStream(response, socket, self._limits)

    def close(self) -> None:
        """Close idle connections. Those in use end with their request."""
        self._most = 0
        while socket := self._idle_one():
            socket.close()

    def _request(self, method: str, path: str, body: bytes | None, accept: str) -> bytes:
        """The bytes of a request, to leave in one write. A body is JSON."""
        if _NOT_IN_A_LINE.search(path):
            raise ClusterRefused("The path contains an invalid character.")
        head = f"{method} {self._root}{path} HTTP/1.1\r\n{self._head}Accept: {accept or 'application/json'}\r\n"
        if body is None:
            return f"{head}\r\n".encode("ascii")
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode("ascii") + body

    @contextmanager
    def _sent(self, request: bytes, *, until: float) -> Iterator[tuple[HTTPResponse, DeadlineSocket]]:
        """An answer whose head has come. Its connection is reused when the answer is read to its end."""
        with _translated():
            socket = self._idle_one() or self._connect()
        response, reusable = HTTPResponse(socket), False
        try:
            with _translated():
                socket.until, socket.pause = until, self._limits.read
                socket.sendall(request)
                response.begin()
            yield response, socket
            reusable = response.isclosed() and not response.will_close and len(self._idle) < self._most
        finally:
            response.close()
            if reusable:
                self._idle.append(socket)
            else:
                socket.close()
            if not self._most:  # closed by another thread, perhaps just before the connection became idle
                self.close()

    def _idle_one(self) -> DeadlineSocket | None:
        while self._idle:
            try:
                socket = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if socket.is_quiet():
                return socket
            socket.close()
        return None


class HttpStream:
    """The lines of an answer that has begun."""

    def __init__(self, response: HTTPResponse, socket: DeadlineSocket, limits: TransportLimits) -> None:
        self._response, self._socket = response, socket
        self._limits = limits
        self.status = response.status
        self.headers = _headers(response)
        socket.pause = math.inf

    def body(self) -> bytes:
        """The rest of a short answer: a refusal."""
        self._socket.until = time.monotonic() + self._limits.read
        with _translated():
            return self._response.read(CHUNK)

    def lines(self, *, until: float, quiet: float) -> Iterator[bytes]:
        """Complete lines until the server ends, or Silence. ClusterUnreachable: cut off, in a line or between two.

        `until` is the last instant (monotonic) to read at, `quiet` how long nothing may come.
        """
        rest: list[bytes] = []
        size = 0
        while chunk := self._chunk(min(until, time.monotonic() + quiet)):
            size += len(chunk)
            rest.append(chunk)
            if b"\n" in chunk:
                *whole, last = b"".join(rest).split(b"\n")
                rest, size = [last], len(last)
                yield from filter(None, whole)
            if size > self._limits.line:
                raise ClusterUnreachable(f"A line is longer than {self._limits.line} bytes.")
        if size:
            raise ClusterUnreachable("The stream ended in the middle of a line.")

    def _chunk(self, until: float) -> bytes:
        self._socket.until = until
        try:
            return self._response.read1(CHUNK)
        except TimeoutError as error:
            raise StreamIdle from error
        except FOREIGN as error:
            raise ClusterUnreachable(_reason(error)) from error


def _headers(response: HTTPResponse) -> Mapping[str, str]:
    """The header that is looked at."""
    return {name: text for name in ("Retry-After",) if (text := response.headers.get(name))}


def _whole(response: HTTPResponse, cap: int) -> bytes:
    """The body of an answer. ClusterUnreachable: it is longer than `cap`, or its head cannot be meant so."""
    if response.status < 200 or len(set(response.headers.get_all("Content-Length", ()))) > 1:
        raise ClusterUnreachable("Invalid response: not HTTP.")
    if response.length is None:
        body = response.read(cap + 1)
    elif response.length <= cap:
        return response.read()
    if response.length is not None or len(body) > cap:
        raise ClusterUnreachable(f"The response is longer than {cap} bytes.")
    return body


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FOREIGN as error:
        raise ClusterUnreachable(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """What a person can act on, without the address that everybody knows and without a byte of the request."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"The server's certificate is not trusted: {each.verify_message}."
        if isinstance(each, ssl.SSLError):
            return f"TLS error: {(each.reason or 'unknown').replace('_', ' ').lower()}."
        if isinstance(each, ConnectionRefusedError):
            return "The connection was refused."
        each = each.__cause__ or each.__context__
    if isinstance(error, TimeoutError):
        return "Timeout: no response."
    return f"Connection lost ({type(error).__name__})."
