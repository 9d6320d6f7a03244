"""`POST /api/v1/workloads/…`: native fields become the workload they mean, or are refused where they stand."""

import json
from typing import Any

import pytest

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.support.rest_clients import Robot
from workloads.state.models import Workload

IMAGE = "docker.io/team/train:1"
SPEC: dict[str, Any] = {"image": IMAGE, "compute": {"gpuDevicesRequest": 1}}


def body(project: Project, name: str = "train", *, top: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A submission; what the client always sends is sent."""
    where = {"projectId": str(project.pk), "clusterId": str(project.cluster_id), "useGivenNameAsPrefix": False}
    return {"name": name, **where, "spec": {**SPEC, **spec}, **(top or {})}


def url(kind: str = "trainings") -> str:
    return f"v1/workloads/{kind}"


def submitted(robot: Robot, project: Project, kind: str = "trainings", **spec: Any) -> Workload:
    """The row of what was accepted."""
    response = robot.send("POST", url(kind), body(project, **spec))
    assert response.status_code == 202, response.content
    return Workload.objects.get(pk=response.json()["workloadId"])


def test_a_masters_own_priority_is_shown_as_discarded(robot: Robot, llm_team: Project) -> None:
    requested = body(
        llm_team,
        top={"masterSpec": {**SPEC, "priorityClass": "very-low"}},
        distributedFramework="PyTorch",
        numWorkers=1,
    )
    made = robot.send(
        "POST", url("distributed"), {**requested, "spec": {**requested["spec"], "priorityClass": "low"}}
    ).json()
    assert made["spec"]["priorityClass"] == "low"
    assert [each["value"] for each in made["discarded"]] == ["very-low"]


def test_a_masters_priority_counts_where_the_workers_name_none(robot: Robot, llm_team: Project) -> None:
    top = {"masterSpec": {**SPEC, "priorityClass": "high"}}
    requested = body(llm_team, top=top, distributedFramework="PyTorch", numWorkers=1)
    made = robot.send("POST", url("distributed"), requested).json()
    assert (made["spec"]["priorityClass"], made["prioritySource"]) == ("high", "pod template")


def test_images_are_answered_with_their_registry(robot: Robot, llm_team: Project) -> None:
    top = {"masterSpec": {**SPEC, "image": "team/lead:1"}}
    requested = body(llm_team, top=top, image="busybox", distributedFramework="PyTorch", numWorkers=1)
    made = robot.send("POST", url("distributed"), requested).json()
    assert made["spec"]["image"] == "docker.io/library/busybox"
    assert made["masterSpec"]["image"] == "docker.io/team/lead:1"
    group = body(llm_team, "group") | {"spec": {"leader": {"image": "busybox"}, "worker": {"image": "a/b:1"}}}
    served = robot.send("POST", url("distributed-inferences"), group).json()["spec"]
    assert served["leader"]["image"] == "docker.io/library/busybox"
    assert served["worker"]["image"] == "docker.io/a/b:1"


def test_t38_the_field_beats_the_label_and_the_answer_shows_both(robot: Robot, llm_team: Project) -> None:
    labels = [{"name": "priorityClassName", "value": "very-high"}]
    made = robot.send("POST", url(), body(llm_team, priorityClass="medium", labels=labels)).json()
    assert (made["spec"]["priorityClass"], made["prioritySource"]) == ("medium", "explicit")
    assert made["discarded"][0]["value"] == "very-high"


def test_the_effective_values_of_a_type_are_answered_where_nothing_was_asked(robot: Robot, llm_team: Project) -> None:
    made = robot.send("POST", url("workspaces"), body(llm_team)).json()
    told = {name: made["spec"][name] for name in ("priorityClass", "preemptibility", "category", "nodePools")}
    assert told == {
        "priorityClass": "high",
        "preemptibility": "non-preemptible",
        "category": "Build",
        "nodePools": ["h100"],
    }
    assert made["prioritySource"] == "type"


def test_what_has_no_effect_is_kept_and_said(robot: Robot, llm_team: Project) -> None:
    urls = [{"container": 8080, "url": "https://own.example/x", "authorizationType": "public"}]
    made = robot.send("POST", url("workspaces"), body(llm_team, exposedUrls=urls, createHomeDir=True)).json()
    assert made["spec"]["exposedUrls"] == urls
    assert any("External addresses are not supported" in each["message"] for each in made["warnings"])


def test_a_name_may_be_a_prefix(robot: Robot, llm_team: Project) -> None:
    made = robot.send("POST", url(), body(llm_team, top={"useGivenNameAsPrefix": True})).json()
    assert made["name"].startswith("train-")
    assert made["requestedName"] == "train"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "t05 name": ({"name": "../kube-system"}, "/name"),
    "t10 host path": ({"spec": {**SPEC, "storage": {"hostPath": [{"path": "/"}]}}}, "/spec/storage/hostPath"),
    "t18 leading pod": (
        {"masterSpec": {**SPEC, "security": {"hostNetwork": True}}},
        "/masterSpec/security/hostNetwork",
    ),
    "t24 unknown field": ({"spec": {**SPEC, "hostNetwork": True}}, "/spec/hostNetwork"),
    "t35 system class": ({"spec": {**SPEC, "priorityClass": "system-node-critical"}}, "/spec/priorityClass"),
    "t37 case": ({"spec": {**SPEC, "priorityClass": "High"}}, "/spec/priorityClass"),
    "pool": ({"spec": {**SPEC, "nodePools": ["h100", "moon"]}}, "/spec/nodePools/1"),
    "category": ({"spec": {**SPEC, "category": "Lunch"}}, "/spec/category"),
    "template": ({"templateId": "9f55255e-11ed-47c7-acef-fc4054768dbc"}, "/templateId"),
}


@pytest.mark.parametrize(("change", "pointer"), REFUSED.values(), ids=REFUSED)
def test_a_bad_field_is_400_where_it_stands_and_nothing_is_stored(
    robot: Robot, llm_team: Project, change: dict[str, Any], pointer: str
) -> None:
    sent = {**body(llm_team), **change}
    sent["spec"] = {"distributedFramework": "PyTorch", **sent["spec"]}
    response = robot.send("POST", url("distributed"), sent)
    assert response.status_code == 400, response.content
    told = response.json()
    assert [each["pointer"] for each in told["errors"]] == [pointer]
    assert told["complianceIssues"][0]["field"] == pointer[1:].replace("/", ".")
    assert not Workload.objects.exists()


def test_an_unknown_priority_names_those_that_may_be_chosen_in_their_words(robot: Robot, llm_team: Project) -> None:
    told = robot.send("POST", url(), body(llm_team, priorityClass="urgent")).json()
    (issue,) = told["complianceIssues"]
    assert (issue["field"], issue["rule"]) == ("spec.priorityClass", "options")
    assert "very-low" in told["errors"][0]["allowed"]
    assert AuditRecord.objects.filter(result="Denied", action="workload.submit").count() == 1


def test_t39_more_non_preemptible_than_can_ever_be_deserved_tells_the_numbers(robot: Robot, llm_team: Project) -> None:
    response = robot.send("POST", url("workspaces"), body(llm_team, compute={"gpuDevicesRequest": 60}))
    assert response.status_code == 400
    assert response.json()["errors"][0]["numbers"]


def test_t52_fields_that_are_rungs_are_refused(robot: Robot, llm_team: Project) -> None:
    sent = body(llm_team, top={"createdBy": "root", "workloadId": "1", "desiredPhase": "Running"})
    told = robot.send("POST", url(), sent).json()
    assert {each["pointer"] for each in told["errors"]} == {"/createdBy", "/workloadId", "/desiredPhase"}


def test_another_teams_project_is_as_unknown_as_none(member: Robot, llm_team: Project, vision_team: Project) -> None:
    answers = [
        member.send("POST", url(), {**body(llm_team), "projectId": project})
        for project in (str(vision_team.pk), "999999", "x")
    ]
    assert {each.status_code for each in answers} == {400}
    assert len({each.content for each in answers}) == 1


@pytest.mark.parametrize("sent", ["[]", '"text"', "null", '{"spec": 5}', '{"spec": {"compute": [1]}}'])
def test_a_body_of_another_shape_is_refused(robot: Robot, sent: str) -> None:
    assert robot.send("POST", url(), sent).status_code in {400, 422}


HOSTILE: dict[str, str] = {
    "t26 deep": '{"spec": {"labels": ' + "[" * 800 + "]" * 800 + "}}",
    "t29 twice": '{"spec": {"image": "a", "image": "b"}}',
    "t32 surrogate": '{"spec": {"workingDir": "\\ud800"}}',
    "t32 reordering": '{"spec": {"command": "a \\u202e b"}}',
    "t33 infinity": '{"spec": {"compute": {"gpuPortionRequest": 1e400}}}',
    "t33 nan": '{"spec": {"compute": {"cpuCoreRequest": NaN}}}',
    "t33 digits": '{"spec": {"backoffLimit": ' + "9" * 400 + "}}",
    "t33 many": '{"spec": {' + ",".join(f'"k{number}": 1' for number in range(20_000)) + "}}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_body_is_refused_and_not_broken(robot: Robot, llm_team: Project, text: str) -> None:
    start = json.dumps({**body(llm_team), "spec": None}).replace('"spec": null}', "")
    response = robot.send("POST", url(), start + text[1:])
    assert response.status_code in {400, 413, 422}, response.content
    assert not Workload.objects.exists()


def test_a_name_that_is_taken_is_409_at_the_name(robot: Robot, llm_team: Project) -> None:
    submitted(robot, llm_team)
    response = robot.send("POST", url("workspaces"), body(llm_team))
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (409, "/name")


def test_the_same_key_is_answered_again_and_another_body_refused(robot: Robot, llm_team: Project) -> None:
    key = {"Idempotency-Key": "once"}
    ids = {robot.send("POST", url(), body(llm_team), **key).json()["workloadId"] for _ in range(3)}
    assert len(ids) == Workload.objects.count() == 1
    assert robot.send("POST", url(), body(llm_team, "other"), **key).status_code == 422


def test_it_is_found_below_its_own_kind_only(robot: Robot, llm_team: Project) -> None:
    row = submitted(robot, llm_team)
    statuses = [robot.get(f"{url(kind)}/{row.pk}").status_code for kind in ("trainings", "workspaces", "inferences")]
    assert statuses == [200, 404, 404]


def test_a_share_of_a_gpu_is_refused_at_its_field_where_the_scheduler_shares_none(
    robot: Robot, llm_team: Project
) -> None:
    Cluster.objects.update(flavour="kueue")
    compute = {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}
    response = robot.send("POST", url(), body(llm_team, compute=compute))
    assert response.status_code == 400, response.content
    told = response.json()
    assert "Kueue" in told["message"]
    assert "/spec/compute/gpuPortionRequest" in response.content.decode()
    assert not Workload.objects.exists()
