"""Suspend, resume and delete through REST; who may; and what anonymous callers get."""

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.dictionary.models import WorkloadType
from workloads.state.models import Workload

BATCH = "v1/workloads/batch"


def native(workload_id: str, phase: str = "Running") -> str:
    """Turns the row into a running native training."""
    kind = WorkloadType.objects.get(name="Training")
    Workload.objects.filter(pk=workload_id).update(type=kind, phase=phase, phase_at=timezone.now())
    return f"v1/workloads/trainings/{workload_id}"


def test_a_native_workload_is_suspended_and_resumed(robot: Robot, submitted: Callable[..., str]) -> None:
    path = native(submitted())
    assert robot.send("POST", f"{path}/suspend").status_code == 202
    assert Workload.objects.get().desired_phase == "Stopped"
    assert robot.send("POST", f"{path}/resume").status_code == 202
    assert Workload.objects.get().desired_phase == "Running"


def test_suspending_and_resuming_twice_is_once(robot: Robot, submitted: Callable[..., str]) -> None:
    path = native(submitted())
    for verb in ("suspend", "suspend", "resume", "resume"):
        assert robot.send("POST", f"{path}/{verb}").status_code == 202
    assert Workload.objects.get().generation == 3


def test_resuming_what_has_ended_is_409(robot: Robot, submitted: Callable[..., str]) -> None:
    assert robot.send("POST", f"{native(submitted(), 'Completed')}/resume").status_code == 409


def test_what_failed_to_apply_is_listed_counted_and_retried(robot: Robot, llm_team: Project) -> None:
    kind = WorkloadType.objects.get(name="Training")
    refused, fine = (WorkloadFactory(project=llm_team, type=kind, failed_to_apply=failed) for failed in (True, False))
    found = robot.get("v1/workloads?failedToApply=true").json()["workloads"]
    assert [each["id"] for each in found] == [str(refused.pk)]
    assert robot.get("v1/workloads/count?failedToApply=true").json()["count"] == 1
    codes = [robot.send("POST", f"v1/workloads/trainings/{each.pk}/retry").status_code for each in (refused, fine)]
    assert codes == [202, 409]
    assert robot.get("v1/workloads/count?failedToApply=true").json()["count"] == 0


def test_a_batch_retries(robot: Robot, llm_team: Project) -> None:
    refused, fine = (str(WorkloadFactory(project=llm_team, failed_to_apply=failed).pk) for failed in (True, False))
    answer = robot.send("POST", BATCH, {"ids": [refused, fine], "action": "retry"}).json()
    assert (answer["succeeded"], [each["id"] for each in answer["failed"]]) == ([refused], [fine])


def test_a_workload_is_found_only_under_its_own_kind(robot: Robot, submitted: Callable[..., str]) -> None:
    wrong = native(submitted()).replace("trainings", "workspaces")
    assert robot.send("POST", f"{wrong}/suspend").status_code == 404
    assert robot.send("DELETE", wrong).status_code == 404


def test_deleting_leaves_a_tombstone_and_twice_is_once(robot: Robot, submitted: Callable[..., str]) -> None:
    path = f"v2/workloads/{submitted()}"
    assert [robot.send("DELETE", path).status_code for _ in range(2)] == [202, 202]
    assert Workload.objects.get().desired_phase == "Deleted"


def test_a_batch_tells_each_apart(robot: Robot, submitted: Callable[..., str]) -> None:
    good, unknown = submitted(), str(uuid4())
    told = robot.send("POST", BATCH, {"ids": [good, unknown, "x"], "action": "delete"}).json()
    assert told["succeeded"] == [good]
    assert {each["id"]: each["code"] for each in told["failed"]} == {unknown: 404, "x": 404}


@pytest.mark.parametrize("body", [{"ids": [], "action": "delete"}, {"ids": ["x"], "action": "explode"}, {"ids": "x"}])
def test_a_bad_batch_is_refused_whole(robot: Robot, body: dict[str, object]) -> None:
    assert robot.send("POST", BATCH, body).status_code == 422


def test_t53_a_batch_does_not_reach_another_teams_work(
    member: Robot, submitted: Callable[..., str], vision_team: Project
) -> None:
    foreign = submitted("foreign", vision_team)
    told = member.send("POST", BATCH, {"ids": [foreign], "action": "delete"}).json()
    assert told["failed"][0]["code"] == 404
    assert Workload.objects.get().desired_phase == "Running"


NOBODY = "00000000-0000-4000-8000-000000000000"  # fixed: every test process collects the same names
ROUTES = [
    ("GET", "v1/workload-priorities"),
    ("GET", "v1/workload-types"),
    ("GET", "v1/workload-categories"),
    ("GET", "v1/workloads"),
    ("GET", "v1/workloads/count"),
    ("GET", f"v1/workloads/{NOBODY}"),
    ("POST", "v2/workloads"),
    ("GET", f"v2/workloads/{NOBODY}"),
    ("DELETE", f"v2/workloads/{NOBODY}"),
    ("POST", BATCH),
    ("PUT", f"v1/workload-types/{NOBODY}"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("authorization", ["", "Bearer x", "Bearer a.b.c", "Basic YTpi", "bearer"])
def test_t50_nothing_opens_without_a_living_token(
    client: Client, db: None, method: str, path: str, authorization: str
) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    response = client.generic(method, f"/api/{path}", "", "application/json", headers=headers)
    assert response.status_code == 401
    assert response.json()["code"] == 401


def test_t55_identity_headers_are_not_believed(client: Client, db: None) -> None:
    headers = {"X-Remote-User": "admin", "Impersonate-User": "admin", "Kubeflow-Userid": "admin"}
    assert client.get("/api/v1/workloads", headers=headers).status_code == 401


def test_t60_a_signed_in_browser_is_no_token(admin: object, client_of: Callable[[object], Client]) -> None:
    assert client_of(admin).post("/api/v2/workloads", "{}", content_type="application/json").status_code == 401


def test_an_unknown_route_is_a_json_404(robot: Robot) -> None:
    response = robot.get("v9/nothing")
    assert response.status_code == 404
    assert response.json()["code"] == 404


def test_another_method_is_a_json_405(robot: Robot) -> None:
    assert robot.send("PATCH", "v1/workloads").json()["code"] == 405


def test_a_dry_run_of_a_batch_says_what_each_would_lose_and_changes_nothing(robot: Robot, llm_team: Project) -> None:
    hour_ago = timezone.now() - timedelta(hours=1)
    runs = WorkloadFactory(
        project=llm_team, name="runs", phase="Running", allocated_gpu_milli=8000, started_at=hour_ago, running_pods=1
    )
    ended = WorkloadFactory(project=llm_team, name="ended", phase="Completed")
    body = {"ids": [str(runs.pk), str(ended.pk), str(uuid4())], "action": "suspend"}
    answer = robot.send("POST", f"{BATCH}?dryRun=true", body).json()
    first, second = sorted(answer["effects"], key=lambda each: str(each["name"]), reverse=True)
    assert (first["name"], first["ends"], first["gpus"], first["projectName"]) == ("runs", True, 8.0, "llm-team")
    assert 7.9 < first["gpuHoursLost"] < 8.1
    assert first["message"] == "It has run on 8 GPUs for 1 h without a reported checkpoint."
    assert (second["name"], second["ends"], second["gpuHoursLost"]) == ("ended", False, 0.0)
    assert second["message"] == "Already ended."
    runs.refresh_from_db()
    assert runs.desired_phase == "Running"
    assert "effects" not in robot.send("POST", BATCH, {**body, "action": "resume"}).json()
    assert "effects" not in robot.send("POST", BATCH, body).json()


def test_a_dry_run_of_a_deletion_names_what_is_foreign_nowhere(member: Robot, vision_team: Project) -> None:
    foreign = WorkloadFactory(project=vision_team, name="foreign", phase="Running", allocated_gpu_milli=8000)
    answer = member.send("POST", f"{BATCH}?dryRun=true", {"ids": [str(foreign.pk), "x"], "action": "delete"}).json()
    assert (answer["effects"], [each["code"] for each in answer["failed"]]) == ([], [404, 404])
