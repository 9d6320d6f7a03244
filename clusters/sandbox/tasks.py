"""Tasks of the sandbox: one step of its time."""

import structlog
from celery import shared_task
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.sandbox.services.simulation import tick
from portal.kit.messaging import tasks

log = structlog.get_logger(__name__)


TICK_SECONDS = 1


SANDBOX = "sandbox"


@shared_task(name="clusters.tick_sandbox", soft_time_limit=25, time_limit=30)
def tick_sandbox(cluster_id: str) -> None:
    """Move one sandbox's time. Gone or no sandbox: nothing to do."""
    if cluster := Cluster.objects.filter(pk=cluster_id, backend=SANDBOX).first():
        tick(cluster, now=timezone.now())


@shared_task(name="clusters.tick_sandboxes", soft_time_limit=25, time_limit=30)
def tick_sandboxes() -> None:
    """Move every sandbox's time, once a second. Also paused ones: their pods run on by themselves."""
    if not tasks.claim_period("clusters.tick_sandboxes", every=TICK_SECONDS):
        return
    for cluster in Cluster.objects.filter(backend=SANDBOX):
        try:
            tick(cluster, now=timezone.now())
        except Exception:  # one broken sandbox must not stop the others; its transaction is rolled back
            log.exception("sandbox.tick_failed", cluster=cluster.name)
