"""A worker that loses its broker and a process of its pool at once consumes again."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from celery.bootsteps import CLOSE, RUN
from celery.concurrency.base import BasePool
from celery.exceptions import WorkerLostError
from celery.worker import state

from portal.celery import app
from portal.kit.messaging import celery_processes
from portal.kit.messaging.celery_processes import ReconnectingConsumer


class Pool(BasePool):
    """A pool whose dead process frees its queue only after some flushes."""

    def __init__(self, refusals: int) -> None:
        super().__init__(limit=1, app=app)
        self.refusals, self.maintained = refusals, 0

    def flush(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StopIteration

    def maintain_pool(self, *_args: object, **_options: object) -> None:
        self.maintained += 1


class Blueprint:
    """Steps that fail at first, and end the consumer when they start for the second time."""

    def __init__(self, error: Exception) -> None:
        self.state, self.starts, self._error = RUN, 0, error

    def start(self, _consumer: object) -> None:
        self.starts += 1
        if self.starts == 1:
            raise self._error
        self.state = CLOSE

    def restart(self, _consumer: object) -> None:
        assert self.state == RUN


@pytest.fixture
def consumer_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pool], ReconnectingConsumer]:
    monkeypatch.setattr(state, "should_stop", None)
    monkeypatch.setattr(celery_processes, "PAUSE_SECONDS", 0)
    controller = SimpleNamespace(use_eventloop=False, semaphore=None)
    return lambda pool: ReconnectingConsumer(lambda *_: None, pool=pool, app=app, controller=controller)


def test_workers_use_it() -> None:
    assert app.conf.worker_consumer == f"{ReconnectingConsumer.__module__}:{ReconnectingConsumer.__qualname__}"


@pytest.mark.parametrize("error", [ValueError("file descriptor is None"), WorkerLostError("Could not start")])
def test_a_dead_process_starts_the_consumer_again(
    error: Exception, consumer_of: Callable[[Pool], ReconnectingConsumer]
) -> None:
    pool = Pool(refusals=0)
    consumer = consumer_of(pool)
    consumer.blueprint = steps = Blueprint(error)
    consumer.start()
    assert steps.starts == 2
    assert pool.maintained == 1


def test_a_queue_that_is_not_free_yet_is_waited_for(consumer_of: Callable[[Pool], ReconnectingConsumer]) -> None:
    pool = Pool(refusals=3)
    consumer_of(pool).on_close()
    assert pool.refusals == 0
    assert pool.maintained == 1


def test_a_queue_that_never_gets_free_ends_the_worker(
    consumer_of: Callable[[Pool], ReconnectingConsumer],
) -> None:
    with pytest.raises(StopIteration):
        consumer_of(Pool(refusals=celery_processes.RESTART_TRIES)).on_close()
