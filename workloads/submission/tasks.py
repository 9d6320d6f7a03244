"""Task of submissions: forget old idempotency keys."""

from celery import shared_task

from portal.kit.messaging.tasks import claim_period
from workloads.submission import services

FORGET_KEYS_SECONDS = 3600


@shared_task(name="workloads.forget_keys", soft_time_limit=25, time_limit=30)
def forget_keys() -> None:
    """Delete old idempotency keys, once per period however many beats there are."""
    if claim_period("workloads.forget_keys", every=FORGET_KEYS_SECONDS):
        services.forget_old()
