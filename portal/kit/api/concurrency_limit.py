"""An ASGI middleware that bounds how many writes of one credential this process works on at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

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
