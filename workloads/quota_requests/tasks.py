"""Tasks of quota requests: one service each, may run twice."""

from celery import shared_task
from django.utils import timezone

from portal.kit.messaging.tasks import claim_period
from workloads.quota_requests.services import end_due, refresh_open

SECONDS = 60


@shared_task(name="workloads.quota_requests")
def quota_requests() -> None:
    """Take back what was granted until now, and keep the impact of open requests current, once per period."""
    if claim_period("workloads.quota_requests", every=SECONDS):
        end_due(timezone.now())
        refresh_open()
