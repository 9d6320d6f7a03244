"""Change plans from the command line."""

import pytest

from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.cli.conftest import Rung
from tests.factories.tenants import GPU
from workloads.plans.models import Plan
from workloads.plans.services.plans import plan_change


@pytest.fixture
def plan(llm_team: Project) -> Plan:
    change = {"project": "llm-team", "pool": "h100", "values": {"gpu_deserved": 9 * GPU}, "reason": "More"}
    return plan_change(kind="project_quota", change=change, actor=SYSTEM)


def test_a_plan_is_listed_shown_applied_and_rolled_back(admin: Rung, plan: Plan) -> None:
    key = str(plan.pk)
    header, row = admin("plan", "list", "--state", "open").out.splitlines()
    assert header.split()[:2] == ["ID", "TITLE"]
    assert row.split()[0] == key
    shown = admin("plan", "show", key)
    assert shown.code == 0, shown.err
    assert "Project llm-team in h100: GPUs deserved 4 GPUs → 9 GPUs" in shown.out
    assert "projects of research in h100 of lab: 4 -> 9 GPUs deserved; department quota 8" in shown.out
    applied = admin("plan", "apply", key, "--yes")
    assert applied.code == 0, applied.err
    assert ProjectQuota.objects.get(project__name="llm-team").gpu_deserved == 9 * GPU
    back = admin("plan", "rollback", key, "-o", "name").out.strip()
    assert admin("plan", "apply", back, "--yes", "-o", "json").data["rollsBack"] == key
    assert ProjectQuota.objects.get(project__name="llm-team").gpu_deserved == 4 * GPU


def test_a_discarded_plan_is_not_applied(admin: Rung, plan: Plan) -> None:
    assert "Nothing was changed" in admin("plan", "discard", str(plan.pk)).out
    refused = admin("plan", "apply", str(plan.pk), "--yes")
    assert refused.code != 0
    assert "already applied or discarded" in refused.err
    assert ProjectQuota.objects.get(project__name="llm-team").gpu_deserved == 4 * GPU
