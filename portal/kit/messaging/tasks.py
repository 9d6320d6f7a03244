"""Tasks of the kit (canary, hourly clean-up), and how tasks retry transient errors.

The delays stay far below the broker's visibility timeout; after the last try the periodic sweep finds the row.
"""

from typing import Any

from celery import shared_task
from django.core.management import call_command

from portal.kit.api import idempotency
from portal.kit.db import periodic_lock, read_cache
from portal.kit.messaging import heartbeats
from portal.kit.security import rate_limit


def retry_transient(error: type[Exception], *, tries: int = 3) -> dict[str, Any]:
    """Arguments of `shared_task` that retry this error and nothing else."""
    return {
        "autoretry_for": (error,),
        "max_retries": tries,
        "retry_backoff": 1,
        "retry_backoff_max": 30,
        "retry_jitter": True,
    }


@shared_task(name="core.canary")
def canary(queue: str) -> None:
    """Prove that a worker consumes this task queue."""
    heartbeats.beat(heartbeats.worker_of(queue))


@shared_task(name="core.maintenance")
def maintenance() -> None:
    """Drop claims, limiter windows, kept answers, versions of settings and sessions that are over."""
    if periodic_lock.claim_period("core.maintenance", every=3600):
        periodic_lock.forget_old()
        rate_limit.forget_old()
        idempotency.forget_old()
        read_cache.forget_old()
        call_command("clearsessions")
