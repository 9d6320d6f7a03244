"""Tasks of the kit: the canary that proves consumption, and the hourly tidying."""

from celery import shared_task
from django.core.management import call_command

from portal.core import heartbeats, limiter, periods, repeats


@shared_task(name="core.canary")
def canary(queue: str) -> None:
    """Prove that somebody consumes this task queue."""
    heartbeats.beat(heartbeats.worker_of(queue))


@shared_task(name="core.maintenance")
def maintenance() -> None:
    """Drop claims, limiter windows, kept answers and sessions that are over."""
    if periods.claim("core.maintenance", every=3600):
        periods.forget_old()
        limiter.forget_old()
        repeats.forget_old()
        call_command("clearsessions")
