"""How many logs a process reads at a time: a thread waits for each, and a slow cluster must not hold them all. Pure."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

MOST: Final = 6
OF_ONE: Final = 3
"""Of one cluster; the rest is left to those of others."""


class LogTurns:
    """Nobody waits for a turn: who gets none asks again later. Thread-safe."""

    def __init__(self, *, most: int = MOST, of_one: int = OF_ONE) -> None:
        self._most, self._of_one = most, of_one
        self._lock = threading.Lock()
        self._reading: Counter[Hashable] = Counter()

    @contextmanager
    def turn(self, cluster: Hashable) -> Iterator[bool]:
        """True: read now, and the turn ends with the block however it ends. False: too many are reading."""
        mine = self._take(cluster)
        try:
            yield mine
        finally:
            if mine:
                self._give_back(cluster)

    def _take(self, cluster: Hashable) -> bool:
        with self._lock:
            free = self._reading.total() < self._most and self._reading[cluster] < self._of_one
            self._reading[cluster] += free
            return free

    def _give_back(self, cluster: Hashable) -> None:
        with self._lock:
            self._reading[cluster] -= 1
            if not self._reading[cluster]:
                del self._reading[cluster]
