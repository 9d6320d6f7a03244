"""Tasks of notifications: one service each, may run twice."""

from celery import shared_task

from portal.kit.messaging.tasks import claim_period
from workloads.notifications.services import delivery

NOTIFY_SECONDS = 5


FORGET_DELIVERIES_SECONDS = 3600


@shared_task(name="workloads.notify", soft_time_limit=80, time_limit=90)
def notify() -> None:
    """Tell who wants to know, once per period however many beats there are. On a queue of its own: mail may be slow."""
    if claim_period("workloads.notify", every=NOTIFY_SECONDS):
        delivery.collect()
        delivery.deliver()
    if claim_period("workloads.forget_deliveries", every=FORGET_DELIVERIES_SECONDS):
        delivery.forget_old()
