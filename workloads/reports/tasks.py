"""Tasks of usage reports: ids in, one service, may run twice."""

from celery import shared_task

from portal.kit.messaging.tasks import claim_period
from workloads.reports import services as reports_services

REPORT_SECONDS = 10


FORGET_REPORTS_SECONDS = 3600


@shared_task(name="workloads.make_report", soft_time_limit=100, time_limit=110)
def make_report(report_id: str) -> None:
    """Make this report. Gone, made or in another worker's hands: nothing to do."""
    reports_services.make(report_id)


@shared_task(name="workloads.make_reports", soft_time_limit=140, time_limit=150)
def make_reports() -> None:
    """Make reports whose wake-up was lost or whose worker died, once per period however many beats there are."""
    if claim_period("workloads.make_reports", every=REPORT_SECONDS):
        reports_services.sweep()
    if claim_period("workloads.forget_reports", every=FORGET_REPORTS_SECONDS):
        reports_services.forget_old()
