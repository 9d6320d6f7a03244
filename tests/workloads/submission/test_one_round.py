"""A submission that is wrong in several ways is refused once, with all of them."""

from typing import Any

import pytest

from clusters.inventory.models import Cluster, NodePool
from portal.audit.models import AuditRecord
from tenants.organisation.models import Project
from tests.factories.clusters import NodeFactory
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
def h100_nodes(h100: NodePool) -> None:
    """Two nodes of 8 GPUs."""
    for number in (1, 2):
        NodeFactory(cluster=h100.cluster, pool=h100, name=f"gpu-{number}", gpu_milli=8000)


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


TOO_MANY = {"gpuDevicesRequest": 8}
"""Of each of 100 workers: more than the project deserves, and than all nodes have."""


def gang(project: Project, **spec: Any) -> dict[str, Any]:
    requested = {"distributedFramework": "PyTorch", "numWorkers": 100, "compute": TOO_MANY, **spec}
    return {"name": "gang", "projectId": str(project.pk), "spec": requested}


def codes(answer: Any) -> set[str]:
    assert answer.status_code in {400, 422}, answer.content
    return {each["code"] for each in answer.json()["errors"]}


def test_quota_and_gang_size_are_refused_with_the_fields(robot: Robot, vision_team: Project, h100_nodes: None) -> None:
    requested = {"image": "Not An Image", "preemptibility": "non-preemptible", "gpu": 1, "priorityClass": "urgent"}
    answer = robot.send("POST", "v1/workloads/distributed", gang(vision_team, **requested))
    found = {each["pointer"]: each["code"] for each in answer.json()["errors"]}
    assert {"/spec/image", "/spec/gpu", "/spec/priorityClass"} <= found.keys()
    assert {"NonPreemptibleOverQuota", "gang_larger_than_pool"} <= codes(answer)


def test_without_a_known_priority_only_the_limit_is_checked(
    robot: Robot, vision_team: Project, h100_nodes: None
) -> None:
    answer = robot.send("POST", "v1/workloads/distributed", gang(vision_team, priorityClass="urgent", image="a/b:1"))
    assert "NonPreemptibleOverQuota" not in codes(answer)
    assert {"priority_unknown", "gang_larger_than_pool"} <= codes(answer)


def test_a_refused_count_hides_the_gang_size(robot: Robot, vision_team: Project, h100_nodes: None) -> None:
    sent = gang(vision_team, image="a/b:1", numWorkers="many", minReplicas=50)
    assert pointers(robot.send("POST", "v1/workloads/distributed", sent)) == ["/spec/numWorkers"]


def job(**change: Any) -> dict[str, Any]:
    """A gang of 100 as a manifest."""
    container = {"name": "pytorch", "image": "Not An Image", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    worker = {"replicas": 100, "template": {"spec": {"containers": [container], "hostNetwork": True}}}
    metadata = {"name": "gang", "namespace": "kube-system", **change}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def test_a_manifest_with_an_error_of_every_stage_is_refused_once(
    robot: Robot, vision_team: Project, h100_nodes: None
) -> None:
    metadata = {
        "projectId": str(vision_team.pk),
        "clusterId": "00000000-0000-0000-0000-000000000000",
        "preemptibility": "non-preemptible",
        "priority": "urgent",
    }
    answer = robot.send("POST", "v2/workloads", {"metadata": metadata, "manifest": job()})
    worker = "/spec/pytorchReplicaSpecs/Worker/template"
    assert {each["pointer"] for each in answer.json()["errors"]} == {
        "/metadata/clusterId",
        "/metadata/priority",
        "/metadata/namespace",
        f"{worker}/spec/containers/0/image",
        f"{worker}/spec/hostNetwork",
        worker,
    }
    assert {"NonPreemptibleOverQuota", "gang_larger_than_pool"} <= codes(answer)
    assert not Workload.objects.exists()
    notes = {"annotations": {"rung.dev/min-member": "500"}}
    answer = robot.send("POST", "v2/workloads", {"metadata": {**metadata, "owner": 1}, "manifest": job(**notes)})
    assert {"unknown_field", "gang_too_large", "NonPreemptibleOverQuota"} <= codes(answer)


def test_a_policy_a_pool_and_the_quota_are_refused_together(robot: Robot, strict: Project) -> None:
    sent = body(strict, spec={"image": "a/b:1", "security": {}, "compute": {"gpuDevicesRequest": 64}})
    answer = robot.send("POST", TRAININGS, sent)
    assert {"policy_options", "OverLimit"} <= codes(answer)


def test_what_a_refused_field_leaves_unknown_is_not_judged(
    robot: Robot, vision_team: Project, h100_nodes: None
) -> None:
    requested = {"projectId": str(vision_team.pk), "preemptibility": "non-preemptible"}
    misspelt = job(annotations={"rung.dev/min-member": "50"})
    worker = misspelt["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["replica"] = worker.pop("replicas")
    found = codes(robot.send("POST", "v2/workloads", {"metadata": requested, "manifest": misspelt}))
    assert "unknown_field" in found
    assert found.isdisjoint({"gang_too_large", "gang_larger_than_pool"})
    elsewhere = job(annotations={"rung.dev/node-pools": 7})
    found = codes(robot.send("POST", "v2/workloads", {"metadata": requested, "manifest": elsewhere}))
    assert found.isdisjoint({"NonPreemptibleOverQuota", "gang_larger_than_pool"})


def test_a_preemptibility_that_was_given_counts_whatever_the_priority_becomes(
    robot: Robot, vision_team: Project
) -> None:
    spec = {"image": "a/b:1", "security": {}, "compute": {"gpuDevicesRequest": 64}, "priorityClass": "urgent"}
    given = robot.send("POST", TRAININGS, body(vision_team, spec=spec))
    assert {"priority_unknown", "NonPreemptibleOverQuota"} == codes(given)
    left_out = robot.send("POST", TRAININGS, body(vision_team, spec={**spec, "preemptibility": None}))
    assert codes(left_out) == {"priority_unknown"}


def test_a_wrong_cluster_is_named_beside_what_its_workload_would_be_refused_for(
    robot: Robot, vision_team: Project
) -> None:
    spec = {"image": "a/b:1", "security": {}, "compute": {"gpuDevicesRequest": 64}}
    elsewhere = "00000000-0000-0000-0000-000000000000"
    answer = robot.send("POST", TRAININGS, body(vision_team, spec=spec, clusterId=elsewhere))
    assert {"wrong_cluster", "NonPreemptibleOverQuota"} == codes(answer)


@pytest.mark.parametrize("text", ['{"name": "a", "name": "b", "projectId": "%d"}', '{"spec": {"gpu": NaN}}', "{}"])
def test_a_project_that_could_not_be_read_is_not_called_foreign(robot: Robot, llm_team: Project, text: str) -> None:
    sent = text.replace("%d", str(llm_team.pk))
    assert "unknown_id" not in codes(robot.send("POST", TRAININGS, sent))
    assert "unknown_id" not in codes(robot.send("POST", "v2/workloads", f'{{"metadata": {sent}}}'))
