"""ASGI middlewares that bound requests: the size and time of a body, and concurrent writes of one credential.

Django writes a whole body into a temporary file before it looks at the request. Here it is counted while it arrives.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

from portal.kit.api.error_responses import error_body

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

READS = frozenset({"GET", "HEAD", "OPTIONS"})


class WriteConcurrencyLimit:
    """Let at most `limit` writes of one `Authorization` header run at a time; the others wait in order of arrival.

    All requests of a process share one interpreter, so a client with many connections would slow every page of
    everybody else by their number. Reads and streams pass: they carry no lock and may last for hours.
    """

    def __init__(self, app: Application, limit: int) -> None:
        self._app, self._limit = app, limit
        # A semaphore lives as long as a request that holds it or waits for it.
        self._slots: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, when this credential's turn has come."""
        credential = _credential(scope)
        if credential is None:
            await self._app(scope, receive, send)
            return
        slots = self._slots.get(credential)
        if slots is None:
            slots = self._slots[credential] = asyncio.Semaphore(self._limit)
        async with slots:
            await self._app(scope, receive, send)


def _credential(scope: Scope) -> bytes | None:
    """A digest of the `Authorization` header of a write; None for everything else."""
    if scope["type"] != "http" or scope["method"] in READS:
        return None
    header = dict(scope["headers"]).get(b"authorization")
    return None if header is None else blake2b(header, digest_size=16).digest()


LARGEST: Final = 2 * 1024 * 1024
"""Bytes. Imports of the console are the largest bodies; REST takes at most 512 KiB of them."""
SECONDS: Final = 60.0
"""A body has to arrive within this time."""
MOST_ESCAPES: Final = 64 * 1024
"""Percent signs of a form. Each costs half a microsecond, and a page unquotes the form before it knows who sends it."""
FORM: Final = b"application/x-www-form-urlencoded"


class BodyLimit:
    """Read a request's body, then run the application with it. 408 for a slow body.

    413 for a large one, and for a form of more than `MOST_ESCAPES` percent signs.
    """

    def __init__(self, app: Application, *, largest: int = LARGEST, seconds: float = SECONDS) -> None:
        self._app, self._largest, self._seconds = app, largest, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests that announce too large a body are refused unread."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _announced(scope) > self._largest:
            await self._refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            async with asyncio.timeout(self._seconds):
                messages = await self._body(receive, MOST_ESCAPES if _is_form(scope) else self._largest)
        except TimeoutError:
            await self._refuse(send, HTTPStatus.REQUEST_TIMEOUT)
            return
        if messages is None:
            await self._refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return

        async def replayed() -> Mapping[str, Any]:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replayed, send)

    async def _body(self, receive: Receive, most_escapes: int) -> list[Mapping[str, Any]] | None:
        """Every message up to the end of the body, or to the client's leaving; None for too large a body."""
        messages: list[Mapping[str, Any]] = []
        size = escapes = 0
        while not messages or messages[-1].get("more_body", False):
            messages.append(await receive())
            body = messages[-1].get("body", b"")
            size, escapes = size + len(body), escapes + body.count(b"%")
            if size > self._largest or escapes > most_escapes:
                return None
        return messages

    async def _refuse(self, send: Send, status: HTTPStatus) -> None:
        text = {
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"The body must be at most {self._largest} bytes, and a form may hold "
            f"at most {MOST_ESCAPES} escaped characters.",
            HTTPStatus.REQUEST_TIMEOUT: f"The body did not arrive within {self._seconds:.0f} seconds.",
        }[status]
        code = "too_large" if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE else "too_slow"
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
            (b"x-request-id", str(uuid4()).encode()),
        ]
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(error_body(status, text, code)).encode()})


def _is_form(scope: Scope) -> bool:
    """True for what Django reads as a form."""
    return bool(dict(scope["headers"]).get(b"content-type", b"").strip().lower().startswith(FORM))


def _announced(scope: Scope) -> int:
    """Content-Length; 0 without one, as in a chunked body. The server has checked that it is a number."""
    return int(dict(scope["headers"]).get(b"content-length", b"0"))
