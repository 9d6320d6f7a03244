"""The only module that sends anything. One origin, no redirects, patient with a busy server, silent about secrets.

- A redirect is never followed: no `Location` ever gets a token.
- 429, 502, 503, 504 and a broken connection are tried again, as `Retry-After` says or a little later each time. What
  may have been carried out already is sent again only where twice is once: a POST under its key, a PUT, a PATCH.
- This machine is reached without a proxy.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from ssl import SSLContext, SSLError
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from rung_cli import __version__
from rung_cli.errors import ApiError, NotSignedIn, Unreachable, UsageError
from rung_cli.http.addresses import is_loopback, origin_of
from rung_cli.output.stderr import note

TURNED_AWAY: Final = frozenset({429, 503})
GAVE_UP: Final = frozenset({502, 504})
"""Statuses of proxies, after which it is unknown whether the request was executed."""
LONGEST_PAUSE: Final = 60.0
FIRST_PAUSE: Final = 0.2
REPORTED_PAUSE: Final = 1.0
SILENCE: Final = 30.0
"""Seconds without a keep-alive, three of which are due, after which a stream is closed."""
StreamEvent = httpx2.ServerSentEvent
Queried = str | int | bool
Query = Mapping[str, Queried]


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request. `key`: the idempotency key of a write; with it, it may be sent again. `text`: a file is wanted."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: Any = None
    key: str = ""
    text: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether it may be retried when its arrival is unknown."""
        return self.method == "GET" or bool(self.key)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How to ask: seconds to wait for an answer, tries after the first, own authorities, and whether to tell of it."""

    timeout: float = 30.0
    retries: int = 4
    ca_file: str = ""
    debug: bool = False
    pause: Callable[[float], None] = time.sleep


class RestTransport:
    """A connection to one portal."""

    def __init__(self, address: str, manner: RequestOptions) -> None:
        self.address = address
        self._manner = manner
        self._client = _client(address, manner)

    def send(self, call: ApiCall, token: str = "") -> Any:
        """The answer's JSON. ApiError, NotSignedIn or Unreachable for everything but success."""
        for tried in range(self._manner.retries + 1):
            last = tried == self._manner.retries
            try:
                response = self._once(call, token)
            except httpx2.TransportError as error:
                if last or not _again(call, error):
                    raise _lost(self.address, error) from None
                self._rest(tried, None, type(error).__name__)
                continue
            if last or not _comes_again(call, response.status_code):
                return _read(response, text=call.text)
            self._rest(tried, response.headers.get("Retry-After"), str(response.status_code))
        raise AssertionError  # the last try either answers or raises

    def events(self, path: str, token: str, last: str = "") -> Iterator[StreamEvent]:
        """A stream of server-sent events after `last`. Unreachable where there is none, and where it breaks."""
        headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last} if last else {})
        timeout = httpx2.Timeout(self._manner.timeout, read=SILENCE)
        try:
            with self._client.sse(f"/api/{path}", headers=headers, timeout=timeout) as source:
                self.debug(f"GET /api/{path} -> {source.response.status_code}, to be followed")
                yield from source
        except (httpx2.HTTPError, RuntimeError) as error:  # the latter: what is open is being closed
            raise Unreachable(str(error) or type(error).__name__) from None

    def debug(self, text: str) -> None:
        """Write a debug line if debug output is enabled."""
        if self._manner.debug:
            note(f"debug: {text}")

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def _once(self, call: ApiCall, token: str) -> httpx2.Response:
        headers = {"Idempotency-Key": call.key} if call.key else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        query = {name: _spelt(value) for name, value in call.query.items()}
        started = time.monotonic()
        with _requests_as_errors():
            response = self._client.request(
                call.method, f"/api/{call.path}", params=query or None, json=call.body, headers=headers
            )
        took = (time.monotonic() - started) * 1000
        line = f"{call.method} /api/{call.path}{'?' if query else ''}{'&'.join(query)}"
        self.debug(f"{line} -> {response.status_code} in {took:.0f} ms {_request_id(response)}".rstrip())
        return response

    def _rest(self, tried: int, retry_after: str | None, why: str) -> None:
        pause = _pause_of(retry_after)
        if pause is None:
            pause = FIRST_PAUSE * 2**tried * random.uniform(0.8, 1.2)  # noqa: S311 - spreads clients, guards nothing
        pause = min(pause, LONGEST_PAUSE)
        if pause >= REPORTED_PAUSE or self._manner.debug:
            note(
                f"{origin_of(self.address)}: {why}; trying again in {pause:.0f} s ({tried + 1}/{self._manner.retries})"
            )
        self._manner.pause(pause)


def _client(address: str, manner: RequestOptions) -> httpx2.Client:
    local = is_loopback(urlsplit(address).hostname or "")
    try:
        verify = _trusted(manner.ca_file)
    except (OSError, SSLError) as error:
        raise UsageError(f"Cannot read the certificates of {manner.ca_file or 'this machine'}: {error}.") from None
    return httpx2.Client(
        base_url=address,
        timeout=manner.timeout,
        verify=verify,
        trust_env=not local,
        follow_redirects=False,
        headers={"User-Agent": f"rung-cli/{__version__}", "Accept": "application/json"},
    )


@cache
def _trusted(ca_file: str) -> SSLContext:
    """The authorities of the file, or of this machine: reading these takes 20 ms, and a command may connect twice."""
    return httpx2.create_ssl_context(ca_file) if ca_file else httpx2.create_ssl_context()


@contextmanager
def _requests_as_errors() -> Iterator[None]:
    """What the library refuses to send is a misuse; what it could not decode is a broken server."""
    try:
        yield
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, ValueError) as error:  # the last one: a NaN in the body
        raise UsageError(f"Invalid request: {error}.") from None
    except httpx2.DecodingError as error:
        raise Unreachable(f"Cannot decode the response: {error}.") from None


def _again(call: ApiCall, error: httpx2.TransportError) -> bool:
    """A connection that was never made carried nothing; anything else may have been done already."""
    return call.repeatable or isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)


def _comes_again(call: ApiCall, status: int) -> bool:
    """Busy at the door, or, where the door itself gave up waiting, anything that may arrive twice."""
    return status in TURNED_AWAY or (status in GAVE_UP and call.repeatable)


def _lost(address: str, error: httpx2.TransportError) -> Unreachable:
    reason = str(error) or type(error).__name__
    hint = ""
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        hint = "Set the certificate authority with --ca-file FILE. Certificates are always verified."
    return Unreachable(f"{origin_of(address)} cannot be reached: {reason}.", hint=hint)


def _read(response: httpx2.Response, *, text: bool = False) -> Any:
    """1. no redirect is followed  2. errors become exceptions  3. success is JSON or nothing, or the text of a file"""
    if response.is_redirect:
        raise _sent_elsewhere(response)
    if response.is_success and text:
        return response.text
    body = _json(response)
    if response.is_success:
        if body is None and response.content.strip():
            raise Unreachable("The response is not JSON.", hint="Is this the address of a portal?")
        return body
    answer = body if isinstance(body, dict) else {}
    message = str(answer.get("message") or f"HTTP {response.status_code} {response.reason_phrase}")
    if response.status_code == 401:
        raise NotSignedIn(message, hint="Sign in: rung login")
    if response.status_code >= 500 or response.status_code in TURNED_AWAY:
        raise Unreachable(f"{message} ({response.status_code})")
    raise ApiError(message, status=response.status_code, answer=answer)


def _sent_elsewhere(response: httpx2.Response) -> ApiError:
    target = response.headers.get("Location", "")
    host = urlsplit(target).hostname or "another path on the same host"
    text = f"The server redirects to {host}. rung does not follow redirects, to protect the token."
    return ApiError(text, status=response.status_code, answer={"details": "redirected"})


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json() if response.content.strip() else None
    except ValueError:
        return None


def _pause_of(text: str | None) -> float | None:
    """Seconds of a `Retry-After`: a number or a date."""
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _request_id(response: httpx2.Response) -> str:
    return str(response.headers.get("X-Request-ID", ""))


def _spelt(value: Queried) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
