"""What can go wrong between Rung and an API server, each as something a `FaultProxy` does to an exchange."""

import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class Cut(Exception):
    """End the connection here, in the middle of whatever is being said. `hard`: with a reset instead of a FIN."""

    def __init__(self, *, hard: bool = False) -> None:
        super().__init__()
        self.hard = hard


class Silent(Exception):
    """Say nothing more and keep the connection open."""


@dataclass(slots=True)
class Reply:
    """An answer on its way to the client."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


@dataclass(slots=True)
class Exchange:
    """One request and what became of it. `upstream` is the API server's own status, 0 where it was never asked."""

    method: str
    path: str
    query: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytes = b""
    upstream: int = 0
    answered: int = 0
    at: float = field(default_factory=time.monotonic)
    ended: float = 0.0

    @property
    def is_watch(self) -> bool:
        """It asks for a stream."""
        return "watch=1" in self.query or "watch=true" in self.query

    @property
    def is_write(self) -> bool:
        """It may change something: questions about rights do not."""
        return self.method in {"POST", "PUT", "PATCH", "DELETE"} and "/authorization.k8s.io/" not in self.path

    @property
    def manifest(self) -> dict[str, Any]:
        """What it carries, if anything."""
        return json.loads(self.body) if self.body else {}


class Fault:
    """Nothing goes wrong. Faults say at which point they differ."""

    def before(self, exchange: Exchange, chance: random.Random) -> Reply | None:
        """An answer instead of the API server's; or raise Cut or Silent."""

    def after(self, exchange: Exchange, reply: Reply) -> Reply:
        """The API server has answered, and done what was asked."""
        return reply

    def pieces(self, body: bytes) -> Iterator[bytes]:
        """How the body of a whole answer is sent."""
        yield body

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The events of a watch."""
        yield from lines


@dataclass(slots=True)
class Status(Fault):
    """The API server would say this. It is not asked."""

    code: int
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "a fault"

    def before(self, exchange: Exchange, chance: random.Random) -> Reply | None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}, "code": self.code}
        body = json.dumps({**status, "reason": self.reason, "message": self.message}).encode()
        return Reply(self.code, {"Content-Type": "application/json", **self.headers}, body)


class BlackHole(Fault):
    """The request is heard and never answered."""

    def before(self, exchange: Exchange, chance: random.Random) -> Reply | None:
        raise Silent


class Reset(Fault):
    """The connection breaks before the API server is asked."""

    def before(self, exchange: Exchange, chance: random.Random) -> Reply | None:
        raise Cut(hard=True)


class LostAnswer(Fault):
    """The API server does what was asked; nobody hears of it."""

    def after(self, exchange: Exchange, reply: Reply) -> Reply:
        raise Cut


@dataclass(slots=True)
class Slow(Fault):
    """The API server is asked later: up to `seconds`, as the seed says."""

    seconds: float
    least: float = 0.0

    def before(self, exchange: Exchange, chance: random.Random) -> Reply | None:
        time.sleep(chance.uniform(self.least or self.seconds, self.seconds))
        return None


@dataclass(slots=True)
class Drip(Fault):
    """The answer comes byte by byte."""

    pause: float = 0.2

    def pieces(self, body: bytes) -> Iterator[bytes]:
        for number in range(len(body)):
            yield body[number : number + 1]
            time.sleep(self.pause)


@dataclass(slots=True)
class Truncated(Fault):
    """Only a part of the answer comes; of a watch, `events` whole events and half of the next."""

    events: int = 0

    def pieces(self, body: bytes) -> Iterator[bytes]:
        yield body[: len(body) // 2]
        raise Cut

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for number, line in enumerate(lines):
            if number == self.events:
                yield line[: len(line) // 2]
                raise Cut
            yield line


class Duplicated(Fault):
    """Every event comes twice."""

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            yield line
            yield line


class Reordered(Fault):
    """Every second event comes before the one it follows."""

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        held: bytes | None = None
        for line in lines:
            if held is None:
                held = line
                continue
            yield line
            yield held
            held = None
        if held is not None:
            yield held


@dataclass(slots=True)
class Expired(Fault):
    """After some events the stream says 410, in the stream."""

    events: int = 0

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
        error = (
            json.dumps({"type": "ERROR", "object": {**gone, "message": "too old resource version"}}).encode() + b"\n"
        )
        for number, line in enumerate(lines):
            if number == self.events:
                yield error
                return
            yield line
        yield error


class WithoutBookmarks(Fault):
    """The server never says how far a quiet watch has come."""

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        yield from (line for line in lines if b'"BOOKMARK"' not in line)


@dataclass(slots=True)
class HalfOpen(Fault):
    """After some events nothing comes any more, and no FIN either."""

    events: int = 0

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        yield from (line for line, _ in zip(lines, range(self.events), strict=False))
        raise Silent


@dataclass(slots=True)
class Stale(Fault):
    """A LIST is answered as at the first time it was asked: another replica that lags behind."""

    kept: dict[str, Reply] = field(default_factory=dict)

    def after(self, exchange: Exchange, reply: Reply) -> Reply:
        if exchange.method != "GET" or exchange.is_watch or reply.status != 200:
            return reply
        return self.kept.setdefault(exchange.path, reply)
