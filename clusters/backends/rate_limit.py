"""How fast a cluster is asked: as many requests at a time as it takes, none while it rests, none while it is dead.

`AdaptiveConcurrency` and `RequestBreaker` are pure: time and chance are arguments.
`RateLimiter` applies them to the threads of this process.

`AdaptiveConcurrency` and `RequestBreaker` are pure: time and chance are arguments. `RateLimiter` puts them before the
threads of this process.
"""

import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from clusters.ports.gateway import ClusterBusy, ClusterUnreachable

START: Final = 12
MOST: Final = 16
PATIENCE: Final = 2.0  # seconds that a thread waits for a cluster that wants rest; longer is the caller's to plan
QUEUE: Final = 30.0  # seconds that a thread waits for its turn
ROUND: Final = 1.0  # seconds in which several refusals are one message


class AdaptiveConcurrency:
    """Additive increase, multiplicative decrease of how many requests are under way at a time."""

    def __init__(self, *, start: int = START, most: int = MOST) -> None:
        self._allowed = float(start)
        self._most = most
        self._slowed_at = -math.inf
        self.rests_until = -math.inf

    @property
    def allowed(self) -> int:
        return int(self._allowed)

    def answered(self) -> None:
        """One more at a time after as many answers as there may be requests."""
        self._allowed = min(self._most, self._allowed + 1 / self._allowed)

    def pushed_back(self, now: float, *, rest: float = 0.0) -> None:
        """Half as many, once a round however many were refused in it; nothing at all for `rest` seconds."""
        if now - self._slowed_at >= ROUND:
            self._allowed = max(1.0, self._allowed / 2)
            self._slowed_at = now
        self.rests_until = max(self.rests_until, now + rest)


class RequestBreaker:
    """Opens after some failures in a row; then one request may try, ever more seldom, until one is answered."""

    def __init__(self, *, after: int = 3, first: float = 1.0, longest: float = 60.0) -> None:
        self._after = after
        self._first = first
        self._longest = longest
        self.failures = 0
        self._barred_until = -math.inf
        self._trying = False

    def wait(self, now: float) -> float:
        """Seconds until the next try; 0: now."""
        return max(0.0, self._barred_until - now) if self.failures >= self._after else 0.0

    def rest(self, now: float) -> float:
        """Seconds after which to ask again. While one request probes, its outcome is known before others may try."""
        return min(self.wait(now), self._first) if self._trying else self.wait(now)

    def tried(self, now: float) -> None:
        """Start a request. While the circuit is open it is the only one until its outcome is known or overdue."""
        if self.failures >= self._after:
            self._barred_until = now + self._longest
            self._trying = True

    def succeeded(self) -> None:
        """An answer came, whatever it says."""
        self.failures = 0
        self._trying = False

    def failed(self, now: float, *, chance: float) -> None:
        """No answer. `chance` in 0..1 spreads the tries of many processes.

        Failures while the circuit is open belong to earlier requests: many watches that break at once log one message.
        """
        if self.wait(now) > 0 and not self._trying:
            return
        self._trying = False
        self.failures += 1
        doubled = self._first * 2.0 ** min(self.failures - self._after, 16)
        self._barred_until = now + min(self._longest, doubled) * (0.5 + chance / 2)


class RateLimiter:
    """The threads of one process before one cluster."""

    def __init__(
        self, name: str, *, pace: AdaptiveConcurrency | None = None, breaker: RequestBreaker | None = None
    ) -> None:
        self._name = name
        self._pace = pace or AdaptiveConcurrency()
        self._breaker = breaker or RequestBreaker()
        self._under_way = 0
        self._changed = threading.Condition()

    @property
    def allowed(self) -> int:
        """How many requests may be under way now."""
        return self._pace.allowed

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and take it. ClusterUnreachable: it is dead. ClusterBusy: it rests, or the wait was long."""
        with self._changed:
            self._queue()
            self._breaker.tried(time.monotonic())
            self._under_way += 1
        try:
            yield
        except ClusterUnreachable:
            self._failed()
            raise
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify()

    @contextmanager
    def judged(self) -> Iterator[None]:
        """The same without a turn, for what lasts long: refused while the cluster is dead, and its failure counts."""
        with self._changed:
            self._refuse_dead()
            self._breaker.tried(time.monotonic())
        try:
            yield
        except ClusterUnreachable:
            self._failed()
            raise

    def _failed(self) -> None:
        with self._changed:
            self._breaker.failed(time.monotonic(), chance=random.random())  # noqa: S311 - spreads tries
            self._changed.notify_all()

    def answered(self, *, busy: bool = False, rest: float = 0.0) -> None:
        """An answer came; `busy` when it was a refusal for want of capacity."""
        with self._changed:
            self._breaker.succeeded()
            if busy:
                self._pace.pushed_back(time.monotonic(), rest=rest)
            else:
                self._pace.answered()

    def _refuse_dead(self) -> None:
        now = time.monotonic()
        if self._breaker.wait(now) > 0:
            rest = self._breaker.rest(now)
            message = f"{self._name} failed {self._breaker.failures} times in a row. Next attempt in {rest:.0f} s."
            raise ClusterUnreachable(message, retry_after=math.ceil(rest))

    def _queue(self) -> None:
        until = time.monotonic() + QUEUE
        while True:
            self._refuse_dead()
            now = time.monotonic()
            rest = self._pace.rests_until - now
            if rest > PATIENCE:
                raise ClusterBusy(
                    f"{self._name} is rate limiting: next request in {rest:.0f} s.", retry_after=math.ceil(rest)
                )
            if rest <= 0 and self._under_way < self._pace.allowed:
                return
            if now >= until:
                raise ClusterBusy(f"{self._name} has been busy for {QUEUE:.0f} s.", retry_after=1)
            self._changed.wait(timeout=min(rest, PATIENCE) if rest > 0 else until - now)
