"""Wake a worker once the transaction has committed. A lost wake-up delays work by one sweep and nothing else.

The sender never waits for a broker: what is to be sent is put into a bounded queue, and one thread per process carries
it away. A full queue drops. The thread itself is patient only for a moment: short connect and socket timeouts, no
publish retry, and after a failure a few seconds in which nothing is tried. Messages carry ids, never data. The first
message leaves at once; those of the next moment leave together, each of them once.
"""

import atexit
import os
import threading
import time
from functools import partial
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu import pools
from kombu.connection import Connection

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 0.5
QUIET_SECONDS = 5.0
LONGEST_QUEUE = 1000
BREATH_SECONDS = 0.05


class Message(NamedTuple):
    """A task by name, its arguments, its queue."""

    task: str
    args: tuple[str, ...]
    queue: str


_state = {"quiet_until": 0.0}


def notify_worker(task_name: str, *args: str, queue: str) -> None:
    """Send the task by name when the current transaction commits; at once outside of one."""
    if settings.RUNG_WAKEUPS == "on":
        transaction.on_commit(partial(_publisher.give, Message(task_name, args, queue)))


class Publisher:
    """A queue and the thread that empties it, started at the first message."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Reset after a fork: the child inherits neither the thread nor the parent's unsent messages."""
        self._messages: Queue[Message] = Queue(LONGEST_QUEUE)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def give(self, message: Message) -> None:
        """Hand a message over without waiting; one too many is dropped."""
        try:
            self._messages.put_nowait(message)
        except Full:
            log.warning("wakeup.dropped", task=message.task)
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def settle(self, seconds: float) -> bool:
        """Wait until everything given so far was sent or given up; False when that takes longer."""
        deadline = time.monotonic() + seconds
        while self._messages.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.005)
        return not self._messages.unfinished_tasks

    def _start(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._carry, name="wake-ups", daemon=True)
                self._thread.start()

    def _carry(self) -> None:
        while True:
            messages = self._waiting()
            try:
                for message in dict.fromkeys(messages):
                    _send(message)
            finally:
                for _ in messages:
                    self._messages.task_done()
            time.sleep(BREATH_SECONDS)

    def _waiting(self) -> list[Message]:
        """Everything that waits now; at least one, which is waited for."""
        found = [self._messages.get()]
        while True:
            try:
                found.append(self._messages.get_nowait())
            except Empty:
                return found


_publisher = Publisher()


os.register_at_fork(after_in_child=_publisher.renew)


@atexit.register
def flush(seconds: float = 1.0) -> bool:
    """Wait until no message is under way: at the end of a process, and in tests."""
    return _publisher.settle(seconds)


def _send(message: Message) -> None:
    task, args, queue = message
    if time.monotonic() < _state["quiet_until"]:
        return
    try:
        with pools.producers[_connection()].acquire(block=True, timeout=CONNECT_SECONDS) as producer:
            current_app.send_task(task, args=args, queue=queue, producer=producer, retry=False, ignore_result=True)
    except Exception as error:  # whatever the broker does, the request succeeds and the sweep finds the row
        _state["quiet_until"] = time.monotonic() + QUIET_SECONDS
        log.warning("wakeup.lost", task=task, error=type(error).__name__)


def _connection() -> Connection:
    options: dict[str, Any] = {
        **settings.CELERY_BROKER_TRANSPORT_OPTIONS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": CONNECT_SECONDS,
        "retry_on_timeout": False,
        "max_retries": 0,
    }
    return Connection(settings.CELERY_BROKER_URL, connect_timeout=CONNECT_SECONDS, transport_options=options)
