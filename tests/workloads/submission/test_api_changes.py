"""What of a submitted workload can be another, and what is refused because its pods run."""

import base64
import json
from typing import Any

import pytest

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.services.roles import create_role
from tenants.organisation.models import Project
from tests.factories.tenants import MembershipFactory
from tests.support.rest_clients import Robot
from tests.workloads.submission.test_api_native import SPEC, body
from workloads.dictionary.models import WorkloadType
from workloads.state.models import Phase, Workload

INFERENCES = "v1/workloads/inferences"
GROUPS = "v1/workloads/distributed-inferences"
NIMS = "v2/workloads/nim-services"


@pytest.fixture
def serving(robot: Robot, llm_team: Project) -> Workload:
    """An inference of one replica, running."""
    made = robot.send("POST", INFERENCES, body(llm_team, "serve", servingPort={"container": 8000})).json()
    Workload.objects.filter(pk=made["workloadId"]).update(phase=Phase.RUNNING)
    return Workload.objects.get(pk=made["workloadId"])


def patch(robot: Robot, workload: Workload, base: str = INFERENCES, **spec: Any) -> Any:
    return robot.send("PATCH", f"{base}/{workload.pk}", {"spec": spec})


def test_replicas_change_under_running_pods_and_are_recorded(robot: Robot, serving: Workload) -> None:
    before = serving.generation
    response = patch(robot, serving, autoscaling={"minReplicas": 3, "maxReplicas": 3})
    assert response.status_code == 202
    assert response.json()["spec"]["autoscaling"]["minReplicas"] == 3
    serving.refresh_from_db()
    assert (serving.pod_count, serving.gpu_milli, serving.generation) == (3, 3000, before + 1)
    assert serving.spec["manifest"]["spec"]["replicas"] == 3
    (row,) = AuditRecord.objects.filter(action="workload.change")
    assert row.detail["after"]["pods"] == 3


def test_another_priority_keeps_the_preemptibility(robot: Robot, serving: Workload) -> None:
    told = patch(robot, serving, priorityClass="low").json()["spec"]
    assert (told["priorityClass"], told["preemptibility"]) == ("low", "non-preemptible")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "docker.io/team/train:2"),
        ("command", "python serve.py"),
        ("compute", {"gpuDevicesRequest": 2}),
        ("environmentVariables", [{"name": "A", "value": "1"}]),
    ],
)
def test_what_describes_running_pods_is_refused_at_its_field(
    robot: Robot, serving: Workload, field: str, value: object
) -> None:
    response = patch(robot, serving, **{field: value})
    assert response.status_code == 422
    assert [(each["pointer"], each["code"]) for each in response.json()["errors"]] == [(f"/spec/{field}", "pods_run")]
    serving.refresh_from_db()
    assert serving.spec["manifest"]["spec"]["template"]["spec"]["containers"][0]["image"] == SPEC["image"]


def test_a_suspended_one_takes_another_image_and_keeps_what_is_not_named(robot: Robot, serving: Workload) -> None:
    Workload.objects.filter(pk=serving.pk).update(phase=Phase.STOPPED, desired_phase="Stopped")
    told = patch(robot, serving, image="docker.io/team/train:2", command="python serve.py").json()
    assert (told["spec"]["image"], told["spec"]["servingPort"]) == ("docker.io/team/train:2", {"container": 8000})
    serving.refresh_from_db()
    (container,) = serving.spec["manifest"]["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("docker.io/team/train:2", ["python", "serve.py"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("preemptibility", "preemptible"), ("nodePools", ["a100"]), ("category", "Build"), ("priorityClass", "urgent")],
)
def test_what_was_chosen_once_is_refused_at_its_field(
    robot: Robot, serving: Workload, field: str, value: object
) -> None:
    response = patch(robot, serving, **{field: value})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, f"/spec/{field}")


def test_equal_values_change_nothing(robot: Robot, serving: Workload) -> None:
    spec = robot.get(f"{INFERENCES}/{serving.pk}").json()["spec"]
    same = {name: spec[name] for name in ("image", "priorityClass", "preemptibility", "category", "nodePools")}
    assert patch(robot, serving, **same).status_code == 202
    generation = serving.generation
    serving.refresh_from_db()
    assert serving.generation == generation


def test_a_field_without_effect_is_kept_and_told_like_any_other_change(robot: Robot, serving: Workload) -> None:
    kept = {"initializationTimeoutSeconds": 60}
    assert patch(robot, serving, servingConfiguration=kept).status_code == 202
    assert robot.get(f"{INFERENCES}/{serving.pk}").json()["spec"]["servingConfiguration"] == kept
    (row,) = AuditRecord.objects.filter(action="workload.change", result="Succeeded")
    assert row.detail["fields"] == ["/spec/servingConfiguration"]
    assert serving.timeline.filter(reason="Changed", actor="platform-robot").count() == 1


def test_nothing_of_what_has_ended_is_changed(robot: Robot, serving: Workload) -> None:
    Workload.objects.filter(pk=serving.pk).update(phase=Phase.FAILED)
    twice = {"minReplicas": 2, "maxReplicas": 2}
    for spec in ({"createHomeDir": True}, {"autoscaling": twice}, {"priorityClass": "low"}):
        response = patch(robot, serving, **spec)
        assert (response.status_code, response.json()["details"]) == (409, "ended")
    assert patch(robot, serving, image=SPEC["image"]).status_code == 202
    generation = serving.generation
    serving.refresh_from_db()
    assert (serving.generation, serving.raw["spec"].get("createHomeDir")) == (generation, None)


def test_what_a_workload_is_grown_to_is_held_against_the_pools_it_is_in(
    robot: Robot, serving: Workload, llm_team: Project
) -> None:
    llm_team.default_node_pools = ["a100"]
    llm_team.save()
    assert patch(robot, serving, autoscaling={"minReplicas": 3, "maxReplicas": 3}).status_code == 202
    serving.refresh_from_db()
    assert (serving.node_pools, serving.spec["node_pools"]) == (["h100"], ["h100"])


def test_more_replicas_than_can_ever_be_deserved_are_refused(robot: Robot, serving: Workload) -> None:
    response = patch(robot, serving, autoscaling={"minReplicas": 60, "maxReplicas": 60})
    assert response.status_code == 422
    assert response.json()["errors"][0]["numbers"]


def test_t52_a_patch_names_fields_that_change_only(robot: Robot, serving: Workload) -> None:
    refused = [patch(robot, serving, **{field: []}).json()["errors"][0]["code"] for field in ("labels", "storage")]
    assert refused == ["unknown_field", "unknown_field"]


@pytest.mark.parametrize("spec", [{"priorityClass": "low"}, {"nodePools": ["a100"]}, {"image": "no registry"}, {}])
def test_somebody_elses_workload_is_not_changed_and_the_try_is_recorded(
    member: Robot, serving: Workload, spec: dict[str, Any]
) -> None:
    assert patch(member, serving, **spec).status_code == 403
    assert refusals() == [("workload.change", "serve", "denied")]


def refusals() -> list[tuple[str, str, str]]:
    """Action, entity and code of what the audit trail has as refused."""
    rows = AuditRecord.objects.filter(result="Denied").order_by("pk")
    return [(row.action, row.entity_name, row.detail["code"]) for row in rows]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"nodePools": ["a100"]}, "fixed"),
        ({"image": "no registry"}, "bad_image"),
        ({"image": "docker.io/team/train:2"}, "pods_run"),
    ],
)
def test_a_refused_change_is_recorded_once_as_a_change(
    robot: Robot, serving: Workload, spec: dict[str, Any], code: str
) -> None:
    assert patch(robot, serving, **spec).status_code == 422
    assert refusals() == [("workload.change", "serve", code)]


@pytest.fixture
def manager(llm_team: Project) -> Robot:
    """May change anybody's workloads in llm-team, and submit none."""
    robot = Robot("manager")
    role = create_role(name="Manager", permission_sets=["manage-workloads"], actor=SYSTEM)
    MembershipFactory.create(user=None, service_account=robot.account, project=llm_team, role=role)
    return robot


def test_whoever_manages_workloads_changes_them_without_submitting_any(
    robot: Robot, manager: Robot, serving: Workload, web: str, llm_team: Project
) -> None:
    twice = {"minReplicas": 2, "maxReplicas": 2}
    assert patch(manager, serving, autoscaling=twice, priorityClass="low").status_code == 202
    assert manager.send("PUT", web, {"manifest": job(2)}).status_code == 202
    sent = {"metadata": {"name": "nim", "projectId": str(llm_team.pk)}, "spec": {**SPEC, "replicas": 1}}
    nim = Workload.objects.get(pk=robot.send("POST", NIMS, sent).json()["metadata"]["id"])
    assert patch(manager, nim, autoscaling=twice).status_code == 202
    assert patch(manager, nim, NIMS, replicas=1).status_code == 202
    assert manager.send("POST", INFERENCES, body(llm_team, "own")).status_code == 403
    assert refusals() == [("workload.submit", "", "denied")]


def test_a_name_that_was_completed_does_not_hinder_it(robot: Robot, llm_team: Project) -> None:
    made = robot.send("POST", INFERENCES, body(llm_team, "serve", top={"useGivenNameAsPrefix": True})).json()
    row = Workload.objects.get(pk=made["workloadId"])
    assert patch(robot, row, autoscaling={"minReplicas": 2, "maxReplicas": 2}).status_code == 202
    row.refresh_from_db()
    assert (row.pod_count, row.spec["name"]) == (2, row.name)


def test_what_came_as_another_kind_is_scaled_and_nothing_else(robot: Robot, llm_team: Project) -> None:
    sent = {"metadata": {"name": "nim", "projectId": str(llm_team.pk)}, "spec": {**SPEC, "replicas": 1}}
    row = Workload.objects.get(pk=robot.send("POST", NIMS, sent).json()["metadata"]["id"])
    assert patch(robot, row, autoscaling={"minReplicas": 2, "maxReplicas": 2}).status_code == 202
    row.refresh_from_db()
    assert (row.pod_count, row.spec["type_name"]) == (2, "NIMInference")
    assert robot.get(f"{NIMS}/{row.pk}").json()["spec"]["replicas"] == 2
    Workload.objects.filter(pk=row.pk).update(phase=Phase.STOPPED, desired_phase="Stopped")
    assert patch(robot, row, NIMS, image="docker.io/team/train:2").status_code == 202
    row.refresh_from_db()
    assert row.pod_count == 2
    response = patch(robot, row, command="python", autoscaling={"minReplicas": 1, "maxReplicas": 2})
    assert {each["pointer"] for each in response.json()["errors"]} == {"/spec/command", "/spec/autoscaling/maxReplicas"}


def test_a_group_is_scaled(robot: Robot, llm_team: Project) -> None:
    spec = {"leader": SPEC, "worker": SPEC, "workers": 1, "replicas": 1, "priorityClass": "low"}
    made = robot.send("POST", GROUPS, {**body(llm_team, "group"), "spec": spec}).json()
    row = Workload.objects.get(pk=made["workloadId"])
    assert patch(robot, row, GROUPS, replicas=2).json()["spec"]["replicas"] == 2
    row.refresh_from_db()
    assert row.pod_count == 4


def test_a_nim_service_is_submitted_and_scaled(robot: Robot, llm_team: Project) -> None:
    sent = {"metadata": {"name": "nim", "projectId": str(llm_team.pk)}, "spec": {**SPEC, "replicas": 1}}
    made = robot.send("POST", NIMS, sent)
    assert made.status_code == 202, made.content
    row = Workload.objects.select_related("type").get(pk=made.json()["metadata"]["id"])
    assert row.type.name == "NIMInference"
    assert patch(robot, row, NIMS, replicas=2).json()["spec"]["replicas"] == 2
    assert robot.get(f"{NIMS}/{row.pk}").json()["metadata"]["priority"] == "very-high"


def test_replicas_are_said_again_in_either_of_their_two_ways(robot: Robot, llm_team: Project) -> None:
    spec = {**SPEC, "autoscaling": {"minReplicas": 1, "maxReplicas": 1}}
    sent = {"metadata": {"name": "nim", "projectId": str(llm_team.pk)}, "spec": spec}
    row = Workload.objects.get(pk=robot.send("POST", NIMS, sent).json()["metadata"]["id"])
    assert patch(robot, row, NIMS, replicas=2).status_code == 202
    row.refresh_from_db()
    assert row.pod_count == 2
    assert "autoscaling" not in robot.get(f"{NIMS}/{row.pk}").json()["spec"]


def job(pods: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "docker.io/a/b:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], "restartPolicy": "Always"}}
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


@pytest.fixture
def web(robot: Robot, llm_team: Project) -> str:
    """The address of a submitted Deployment."""
    made = robot.send("POST", "v2/workloads", {"metadata": {"projectId": str(llm_team.pk)}, "manifest": job()}).json()
    return f"v2/workloads/{made['metadata']['id']}"


@pytest.mark.parametrize("fixed", [False, True])
def test_a_priority_that_cannot_be_is_refused_at_its_field(robot: Robot, web: str, fixed: bool) -> None:
    WorkloadType.objects.filter(name="Deployment").update(fixed=fixed)
    response = robot.send("PUT", web, {"metadata": {"priority": "low" if fixed else "urgent"}})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/metadata/priority")


def test_put_changes_priority_and_replicas_and_nothing_that_describes_pods(robot: Robot, web: str) -> None:
    told = robot.send("PUT", web, {"metadata": {"priority": "low", "category": "Deploy"}, "manifest": job(2)})
    assert told.status_code == 202, told.content
    assert told.json()["metadata"]["priority"] == "low"
    assert told.json()["workloadManifest"]["spec"]["replicas"] == 2
    other = job(2)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "docker.io/a/b:2"
    response = robot.send("PUT", web, {"manifest": other})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/manifest")


def test_what_was_sent_last_is_answered_in_whichever_way_it_came(robot: Robot, web: str) -> None:
    assert robot.send("PUT", web, {"manifest": job(2)}).json()["rawManifest"]["spec"]["replicas"] == 2
    text = base64.b64encode(json.dumps(job(3)).encode()).decode()
    assert robot.send("PUT", web, {"manifestBase64Encoded": text}).status_code == 202
    assert robot.get(web).json()["workload"]["rawManifest"]["spec"]["replicas"] == 3


def test_other_pools_are_refused_also_while_it_is_suspended(robot: Robot, web: str) -> None:
    Workload.objects.update(phase=Phase.STOPPED, desired_phase="Stopped")
    moved = {**job(2), "metadata": {"name": "web", "annotations": {"rung.dev/node-pools": "a100"}}}
    response = robot.send("PUT", web, {"manifest": moved})
    (problem,) = response.json()["errors"]
    assert (problem["pointer"], problem["code"], problem["allowed"]) == ("/nodePools", "fixed", ["h100"])
    moved["metadata"]["annotations"]["rung.dev/node-pools"] = "h100"
    assert robot.send("PUT", web, {"manifest": moved}).status_code == 202


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"metadata": {"category": "Build"}}, "fixed"),
        ({"manifest": {**job(), "kind": "Secret"}}, "kind_not_allowed"),
        ({"manifest": {**job(), "metadata": {"name": "web", "labels": {"priorityClassName": "low"}}}}, "fixed"),
    ],
)
def test_a_refused_put_is_recorded_once_as_a_change(robot: Robot, web: str, sent: dict[str, Any], code: str) -> None:
    assert robot.send("PUT", web, sent).status_code == 422
    assert refusals() == [("workload.change", "web", code)]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"metadata": {"category": "Build"}}, 422),
        ({"metadata": {"preemptibility": "preemptible"}}, 422),
        ({"metadata": {"priority": "urgent"}}, 422),
        ({"manifest": job(), "manifestBase64Encoded": "e30="}, 400),
        ({"manifest": {**job(), "kind": "StatefulSet"}}, 422),
        ({"manifestBase64Encoded": "not base64"}, 400),
    ],
)
def test_a_bad_put_is_refused(robot: Robot, web: str, sent: dict[str, Any], status: int) -> None:
    assert robot.send("PUT", web, sent).status_code == status
