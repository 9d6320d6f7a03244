"""Submitting by form and by text: the panel beside it, the refusals, and what the form keeps."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.inventory.models import Cluster
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import MembershipFactory, ProjectQuotaFactory
from tests.factories.workloads import WorkloadFactory, job
from workloads.forecast.services import storage
from workloads.lifecycle.selectors.workloads import applied_objects
from workloads.lifecycle.views.detail import applied_yaml
from workloads.state.models import Workload
from workloads.submission.views import EXAMPLES, example_text

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
FORM, TEXT = "/workloads/submit/", "/workloads/submit/yaml/"
CHECK = {"HX-Request": "true", "HX-Target": "forecast"}


@pytest.fixture(autouse=True)
def _observed(cluster: Cluster, settings: Settings) -> None:
    """The cluster was seen 7 s ago, and the factories' registry is allowed."""
    settings.RUNG_IMAGE_REGISTRIES = [*settings.RUNG_IMAGE_REGISTRIES, "registry.example"]
    Cluster.objects.update(observed_at=timezone.now() - timedelta(seconds=7))


def filled(**more: Any) -> dict[str, Any]:
    """A training of one GPU."""
    base = {"project": "llm-team", "type": "Training", "name": "train", "image": "registry.example/team/train:1"}
    return {**base, "gpus": "1", **more}


def manifest(**more: Any) -> dict[str, Any]:
    """The seeds' own PyTorchJob, completed."""
    return {"project": "llm-team", "text": example_text("llm-finetune"), **more}


def panel(client: Client, where: str, sent: dict[str, Any]) -> str:
    answer = client.post(where, sent, headers=CHECK)
    assert answer.status_code == 200
    text = answer.content.decode()
    assert text.lstrip().startswith("<section")
    assert "<html" not in text
    return " ".join(text.split())


def test_a_form_becomes_a_workload_and_leads_to_its_page(client_of: Clients, alice: User) -> None:
    answer = client_of(alice).post(FORM, filled())
    workload = Workload.objects.get()
    assert answer["Location"] == f"/workloads/{workload.pk}/"
    assert (workload.name, workload.type.name, workload.submitted_by, workload.channel) == (
        "train",
        "Training",
        "alice",
        "ui",
    )
    assert (workload.priority.name, workload.priority_source) == ("low", "type")


@pytest.mark.parametrize(
    ("kind", "fields", "gpus", "pods"),
    [
        pytest.param("Workspace", {"port": "8888"}, 1000, 1, id="workspace"),
        pytest.param("Distributed", {"workers": "4"}, 4000, 4, id="distributed training"),
        pytest.param("Inference", {"replicas": "2", "port": "8000"}, 2000, 2, id="inference"),
        pytest.param("NIMInference", {"replicas": "2"}, 2000, 2, id="NIM inference"),
        pytest.param("HuggingFaceInference", {"model": "acme/tiny"}, 1000, 1, id="Hugging Face inference"),
    ],
)
def test_every_card_submits(
    client_of: Clients, admin: User, llm_team: Project, kind: str, fields: dict[str, str], gpus: int, pods: int
) -> None:
    assert client_of(admin).post(FORM, filled(type=kind, **fields)).status_code == 302
    workload = Workload.objects.get()
    assert (workload.type.name, workload.gpu_milli, workload.pod_count) == (kind, gpus, pods)


def test_the_panel_says_pair_and_source_verdict_flavour_and_age(client_of: Clients, alice: User) -> None:
    text = panel(client_of(alice), FORM, filled())
    assert "priority low, 40, rung 2 of 7" in text
    assert "default for Standard training" in text
    assert "Starts now in h100" in text
    assert "Estimated with the KAI Scheduler model" in text
    assert "from data 7 s old. Nothing is reserved." in text
    assert "simulated" in text
    assert not Workload.objects.exists()


@pytest.mark.parametrize("where", [FORM, TEXT])
def test_newer_typing_cancels_the_preview_that_is_under_way(client_of: Clients, alice: User, where: str) -> None:
    page = client_of(alice).get(where).content.decode()
    [form] = [each for each in page.split("<form") if 'id="submit-form"' in each]
    assert 'hx-target="#forecast"' in form
    assert 'hx-sync="this:replace"' in form


def test_the_panel_says_when_too_many_previews_were_asked_for(
    client_of: Clients, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "FORECASTS_A_MINUTE", 1)
    assert "Starts now in h100" in panel(client_of(alice), FORM, filled())
    assert "forecasts a minute. Wait and try again." in panel(client_of(alice), FORM, filled())
    assert client_of(alice).post(FORM, filled()).status_code == 302


def documents(*names: str) -> dict[str, Any]:
    """One Job of 4 non-preemptible GPUs each: as much as the project deserves."""
    texts = [json.dumps(job(name, gpus=4)) for name in names]
    return {"project": "llm-team", "text": "\n---\n".join(texts), "priority": "high"}


def test_a_preview_of_several_documents_counts_those_above_each(client_of: Clients, alice: User) -> None:
    text = panel(client_of(alice), TEXT, documents("one", "two"))
    assert text.count("Each workload is previewed as if those above it were submitted before it.") == 1
    assert text.count("Starts now in h100") == 1
    assert "Waits: it needs 4 GPUs in h100; 0 of the 4 GPUs that project llm-team deserves are free" in text
    assert "previewed as if" not in panel(client_of(alice), TEXT, documents("one"))


@pytest.mark.parametrize("flavour", ["kube", "kueue"])
def test_a_preview_that_cannot_count_the_documents_above_says_so(
    client_of: Clients, alice: User, cluster: Cluster, flavour: str
) -> None:
    Cluster.objects.update(flavour=flavour)
    text = panel(client_of(alice), TEXT, documents("one", "two"))
    assert "Each document is previewed alone, as if the others were not submitted." in text
    assert "Together they may not all start." in text


def test_the_form_names_the_nodes_that_exist(client_of: Clients, alice: User) -> None:
    assert "The largest node has 8 GPUs." in client_of(alice).get(FORM).content.decode()


def test_the_panel_warns_of_what_the_threshold_does(client_of: Clients, alice: User) -> None:
    text = panel(client_of(alice), FORM, filled(priority="high"))
    assert "non-preemptible" in text
    assert "because the priority is 100 or higher" in text
    assert "it can no longer use over-quota resources" in text


def test_the_panel_shows_the_numbers_of_a_refusal_and_the_way_out(client_of: Clients, alice: User) -> None:
    text = panel(client_of(alice), FORM, filled(gpus="8", preemptibility="non-preemptible"))
    assert "8 GPU" in text
    assert "deserves 4 GPU" in text
    assert "data-fill" in text
    assert "Make it preemptible" in text


def test_an_unfinished_form_is_not_scolded_while_it_is_filled_in(client_of: Clients, alice: User) -> None:
    text = panel(client_of(alice), FORM, filled(name="", image=""))
    assert "Enter the required fields first: Name, Image." in text


def test_a_refused_form_keeps_everything_and_marks_the_field(client_of: Clients, alice: User) -> None:
    sent = filled(name="Not A Name", gpus="1.5", command="python 'train.py", environment="A=1\nB=two words", cpu="4")
    answer = client_of(alice).post(FORM, sent)
    assert answer.status_code == 422
    form = answer.context["form"]
    assert {name: form[name].value() for name in sent} == sent
    page = answer.content.decode()
    assert 'aria-invalid="true"' in page
    assert not Workload.objects.exists()


def test_every_problem_is_shown_at_its_field(client_of: Clients, alice: User) -> None:
    form = client_of(alice).post(FORM, filled(name="Not A Name", gpus="-1")).context["form"]
    assert set(form.errors) == {"name", "gpus"}


def test_a_line_of_the_environment_without_a_sign_is_named(client_of: Clients, alice: User) -> None:
    form = client_of(alice).post(FORM, filled(environment="A=1\nnonsense")).context["form"]
    assert form.errors["environment"] == ["Line 2 has no “=”."]


def test_a_page_sent_twice_submits_once(client_of: Clients, alice: User) -> None:
    client = client_of(alice)
    key = client.get(FORM).context["form"]["key"].value()
    first, second = (client.post(FORM, filled(key=str(key)))["Location"] for _ in range(2))
    assert first == second
    assert Workload.objects.count() == 1


def test_t52_fields_that_are_not_asked_for_are_ignored(client_of: Clients, alice: User) -> None:
    more = {"submitted_by": "bob", "phase": "Running", "priority_value": "1000", "cluster": "x", "is_staff": "on"}
    client_of(alice).post(FORM, filled(**more))
    workload = Workload.objects.get()
    assert (workload.submitted_by, workload.phase, workload.priority_value) == ("alice", "Creating", 40)


@pytest.mark.parametrize("where", [FORM, TEXT])
def test_t52_nobody_submits_into_a_foreign_project(
    client_of: Clients, alice: User, vision_team: Project, where: str
) -> None:
    sent = filled(project="vision-team") if where == FORM else manifest(project="vision-team")
    foreign = client_of(alice).post(where, sent)
    absent = client_of(alice).post(where, {**sent, "project": "no-such-project"})
    assert foreign.status_code == absent.status_code == 422
    assert "vision-team is not one of" in foreign.content.decode()
    assert not Workload.objects.exists()


def test_a_manifest_becomes_a_workload_and_its_text_is_kept(client_of: Clients, admin: User, llm_team: Project) -> None:
    assert client_of(admin).post(TEXT, manifest()).status_code == 302
    workload = Workload.objects.get()
    assert (workload.name, workload.type.name, workload.gpu_milli) == ("llm-finetune", "PyTorchJob", 8000)
    assert workload.raw == {"text": example_text("llm-finetune")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_one_click_away_and_readable(client_of: Clients, alice: User, name: str) -> None:
    client = client_of(alice)
    assert f"?example={name}" in client.get(TEXT).content.decode()
    page = client.get(f"{TEXT}?example={name}")
    assert page.context["form"]["text"].value() == example_text(name)
    checked = client.post(TEXT, manifest(text=example_text(name)), headers=CHECK)
    assert len(checked.context["forecasts"]) == 1


@pytest.mark.parametrize("name", ["../../settings", "/etc/passwd", "llm-finetune/../llm-finetune", "%00"])
def test_t68_an_example_is_named_not_found_by_path(client_of: Clients, alice: User, name: str) -> None:
    assert client_of(alice).get(TEXT, {"example": name}).context["form"]["text"].value() == ""


def test_problems_of_a_text_have_line_and_pointer(client_of: Clients, alice: User) -> None:
    text = example_text("llm-finetune").replace(
        "          containers:", "          hostNetwork: true\n          containers:", 1
    )
    shown = panel(client_of(alice), TEXT, manifest(text=text))
    assert "Rejected" in shown
    assert "Line " in shown
    assert "hostNetwork" in shown


def test_a_choice_on_the_page_beats_the_label_and_says_so(client_of: Clients, alice: User) -> None:
    text = example_text("llm-finetune").replace("metadata:", "metadata:\n  labels: {priorityClassName: very-high}", 1)
    if "labels:" in example_text("llm-finetune").split("spec:")[0]:
        pytest.fail("the example brings labels of its own: write this test's text out")
    shown = panel(client_of(alice), TEXT, manifest(text=text, priority="low"))
    assert "Priority “very-high” (label) is ignored: the explicit value low applies." in shown


def test_t57_a_refused_text_comes_back_as_text(client_of: Clients, alice: User) -> None:
    evil = "kind: </textarea><script>alert(1)</script>\napiVersion: v1\n"
    answer = client_of(alice).post(TEXT, manifest(text=evil))
    assert answer.status_code == 422
    assert "<script>alert" not in answer.content.decode()
    assert answer.context["form"]["text"].value() == evil


def test_no_document_no_workload(client_of: Clients, alice: User) -> None:
    answer = client_of(alice).post(TEXT, manifest(text="---\n---\n"))
    assert answer.status_code in {400, 422}
    assert not Workload.objects.exists()


def test_all_documents_or_none(client_of: Clients, alice: User) -> None:
    both = f"{example_text('training-job-1')}\n---\n{example_text('training-job-1')}"
    assert client_of(alice).post(TEXT, manifest(text=both)).status_code == 422
    assert not Workload.objects.exists()


def test_a_clone_carries_manifest_and_chosen_pair(client_of: Clients, llm_team: Project, alice: User) -> None:
    workload = WorkloadFactory.create(project=llm_team, name="first")
    form = client_of(alice).get(f"{TEXT}?clone={workload.pk}").context["form"]
    assert "name: first-copy" in form["text"].value()
    assert (form["priority"].value(), form["preemptibility"].value()) == ("low", "preemptible")
    sent = {name: form[name].value() for name in ("project", "text", "priority", "preemptibility")}
    assert client_of(alice).post(TEXT, sent).status_code == 302
    assert Workload.objects.filter(name="first-copy").exists()


def test_a_viewer_of_a_project_is_offered_no_project_to_submit_to(client_of: Clients, llm_team: Project) -> None:
    viewer = MembershipFactory.create(project=llm_team, role="viewer").user
    assert client_of(viewer).post(FORM, filled()).status_code == 422
    assert not Workload.objects.exists()


def test_only_types_that_a_cluster_of_ones_own_serves_are_offered(client_of: Clients, alice: User) -> None:
    """LeaderWorkerSet and three frameworks are not installed there."""
    served = ["apps/v1 Deployment", "apps/v1 StatefulSet", "batch/v1 Job", "kubeflow.org/v1 PyTorchJob"]
    Cluster.objects.update(served_kinds=served)
    form = client_of(alice).get(FORM).context["form"]
    assert "DistributedInference" not in dict(form.fields["type"].choices)
    assert [name for name, _title in form.fields["type"].choices][:3] == ["Training", "Workspace", "Distributed"]
    assert [name for name, _title in form.fields["framework"].choices] == ["PyTorch"]
    refused = client_of(alice).post(FORM, filled(type="DistributedInference"))
    assert refused.status_code == 422
    assert not Workload.objects.exists()


def test_a_manifest_of_a_kind_that_is_not_served_names_kind_and_cluster(client_of: Clients, alice: User) -> None:
    Cluster.objects.update(served_kinds=["batch/v1 Job"])
    cluster = Cluster.objects.get().name
    shown = panel(client_of(alice), TEXT, manifest())
    assert f"Cluster {cluster} does not serve kubeflow.org/v1 PyTorchJob: its operator is not installed" in shown
    answer = client_of(alice).post(TEXT, manifest())
    assert answer.status_code == 422
    assert "does not serve kubeflow.org/v1 PyTorchJob" in answer.content.decode()
    assert not Workload.objects.exists()


def test_pools_are_chosen_in_order_and_the_panel_says_which_one_it_is(
    client_of: Clients, alice: User, llm_team: Project
) -> None:
    ProjectQuotaFactory(project=llm_team, node_pool=NodePoolFactory(cluster=llm_team.cluster, name="empty"))
    sent = filled(node_pool="empty", second_pool="h100", third_pool="empty")
    shown = panel(client_of(alice), FORM, sent)
    assert "Starts after 30 s in h100" in shown
    assert "In its first choice, it waits for the node pool empty, which has no nodes. Rung tries h100 after" in shown
    client_of(alice).post(FORM, sent)
    assert Workload.objects.get().node_pools == ["empty", "h100"]


def test_what_the_scheduler_has_nothing_for_is_shown_at_its_field(
    client_of: Clients, admin: User, llm_team: Project
) -> None:
    Cluster.objects.update(flavour="kube")
    sent = filled(type="Distributed", workers="4", min_member="2", topology_key="rack")
    form = client_of(admin).post(FORM, sent).context["form"]
    assert form.errors["min_member"] == [
        f"2 pods cannot start together: kube-scheduler on {llm_team.cluster.name} starts pods one by one."
    ]


@pytest.mark.parametrize(("flavour", "hint"), [("kube", "A whole number."), ("kai", "or a fraction such as 0.5")])
def test_a_share_of_a_gpu_is_offered_only_where_the_scheduler_shares_them(
    client_of: Clients, alice: User, llm_team: Project, flavour: str, hint: str
) -> None:
    Cluster.objects.update(flavour=flavour)
    answer = client_of(alice).post(FORM, filled(gpus="0.5"))
    assert Workload.objects.exists() == (flavour == "kai")
    if flavour == "kube":
        form = answer.context["form"]
        assert answer.status_code == 422
        assert form.errors["gpus"] == [
            f"A pod requests 0.5 of a GPU. kube-scheduler on {llm_team.cluster.name} supports whole GPUs only; KAI "
            "Scheduler supports GPU sharing."
        ]
    assert hint in client_of(alice).get(FORM).context["form"].fields["gpus"].help_text


def test_fields_that_a_type_does_not_show_mean_nothing(client_of: Clients, alice: User) -> None:
    client_of(alice).post(FORM, filled(min_member="7", topology_key="rack", model="../x"))
    assert not Workload.objects.get().spec["annotations"]


def test_the_panel_shows_the_object_that_a_submission_applies(client_of: Clients, alice: User) -> None:
    shown = client_of(alice).post(FORM, filled(), headers=CHECK).context["objects"]
    client_of(alice).post(FORM, filled())
    workload = Workload.objects.get()
    applied = applied_yaml(applied_objects(workload))
    assert "schedulerName: kai-scheduler" in applied
    assert shown.replace(str(UUID(int=0)), str(workload.pk)).replace("0" * 8, workload.pk.hex[:8]) == applied


@pytest.mark.parametrize("where", [FORM, TEXT])
def test_the_panel_refuses_a_name_that_is_taken_as_a_submission_does(
    client_of: Clients, alice: User, llm_team: Project, where: str
) -> None:
    WorkloadFactory(project=llm_team, name="train")
    sent = filled() if where == FORM else {"project": "llm-team", "text": json.dumps(job("train"))}
    text = panel(client_of(alice), where, sent)
    assert "llm-team already has a workload named train." in text
    assert "Starts now" not in text
