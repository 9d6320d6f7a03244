"""A portal that answers what a test tells it to, and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "eyJ.only-for-tests.canary"


@dataclass(frozen=True)
class Answer:
    """One answer: bytes as they are, nothing, or anything else as JSON. `after`: it comes so many seconds later.

    `parts`: sent one after the other, a number being seconds between them; then the connection is closed.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after: float = 0
    parts: Sequence[bytes | float] = ()


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Portal:
    """Answers in the order of `answers`, the last one for ever; tokens are always given.

    What is asked of a stream is answered in the order of `streams` in the same way.
    """

    def __init__(self, answers: Sequence[Answer], streams: Sequence[Answer] = ()) -> None:
        self.answers, self.streams = list(answers), list(streams)
        self.over = threading.Event()
        self.requested: list[Asked] = []
        self.tokens = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    port = 0

    def answer(self, requested: Asked) -> Answer:
        """The next one."""
        if requested.path == "/api/v1/token":
            self.tokens += 1
            return Answer(body={"accessToken": TOKEN, "expiresIn": 3600})
        self.requested.append(requested)
        answers = self.streams if requested.path.partition("?")[0].endswith("/stream") else self.answers
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def asked_for(self, end: str) -> list[Asked]:
        """The requests whose path ends so."""
        return [each for each in self.requested if each.path.endswith(end)]


def serve(handler: BaseHTTPRequestHandler, portal: Portal) -> None:
    """One request."""
    text = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    found = portal.answer(
        Asked(handler.command, handler.path, dict(handler.headers), json.loads(text) if text else None)
    )
    portal.over.wait(found.after)
    body = found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
    body = b"" if found.body is None else body
    handler.send_response(found.status)
    for name, value in {**found.headers, **({} if found.parts else {"Content-Length": str(len(body))})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    for part in found.parts or (body,):
        if isinstance(part, bytes):
            handler.wfile.write(part)
        else:
            portal.over.wait(part)


@contextmanager
def portal_that(*answers: Answer, streams: Sequence[Answer] = ()) -> Iterator[Portal]:
    """It listens on this machine while the block runs."""
    portal = Portal(answers, streams)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            with suppress(ConnectionError):  # who asked may have gone
                serve(self, portal)

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
        portal.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
