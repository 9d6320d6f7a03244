"""Servers on this machine that note who comes: a bare listener, and an API server in name only, over TLS."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.certificates import Pair, authority, signed

UID = "0b6bbd43-70c7-4a71-a9f2-7d7e2a5b3c11"


@dataclass
class Visits:
    """A listener's address and how often somebody connected."""

    port: int
    count: int = 0


@contextmanager
def listener(host: str = "127.0.0.1") -> Iterator[Visits]:
    """Accepts and closes, and counts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind((host, 0))
    server.listen()
    visits = Visits(server.getsockname()[1])

    def accept() -> None:
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                visits.count += 1
                peer.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield visits
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


@dataclass(frozen=True, slots=True)
class Request:
    """What arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answers = Callable[[Request], tuple[int, Any]]
"""Status and body: bytes as they are, anything else as JSON."""


def ordinary(request: Request) -> tuple[int, Any]:
    """A cluster that allows everything."""
    if request.path == "/version":
        return 200, {"gitVersion": "v1.36.3"}
    if request.path == "/api/v1/namespaces/kube-system":
        return 200, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": UID}}
    if request.path.endswith("/selfsubjectaccessreviews"):
        requested = json.loads(request.body)["spec"]["resourceAttributes"]
        excessive = requested["resource"] in {"*", "secrets", "users"} or requested.get("subresource") == "exec"
        return 201, {"status": {"allowed": not excessive}}
    if request.path.endswith("/selfsubjectreviews"):
        return 201, {"status": {"userInfo": {"username": "system:serviceaccount:rung-system:rung"}}}
    return 404, {"kind": "Status", "message": "the server could not find the requested resource"}


@dataclass
class ApiServer:
    """A TLS server on loopback. `requests` is what arrived; `answers` may be replaced."""

    port: int
    authority: Pair
    answers: Answers = ordinary
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"


@contextmanager
def api_server(folder: Path, *, names: tuple[str, ...] = ("api.example.org",)) -> Iterator[ApiServer]:
    """Listens until the block ends."""
    ca = authority()
    own = signed(ca, "api", addresses=("127.0.0.1",), names=names)
    file = folder / "server.pem"
    file.write_text(own.pem + own.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.load_verify_locations(cadata=ca.pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    api = ApiServer(server.server_port, ca)
    server.api = api  # type: ignore[attr-defined]  # the handler's way to it
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5

    def answer(self) -> None:
        """Note and answer."""
        api: ApiServer = self.server.api  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, dict(self.headers), body)
        api.requests.append(request)
        status, said = api.answers(request)
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        with suppress(OSError):
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", data.decode())
                data = b""
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815  # the names http.server calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's own name
        """Quiet."""
