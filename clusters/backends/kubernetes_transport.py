"""Bytes to an API server and back: short requests in a dialect of our own, streams through the official client's pool.

Nothing ambient takes part: no default configuration, no proxy or .netrc of the environment, no redirect, no retry, no
name resolution. Every wait has an end: the deadline holds for the whole answer, however slowly its bytes come.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final

from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, Timeout
from urllib3.exceptions import HTTPError

from clusters.addresses import server_of
from clusters.backends.kubernetes_http import Answer, Lines, head_of, request_of
from clusters.backends.kubernetes_tls import deadline, tls_context
from clusters.connections import Connection, Target
from clusters.errors import ClusterUnreachable

CHUNK: Final = 1 << 16
FOREIGN: Final = (HTTPError, HTTPException, OSError, ValueError)
"""What the layers below raise. ssl.SSLError and timeouts are OSErrors."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait (seconds) and how much to read (bytes)."""

    connect: float = 5.0
    read: float = 15.0
    total: float = 60.0
    body: int = 64 << 20
    line: int = 16 << 20
    list: int = 2 << 30  # all pages of one list together: 150,000 pods, as many as a cluster may have, are 1 GB


LIMITS: Final = Limits()


class Silence(Exception):
    """Nothing came for as long as the reader wanted to wait. The stream is over."""


class Transport:
    """One API server, one credential, one pool of connections. Thread-safe. Raises only ClusterError."""

    def __init__(self, connection: Connection, target: Target, *, connections: int, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._client, self._pool = _pool(connection, target, connections)
        self._root = server_of(connection.server).path
        host = f"[{target.host}]" if ":" in target.host else target.host
        self._headers = {
            "Host": host if target.port == 443 else f"{host}:{target.port}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "rung",
            **({"Authorization": f"Bearer {connection.token}"} if connection.token else {}),
        }
        self._head = head_of(self._headers)
        name = connection.tls_server_name or target.host
        self._lines = Lines(tls_context(connection), target, name=name, most=connections)

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

        What is not given is as the limits say.
        """
        limits = self._limits
        head = self._head if not accept else head_of({**self._headers, "Accept": accept})
        with _translated():
            return self._lines.ask(
                request_of(method, f"{self._root}{path}", head, body),
                connect=limits.connect,
                read=limits.read,
                until=time.monotonic() + min(limits.total, seconds or limits.total),
                cap=cap or limits.body,
            )

    @contextmanager
    def stream(self, path: str, *, accept: str = "") -> Iterator["Stream"]:
        """An answer that is read while it comes. The deadlines of its reader hold, no timeout of the socket's own."""
        with deadline(time.monotonic() + self._limits.connect + self._limits.read), _translated():
            response = self._send(path, accept)
        try:
            yield Stream(response, self._limits)
        finally:
            response.close()

    def close(self) -> None:
        """Close idle connections. Those in use end with their request."""
        self._lines.close()
        self._pool.close()
        self._client.close()

    def _send(self, path: str, accept: str) -> BaseHTTPResponse:
        return self._pool.urlopen(
            "GET",
            f"{self._root}{path}",
            headers={**self._headers, **({"Accept": accept} if accept else {})},
            retries=False,
            redirect=False,
            assert_same_host=False,
            timeout=Timeout(connect=self._limits.connect, read=None),
            preload_content=False,
            decode_content=False,
        )


class Stream:
    """The lines of an answer that has begun."""

    def __init__(self, response: BaseHTTPResponse, limits: Limits) -> None:
        self._response = response
        self._limits = limits
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    def body(self) -> bytes:
        """The rest of a short answer: a refusal."""
        with deadline(time.monotonic() + self._limits.read), _translated():
            return self._response.read(CHUNK, decode_content=False)

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
        try:
            with deadline(until):
                return self._response.read1(CHUNK, decode_content=False)
        except FOREIGN as error:
            if _timed_out(error):
                raise Silence from error
            raise ClusterUnreachable(_reason(error)) from error


def _pool(connection: Connection, target: Target, connections: int) -> tuple[RESTClientObject, HTTPConnectionPool]:
    """The official client's pool, with a TLS context of our own in the place of files and defaults."""
    configuration = Configuration(host=f"https://{target.host}:{target.port}", proxy="", no_proxy="", retries=False)
    configuration.connection_pool_maxsize = connections
    configuration.verify_ssl = not connection.insecure
    configuration.tls_server_name = connection.tls_server_name or target.host
    client = RESTClientObject(configuration)
    options = client.pool_manager.connection_pool_kw
    for name in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
        options.pop(name, None)
    options["ssl_context"] = tls_context(connection)
    return client, client.pool_manager.connection_from_host(target.address, target.port, "https")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FOREIGN as error:
        raise ClusterUnreachable(_reason(error)) from error


def _timed_out(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason(error: BaseException) -> str:
    """What a person can act on, without the address that everybody knows and without a byte of the request."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"The server's certificate is not accepted: {each.verify_message}."
        if isinstance(each, ssl.SSLError):
            return f"TLS fails: {(each.reason or 'unknown').replace('_', ' ').lower()}."
        if isinstance(each, ConnectionRefusedError):
            return "The connection was refused."
        each = each.__cause__ or each.__context__
    if _timed_out(error):
        return "No answer in time."
    return f"The connection broke ({type(error).__name__})."
