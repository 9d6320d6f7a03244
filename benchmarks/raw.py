"""The least a client can do: bytes that were made before, sent over kept connections, and the end of each answer found.

What takes this long cannot be had for less: the floor that a comparison with any client needs.
"""

import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Final

HEAD_END: Final = b"\r\n\r\n"


def request(token: str, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    """The bytes of a request."""
    length = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nAccept: application/json"
    return f"{head}\r\n{length}\r\n".encode() + body


class Api:
    """One kept TLS connection."""

    def __init__(self, port: int, ca: str, token: str) -> None:
        context = ssl.create_default_context(cadata=ca)
        plain = socket.create_connection(("127.0.0.1", port), timeout=120)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._token = token

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        """Status and body of one answer."""
        return self.send(request(self._token, method, path))

    def send(self, request: bytes) -> tuple[int, bytes]:
        """One request, one answer of known length or in chunks."""
        self._socket.sendall(request)
        received = bytearray()
        while (end := received.find(HEAD_END)) < 0:
            received += self._some()
        head, rest = bytes(received[:end]).lower(), bytearray(received[end + 4 :])
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            return status, self._chunks(rest)
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        while len(rest) < length:
            rest += self._some()
        return status, bytes(rest)

    def _chunks(self, rest: bytearray) -> bytes:
        body = bytearray()
        while True:
            while (end := rest.find(b"\r\n")) < 0:
                rest += self._some()
            size = int(rest[:end], 16)
            while len(rest) < end + 4 + size:
                rest += self._some()
            body += rest[end + 2 : end + 2 + size]
            del rest[: end + 4 + size]
            if not size:
                return bytes(body)

    def _some(self) -> bytes:
        if not (found := self._socket.recv(1 << 18)):
            raise ConnectionError("the server hung up")
        return found


def send_all(apis: Sequence[Api], requests: Sequence[bytes], expected: set[int]) -> None:
    """Every request once, each connection in a thread of its own. Another status than expected is an error."""
    waiting = iter(requests)
    lock = threading.Lock()
    failures: list[str] = []

    def work(api: Api) -> None:
        while not failures:
            with lock:
                request = next(waiting, None)
            if request is None:
                return
            status, body = api.send(request)
            if status not in expected:
                failures.append(body[:500].decode(errors="replace"))

    threads = [threading.Thread(target=work, args=(api,)) for api in apis]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(failures[0])
