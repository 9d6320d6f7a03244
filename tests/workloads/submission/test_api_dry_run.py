"""`?dryRun=true` of every submission: what it would be answered, and what the model says would happen."""

from typing import Any

import pytest

from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.support.rest_clients import Robot
from tests.workloads.sandbox_lab import Lab
from tests.workloads.submission.test_api_native import SPEC, body
from workloads.forecast.models import StoredForecast
from workloads.forecast.services import storage
from workloads.state.models import IdempotencyKey, Workload

POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": SPEC["image"]}]}
MANIFEST = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": {"spec": POD}}}


def submissions(project: Project) -> dict[str, dict[str, Any]]:
    """A good body for every route that submits."""
    at = {"projectId": str(project.pk)}
    return {
        "v1/workloads/workspaces": body(project),
        "v1/workloads/trainings": body(project),
        "v1/workloads/distributed": body(project, distributedFramework="PyTorch"),
        "v1/workloads/inferences": body(project),
        "v1/workloads/distributed-inferences": {**body(project), "spec": {"leader": SPEC}},
        "v2/workloads": {"metadata": at, "manifest": MANIFEST},
        "v2/workloads/nim-services": {"metadata": {**at, "name": "nim"}, "spec": SPEC},
    }


def test_every_submission_tells_its_forecast_and_stores_nothing(robot: Robot, llm_team: Project) -> None:
    for path, sent in submissions(llm_team).items():
        response = robot.send("POST", f"{path}?dryRun=true", sent, **{"Idempotency-Key": path})
        assert response.status_code == 200, (path, response.content)
        found = response.json()["forecast"]
        assert found["estimate"] is True, path
        assert found["verdict"] in {"starts", "waits", "evicts", "reclaims"}, path
        assert found["requested"]["pods"] >= 1, path
        assert {"reason", "numbers", "victims", "alternatives", "flavour", "snapshotAgeSeconds"} <= set(found), path
    assert not Workload.objects.exists()
    assert not IdempotencyKey.objects.exists()
    assert not AuditRecord.objects.filter(action="workload.submit").exists()


def test_the_dry_run_of_a_clone_has_a_forecast_and_stores_nothing(robot: Robot, llm_team: Project) -> None:
    original = robot.send("POST", "v1/workloads/trainings", body(llm_team)).json()["workloadId"]
    response = robot.send("POST", f"v1/workloads/{original}/clone?dryRun=true", {"name": "copy", "priority": "high"})
    assert response.status_code == 200, response.content
    assert response.json()["forecast"]["verdict"] in {"starts", "waits", "evicts", "reclaims"}
    assert not Workload.objects.filter(name="copy").exists()
    assert "forecast" not in robot.send("POST", f"v1/workloads/{original}/clone", {"name": "copy"}).json()


def test_a_real_submission_tells_none(robot: Robot, llm_team: Project) -> None:
    assert "forecast" not in robot.send("POST", "v1/workloads/trainings", body(llm_team)).json()


def test_a_dry_run_under_a_key_that_was_used_tells_none(robot: Robot, llm_team: Project) -> None:
    key = {"Idempotency-Key": "once"}
    robot.send("POST", "v1/workloads/trainings", body(llm_team), **key)
    again = robot.send("POST", "v1/workloads/trainings?dryRun=true", body(llm_team), **key)
    assert (again.status_code, "forecast" in again.json()) == (200, False)


def test_what_can_never_start_is_refused_with_the_models_word_and_recorded_once(
    robot: Robot, llm_team: Project
) -> None:
    sent = body(llm_team, compute={"gpuDevicesRequest": 60})
    response = robot.send("POST", "v1/workloads/workspaces?dryRun=true", sent)
    assert response.status_code == 400
    found = response.json()
    assert found["forecast"]["verdict"] == "refused"
    assert found["forecast"]["numbers"] == found["errors"][0]["numbers"]
    assert AuditRecord.objects.filter(result="Denied", action="workload.submit").count() == 1


def test_a_subject_that_asks_too_often_is_told_when_to_come_back_and_others_are_answered(
    robot: Robot, llm_team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "FORECASTS_A_MINUTE", 2)
    requested = "v1/workloads/trainings?dryRun=true"
    first, second, third = (robot.send("POST", requested, body(llm_team)) for _ in range(3))
    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)
    assert 1 <= int(third["Retry-After"]) <= 60
    another = Robot("another", role=Role.MEMBER, project=llm_team)
    assert another.send("POST", requested, body(llm_team)).status_code == 200
    assert robot.send("POST", "v1/workloads/trainings", body(llm_team)).status_code == 202


def test_the_forecast_of_a_dry_run_is_stored_to_be_compared(robot: Robot, llm_team: Project) -> None:
    robot.send("POST", "v1/workloads/trainings?dryRun=true", body(llm_team))
    robot.send("POST", "v1/workloads/trainings", body(llm_team))
    stored = StoredForecast.objects.get()
    assert (stored.project, stored.verdict) == (llm_team, "starts")


@pytest.mark.parametrize("spec", [{"priorityClass": "urgent"}, {"image": "evil.example/x:1"}])
def test_what_cannot_be_read_is_refused_as_without_a_dry_run(
    robot: Robot, llm_team: Project, spec: dict[str, Any]
) -> None:
    sent = body(llm_team, **spec)
    answers = [robot.send("POST", f"v1/workloads/trainings{query}", sent) for query in ("?dryRun=true", "")]
    assert {each.status_code for each in answers} == {400}
    assert len({each.content for each in answers}) == 1


def test_victims_are_named_as_far_as_the_caller_may_see_them(db: None) -> None:
    lab = Lab()
    entitled, borrower = lab.project("entitled", deserved=8), lab.project("borrower", deserved=0)
    lab.submit(borrower, "greedy", gpus=8)
    lab.settle(4)
    sent = body(entitled, compute={"gpuDevicesRequest": 8})
    robots = (Robot("a-member", role=Role.MEMBER, project=entitled), Robot("an-admin", role=Role.PLATFORM_ADMIN))
    found = [each.send("POST", "v1/workloads/trainings?dryRun=true", sent).json()["forecast"] for each in robots]
    assert {each["verdict"] for each in found} == {"reclaims"}
    assert [each["victims"][0]["name"] for each in found] == ["another project", "greedy"]
    assert [each["victims"][0]["workloadId"] is None for each in found] == [True, False]
