"""A TLS-terminating proxy before a real API server that breaks what a script tells it to, and keeps a log.

It runs in threads of the test's process. Chance comes from a seed, so a schedule can be played again.
"""

import random
import re
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from typing import BinaryIO, Self, cast
from urllib.parse import urlsplit

from tests.support.authority import authority
from tests.support.faults import Cut, Exchange, Fault, Reply, Silent
from tests.support.lab import LabCluster

RESET = struct.pack("ii", 1, 0)
ENDS_WITHIN = 30.0
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}


@dataclass(slots=True)
class Rule:
    """A fault and whom it meets: of matching requests, after the first `spares`, every `every`-th with some chance."""

    fault: Fault
    matches: Callable[[Exchange], bool]
    times: float = float("inf")
    every: int = 1
    chance: float = 1.0
    spares: int = 0
    seen: int = 0
    hits: int = 0

    def meets(self, exchange: Exchange, chance: random.Random) -> bool:
        """Count the request if it matches; True if the fault befalls it."""
        if self.hits >= self.times or not self.matches(exchange):
            return False
        self.seen += 1
        if self.seen <= self.spares or (self.seen - self.spares) % self.every or chance.random() >= self.chance:
            return False
        self.hits += 1
        return True


class FaultProxy:
    """`server` and `ca` stand for the API server's. `log` is every exchange in the order of arrival."""

    def __init__(self, cluster: LabCluster, seed: int) -> None:
        self._usual = self._cluster = cluster
        self.ca, self._context = authority()
        self.chance = random.Random(seed)
        self.log: list[Exchange] = []
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._behind: set[HTTPSConnection] = set()
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._deaf = threading.Event()
        self._listener = _listening(0)
        self.port = int(self._listener.getsockname()[1])
        self.server = f"https://127.0.0.1:{self.port}"
        self._accepting()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Returns when nothing of it runs any more: what lived on would fail in the test that comes next."""
        self._ended.set()
        self.go_down()
        until = time.monotonic() + ENDS_WITHIN
        while running := [each for each in list(self._threads) if each.is_alive()]:
            assert time.monotonic() < until, f"the proxy still runs {running}"
            self.drop()
            running[0].join(0.05)

    def breaks(
        self,
        fault: Fault,
        *,
        method: str = "",
        path: str = "",
        watch: bool | None = None,
        times: float = float("inf"),
        every: int = 1,
        chance: float = 1.0,
        spares: int = 0,
    ) -> Rule:
        """Add a rule. `method` and `path` are patterns that must match a part; `watch` None: any request."""

        def matches(exchange: Exchange) -> bool:
            said = re.search(method, exchange.method) and re.search(path, exchange.path)
            return bool(said) and watch in {None, exchange.is_watch}

        rule = Rule(fault, matches, times, every, chance, spares)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Nothing is wrong any more: rules are dropped, the port listens, silent connections are closed."""
        with self._lock:
            self._rules.clear()
        if self._deaf.is_set():
            self._deaf.clear()
            self.drop()
        if self._listener.fileno() == -1:
            self._listener = _listening(self.port)
            self._accepting()

    @contextmanager
    def broken(self, fault: Fault, **whom: object) -> Iterator[Rule]:
        """A rule for as long as the block lasts."""
        rule = self.breaks(fault, **whom)  # type: ignore[arg-type] # the words of `breaks`
        try:
            yield rule
        finally:
            with self._lock:
                if rule in self._rules:
                    self._rules.remove(rule)

    def points_at(self, cluster: LabCluster) -> None:
        """Another cluster answers at the same address, and believes the same credential."""
        self._cluster = cluster
        self.drop()

    def go_down(self) -> None:
        """Connections are refused and those there are end."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def go_deaf(self) -> None:
        """A black hole: connections are taken and nothing is ever said, not even a TLS handshake."""
        self._deaf.set()
        self.drop()

    def drop(self) -> None:
        """Break every connection."""
        with self._lock:
            found = [*self._open, *(each.sock for each in self._behind if each.sock)]
        for each in found:
            _break(each)

    def writes(self) -> list[Exchange]:
        """What may have changed the cluster."""
        return [each for each in list(self.log) if each.is_write]

    def _accepting(self) -> None:
        self._run(self._accept, self._listener)

    def _run(self, target: Callable[[socket.socket], None], each: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(each,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._run(self._connection, client)

    def _connection(self, client: socket.socket) -> None:
        """One client's connection and the one behind it, request after request."""
        with self._kept(client):
            if self._deaf.is_set():
                self._hold(client)
                return
            secured = self._context.wrap_socket(client, server_side=True)
            upstream = _connected(self._cluster)
            with self._lock:
                self._behind.add(upstream)
            with self._kept(secured), secured.makefile("rb") as reader:
                try:
                    while (exchange := _request(cast("BinaryIO", reader))) is not None:
                        self._exchange(exchange, secured, upstream)
                except Cut as cut:
                    if cut.hard:
                        secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                except Silent:
                    self._hold(secured)
                finally:
                    with self._lock:
                        self._behind.discard(upstream)
                    upstream.close()

    @contextmanager
    def _kept(self, each: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(each)
        try:
            with each, suppress(OSError, HTTPException, ValueError):
                yield
        finally:
            with self._lock:
                self._open.discard(each)

    def _hold(self, client: socket.socket) -> None:
        """Say nothing until the other side or the test has enough."""
        client.settimeout(0.2)
        while not self._ended.is_set():
            try:
                if not client.recv(1 << 16):
                    return
            except TimeoutError:
                continue

    def _exchange(self, exchange: Exchange, client: socket.socket, upstream: HTTPSConnection) -> None:
        with self._lock:
            self.log.append(exchange)
            faults = [rule.fault for rule in self._rules if rule.meets(exchange, self.chance)]
        try:
            for fault in faults:
                if (reply := fault.before(exchange, self.chance)) is not None:
                    exchange.answered = reply.status
                    _send(client, reply, faults)
                    return
            if self._cluster is not self._usual:
                exchange.headers["authorization"] = f"Bearer {self._cluster.token}"
            with _ask(upstream, exchange) as response:
                exchange.upstream = response.status
                if exchange.is_watch and response.status == 200:
                    _stream(client, response, faults, exchange)
                else:
                    reply = Reply(response.status, dict(response.getheaders()), response.read())
                    for fault in faults:
                        reply = fault.after(exchange, reply)
                    exchange.answered = reply.status
                    _send(client, reply, faults)
        finally:
            exchange.ended = time.monotonic()


def _connected(cluster: LabCluster) -> HTTPSConnection:
    address = urlsplit(cluster.server)
    trust = ssl.create_default_context(cadata=cluster.ca)
    return HTTPSConnection(str(address.hostname), address.port or 443, context=trust, timeout=120)


def _request(reader: BinaryIO) -> Exchange | None:
    line = reader.readline().decode("latin-1").split()
    if len(line) < 3:
        return None
    headers: dict[str, str] = {}
    while header := reader.readline().decode("latin-1").strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    path, _, query = line[1].partition("?")
    body = reader.read(int(headers.get("content-length", "0")))
    return Exchange(line[0], path, query, headers, body)


def _forget_if_closed(upstream: HTTPSConnection) -> None:
    """A server that was restarted has closed its end: the next request opens a new connection, as a client would."""
    if upstream.sock and select.select([upstream.sock], [], [], 0)[0]:
        upstream.close()


def _ask(upstream: HTTPSConnection, requested: Exchange) -> HTTPResponse:
    _forget_if_closed(upstream)
    target = f"{requested.path}?{requested.query}" if requested.query else requested.path
    headers = {name: value for name, value in requested.headers.items() if name not in HOP_BY_HOP}
    upstream.request(requested.method, target, body=requested.body or None, headers=headers)
    return upstream.getresponse()


def _send(client: socket.socket, reply: Reply, faults: list[Fault]) -> None:
    kept = {name: value for name, value in reply.headers.items() if name.lower() not in HOP_BY_HOP}
    client.sendall(_head(reply.status, {**kept, "Content-Length": str(len(reply.body))}))
    pieces = next((fault for fault in faults if type(fault).pieces is not Fault.pieces), Fault()).pieces(reply.body)
    for piece in pieces:
        client.sendall(piece)


def _stream(client: socket.socket, response: HTTPResponse, faults: list[Fault], exchange: Exchange) -> None:
    exchange.answered = response.status
    kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
    client.sendall(_head(response.status, {**kept, "Transfer-Encoding": "chunked"}))
    lines: Iterator[bytes] = iter(response.readline, b"")
    for fault in faults:
        lines = fault.lines(lines)
    for line in lines:
        client.sendall(f"{len(line):x}\r\n".encode() + line + b"\r\n")
    client.sendall(b"0\r\n\r\n")


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} said", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def _break(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
