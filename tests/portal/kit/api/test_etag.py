"""ETag and 304: whoever has the very same answer already is not sent it again."""

from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.kit.models import StoredResponse
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory
from tests.support.rest_clients import Robot
from tests.workloads.submission.test_races import at_once
from workloads.dictionary.models import Priority
from workloads.state.models import Workload

READ = ["v1/workloads", "v1/workload-priorities", "v1/org-unit/projects", "v1/workload-types", "openapi.json"]


def known(robot: Robot, path: str, tag: str) -> int:
    return int(robot.client.get(f"/api/{path}", headers={"If-None-Match": tag}).status_code)


@pytest.mark.parametrize("path", READ)
def test_an_unchanged_answer_is_304_without_a_body(robot: Robot, path: str) -> None:
    first = robot.get(path)
    again = robot.client.get(f"/api/{path}", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again["ETag"] == first["ETag"]
    assert again["Cache-Control"] == first["Cache-Control"] == "no-store, private"
    assert "Authorization" in first["Vary"]
    assert "Authorization" in again["Vary"]


def test_a_change_is_sent_whole(robot: Robot, submitted: Callable[..., str]) -> None:
    path = f"v1/workloads/{submitted()}"
    tag = robot.get(path)["ETag"]
    assert known(robot, path, tag) == 304
    Workload.objects.update(phase="Running")
    assert known(robot, path, tag) == 200


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        pytest.param("*", 304, id="any"),
        pytest.param('"other", {}', 304, id="one of several"),
        pytest.param("{}, nonsense", 304, id="beside nonsense"),
        pytest.param('"other"', 200, id="another"),
        pytest.param("", 200, id="none"),
        pytest.param("W/" * 5000, 200, id="a long one"),
    ],
)
def test_tags_are_read_as_http_has_it(robot: Robot, tags: str, status: int) -> None:
    tag = robot.get("v1/workload-priorities")["ETag"]
    assert known(robot, "v1/workload-priorities", tags.format(tag.removeprefix("W/"))) == status


def test_refusals_and_writes_have_none(robot: Robot, client: Client) -> None:
    for answer in (
        robot.get("v1/workloads?limit=0"),
        robot.get("v1/workloads/11111111-1111-4111-8111-111111111111"),
        client.get("/api/v1/workloads", headers={"If-None-Match": "*"}),
        robot.send("POST", "v1/org-unit/departments", {}),
    ):
        assert answer.status_code in {400, 401, 404, 422}
        assert "ETag" not in answer


def test_t50_another_readers_tag_tells_nothing(robot: Robot, member: Robot, submitted: Callable[..., str]) -> None:
    submitted()
    assert robot.get("v1/workloads")["ETag"] == member.get("v1/workloads")["ETag"]
    foreign = "v1/org-unit/departments/999999"
    assert known(member, foreign, "*") == 404


def test_it_asks_no_further_question(robot: Robot) -> None:
    robot.get("v1/workloads")
    with CaptureQueriesContext(connection) as first:
        tag = robot.get("v1/workloads")["ETag"]
    with CaptureQueriesContext(connection) as again:
        assert known(robot, "v1/workloads", tag) == 304
    assert len(again) <= len(first)


@pytest.fixture
def priority(robot: Robot) -> str:
    """The path of the entry `low`."""
    return f"v1/workload-priorities/{Priority.objects.get(name='low').pk}"


def described(robot: Robot, path: str, text: str, tags: str) -> int:
    return int(robot.send("PATCH", path, {"description": text}, **{"If-Match": tags}).status_code)


def test_a_write_with_the_tag_of_an_older_state_is_412_and_changes_nothing(robot: Robot, priority: str) -> None:
    tag = robot.get(priority)["ETag"]
    assert described(robot, priority, "first", tag) == 200
    stale = robot.send("PATCH", priority, {"description": "second"}, **{"If-Match": tag})
    assert (stale.status_code, stale.json()["details"]) == (412, "stale")
    assert robot.get(priority).json()["description"] == "first"
    assert described(robot, priority, "third", robot.get(priority)["ETag"]) == 200
    assert not StoredResponse.objects.exists()


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        pytest.param("*", 200, id="any"),
        pytest.param('"other", {}', 200, id="one of several"),
        pytest.param('"other"', 412, id="another"),
        pytest.param("", 412, id="none"),
        pytest.param("nonsense", 412, id="nonsense"),
    ],
)
def test_conditions_are_read_as_http_has_them(robot: Robot, priority: str, tags: str, status: int) -> None:
    assert described(robot, priority, "new", tags.format(robot.get(priority)["ETag"])) == status


def test_a_condition_on_what_is_absent_is_404(robot: Robot, member: Robot) -> None:
    absent = "v1/org-unit/departments/999999"
    assert robot.send("DELETE", absent, **{"If-Match": "*"}).status_code == 404


def test_use_that_is_counted_meanwhile_is_no_change_of_a_quota(
    robot: Robot, llm_team: Project, submitted: Callable[..., str]
) -> None:
    path = f"v1/org-unit/projects/{llm_team.pk}"
    tag = robot.get(path)["ETag"]
    workload = Workload.objects.get(pk=submitted())
    ObservedPodFactory.create(workload=workload, gpu_milli=2000)
    assert known(robot, path, tag) == 200
    assert robot.send("PUT", f"{path}/resources", [], **{"If-Match": tag}).status_code == 200
    assert robot.send("PUT", f"{path}/resources", [], **{"If-Match": tag}).status_code == 412
    assert robot.send("DELETE", path, **{"If-Match": tag}).status_code == 412


def test_a_policy_is_changed_by_the_tag_of_its_own_scope(robot: Robot) -> None:
    meta, rule = {"scope": "tenant", "name": "house"}, {"defaults": {"priorityClass": "low"}}
    path = "v2/policy/trainings"
    assert robot.send("PUT", path, {"meta": meta, "policy": rule}).status_code == 200
    tag = robot.get(f"{path}?scope=tenant")["ETag"]
    other = {"defaults": {"priorityClass": "medium"}}
    codes = [
        robot.send("PUT", path, {"meta": meta, "policy": other}, **{"If-Match": tag}).status_code for _ in range(2)
    ]
    assert codes == [200, 412]
    assert robot.send("DELETE", f"{path}?scope=tenant", **{"If-Match": tag}).status_code == 412


@pytest.mark.postgres
def test_of_conditional_writes_at_once_one_wins(postgres_db: str) -> None:
    robots = [Robot(f"racer-{number}", role=Role.PLATFORM_ADMIN) for number in range(4)]
    path = f"v1/workload-priorities/{Priority.objects.get(name='low').pk}"
    tag = robots[0].get(path)["ETag"]
    calls = [partial(described, robot, path, f"by {number}", tag) for number, robot in enumerate(robots)]
    assert sorted(at_once(calls, threads=4)) == ["200", "412", "412", "412"]
    assert not StoredResponse.objects.exists()
