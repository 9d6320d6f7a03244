"""Find clusters whose reconcile is due. Every message may be lost: this is what makes that harmless."""

from datetime import timedelta
from typing import Final

from django.utils import timezone

from clusters.enqueue import wake_sync
from clusters.models import Cluster

AGAIN: Final = timedelta(seconds=30)
"""When a cluster is due once more, should the message that woke its worker be lost."""


def sweep() -> int:
    """Wake a worker for each due cluster, each for one of several sweeps only. Answers how many."""
    now = timezone.now()
    claimed = [cluster for cluster in Cluster.objects.due(now) if Cluster.objects.claim_due(cluster, now + AGAIN)]
    for cluster in claimed:
        wake_sync(cluster.pk)
    return len(claimed)
