"""Wakes workers for clusters once the transaction has committed. A lost message costs one sweep."""

from uuid import UUID

from portal.core.wakeups import wake

SYNC_QUEUE = "sync"


def wake_sync(cluster_id: UUID | str) -> None:
    """Reconcile this cluster soon."""
    wake("clusters.reconcile_cluster", str(cluster_id), queue=SYNC_QUEUE)


def wake_dry_run(cluster_id: UUID | str) -> None:
    """Find out soon what a reconcile of this cluster would do."""
    wake("clusters.dry_run", str(cluster_id), queue=SYNC_QUEUE)


def wake_removal(cluster_id: UUID | str) -> None:
    """Delete soon what Rung made in this cluster."""
    wake("clusters.remove_traces", str(cluster_id), queue=SYNC_QUEUE)


def wake_observe(cluster_id: UUID | str) -> None:
    """Look at this cluster soon."""
    wake("clusters.observe", str(cluster_id), queue=SYNC_QUEUE)
