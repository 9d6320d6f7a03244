"""Tasks of the cluster mechanism: ids in, one service each, safe to run twice."""

import structlog
from celery import shared_task

from clusters.connection.services.work_limits import try_slot
from clusters.inventory.models import Cluster, ClusterState
from clusters.ports.gateway import TransientClusterError
from clusters.sync.services.disconnect import continue_removal
from clusters.sync.services.reconcile import forget_old_runs, reconcile
from clusters.sync.services.reconcile import sweep as sweep_clusters
from clusters.watch.tasks import TIDY_SECONDS
from portal.kit.messaging import tasks

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 10


@shared_task(name="clusters.reconcile_cluster", soft_time_limit=280, time_limit=300)
def reconcile_cluster(cluster_id: str) -> None:
    """Bring one cluster to its desired state. Gone or paused: nothing to do.

    Never tried again by the queue: a run that fails says when the next is due, further and further apart.
    """
    cluster = Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first()
    if cluster is None:
        log.info("reconcile.skipped", cluster=cluster_id)
        return
    with try_slot(cluster, "reconcile") as has_slot:
        if has_slot:
            _reconcile(cluster, trigger="wake-up", dry_run=False)


@shared_task(name="clusters.dry_run", soft_time_limit=280, time_limit=300)
def dry_run(cluster_id: str) -> None:
    """Find out what a reconcile would do. Gone or paused: nothing to do.

    An admin waits for it and no sweep would ask for it again, so it needs no slot of the cluster.
    """
    if cluster := Cluster.objects.filter(pk=cluster_id, state=ClusterState.ACTIVE).first():
        _reconcile(cluster, trigger="dry-run", dry_run=True)


@shared_task(name="clusters.remove_traces", soft_time_limit=280, time_limit=300)
def remove_traces(cluster_id: str) -> None:
    """One turn at a removal that was asked for. None asked for, or another worker at it: nothing to do."""
    if cluster := Cluster.objects.filter(pk=cluster_id, state=ClusterState.PAUSED).first():
        with try_slot(cluster, "remove_traces") as has_slot:
            if has_slot:
                continue_removal(cluster)


def _reconcile(cluster: Cluster, *, trigger: str, dry_run: bool) -> None:
    try:
        reconcile(cluster, trigger=trigger, dry_run=dry_run)
    except TransientClusterError as error:
        log.warning("reconcile.failed", cluster=cluster.name, code=error.code, message=error.message)


@shared_task(name="clusters.sweep", soft_time_limit=25, time_limit=30)
def sweep() -> None:
    """Wake workers for the clusters that are due; once an hour forget old runs."""
    if tasks.claim_period("clusters.sweep", every=SWEEP_SECONDS):
        sweep_clusters()
    if tasks.claim_period("clusters.forget_old_runs", every=TIDY_SECONDS):
        forget_old_runs()
