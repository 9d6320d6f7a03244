"""`GET /api/v1/evictions`: evicted pods of the caller's projects."""

from typing import Any

import pytest

from tenants.organisation.models import Project
from tests.factories.clusters import build_cluster
from tests.factories.tenants import DepartmentFactory, ProjectFactory
from tests.factories.workloads import WorkloadFactory
from tests.support.rest_clients import Robot
from tests.workloads.lifecycle.test_activity import evict

pytestmark = pytest.mark.django_db


def listed(robot: Robot, query: str = "") -> list[dict[str, Any]]:
    """The evictions of one page."""
    answer = robot.get(f"v1/evictions{query}")
    assert answer.status_code == 200, answer.json()
    rows: list[dict[str, Any]] = answer.json()["evictions"]
    return rows


def test_an_eviction_says_who_lost_what_to_whom(llm_team: Project, robot: Robot) -> None:
    victim = WorkloadFactory(project=llm_team, name="victim", pool_name="h100")
    preemptor = WorkloadFactory(project=llm_team, name="preemptor")
    record = evict(
        victim,
        hours_ago=1,
        preemptor=preemptor,
        preemptor_name="preemptor",
        gpu_milli=8000,
        ran_seconds=7200,
        lost_gpu_seconds=5760,
        node_name="h100-1",
    )
    (row,) = listed(robot)
    assert row.pop("at")
    assert row == {
        "evictionId": record.pk,
        "cause": "preempt",
        "clusterId": str(llm_team.cluster.pk),
        "clusterName": "lab",
        "simulated": True,
        "nodePool": "h100",
        "nodeName": "h100-1",
        "projectName": "llm-team",
        "workloadId": str(victim.pk),
        "workloadName": "victim",
        "podName": "pod",
        "gpus": 8.0,
        "ranSeconds": 7200,
        "lostGpuHours": 1.6,
        "preemptorId": str(preemptor.pk),
        "preemptorName": "preemptor",
    }


def test_evictions_are_filtered_and_come_newest_first_page_by_page(llm_team: Project, robot: Robot) -> None:
    other = ProjectFactory(department=DepartmentFactory(cluster=build_cluster(name="other")))
    evict(WorkloadFactory(project=llm_team, name="older"), hours_ago=3, cause="reclaim")
    evict(WorkloadFactory(project=llm_team, name="newer"), hours_ago=1)
    evict(WorkloadFactory(project=other, name="elsewhere"), hours_ago=2)

    def names(query: str) -> list[str]:
        return [each["workloadName"] for each in listed(robot, query)]

    assert names("") == ["newer", "elsewhere", "older"]
    assert names(f"?filterBy=clusterId=={llm_team.cluster.pk}") == ["newer", "older"]
    assert names("?filterBy=cause==reclaim") == ["older"]
    assert names("?filterBy=workloadName==elsewhere") == ["elsewhere"]
    first = robot.get("v1/evictions?limit=2").json()
    assert names(f"?limit=2&after={first['nextAfter']}") == ["older"]
    assert robot.get("v1/evictions/count?filterBy=cause==preempt").json() == {"count": 2}


def test_a_cause_or_project_that_does_not_exist_is_refused(llm_team: Project, robot: Robot) -> None:
    for clause in ("cause==bored", "projectName==lm-team", "at==yesterday"):
        answer = robot.get(f"v1/evictions?filterBy={clause}")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/filterBy")


def test_a_member_reads_evictions_of_the_own_project_without_names_of_others(
    llm_team: Project, vision_team: Project, member: Robot
) -> None:
    victim, hidden = WorkloadFactory(project=llm_team, name="victim"), WorkloadFactory(project=vision_team)
    evict(victim, hours_ago=1, preemptor=hidden, preemptor_name=hidden.name)
    evict(hidden, hours_ago=1)
    (row,) = listed(member)
    assert (row["workloadName"], row["preemptorId"], row["preemptorName"]) == ("victim", None, None)
