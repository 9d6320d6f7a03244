"""Native workloads through Run:ai's own client: every kind submitted, read into its own class, stopped and deleted."""

from collections.abc import Callable
from typing import Any

import pytest
from runai import models
from runai.exceptions import BadRequestException, NotFoundException
from runai.runai_client import RunaiClient

from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.runapy.conftest import client_of
from workloads.state.models import Workload

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
    assert (listed.requested_node_pools, listed.priority_class_name) == (read.spec.node_pools, read.spec.priority_class)
    gone = getattr(api, f"delete_{one}")(made.workload_id)
    assert (gone.status_code, gone.data["code"]) == (202, 202)
    assert getattr(api, f"get_{one}")(made.workload_id).data["desiredPhase"] == "Deleted"


@pytest.mark.parametrize("kind", ["workspaces", "trainings", "distributed"])
def test_what_can_be_suspended_is_suspended_and_resumed(runai: RunaiClient, llm_team: Project, kind: str) -> None:
    request, group_name, create, one, model, *_ = KINDS[kind]
    api = getattr(runai.workloads, group_name)
    made = getattr(api, create)(request(llm_team)).data["workloadId"]
    assert getattr(api, f"suspend_{one}")(made).status_code == 202
    assert model.from_dict(getattr(api, f"get_{one}")(made).data).desired_phase == "Stopped"
    assert getattr(api, f"suspend_{one}")(made).status_code == 202  # twice is once
    assert getattr(api, f"resume_{one}")(made).status_code == 202


def test_what_serves_is_scaled_and_reprioritised(runai: RunaiClient, llm_team: Project) -> None:
    inferences = runai.workloads.inferences
    made = inferences.create_inference1(inference(llm_team)).data["workloadId"]
    spec = models.InferenceUpdateSpecSpec(
        autoscaling=models.AutoScaling(min_replicas=1, max_replicas=1), priority_class="low"
    )
    changed = inferences.update_inference_spec(made, models.InferenceUpdateRequest(spec=spec))
    assert changed.status_code == 202
    assert models.Inference1.from_dict(changed.data).spec.priority_class == "low"
    groups = runai.workloads.distributed_inferences
    other = groups.create_distributed_inference(group(llm_team)).data["workloadId"]
    scaled = models.UpdateRequest(spec=models.UpdateSpecSpec(replicas=1))
    answer = groups.update_distributed_inference_spec(other, scaled)
    assert models.DistributedInference.from_dict(answer.data).spec.replicas == 1


def test_a_nim_service_is_submitted_and_read_typed(runai: RunaiClient, llm_team: Project) -> None:
    spec = models.NimServiceSpec(image="nvcr.io/nim/meta/llama:1", replicas=2, priority_class="high")
    request = models.NimServiceCreateRequest(
        metadata=models.NIMServiceMetadataCreateParams(name="nim", project_id=str(llm_team.pk)), spec=spec
    )
    nim = runai.workloads.nvidia_nim
    made = models.NimServiceResponse.from_dict(nim.create_nim_service(request).data)
    change = models.NimServiceUpdateRequest(spec=models.NimServiceSpec(replicas=1))
    assert nim.update_nim_service_spec(made.metadata.id, change).data["spec"]["replicas"] == 1
    assert models.NimServiceResponse.from_dict(nim.get_nim_service_by_id(made.metadata.id).data).spec.replicas == 1


def test_any_kind_goes_through_v2_from_submission_to_removal(runai: RunaiClient, llm_team: Project) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE}]}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}
    workloads = runai.workloads.workloads_v2
    at = models.WorkloadV2MetadataCreateParams(project_id=str(llm_team.pk), priority="low")
    made = workloads.create_workload_v2(models.WorkloadV2CreateRequest(metadata=at, manifest=manifest))
    typed = models.WorkloadV2.from_dict(made.data)
    assert (made.status_code, typed.metadata.preemptibility) == (202, "preemptible")
    update = models.WorkloadV2UpdateRequest(metadata=models.WorkloadV2MetadataUpdateParams(priority="high"))
    changed = models.WorkloadV2.from_dict(workloads.update_workload_v2(typed.metadata.id, update).data)
    assert (changed.metadata.priority, changed.metadata.preemptibility) == ("high", "preemptible")
    read = models.WorkloadV2GetResponse.from_dict(workloads.get_workload_v2_by_id(typed.metadata.id).data)
    assert (read.workload.metadata.name, read.sync_info.status) == ("j", "Queued")
    assert models.WorkloadV2.from_dict(workloads.delete_workload_v2(typed.metadata.id).data).desired_phase == "Deleted"


def test_the_four_steps_change_what_the_next_training_gets(runai: RunaiClient, llm_team: Project) -> None:
    """The vendor's recipe: find the type, find the priority, update the type, and the next submission has it."""
    properties = runai.workloads.workload_properties
    types = properties.list_workload_types().data["types"]
    (kind,) = (each for each in types if each["name"] == "Training")
    priorities = properties.get_workload_priorities().data["priorities"]
    (wanted,) = (each for each in priorities if each["name"] == "medium-high")
    before = runai.workloads.trainings.create_training1(training(llm_team)).data
    update = models.WorkloadTypeUpdateFields(priority_id=wanted["id"])
    assert properties.update_workload_type(kind["id"], update).data["priorityName"] == "medium-high"
    request = training(llm_team)
    request.name = "after"
    after = runai.workloads.trainings.create_training1(request).data
    assert [each["spec"]["priorityClass"] for each in (before, after)] == ["low", "medium-high"]


def test_a_refused_field_is_their_bad_request_with_compliance_issues(runai: RunaiClient, llm_team: Project) -> None:
    request = training(llm_team)
    request.spec.priority_class = "urgent"
    with pytest.raises(BadRequestException) as refused:
        runai.workloads.trainings.create_training1(request)
    error = models.SubmissionErrorV2.from_dict(refused.value.data)
    (issue,) = error.compliance_issues
    assert (issue.var_field, issue.rule) == ("spec.priorityClass", "options")


def test_a_dry_run_answers_typed_with_a_forecast_beside_it(runai: RunaiClient, llm_team: Project) -> None:
    sent = training(llm_team)
    answer = runai.api_client.call_api(
        resource_path="/api/v1/workloads/trainings", method="POST", body=sent, query_params=[("dryRun", True)]
    )
    assert answer.status_code == 200
    assert answer.data["forecast"]["estimate"] is True
    assert models.Training1.from_dict(answer.data).spec.category == "Train"
    assert not Workload.objects.exists()


def test_another_teams_workload_is_not_there(
    live_server: object, runai: RunaiClient, llm_team: Project, vision_team: Project
) -> None:
    made = runai.workloads.trainings.create_training1(training(llm_team)).data["workloadId"]
    stranger = client_of(live_server, "stranger", Role.MEMBER, project=vision_team).workloads.trainings
    for ask in (stranger.get_training, stranger.suspend_training, stranger.delete_training):
        with pytest.raises(NotFoundException):
            ask(made)
