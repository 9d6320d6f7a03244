"""Find clusters whose reconcile is due or whose removal waits: every message may be lost. And tidy up old runs."""

from datetime import timedelta
from typing import Final

from django.db.models import Q
from django.utils import timezone

from clusters.enqueue import wake_removal, wake_sync
from clusters.models import Cluster, SyncRun
from clusters.services.removing import silent_removals
from clusters.services.runs import close_dead

AGAIN: Final = timedelta(seconds=30)
"""When a cluster is due once more, should the message that woke its worker be lost."""
KEPT: Final = timedelta(days=30)
QUIET_KEPT: Final = timedelta(days=1)
"""How long runs are kept that wrote nothing and failed at nothing."""


def sweep() -> int:
    """Wake a worker for each due cluster, each for one of several sweeps only. Answers how many.

    Dry runs are closed here if their worker has died: no later run is in their way, so none would notice.
    """
    close_dead(SyncRun.objects.filter(dry_run=True))
    now = timezone.now()
    claimed = [cluster for cluster in Cluster.objects.due(now) if Cluster.objects.claim_due(cluster, now, now + AGAIN)]
    for cluster in claimed:
        wake_sync(cluster.pk)
    for cluster_id in silent_removals():
        wake_removal(cluster_id)
    return len(claimed)


def forget_old_runs() -> int:
    """Drop ended runs past their time with their outcomes; answers how many. The newest of a cluster always stays."""
    now = timezone.now()
    old = Q(finished_at__lt=now - KEPT) | Q(finished_at__lt=now - QUIET_KEPT, written=0, failed=0, error_code="")
    newest = [
        SyncRun.objects.filter(cluster=cluster).latest("started_at").pk
        for cluster in Cluster.objects.filter(sync_runs__isnull=False).distinct()
    ]
    _, by_model = SyncRun.objects.filter(old).exclude(pk__in=newest).delete()
    return by_model.get("clusters.SyncRun", 0)
