"""What a workload had at a moment is told from its pods' own times, and only the pods of that time are read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.signals import post_init

from clusters.watch.models import ObservedPod
from clusters.watch.selectors import TimeWindow
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from workloads.lifecycle.selectors.workloads import CPU_ASKED, HELD, PODS, RUNNING, points
from workloads.state.models import Workload

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WINDOW = TimeWindow(NOON, NOON + 4 * HOUR, 4)


@pytest.fixture
def workload(llm_team: Project) -> Workload:
    found: Workload = WorkloadFactory.create(project=llm_team)
    return found


def told(name: str, *, since: datetime = NOON, now: datetime = NOON + 4 * HOUR) -> list[float]:
    """The figure at one, two, three and four o'clock."""
    return [each.figures[name] for each in points(ObservedPod.objects.all(), WINDOW, since=since, now=now)]


def pod(workload: Workload, **hours: int | None) -> ObservedPod:
    """A pod with these times, in hours after noon."""
    times = {f"{name}_at": None if hour is None else NOON + hour * HOUR for name, hour in hours.items()}
    made: ObservedPod = ObservedPodFactory.create(workload=workload, gpu_milli=1000, cpu_milli=500, **times)
    return made


def test_a_pod_asks_from_its_beginning_holds_from_its_start_and_is_there_until_it_goes(workload: Workload) -> None:
    pod(workload, created=1, started=2, ended=3, gone=4)
    assert told(PODS) == [1, 1, 1, 0]
    assert told(CPU_ASKED) == [500, 500, 0, 0]
    assert told(HELD) == [0, 1000, 0, 0]
    assert told(RUNNING) == [0, 1, 0, 0]


def test_pods_of_one_moment_are_added_up(workload: Workload) -> None:
    for start in (0, 1, 2):
        pod(workload, created=0, started=start)
    pod(workload, created=0, started=None)
    assert told(HELD) == [2000, 3000, 3000, 3000]
    assert told(PODS) == [4, 4, 4, 4]


def test_a_pod_that_is_gone_without_an_end_time_holds_no_gpus(workload: Workload) -> None:
    pod(workload, created=0, started=0, gone=2)
    assert told(HELD) == [1000, 0, 0, 0]


def test_only_what_is_known_and_past_is_told(workload: Workload) -> None:
    pod(workload, created=0, started=0)
    assert told(PODS, since=NOON + 2 * HOUR, now=NOON + 3 * HOUR) == [1, 1]
    assert told(PODS, now=NOON) == []


def test_pods_of_other_times_are_not_even_read(workload: Workload) -> None:
    pod(workload, created=2, started=2)
    pod(workload, created=-9, started=-9, ended=-1, gone=0)
    pod(workload, created=9, started=9)
    read: list[Any] = []

    def seen(instance: ObservedPod, **_more: Any) -> None:
        read.append(instance)

    post_init.connect(seen, sender=ObservedPod)
    try:
        assert told(PODS) == [0, 1, 1, 1]
    finally:
        post_init.disconnect(seen, sender=ObservedPod)
    assert len(read) == 1
