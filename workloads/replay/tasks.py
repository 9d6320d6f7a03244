"""Tasks of replays: ids in, one service, may run twice."""

from celery import shared_task

from portal.kit.messaging.tasks import claim_period
from workloads.replay import services as replay_services

REPLAY_SECONDS = 10
FORGET_REPLAYS_SECONDS = 3600


@shared_task(name="workloads.run_replay", soft_time_limit=530, time_limit=540)
def run_replay(replay_id: str) -> None:
    """Run this replay. Gone, ended or in another worker's hands: nothing to do."""
    replay_services.run(replay_id)


@shared_task(name="workloads.run_replays", soft_time_limit=530, time_limit=540)
def run_replays() -> None:
    """Run replays whose wake-up was lost or whose worker died, once per period however many beats there are."""
    if claim_period("workloads.run_replays", every=REPLAY_SECONDS):
        replay_services.sweep()
    if claim_period("workloads.forget_replays", every=FORGET_REPLAYS_SECONDS):
        replay_services.forget_old()
