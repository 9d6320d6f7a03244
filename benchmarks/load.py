"""A server of ours under load: uvicorn's workers on one side, keep-alive clients on plain sockets on the other."""

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.real import free_port

WORKERS = 2
START_SECONDS = 120  # on a machine that has much else to do
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A port and the process whose children answer there."""

    port: int
    process: subprocess.Popen[bytes]

    def processor_seconds(self) -> float:
        """What the server's processes have used so far, without the database's."""
        pids = [self.process.pid, *_children(self.process.pid)]
        return sum(_used(pid) for pid in pids)


@dataclass(slots=True)
class Run:
    """What one run of requests took."""

    seconds: float
    processor: float
    each: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Requests answered per second."""
        return len(self.each) / self.seconds


@contextmanager
def serving(environment: Mapping[str, str], log: Path) -> Iterator[Server]:
    """The portal, with the bare peer beside it, on a free port of this machine."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "portal.asgi:application", "--host", "127.0.0.1", "--port", str(port)]
    options = ["--workers", str(WORKERS), "--no-proxy-headers", "--lifespan", "off", "--no-access-log"]
    settings = {"DJANGO_SETTINGS_MODULE": "benchmarks.settings", **environment}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options], env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait_for(port)
            yield Server(port, process)
        finally:
            process.terminate()
            process.wait(20)


def _wait_for(port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == http.client.OK:
                return
        time.sleep(0.1)
    raise TimeoutError(f"no server on port {port}")


def request(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def load(server: Server, requests: Sequence[bytes], clients: int, expected: int) -> Run:
    """Send every request once, from so many clients at a time. Any other answer than the expected one is an error."""
    shares = [requests[number::clients] for number in range(clients)]
    seconds: list[list[float]] = [[] for _ in shares]
    failures: list[str] = []
    threads = [
        threading.Thread(target=_client, args=(server.port, share, found, failures, str(expected).encode()))
        for share, found in zip(shares, seconds, strict=True)
    ]
    before, start = server.processor_seconds(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - start
    if failures:
        raise RuntimeError(failures[0])
    return Run(wall, server.processor_seconds() - before, [each for found in seconds for each in found])


def _client(port: int, requests: Sequence[bytes], seconds: list[float], failures: list[str], expected: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in requests:
            start = time.perf_counter()
            connection.sendall(each)
            answer = read_answer(connection)
            seconds.append(time.perf_counter() - start)
            if answer[9:12] != expected:
                failures.append(answer[:2000].decode(errors="replace"))
                return


def read_answer(connection: socket.socket) -> bytes:
    """One answer, head and body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _some(connection)
    head, _, rest = received.partition(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(rest) < length:
        rest += _some(connection)
    return head + b"\r\n\r\n" + rest


def _some(connection: socket.socket) -> bytes:
    if not (found := connection.recv(65536)):
        raise ConnectionError("the server hung up")
    return found


def _children(pid: int) -> list[int]:
    return [
        int(entry.parent.name)
        for entry in Path("/proc").glob("[0-9]*/stat")
        if (fields := _fields(entry)) and int(fields[1]) == pid
    ]


def _used(pid: int) -> float:
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return sum(int(each) for each in fields[11:13]) / TICKS if fields else 0.0


def _fields(stat: Path) -> list[str]:
    """The fields after the name, which may hold spaces: state, parent, …"""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []
