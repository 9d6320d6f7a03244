"""Workload types that are withdrawn: planned on the page, kept out of forms and presets, offered again."""

from collections.abc import Callable

import pytest
from django.test import Client

from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.workloads import WorkloadFactory
from workloads.dictionary.models import WorkloadType
from workloads.dictionary.rules.drafts import (
    Answer,
    Draft,
    DraftType,
    change_type,
    mapped_types,
    offer_type,
    rename,
    retire,
    withdraw_type,
)
from workloads.dictionary.rules.presets import PRESETS
from workloads.dictionary.selectors import current_draft
from workloads.plans.models import Plan

Clients = Callable[[User], Client]


def planned(client: Client, where: str, sent: dict[str, str] | None = None) -> Plan:
    """The plan that a page has made, not applied yet."""
    answer = client.post(where, sent or {})
    assert answer.status_code == 302, answer.content.decode()
    return Plan.objects.latest("created_at")


def applied(client: Client, where: str, sent: dict[str, str] | None = None) -> None:
    assert client.post(f"/plans/{planned(client, where, sent).pk}/apply/")["Location"] == "/types/"


@pytest.fixture
def pytorch(db: None) -> WorkloadType:
    return WorkloadType.objects.get(name="PyTorchJob")


def test_a_withdrawal_is_planned_with_what_there_is_of_the_type(
    client_of: Clients, admin: User, llm_team: Project, pytorch: WorkloadType
) -> None:
    client = client_of(admin)
    WorkloadFactory(project=llm_team, type=pytorch)
    WorkloadFactory(project=llm_team, type=pytorch, running_pods=2)
    plan = planned(client, f"/types/{pytorch.pk}/withdraw/")
    page = client.get(f"/plans/{plan.pk}/").content.decode()
    assert "PyTorchJob is disabled; 2 workloads of it go on, 1 with running pods." in page
    assert "workload_properties.delete_workload_type" in page
    pytorch.refresh_from_db()
    assert pytorch.withdrawn_at is None


def test_a_withdrawn_type_is_in_a_section_of_its_own_and_comes_back_from_there(
    client_of: Clients, admin: User, pytorch: WorkloadType
) -> None:
    client = client_of(admin)
    assert "Withdrawn" not in client.get("/types/").content.decode()
    applied(client, f"/types/{pytorch.pk}/withdraw/")
    page = client.get("/types/").content.decode()
    assert page.index("Disabled workload types") < page.rindex("PyTorchJob")
    assert client.get(f"/types/{pytorch.pk}/").status_code == 404
    offering = f"/types/{pytorch.pk}/offer/"
    assert "Enable PyTorch training" in client.get(offering).content.decode()
    applied(client, offering, {"category": "Train", "priority": "medium", "preemptibility": "preemptible"})
    pytorch.refresh_from_db()
    assert (pytorch.withdrawn_at, pytorch.priority.name if pytorch.priority else "") == (None, "medium")
    assert client.get(offering).status_code == 404


def test_the_form_no_longer_has_a_withdrawn_type(client_of: Clients, admin: User, llm_team: Project) -> None:
    client = client_of(admin)
    training = WorkloadType.objects.get(name="Training")
    applied(client, f"/types/{training.pk}/withdraw/")
    assert 'value="Training"' not in client.get("/workloads/submit/").content.decode()
    sent = {"project": "llm-team", "type": "Training", "name": "t", "image": "docker.io/a/b:1", "gpus": "1"}
    assert client.post("/workloads/submit/", sent).status_code == 422


def test_a_plan_of_a_type_does_not_outlive_its_withdrawal(
    client_of: Clients, admin: User, pytorch: WorkloadType
) -> None:
    client = client_of(admin)
    sent = {"category": "Train", "priority": "high", "preemptibility": "preemptible"}
    old = planned(client, f"/types/{pytorch.pk}/", sent)
    applied(client, f"/types/{pytorch.pk}/withdraw/")
    assert "It cannot be applied." in client.post(f"/plans/{old.pk}/apply/", follow=True).content.decode()
    old.refresh_from_db()
    assert old.applied_at is None


def test_only_those_who_manage_the_dictionary_see_and_use_the_buttons(
    client_of: Clients, alice: User, pytorch: WorkloadType
) -> None:
    client = client_of(alice)
    assert "withdraw/" not in client.get("/types/").content.decode()
    for page in ("withdraw", "offer"):
        assert client.post(f"/types/{pytorch.pk}/{page}/").status_code == 403


def test_presets_leave_withdrawn_types_alone(pytorch: WorkloadType) -> None:
    draft, preset = current_draft(), next(each for each in PRESETS.values() if each.asks_preemptibility)
    assert "PyTorchJob" in mapped_types(draft, preset)
    after = withdraw_type(draft, "PyTorchJob")
    assert isinstance(after, Draft)
    assert "PyTorchJob" not in mapped_types(after, preset)


GONE = DraftType("Job", "Build", "old", "preemptible", withdrawn=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(lambda draft: withdraw_type(draft, "Job"), ("", "type_withdrawn"), id="twice"),
        pytest.param(lambda draft: change_type(draft, "Job", priority="low"), ("", "type_withdrawn"), id="changed"),
        pytest.param(
            lambda draft: offer_type(draft, "Job"), ("/priority", "priority_unknown"), id="back with a retired default"
        ),
        pytest.param(
            lambda draft: offer_type(draft, "Job", category="Play"), ("/priority", "priority_unknown"), id="all told"
        ),
    ],
)
@pytest.mark.django_db
def test_what_a_withdrawn_type_refuses(change: Callable[[Draft], Answer], problem: tuple[str, str]) -> None:
    base = current_draft()
    renamed = rename(base, "low", "old")
    assert isinstance(renamed, Draft)
    without = retire(renamed, "old")
    assert isinstance(without, Draft)
    answer = change(without.with_types(GONE))
    assert isinstance(answer, list)
    assert (answer[0].pointer, answer[0].code) == problem
