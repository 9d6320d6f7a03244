"""REST of GPU caps of priorities, time and idle limits of any category, and minimum runtimes."""

from typing import Any

import pytest

from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Project
from tenants.quotas.models import IdleLimit, MinRuntime, PriorityCap, TimeLimit
from tests.support.rest_clients import Robot

pytestmark = pytest.mark.django_db


def units(project: Project) -> dict[str, str]:
    """The paths of a project and of its department."""
    return {
        "project": f"v1/org-unit/projects/{project.pk}",
        "department": f"v1/org-unit/departments/{project.department_id}",
    }


def problem(answer: Any) -> tuple[int, str, str]:
    """Status, pointer and code of the first refused field."""
    (first, *_) = answer.json()["errors"]
    return answer.status_code, first["pointer"], first["code"]


def test_a_cap_is_set_read_listed_and_removed(robot: Robot, llm_team: Project) -> None:
    path = f"{units(llm_team)['project']}/priority-caps/high"
    assert robot.get(path).status_code == 404
    said = {"projectId": str(llm_team.pk), "projectName": "llm-team", "priority": "high", "gpuLimit": 2.5}
    assert robot.send("PUT", path, {"gpuLimit": 2.5, "reason": "Nights"}).json() == said
    assert robot.get(path).json() == said
    assert robot.get("v1/org-unit/priority-caps").json()["priorityCaps"] == [said]
    assert AuditRecord.objects.latest("id").detail == {
        "priority": "high",
        "before": None,
        "after": "2.5 GPUs",
        "reason": "Nights",
    }
    assert robot.send("DELETE", path).status_code == 204
    assert robot.send("DELETE", path).status_code == 404
    assert not PriorityCap.objects.exists()


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("priority-caps/high", {}, (422, "/gpuLimit", "required")),
        ("priority-caps/high", {"gpuLimit": -1}, (422, "/gpuLimit", "min_value")),
        ("priority-caps/high", {"gpuLimit": 0.0001}, (422, "/gpuLimit", "max_decimal_places")),
        ("priority-caps/high", {"gpuLimit": 3.4e38}, (422, "/gpuLimit", "max_value")),
        ("priority-caps/high", {"gpuLimit": 1, "gpus": 1}, (422, "/gpus", "unknown_field")),
        ("priority-caps/bogus", {"gpuLimit": 1}, (422, "/priority", "unknown_priority")),
        ("time-limits/Bogus", {"minutes": 60}, (422, "/category", "unknown_category")),
        ("time-limits/Deploy", {"minutes": 0}, (422, "/minutes", "min_value")),
        ("idle-limits/Deploy", {"minutes": 10, "noticeMinutes": 10}, (422, "/noticeMinutes", "out_of_range")),
        ("min-runtime", {"minutes": "soon"}, (422, "/minutes", "invalid")),
        ("min-runtime", {"minutes": 10**7}, (422, "/minutes", "max_value")),
    ],
)
def test_bad_input_is_refused_at_its_field(
    robot: Robot, llm_team: Project, path: str, body: dict[str, Any], expected: tuple[int, str, str]
) -> None:
    assert problem(robot.send("PUT", f"{units(llm_team)['project']}/{path}", body)) == expected
    assert not AuditRecord.objects.filter(action__regex="(cap|limit|min_runtime).set").exists()


@pytest.mark.parametrize(("noun", "kind"), [("time-limits", TimeLimit), ("idle-limits", IdleLimit)])
@pytest.mark.parametrize("unit", ["project", "department"])
def test_a_limit_of_any_category_is_set_and_removed(
    robot: Robot, llm_team: Project, unit: str, noun: str, kind: type[TimeLimit | IdleLimit]
) -> None:
    path = f"{units(llm_team)[unit]}/{noun}/Deploy"
    made = robot.send("PUT", path, {"minutes": 10}).json()
    owner = llm_team if unit == "project" else llm_team.department
    said = {"orgUnitType": unit, "orgUnitId": str(owner.pk), "orgUnitName": owner.name, "category": "Deploy"}
    assert made == {**said, "minutes": 10, "noticeMinutes": 9}
    assert robot.get(f"v1/org-unit/{noun}").json()["limits"] == [made]
    assert robot.send("PUT", path, {"minutes": 600, "noticeMinutes": 5}).json()["noticeMinutes"] == 5
    assert robot.send("DELETE", path).status_code == 204
    assert not kind.objects.exists()


@pytest.mark.parametrize(("noun", "minutes"), [("time-limits/Deploy", 60), ("min-runtime", 60)])
def test_a_project_may_only_tighten_its_department(robot: Robot, llm_team: Project, noun: str, minutes: int) -> None:
    paths = units(llm_team)
    assert robot.send("PUT", f"{paths['department']}/{noun}", {"minutes": minutes}).status_code == 200
    refused = robot.send("PUT", f"{paths['project']}/{noun}", {"minutes": minutes + 1})
    assert problem(refused) == (409, "/minutes", "looser_than_department")
    assert robot.send("PUT", f"{paths['project']}/{noun}", {"minutes": minutes - 1}).status_code == 200


def test_a_minimum_runtime_is_set_and_removed(robot: Robot, llm_team: Project) -> None:
    path = f"{units(llm_team)['project']}/min-runtime"
    made = robot.send("PUT", path, {"minutes": 0}).json()
    assert (made["orgUnitName"], made["minutes"]) == ("llm-team", 0)
    assert robot.get("v1/org-unit/min-runtimes").json()["minRuntimes"] == [made]
    assert robot.send("DELETE", path).status_code == 204
    assert not MinRuntime.objects.exists()


def test_a_stale_tag_stops_a_write(robot: Robot, llm_team: Project) -> None:
    path = f"{units(llm_team)['project']}/min-runtime"
    robot.send("PUT", path, {"minutes": 5})
    tag = robot.get(path).headers["ETag"]
    assert robot.send("PUT", path, {"minutes": 6}, **{"If-Match": tag}).status_code == 200
    assert robot.send("DELETE", path, **{"If-Match": tag}).status_code == 412


def test_a_list_shows_what_the_caller_may_see(robot: Robot, llm_team: Project, vision_team: Project) -> None:
    for project in (llm_team, vision_team):
        for unit in units(project).values():
            robot.send("PUT", f"{unit}/min-runtime", {"minutes": 5})
        robot.send("PUT", f"{units(project)['project']}/priority-caps/high", {"gpuLimit": 1})
    viewer = Robot("viewing-robot", role=Role.VIEWER, project=llm_team)
    assert [each["orgUnitName"] for each in viewer.get("v1/org-unit/min-runtimes").json()["minRuntimes"]] == [
        "llm-team"
    ]
    caps = viewer.get("v1/org-unit/priority-caps?limit=1").json()
    assert [each["projectName"] for each in caps["priorityCaps"]] == ["llm-team"]
    assert caps["next"] is None
    assert viewer.send("PUT", f"{units(llm_team)['project']}/min-runtime", {"minutes": 1}).status_code == 403
    assert viewer.send("PUT", f"{units(vision_team)['project']}/min-runtime", {"minutes": 1}).status_code == 404
