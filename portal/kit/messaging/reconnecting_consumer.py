"""A worker whose broker goes away while one of its processes dies: it starts its consumer again, and does not end.

Celery 5.6 ends the worker when it finds, on its way back to the broker, a process of its pool that has died but was not
yet replaced: ValueError for the descriptor of the dead process, WorkerLostError before the first task, StopIteration
while the queue of the dead process is not free yet (https://github.com/celery/celery/issues/9250).
"""

import time
from typing import Any, Final

import structlog
from celery.exceptions import WorkerLostError
from celery.worker.consumer import Consumer

log = structlog.get_logger(__name__)

TRIES: Final = 50
PAUSE_SECONDS: Final = 0.1


class ReconnectingConsumer(Consumer):  # type: ignore[misc]  # Celery has no types
    """Celery's consumer, for which a dead process of the pool is a reason to start again."""

    connection_errors: tuple[type[BaseException], ...]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.connection_errors = (*self.connection_errors, ValueError, WorkerLostError)

    def on_close(self) -> None:
        """Replace the dead processes of the pool. StopIteration: their queues are not free after all tries."""
        for left in reversed(range(TRIES)):
            try:
                super().on_close()
                break
            except StopIteration:
                if not left:
                    raise
                log.info("consumer.pool_not_ready")
                time.sleep(PAUSE_SECONDS)
        if self.pool:
            self.pool.maintain_pool()
