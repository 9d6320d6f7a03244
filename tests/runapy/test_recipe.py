"""A whole script as teams have it for Run:ai, from the department to the last workload, with their own client."""

import base64
from typing import Any

import pytest
import yaml
from runai import models
from runai.exceptions import UnprocessableEntityException
from runai.runai_client import RunaiClient

from clusters.inventory.models import Cluster, NodePool

SHORT, CUDA = "busybox:1.36", "nvidia/cuda:12.4.0-base-ubuntu22.04"
RESOLVED = {SHORT: "docker.io/library/busybox:1.36", CUDA: f"docker.io/{CUDA}"}


def quota(pool: NodePool, gpus: int, *weights: float) -> models.ResourcesNullable:
    """Of one pool; weights of GPUs, CPU and memory."""
    gpu, cpu, memory = weights
    found = models.ResourcesNullable.from_dict(
        {
            "nodePool": {"id": str(pool.pk), "name": pool.name},
            "gpu": {"deserved": gpus, "limit": -1, "overQuotaWeight": gpu},
            "cpu": {"deserved": 16000, "limit": -1, "overQuotaWeight": cpu},
            "memory": {"deserved": 64, "limit": -1, "overQuotaWeight": memory, "units": "GB"},
        }
    )
    assert found is not None
    return found


@pytest.fixture
def project(runai: RunaiClient, cluster: Cluster, h100: NodePool) -> dict[str, Any]:
    """Made by the script, in a department made by it."""
    where = {"cluster_id": str(cluster.pk)}
    department = runai.organizations.departments.create_department(
        models.DepartmentCreationRequest(name="biology", resources=[quota(h100, 8, 3, 1, 1)], **where)
    ).data
    request = models.ProjectCreationRequest(
        name="genomics", parent_id=department["id"], resources=[quota(h100, 4, 2, 0.5, 0)], **where
    )
    made: dict[str, Any] = runai.organizations.projects.create_project(request).data
    return made


def manifest(name: str, priority: str, image: str = SHORT) -> dict[str, Any]:
    """A plain Job as `kubectl` takes it: the priority stands in the pod template, the image has no registry."""
    container = {"name": "main", "image": image, "command": ["sleep", "60"]}
    spec = {"restartPolicy": "Never", "priorityClassName": priority, "containers": [container]}
    labels = {"team": "genomics"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}}
    return {**job, "spec": {"template": {"spec": spec}}}


def test_quotas_keep_a_weight_per_resource(project: dict[str, Any]) -> None:
    (entry,) = [models.Resources.from_dict(each) for each in project["resources"] if each["gpu"]["deserved"]]
    assert entry is not None
    assert [each.over_quota_weight for each in (entry.gpu, entry.cpu, entry.memory)] == [2, 0.5, 0]


@pytest.mark.parametrize("image", [SHORT, CUDA])
def test_images_need_no_registry(runai: RunaiClient, project: dict[str, Any], image: str) -> None:
    where = {"project_id": project["id"], "cluster_id": project["clusterId"]}
    compute = models.SupersetSpecAllOfCompute(gpu_devices_request=1)
    work = runai.workloads
    training = models.TrainingSpecSpec(image=image, compute=compute)
    gang = models.DistributedSpecSpec(image=image, compute=compute, distributed_framework="PyTorch", num_workers=1)
    made = [
        work.workspaces.create_workspace1(
            models.WorkspaceCreationRequest(
                name="notebook", spec=models.WorkspaceSpecSpec(image=image, compute=compute), **where
            )
        ),
        work.trainings.create_training1(models.TrainingCreationRequest(name="train", spec=training, **where)),
        work.distributed.create_distributed(models.DistributedCreationRequest(name="gang", spec=gang, **where)),
        work.inferences.create_inference1(
            models.InferenceCreationRequest(
                name="serve", spec=models.InferenceSpecSpec(image=image, compute=compute), **where
            )
        ),
    ]
    assert [each.status_code for each in made] == [202] * 4
    assert {each.data["spec"]["image"] for each in made} == {RESOLVED[image]}
    listed = work.workloads.get_workloads(filter_by=["projectName==genomics"]).data["workloads"]
    typed = [models.Workload.from_dict(each) for each in listed]
    assert {image for each in typed if each is not None for image in each.images} == {RESOLVED[image]}
    assert len(typed) == 4


@pytest.mark.parametrize("encoded", [False, True], ids=["an object", "base64"])
def test_a_manifest_means_what_it_means_to_the_cluster(
    runai: RunaiClient, project: dict[str, Any], *, encoded: bool
) -> None:
    body = manifest("nightly", "low")
    text = base64.b64encode(yaml.safe_dump(body).encode()).decode()
    request = models.WorkloadV2CreateRequest(
        metadata=models.WorkloadV2MetadataCreateParams(
            project_id=project["id"], cluster_id=project["clusterId"], category="Train"
        ),
        **({"manifest_base64_encoded": text} if encoded else {"manifest": body}),
    )
    made = models.WorkloadV2.from_dict(runai.workloads.workloads_v2.create_workload_v2(request).data)
    assert made is not None
    assert (made.metadata.priority, made.metadata.preemptibility, made.metadata.category) == (
        "low",
        "preemptible",
        "Train",
    )
    assert made.raw_manifest == body
    records = runai.workloads.events.get_workload_history(made.metadata.id).data["records"]
    updates = [each["spec"]["phaseUpdate"]["phase"] for each in records if each["meta"]["type"] == "PhaseUpdate"]
    assert updates == ["Creating"]
    listed = runai.workloads.workloads.get_workloads(filter_by=["category==Train"]).data["workloads"]
    assert [(each["name"], each["priorityClassName"]) for each in listed] == [("nightly", "low")]
    assert runai.workloads.workloads_v2.delete_workload_v2(made.metadata.id).status_code == 202


def test_what_is_wrong_with_a_manifest_is_told_at_once(runai: RunaiClient, project: dict[str, Any]) -> None:
    body = manifest("nightly", "urgent", image="evil.example/x:1")
    body["metadata"]["namespace"] = "kube-system"
    metadata = models.WorkloadV2MetadataCreateParams(project_id=project["id"], priority="soon")
    with pytest.raises(UnprocessableEntityException) as refused:
        runai.workloads.workloads_v2.create_workload_v2(
            models.WorkloadV2CreateRequest(metadata=metadata, manifest=body)
        )
    assert {each["pointer"] for each in refused.value.data["errors"]} == {
        "/metadata/priority",
        "/metadata/namespace",
        "/spec/template/spec/priorityClassName",
        "/spec/template/spec/containers/0/image",
    }
