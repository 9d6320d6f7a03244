"""Wake a worker once the transaction has committed. A lost wake-up delays work by one sweep and nothing else.

The sender never waits for a broker: short connect and socket timeouts, no publish retry, and after a failure a few
seconds in which nothing is tried at all. Messages carry ids, never data.
"""

import time
from functools import partial
from typing import Any

import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu import pools
from kombu.connection import Connection

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 0.5
QUIET_SECONDS = 5.0
_state = {"quiet_until": 0.0}


def wake(task_name: str, *args: str, queue: str) -> None:
    """Send the task by name when the current transaction commits; at once outside of one."""
    if settings.RUNG_WAKEUPS == "on":
        transaction.on_commit(partial(_send, task_name, args, queue))


def _send(task_name: str, args: tuple[str, ...], queue: str) -> None:
    if time.monotonic() < _state["quiet_until"]:
        return
    try:
        with pools.producers[_connection()].acquire(block=True, timeout=CONNECT_SECONDS) as producer:
            current_app.send_task(task_name, args=args, queue=queue, producer=producer, retry=False, ignore_result=True)
    except Exception as error:  # whatever a broker does, the request stands and the sweep finds the row
        _state["quiet_until"] = time.monotonic() + QUIET_SECONDS
        log.warning("wakeup.lost", task=task_name, error=type(error).__name__)


def _connection() -> Connection:
    options: dict[str, Any] = {
        **settings.CELERY_BROKER_TRANSPORT_OPTIONS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": CONNECT_SECONDS,
        "retry_on_timeout": False,
        "max_retries": 0,
    }
    return Connection(settings.CELERY_BROKER_URL, connect_timeout=CONNECT_SECONDS, transport_options=options)
