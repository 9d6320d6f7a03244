"""Native workloads through Run:ai's own client: every kind submitted, read into its own class, stopped and deleted."""

from collections.abc import Callable
from typing import Any

import pytest
from runai import models
from runai.runai_client import RunaiClient

from tenants.models import Project
from workloads.models import Workload

IMAGE = "nvcr.io/nvidia/pytorch:25.09-py3"


def where(project: Project, name: str, **more: Any) -> dict[str, Any]:
    """What every request names."""
    return {"name": name, "project_id": str(project.pk), "cluster_id": str(project.cluster_id), **more}


def part(**more: Any) -> dict[str, Any]:
    """A spec as scripts write it."""
    compute = models.SupersetSpecAllOfCompute(
        gpu_devices_request=1, cpu_core_request=0.5, cpu_memory_request="1Gi", large_shm_request=True
    )
    variables = [models.EnvironmentVariable(name="EPOCHS", value="3")]
    labels = [models.Label(name="stage", value="first")]
    return {"image": IMAGE, "compute": compute, "environment_variables": variables, "labels": labels, **more}


def workspace(project: Project) -> models.WorkspaceCreationRequest:
    spec = models.WorkspaceSpecSpec(**part(command="jupyter lab --ip 0.0.0.0", priority_class="medium"))
    return models.WorkspaceCreationRequest(**where(project, "notebook", spec=spec))


def training(project: Project) -> models.TrainingCreationRequest:
    spec = models.TrainingSpecSpec(
        **part(args="--lr '0.1 0.2'", parallelism=2, completions=4, node_pools=["h100"], backoff_limit=3)
    )
    return models.TrainingCreationRequest(**where(project, "train", spec=spec))


def distributed(project: Project) -> models.DistributedCreationRequest:
    spec = models.DistributedSpecSpec(**part(distributed_framework="PyTorch", num_workers=2, priority_class="high"))
    master = models.MasterSpec(**part(priority_class="low"))
    return models.DistributedCreationRequest(**where(project, "gang", spec=spec, master_spec=master))


def inference(project: Project) -> models.InferenceCreationRequest:
    spec = models.InferenceSpecSpec(
        **part(
            autoscaling=models.AutoScaling(min_replicas=2, max_replicas=2),
            serving_port=models.ServingPort(container=8000, authorization_type="public"),
        )
    )
    return models.InferenceCreationRequest(**where(project, "serve", spec=spec))


def group(project: Project) -> models.DistributedInferenceCreationRequest:
    worker = models.DistributedInferenceLeaderWorkerSpec1(**part())
    spec = models.DistributedInferenceSpecSpec(workers=1, replicas=2, leader=worker, worker=worker)
    return models.DistributedInferenceCreationRequest(**where(project, "group", spec=spec))


KINDS: dict[str, tuple[Callable[[Project], Any], str, str, str, Any, str, int]] = {
    # request, api group, create, get, read model, type, pods
    "workspaces": (workspace, "workspaces", "create_workspace1", "workspace", models.Workspace1, "Workspace", 1),
    "trainings": (training, "trainings", "create_training1", "training", models.Training1, "Training", 2),
    "distributed": (
        distributed,
        "distributed",
        "create_distributed",
        "distributed",
        models.DistributedWorkload,
        "Distributed",
        3,
    ),
    "inferences": (inference, "inferences", "create_inference1", "inference", models.Inference1, "Inference", 2),
    "distributed-inferences": (
        group,
        "distributed_inferences",
        "create_distributed_inference",
        "distributed_inference",
        models.DistributedInference,
        "DistributedInference",
        4,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_submitted_read_typed_and_deleted(runai: RunaiClient, llm_team: Project, kind: str) -> None:
    request, group_name, create, one, model, type_name, pods = KINDS[kind]
    api = getattr(runai.workloads, group_name)
    answer = getattr(api, create)(request(llm_team))
    assert answer.status_code == 202
    made = model.from_dict(answer.data)
    row = Workload.objects.select_related("type").get(pk=made.workload_id)
    assert (row.type.name, row.pod_count, made.requested_name) == (type_name, pods, row.name)
    read = model.from_dict(getattr(api, f"get_{one}")(made.workload_id).data)
    assert read.spec.priority_class in {"medium", "low", "high", "very-high"}
    assert read.actual_phase == "Creating"
    listed = models.Workload.from_dict(runai.workloads.workloads.get_workload(made.workload_id).data)
    assert (listed.type, listed.phase, listed.actions_support.delete) == (type_name, "Creating", True)
    gone = getattr(api, f"delete_{one}")(made.workload_id)
    assert (gone.status_code, gone.data["code"]) == (202, 202)
    assert getattr(api, f"get_{one}")(made.workload_id).data["desiredPhase"] == "Deleted"
