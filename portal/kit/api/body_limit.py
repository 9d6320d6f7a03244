"""An ASGI middleware that refuses large and slow request bodies before anything stores them.

Django writes a whole body into a temporary file before it looks at the request. Here it is counted while it arrives.
"""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from portal.kit.api.concurrency_limit import Application, Receive, Scope, Send
from portal.kit.api.error_responses import error_body

LARGEST: Final = 2 * 1024 * 1024
"""Bytes. Imports of the console are the largest bodies; REST takes at most 512 KiB of them."""
SECONDS: Final = 60.0
"""A body has to arrive within this time."""


class BodyLimit:
    """Read a request's body, then run the application with it. 413 for a large body, 408 for a slow one."""

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
                messages = await self._body(receive)
        except TimeoutError:
            await self._refuse(send, HTTPStatus.REQUEST_TIMEOUT)
            return
        if messages is None:
            await self._refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return

        async def replayed() -> Mapping[str, Any]:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replayed, send)

    async def _body(self, receive: Receive) -> list[Mapping[str, Any]] | None:
        """Every message up to the end of the body, or to the client's leaving; None for too large a body."""
        messages: list[Mapping[str, Any]] = []
        size = 0
        while not messages or messages[-1].get("more_body", False):
            messages.append(await receive())
            size += len(messages[-1].get("body", b""))
            if size > self._largest:
                return None
        return messages

    async def _refuse(self, send: Send, status: HTTPStatus) -> None:
        text = {
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"The body must be at most {self._largest} bytes.",
            HTTPStatus.REQUEST_TIMEOUT: f"The body did not arrive within {self._seconds:.0f} seconds.",
        }[status]
        code = "too_large" if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE else "too_slow"
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(error_body(status, text, code)).encode()})


def _announced(scope: Scope) -> int:
    """Content-Length; 0 without one, as in a chunked body. The server has checked that it is a number."""
    return int(dict(scope["headers"]).get(b"content-length", b"0"))
