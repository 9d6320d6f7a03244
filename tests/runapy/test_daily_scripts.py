"""What scripts do every day with Run:ai's own client: many workloads at once, pages, searches, refusals, threads."""

from collections.abc import Callable
from typing import Any

import pytest
from runai import models
from runai.api_client import ApiClient, ThreadedApiClient
from runai.configuration import Configuration
from runai.exceptions import (
    ApiException,
    BadRequestException,
    ConflictException,
    ForbiddenException,
    NotFoundException,
    UnprocessableEntityException,
)
from runai.runai_client import RunaiClient

from clusters.inventory.models import Cluster, NodePool
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role
from tenants.access.services.subjects import create_service_account
from tenants.organisation.models import Department, Project
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.runapy.conftest import client_of
from workloads.intake import FormFields
from workloads.intake.services import read_fields
from workloads.state.models import Phase, Workload
from workloads.submission.services import submit

ABSENT = "00000000-0000-4000-8000-000000000000"


def training(project: Project, name: str, **spec: Any) -> models.TrainingCreationRequest:
    requested = models.TrainingSpecSpec(**{"image": "busybox:1.36", "priority_class": "low", **spec})
    return models.TrainingCreationRequest(
        name=name, project_id=str(project.pk), cluster_id=str(project.cluster_id), spec=requested
    )


@pytest.fixture
def three(runai: RunaiClient, llm_team: Project) -> list[str]:
    """Three trainings: `train-0` to `train-2`, from low to high priority."""
    chosen = zip(("train-0", "train-1", "train-2"), ("low", "medium", "high"), strict=True)
    made = [
        runai.workloads.trainings.create_training1(training(llm_team, name, priority_class=priority))
        for name, priority in chosen
    ]
    return [each.data["workloadId"] for each in made]


@pytest.mark.parametrize(("action", "wanted"), [("suspend", "Stopped"), ("resume", "Running"), ("delete", "Deleted")])
def test_many_workloads_are_changed_at_once_and_unknown_ones_are_distinguished(
    runai: RunaiClient, three: list[str], action: str, wanted: str
) -> None:
    batch = models.WorkloadBatch(ids=[*three, ABSENT], action=action)
    found = models.BatchResponse.from_dict(runai.workloads.workloads_batch.batch_workloads(batch).data)
    assert sorted(found.succeeded) == sorted(three)
    assert [(each.id, each.code) for each in found.failed] == [(ABSENT, 404)]
    phases = {runai.workloads.trainings.get_training(each).data["desiredPhase"] for each in three}
    assert phases == {wanted}


def test_pages_of_workloads_are_followed_by_next(runai: RunaiClient, three: list[str]) -> None:
    listed, offset = [], 0
    while offset is not None:
        page = runai.workloads.workloads.get_workloads(offset=offset, limit=2, sort_by="name").data
        listed += [each["name"] for each in page["workloads"]]
        offset = page.get("next")
    assert listed == ["train-0", "train-1", "train-2"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"filter_by": ["priorityClassName==high"]}, ["train-2"]),
        ({"filter_by": ["priority>=80"]}, ["train-1", "train-2"]),
        ({"filter_by": ["name=^train", "name!=train-0"]}, ["train-1", "train-2"]),
        ({"filter_by": ["name=$2"]}, ["train-2"]),
        ({"filter_by": ["name!@1", "type==Training"]}, ["train-0", "train-2"]),
        ({"filter_by": []}, ["train-0", "train-1", "train-2"]),
        ({"search": "in-1"}, ["train-1"]),
        ({"deleted": True}, []),
    ],
    ids=str,
)
def test_lists_of_workloads_are_narrowed(
    runai: RunaiClient, three: list[str], query: dict[str, Any], names: list[str]
) -> None:
    found = runai.workloads.workloads.get_workloads(sort_by="name", **query).data["workloads"]
    assert [models.Workload.from_dict(each).name for each in found] == names
    assert runai.workloads.workloads.count_workloads(**query).data == {"count": len(names)}


def test_workloads_are_sorted_by_priority_downwards(runai: RunaiClient, three: list[str]) -> None:
    found = runai.workloads.workloads.get_workloads(sort_by="priority", sort_order="desc").data["workloads"]
    assert [each["priorityClassName"] for each in found] == ["high", "medium", "low"]


def test_a_single_enum_member_sorts_as_its_text(runai: RunaiClient, llm_team: Project, vision_team: Project) -> None:
    projects = runai.organizations.projects
    found = projects.get_projects(sort_by=models.ProjectFilterSortFields.NAME, sort_order="desc").data["projects"]
    assert [each["name"] for each in found] == ["vision-team", "llm-team"]


def test_pods_are_counted_sorted_and_told_with_their_names(runai: RunaiClient, llm_team: Project) -> None:
    workload = WorkloadFactory(project=llm_team, name="finetune", phase=Phase.RUNNING)
    for number in range(2):
        ObservedPodFactory(workload=workload, name=f"finetune-{number}")
    pods = runai.workloads.pods
    assert pods.count_pods(filter_by=[f"workloadId=={workload.pk}"]).data == {"count": 2}
    found = pods.list_pods(verbosity="full", limit=1, sort_by="createdAt").data
    (first,) = (models.Pod1.from_dict(each) for each in found["pods"])
    assert (first.project_name, first.workload_name, found["next"]) == ("llm-team", "finetune", 1)


def test_a_workload_of_the_form_is_read_typed(runai: RunaiClient, llm_team: Project) -> None:
    fields = FormFields(type="Training", name="filled", image="busybox:1.36", gpus="1", cpu="1500m", memory="2Gi")
    spec = read_fields(fields=fields, project=llm_team, actor=SYSTEM)
    made = submit(spec=spec, project=llm_team, actor=SYSTEM)
    read = models.Training1.from_dict(runai.workloads.trainings.get_training(str(made.pk)).data)
    compute = read.spec.compute
    assert (compute.gpu_devices_request, compute.cpu_core_request, compute.cpu_memory_request) == (1, 1.5, "2Gi")


def test_a_refused_training_is_told_all_at_once(runai: RunaiClient, llm_team: Project, h100: NodePool) -> None:
    compute = models.SupersetSpecAllOfCompute(gpu_devices_request=64)
    request = training(llm_team, "train", image="Not An Image", priority_class="urgent", compute=compute)
    with pytest.raises(BadRequestException) as refused:
        runai.workloads.trainings.create_training1(request)
    issues = models.SubmissionErrorV2.from_dict(refused.value.data)
    assert {"spec.image", "spec.priorityClass"} < {each.var_field for each in issues.compliance_issues}
    assert {"OverLimit"} <= {each["code"] for each in refused.value.data["errors"]}
    assert not Workload.objects.exists()


def _bad_filter(client: RunaiClient, project: Project) -> Any:
    return client.workloads.workloads.get_workloads(filter_by=["colour==red"])


def _absent(client: RunaiClient, project: Project) -> Any:
    return client.workloads.workspaces.get_workspace(ABSENT)


def _taken(client: RunaiClient, project: Project) -> Any:
    where = {"cluster_id": str(project.cluster_id), "resources": []}
    return client.organizations.departments.create_department(
        models.DepartmentCreationRequest(name=project.department.name, **where)
    )


def _bad_name(client: RunaiClient, project: Project) -> Any:
    where = {"cluster_id": str(project.cluster_id), "resources": []}
    return client.organizations.projects.create_project(models.ProjectCreationRequest(name="Not A Name", **where))


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (_bad_filter, BadRequestException),
        (_absent, NotFoundException),
        (_taken, ConflictException),
        (_bad_name, UnprocessableEntityException),
    ],
)
def test_a_no_is_one_request_and_the_clients_own_error(
    runai: RunaiClient, llm_team: Project, ask: Callable[[RunaiClient, Project], Any], error: type[ApiException]
) -> None:
    with pytest.raises(error) as refused:
        ask(runai, llm_team)
    told = models.Error.from_dict(refused.value.data)
    assert (told.code, bool(told.message)) == (refused.value.status, True)


def test_who_may_only_look_is_forbidden_to_submit(live_server: object, llm_team: Project) -> None:
    viewer = client_of(live_server, "looking", Role.VIEWER, project=llm_team)
    with pytest.raises(ForbiddenException):
        viewer.workloads.trainings.create_training1(training(llm_team, "train"))


def test_a_wrong_secret_is_refused_at_once(live_server: object) -> None:
    settings = Configuration(client_id="nobody", client_secret="wrong", runai_base_url=str(live_server))
    with pytest.raises(ValueError, match="Wrong client id or secret"):
        ApiClient(settings)


def test_the_threaded_client_asks_in_parallel(live_server: object, llm_team: Project) -> None:
    account, secret = create_service_account(name="threads", actor=SYSTEM, role=Role.PLATFORM_ADMIN)
    settings = Configuration(client_id=account.client_id, client_secret=secret, runai_base_url=str(live_server))
    with ThreadedApiClient(settings, pool_size=2) as threads:
        client = RunaiClient(threads)
        waiting = [client.organizations.projects.get_projects() for _ in range(4)]
        assert [[row["name"] for row in each.get(timeout=30).data["projects"]] for each in waiting] == [
            ["llm-team"]
        ] * 4


def test_an_environment_is_read_replaced_and_deleted(runai: RunaiClient, llm_team: Project) -> None:
    images = runai.workload_assets.environment
    made = images.create_environment_asset(
        models.EnvironmentCreationRequest(
            meta=models.AssetCreationRequest(name="jupyter", scope="tenant"),
            spec=models.EnvironmentAssetSpec(image="jupyter:1"),
        )
    ).data["meta"]["id"]
    update = models.EnvironmentUpdateRequest(
        meta=models.AssetUpdateRequest(name="jupyter"), spec=models.EnvironmentAssetSpec(image="jupyter:2")
    )
    assert images.update_environment_asset_by_id(made, update).data["spec"]["image"] == "jupyter:2"
    assert models.EnvironmentAsset.from_dict(images.get_environment_asset_by_id(made).data).meta.name == "jupyter"
    assert images.delete_environment_asset_by_id(made).status_code == 202
    with pytest.raises(NotFoundException):
        images.get_environment_asset_by_id(made)


def quota(pool: NodePool, deserved: int, limit: int | None = -1) -> models.ResourcesNullable:
    gpu = {"deserved": deserved, "limit": limit}
    return models.ResourcesNullable.from_dict({"nodePool": {"id": str(pool.pk), "name": pool.name}, "gpu": gpu})


def test_a_department_is_changed_patched_replaced_and_counted(
    runai: RunaiClient, research: Department, h100: NodePool
) -> None:
    departments, key = runai.organizations.departments, str(research.pk)
    request = models.DepartmentUpdateRequest(description="Genomes", resources=[quota(h100, 10)])
    changed = models.DepartmentForList.from_dict(departments.update_department(key, request).data)
    assert changed.description == "Genomes"
    patched = departments.patch_department_resources(key, [quota(h100, 9, 12)]).data
    assert [
        (each["gpu"]["deserved"], each["gpu"]["limit"]) for each in patched if each["nodePool"]["name"] == "h100"
    ] == [(9, 12)]
    replaced = departments.update_department_resources(key, [quota(h100, 8, None)]).data
    typed = [models.Resources.from_dict(each) for each in replaced]
    assert [each.gpu.limit for each in typed if each.node_pool.name == "h100"] == [None]
    assert departments.count_departments(filter_by=["name==research"]).data == {"count": 1}


def test_a_project_is_described_again_with_its_pools_in_order(
    runai: RunaiClient, llm_team: Project, h100: NodePool, a100: NodePool
) -> None:
    request = models.ProjectUpdateRequest(
        description="Large models", resources=[quota(h100, 4), quota(a100, 0)], default_node_pools=["a100", "h100"]
    )
    changed = runai.organizations.projects.update_project(str(llm_team.pk), request).data
    assert (changed["description"], changed["defaultNodePools"]) == ("Large models", ["a100", "h100"])
    assert models.ProjectEffective.from_dict(changed["effective"]).default_node_pools == ["a100", "h100"]


def test_the_policy_of_nim_services_is_patched(runai: RunaiClient, cluster: Cluster, llm_team: Project) -> None:
    policies, meta = runai.policies.policy, {"scope": "tenant", "name": "nim"}
    body = {"meta": meta, "policy": {"defaults": {"priorityClass": "very-high"}}}
    policies.overwrite_nim_service_policy(nim_service_policy_overwrite_request=body)
    rules = {"rules": {"priorityClass": {"canEdit": False}}}
    changed = policies.update_nim_service_policy(nim_service_policy_change_request={"meta": meta, "policy": rules}).data
    read = models.NimServicePolicy.from_dict(changed)
    assert (read.policy.defaults.priority_class, read.policy.rules.priority_class.can_edit) == ("very-high", False)
