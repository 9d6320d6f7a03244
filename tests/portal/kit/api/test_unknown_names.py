"""What a query names is there and the caller's to see, or the answer is 400 with the nearest name."""

import pytest

from tenants.organisation.models import Project
from tests.factories.tenants import ProjectFactory
from tests.factories.workloads import WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.state.models import Workload


@pytest.mark.parametrize(
    ("condition", "nearest"),
    [
        ("projectName==llm-taem", "llm-team"),
        ("projectName!=llm-taem", "llm-team"),
        ("departmentName==reserch", "research"),
        ("phase==runing", "Running"),
        ("type==pytorchjob", "PyTorchJob"),
        ("category==train", "Train"),
        ("priorityClassName==hihg", "high"),
        ("nodepool==h10", "h100"),
        ("projectId==999999", None),
        ("clusterId==00000000-0000-4000-8000-000000000000", None),
        ("projectName==something-else-altogether", None),
    ],
)
def test_a_filter_that_names_nothing_is_refused_with_what_is_nearest(
    robot: Robot, llm_team: Project, condition: str, nearest: str | None
) -> None:
    answer = robot.get(f"v1/workloads?filterBy={condition}")
    assert answer.status_code == 400
    (problem,) = answer.json()["errors"]
    assert (problem["pointer"], problem["code"]) == ("/filterBy", "unknown_name")
    assert problem.get("allowed", []) == ([nearest] if nearest else [])
    if nearest:
        assert f"Did you mean '{nearest}'?" in problem["message"]


def test_a_foreign_project_is_refused_like_one_that_is_not_there(member: Robot, llm_team: Project) -> None:
    ProjectFactory(name="llm-teal")
    foreign = member.get("v1/workloads?filterBy=projectName==llm-teal").json()
    absent = member.get("v1/workloads?filterBy=projectName==llm-teak").json()
    assert foreign["message"].replace("llm-teal", "?") == absent["message"].replace("llm-teak", "?")
    assert "llm-teal" not in str(absent)


@pytest.mark.parametrize(
    "condition", ["projectName==llm-team", "phase==Running", "name==no-such-name", "projectName=@no-such"]
)
def test_what_is_there_may_have_nothing(robot: Robot, llm_team: Project, condition: str) -> None:
    answer = robot.get(f"v1/workloads?filterBy={condition}")
    assert (answer.status_code, answer.json()["workloads"]) == (200, [])


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("v1/workloads?projectname=llm-team", "projectname"),
        ("v1/workloads?filterby=phase==Running", "filterby"),
        ("v1/org-unit/projects?sortby=name", "sortby"),
        ("v1/users?filter=name", "filter"),
    ],
)
def test_a_parameter_that_a_route_does_not_know_is_refused(robot: Robot, address: str, named: str) -> None:
    answer = robot.get(address)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == f"/{named}"


def test_a_misspelt_dry_run_writes_nothing(robot: Robot, llm_team: Project) -> None:
    workload = WorkloadFactory(project=llm_team)
    answer = robot.send("DELETE", f"v2/workloads/{workload.pk}?dryrun=true")
    body = answer.json()
    assert (answer.status_code, body["errors"][0]["pointer"]) == (400, "/dryrun")
    assert "Did you mean dryRun?" in body["message"]
    assert Workload.objects.get(pk=workload.pk).desired_phase == "Running"
