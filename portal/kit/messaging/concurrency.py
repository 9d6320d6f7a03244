"""Bounded concurrency inside one process: calls in a few threads, and slots for readers.

The caller stays awake: between answers `idle` is called, at least once a second, so it can show that it lives.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

TICK: Final = 1.0
GATHER: Final = 0.01
MANY: Final = 8  # tasks for each thread


def no_work() -> None:
    """Nothing to do meanwhile."""


def map_concurrently(
    tasks: Sequence[Task],
    act: Callable[[Task], Result],
    *,
    threads: int,
    idle: Callable[[], None],
    meanwhile: Callable[[], object] = no_work,
) -> Generator[tuple[Task, Result], None, None]:
    """Each task with its answer, as they come. What `act` raises is raised here, and no further task is begun.

    With one thread everything happens in the caller's own, in order. No thread is left behind when this ends or
    is closed.
    `meanwhile` is done once, by the caller's thread, while the first answers are on their way.
    """
    yield from flat_map_concurrently(tasks, lambda task: (act(task),), threads=threads, idle=idle, meanwhile=meanwhile)


def flat_map_concurrently(
    tasks: Sequence[Task],
    act: Callable[[Task], Iterable[Result]],
    *,
    threads: int,
    idle: Callable[[], None],
    meanwhile: Callable[[], object] = no_work,
) -> Generator[tuple[Task, Result], None, None]:
    """The same for answers that come in parts, each as it comes; those of a task keep their order."""
    if threads <= 1:
        meanwhile()
        for task in tasks:
            idle()
            for part in act(task):
                yield task, part
        return
    team = _WorkerThreads(tasks, act, min(threads, len(tasks)))
    try:
        meanwhile()
        yield from team.answers(idle)
    finally:
        team.stop()


class _WorkerThreads(Generic[Task, Result]):
    """Threads that take the next task until there is none. Each puts None when it has ended."""

    def __init__(self, tasks: Sequence[Task], act: Callable[[Task], Iterable[Result]], size: int) -> None:
        self._waiting = deque(tasks)
        self._act = act
        self._stopped = False
        self._done: SimpleQueue[tuple[Task, Result] | BaseException | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def answers(self, idle: Callable[[], None]) -> Iterator[tuple[Task, Result]]:
        working = len(self._threads)
        while working:
            for done in self._some():
                if isinstance(done, BaseException):
                    raise done
                if done is None:
                    working -= 1
                else:
                    yield done
            idle()

    def _some(self) -> list[tuple[Task, Result] | BaseException | None]:
        """What is done by now, or next. While much is left to do, answers gather: a thread that wakes stops others."""
        if len(self._waiting) > MANY * len(self._threads):
            time.sleep(GATHER)
        found = []
        with suppress(Empty):
            found.append(self._done.get(timeout=TICK))
            while True:
                found.append(self._done.get_nowait())
        return found

    def stop(self) -> None:
        """Begin nothing more and wait for what is under way."""
        self._stopped = True
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            while not self._stopped:
                try:
                    task = self._waiting.popleft()
                except IndexError:
                    break
                self._all_of(task)
        except BaseException as error:  # whatever it is, it is the asking thread's to raise
            self._stopped = True
            self._done.put(error)
        self._done.put(None)

    def _all_of(self, task: Task) -> None:
        for part in self._act(task):
            self._done.put((task, part))
            if self._stopped:
                return


MOST: Final = 6
OF_ONE: Final = 3
"""Of one cluster; the rest is left to those of others."""


class LogReaderSlots:
    """Callers never wait: without a slot they try again later. Thread-safe."""

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
