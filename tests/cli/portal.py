"""A portal that answers what a test tells it to, and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "eyJ.only-for-tests.canary"


@dataclass(frozen=True)
class Answer:
    """One answer: bytes as they are, nothing, or anything else as JSON."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Portal:
    """Answers in the order of `answers`, the last one for ever; tokens are always given."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.tokens = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    port = 0

    def answer(self, asked: Asked) -> Answer:
        """The next one."""
        if asked.path == "/api/v1/token":
            self.tokens += 1
            return Answer(body={"accessToken": TOKEN, "expiresIn": 3600})
        self.asked.append(asked)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def portal_that(*answers: Answer) -> Iterator[Portal]:
    """It listens on this machine while the block runs."""
    portal = Portal(answers)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, self.path, dict(self.headers), json.loads(text) if text else None)
            found = portal.answer(asked)
            body = found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
            body = b"" if found.body is None else body
            self.send_response(found.status)
            for name, value in {**found.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - as the library names them

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    portal.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield portal
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
