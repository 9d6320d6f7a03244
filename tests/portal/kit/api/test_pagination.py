"""`after`: a list is walked from cursor to cursor, a deep page costs as the first, and a cursor opens nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.watch.models import ClusterEvent
from portal.kit.db.keyset_pagination import cursor_of
from tenants.organisation.models import Project
from tests.factories.tenants import DepartmentFactory, ProjectFactory
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.state.models import Workload

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


WALKS = {
    "v1/workloads": "workloads",
    "v1/workloads?sortBy=createdAt": "workloads",
    "v1/workloads?sortBy=priority&sortOrder=desc": "workloads",
    "v1/workloads?sortBy=completedAt": "workloads",
    "v1/workloads?sortBy=completedAt&sortOrder=desc": "workloads",
    "v1/workloads?sortBy=projectName&filterBy=name!=job-3": "workloads",
    "v1/workloads?sortBy=departmentId&sortOrder=desc": "workloads",
    "v1/workloads/pods": "pods",
    "v1/workloads/pods?sortBy=completedAt&sortOrder=desc": "pods",
    "v1/workloads/{id}/events": "events",
    "v1/workloads/{id}/events?sortOrder=asc": "events",
    "v1/workloads/{id}/history": "records",
    "v1/org-unit/projects": "projects",
    "v1/org-unit/projects?sortBy=parentName&sortOrder=desc": "projects",
    "v1/org-unit/departments?sortBy=createdAt": "departments",
}


@pytest.fixture
def estate(llm_team: Project) -> Workload:
    """Seven of everything; moments repeat and some have not come."""
    rows = [WorkloadFactory.create(project=llm_team, name=f"job-{n}") for n in range(7)]
    for n, row in enumerate(rows):
        moment = NOON + timedelta(minutes=n // 3)
        ended = moment if n % 2 else None
        Workload.objects.filter(pk=row.pk).update(created_at=moment, completed_at=ended, priority_value=n // 3)
        ObservedPodFactory.create(workload=row, name=f"pod-{n}", created_at=moment, ended_at=ended)
        DepartmentFactory.create(cluster=llm_team.cluster)
        ProjectFactory.create(department=llm_team.department)
    first: Workload = rows[0]
    for n in range(7):
        first.timeline.create(at=NOON + timedelta(minutes=n // 3), type="phase", phase="Pending", message=f"entry {n}")
        _event(first, n)
    return first


def _event(workload: Workload, n: int) -> None:
    ClusterEvent.objects.create(
        cluster=workload.project.cluster,
        owner_id=str(workload.pk),
        uid=f"event-{n}",
        at=NOON + timedelta(minutes=n // 3),
    )


def identity(row: dict[str, Any]) -> str:
    """Records of a history have no id."""
    return str(row.get("id", row))


def walk(robot: Robot, path: str, key: str) -> list[str]:
    """The ids of every page, in the order of the walk."""
    seen, after = [], ""
    for _page in range(20):
        body = robot.get(f"{path}{'&' if '?' in path else '?'}limit=2{after and f'&after={after}'}").json()
        seen += [identity(row) for row in body[key]]
        if body["nextAfter"] is None:
            return seen
        after = body["nextAfter"]
    raise AssertionError(path)


def test_a_walk_shows_what_one_large_page_shows(robot: Robot, estate: Workload) -> None:
    for each, key in WALKS.items():
        path = each.format(id=estate.pk)
        whole = robot.get(path).json()
        assert len(whole[key]) >= 6, path
        assert (whole["next"], whole["nextAfter"]) == (None, None)
        assert walk(robot, path, key) == [identity(row) for row in whole[key]], path


def test_rows_that_come_and_go_shift_nothing(robot: Robot, estate: Workload) -> None:
    whole = [row["name"] for row in robot.get("v1/workloads").json()["workloads"]]
    page = robot.get("v1/workloads?limit=2").json()
    WorkloadFactory.create(project=estate.project, name="newest")
    Workload.objects.filter(pk=page["workloads"][-1]["id"]).update(deleted_at=timezone.now())
    following = robot.get(f"v1/workloads?limit=2&after={page['nextAfter']}").json()["workloads"]
    assert [row["name"] for row in following] == whole[2:4]


def test_a_deep_page_costs_what_the_first_costs(robot: Robot, estate: Workload) -> None:
    after = robot.get("v1/workloads?limit=2").json()["nextAfter"]
    with CaptureQueriesContext(connection) as first:
        robot.get("v1/workloads?limit=2")
    with CaptureQueriesContext(connection) as deep:
        robot.get(f"v1/workloads?limit=2&after={after}")
    assert len(deep) == len(first)
    sql = deep.captured_queries[-1]["sql"]
    assert "OFFSET" not in sql
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        plan = " ".join(row[-1] for row in cursor.fetchall())
    assert "USING INDEX workloads_live_newest (created_at<" in plan
    assert "TEMP B-TREE" not in plan.replace("TEMP B-TREE FOR LAST TERM", "")


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param("v1/workloads?limit=2&sortBy=name", id="another order"),
        pytest.param("v1/workloads?limit=2&sortOrder=asc", id="another direction"),
        pytest.param("v1/workloads?limit=2&filterBy=name=@x", id="another filter"),
        pytest.param("v1/workloads?limit=2&deleted=true", id="other rows"),
        pytest.param("v1/workloads/pods?limit=2", id="another list"),
    ],
)
def test_t51_a_cursor_of_another_list_is_refused(robot: Robot, estate: Workload, elsewhere: str) -> None:
    after = robot.get("v1/workloads?limit=2").json()["nextAfter"]
    answer = robot.get(f"{elsewhere}&after={after}")
    assert (answer.status_code, answer.json()["details"]) == (400, "bad_cursor")


def test_t51_somebody_elses_cursor_is_refused(robot: Robot, member: Robot, estate: Workload) -> None:
    after = robot.get("v1/workloads?limit=2").json()["nextAfter"]
    answer = member.get(f"v1/workloads?limit=2&after={after}")
    assert (answer.status_code, answer.json()["details"]) == (400, "bad_cursor")


@pytest.mark.parametrize("place", [0, -1, 10])
def test_t51_a_cursor_with_one_other_letter_is_refused(robot: Robot, estate: Workload, place: int) -> None:
    after = robot.get("v1/workloads?limit=2").json()["nextAfter"]
    other = list(after)
    other[place] = "A" if after[place] != "A" else "B"
    answer = robot.get(f"v1/workloads?limit=2&after={''.join(other)}")
    assert answer.status_code == 400
    assert "job-" not in answer.content.decode()


def test_t51_a_cursor_of_the_pages_opens_no_list(robot: Robot, estate: Workload) -> None:
    answer = robot.get(f"v1/workloads?limit=2&after={cursor_of(estate, '-created_at')}")
    assert answer.status_code == 400


def test_both_places_at_once_are_refused(robot: Robot, estate: Workload) -> None:
    after = robot.get("v1/workloads?limit=2").json()["nextAfter"]
    answer = robot.get(f"v1/workloads?limit=2&offset=2&after={after}")
    assert (answer.status_code, answer.json()["details"]) == (400, "one_place")


def test_the_audit_log_is_walked_too(robot: Robot, estate: Workload) -> None:
    period = "start=2020-01-01T00:00:00Z&end=2040-01-01T00:00:00Z"
    for number in range(5):
        Robot(f"robot-{number}")
    whole = robot.get(f"v1/audit/log?{period}&numberOfSamples=100").json()["audit_logs"]
    seen, after = [], ""
    while after is not None:
        page = robot.get(f"v1/audit/log?{period}&numberOfSamples=3{after and f'&after={after}'}").json()
        seen += page["audit_logs"]
        after = page["nextAfter"]
    assert len(seen) >= 5
    assert [row["id"] for row in seen] == [row["id"] for row in whole]


def test_an_order_without_cursors_refuses_one(robot: Robot, estate: Workload) -> None:
    after = robot.get("v1/org-unit/projects?limit=2").json()["nextAfter"]
    answer = robot.get(f"v1/audit/log?start=2020-01-01&end=2040-01-01&sortBy=action&after={after}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/after")
