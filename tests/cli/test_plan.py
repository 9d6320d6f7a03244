"""Change plans from the command line."""

import re

import pytest

from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tests.cli.conftest import Rung
from tests.factories.clusters import ClusterFactory
from tests.factories.tenants import GPU
from tests.workloads.dictionary.test_plans import change
from workloads.dictionary.services.plans import plan_priority_change
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
    assert "Project llm-team in h100: GPUs deserved 4 → 9" in shown.out
    assert re.search(r"^Reason +More$", shown.out, re.MULTILINE)
    assert "projects of research in h100 of lab: 4 -> 9 GPUs deserved; department quota 8" in shown.out
    applied = admin("plan", "apply", key, "--yes")
    assert applied.code == 0, applied.err
    assert "Clusters are being updated." in applied.out
    assert ProjectQuota.objects.get(project__name="llm-team").gpu_deserved == 9 * GPU
    assert re.search(r"^lab: not synced since, next try 2", admin("plan", "show", key).out, re.MULTILINE)
    back = admin("plan", "rollback", key, "-o", "name").out.strip()
    assert admin("plan", "apply", back, "--yes", "-o", "json").data["rollsBack"] == key
    assert ProjectQuota.objects.get(project__name="llm-team").gpu_deserved == 4 * GPU


def test_a_plan_of_a_priority_names_who_can_evict_whom_on_each_cluster(admin: Rung, llm_team: Project) -> None:
    ClusterFactory(name="plain", flavour="kube")
    ClusterFactory(name="ash", flavour="volcano")
    plan = plan_priority_change(change=change("medium", value=130), actor=SYSTEM)
    shown = admin("plan", "show", str(plan.pk))
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    first = lines.index(next(line for line in lines if line.startswith("Evictions on plain (kube-scheduler):")))
    assert "  medium can now evict high" in lines[first:]
    last = next(line for line in lines if line.startswith("Evictions on ash (Volcano): no priority evicts another."))
    assert "Assumption: Volcano neither preempts nor reclaims" in last
    assert lines[lines.index(last) + 1] == "  no pair of priorities changes"


def test_a_plan_of_a_scheduler_names_the_pairs_that_evict_other_workloads(admin: Rung, llm_team: Project) -> None:
    plan = plan_change(kind="scheduler", change={"cluster": "lab", "flavour": "kueue"}, actor=SYSTEM)
    lines = admin("plan", "show", str(plan.pk)).out.splitlines()
    (first,) = (line for line in lines if line.startswith("Evictions on lab (Kueue):"))
    reach = "within one queue, preemptible workloads only -> within one queue, including non-preemptible workloads."
    assert reach in first
    assert "  low can now evict non-preemptible workloads, too, of very-low" in lines
    assert "  no pair of priorities changes" not in lines


def test_a_discarded_plan_is_not_applied(admin: Rung, plan: Plan) -> None:
    assert "Nothing was changed" in admin("plan", "discard", str(plan.pk)).out
    refused = admin("plan", "apply", str(plan.pk), "--yes")
    assert refused.code != 0
    assert "already applied or discarded" in refused.err
    assert ProjectQuota.objects.get(project__name="llm-team").gpu_deserved == 4 * GPU


def test_a_plan_of_another_admin_is_approved_where_it_has_to_be(admin: Rung, plan: Plan) -> None:
    assert admin("plan", "approval").out.strip() == "Not required."
    wish = admin("plan", "approval", "--department", "research", "--require", "-o", "name").out.strip()
    done = admin("plan", "apply", wish, "--yes")
    assert (done.code, "being updated" in done.out) == (0, False)
    assert "research" in admin("plan", "approval").out
    key = str(plan.pk)
    assert "needs approval" in admin("plan", "show", key).out
    refused = admin("plan", "apply", key, "--yes")
    assert "A second admin has to approve this change." in refused.err
    approved = admin("plan", "approve", key, "--yes")
    assert approved.code == 0, approved.err
    assert admin("plan", "apply", key, "--yes").code == 0


def test_apply_with_plan_prints_what_the_portal_plans(admin: Rung, llm_team: Project) -> None:
    text = "apiVersion: rung.dev/v1\nkind: NodePool\nmetadata: {name: h100, cluster: lab}\nspec: {labelValue: h200}\n"
    shown = admin("apply", "-f", "-", "--plan", stdin=text)
    assert "~ NodePool h100" in shown.out, shown.err
    assert "label rung.dev/node-pool=h100" in shown.out
    plans = admin("apply", "-f", "-", "--plan", "-o", "json", stdin=text).data[0]["plans"]
    assert [each["kind"] for each in plans] == ["node_pool"]
    assert not Plan.objects.exists()


def test_who_could_start_and_how_many_more_are_affected_is_printed(admin: Rung, plan: Plan) -> None:
    one = {"id": str(plan.pk), "name": "big", "project": "llm-team", "priority": "low", "value": 40}
    plan.effect["workloads"]["no_longer_fit"] = {"count": 21, "examples": [one]}
    named = {"id": str(plan.pk), "name": "small", "project": "llm-team", "gpus": 2, "evicts": True}
    plan.effect["starts"] = {"estimated": True, "tried": 25, "more": True, "workloads": [named]}
    plan.save()
    out = " ".join(admin("plan", "show", str(plan.pk)).out.split())
    assert "no longer fit: llm-team/big, low 40 no longer fit: and 20 more" in out
    starts = "Could start, each by itself, of 25 waiting: llm-team/small (2 GPUs, evicting others)"
    assert f"{starts}; others that wait were not tried." in out
    data = admin("plan", "show", str(plan.pk), "-o", "json").data
    assert (data["workloads"]["no_longer_fit"]["more"], data["starts"]["tried"]) == (20, 25)
    plan.effect["starts"] = {"estimated": False, "tried": 0, "more": False, "workloads": []}
    plan.save()
    assert "No estimate of what could start." in admin("plan", "show", str(plan.pk)).out
