"""Tasks of the cluster mechanism: ids in, one service each, safe to run twice."""

import structlog
from celery import shared_task

from clusters.errors import TransientClusterError
from clusters.models import Cluster, ClusterState
from clusters.services.reconcile import reconcile
from clusters.services.sweep import sweep as sweep_clusters
from clusters.tasks_sandbox import observe, observe_all, tick_sandbox, tick_sandboxes
from portal.core import periods
from portal.core.retries import transient

__all__ = ["observe", "observe_all", "reconcile_cluster", "sweep", "tick_sandbox", "tick_sandboxes"]

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 10


@shared_task(name="clusters.reconcile_cluster", soft_time_limit=280, time_limit=300, **transient(TransientClusterError))
def reconcile_cluster(cluster_id: str) -> None:
    """Bring one cluster to its desired state. Gone or paused: nothing to do."""
    cluster = Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first()
    if cluster is None:
        log.info("reconcile.skipped", cluster=cluster_id)
        return
    reconcile(cluster, trigger="wake-up")


@shared_task(name="clusters.sweep", soft_time_limit=25, time_limit=30)
def sweep() -> None:
    """Wake workers for the clusters that are due."""
    if periods.claim("clusters.sweep", every=SWEEP_SECONDS):
        sweep_clusters()
