"""`Idempotency-Key` and `dryRun`, the same for every route that writes."""

from collections.abc import Callable
from typing import Any

import pytest

from portal.audit.models import AuditRecord
from portal.kit.models import StoredResponse
from tenants.organisation.models import Department, Project
from tests.support.rest_clients import Robot

DEPARTMENTS = "v1/org-unit/departments"


@pytest.fixture
def body(llm_team: Project) -> dict[str, Any]:
    return {"name": "retried", "clusterId": str(llm_team.cluster_id), "resources": []}


def test_a_repeated_post_is_answered_again_and_done_once(robot: Robot, body: dict[str, Any]) -> None:
    first = robot.send("POST", DEPARTMENTS, body, **{"Idempotency-Key": "one"})
    again = robot.send("POST", DEPARTMENTS, body, **{"Idempotency-Key": "one"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert (first.get("Idempotent-Replayed"), again.get("Idempotent-Replayed")) == (None, "true")
    assert Department.objects.filter(name="retried").count() == 1


def test_a_key_with_another_request_is_refused(robot: Robot, body: dict[str, Any]) -> None:
    robot.send("POST", DEPARTMENTS, body, **{"Idempotency-Key": "one"})
    other = robot.send("POST", DEPARTMENTS, body | {"name": "other"}, **{"Idempotency-Key": "one"})
    assert (other.status_code, other.json()["details"]) == (422, "idempotency_mismatch")
    assert not Department.objects.filter(name="other").exists()


def test_a_refusal_frees_its_key_for_the_corrected_request(robot: Robot, body: dict[str, Any]) -> None:
    refused = robot.send("POST", DEPARTMENTS, body | {"name": "No!"}, **{"Idempotency-Key": "one"})
    assert refused.status_code == 422
    assert robot.send("POST", DEPARTMENTS, body, **{"Idempotency-Key": "one"}).status_code == 201


@pytest.mark.parametrize("key", ["", "k" * 10_240, "caf\u00e9", "a\x01b"])
def test_t69_a_key_that_is_no_key_is_400(robot: Robot, body: dict[str, Any], key: str) -> None:
    response = robot.send("POST", DEPARTMENTS, body, **{"Idempotency-Key": key})
    assert (response.status_code, response.json()["details"]) == (400, "bad_idempotency_key")
    assert not StoredResponse.objects.exists()


def test_t69_somebody_elses_key_is_independent(robot: Robot, body: dict[str, Any]) -> None:
    other = Robot("second-robot", role="platform-admin")
    assert robot.send("POST", DEPARTMENTS, body, **{"Idempotency-Key": "one"}).status_code == 201
    named = body | {"name": "theirs"}
    assert other.send("POST", DEPARTMENTS, named, **{"Idempotency-Key": "one"}).json()["name"] == "theirs"


def test_a_dry_run_answers_what_would_be_and_leaves_nothing(robot: Robot, body: dict[str, Any]) -> None:
    records = AuditRecord.objects.count()
    response = robot.send("POST", f"{DEPARTMENTS}?dryRun=true", body)
    assert (response.status_code, response["Rung-Dry-Run"], response.json()["name"]) == (200, "true", "retried")
    assert not Department.objects.filter(name="retried").exists()
    assert AuditRecord.objects.count() == records


def test_a_dry_run_refuses_what_the_real_one_would(robot: Robot, body: dict[str, Any]) -> None:
    response = robot.send("POST", f"{DEPARTMENTS}?dryRun=true", body | {"name": "No!"})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/name"


def test_a_dry_run_of_a_removal_removes_nothing(robot: Robot, llm_team: Project) -> None:
    made = robot.send("POST", DEPARTMENTS, {"name": "kept", "clusterId": str(llm_team.cluster_id), "resources": []})
    response = robot.send("DELETE", f"{DEPARTMENTS}/{made.json()['id']}?dryRun=true")
    assert (response.status_code, response.json()["message"]) == (200, "Dry run: nothing was changed.")
    assert Department.objects.filter(name="kept").exists()


def test_a_refused_retry_and_a_refused_dry_run_are_recorded_as_any_refusal(
    member: Robot, submitted: Callable[..., str]
) -> None:
    workload = submitted()
    member.send("DELETE", f"v2/workloads/{workload}?dryRun=true")
    body = {"ids": [workload], "action": "delete"}
    member.send("POST", "v1/workloads/batch", body, **{"Idempotency-Key": "one"})
    assert AuditRecord.objects.filter(action="workload.delete", result="Denied").count() == 2
