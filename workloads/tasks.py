"""Tasks of the workloads: ids in, one service, may run twice."""

from celery import shared_task

from portal.core.periods import claim
from workloads.services import (
    apply_turns,
    controllers,
    idempotency,
    limits,
    notification_delivery,
    pool_order,
    report_making,
)

SWEEP_SECONDS = 5
CONTROLLER_SECONDS = 20
LIMIT_SECONDS = 30
POOL_SECONDS = 10
FORGET_SECONDS = 3600
NOTIFY_SECONDS = 5
REPORT_SECONDS = 10


@shared_task(name="workloads.apply_due", soft_time_limit=110, time_limit=120)
def apply_due(cluster_id: str) -> None:
    """Take one turn at this cluster's due workloads. Gone, paused, or nothing due: nothing to do."""
    apply_turns.take_turn(cluster_id)


@shared_task(name="workloads.sweep", soft_time_limit=25, time_limit=30)
def sweep_workloads() -> None:
    """Notify workers of everything that is due, and find what nothing answers, once per period however many beats."""
    if claim("workloads.sweep", every=SWEEP_SECONDS):
        apply_turns.sweep()
    if claim("workloads.controllers", every=CONTROLLER_SECONDS):
        controllers.check_controllers()
    if claim("workloads.forget_keys", every=FORGET_SECONDS):
        idempotency.forget_old()


@shared_task(name="workloads.limits", soft_time_limit=110, time_limit=120)
def enforce_limits() -> None:
    """Enforce time and idle limits, once per period however many beats there are."""
    if claim("workloads.limits", every=LIMIT_SECONDS):
        limits.enforce()


@shared_task(name="workloads.pools", soft_time_limit=110, time_limit=120)
def try_next_pools() -> None:
    """Move what waits too long to its next node pool, once per period however many beats there are."""
    if claim("workloads.pools", every=POOL_SECONDS):
        pool_order.try_next_pools()


@shared_task(name="workloads.notify", soft_time_limit=80, time_limit=90)
def notify() -> None:
    """Tell who wants to know, once per period however many beats there are. On a queue of its own: mail may be slow."""
    if claim("workloads.notify", every=NOTIFY_SECONDS):
        notification_delivery.collect()
        notification_delivery.deliver()
    if claim("workloads.forget_deliveries", every=FORGET_SECONDS):
        notification_delivery.forget_old()


@shared_task(name="workloads.make_report", soft_time_limit=100, time_limit=110)
def make_report(report_id: str) -> None:
    """Make this report. Gone, made or in another worker's hands: nothing to do."""
    report_making.make(report_id)


@shared_task(name="workloads.make_reports", soft_time_limit=140, time_limit=150)
def make_reports() -> None:
    """Make reports whose wake-up was lost or whose worker died, once per period however many beats there are."""
    if claim("workloads.make_reports", every=REPORT_SECONDS):
        report_making.sweep()
    if claim("workloads.forget_reports", every=FORGET_SECONDS):
        report_making.forget_old()
