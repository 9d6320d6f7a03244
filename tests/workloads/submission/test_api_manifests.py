"""`POST /api/v2/workloads`: any kind as a manifest, accepted with its sources or refused at its field."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.support.rest_clients import Robot
from workloads.state.models import Workload
from workloads.submission.views import EXAMPLES, example_text

URL = "v2/workloads"


def job(name: str = "train", gpus: object = 1, **labels: str) -> dict[str, Any]:
    container = {"name": "main", "image": "docker.io/a/b:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}


def body(project: Project, manifest: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"projectId": str(project.pk), **metadata}, "manifest": manifest}


def test_the_answer_says_where_the_values_come_from(robot: Robot, llm_team: Project) -> None:
    response = robot.send("POST", URL, body(llm_team, job(priorityClassName="very-high"), priority="low"))
    assert response.status_code == 202
    told = response.json()["metadata"]
    assert (told["priority"], told["prioritySource"]) == ("low", "explicit")
    assert (told["preemptibility"], told["preemptibilitySource"]) == ("preemptible", "threshold")
    assert told["discarded"][0]["value"] == "very-high"
    assert told["gvk"] == {"group": "batch", "version": "v1", "kind": "Job"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_shipped_examples_are_taken_as_base64(robot: Robot, llm_team: Project, name: str) -> None:
    encoded = base64.b64encode(example_text(name).encode()).decode()
    told = {"metadata": {"projectId": str(llm_team.pk)}, "manifestBase64Encoded": encoded}
    assert robot.send("POST", URL, told).status_code == 202


def test_a_name_beside_the_manifest_wins_and_a_prefix_is_completed(robot: Robot, llm_team: Project) -> None:
    given = robot.send("POST", URL, body(llm_team, job(), name="mine")).json()
    assert given["metadata"]["name"] == "mine"
    prefixed = robot.send("POST", URL, body(llm_team, job(), name="mine", useGivenNameAsPrefix=True)).json()
    assert prefixed["metadata"]["name"].startswith("mine-")


@pytest.mark.parametrize("name", ["t" * 80, "Ünï-code", ""])
def test_a_bad_name_is_refused_once_although_the_manifest_has_it_too(
    robot: Robot, llm_team: Project, name: str
) -> None:
    refused = robot.send("POST", URL, body(llm_team, job(name), name=name))
    assert refused.status_code == 422
    assert [each["pointer"] for each in refused.json()["errors"]] == ["/metadata/name"]


def test_reading_it_back_tells_its_sync(robot: Robot, submitted: Callable[..., str]) -> None:
    told = robot.get(f"{URL}/{submitted()}").json()
    assert told["syncInfo"]["status"] == "Queued"
    assert told["workload"]["workloadManifest"]["kind"] == "PyTorchJob"


def test_what_was_sent_is_read_back_with_its_labels(robot: Robot, llm_team: Project) -> None:
    labels = {"priorityClassName": "low", "kai.scheduler/preemptibility": "preemptible", "team": "a"}
    manifest = {**job(), "metadata": {"name": "plain", "labels": labels}}
    encoded = {**job(), "metadata": {"name": "encoded", "labels": labels}}
    sent = {
        "metadata": {"projectId": str(llm_team.pk)},
        "manifestBase64Encoded": base64.b64encode(json.dumps(encoded).encode()).decode(),
    }
    told = [robot.send("POST", URL, each).json() for each in (body(llm_team, manifest), sent)]
    assert [each["rawManifest"] for each in told] == [manifest, encoded]
    read = robot.get(f"{URL}/{told[1]['metadata']['id']}").json()["workload"]
    assert read["rawManifest"]["metadata"]["labels"] == labels
    assert read["workloadManifest"]["metadata"]["labels"] == {"team": "a"}


def test_the_first_record_of_the_history_is_that_it_is_being_created(robot: Robot, llm_team: Project) -> None:
    made = robot.send("POST", URL, body(llm_team, job())).json()["metadata"]["id"]
    records = robot.get(f"v1/workloads/{made}/history").json()["records"]
    phases = [each["spec"]["phaseUpdate"]["phase"] for each in records if each["meta"]["type"] == "PhaseUpdate"]
    assert phases == ["Creating"]
    assert [each["spec"]["event"]["reason"] for each in records if each["meta"]["type"] == "Event"] == ["Submitted"]


@pytest.mark.parametrize(("sent", "told"), [("train", "Train"), (None, "Build")])
def test_a_category_classifies_and_changes_no_rule(
    robot: Robot, llm_team: Project, sent: str | None, told: str
) -> None:
    made = robot.send("POST", URL, body(llm_team, job(), category=sent)).json()["metadata"]
    assert (made["category"], made["priority"]) == (told, "high")
    listed = robot.get(f"v1/workloads?filterBy=category=={told}").json()["workloads"]
    assert [(each["id"], each["category"]) for each in listed] == [(made["id"], told)]
    assert Workload.objects.get().category == "Build"


def test_an_unknown_category_is_refused_with_the_known_ones(robot: Robot, llm_team: Project) -> None:
    response = robot.send("POST", URL, body(llm_team, job(), category="Lunch"))
    (problem,) = response.json()["errors"]
    assert (response.status_code, problem["pointer"]) == (422, "/metadata/category")
    assert problem["allowed"] == ["Build", "Deploy", "Train"]


def test_in_the_project_of_cloud_functions_priority_is_very_high_and_not_chosen(
    robot: Robot, llm_team: Project
) -> None:
    Project.objects.filter(pk=llm_team.pk).update(namespace="nvcf-backend")
    for requested, pointer in (
        ({"priority": "low"}, "priority"),
        ({"preemptibility": "preemptible"}, "preemptibility"),
    ):
        refused = robot.send("POST", URL, body(llm_team, job(), **requested))
        assert refused.status_code == 422
        (problem,) = refused.json()["errors"]
        assert (problem["code"], problem["pointer"]) == ("priority_fixed", f"/metadata/{pointer}")
    made = robot.send("POST", URL, body(llm_team, job(priorityClassName="low"))).json()["metadata"]
    assert (made["priority"], made["preemptibility"]) == ("very-high", "non-preemptible")
    assert made["discarded"][0]["because"] == "fixed for the project bound to nvcf-backend"
    changed = robot.send("PUT", f"{URL}/{made['id']}", {"metadata": {"priority": "low"}})
    assert (changed.status_code, changed.json()["errors"][0]["code"]) == (422, "priority_fixed")


def test_the_same_key_answers_with_the_same_workload(robot: Robot, llm_team: Project) -> None:
    ids = {
        robot.send("POST", URL, body(llm_team, job()), **{"Idempotency-Key": "once"}).json()["metadata"]["id"]
        for _ in range(3)
    }
    assert len(ids) == 1
    assert Workload.objects.count() == 1


def test_a_replayed_submission_says_so(robot: Robot, llm_team: Project) -> None:
    told = [robot.send("POST", URL, body(llm_team, job()), **{"Idempotency-Key": "once"}) for _ in range(2)]
    assert [each.get("Idempotent-Replayed") for each in told] == [None, "true"]
    assert told[0].json() == told[1].json()


def test_the_same_key_with_another_body_is_refused(robot: Robot, llm_team: Project) -> None:
    robot.send("POST", URL, body(llm_team, job()), **{"Idempotency-Key": "once"})
    response = robot.send("POST", URL, body(llm_team, job("other")), **{"Idempotency-Key": "once"})
    assert response.status_code == 422


@pytest.mark.parametrize("key", ["x" * 201, "a\tb", ""])
def test_t69_an_odd_idempotency_key_is_400(robot: Robot, llm_team: Project, key: str) -> None:
    response = robot.send("POST", URL, body(llm_team, job()), **{"Idempotency-Key": key})
    assert response.status_code == 400


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "t01 namespace": ({"metadata": {"name": "a", "namespace": "kube-system"}}, {}, "/metadata/namespace"),
    "t02 kind": ({"kind": "Secret", "apiVersion": "v1"}, {}, "/kind"),
    "t35 system class": ({}, {"priority": "system-node-critical"}, "/metadata/priority"),
    "t37 unknown priority": ({}, {"priority": "urgent"}, "/metadata/priority"),
    "t37 case": ({}, {"priority": "High"}, "/metadata/priority"),
    "t37 preemptibility": ({}, {"preemptibility": "maybe"}, "/metadata/preemptibility"),
}


@pytest.mark.parametrize(("change", "metadata", "pointer"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_points_stores_nothing_and_is_recorded_once(
    robot: Robot, llm_team: Project, change: dict[str, Any], metadata: dict[str, Any], pointer: str
) -> None:
    before = AuditRecord.objects.filter(result="Denied").count()
    response = robot.send("POST", URL, body(llm_team, {**job(), **change}, **metadata))
    assert response.status_code == 422
    assert pointer in {each["pointer"] for each in response.json()["errors"]}
    assert not Workload.objects.exists()
    assert AuditRecord.objects.filter(result="Denied").count() == before + 1


def test_a_manifest_that_is_wrong_in_many_ways_is_refused_in_one_round(robot: Robot, llm_team: Project) -> None:
    manifest = job(priorityClassName="soon")
    manifest["metadata"]["namespace"] = "kube-system"
    pod = manifest["spec"]["template"]["spec"]
    pod["priorityClassName"] = "urgent"
    pod["containers"] = [{"name": "Main", "image": "evil.example/x:1"}]
    response = robot.send("POST", URL, body(llm_team, manifest, priority="now"))
    assert {(each["pointer"], each["code"]) for each in response.json()["errors"]} == {
        ("/metadata/priority", "priority_unknown"),
        ("/metadata/namespace", "foreign_namespace"),
        ("/metadata/labels/priorityClassName", "priority_unknown"),
        ("/spec/template/spec/priorityClassName", "priority_unknown"),
        ("/spec/template/spec/containers/0/name", "bad_name"),
        ("/spec/template/spec/containers/0/image", "registry_denied"),
    }
    assert "very-high" in response.json()["errors"][0]["allowed"]


def test_the_priority_of_the_pod_template_is_obeyed_and_named_as_the_source(robot: Robot, llm_team: Project) -> None:
    manifest = job()
    manifest["spec"]["template"]["spec"]["priorityClassName"] = "low"
    made = robot.send("POST", URL, body(llm_team, manifest)).json()
    told = made["metadata"]
    assert (told["priority"], told["prioritySource"]) == ("low", "pod template")
    assert (told["preemptibility"], told["preemptibilitySource"]) == ("preemptible", "threshold")
    again = robot.send("PUT", f"{URL}/{told['id']}", {"manifest": manifest})
    assert again.status_code == 202
    manifest["spec"]["template"]["spec"]["priorityClassName"] = "high"
    refused = robot.send("PUT", f"{URL}/{told['id']}", {"manifest": manifest})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/spec/template/spec/priorityClassName"


@pytest.mark.parametrize(
    ("sent", "resolved"),
    [
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("nvidia/cuda:12.4.0-base-ubuntu22.04", "docker.io/nvidia/cuda:12.4.0-base-ubuntu22.04"),
        ("docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/a/b:1", "docker.io/a/b:1"),
        ("nvcr.io/nvidia/pytorch:25.09-py3", "nvcr.io/nvidia/pytorch:25.09-py3"),
    ],
)
def test_an_image_is_answered_as_container_engines_read_it(
    robot: Robot, llm_team: Project, sent: str, resolved: str
) -> None:
    manifest = job()
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = sent
    made = robot.send("POST", URL, body(llm_team, manifest)).json()
    assert made["workloadManifest"]["spec"]["template"]["spec"]["containers"][0]["image"] == resolved
    assert robot.get(f"v1/workloads/{made['metadata']['id']}").json()["images"] == [resolved]


@pytest.mark.parametrize(("sent", "status"), [("busybox", 422), ("team/app:1", 422), ("nvidia/cuda:12", 202)])
def test_t19_the_allow_list_is_asked_about_the_resolved_image(
    robot: Robot, llm_team: Project, settings: Any, sent: str, status: int
) -> None:
    settings.RUNG_IMAGE_REGISTRIES = ["docker.io/nvidia", "docker.io/team/app2"]
    manifest = job()
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = sent
    response = robot.send("POST", URL, body(llm_team, manifest))
    assert response.status_code == status
    if status == 422:
        (problem,) = response.json()["errors"]
        assert (problem["code"], problem["allowed"]) == ("registry_denied", settings.RUNG_IMAGE_REGISTRIES)
        assert "docker.io" in problem["message"]


def test_t39_more_non_preemptible_than_can_ever_be_deserved_is_refused_with_numbers(
    robot: Robot, llm_team: Project
) -> None:
    response = robot.send("POST", URL, body(llm_team, job(gpus=60)))
    assert response.status_code == 422
    assert response.json()["errors"][0]["numbers"]


def test_exactly_one_manifest_is_wanted(robot: Robot, llm_team: Project) -> None:
    both = {**body(llm_team, job()), "manifestBase64Encoded": "e30="}
    neither = {"metadata": {"projectId": str(llm_team.pk)}}
    assert [robot.send("POST", URL, each).status_code for each in (both, neither)] == [400, 400]


def test_a_field_beside_metadata_is_refused_where_it_was_sent(robot: Robot, llm_team: Project) -> None:
    answer = robot.send("POST", URL, body(llm_team, job()) | {"priority": "high"})
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/priority"]


def test_t52_unknown_fields_of_the_body_are_refused(robot: Robot, llm_team: Project) -> None:
    response = robot.send("POST", URL, {**body(llm_team, job()), "created_by": "root", "status": "Running"})
    assert response.status_code == 422
    assert {each["pointer"] for each in response.json()["errors"]} == {"/created_by", "/status"}


def test_another_teams_project_is_as_unknown_as_none(member: Robot, vision_team: Project) -> None:
    answers = [
        member.send("POST", URL, {"metadata": {"projectId": project}, "manifest": job()})
        for project in (str(vision_team.pk), "999999", "x")
    ]
    assert {each.status_code for each in answers} == {422}
    assert len({each.content for each in answers}) == 1


def test_t27_a_large_body_is_413(robot: Robot) -> None:
    assert robot.send("POST", URL, b'{"a": "' + b"x" * 600_000 + b'"}').status_code == 413


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("{", 400),
        ('{"metadata": {}, "metadata": {}}', 422),
        ('{"metadata": NaN}', 422),
        ("\xff", 422),
        ("[" * 5000, 422),
        ('"x"', 422),
        ("[]", 422),
        ("null", 422),
    ],
)
def test_t29_t33_bodies_that_are_no_request(robot: Robot, text: str, status: int) -> None:
    response = robot.send("POST", URL, text.encode("latin-1"))
    assert response.status_code in {status, 400}
    assert response.json()["code"] == response.status_code


def test_a_body_encoded_twice_is_read_once_more(robot: Robot, llm_team: Project) -> None:
    assert robot.send("POST", URL, json.dumps(json.dumps(body(llm_team, job())))).status_code == 202
