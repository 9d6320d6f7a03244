"""Templates and assets: who keeps them where, what they may say, and what becomes of a submission that names one."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import Actor
from tenants.organisation.models import Department, Project
from tenants.organisation.services import delete_department, delete_project
from workloads.policies.models import Owner
from workloads.workload_templates.models import Asset, WorkloadTemplate
from workloads.workload_templates.selectors import (
    asset_or_404,
    may_keep,
    merge_template,
    template_or_404,
    visible_assets,
    visible_templates,
)
from workloads.workload_templates.services import (
    AssetDraft,
    TemplateDraft,
    change_asset,
    change_template,
    create_asset,
    create_template,
    delete_asset,
    delete_template,
    fill_from_template,
    runnable,
)

IMAGE = "docker.io/team/notebook:1"
HALF: Mapping[str, Any] = {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}


def made(actor: Actor, owner: Owner, name: str = "notebook", kind: str = "workspaces", **said: Any) -> WorkloadTemplate:
    """A template of an image, or of what the test says."""
    draft = TemplateDraft(name, **{"spec": {"image": IMAGE}, **said})
    return create_template(kind=kind, owner=owner, draft=draft, actor=actor)


def asset(actor: Actor, owner: Owner, kind: str = "compute", name: str = "", **spec: Any) -> Asset:
    draft = AssetDraft(name or kind, spec=spec)
    return create_asset(kind=kind, owner=owner, draft=draft, actor=actor)


def pointers(error: pytest.ExceptionInfo[ValidationFailed]) -> list[tuple[str, str]]:
    return [(each.pointer, each.code) for each in error.value.problems]


def test_a_member_keeps_templates_in_their_project_and_sees_those_of_every_wider_scope(
    as_bob: Actor, as_admin: Actor, as_charlie: Actor, llm_team: Project, vision_team: Project
) -> None:
    own = made(as_bob, llm_team, "own")
    wide = [made(as_admin, owner, "wide") for owner in (llm_team.department, llm_team.cluster, None)]
    made(as_admin, vision_team, "foreign")
    assert set(visible_templates(as_bob)) == {own, *wide}
    with pytest.raises(NotFound):
        template_or_404(as_charlie, own.pk)
    with pytest.raises(NotFound):
        template_or_404(as_bob, own.pk, kind="trainings")
    record = AuditRecord.objects.get(action="template.create", entity_name="own")
    assert (record.project_id, record.entity_type, record.detail["after"]["spec"]) == (
        str(llm_team.pk),
        "template",
        {"image": IMAGE},
    )


def test_nobody_sees_what_is_kept_for_a_cluster_without_being_on_it(as_bob: Actor, as_admin: Actor) -> None:
    elsewhere = Cluster.objects.create(name="elsewhere", flavour="kube")
    made(as_admin, elsewhere)
    asset(as_admin, elsewhere, gpuDevicesRequest=1)
    assert not visible_templates(as_bob).exists()
    assert not visible_assets(as_bob).exists()
    assert visible_templates(as_admin).count() == visible_assets(as_admin).count() == 1


@pytest.mark.parametrize("wide", ["department", "cluster", "installation"])
def test_a_member_keeps_nothing_at_a_wider_scope(as_bob: Actor, llm_team: Project, wide: str) -> None:
    owner = {"department": llm_team.department, "cluster": llm_team.cluster, "installation": None}[wide]
    for attempt in (lambda: made(as_bob, owner), lambda: asset(as_bob, owner)):
        with pytest.raises((Forbidden, NotFound)):
            attempt()
    assert not WorkloadTemplate.objects.exists()
    assert not Asset.objects.exists()


def test_what_another_made_is_for_the_projects_owner_to_change(
    as_bob: Actor, as_alice: Actor, as_admin: Actor, llm_team: Project
) -> None:
    template, size = made(as_alice, llm_team), asset(as_alice, llm_team, gpuDevicesRequest=1)
    assert not may_keep(as_bob, template)
    with pytest.raises(Forbidden):
        change_template(template=template, draft=TemplateDraft("mine"), actor=as_bob)
    with pytest.raises(Forbidden):
        delete_asset(asset=size, actor=as_bob)
    assert AuditRecord.objects.get(action="template.update").result == "Denied"
    own = made(as_bob, llm_team, "own")
    assert may_keep(as_bob, own)
    assert may_keep(as_alice, own)
    change_template(template=own, draft=TemplateDraft("renamed", spec={"image": IMAGE}), actor=as_alice)
    delete_template(template=own, actor=as_bob)
    assert [each.name for each in visible_templates(as_bob)] == ["notebook"]


def test_what_is_foreign_is_absent_for_whoever_would_keep_something_there(as_bob: Actor, vision_team: Project) -> None:
    with pytest.raises(NotFound):
        made(as_bob, vision_team)
    with pytest.raises(NotFound):
        asset(as_bob, vision_team)


def test_a_name_stands_once_per_scope_and_kind(as_bob: Actor, as_admin: Actor, llm_team: Project) -> None:
    made(as_bob, llm_team)
    made(as_bob, llm_team, kind="trainings")
    made(as_admin, llm_team.department)
    made(as_admin, None)
    for owner, actor in ((llm_team, as_bob), (None, as_admin)):
        with pytest.raises(Conflict) as taken:
            made(actor, owner)
        assert pointers(taken) == [("/meta/name", "name_taken")]
    asset(as_bob, llm_team)
    with pytest.raises(Conflict):
        asset(as_bob, llm_team)
    other = made(as_bob, llm_team, "other")
    with pytest.raises(Conflict):
        change_template(template=other, draft=TemplateDraft("notebook"), actor=as_bob)


BAD: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "no name": ({"name": " "}, "/meta/name", "required"),
    "long name": ({"name": "a" * 101}, "/meta/name", "too_long"),
    "control characters": ({"name": "a\x07b"}, "/meta/name", "control_characters"),
    "long description": ({"description": "a" * 251}, "/meta/description", "too_long"),
    "unknown field": ({"spec": {"hostNetwork": True}}, "/spec/hostNetwork", "unknown_field"),
    "type": ({"spec": {"image": 1}}, "/spec/image", "wrong_type"),
    "node's own": (
        {"spec": {"storage": {"hostPath": [{"path": "/"}]}}},
        "/spec/storage/hostPath",
        "volume_not_allowed",
    ),
    "priority": ({"spec": {"priorityClass": "urgent"}}, "/spec/priorityClass", "priority_unknown"),
    "foreign asset": ({"environment": uuid4()}, "/assets/environment", "unknown_id"),
    "master": ({"master": {"image": IMAGE}}, "/master", "not_offered"),
    "secret by name": (
        {"spec": {"environmentVariables": [{"name": "HF_TOKEN", "value": "hf_x"}]}},
        "/spec/environmentVariables/0/value",
        "secret_value",
    ),
    "secret by look": (
        {"spec": {"environmentVariables": [{"name": "URL", "value": "https://me:secret@host/"}]}},
        "/spec/environmentVariables/0/value",
        "secret_value",
    ),
    "too large": (
        {"spec": {"environmentVariables": [{"name": f"V{n}", "value": "x" * 30_000} for n in range(3)]}},
        "/spec",
        "too_large",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_t24_what_a_submission_would_be_refused_for_is_not_kept(as_bob: Actor, llm_team: Project, case: str) -> None:
    said, pointer, code = BAD[case]
    with pytest.raises(ValidationFailed) as refused:
        made(as_bob, llm_team, **said)
    assert pointers(refused) == [(pointer, code)]
    assert not WorkloadTemplate.objects.exists()
    assert AuditRecord.objects.get(action="template.create").result == "Denied"


def test_a_word_that_only_sounds_like_a_secret_is_kept(as_bob: Actor, llm_team: Project) -> None:
    variables = [{"name": "TOKENIZERS_PARALLELISM", "value": "false"}, {"name": "HF_TOKEN", "value": ""}]
    assert made(as_bob, llm_team, spec={"environmentVariables": variables}).spec["environmentVariables"] == variables


def test_a_leading_pod_is_refused_at_its_own_fields(as_bob: Actor, llm_team: Project) -> None:
    with pytest.raises(ValidationFailed) as refused:
        made(as_bob, llm_team, kind="distributed", master={"image": 1})
    assert pointers(refused) == [("/master/spec/image", "wrong_type")]
    with pytest.raises(ValidationFailed) as twice:
        made(as_bob, llm_team, kind="distributed", master={"image": IMAGE}, master_same=True)
    assert pointers(twice) == [("/master", "exactly_one")]


@pytest.mark.parametrize(
    ("kind", "spec", "pointer"),
    [
        ("compute", {"gpuDevicesRequest": -1}, "/spec/gpuDevicesRequest"),
        ("compute", {"gpuMemoryRequest": "10G", "gpuRequestType": "memory"}, "/spec/gpuMemoryRequest"),
        ("compute", {"image": IMAGE}, "/spec/image"),
        ("environment", {"image": "a b"}, "/spec/image"),
        ("environment", {"hostNetwork": True}, "/spec/hostNetwork"),
        ("environment", {"runAsUid": 0}, "/spec/runAsUid"),
        ("environment", {"compute": {"gpuDevicesRequest": 1}}, "/spec/compute"),
        (
            "environment",
            {"connections": [{"name": "x", "internalToolInfo": {}}]},
            "/spec/connections/0/internalToolInfo",
        ),
        ("environment", {"connections": "jupyter"}, "/spec/connections"),
    ],
)
def test_a_bad_asset_is_refused_at_its_field(
    as_bob: Actor, llm_team: Project, kind: str, spec: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(ValidationFailed) as refused:
        asset(as_bob, llm_team, kind, **spec)
    assert refused.value.problems[0].pointer.startswith(pointer)
    assert not Asset.objects.exists()


def test_a_template_says_what_it_leaves_out_by_its_assets(as_bob: Actor, as_admin: Actor, llm_team: Project) -> None:
    jupyter = asset(
        as_admin,
        None,
        "environment",
        "jupyter",
        image=IMAGE,
        command="jupyter",
        args="lab",
        runAsUid=1000,
        environmentVariables=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
        connections=[
            {
                "name": "lab",
                "isExternal": False,
                "internalToolInfo": {
                    "toolType": "jupyter-notebook",
                    "connectionType": "ExternalUrl",
                    "containerPort": 8888,
                },
            }
        ],
    )
    half = asset(as_bob, llm_team, **HALF, cpuCoreRequest=2)
    template = made(
        as_bob,
        llm_team,
        spec={"environmentVariables": [{"name": "B", "value": "2"}], "compute": {"cpuCoreRequest": 4}},
        environment=jupyter.pk,
        compute=half.pk,
    )
    found = merge_template(template)
    assert found.spec == {
        "image": IMAGE,
        "command": "jupyter",
        "args": "lab",
        "security": {"runAsUid": 1000},
        "ports": [{"container": 8888, "name": "lab"}],
        "environmentVariables": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
        "compute": {**HALF, "cpuCoreRequest": 4},
    }
    assert found.sources.of("/spec/image") == "environment jupyter"
    assert found.sources.of("/spec/environmentVariables/1") == "environment jupyter"
    assert found.sources.of("/spec/compute/gpuDevicesRequest") == "compute resource compute"
    assert found.sources.of("/spec/compute/cpuCoreRequest") == "template notebook"
    assert runnable(template) == ""
    assert runnable(made(as_bob, llm_team, "empty", spec={})) == "image is required."


def test_a_template_refers_to_assets_of_its_own_and_wider_scopes_that_are_meant_for_its_kind(
    as_admin: Actor, llm_team: Project
) -> None:
    near = asset(as_admin, llm_team, "environment", image=IMAGE)
    with pytest.raises(ValidationFailed) as refused:
        made(as_admin, llm_team.department, environment=near.pk)
    assert pointers(refused) == [("/assets/environment", "unknown_id")]
    with pytest.raises(ValidationFailed):
        made(as_admin, llm_team, compute=near.pk)
    draft = AssetDraft("trains", spec={"image": IMAGE}, supports={"training": True, "workspace": False})
    trains = create_asset(kind="environment", owner=None, draft=draft, actor=as_admin)
    assert made(as_admin, llm_team, kind="trainings", environment=trains.pk).environment == trains
    with pytest.raises(ValidationFailed) as unsupported:
        made(as_admin, llm_team, environment=trains.pk)
    assert pointers(unsupported) == [("/assets/environment", "not_supported")]


def test_an_asset_in_use_stays_and_a_change_of_it_reaches_its_templates(
    as_bob: Actor, as_admin: Actor, llm_team: Project
) -> None:
    size = asset(as_bob, llm_team, gpuDevicesRequest=1)
    template = made(as_bob, llm_team, compute=size.pk)
    with pytest.raises(Conflict) as in_use:
        delete_asset(asset=size, actor=as_bob)
    assert (in_use.value.code, in_use.value.problems[0].numbers) == ("in_use", {"templates": "1"})
    change_asset(asset=size, draft=AssetDraft("two", spec={"gpuDevicesRequest": 2}), actor=as_bob)
    template = template_or_404(as_bob, template.pk)
    assert merge_template(template).spec["compute"] == {"gpuDevicesRequest": 2}
    delete_template(template=template, actor=as_bob)
    delete_asset(asset=size, actor=as_bob)
    with pytest.raises(NotFound):
        asset_or_404(as_bob, size.pk)
    assert [
        each.action for each in AuditRecord.objects.filter(entity_type="asset", result="Succeeded").order_by("pk")
    ] == [
        "asset.create",
        "asset.update",
        "asset.delete",
    ]


def test_what_is_prepared_leaves_with_its_project_and_department_and_every_row_is_told(
    as_admin: Actor, research: Department
) -> None:
    project = Project.objects.create(
        name="short-lived", namespace="runai-short-lived", cluster=research.cluster, department=research
    )
    size = asset(as_admin, project, gpuDevicesRequest=1)
    made(as_admin, project, compute=size.pk)
    delete_project(project=project, actor=as_admin)
    assert not WorkloadTemplate.objects.exists()
    assert not Asset.objects.exists()
    told = AuditRecord.objects.filter(action__in=["template.delete", "asset.delete"])
    assert {(each.entity_name, each.result, each.project_id) for each in told} == {
        ("notebook", "Succeeded", str(project.pk)),
        ("compute", "Succeeded", str(project.pk)),
    }
    empty = Department.objects.create(name="short-lived", cluster=research.cluster)
    made(as_admin, empty, "of-a-department")
    delete_department(department=empty, actor=as_admin)
    assert AuditRecord.objects.get(action="template.delete", entity_name="of-a-department")


def test_the_body_wins_over_the_template_field_by_field(as_bob: Actor, llm_team: Project) -> None:
    template = made(
        as_bob,
        llm_team,
        kind="trainings",
        spec={
            "image": IMAGE,
            "command": "python",
            "args": "train.py",
            "nodePools": ["h100"],
            "labels": [{"name": "team", "value": "a"}, {"name": "stage", "value": "b"}],
            "compute": {
                "gpuDevicesRequest": 1,
                "gpuRequestType": "portion",
                "gpuPortionRequest": 0.5,
                "cpuCoreRequest": 4,
            },
        },
    )
    own = {
        "image": "docker.io/team/other:2",
        "command": "sleep 1",
        "workingDir": None,
        "nodePools": [],
        "labels": [{"name": "stage", "exclude": True}],
        "compute": {"gpuDevicesRequest": 2},
    }
    found = fill_from_template(kind="trainings", body={"spec": own}, template_id=template.pk, project=llm_team)
    assert found.spec == {
        **own,
        "labels": [{"name": "stage", "exclude": True}, {"name": "team", "value": "a"}],
        "compute": {"gpuDevicesRequest": 2, "cpuCoreRequest": 4},
    }
    assert set(found.sources) == {"/spec/labels/1", "/spec/compute/cpuCoreRequest"}
    assert own["compute"] == {"gpuDevicesRequest": 2}, "what was sent is left alone"


def test_a_template_that_does_not_hold_in_the_project_is_refused_like_an_absent_one(
    as_admin: Actor, llm_team: Project, vision_team: Project
) -> None:
    foreign, other_kind = made(as_admin, vision_team), made(as_admin, llm_team, kind="trainings")
    for wanted in (foreign.pk, other_kind.pk, uuid4()):
        with pytest.raises(ValidationFailed) as refused:
            fill_from_template(kind="workspaces", body={}, template_id=wanted, project=llm_team)
        assert pointers(refused) == [("/templateId", "unknown_id")]


@pytest.mark.parametrize(
    ("said", "master", "same"),
    [
        ({}, {"image": IMAGE, "args": "lead"}, None),
        ({"masterSpec": {"args": "own"}}, {"image": IMAGE, "args": "own"}, None),
        ({"masterSpecSameAsWorker": True}, None, True),
    ],
)
def test_a_leading_pod_is_filled_unless_the_body_says_that_there_is_none(
    as_bob: Actor, llm_team: Project, said: dict[str, Any], master: dict[str, Any] | None, same: bool | None
) -> None:
    environment = asset(as_bob, llm_team, "environment", image=IMAGE)
    template = made(as_bob, llm_team, kind="distributed", master={"args": "lead"}, master_environment=environment.pk)
    found = fill_from_template(kind="distributed", body=said, template_id=template.pk, project=llm_team)
    assert (found.master, found.master_same) == (master, same)
