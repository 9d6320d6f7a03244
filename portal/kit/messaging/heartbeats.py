"""Heartbeats: a process notes that it has just worked; readiness asks how long ago that was.

Canaries prove that an idle worker consumes its task queue, but they wait behind what else is in the queue. So each
process that runs tasks notes heartbeats for the queue of the task: when it begins and ends, and every few seconds while
it runs, at most until its time limit. A thread sends them, so that no task waits for them. A process that was
killed, is frozen or gets no messages any more sends none once its last task is over.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog
from celery.signals import task_postrun, task_prerun
from django.conf import settings
from django.db import Error, connection
from django.utils import timezone

from portal.kit.models import Heartbeat

BEAT = "beat"
OBSERVER = "observer"
WORKER = "worker"
FRESH_SECONDS = 30.0


def beat(name: str) -> None:
    """Note that `name` worked now. One upsert, safe from any number of processes."""
    Heartbeat.objects.bulk_create(
        [Heartbeat(name=name, at=timezone.now())],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["at"],
    )


def ages() -> dict[str, float]:
    """Seconds since each name last worked."""
    now = timezone.now()
    rows = Heartbeat.objects.using(settings.RUNG_HEALTH_DATABASE)
    return {row.name: (now - row.at).total_seconds() for row in rows}


def silent(expected: Iterable[str], known: Mapping[str, float] | None = None) -> list[str]:
    """Those of the expected names that have not worked lately. `known`: ages that were read already."""
    known = ages() if known is None else known
    return [name for name in expected if known.get(name, FRESH_SECONDS) >= FRESH_SECONDS]


def worker_of(queue: str) -> str:
    """Heartbeat name of the consumers of a task queue."""
    return f"{WORKER}:{queue}"


def names_of(kind: str) -> list[str]:
    """The heartbeats of one kind of process: a worker has one per task queue."""
    return [worker_of(queue) for queue in settings.QUEUES] if kind == WORKER else [kind]


log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 5.0


class ConsumerHeartbeat:
    """The task queues that this process works for, and the thread that says so."""

    def __init__(self, *, every: float = EVERY_SECONDS, beat: Callable[[str], None] = beat) -> None:
        self.every = every
        self._beat = beat
        self._running: dict[str, tuple[str, float]] = {}
        """Per task that runs: its queue, and when its time is up."""
        self._worked_for: set[str] = set()
        self._proved_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, task_id: str, queue: str, seconds: float) -> None:
        """A task of this queue runs, for so many seconds at most."""
        with self._lock:
            self._running[task_id] = queue, time.monotonic() + seconds
            self._worked_for.add(queue)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._prove_on, name="consumption", daemon=True)
                self._thread.start()
        self._bell.set()

    def end(self, task_id: str, queue: str) -> None:
        """It is over, well or badly."""
        with self._lock:
            self._running.pop(task_id, None)
            self._worked_for.add(queue)
        self._bell.set()

    def _prove_on(self) -> None:
        while True:
            self._bell.wait(self.every if self._running else None)
            self._bell.clear()
            for queue in self._due(time.monotonic()):
                self._prove(queue)

    def _due(self, now: float) -> list[str]:
        """Queues that were worked for and not proved lately."""
        with self._lock:
            at_work = {queue for queue, until in self._running.values() if now < until}
            found, self._worked_for = self._worked_for | at_work, set()
        return [queue for queue in found if now - self._proved_at.get(queue, float("-inf")) >= self.every]

    def _prove(self, queue: str) -> None:
        try:
            self._beat(worker_of(queue))
            self._proved_at[queue] = time.monotonic()
        except Error as error:
            log.warning("consumption.unproved", queue=queue, error=str(error).strip())
        finally:
            connection.close()  # this thread's own: the next heartbeat opens another


_consumption: Final = ConsumerHeartbeat()


def prove_consumption() -> None:
    """Watch the tasks of this process and of those that it forks."""
    task_prerun.connect(_began, weak=False, dispatch_uid="core.consumption")
    task_postrun.connect(_ended, weak=False, dispatch_uid="core.consumption")


def _began(task_id: str, task: Any, **_: Any) -> None:
    if queue := _queue_of(task):
        limit, _soft = task.request.timelimit or (None, None)
        _consumption.begin(task_id, queue, limit or task.time_limit or task.app.conf.task_time_limit)


def _ended(task_id: str, task: Any, **_: Any) -> None:
    if queue := _queue_of(task):
        _consumption.end(task_id, queue)


def _queue_of(task: Any) -> str | None:
    """The task queue that its message came from; None outside of a worker."""
    name = (task.request.delivery_info or {}).get("routing_key")
    return name if name in settings.QUEUES else None
