"""The kit's own tasks: the canary that proves consumption, and the tidying."""

from datetime import timedelta

import pytest
from celery import current_app
from django.contrib.sessions.models import Session
from django.utils import timezone

from portal.kit.messaging import heartbeats, tasks
from portal.kit.messaging.celery_processes import HeartbeatScheduler
from portal.kit.messaging.tasks import canary, maintenance
from portal.kit.models import LimiterBucket, Period
from portal.kit.security import rate_limit

pytestmark = pytest.mark.django_db
LONG_AGO = timezone.now() - timedelta(days=3)


def test_a_canary_says_which_task_queue_is_consumed() -> None:
    canary("sync")
    assert heartbeats.silent(heartbeats.names_of("worker")) == [
        "worker:workloads",
        "worker:notify",
        "worker:maintenance",
        "worker:periodic",
    ]


def test_maintenance_drops_what_is_over_and_keeps_the_rest() -> None:
    tasks.claim_period("sweep", every=10)
    rate_limit.hit("test", "alice", limit=3, per=60)
    Period.objects.create(job="old", start=LONG_AGO)
    LimiterBucket.objects.create(key="old", started_at=LONG_AGO, ends_at=LONG_AGO)
    Session.objects.create(session_key="old", session_data="", expire_date=LONG_AGO)
    maintenance()
    assert set(Period.objects.values_list("job", flat=True)) == {"sweep", "core.maintenance"}
    assert LimiterBucket.objects.count() == 1
    assert not Session.objects.exists()


def test_maintenance_is_done_once_per_hour_however_many_ask() -> None:
    maintenance()
    Period.objects.create(job="old", start=LONG_AGO)
    maintenance()
    assert Period.objects.filter(job="old").exists()


def test_a_beat_that_ticks_says_so_and_seeds_its_schedule() -> None:
    beat = HeartbeatScheduler(app=current_app)
    assert beat.tick() >= 0
    assert heartbeats.silent(["beat"]) == []
    assert {"clusters.sweep", "workloads.sweep", "core.canary sync"} <= set(beat.schedule)
