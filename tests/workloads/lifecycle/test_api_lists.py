"""`GET /api/v1/workloads`: pages, filters and what may be seen."""

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from runai.models.workload_detailed import WorkloadDetailed

from tenants.organisation.models import Project
from tests.support.rest_clients import Robot
from workloads.state.models import Phase, Workload

URL = "v1/workloads"
NEEDED = {
    "id", "type", "name", "tenantId", "clusterId", "projectId", "projectName", "departmentId", "departmentName",
    "namespace", "createdAt", "updatedAt", "phase", "phaseUpdatedAt", "k8sPhase", "k8sPhaseUpdatedAt", "conditions",
    "runningPods", "source", "category", "priorityClassName", "priority", "deletedAt",
}  # fmt: skip


def test_a_row_has_what_their_model_needs(robot: Robot, submitted: Callable[..., str]) -> None:
    submitted()
    (row,) = robot.get(URL).json()["workloads"]
    assert row.keys() >= NEEDED
    assert all(row[key] is not None for key in NEEDED - {"deletedAt"})


@pytest.mark.parametrize(
    ("phase", "waited", "ran"),
    [
        pytest.param(Phase.PENDING, 90, 5, id="waits"),
        pytest.param(Phase.RUNNING, 30, 65, id="runs"),
        pytest.param(Phase.COMPLETED, 30, 5, id="has ended"),
    ],
)
def test_the_time_that_goes_on_counts_up_to_now(
    robot: Robot, submitted: Callable[..., str], phase: Phase, waited: int, ran: int
) -> None:
    before = {"pending_seconds": 30, "running_seconds": 5, "phase_at": timezone.now() - timedelta(seconds=60)}
    workload = submitted()
    Workload.objects.filter(pk=workload).update(phase=phase, **before)
    row = robot.get(f"{URL}/{workload}").json()
    assert row["totalPendingTimeSeconds"] == pytest.approx(waited, abs=5)
    assert row["totalRunningTimeSeconds"] == pytest.approx(ran, abs=5)


@pytest.mark.parametrize(
    ("phase", "reason", "theirs", "ours"),
    [
        (Phase.PENDING, "Unschedulable", None, "Unschedulable"),
        (Phase.PENDING, "WaitingForQuota", None, "WaitingForQuota"),
        (Phase.PENDING, "OverLimit", "OverLimit", "OverLimit"),
        (Phase.PENDING, "", None, None),
        (Phase.FAILED, "cluster_refused", None, None),
    ],
)
def test_every_reason_to_wait_is_there_and_run_ais_field_has_only_its_own_two(
    robot: Robot, submitted: Callable[..., str], phase: Phase, reason: str, theirs: str | None, ours: str | None
) -> None:
    workload = submitted()
    Workload.objects.filter(pk=workload).update(phase=phase, phase_reason=reason)
    row = robot.get(f"{URL}/{workload}").json()
    assert (row["phaseReason"], row["waitingReason"]) == (theirs, ours)
    assert WorkloadDetailed.from_dict(row).phase_reason == theirs


def test_pages_follow_each_other_without_a_gap(robot: Robot, submitted: Callable[..., str]) -> None:
    wanted = {submitted(f"job-{number}") for number in range(5)}
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = robot.get(f"{URL}?limit=2&offset={offset}").json()
        seen += [row["id"] for row in page["workloads"]]
        offset = page["next"]
    assert len(seen) == 5
    assert set(seen) == wanted


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("filterBy=name=@b-1", ["job-1"]),
        ("filterBy=name=^job,name!=job-0", ["job-2", "job-1"]),
        ("filterBy=phase==Creating&sortBy=name", ["job-0", "job-1", "job-2"]),
        ("search=JOB-2", ["job-2"]),
        ("filterBy=priority>=100", []),
        ("filterBy=createdAt<=2001-01-01T00:00:00Z", []),
        ("filterBy=", ["job-2", "job-1", "job-0"]),
        ("deleted=true", []),
    ],
)
def test_filters_are_run_ais(robot: Robot, submitted: Callable[..., str], query: str, names: list[str]) -> None:
    for number in range(3):
        submitted(f"job-{number}")
    assert [row["name"] for row in robot.get(f"{URL}?{query}").json()["workloads"]] == names
    assert robot.get(f"{URL}/count?{query}").json() == {"count": len(names)}


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=x", "offset=-1", "deleted=maybe", "filterBy=cluster__token==x", "sortBy=raw"],
)
def test_t51_bad_parameters_are_400(robot: Robot, query: str) -> None:
    assert robot.get(f"{URL}?{query}").status_code == 400


def test_t50_only_the_own_projects_are_listed(
    member: Robot, submitted: Callable[..., str], llm_team: Project, vision_team: Project
) -> None:
    own, foreign = submitted("own"), submitted("foreign", vision_team)
    assert [row["id"] for row in member.get(URL).json()["workloads"]] == [own]
    filtered = [member.get(f"{URL}?filterBy=projectId=={key}") for key in (vision_team.pk, 999_999)]
    assert [answer.status_code for answer in filtered] == [400, 400]
    foreign_answer, absent_answer = member.get(f"{URL}/{foreign}"), member.get(f"{URL}/{uuid4()}")
    assert foreign_answer.status_code == absent_answer.status_code == 404
    assert foreign_answer.content == absent_answer.content


def test_more_rows_take_no_more_queries(robot: Robot, submitted: Callable[..., str]) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert robot.get(URL).status_code == 200
        return len(captured)

    submitted("first")
    few = queries()
    for number in range(20):
        submitted(f"job-{number}")
    assert queries() == few


def test_evicted_and_non_preemptible_workloads_can_be_listed(robot: Robot, submitted: Callable[..., str]) -> None:
    evicted, fixed = submitted(name="evicted"), submitted(name="fixed")
    Workload.objects.filter(pk=evicted).update(preempted_count=1)
    Workload.objects.filter(pk=fixed).update(preemptibility="non-preemptible")
    assert [row["name"] for row in robot.get(f"{URL}?evicted=true").json()["workloads"]] == ["evicted"]
    found = robot.get(f"{URL}?filterBy=preemptibility==non-preemptible").json()["workloads"]
    assert [row["name"] for row in found] == ["fixed"]


def test_a_value_of_the_wrong_kind_says_what_is_expected(robot: Robot, llm_team: Project) -> None:
    (problem,) = robot.get(f"{URL}?filterBy=priority==high").json()["errors"]
    assert problem["message"] == "'high' is not a valid priority: expected a whole number."
    assert "allowed" not in problem
