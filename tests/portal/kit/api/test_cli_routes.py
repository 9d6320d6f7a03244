"""What REST offers beyond Run:ai for people at a terminal: who am I, explain, clone, the end of a log."""

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.utils import timezone

from clusters.inventory.models import Cluster, Node
from portal.audit.models import AuditRecord
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.support.rest_clients import Robot
from workloads.state.models import Workload

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata:
  name: sweep
  labels: {priorityClassName: low}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: docker.io/a/b:1, resources: {limits: {nvidia.com/gpu: 2}}}
"""


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def requested(project: Project, text: str = MANIFEST, **metadata: str) -> dict[str, Any]:
    """The body of an explanation or a submission."""
    return {"metadata": {"projectId": str(project.pk), **metadata}, "manifestBase64Encoded": encoded(text)}


def test_everybody_reads_who_they_are(robot: Robot, member: Robot, llm_team: Project) -> None:
    assert robot.get("v1/whoami").json()["roles"] == [
        {"role": "platform-admin", "scopeType": "system", "scopeId": "", "scopeName": ""}
    ]
    body = member.get("v1/whoami").json()
    assert (body["name"], body["kind"], body["narrowed"]) == ("member-robot", "service-account", None)
    assert body["roles"] == [
        {"role": "member", "scopeType": "project", "scopeId": str(llm_team.pk), "scopeName": "llm-team"}
    ]


def test_an_explanation_names_the_source_of_each_value_and_stores_nothing(member: Robot, llm_team: Project) -> None:
    answer = member.send("POST", "v2/workloads/explain", requested(llm_team, priority="high"))
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["priority"] == {"value": "high", "number": 125, "source": "explicit"}
    assert body["preemptibility"] == {"value": "non-preemptible", "source": "threshold"}
    assert [(each["value"], each["because"]) for each in body["discarded"]] == [
        ("low", "the explicit value high applies")
    ]
    assert body["requested"]["gpus"] == 2
    assert (body["forecast"]["verdict"], body["forecast"]["nodePool"]) == ("starts", "h100")
    assert not Workload.objects.exists()


def test_a_forecast_says_what_the_configuration_of_its_scheduler_lacks(
    member: Robot, llm_team: Project, vision_team: Project
) -> None:
    holder = WorkloadFactory(project=vision_team)
    for node in Node.objects.all():
        ObservedPodFactory(workload=holder, node_name=node.name, gpu_milli=node.gpu_milli, preemptible=False)
    Cluster.objects.update(flavour="volcano", configured={"actions": ["allocate", "preempt"], "plugins": {}})
    without = member.send("POST", "v2/workloads/explain", requested(llm_team)).json()["forecast"]
    assert without["verdict"] == "waits"
    assert any("lacks the action reclaim" in each for each in without["cautions"])
    Cluster.objects.update(configured={})
    unread = member.send("POST", "v2/workloads/explain", requested(llm_team)).json()["forecast"]
    assert any("Volcano's configuration cannot be read" in each for each in unread["cautions"])


def test_what_would_be_refused_is_refused_with_its_line_and_leaves_no_record(member: Robot, llm_team: Project) -> None:
    broken = MANIFEST.replace("restartPolicy: Never", "hostNetwork: true")
    answer = member.send("POST", "v2/workloads/explain", requested(llm_team, broken))
    assert answer.status_code == 422
    pointers = {each["pointer"]: each.get("line") for each in answer.json()["errors"]}
    assert pointers["/spec/template/spec/hostNetwork"] == 10
    assert not AuditRecord.objects.filter(action="workload.submit").exists()


@pytest.mark.parametrize(
    ("change", "status", "pointer"),
    [
        ({"manifestBase64Encoded": "%%%"}, 400, "/manifestBase64Encoded"),
        ({"manifest": {"kind": "Job"}}, 400, "/manifest"),
        (
            {"manifestBase64Encoded": encoded(f"{MANIFEST}\n---{MANIFEST.replace('sweep', 'other')}")},
            422,
            "/manifestBase64Encoded",
        ),
        ({"surplus": 1}, 422, "/surplus"),
    ],
)
def test_one_manifest_is_explained_at_a_time(
    member: Robot, llm_team: Project, change: dict[str, Any], status: int, pointer: str
) -> None:
    answer = member.send("POST", "v2/workloads/explain", requested(llm_team) | change)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (status, pointer)


@pytest.mark.parametrize("path", ["v2/workloads", "v2/workloads/explain"])
@pytest.mark.parametrize(
    ("field", "value"), [("clusterId", "11111111-1111-4111-8111-111111111111"), ("category", "Lunch")]
)
def test_what_submission_refuses_beside_the_manifest_explanation_refuses_too(
    member: Robot, llm_team: Project, path: str, field: str, value: str
) -> None:
    answer = member.send("POST", path, requested(llm_team, **{field: value}))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, f"/metadata/{field}")


@pytest.mark.parametrize("manifest", ["manifest", "manifestBase64Encoded"])
def test_a_name_beside_the_manifest_is_name_enough(member: Robot, llm_team: Project, manifest: str) -> None:
    text = MANIFEST.replace("  name: sweep\n", "")
    given = {"manifest": yaml.safe_load(text), "manifestBase64Encoded": encoded(text)}[manifest]
    metadata = {"projectId": str(llm_team.pk), "name": "mine", "useGivenNameAsPrefix": True}
    body = {"metadata": metadata, manifest: given}
    assert member.send("POST", "v2/workloads/explain", body).json()["name"] == "mine"
    made = member.send("POST", "v2/workloads", body)
    assert made.status_code == 202, made.content
    assert made.json()["metadata"]["name"].startswith("mine-")


def test_other_projects_are_not_there_to_be_asked_about(member: Robot, vision_team: Project) -> None:
    answer = member.send("POST", "v2/workloads/explain", requested(vision_team))
    assert answer.json()["errors"][0]["pointer"] == "/metadata/projectId"


def test_a_copy_keeps_what_was_chosen_and_takes_what_is_said_now(
    robot: Robot, submitted: Callable[..., str], llm_team: Project
) -> None:
    original = submitted()
    first = robot.send("POST", f"v1/workloads/{original}/clone", {}, **{"Idempotency-Key": "one"})
    again = robot.send("POST", f"v1/workloads/{original}/clone", {}, **{"Idempotency-Key": "one"})
    assert first.status_code == again.status_code == 202
    assert first.json()["metadata"]["id"] == again.json()["metadata"]["id"]
    assert first.json()["metadata"]["name"].startswith("train-copy-")
    chosen = robot.send("POST", f"v1/workloads/{original}/clone", {"name": "mine", "priority": "high"}).json()
    assert [chosen["metadata"][name] for name in ("name", "priority", "prioritySource")] == ["mine", "high", "explicit"]


def test_a_copy_of_what_is_foreign_or_into_a_foreign_project_is_not_made(
    member: Robot, submitted: Callable[..., str], llm_team: Project, vision_team: Project
) -> None:
    foreign = submitted(project=vision_team)
    assert member.send("POST", f"v1/workloads/{foreign}/clone", {}).status_code == 404
    answer = member.send("POST", f"v1/workloads/{submitted()}/clone", {"projectId": str(vision_team.pk)})
    assert answer.json()["errors"][0]["pointer"] == "/projectId"
    assert Workload.objects.count() == 2


def test_the_end_of_a_log_is_of_the_newest_pod_unless_one_is_named(robot: Robot, submitted: Callable[..., str]) -> None:
    workload = Workload.objects.get(pk=submitted())
    path = f"v1/workloads/{workload.pk}/logs"
    assert robot.get(path).json()["pod"] is None
    ObservedPodFactory.create(workload=workload, name="train-0")
    body = robot.get(f"{path}?lines=5").json()
    assert (body["pod"], body["pods"]) == ("train-0", ["train-0"])
    assert robot.get(f"{path}?pod=other").status_code == 404
    assert robot.get(f"{path}?pod=train-0&container=other").status_code == 404
    assert robot.get(f"{path}?lines=0").json()["errors"][0]["pointer"] == "/lines"


def test_logs_of_others_are_absent(submitted: Callable[..., str], vision_team: Project) -> None:
    stranger = Robot("stranger", role=Role.MEMBER, project=vision_team)
    assert stranger.get(f"v1/workloads/{submitted()}/logs").status_code == 404


def test_a_forecast_goes_by_the_cluster_of_now_whatever_a_submit_has_left_in_this_process(
    member: Robot, llm_team: Project, vision_team: Project
) -> None:
    holder = WorkloadFactory(project=vision_team)
    for node in Node.objects.all():
        ObservedPodFactory(workload=holder, node_name=node.name, gpu_milli=node.gpu_milli, preemptible=False)
    Cluster.objects.update(
        flavour="volcano",
        configured={"actions": ["allocate", "preempt"], "plugins": {}},
        observed_at=timezone.now() - timedelta(minutes=20),
    )
    path = "v2/workloads?dryRun=true"
    old = member.send("POST", path, requested(llm_team)).json()["forecast"]
    assert old["snapshotAgeSeconds"] > 1000
    Cluster.objects.update(configured={}, observed_at=timezone.now())
    new = member.send("POST", path, requested(llm_team)).json()["forecast"]
    assert new["snapshotAgeSeconds"] < 60
    assert any("configuration cannot be read" in each for each in new["cautions"])


def test_a_kind_is_accepted_as_soon_as_the_cluster_is_seen_to_serve_it(member: Robot, llm_team: Project) -> None:
    Cluster.objects.update(served_kinds=["v1 Pod"])
    assert member.send("POST", "v2/workloads", requested(llm_team)).status_code == 422
    Cluster.objects.update(served_kinds=["v1 Pod", "batch/v1 Job"])
    assert member.send("POST", "v2/workloads", requested(llm_team)).status_code == 202
