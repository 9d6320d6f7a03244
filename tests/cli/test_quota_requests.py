"""Quota requests from the command line: asked for, listed, reviewed, approved, declined, withdrawn."""

from datetime import date, timedelta

import pytest
from django.utils import timezone

from clusters.inventory.models import NodePool
from rung_cli.errors import ExitCode
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.cli.conftest import Rung
from tests.factories.tenants import GPU, ProjectFactory
from tests.workloads.dictionary.test_eviction_matrix import runs
from workloads.plans.models import Plan
from workloads.quota_requests.models import QuotaRequest

ASK = ("quota", "request", "2", "-p", "llm-team", "--pool", "h100", "--reason", "Paper deadline")


@pytest.fixture
def requested(admin: Rung, llm_team: Project) -> str:
    """Id of a request."""
    made = admin(*ASK, "-o", "json")
    assert made.code == 0, made.err
    return str(made.data["id"])


def test_a_request_is_shown_with_what_it_would_change(signed_in: Rung, llm_team: Project) -> None:
    made = signed_in(*ASK, "--until", "2099-01-01")
    assert made.code == 1
    assert "Must be from today to" in made.err
    made = signed_in(*ASK)
    assert made.code == 0, made.err
    lines = made.out.splitlines()
    assert lines[0].endswith(": 2 GPUs more for llm-team in h100")
    assert lines[1].startswith("State: open. Requested by ")
    assert "Deserved: 4 → 6 GPUs, limit 12 → 14." in lines
    assert "Department research: its projects 4 → 6 of 8 GPUs." in lines
    assert "Pool h100: all projects 4 → 6 of 16 GPUs." in lines


def test_it_names_what_can_be_reclaimed_then(signed_in: Rung, llm_team: Project, h100: NodePool) -> None:
    runs(ProjectFactory(department=llm_team.department, name="nlp-team"), h100, 3)
    made = signed_in(*ASK)
    runs(llm_team, h100, 4)
    signed_in("quota", "withdraw", made.out.partition(":")[0])
    assert "Can reclaim: llm-team from another project 0 → 2 GPUs." in signed_in(*ASK).out


def test_the_node_pool_has_to_be_named_where_there_are_several(signed_in: Rung, llm_team: Project) -> None:
    ended = signed_in("quota", "request", "2", "-p", "llm-team", "--reason", "why")
    assert (ended.code, "Node pools:" in ended.err) == (64, True)
    ended = signed_in("quota", "request", "2", "-p", "llm-team", "--reason", "why", "--pool", "h200")
    assert (ended.code, "--pool h200: unknown." in ended.err) == (64, True)


def test_an_absurd_size_is_answered_with_the_largest(signed_in: Rung, llm_team: Project) -> None:
    ended = signed_in(*("1e9" if word == "2" else word for word in ASK))
    assert ended.code == 1
    assert "h100 has 16 GPUs in total." in ended.err


def test_it_is_listed_reviewed_and_approved_in_part(admin: Rung, requested: str, llm_team: Project) -> None:
    header, row = admin("quota", "list", "--to-decide").out.splitlines()
    assert header.split()[:4] == ["ID", "PROJECT", "POOL", "GPUS"]
    assert row.split()[:4] == [requested, "llm-team", "h100", "2"]
    assert admin("quota", "approve", requested).code == 64
    kept = admin("quota", "approve", requested, "--gpus", "1", stdin="n\n", terminal=True)
    assert (kept.code, "Deserved: 4 → 5 GPUs" in kept.err) == (1, True)
    done = admin("quota", "approve", requested, "--gpus", "1", "--reason", "For now", "--yes")
    assert done.code == 0, done.err
    assert "granted 1 of 2 GPUs. For now" in done.out
    header, row = admin("quota", "list").out.splitlines()
    assert header.split()[3:5] == ["GPUS", "GRANTED"]
    assert row.split()[3:5] == ["2", "1"]
    assert "On the cluster: not yet." in done.out
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 5 * GPU
    assert "No requests to decide." in admin("quota", "list", "--to-decide").out
    assert admin("quota", "show", requested, "-o", "json").data["state"] == "approved"


def test_a_moved_base_is_reviewed_again(admin: Rung, requested: str, llm_team: Project) -> None:
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=5 * GPU)
    refused = admin("quota", "approve", requested, "--yes")
    assert refused.code == 1
    assert "Review the new impact" in refused.err
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=6 * GPU)
    done = admin("quota", "approve", requested, stdin="y\n", terminal=True)
    assert done.code == 0, done.err
    assert "Quotas have changed since the impact was computed." in done.err
    assert "Deserved: 6 → 8 GPUs" in done.err
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 8 * GPU


def test_it_is_declined_or_withdrawn(admin: Rung, requested: str) -> None:
    assert admin("quota", "decline", requested).code == 64
    done = admin("quota", "decline", requested, "--reason", "Use a100")
    assert "State: declined." in done.out
    again = admin(*ASK, "-o", "name").out.strip()
    assert "State: withdrawn." in admin("quota", "withdraw", again).out
    assert set(QuotaRequest.objects.values_list("state", flat=True)) == {"declined", "withdrawn"}


def test_without_requests_the_list_says_how_to_ask(signed_in: Rung, llm_team: Project) -> None:
    assert signed_in("quota", "list").out == "No quota requests. Ask with: rung quota request GPUS\n"


def test_the_quota_itself_is_still_shown(signed_in: Rung, llm_team: Project) -> None:
    assert "llm-team" in signed_in("quota", "-p", "llm-team").out


def test_a_number_that_json_does_not_have_is_a_misuse(signed_in: Rung, llm_team: Project) -> None:
    ended = signed_in("quota", "request", "nan", *ASK[3:])
    assert (ended.code, "Invalid request: " in ended.err) == (ExitCode.USAGE, True), ended.err


def test_the_list_has_the_last_day_that_was_granted(admin: Rung, requested: str) -> None:
    row = QuotaRequest.objects.get(pk=requested)
    row.state, row.granted_milli, row.decided_at = "approved", GPU, timezone.now()
    row.until, row.granted_until = date(2099, 12, 31), date(2099, 12, 1)
    row.save()
    assert "2099-12-01" in admin("quota", "list").out
    assert "2099-12-31" not in admin("quota", "list").out


def test_an_approval_that_a_second_admin_has_to_approve_becomes_a_plan(
    admin: Rung, requested: str, llm_team: Project
) -> None:
    rule = admin("plan", "approval", "--department", "research", "--require", "-o", "name").out.strip()
    assert admin("plan", "apply", rule, "--yes").code == 0
    refused = admin("quota", "approve", requested, "--yes")
    assert (refused.code, "add --plan" in refused.err) == (ExitCode.REFUSED, True), refused.err
    day = f"{timezone.now() + timedelta(days=30):%Y-%m-%d}"
    made = admin("quota", "approve", requested, "--gpus", "1", "--until", day, "--reason", "Part", "--plan")
    assert made.code == 0, made.err
    assert "GPUs deserved 4 → 5" in made.out
    assert "needs approval" in made.out
    plan = Plan.objects.get(kind="quota_request")
    assert str(plan.pk) in made.out
    assert (plan.change["until"], plan.change["reason"]) == (day, "Part")
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 4 * GPU


def test_another_refusal_of_an_approval_does_not_name_the_plan(admin: Rung, requested: str) -> None:
    assert admin("quota", "approve", requested, "--yes").code == 0
    refused = admin("quota", "approve", requested, "--yes")
    assert (refused.code, "--plan" in refused.err) == (ExitCode.REFUSED, False), refused.err
