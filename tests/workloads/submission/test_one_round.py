"""A submission that is wrong in several ways is refused once, with all of them."""

from typing import Any

import pytest

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.support.rest_clients import Robot
from workloads.state.models import Workload

pytestmark = pytest.mark.django_db
TRAININGS = "v1/workloads/trainings"


def pointers(answer: Any) -> list[str]:
    """The refused fields of a native answer."""
    told = answer.json()
    assert answer.status_code == 400, told
    return [each["pointer"] for each in told["errors"]]


@pytest.fixture
def strict(robot: Robot, llm_team: Project) -> Project:
    """Its trainings must be preemptible."""
    rules = {"preemptibility": {"options": [{"value": "preemptible"}]}}
    meta = {"scope": "project", "projectId": llm_team.pk, "name": "strict"}
    answer = robot.send("PUT", "v2/policy/trainings", {"meta": meta, "policy": {"rules": rules}})
    assert answer.status_code == 200, answer.content
    return llm_team


def body(project: Project, **change: Any) -> dict[str, Any]:
    spec = {
        "image": "Not An Image",
        "security": {"hostNetwork": True},
        "preemptibility": "non-preemptible",
        "priorityClass": "low",
        **change.pop("spec", {}),
    }
    return {"name": "train", "projectId": str(project.pk), "spec": spec, **change}


def test_a_native_body_with_an_error_of_every_stage_is_refused_once(robot: Robot, strict: Project) -> None:
    sent = body(strict, name="Not_A_Name", createdBy="root", spec={"imagePullPolicy": "Often", "gpu": 1})
    answer = robot.send("POST", TRAININGS, sent)
    found = pointers(answer)
    assert [each["field"] for each in answer.json()["complianceIssues"]] == [
        each[1:].replace("/", ".") for each in found
    ]
    assert set(found) == {
        "/name",
        "/createdBy",
        "/spec/gpu",
        "/spec/image",
        "/spec/imagePullPolicy",
        "/spec/security/hostNetwork",
        "/spec/preemptibility",
    }
    assert len(found) == 7
    assert not Workload.objects.exists()
    assert AuditRecord.objects.filter(result="Denied", action="workload.submit").count() == 1


def test_a_policy_speaks_beside_a_refused_container_and_an_unknown_priority_only_once(
    robot: Robot, strict: Project
) -> None:
    found = pointers(robot.send("POST", TRAININGS, body(strict)))
    assert found == ["/spec/image", "/spec/security/hostNetwork", "/spec/preemptibility"]
    unknown = pointers(robot.send("POST", TRAININGS, body(strict, spec={"priorityClass": "urgent"})))
    assert unknown.count("/spec/priorityClass") == 1
    assert "/spec/image" in unknown
    labels = [{"name": "kai.scheduler/preemptibility", "value": "preemptible"}]
    wished = body(strict, spec={"labels": labels, "preemptibility": None})
    assert "/spec/preemptibility" not in pointers(robot.send("POST", TRAININGS, wished))


def test_pool_policy_and_kind_are_refused_together_and_as_the_first_of_them(robot: Robot, strict: Project) -> None:
    Cluster.objects.update(served_kinds=["v1 Pod"])
    sent = body(strict, spec={"image": "docker.io/a/b:1", "security": {}, "nodePools": ["moon"]})
    answer = robot.send("POST", TRAININGS, sent)
    assert {"/spec/preemptibility", "/spec/nodePools/0"} <= set(pointers(answer))
    assert any("does not serve" in each["message"] for each in answer.json()["errors"])
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": {"rung.dev/node-pools": "moon"}},
        "spec": {
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "docker.io/a/b:1"}]}
            }
        },
    }
    answer = robot.send("POST", "v2/workloads", {"metadata": {"projectId": str(strict.pk)}, "manifest": manifest})
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/kind", "/nodePools/0"]


def test_a_body_whose_project_is_unknown_says_nothing_of_what_holds_there(
    member: Robot, strict: Project, vision_team: Project
) -> None:
    sent = body(vision_team, name="Not_A_Name")
    assert pointers(member.send("POST", TRAININGS, sent)) == ["/name", "/projectId"]
