"""Workload types that are withdrawn and offered again: what the routes answer, and what every door refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from portal.audit.models import AuditRecord
from tests.support.rest_clients import Robot
from workloads.dictionary.models import Category, Priority, WorkloadType
from workloads.state.models import Workload

TYPES = "v1/workload-types"
Submitted = Callable[..., str]


def names(robot: Robot, query: str = "") -> set[str]:
    return {each["name"] for each in robot.get(f"{TYPES}{query}").json()["types"]}


def withdraw(robot: Robot, name: str) -> None:
    row = WorkloadType.objects.get(name=name)
    assert robot.send("DELETE", f"{TYPES}/{row.pk}").status_code == 204


def offered(name: str = "PyTorchJob", group: str = "kubeflow.org", **other: Any) -> dict[str, Any]:
    """The body that offers a type again."""
    category, priority = Category.objects.get(name="Train"), Priority.objects.get(name="medium")
    return {"name": name, "group": group, "categoryId": str(category.pk), "priorityId": str(priority.pk), **other}


def refusal(answer: Any) -> tuple[int, str, str]:
    problem = answer.json()["errors"][0]
    return answer.status_code, problem["code"], problem["pointer"]


def test_a_withdrawn_type_leaves_the_lists_and_what_there_is_of_it_stays_readable(
    robot: Robot, submitted: Submitted
) -> None:
    key = submitted()
    row = WorkloadType.objects.get(name="PyTorchJob")
    withdraw(robot, "PyTorchJob")
    assert "PyTorchJob" not in names(robot)
    assert names(robot, "?withdrawn=true") == {"PyTorchJob"}
    assert [robot.send(verb, f"{TYPES}/{row.pk}").status_code for verb in ("GET", "PUT", "DELETE")] == [404] * 3
    assert robot.get(f"v1/workloads/{key}").json()["type"] == "PyTorchJob"
    assert Workload.objects.get(pk=key).desired_phase != "Deleted"


def manifest(robot: Robot) -> dict[str, Any]:
    """A submission of one PyTorchJob."""
    project = robot.get("v1/org-unit/projects").json()["projects"][0]
    container = {"name": "pytorch", "image": "docker.io/a/b:1"}
    spec = {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [container]}}}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}, "spec": spec}
    return {"metadata": {"projectId": project["id"]}, "manifest": job}


def test_a_manifest_of_a_withdrawn_type_is_refused_at_its_kind(robot: Robot) -> None:
    withdraw(robot, "PyTorchJob")
    assert refusal(robot.send("POST", "v2/workloads", manifest(robot))) == (422, "type_withdrawn", "/kind")
    assert not Workload.objects.exists()
    denied = AuditRecord.objects.get(action="workload.submit")
    assert (denied.result, denied.detail["problems"][0]["code"]) == ("Denied", "type_withdrawn")


def test_the_same_key_replays_what_was_submitted_before_the_withdrawal(robot: Robot) -> None:
    body, key = manifest(robot), {"Idempotency-Key": "k1"}
    first = robot.send("POST", "v2/workloads", body, **key).json()
    withdraw(robot, "PyTorchJob")
    assert robot.send("POST", "v2/workloads", body, **key).json() == first


def test_a_native_workload_of_a_withdrawn_type_is_refused(robot: Robot) -> None:
    withdraw(robot, "Training")
    project = robot.get("v1/org-unit/projects").json()["projects"][0]
    spec = {"image": "docker.io/a/b:1"}
    body = {"name": "t", "projectId": project["id"], "clusterId": project["clusterId"], "spec": spec}
    assert refusal(robot.send("POST", "v1/workloads/trainings", body)) == (400, "type_withdrawn", "/spec")


def test_it_is_offered_again_with_the_given_defaults(robot: Robot, submitted: Submitted) -> None:
    withdraw(robot, "PyTorchJob")
    answer = robot.send("POST", TYPES, offered(preemptibility="non-preemptible", resourceInterfaces=[]))
    assert answer.status_code == 201
    told = answer.json()
    assert (told["categoryName"], told["priorityName"], told["preemptibility"]) == (
        "Train",
        "medium",
        "non-preemptible",
    )
    assert "PyTorchJob" in names(robot)
    assert Workload.objects.get(pk=submitted()).priority.name == "medium"
    told_as = [each.action for each in AuditRecord.objects.filter(entity_type="workloadtype").order_by("pk")]
    assert told_as == ["workload_type.withdraw", "workload_type.offer"]


def test_without_a_preemptibility_it_has_the_one_it_had(robot: Robot) -> None:
    had = WorkloadType.objects.get(name="PyTorchJob").preemptibility
    withdraw(robot, "PyTorchJob")
    assert robot.send("POST", TYPES, offered()).json()["preemptibility"] == had


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        pytest.param({}, (409, "type_offered", "/name"), id="offered"),
        pytest.param({"name": "SlurmJob"}, (400, "kind_unreadable", "/name"), id="no kind that Rung reads"),
        pytest.param({"group": "example.org"}, (400, "group_differs", "/group"), id="of another group"),
        pytest.param({"priorityId": None}, (422, "null", "/priorityId"), id="T52 no priority"),
        pytest.param({"name": "x" * 64}, (422, "max_length", "/name"), id="T52 too long"),
        pytest.param({"unknown": 1}, (422, "unknown_field", "/unknown"), id="T52 unknown field"),
    ],
)
def test_what_is_not_withdrawn_is_not_offered(robot: Robot, body: dict[str, Any], answer: tuple[int, str, str]) -> None:
    assert refusal(robot.send("POST", TYPES, offered(**body))) == answer
    assert WorkloadType.objects.get(name="PyTorchJob").priority.name == "low"


def test_the_refusal_of_an_unreadable_kind_says_which_can_be_read(robot: Robot) -> None:
    answer = robot.send("POST", TYPES, offered(name="SlurmJob")).json()
    assert "RayJob" in answer["message"]
    assert "RayJob" in answer["errors"][0]["allowed"]


def test_a_type_with_a_fixed_pair_comes_back_as_it_was_or_not_at_all(robot: Robot) -> None:
    withdraw(robot, "NVCF")
    row = WorkloadType.objects.get(name="NVCF")
    own = {"categoryId": str(row.category_id), "priorityId": str(row.priority_id)}
    assert robot.send("POST", TYPES, offered("NVCF", "run.ai")).status_code == 422
    assert robot.send("POST", TYPES, offered("NVCF", "run.ai", **own)).status_code == 201


def test_a_dry_run_withdraws_nothing_and_the_same_key_offers_once(robot: Robot) -> None:
    row = WorkloadType.objects.get(name="PyTorchJob")
    assert robot.send("DELETE", f"{TYPES}/{row.pk}?dryRun=true").status_code == 200
    assert "PyTorchJob" in names(robot)
    withdraw(robot, "PyTorchJob")
    answers = [robot.send("POST", TYPES, offered(), **{"Idempotency-Key": "k1"}) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    assert AuditRecord.objects.filter(action="workload_type.offer").count() == 1


def test_only_those_who_manage_the_dictionary_do_it(member: Robot) -> None:
    row = WorkloadType.objects.get(name="PyTorchJob")
    assert member.send("DELETE", f"{TYPES}/{row.pk}").status_code == 403
    assert member.send("POST", TYPES, offered()).status_code == 403
    assert WorkloadType.objects.get(name="PyTorchJob").withdrawn_at is None


def test_a_withdrawn_type_keeps_no_priority_in_use(robot: Robot) -> None:
    WorkloadType.objects.exclude(name="PyTorchJob").filter(priority__name="low").update(priority=None)
    Category.objects.filter(priority__name="low").update(priority=Priority.objects.get(name="medium"))
    low = Priority.objects.get(name="low")
    assert robot.send("DELETE", f"v1/workload-priorities/{low.pk}").status_code == 409
    withdraw(robot, "PyTorchJob")
    assert robot.send("DELETE", f"v1/workload-priorities/{low.pk}").status_code == 200
    assert robot.send("POST", TYPES, offered()).status_code == 201
