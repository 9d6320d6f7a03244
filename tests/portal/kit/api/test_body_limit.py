"""A body is counted while it arrives: nothing large is stored, and a slow client does not keep a request open."""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from portal.kit.api import request_limits
from portal.kit.api.request_limits import BodyLimit

LARGEST = 100


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with the body that it was given."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def answer(
    *chunks: bytes, announced: int | None = None, pause: float = 0.0, seconds: float = 5.0, kind: str = ""
) -> tuple[int, bytes, int]:
    """Status, body, and how many chunks were taken from the client."""
    sent: list[Mapping[str, Any]] = []
    taken = 0

    async def receive() -> Mapping[str, Any]:
        nonlocal taken
        await asyncio.sleep(pause)
        taken += 1
        return {"type": "http.request", "body": chunks[taken - 1], "more_body": taken < len(chunks)}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", kind.encode())]
    headers += [] if announced is None else [(b"content-length", str(announced).encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/v1/token", "headers": headers}
    limit = BodyLimit(application, largest=LARGEST, seconds=seconds)
    with ThreadPoolExecutor(max_workers=1) as pool:  # a browser test may have left a running event loop in this thread
        pool.submit(lambda: asyncio.run(limit(scope, receive, send))).result()
    assert sent[0]["status"] == 200 or dict(sent[0]["headers"])[b"x-request-id"]
    return sent[0]["status"], sent[1]["body"], taken


@pytest.mark.parametrize("chunks", [(b"",), (b"a" * LARGEST,), (b"a" * 40, b"b" * 40, b"c" * 20)])
def test_a_body_within_the_limit_reaches_the_application_whole(chunks: tuple[bytes, ...]) -> None:
    status, body, _ = answer(*chunks)
    assert (status, body) == (200, b"".join(chunks))


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "Application/X-WWW-Form-UrlEncoded; charset=x"])
def test_a_form_of_more_escapes_than_are_read_in_time_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(request_limits, "MOST_ESCAPES", 10)
    assert answer(b"a=%41%41%41%41%41", b"%41%41%41%41%41", kind=kind)[0] == 200
    assert answer(b"a=%41%41%41%41%41", b"%41%41%41%41%41%", kind=kind)[0] == 413
    assert answer(b"%" * 50, kind="application/json")[0] == 200


def test_an_announced_body_that_is_too_large_is_refused_unread() -> None:
    status, body, taken = answer(b"a", announced=LARGEST + 1)
    assert (status, json.loads(body)["details"], taken) == (413, "too_large", 0)


def test_a_body_of_unknown_size_is_refused_at_the_limit() -> None:
    status, _, taken = answer(*[b"a" * 60] * 1000)
    assert (status, taken) == (413, 2)


def test_a_body_that_drips_is_given_up() -> None:
    status, body, _ = answer(*[b"a"] * 50, pause=0.02, seconds=0.1)
    assert (status, json.loads(body)["details"]) == (408, "too_slow")
