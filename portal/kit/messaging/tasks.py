"""Tasks of the kit (canary, hourly clean-up), and what all tasks share: retries of transient errors, one run a period.

The delays stay far below the broker's visibility timeout; after the last try the periodic sweep finds the row.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from celery import shared_task
from django.core.management import call_command
from django.utils import timezone

from portal.kit.api import routes
from portal.kit.db import read_cache
from portal.kit.messaging import heartbeats
from portal.kit.models import Period
from portal.kit.security import rate_limit

PERIOD_RETENTION = timedelta(days=1)


def claim_period(job: str, *, every: int) -> bool:
    """True for exactly one caller in each period of `every` seconds."""
    _, claimed = Period.objects.get_or_create(job=job, start=period_start(timezone.now(), every))
    return claimed


def period_start(now: datetime, every: int) -> datetime:
    """The start of the period of `every` seconds that `now` lies in; the same for every process."""
    return datetime.fromtimestamp(now.timestamp() // every * every, tz=UTC)


def forget_old_periods() -> int:
    """Drop claims that no late message can repeat any more; answers how many."""
    return Period.objects.filter(start__lt=timezone.now() - PERIOD_RETENTION).delete()[0]


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
    if claim_period("core.maintenance", every=3600):
        forget_old_periods()
        rate_limit.forget_old()
        routes.forget_old_responses()
        read_cache.forget_old()
        call_command("clearsessions")
