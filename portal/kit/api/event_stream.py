"""Server-sent events: an answer that stays open and sends what happens, without a thread of its own.

What is sent comes from an `EventSource`, read in short steps by a few threads for all streams of a process. At each
beat the source says whether the reader may still read; a stream that cannot find out ends too. Under WSGI, where an
open answer would hold a thread, only what is there is answered, and the reader comes back: that is what `retry` tells
it.

Events come from a `ConnectionSource`, read in short steps by a few threads for all streams of a process. At
each beat the source says whether the reader may still read; a stream that cannot find out ends too. Under WSGI, where
an open answer would hold a thread, only what is there is answered, and the reader comes back: that is what `retry`
tells it.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Protocol

from asgiref.sync import SyncToAsync, sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

CONTENT_TYPE: Final = "text/event-stream"
RETRY: Final = "retry: 3000\n\n"
BEAT: Final = ": beat\n\n"
READERS: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="eventstream")


class EventSource(Protocol):
    """The events of a stream."""

    def read(self) -> tuple[str, bool]:
        """The frames since the last call, and whether they were the last."""

    def still_allowed(self) -> bool:
        """May the reader go on? Asked at every beat."""


def frame(event: str, data: Any, *, key: str = "") -> str:
    """One event. JSON holds no line break, so one line of data is enough."""
    name = f"id: {key}\n" if key else ""
    return f"{name}event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def end(reason: str) -> str:
    """The last event: nothing more comes on this stream."""
    return frame("end", {"reason": reason})


class OpenStreams:
    """How many streams each reader and all together have open in this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()

    def take(self, reader: str) -> bool:
        """True: one more is open, and must be given back."""
        limits = settings.RUNG_STREAMS
        with self._lock:
            free = self._open[reader] < limits["of_one"] and self._open.total() < limits["most"]
            self._open[reader] += free
            return free

    def refund_try(self, reader: str) -> None:
        with self._lock:
            self._open[reader] -= 1
            if self._open[reader] <= 0:
                del self._open[reader]


class EventStream(StreamingHttpResponse):
    """The open answer; however it ends, `on_close` is called once."""

    def __init__(self, source: EventSource, on_close: Callable[[], None]) -> None:
        super().__init__(_events(source), content_type=CONTENT_TYPE, headers={"X-Accel-Buffering": "no"})
        self._on_close: Callable[[], None] | None = on_close

    def close(self) -> None:
        """Called by the server, also when the reader has gone."""
        super().close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


def stream(request: HttpRequest, source: EventSource, on_close: Callable[[], None]) -> HttpResponseBase:
    """The answer to a reader: a stream under ASGI, what there is elsewhere."""
    if isinstance(request, ASGIRequest):
        return EventStream(source, on_close)
    try:
        frames, over = source.read()
    finally:
        on_close()
    return HttpResponse(RETRY + frames + ("" if over else end("again")), content_type=CONTENT_TYPE)


async def _events(source: EventSource) -> AsyncIterator[str]:
    """1. what is new, each tick  2. at each beat: still allowed?  3. the end, at the latest after its longest life."""
    _free_thread()
    limits = settings.RUNG_STREAMS
    began = beat = time.monotonic()
    yield RETRY
    while True:
        frames, over = await _step(source.read)
        if frames:
            yield frames
        if over:
            return
        await asyncio.sleep(limits["tick"])
        now = time.monotonic()
        if now - beat < limits["beat"]:
            continue
        beat = now
        if last := await _reason_to_end(source, longest=now - began >= limits["longest"]):
            yield end(last)
            return
        yield BEAT


async def _reason_to_end(source: EventSource, *, longest: bool) -> str:
    if longest:
        return "again"
    return "" if await sync_to_async(_allowed, thread_sensitive=False, executor=READERS)(source) else "access"


def _allowed(source: EventSource) -> bool:
    """A reader whose access cannot be checked has none: its next request gets the reason."""
    try:
        return source.still_allowed()
    except Error:
        _drop_connection()
        return False


async def _step(read: Callable[[], tuple[str, bool]]) -> tuple[str, bool]:
    return await sync_to_async(_read, thread_sensitive=False, executor=READERS)(read)


def _read(read: Callable[[], tuple[str, bool]]) -> tuple[str, bool]:
    """A database that does not answer now is asked again at the next tick."""
    try:
        return read()
    except Error:
        _drop_connection()
        return "", False


def _drop_connection() -> None:
    """Reader threads keep their connections from step to step; a failed one is replaced."""
    connection.close()
    del connections[DEFAULT_DB_ALIAS]


def _free_thread() -> None:
    """End the thread that answered the request: it would idle until the stream closes.

    The server asks for another one at the end, for the few statements of closing.
    """
    with suppress(LookupError):
        context = SyncToAsync.thread_sensitive_context.get()
        executor = SyncToAsync.context_to_thread_executor.pop(context, None)
        if executor is not None:
            executor.submit(connections.close_all)
            executor.shutdown(wait=False)
