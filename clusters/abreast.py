"""Calls side by side in a few threads, their answers in the thread that asked. Pure: no database, no cluster.

The caller stays awake: between answers `idle` is called, at least once a second, so it can show that it lives.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

TICK: Final = 1.0


def abreast(
    tasks: Sequence[Task], act: Callable[[Task], Result], *, threads: int, idle: Callable[[], None]
) -> Iterator[tuple[Task, Result]]:
    """Each task with its answer, as they come. What `act` raises is raised here, and no further task is begun.

    With one thread everything happens in the caller's own, in order. No thread is left behind when this ends.
    """
    if threads <= 1:
        for task in tasks:
            idle()
            yield task, act(task)
        return
    team = _Team(tasks, act, min(threads, len(tasks)))
    try:
        yield from team.answers(idle)
    finally:
        team.stop()


class _Team(Generic[Task, Result]):
    """Threads that take the next task until there is none."""

    def __init__(self, tasks: Sequence[Task], act: Callable[[Task], Result], size: int) -> None:
        self._waiting = deque(tasks)
        self._left = len(tasks)
        self._act = act
        self._stopped = False
        self._done: SimpleQueue[tuple[Task, Result] | BaseException] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def answers(self, idle: Callable[[], None]) -> Iterator[tuple[Task, Result]]:
        while self._left:
            try:
                done = self._done.get(timeout=TICK)
            except Empty:
                idle()
                continue
            if isinstance(done, BaseException):
                raise done
            self._left -= 1
            yield done
            idle()

    def stop(self) -> None:
        """Begin nothing more and wait for what is under way."""
        self._stopped = True
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not self._stopped:
            try:
                task = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._done.put((task, self._act(task)))
            except BaseException as error:  # whatever it is, it is the asking thread's to raise
                self._done.put(error)
                return
