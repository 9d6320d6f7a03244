"""Templates in the browser: kept from the submit form, offered there, listed, changed and deleted."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.inventory.models import NodePool
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role, User
from tenants.organisation.models import Department, Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory
from tests.factories.workloads import WorkloadFactory
from workloads.policies.models import Owner
from workloads.state.models import Workload
from workloads.workload_templates.models import WorkloadTemplate
from workloads.workload_templates.services import AssetDraft, TemplateDraft, create_asset, create_template

Clients = Callable[[User], Client]
SUBMIT, TEXT, LIST, ADD = "/workloads/submit/", "/workloads/submit/yaml/", "/templates/", "/templates/add/"
IMAGE = "nvcr.io/nvidia/pytorch:24.05-py3"
FILLED = {
    "project": "llm-team",
    "type": "Training",
    "name": "train",
    "image": IMAGE,
    "gpus": "2",
    "cpu": "4",
    "memory": "16Gi",
    "arguments": "python train.py --name 'a b'",
    "environment": "A=1\r\nB=x=y",
    "checkpoint_interval": "10m",
    "priority": "high",
    "workers": "1",
    "replicas": "1",
}


def made(owner: Owner = None, *, kind: str = "trainings", name: str = "notebook", **spec: Any) -> WorkloadTemplate:
    """A template of the installation, or of the owner."""
    return create_template(kind=kind, owner=owner, draft=TemplateDraft(name=name, spec=spec), actor=SYSTEM)


def words(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def held(client: Client, template: WorkloadTemplate) -> dict[str, Any]:
    """What the submit form begins with."""
    form = client.get(SUBMIT, {"template": str(template.pk)}).context["form"]
    return {name: form[name].value() for name in form.fields}


def test_a_filled_form_is_kept_and_fills_the_next_one_the_same(
    client_of: Clients, bob: User, llm_team: Project
) -> None:
    client = client_of(bob)
    form = client.post(SUBMIT, {**FILLED, "keep": "template"})
    assert form.status_code == 200
    assert not Workload.objects.exists()
    filled = form.context["form"]
    kept = {name: filled[name].value() for name in filled.fields}
    answer = client.post(ADD, kept | {"name": "nightly", "description": "Every night"})
    row = WorkloadTemplate.objects.get()
    assert answer["Location"] == f"{LIST}{row.pk}/"
    assert (row.name, row.kind, row.project, row.created_by) == ("nightly", "trainings", llm_team, "bob")
    assert row.spec["priorityClass"] == "high"
    begun = held(client, row)
    same = {name: value for name, value in FILLED.items() if name not in {"name", "environment"}}
    assert {name: str(begun[name]) for name in same} == same
    assert begun["environment"] == "A=1\nB=x=y"
    assert begun["name"] is None
    client.post(SUBMIT, {**{name: value or "" for name, value in begun.items()}, "name": "second"})
    client.post(SUBMIT, {**FILLED, "name": "third"})
    second, third = Workload.objects.order_by("name")
    assert json.dumps(second.spec["manifest"]).replace("second", "third") == json.dumps(third.spec["manifest"])


@pytest.mark.parametrize(
    ("kind", "spec", "shown"),
    [
        ("workspaces", {"image": IMAGE, "ports": [{"container": 8888}]}, {"type": "Workspace", "port": 8888}),
        (
            "distributed",
            {"image": IMAGE, "distributedFramework": "PyTorch", "numWorkers": 3, "compute": {"gpuDevicesRequest": 8}},
            {"type": "Distributed", "workers": 4, "framework": "PyTorch", "gpus": "8"},
        ),
        (
            "inferences",
            {"image": IMAGE, "autoscaling": {"minReplicas": 2, "maxReplicas": 2}, "servingPort": {"container": 80}},
            {"type": "Inference", "replicas": 2, "port": 80},
        ),
        (
            "trainings",
            {"compute": {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}},
            {"gpus": "0.5", "image": ""},
        ),
        ("trainings", {"nodePools": ["h100", "a100"]}, {"node_pool": "h100", "second_pool": "a100"}),
    ],
)
def test_what_the_form_has_fields_for_is_filled_in_and_nothing_is_said_to_be_missing(
    client_of: Clients, bob: User, llm_team: Project, kind: str, spec: dict[str, Any], shown: dict[str, Any]
) -> None:
    row = made(kind=kind, **spec)
    client = client_of(bob)
    begun = held(client, row)
    assert {name: begun[name] for name in shown} == shown
    page = words(client, f"{SUBMIT}?template={row.pk}")
    assert "Filled in from template notebook" in page
    assert "The template also sets" not in page


def test_a_template_of_a_deleted_node_pool_still_loads_and_says_so(
    client_of: Clients, admin: User, llm_team: Project
) -> None:
    row = made(llm_team, image=IMAGE, nodePools=["a100"])
    client = client_of(admin)
    assert "no longer exist" not in words(client, f"{LIST}{row.pk}/") + words(client, f"{SUBMIT}?template={row.pk}")
    NodePool.objects.filter(name="a100").delete()
    assert "Node pools that no longer exist: a100." in words(client, f"{LIST}{row.pk}/")
    assert "no longer exist: a100. Choose another one." in words(client, f"{SUBMIT}?template={row.pk}")
    assert held(client, row)["image"] == IMAGE
    text = "nodePools: [a100]\nimage: docker.io/team/new:1\n"
    answer = client.post(f"{LIST}{row.pk}/", {"name": "notebook", "text": text})
    assert answer.status_code == 422
    assert answer.context["form"].errors == {
        "text": ["Unknown node pool 'a100'. Node pools in project llm-team: h100."]
    }
    assert answer.context["form"]["text"].value() == text
    row.refresh_from_db()
    assert row.spec["image"] == IMAGE


def test_what_the_form_cannot_show_is_named_and_a_manifest_has_it(
    client_of: Clients, bob: User, llm_team: Project
) -> None:
    row = made(image=IMAGE, workingDir="/data", environmentVariables=[{"name": "A", "value": "two\nlines"}])
    client = client_of(bob)
    page = words(client, f"{SUBMIT}?template={row.pk}")
    assert "The template also sets workingDir, environmentVariables, which this form does not support" in page
    assert f"{TEXT}?template={row.pk}" in page
    text = client.get(TEXT, {"template": str(row.pk)}).context["form"]["text"].value()
    assert "workingDir: /data" in text
    assert text.startswith("# A manifest runs as type Job, not Training")
    assert "two" in text


def test_what_is_not_complete_is_no_manifest_yet(client_of: Clients, bob: User, llm_team: Project) -> None:
    row = made(workingDir="/data")
    page = words(client_of(bob), f"{SUBMIT}?template={row.pk}")
    assert "The template also sets workingDir" in page
    assert TEXT + "?template" not in page


def test_assets_of_a_template_fill_the_form_too(client_of: Clients, bob: User, llm_team: Project) -> None:
    draft = AssetDraft(name="one-gpu", spec={"gpuDevicesRequest": 1, "cpuCoreRequest": 2})
    compute = create_asset(kind="compute", owner=None, draft=draft, actor=SYSTEM)
    wanted = TemplateDraft(name="small", spec={"image": IMAGE}, compute=compute.pk)
    row = create_template(kind="trainings", owner=llm_team, draft=wanted, actor=SYSTEM)
    begun = held(client_of(bob), row)
    assert (begun["gpus"], begun["cpu"], begun["image"], begun["project"]) == ("1", "2", IMAGE, "llm-team")


def test_a_form_that_no_template_can_say_is_told_so(client_of: Clients, bob: User, llm_team: Project) -> None:
    answer = client_of(bob).post(SUBMIT, {**FILLED, "type": "DistributedInference", "keep": "template"})
    assert answer.status_code == 422
    assert "This cannot be saved as a template" in answer.content.decode()
    assert not WorkloadTemplate.objects.exists()


def test_a_workload_of_the_form_becomes_a_template(client_of: Clients, bob: User, llm_team: Project) -> None:
    client = client_of(bob)
    client.post(SUBMIT, FILLED)
    workload = Workload.objects.get()
    assert f"{ADD}?workload={workload.pk}" in words(client, f"/workloads/{workload.pk}/")
    form = client.get(ADD, {"workload": str(workload.pk)}).context["form"]
    kept = {name: form[name].value() for name in form.fields}
    assert (kept["kind"], kept["name"], kept["place"]) == ("trainings", "train", "project llm-team")
    client.post(ADD, {name: value or "" for name, value in kept.items()})
    assert WorkloadTemplate.objects.get().spec["compute"] == {
        "gpuDevicesRequest": 2,
        "cpuCoreRequest": 4,
        "cpuMemoryRequest": "16Gi",
    }


def test_who_only_looks_is_not_asked_to_keep_any(client_of: Clients, bob: User, llm_team: Project) -> None:
    client_of(bob).post(SUBMIT, FILLED)
    viewer = client_of(MembershipFactory(user__username="vera", role=Role.VIEWER, project=llm_team).user)
    workload = Workload.objects.get()
    assert ADD not in words(viewer, f"/workloads/{workload.pk}/")
    assert viewer.get(ADD, {"workload": str(workload.pk)}).status_code == 403


def test_t53_no_template_comes_of_a_foreign_workload_or_of_a_manifest(
    client_of: Clients, bob: User, llm_team: Project, vision_team: Project
) -> None:
    client = client_of(bob)
    foreign, manifest = WorkloadFactory(project=vision_team), WorkloadFactory(project=llm_team)
    for key in (foreign.pk, manifest.pk, uuid4(), "no-uuid"):
        assert client.get(ADD, {"workload": str(key)}).status_code == 404
    assert ADD not in words(client, f"/workloads/{manifest.pk}/")


def test_an_incomplete_form_is_refused_at_its_fields_before_it_is_kept(
    client_of: Clients, bob: User, llm_team: Project
) -> None:
    answer = client_of(bob).post(SUBMIT, {**FILLED, "image": "", "keep": "template"})
    assert answer.status_code == 422
    assert "image" in answer.context["form"].errors


def test_the_submit_page_offers_what_is_visible_by_its_place(
    client_of: Clients, bob: User, charlie: User, research: Department, llm_team: Project, vision_team: Project
) -> None:
    made(name="for-all")
    made(research, name="for-research")
    made(llm_team, name="for-llm")
    made(vision_team, name="for-vision")
    page = words(client_of(bob), SUBMIT)
    assert page.index("for-all") < page.index("for-research") < page.index("for-llm")
    assert 'optgroup label="project llm-team"' in page
    assert "for-vision" not in page
    assert "for-vision" not in words(client_of(bob), LIST)
    assert "for-llm" not in words(client_of(charlie), SUBMIT)


@pytest.mark.parametrize("path", [SUBMIT, TEXT])
def test_t53_a_foreign_or_absent_template_starts_nothing(
    client_of: Clients, bob: User, llm_team: Project, vision_team: Project, path: str
) -> None:
    foreign = made(vision_team)
    client = client_of(bob)
    for key in (str(foreign.pk), str(uuid4()), "no-uuid", "0" * 400):
        assert client.get(path, {"template": key}).status_code == 404
    assert client.get(f"{LIST}{foreign.pk}/").status_code == 404
    assert client.post(f"{LIST}{foreign.pk}/delete/").status_code == 404
    assert WorkloadTemplate.objects.get() == foreign


def test_the_list_says_how_one_comes_to_be_and_then_who_made_it_where(
    client_of: Clients, bob: User, llm_team: Project
) -> None:
    client = client_of(bob)
    assert "choose “Save as template”" in words(client, LIST)
    draft = TemplateDraft(name="mine", description="Small and fast", spec={"image": IMAGE})
    create_template(kind="workspaces", owner=llm_team, draft=draft, actor=acting(bob))
    page = words(client, LIST)
    for part in ("mine", "Small and fast", "workspace", "project llm-team", "bob", "Edit"):
        assert part in page


def test_whoever_made_it_renames_changes_and_deletes_it(client_of: Clients, bob: User, llm_team: Project) -> None:
    draft = TemplateDraft(name="mine", spec={"image": IMAGE}, master_same=True)
    row = create_template(kind="distributed", owner=llm_team, draft=draft, actor=acting(bob))
    client, address = client_of(bob), f"{LIST}{row.pk}/"
    assert "Choose a framework." in words(client, address)
    text = f"image: {IMAGE}\ndistributedFramework: MPI\nnumWorkers: 2\n"
    assert client.post(address, {"name": "ours", "text": text})["Location"] == address
    row.refresh_from_db()
    assert (row.name, row.spec["numWorkers"], row.master_same, row.project) == ("ours", 2, True, llm_team)
    assert client.post(f"{address}delete/")["Location"] == LIST
    assert not WorkloadTemplate.objects.exists()


def test_who_may_not_change_it_reads_it_and_starts_from_it(client_of: Clients, bob: User, llm_team: Project) -> None:
    row = made(image=IMAGE)
    client, address = client_of(bob), f"{LIST}{row.pk}/"
    page = words(client, address)
    assert IMAGE in page
    assert f"{SUBMIT}?template={row.pk}" in page
    assert f"{address}delete/" not in page
    assert client.post(address, {"name": "taken over", "text": ""}).status_code == 403
    assert client.post(f"{address}delete/").status_code == 403
    row.refresh_from_db()
    assert row.name == "notebook"


@pytest.mark.parametrize(
    ("typed", "at"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"description": "x" * 251}, "description"),
        ({"kind": "nim-services"}, "kind"),
        ({"place": "the whole installation"}, "place"),
        ({"place": "project absent"}, "place"),
        ({"text": "a: [1"}, "text"),
        ({"text": "- a"}, "text"),
        ({"text": "image: a\n---\nimage: b"}, "text"),
        ({"text": "a: &x 1\nb: *x"}, "text"),
        ({"text": "image: !!python/object:os.system x"}, "text"),
        ({"text": "numWorkers: " + "9" * 400}, "text"),
        ({"text": "x" * 300_000}, "text"),
        ({"text": "noSuchField: 1"}, "__all__"),
        ({"text": "image: 7"}, "__all__"),
        ({"text": "priorityClass: urgent"}, "__all__"),
        ({"text": "security: {runAsUid: 0}"}, "__all__"),
        ({"text": "environmentVariables: [{name: API_TOKEN, value: hunter-2}]"}, "__all__"),
    ],
)
def test_t59_what_no_template_may_say_is_refused_and_nothing_is_kept(
    client_of: Clients, bob: User, llm_team: Project, typed: dict[str, str], at: str
) -> None:
    good = {"kind": "trainings", "name": "mine", "place": "project llm-team", "text": f"image: {IMAGE}"}
    answer = client_of(bob).post(ADD, {**good, **typed})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [at]
    assert not WorkloadTemplate.objects.exists()


def test_t57_what_a_template_is_called_and_says_is_text(client_of: Clients, bob: User, llm_team: Project) -> None:
    attack = "<script>alert(1)</script>"
    draft = TemplateDraft(name=attack, description=attack, spec={"args": attack})
    row = create_template(kind="trainings", owner=llm_team, draft=draft, actor=acting(bob))
    client = client_of(bob)
    for path in (LIST, f"{LIST}{row.pk}/", SUBMIT, f"{SUBMIT}?template={row.pk}"):
        page = words(client, path)
        assert attack not in page
        assert "&lt;script&gt;" in page


def test_a_name_that_is_taken_is_told_at_the_name(client_of: Clients, bob: User, llm_team: Project) -> None:
    made(llm_team, name="mine")
    typed = {"kind": "trainings", "name": "mine", "place": "project llm-team", "text": ""}
    answer = client_of(bob).post(ADD, typed)
    assert answer.status_code == 422
    assert "already" in answer.context["form"].errors["name"][0]


def test_who_submits_nowhere_keeps_none(client_of: Clients, db: None) -> None:
    stranger = User.objects.create_user("stranger")
    client = client_of(stranger)
    assert ADD not in words(client, LIST)
    assert client.get(ADD).status_code == 403
    assert client.post(ADD, {"name": "x"}).status_code == 403


def test_a_long_list_is_paged_with_as_many_queries(client_of: Clients, bob: User, llm_team: Project) -> None:
    client = client_of(bob)

    def requested(path: str) -> int:
        client.get(path)
        with CaptureQueriesContext(connection) as queries:
            client.get(path)
        return len(queries)

    made(llm_team, name="t-0")
    few = requested(LIST), requested(SUBMIT)
    for number in range(1, 52):
        made(llm_team, name=f"t-{number}")
    assert (requested(LIST), requested(SUBMIT)) == few
    page = client.get(LIST).context["page"]
    last = client.get(LIST, {"after": page.next}).context["page"]
    assert (len(page.rows), len(last.rows)) == (50, 2)
