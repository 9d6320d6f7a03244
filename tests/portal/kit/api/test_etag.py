"""ETag and 304: whoever has the very same answer already is not sent it again."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.support.rest_clients import Robot
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
