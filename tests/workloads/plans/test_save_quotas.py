"""Saving the quotas page opens a plan; what the plan refuses is shown at its cell."""

from collections.abc import Callable

import pytest
from django.test import Client

from clusters.inventory.models import Cluster, NodePool
from scheduling.model.resources import Resources
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger, acting
from tests.factories.tenants import GPU
from tests.tenants.quotas.test_quotas_page import PAGE, cell, cells, read, words
from workloads.plans.models import Plan
from workloads.plans.services.plans import apply_plan, plan_inverse

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


@pytest.fixture
def page(client_of: Clients, admin: User, llm_team: Project, vision_team: Project) -> Client:
    """A platform admin's browser; KAI."""
    Cluster.objects.update(flavour="kai")
    return client_of(admin)


def save(client: Client, changes: dict[str, str], reason: str = "More work") -> tuple[int, str]:
    """The status, and where it goes or what the page says."""
    answer = client.post(PAGE, {**cells(read(client)), **changes, "do": "save", "reason": reason})
    return answer.status_code, answer["Location"] if answer.status_code == 302 else answer.content.decode()


def test_saving_opens_one_plan_of_all_edited_cells(
    page: Client, admin: User, llm_team: Project, research: Department
) -> None:
    changes = {
        cell(llm_team, "gpu_deserved"): "10",
        cell(research, "gpu_deserved"): "12",
        cell(research, "rank"): "high",
    }
    status, at = save(page, changes)
    plan = Plan.objects.get()
    assert (status, at) == (302, f"/plans/{plan.pk}/")
    assert plan.change == {
        "quotas": [
            {
                "department": "research",
                "cluster": "lab",
                "pool": "h100",
                "values": {"gpu_deserved": 12 * GPU, "rank": "high"},
            },
            {"project": "llm-team", "cluster": "lab", "pool": "h100", "values": {"gpu_deserved": 10 * GPU}},
        ],
        "reason": "More work",
    }
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 4 * GPU
    applied = apply_plan(plan=plan, actor=acting(admin))
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 10 * GPU
    assert DepartmentQuota.objects.get(department=research).rank == "high"
    apply_plan(plan=plan_inverse(plan=applied, actor=acting(admin)), actor=acting(admin))
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 4 * GPU


def test_what_the_plan_refuses_is_shown_at_its_cell_and_all_that_was_typed_stays(
    page: Client, llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    held = Resources.of(gpu=3)
    ledger.holds(vision_team, h100, Usage(held, held, held))
    status, text = save(page, {cell(llm_team, "gpu_limit"): "14", cell(vision_team, "gpu_deserved"): "1"})
    assert status == 422
    row = text.split(f'id="id_{cell(vision_team, "gpu_deserved")}_error"')[1].split("</td>")[0]
    assert "Non-preemptible workloads use 3 GPUs, more than 1 GPU." in words(row)
    kept = cells(text)
    assert (kept[cell(llm_team, "gpu_limit")], kept[cell(vision_team, "gpu_deserved")]) == ("14", "1")
    assert kept[f"initial-{cell(llm_team, 'gpu_limit')}"] == "12"
    assert 'value="More work"' in text
    assert not Plan.objects.exists()


def test_a_bad_cell_a_missing_reason_and_no_edit_open_no_plan(page: Client, llm_team: Project) -> None:
    for changes, reason, said in (
        ({cell(llm_team, "gpu_deserved"): "-1"}, "More work", "out of range"),
        ({cell(llm_team, "gpu_deserved"): "5"}, "", "This field is required."),
        ({}, "More work", "No cell was edited."),
    ):
        status, text = save(page, changes, reason)
        assert status == 422
        assert said in words(text)
    assert not Plan.objects.exists()


def test_an_enforced_sum_is_refused_at_the_department_or_its_project(
    page: Client, llm_team: Project, research: Department
) -> None:
    Department.objects.update(enforce_deserved=True)
    status, text = save(page, {cell(llm_team, "gpu_deserved"): "9"})
    assert status == 422
    assert "the projects of research deserve 9 GPUs in total, but the department 8 GPUs" in words(text)


def test_a_member_cannot_save(client_of: Clients, page: Client, bob: User, llm_team: Project) -> None:
    sent = {cell(llm_team, name): value for name, value in (("gpu_deserved", "9"), ("rank", "high"))}
    status, _text = save(client_of(bob), sent)
    assert status == 422
    assert not Plan.objects.exists()
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 4 * GPU
