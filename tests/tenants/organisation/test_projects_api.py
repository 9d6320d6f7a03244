"""The list of projects over REST, where it goes beyond Run:ai's."""

from typing import Any

import pytest

from tenants.organisation.models import Project
from tests.support.rest_clients import Robot

pytestmark = pytest.mark.django_db
PROJECTS = "v1/org-unit/projects"


def pools_of(project: Any) -> list[dict[str, Any]]:
    """What a project's body says of each node pool."""
    found: list[dict[str, Any]] = project["status"]["nodePoolQuotaStatuses"]
    return found


def test_a_list_says_what_could_start_if_it_is_asked_for_and_a_project_always(robot: Robot, llm_team: Project) -> None:
    (plain,) = robot.send("GET", PROJECTS).json()["projects"]
    assert [each["nodePoolName"] for each in pools_of(plain)] == ["h100", "a100"]
    assert not any("startable" in each for each in pools_of(plain))
    (requested,) = robot.send("GET", f"{PROJECTS}?startable=true").json()["projects"]
    assert [each["startable"]["withinQuota"] for each in pools_of(requested)] == [4.0, 0.0]
    most = [
        (each["startable"]["nonPreemptible"], each["startable"]["nonPreemptibleWorkload"])
        for each in pools_of(requested)
    ]
    assert most[0] == (4.0, 4.0)
    assert pools_of(robot.send("GET", f"{PROJECTS}/{llm_team.pk}").json()) == pools_of(requested)


def test_startable_is_true_or_false(robot: Robot, llm_team: Project) -> None:
    answer = robot.send("GET", f"{PROJECTS}?startable=maybe")
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["pointer"], error["allowed"]) == (400, "/startable", ["true", "false"])
