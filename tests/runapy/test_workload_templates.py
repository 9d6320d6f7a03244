"""Templates and assets through Run:ai's own client: kept at a scope, read typed, changed, and submitted with."""

from typing import Any

import pytest
from runai import models
from runai.exceptions import BadRequestException, ConflictException, ForbiddenException, NotFoundException
from runai.runai_client import RunaiClient

from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.runapy.conftest import client_of
from workloads.state.models import Workload

IMAGE = "docker.io/team/notebook:1"


def environment(client: RunaiClient, **meta: Any) -> models.EnvironmentAsset:
    """Jupyter for everybody, or where the test says."""
    request = models.EnvironmentCreationRequest(
        meta=models.AssetCreationRequest(name="jupyter", description="Notebooks", **{"scope": "tenant", **meta}),
        spec=models.EnvironmentAssetSpec(
            image=IMAGE,
            command="jupyter",
            args="lab",
            environment_variables=[models.EnvironmentVariableOfAsset(name="A", value="1", description="")],
            connections=[
                models.Connection(
                    name="lab",
                    internal_tool_info=models.InternalToolInfo(
                        tool_type="jupyter-notebook", connection_type="ExternalUrl", container_port=8888
                    ),
                )
            ],
        ),
    )
    answer = client.workload_assets.environment.create_environment_asset(request)
    assert answer.status_code == 202
    return models.EnvironmentAsset.from_dict(answer.data)


def compute(client: RunaiClient, **meta: Any) -> models.ComputeAsset:
    request = models.ComputeCreationRequest(
        meta=models.AssetCreationRequest(name="one-gpu", **{"scope": "tenant", **meta}),
        spec=models.ComputeAssetSpec(gpu_devices_request=1, cpu_core_request=2, cpu_memory_request="4G"),
    )
    return models.ComputeAsset.from_dict(client.workload_assets.compute.create_compute_asset(request).data)


def test_assets_come_back_typed_and_are_found_where_they_hold(runai: RunaiClient, llm_team: Project) -> None:
    wide, near = environment(runai), compute(runai, scope="project", project_id=llm_team.pk)
    assert (wide.meta.kind, wide.meta.description, wide.spec.connections[0].name) == ("environment", "Notebooks", "lab")
    assert (near.meta.project_id, near.meta.project_name, near.meta.created_by) == (
        llm_team.pk,
        "llm-team",
        "moving-script",
    )
    sizes, images = runai.workload_assets.compute, runai.workload_assets.environment

    def names(**query: Any) -> list[str]:
        found = models.ComputeListResponse.from_dict(sizes.list_compute_assets(**query).data)
        return [each.meta.name for each in found.entries]

    assert names() == names(project_id=llm_team.pk) == names(name="one-gpu", scope="project") == ["one-gpu"]
    assert names(scope="tenant") == names(department_id=str(llm_team.department_id)) == names(project_id=999999) == []
    assert names(cluster_id=str(llm_team.cluster_id), include_descendants=True) == ["one-gpu"]
    listed = images.list_environment_assets(is_workspace=True, usage_info=True, status_info=True).data
    assert models.EnvironmentListResponse.from_dict(listed).entries[0].used_by.templates == []
    update = models.ComputeUpdateRequest(
        meta=models.AssetUpdateRequest(name="two-gpus"), spec=models.ComputeAssetSpec(gpu_devices_request=2)
    )
    changed = models.ComputeAsset.from_dict(sizes.update_compute_asset_by_id(near.meta.id, update).data)
    assert (changed.meta.name, changed.spec.gpu_devices_request, changed.spec.cpu_core_request) == ("two-gpus", 2, None)
    assert sizes.delete_compute_asset_by_id(near.meta.id).status_code == 202
    with pytest.raises(NotFoundException):
        sizes.get_compute_asset_by_id(near.meta.id)


def template(client: RunaiClient, project: Project, **body: Any) -> models.WorkspaceTemplate:
    meta = models.TemplateCreationMetaFields(
        name="notebook", description="A notebook", scope_type="project", scope_id=str(project.pk)
    )
    request = models.WorkspaceTemplateCreationRequest(
        meta=meta, spec=models.WorkspaceTemplateSpec(priority_class="medium", working_dir="/work")
    )
    answer = client.workloads.workload_templates.create_workspace_template({**request.to_dict(), **body})
    assert answer.status_code == 202
    return models.WorkspaceTemplate.from_dict(answer.data)


def test_a_template_with_its_assets_says_what_a_submission_leaves_out(runai: RunaiClient, llm_team: Project) -> None:
    assets = {"environment": environment(runai).meta.id, "compute": compute(runai).meta.id}
    kept = template(runai, llm_team, assets=assets)
    assert (kept.meta.workload_type, kept.meta.scope_type, kept.meta.scope_id, kept.meta.project_id) == (
        "Workspace",
        "project",
        str(llm_team.pk),
        llm_team.pk,
    )
    assert kept.runnable.is_runnable is True
    assert (kept.combined_spec.image, kept.combined_spec.compute.gpu_devices_request) == (IMAGE, 1)
    assert kept.spec.image is None

    request = models.WorkspaceCreationRequest(
        name="mine",
        project_id=str(llm_team.pk),
        cluster_id=str(llm_team.cluster_id),
        template_id=kept.meta.id,
        spec=models.WorkspaceSpecSpec(args="lab --debug", compute={"cpuCoreRequest": 4}),
    )
    made = runai.workloads.workspaces.create_workspace1(request).data
    typed = models.Workspace1.from_dict(made)
    assert (typed.spec.image, typed.spec.command, typed.spec.args, typed.spec.priority_class) == (
        IMAGE,
        "jupyter",
        "lab --debug",
        "medium",
    )
    assert (typed.spec.compute.gpu_devices_request, typed.spec.compute.cpu_core_request) == (1, 4)
    sources = made["templateSources"]
    assert made["templateId"] == kept.meta.id
    assert (sources["/spec/image"], sources["/spec/priorityClass"]) == ("environment jupyter", "template notebook")
    assert "/spec/args" not in sources
    assert runai.workloads.workspaces.get_workspace(made["workloadId"]).data["templateSources"] == sources
    (container,) = Workload.objects.get().spec["manifest"]["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["args"]) == (IMAGE, ["lab", "--debug"])


@pytest.mark.parametrize("kind", ["workspace", "training", "distributed"])
def test_every_kind_is_made_replaced_changed_and_deleted(runai: RunaiClient, kind: str) -> None:
    templates = runai.workloads.workload_templates
    model = getattr(models, f"{kind.capitalize()}Template")

    def ask(verb: str, *ids: str, **body: Any) -> Any:
        name = {"create": "creation", "update": "update", "patch": "patch"}[verb]
        said = {f"{kind}_template_{name}_request": body}
        return getattr(templates, f"{verb}_{kind}_template")(*ids, **said)

    meta = {"name": "house", "scopeType": "tenant"}
    made = model.from_dict(ask("create", meta=meta, spec={"image": IMAGE, "backoffLimit": 2}).data)
    assert (made.meta.scope_id, made.meta.workload_type) == ("1", kind.capitalize())
    replaced = ask("update", made.meta.id, meta={"name": "renamed", "description": "Anew"}, spec={"image": IMAGE}).data
    assert (replaced["meta"]["name"], replaced["meta"]["description"]) == ("renamed", "Anew")
    assert replaced["spec"] == {"image": IMAGE}
    changed = ask("patch", made.meta.id, fieldsToClear=["spec.image"], spec={"compute": {"gpuDevicesRequest": 1}}).data
    assert (changed["meta"]["name"], changed["spec"]) == ("renamed", {"compute": {"gpuDevicesRequest": 1}})
    assert changed["runnable"]["isRunnable"] is False
    assert getattr(templates, f"get_{kind}_template")(made.meta.id).data == changed
    assert templates.get_template_by_id1(made.meta.id).data == changed
    assert getattr(templates, f"delete_{kind}_template")(made.meta.id).status_code == 204
    with pytest.raises(NotFoundException):
        templates.get_template_by_id1(made.meta.id)


def test_a_leading_pod_has_its_own_section(runai: RunaiClient) -> None:
    request = models.DistributedTemplateCreationRequest(
        meta=models.TemplateCreationMetaFields(name="gang", scope_type="tenant"),
        spec=models.DistributedTemplateSpec(image=IMAGE, distributed_framework="PyTorch", num_workers=2),
        master=models.TemplateMasterSection(spec=models.MasterTemplateSpec(image=IMAGE, args="lead")),
    )
    made = models.DistributedTemplate.from_dict(
        runai.workloads.workload_templates.create_distributed_template(request).data
    )
    assert (made.master.spec.args, made.combined_master_spec.image, made.runnable.is_runnable) == ("lead", IMAGE, True)


def test_templates_of_inferences_are_made_read_and_deleted(runai: RunaiClient) -> None:
    templates = runai.workloads.workload_templates
    spec = models.InferenceTemplateSpec(image=IMAGE, serving_port=models.ServingPort(container=8000))
    request = models.InferenceTemplateCreationRequest(
        meta=models.TemplateCreationMetaFields(name="serve", scope_type="tenant"), spec=spec
    )
    made = models.InferenceTemplate.from_dict(templates.create_inference_template(request).data)
    assert templates.get_inference_template(made.meta.id).data["spec"]["servingPort"]["container"] == 8000
    assert len(templates.list_inference_templates().data["entries"]) == 1
    assert templates.delete_inference_template(made.meta.id).status_code == 204


def test_lists_are_paged_filtered_counted_and_say_what_a_project_would_refuse(
    runai: RunaiClient, llm_team: Project
) -> None:
    templates = runai.workloads.workload_templates
    for number in range(3):
        meta = {"name": f"t-{number}", "scopeType": "tenant"}
        templates.create_training_template({"meta": meta, "spec": {"image": IMAGE} if number else {}})
    template(runai, llm_team, spec={"image": IMAGE})
    page = models.TemplatesListResponse.from_dict(templates.list_templates1(limit=2, sort_by="name").data)
    assert [each.meta.name for each in page.entries] == ["notebook", "t-0"]
    assert (page.pagination.limit, page.pagination.offset, page.pagination.next_offset) == (2, 0, 2)
    found = templates.list_templates1(filter_by=["workloadType==Training", "name!=t-1"], search="t-").data["entries"]
    assert [each["meta"]["name"] for each in found] == ["t-0", "t-2"]
    assert templates.count_templates(search="t-").data == {"count": 3}
    complied = models.TrainingTemplatesListResponse.from_dict(
        templates.list_training_templates(comply_to_project=llm_team.pk).data
    )
    assert [len(each.compliance_issues) for each in complied.entries] == [1, 0, 0]
    assert complied.entries[0].compliance_issues[0].rule == "required"
    assert templates.template_name_availability("t-9", "tenant").status_code == 204
    with pytest.raises(ConflictException):
        templates.template_name_availability("t-0", "tenant")


def test_a_member_keeps_their_own_sees_no_foreign_one_and_touches_no_wide_one(
    live_server: object, runai: RunaiClient, llm_team: Project, vision_team: Project
) -> None:
    member = client_of(live_server, "only-a-member", Role.MEMBER, project=llm_team).workloads.workload_templates
    foreign = template(runai, vision_team, spec={"image": IMAGE})
    wide = member.create_workspace_template
    with pytest.raises(ForbiddenException):
        wide({"meta": {"name": "mine", "scopeType": "tenant"}, "spec": {}})
    own = wide({"meta": {"name": "mine", "scopeType": "project", "scopeId": str(llm_team.pk)}, "spec": {}}).data
    assert [each["meta"]["name"] for each in member.list_templates1().data["entries"]] == ["mine"]
    with pytest.raises(NotFoundException):
        member.get_workspace_template(foreign.meta.id)
    with pytest.raises(NotFoundException):
        member.get_training_template(own["meta"]["id"])
    with pytest.raises(BadRequestException) as refused:
        client_of(live_server, "another", Role.MEMBER, project=llm_team).workloads.workspaces.create_workspace1(
            {"name": "x", "projectId": str(llm_team.pk), "templateId": foreign.meta.id, "spec": {"image": IMAGE}}
        )
    assert refused.value.data["errors"][0]["pointer"] == "/templateId"
