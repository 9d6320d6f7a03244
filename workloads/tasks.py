"""Tasks of the workloads: ids in, one service, may run twice."""

import time

from celery import shared_task

from portal.core.periods import claim
from workloads.services import idempotency, limits, notification_delivery, pool_order, report_making
from workloads.services.apply import apply, sweep

SWEEP_SECONDS = 5
LIMIT_SECONDS = 30
POOL_SECONDS = 10
FORGET_SECONDS = 3600
NOTIFY_SECONDS = 5
REPORT_SECONDS = 10


@shared_task(name="workloads.apply_workload", soft_time_limit=50, time_limit=55)
def apply_workload(*workload_ids: str) -> None:
    """Bring these workloads' objects to what is wanted. Gone or already there: nothing to do.

    What a slow cluster leaves no time for is left to the sweep.
    """
    until = time.monotonic() + SWEEP_SECONDS
    for workload_id in workload_ids:
        if time.monotonic() < until:
            apply(workload_id)


@shared_task(name="workloads.sweep", soft_time_limit=110, time_limit=120)
def sweep_workloads() -> None:
    """Bring everything that is due about, once per period however many beats there are."""
    if claim("workloads.sweep", every=SWEEP_SECONDS):
        sweep()
    if claim("workloads.limits", every=LIMIT_SECONDS):
        limits.enforce()
    if claim("workloads.pools", every=POOL_SECONDS):
        pool_order.try_next_pools()
    if claim("workloads.forget_keys", every=FORGET_SECONDS):
        idempotency.forget_old()


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
