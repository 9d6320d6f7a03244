"""Waking workers, by name and id, after the commit. A lost message costs one sweep and nothing else."""

from uuid import UUID

from portal.core.wakeups import wake

APPLY = "workloads.apply_workload"
MAKE_REPORT = "workloads.make_report"
QUEUE = "workloads"
MAINTENANCE = "maintenance"


def wake_apply(workload_id: UUID) -> None:
    """Ask a worker to bring this workload's objects to what is wanted."""
    wake(APPLY, str(workload_id), queue=QUEUE, joinable=True)


def wake_report(report_id: UUID) -> None:
    """Ask a worker to make this report."""
    wake(MAKE_REPORT, str(report_id), queue=MAINTENANCE)
