"""Policies over REST: what is refused, dry runs, and what a native submission hears of them."""

from typing import Any
from uuid import uuid4

import pytest

from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.factories.workloads import PolicyFactory
from tests.support.rest_clients import Robot
from workloads.policies.models import Policy
from workloads.state.models import Workload

PATH = "v2/policy/trainings"
HOUSE = {"scope": "tenant", "name": "house rules"}
LOW = {"rules": {"priorityClass": {"options": [{"value": "low"}]}}}


def native(project: Project, **spec: Any) -> dict[str, Any]:
    """A training as Run:ai's clients send it."""
    body = {"image": "docker.io/a/b:1", "compute": {"gpuDevicesRequest": 1}, **spec}
    cluster = str(project.cluster_id)
    return {"name": "train", "projectId": str(project.pk), "clusterId": cluster, "spec": body}


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"policy": {}}, 422, "/meta"),
        ({"meta": HOUSE}, 422, "/policy"),
        ({"meta": {"scope": "system", "name": "a"}, "policy": {}}, 422, "/meta/scope"),
        ({"meta": {"scope": "project", "name": "a"}, "policy": {}}, 400, "/meta/projectId"),
        ({"meta": {"scope": "project", "name": "a", "projectId": 10**18}, "policy": {}}, 422, "/meta/projectId"),
        ({"meta": {"scope": "project", "name": "a", "projectId": 999999}, "policy": {}}, 422, "/meta/projectId"),
        ({"meta": {"scope": "department", "name": "a", "departmentId": "x"}, "policy": {}}, 422, "/meta/departmentId"),
        ({"meta": {"scope": "cluster", "name": "a", "clusterId": str(uuid4())}, "policy": {}}, 422, "/meta/clusterId"),
        ({"meta": {"scope": "cluster", "name": "a", "clusterId": "no"}, "policy": {}}, 422, "/meta/clusterId"),
        ({"meta": {"scope": "tenant"}, "policy": {}}, 422, "/meta/name"),
        ({"meta": {**HOUSE, "createdBy": "me"}, "policy": {}}, 422, "/meta/createdBy"),
        ({"meta": {**HOUSE, "id": str(uuid4())}, "policy": {}}, 422, "/meta/id"),
        ({"meta": HOUSE, "policy": {}, "effective": {}}, 422, "/effective"),
        ({"meta": HOUSE, "policy": []}, 422, "/policy"),
        ({"meta": HOUSE, "policy": {"defaults": {"priorityClass": 40}}}, 422, "/policy/defaults/priorityClass"),
        ({"meta": HOUSE, "policy": {"rules": {"image": {"canEdit": False}}}}, 422, "/policy/rules/image"),
    ],
)
def test_t52_a_bad_policy_is_refused_at_its_field_and_nothing_is_kept(
    robot: Robot, body: dict[str, Any], status: int, pointer: str
) -> None:
    answer = robot.send("PUT", PATH, body)
    assert answer.status_code == status, answer.content
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert not Policy.objects.exists()


@pytest.mark.parametrize(
    ("method", "query", "status"),
    [
        ("GET", "", 400),
        ("GET", "?scope=galaxy", 400),
        ("GET", "?scope=project", 400),
        ("GET", "?scope=project&projectId=999999", 404),
        ("GET", "?scope=project&projectId=1%20or%201", 404),
        ("GET", "?scope=cluster&clusterId=..", 404),
        ("GET", "?scope=tenant", 404),
        ("DELETE", "?scope=tenant", 404),
        ("DELETE", "?scope=department", 400),
    ],
)
def test_t68_what_is_not_named_or_not_there(robot: Robot, method: str, query: str, status: int) -> None:
    assert robot.send(method, f"{PATH}{query}").status_code == status


def test_an_unknown_kind_is_404(robot: Robot) -> None:
    assert robot.get("v2/policy/templates?scope=tenant").status_code == 404


def test_a_change_of_nothing_that_is_there_is_404(robot: Robot) -> None:
    assert robot.send("PATCH", PATH, {"meta": HOUSE, "policy": LOW}).status_code == 404


@pytest.mark.parametrize("parameter", ["validateOnly", "dryRun"])
def test_checks_and_dry_runs_answer_what_it_would_be(robot: Robot, parameter: str) -> None:
    row = PolicyFactory()
    for method in ("PUT", "PATCH"):
        answer = robot.send(method, f"{PATH}?{parameter}=true", {"meta": HOUSE, "policy": LOW})
        assert answer.status_code == 200
        assert answer.json()["policy"]["rules"] == LOW["rules"]
    row.refresh_from_db()
    assert row.document == {"defaults": {"priorityClass": "low"}}
    assert not AuditRecord.objects.filter(action="policy.set", result="Succeeded").exists()


def test_a_check_that_is_refused_leaves_its_record(robot: Robot) -> None:
    body = {"meta": HOUSE, "policy": {"defaults": {"priorityClass": "urgent"}}}
    assert robot.send("PUT", f"{PATH}?validateOnly=true", body).status_code == 422
    assert AuditRecord.objects.get(action="policy.set").result == "Denied"


def test_a_native_submission_hears_which_rules_it_breaks(member: Robot, llm_team: Project) -> None:
    rules = {"priorityClass": LOW["rules"]["priorityClass"], "preemptibility": {"required": True}}
    PolicyFactory(scope="project", project=llm_team, document={"rules": rules})
    answer = member.send("POST", "v1/workloads/trainings", native(llm_team, priorityClass="high"))
    assert answer.status_code == 400
    body = answer.json()
    assert [(each["field"], each["rule"]) for each in body["complianceIssues"]] == [
        ("spec.priorityClass", "options"),
        ("spec.preemptibility", "required"),
    ]
    assert [each["pointer"] for each in body["errors"]] == ["/spec/priorityClass", "/spec/preemptibility"]
    assert "project llm-team" in body["complianceIssues"][0]["details"]
    assert not Workload.objects.exists()


def test_a_change_hears_which_rule_it_breaks_at_its_field(robot: Robot, llm_team: Project) -> None:
    made = robot.send("POST", "v1/workloads/inferences", native(llm_team, priorityClass="low"))
    PolicyFactory(kind="inference", document=LOW)
    path = f"v1/workloads/inferences/{made.json()['workloadId']}"
    answer = robot.send("PATCH", path, {"spec": {"priorityClass": "high"}})
    assert answer.status_code == 400
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/spec/priorityClass"]
    assert answer.json()["complianceIssues"][0]["field"] == "spec.priorityClass"


def test_a_native_submission_is_filled_by_the_nearest_default(member: Robot, llm_team: Project) -> None:
    PolicyFactory(document={"defaults": {"priorityClass": "medium"}})
    answer = member.send("POST", "v1/workloads/trainings", native(llm_team))
    assert answer.status_code == 202, answer.content
    workload = Workload.objects.get()
    assert (workload.priority.name, workload.priority_source) == ("medium", "policy")


def test_a_dry_run_of_a_native_submission_is_refused_alike(member: Robot, llm_team: Project) -> None:
    PolicyFactory(document=LOW)
    answer = member.send("POST", "v1/workloads/trainings?dryRun=true", native(llm_team, priorityClass="high"))
    assert answer.status_code == 400
    assert answer.json()["complianceIssues"][0]["rule"] == "options"


def test_a_manifest_is_exempt(submitted: Any) -> None:
    PolicyFactory(kind="training", document={"rules": {"priorityClass": {"options": [{"value": "very-high"}]}}})
    PolicyFactory(kind="distributed", document={"rules": {"worker": {"preemptibility": {"required": True}}}})
    assert submitted("free")
