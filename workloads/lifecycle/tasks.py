"""Tasks of the workloads: ids in, one service, may run twice."""

from celery import shared_task

from portal.kit.messaging.tasks import claim_period
from workloads.detectors import services as detectors
from workloads.forecast.services import scoring, start_estimates
from workloads.lifecycle.services import apply_queue, observe, relocation, run_limits

SWEEP_SECONDS = 5
CONTROLLER_SECONDS = 20
LIMIT_SECONDS = 30
POOL_SECONDS = 10
FORECAST_SECONDS = 10
DETECT_SECONDS = 900


@shared_task(name="workloads.apply_due", soft_time_limit=110, time_limit=120)
def apply_due(cluster_id: str) -> None:
    """Take one turn at this cluster's due workloads. Gone, paused, or nothing due: nothing to do."""
    apply_queue.take_turn(cluster_id)


@shared_task(name="workloads.sweep", soft_time_limit=25, time_limit=30)
def sweep_workloads() -> None:
    """Notify workers of everything that is due, and find what nothing answers, once per period however many beats."""
    if claim_period("workloads.sweep", every=SWEEP_SECONDS):
        apply_queue.sweep()
    if claim_period("workloads.controllers", every=CONTROLLER_SECONDS):
        observe.check_controllers()


@shared_task(name="workloads.limits", soft_time_limit=110, time_limit=120)
def enforce_limits() -> None:
    """Enforce time and idle limits, once per period however many beats there are."""
    if claim_period("workloads.limits", every=LIMIT_SECONDS):
        run_limits.enforce()


@shared_task(name="workloads.pools", soft_time_limit=110, time_limit=120)
def try_next_pools() -> None:
    """Move what waits too long to its next node pool, once per period however many beats there are."""
    if claim_period("workloads.pools", every=POOL_SECONDS):
        relocation.try_next_pools()


@shared_task(name="workloads.score_forecasts", soft_time_limit=110, time_limit=120)
def score_forecasts() -> None:
    """Compare forecasts with what happened, once per period however many beats there are."""
    if claim_period("workloads.score_forecasts", every=FORECAST_SECONDS):
        scoring.score()
        start_estimates.score_starts()


@shared_task(name="workloads.compute_starts", soft_time_limit=110, time_limit=120)
def compute_starts() -> None:
    """Compute start estimates that pages had no time for, once per period however many beats there are."""
    if claim_period("workloads.compute_starts", every=FORECAST_SECONDS):
        start_estimates.compute_requested()


@shared_task(name="workloads.detect", soft_time_limit=25, time_limit=30)
def request_checks() -> None:
    """Have every cluster checked by the detectors, once per period however many beats there are."""
    if claim_period("workloads.detect", every=DETECT_SECONDS):
        detectors.request_checks()


@shared_task(name="workloads.detect_cluster", soft_time_limit=110, time_limit=120)
def detect_cluster(cluster_id: str) -> None:
    """Run the detectors on one cluster. Gone, paused or not observed lately: nothing to do."""
    detectors.detect_on(cluster_id)
