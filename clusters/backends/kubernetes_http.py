"""HTTP/1.1 over kept TLS connections: one request, one whole answer, in as few steps as that takes.

A first sync is thousands of small requests, and what a client spends on each bounds it. So a request leaves in one
write, an answer is read in large pieces, and nothing is looked at that nobody asks for.
"""

import math
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clusters.connections import Target
from clusters.errors import ClusterRefused, ClusterUnreachable

PIECE: Final = 1 << 14  # as much as TLS hands over at a time
WARM: Final = 0.005
"""Seconds after an answer for which a connection is believed to stand: to look costs other threads their turn."""
LONGEST_HEAD: Final = 1 << 16
END: Final = b"\r\n\r\n"
LOOKED_AT: Final = {
    name.lower().encode(): name for name in ("Connection", "Content-Length", "Retry-After", "Transfer-Encoding")
}
"""Headers that somebody reads. An API server sends as many again."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: |\r|$)")
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;|$)")
_NOT_IN_A_LINE: Final = re.compile(r"[^\x21-\x7e]")
_NOT_IN_A_HEADER: Final = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, whatever its status, with the headers that are looked at; their names Are-Written-So."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Line:
    """One kept connection, for one thread at a time. Raises OSError, and ClusterUnreachable for what is no HTTP."""

    def __init__(self, context: ssl.SSLContext, target: Target, *, name: str, connect: float) -> None:
        plain = socket.create_connection((target.address, target.port), timeout=connect)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = context.wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise
        self._timeout = connect
        self._until = math.inf
        self._read = connect
        self._rest = bytearray()
        self._answered_at = -math.inf
        self.reusable = True

    def ask(self, request: bytes, *, read: float, until: float, cap: int) -> Answer:
        """`read`: seconds to wait for a piece; `until`: the instant (monotonic) at which the answer must be there."""
        self._read, self._until = read, until
        left = memoryview(request)
        while left:
            self._wait_no_longer()
            left = left[self._socket.write(left) :]
        status, headers = self._head()
        while status < 200:
            status, headers = self._head()
        body = self._body(status, headers, cap)
        if self._rest or headers.get("Connection", "").lower() == "close":
            self.reusable = False
        self._answered_at = time.monotonic()
        return Answer(status, headers, body)

    def stands(self) -> bool:
        """Nothing came since the last answer: neither the end of the connection nor what nobody asked for."""
        if time.monotonic() - self._answered_at < WARM:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not self._socket.pending() and not poll.poll(0)

    def close(self) -> None:
        self._socket.close()

    def _head(self) -> tuple[int, dict[str, str]]:
        while (end := self._rest.find(END)) < 0:
            if len(self._rest) > LONGEST_HEAD:
                raise ClusterUnreachable("The answer is no HTTP: its head does not end.")
            self._more()
        first, *lines = bytes(self._rest[:end]).split(b"\r\n")
        del self._rest[: end + len(END)]
        if not (status := _STATUS.match(first)):
            raise ClusterUnreachable("The answer is no HTTP.")
        self.reusable = self.reusable and first.startswith(b"HTTP/1.1")
        return int(status[1]), _headers(lines)

    def _body(self, status: int, headers: Mapping[str, str], cap: int) -> bytes:
        if status in {204, 304}:
            return b""
        if coding := headers.get("Transfer-Encoding"):
            if coding.strip().lower() != "chunked":
                raise ClusterUnreachable("The answer is encoded in a way that nobody asked for.")
            return self._chunks(cap)
        if length := headers.get("Content-Length"):
            if not _DIGITS.fullmatch(length):
                raise ClusterUnreachable("The answer is no HTTP: its length is no number.")
            return self._take(_bounded(int(length), cap))
        return self._everything(cap)

    def _take(self, size: int) -> bytes:
        """Exactly so many bytes."""
        while len(self._rest) < size:
            self._more()
        if len(self._rest) == size:
            found, self._rest = self._rest, bytearray()
            return bytes(found)
        taken = bytes(self._rest[:size])
        del self._rest[:size]
        return taken

    def _line(self) -> bytes:
        while (end := self._rest.find(b"\r\n")) < 0:
            if len(self._rest) > LONGEST_HEAD:
                raise ClusterUnreachable("The answer is no HTTP: a line does not end.")
            self._more()
        return self._take(end + 2)[:-2]

    def _chunks(self, cap: int) -> bytes:
        parts: list[bytes] = []
        total = 0
        while True:
            if not (found := _SIZE.match(self._line())):
                raise ClusterUnreachable("The answer is no HTTP: the length of a piece is no number.")
            if not (size := int(found[1], 16)):
                break
            total = _bounded(total + size, cap)
            parts.append(self._take(size))
            if self._take(2) != b"\r\n":
                raise ClusterUnreachable("The answer is no HTTP: a piece is longer than it says.")
        while self._line():
            pass  # trailers
        return b"".join(parts)

    def _everything(self, cap: int) -> bytes:
        """An answer that says no length lasts until the connection ends."""
        self.reusable = False
        while self._more(or_end=True):
            _bounded(len(self._rest), cap)
        return self._take(len(self._rest))

    def _more(self, *, or_end: bool = False) -> bool:
        self._wait_no_longer()
        piece = self._socket.read(PIECE)
        if not piece and not or_end:
            raise ConnectionError("the answer was cut off")
        self._rest += piece
        return bool(piece)

    def _wait_no_longer(self) -> None:
        """The next step ends at the deadline. A timeout that already stands is not set again: that costs a call."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline is over")
        if (wait := min(self._read, left)) != self._timeout:
            self._socket.settimeout(wait)
            self._timeout = wait


class Lines:
    """The kept connections to one server. Thread-safe."""

    def __init__(self, context: ssl.SSLContext, target: Target, *, name: str, most: int) -> None:
        self._context, self._target, self._name, self._most = context, target, name, most
        self._idle: list[Line] = []
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, request: bytes, *, connect: float, read: float, until: float, cap: int) -> Answer:
        """Over a kept connection or a new one. What was begun is never sent again."""
        line = self._kept() or Line(self._context, self._target, name=self._name, connect=connect)
        try:
            answer = line.ask(request, read=read, until=until, cap=cap)
        except BaseException:
            line.close()
            raise
        self._keep(line)
        return answer

    def close(self) -> None:
        """Those in use are closed when their answer has come."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    def _kept(self) -> Line | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                line = self._idle.pop()
            if line.stands():
                return line
            line.close()

    def _keep(self, line: Line) -> None:
        with self._lock:
            if keep := line.reusable and not self._closed and len(self._idle) < self._most:
                self._idle.append(line)
        if not keep:
            line.close()


def head_of(headers: Mapping[str, str]) -> bytes:
    """The lines that every request carries. ClusterRefused: a value cannot stand in one; it is not told which."""
    if any(_NOT_IN_A_HEADER.search(text) for text in headers.values()):
        raise ClusterRefused("The credential holds a character that cannot be sent.")
    return "".join(f"{name}: {text}\r\n" for name, text in headers.items()).encode("ascii")


def request_of(method: str, path: str, head: bytes, body: bytes | None) -> bytes:
    """The bytes of a request; a body is JSON. ClusterRefused: the path holds what would end it."""
    if _NOT_IN_A_LINE.search(path):
        raise ClusterRefused("A path holds a character that cannot be sent.")
    first = f"{method} {path} HTTP/1.1\r\n".encode("ascii")
    if body is None:
        return b"%s%s\r\n" % (first, head)
    return b"%s%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (first, head, len(body), body)


def _headers(lines: list[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(b":")
        if not colon:
            raise ClusterUnreachable("The answer is no HTTP: a header has no name.")
        if (key := LOOKED_AT.get(name.lower())) is None:
            continue
        value = text.strip().decode("latin-1")
        if key == "Content-Length" and found.get(key, value) != value:
            raise ClusterUnreachable("The answer is no HTTP: it has two lengths.")
        found[key] = value
    return found


def _bounded(size: int, cap: int) -> int:
    if size > cap:
        raise ClusterUnreachable(f"The answer is longer than {cap} bytes.")
    return size
