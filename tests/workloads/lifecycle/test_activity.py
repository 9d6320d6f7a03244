"""The tab Activity of a cluster: evictions over time, what waits and why, how long workloads waited to start."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.clusters import build_cluster
from tests.factories.tenants import GPU, DepartmentFactory, ProjectFactory
from tests.factories.workloads import WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.lifecycle.selectors.activity import EVICTIONS
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db

PAGE = "/clusters/lab/?tab=activity"


@pytest.fixture
def read(client_of: Callable[[User], Client], bob: User) -> Callable[[str], str]:
    """The text of a page, without line breaks."""
    client = client_of(bob)
    return lambda page: " ".join(client.get(page).content.decode().split())


def evict(victim: Workload, *, hours_ago: float, cause: str = "preempt", **values: Any) -> PreemptionRecord:
    """A pod of the victim, evicted then."""
    at = timezone.now() - timedelta(hours=hours_ago)
    cluster = victim.project.cluster
    return PreemptionRecord.objects.create(
        cluster=cluster, pod_uid=str(uuid4()), pod_name="pod", at=at, victim=victim, cause=cause, **values
    )


def test_evictions_are_counted_by_cause_with_what_they_lost(llm_team: Project, read: Callable[[str], str]) -> None:
    victim = WorkloadFactory(project=llm_team)
    evict(victim, hours_ago=1, lost_gpu_seconds=3600)
    evict(victim, hours_ago=3, cause="reclaim", lost_gpu_seconds=1800)
    evict(victim, hours_ago=30, cause="unknown", lost_gpu_seconds=36000)
    day, week = read(f"{PAGE}&span=24h"), read(f"{PAGE}&span=7d")
    assert "UTC, 1.5 GPU-hours lost: 1 by priority, 1 to reclaim quota, 0 other or unknown cause." in day
    assert "2 evictions since" in day
    assert "UTC, 11.5 GPU-hours lost: 1 by priority, 1 to reclaim quota, 1 other or unknown cause." in week


def test_pods_that_one_decision_took_are_one_eviction(llm_team: Project, read: Callable[[str], str]) -> None:
    victim, gang = WorkloadFactory(project=llm_team), WorkloadFactory(project=llm_team)
    evict(victim, hours_ago=2, preemptor_name="one", lost_gpu_seconds=900)
    first = evict(gang, hours_ago=2, preemptor_name="two")
    evict(victim, hours_ago=2, preemptor_name="one", lost_gpu_seconds=900)
    evict(gang, hours_ago=1.9, preemptor_name="two", first=first)
    page = read(PAGE)
    assert "2 evictions since" in page
    assert "0.5 GPU-hours lost: 2 by priority" in page
    assert (page.count(f"/workloads/{victim.pk}/"), page.count(f"/workloads/{gang.pk}/")) == (1, 1)


def test_evictions_of_other_clusters_do_not_count(llm_team: Project, read: Callable[[str], str]) -> None:
    other = ProjectFactory(department=DepartmentFactory(cluster=build_cluster(name="other")))
    evict(WorkloadFactory(project=other), hours_ago=1)
    assert "No evictions since" in read(PAGE)
    assert "1 eviction since" in read("/clusters/other/?tab=activity")


def test_what_waits_is_grouped_by_reason(llm_team: Project, read: Callable[[str], str]) -> None:
    assert "No workload waits." in read(PAGE)
    WorkloadFactory.create_batch(2, project=llm_team, phase_reason="NoRoom", gpu_milli=4 * GPU)
    WorkloadFactory(project=llm_team, phase_reason="OverLimit")
    WorkloadFactory(project=llm_team, phase_reason="NoRoom", phase=Phase.COMPLETED)
    page = read(PAGE)
    assert '<td>no room</td> <td class="num">2</td> <td class="num">8</td>' in page
    assert '<td>over the limit</td> <td class="num">1</td> <td class="num">1</td>' in page
    assert page.index("no room") < page.index("over the limit")


def test_waits_are_given_by_priority_for_what_started_in_the_span(
    llm_team: Project, read: Callable[[str], str]
) -> None:
    now = timezone.now()
    for seconds in (60, 120, 180, 3600):
        WorkloadFactory(project=llm_team, phase=Phase.RUNNING, started_at=now, pending_seconds=seconds)
    before = now - timedelta(days=3)
    WorkloadFactory(project=llm_team, phase=Phase.RUNNING, started_at=before, phase_at=before, pending_seconds=9000)
    day, week = read(f"{PAGE}&span=24h"), read(f"{PAGE}&span=7d")
    figures = '<td class="num">{}</td> <td class="num">{}</td> <td class="num">{}</td>'
    assert figures.format(4, "2 min", "1 h") in day
    assert figures.format(5, "3 min", "2 h 30 m") in week
    assert "No workload started in" not in day


def test_evicted_workloads_are_listed_with_who_evicted_them(llm_team: Project, read: Callable[[str], str]) -> None:
    assert "No eviction of a workload that you may see is on record." in read(PAGE)
    victim = WorkloadFactory(project=llm_team, name="victim")
    taker = WorkloadFactory(project=llm_team, name="taker")
    evict(victim, hours_ago=200, preemptor=taker, preemptor_name="taker", ran_seconds=19800, lost_gpu_seconds=7200)
    page = read(f"{PAGE}&span=24h")
    assert f'<a href="/workloads/{victim.pk}/">victim</a>' in page
    assert f'<a href="/workloads/{taker.pk}/">taker</a>' in page
    assert '<td class="num">5 h 30 m</td> <td class="num">2.0 GPU-hours</td>' in page


def test_evicted_workloads_of_projects_that_one_may_not_see_are_absent(
    llm_team: Project, vision_team: Project, read: Callable[[str], str]
) -> None:
    victim, hidden = WorkloadFactory(project=llm_team), WorkloadFactory(project=vision_team, name="hidden")
    evict(hidden, hours_ago=1)
    evict(victim, hours_ago=1, preemptor=hidden, preemptor_name="hidden")
    page = read(PAGE)
    assert "2 evictions since" in page
    assert "hidden<" not in page
    assert "a workload of another project" in page


def test_a_longer_list_of_evictions_is_shown_page_by_page(
    llm_team: Project, client_of: Callable[[User], Client], bob: User
) -> None:
    for number in range(EVICTIONS + 1):
        evict(WorkloadFactory(project=llm_team, name=f"v{number}"), hours_ago=number)
    first = client_of(bob).get(PAGE)
    second = client_of(bob).get(PAGE, {"tab": "activity", "after": first.context["page"].next})
    assert f">v{EVICTIONS}<" not in first.content.decode()
    assert f">v{EVICTIONS}<" in second.content.decode()


def test_the_list_of_clusters_counts_what_waits_and_who_was_evicted_lately(
    llm_team: Project, read: Callable[[str], str]
) -> None:
    first, second = WorkloadFactory.create_batch(2, project=llm_team, gpu_milli=4 * GPU)
    WorkloadFactory(project=llm_team, phase=Phase.RUNNING, gpu_milli=GPU)
    for victim, hours in ((first, 1), (first, 2), (second, 30)):
        evict(victim, hours_ago=hours)
    build_cluster(name="other")
    page = read("/clusters/")
    waiting, evicted = '<a href="/workloads/?cluster={}&amp;phase=Pending">{}</a>', '{}/?tab=activity">{}</a>'
    assert waiting.format("lab", "2 workloads") + ' <div class="quiet">8 GPUs</div>' in page
    assert evicted.format("/clusters/lab", "1 workload") in page
    assert waiting.format("other", "0 workloads") in page
    assert evicted.format("/clusters/other", "0 workloads") in page


def test_rest_gives_the_numbers_of_the_tab(llm_team: Project, robot: Robot) -> None:
    now = timezone.now()
    victim = WorkloadFactory(project=llm_team, phase=Phase.COMPLETED)
    evict(victim, hours_ago=1, lost_gpu_seconds=3600)
    evict(victim, hours_ago=30, cause="reclaim")
    WorkloadFactory.create_batch(2, project=llm_team, phase_reason="NoRoom", gpu_milli=4 * GPU)
    WorkloadFactory(project=llm_team, phase=Phase.RUNNING, started_at=now, pending_seconds=90)
    day = robot.get(f"v1/clusters/{llm_team.cluster.pk}/activity").json()
    week = robot.get(f"v1/clusters/{llm_team.cluster.pk}/activity?span=7d").json()
    assert (day["clusterName"], day["simulated"], day["period"], len(day["evictions"])) == ("lab", True, "hour", 24)
    (hour,) = [each for each in day["evictions"] if any(each["causes"].values())]
    assert (hour["causes"], hour["lostGpuHours"]) == ({"preempt": 1, "reclaim": 0, "unknown": 0}, 1.0)
    (reason,) = day["waiting"]
    assert (reason["code"], reason["reason"], reason["workloads"], reason["gpus"]) == ("NoRoom", "no room", 2, 8.0)
    (wait,) = day["waits"]
    assert (wait["workloads"], wait["medianSeconds"], wait["p90Seconds"]) == (1, 90.0, 90.0)
    assert (week["period"], sum(each["causes"]["reclaim"] for each in week["evictions"])) == ("day", 1)
    assert robot.get(f"v1/clusters/{llm_team.cluster.pk}/activity?span=9d").status_code == 400
