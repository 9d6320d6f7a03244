"""A stub of an API server for one benchmark: it replays a recorded watch of pods over TLS, as fast as it is read.

    python -m benchmarks.watch_stub FOLDER EVENTS ORDER

The recording is one pod's life on a real control plane; it is replayed for as many pods as make up EVENTS, in an ORDER.
Writes `port` and `ca.crt` to FOLDER.
"""

import datetime
import ipaddress
import json
import ssl
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

RECORDED = Path(__file__).parent / "recorded" / "pod_watch.jsonl"
PODS = "/api/v1/pods"
FIRST = 1000
"""resourceVersion of the empty list that the replay follows."""
CHUNK = 1 << 16
STARTING = 3
BURST = 100


def replay(events: int, order: str) -> Iterator[bytes]:
    """The lines, each with its own resourceVersion."""
    stages = [line.encode() for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    for version, (stage, pod) in enumerate(islice(ORDERS[order](-(-events // len(stages)), len(stages)), events)):
        head, *rest = stages[stage].split(b"@VERSION@")
        line = head + str(FIRST + 1 + version).encode() + b"@VERSION@".join(rest)
        yield line.replace(b"@NAME@", b"%05d" % pod).replace(b"@UID@", b"81fd9726-64b9-4856-b275-%012d" % pod)


def by_stages(pods: int, stages: int) -> Iterator[tuple[int, int]]:
    """One stage of all pods after the other: no two events of a pod come close together."""
    return ((stage, pod) for stage in range(stages) for pod in range(pods))


def in_bursts(pods: int, stages: int) -> Iterator[tuple[int, int]]:
    """As it was recorded: a pod starts within a moment (3 events) and ends within another, a hundred pods at a time."""
    for part in (range(STARTING), range(STARTING, stages)):
        for first in range(0, pods, BURST):
            yield from ((stage, pod) for stage in part for pod in range(first, min(first + BURST, pods)))


ORDERS = {"stages": by_stages, "bursts": in_bursts}


class Server(ThreadingHTTPServer):
    """Knows how much to replay."""

    daemon_threads = True
    events = 0
    order = "bursts"

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that has enough hangs up: nothing to tell."""


class Stub(BaseHTTPRequestHandler):
    """Lists are empty, watches of other kinds are silent."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        requested = {key: values[0] for key, values in parse_qs(url.query).items()}
        if requested.get("watch"):
            self._watch(url.path, requested)
        elif url.path == "/api/v1":
            names = [{"name": name} for name in ("pods", "nodes", "events")]
            self._answer({"kind": "APIResourceList", "resources": names})
        elif url.path.endswith("/namespaces/kube-system"):
            self._answer({"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "stub"}})
        elif url.path == "/version":
            self._answer({"gitVersion": "v1.36.3-stub"})
        elif url.path.startswith("/apis/"):
            self._answer({"kind": "APIResourceList", "resources": []})
        else:
            self._answer({"kind": "List", "metadata": {"resourceVersion": str(FIRST)}, "items": []})

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Not a word."""

    def _answer(self, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, path: str, requested: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        until = time.monotonic() + float(requested.get("timeoutSeconds", 1))
        if path == PODS:
            self._replay(int(requested.get("resourceVersion", FIRST)), until)
        time.sleep(max(0.0, min(until - time.monotonic(), 2.0)))
        self.wfile.write(b"0\r\n\r\n")

    def _replay(self, since: int, until: float) -> None:
        """From there on, until the watch's time is over."""
        batch, size = [], 0
        for line in islice(replay(self.server.events, self.server.order), since - FIRST, None):
            if time.monotonic() > until:
                break
            batch += [line, b"\n"]
            size += len(line) + 1
            if size >= CHUNK:
                self._chunk(batch, size)
                batch, size = [], 0
        if size:
            self._chunk(batch, size)

    def _chunk(self, batch: list[bytes], size: int) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (size, b"".join(batch)))


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stub")])
    now = datetime.datetime.now(tz=datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca, private = folder / "ca.crt", folder / "key.pem"
    ca.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return ca, private


def main(folder: str, events: str, order: str) -> None:
    ca, private = certificate(Path(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca, private)
    server = Server(("127.0.0.1", 0), Stub)
    server.events, server.order = int(events), order
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (Path(folder) / "port").write_text(str(server.server_port))
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
