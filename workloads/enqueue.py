"""Waking workers, by name and id, after the commit. A lost message costs one sweep and nothing else."""

from uuid import UUID

from portal.core.wakeups import wake

APPLY = "workloads.apply_due"
MAKE_REPORT = "workloads.make_report"
QUEUE = "workloads"
MAINTENANCE = "maintenance"


def wake_apply(cluster_id: UUID) -> None:
    """Ask a worker to apply the due workloads of this cluster. One message serves any number of them."""
    wake(APPLY, str(cluster_id), queue=QUEUE)


def wake_report(report_id: UUID) -> None:
    """Ask a worker to make this report."""
    wake(MAKE_REPORT, str(report_id), queue=MAINTENANCE)
