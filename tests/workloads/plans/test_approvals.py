"""Approval by a second admin: off at first, required by scope, never by the author, and no way around it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden
from portal.kit.security.actors import Actor
from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tenants.quotas.models import MinRuntime, ProjectQuota
from tests.factories.cast import applied
from tests.factories.tenants import GPU, MembershipFactory
from tests.support.rest_clients import Robot
from workloads.dictionary.models import Priority
from workloads.notifications.models import Notice
from workloads.plans.models import Plan, PlanApproval
from workloads.plans.services.plans import apply_plan, approve_plan, plan_change

pytestmark = pytest.mark.django_db
PATH, RULES = "v1/plans", "v1/plan-approvals"
Clients = Callable[[User], Client]
QUOTA = {"kind": "quotas", "change": {"quotas": [{"project": "llm-team", "nodePool": "h100", "gpu": {"deserved": 2}}]}}


@pytest.fixture
def second(llm_team: Project) -> Robot:
    """Another platform admin."""
    return Robot("second-robot", role=Role.PLATFORM_ADMIN)


@pytest.fixture
def required(robot: Robot, llm_team: Project) -> None:
    """Plans for the department of llm-team need an approval."""
    body = {"departmentId": llm_team.department_id, "required": True}
    assert robot.send("PUT", RULES, body).status_code == 200


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["details"]


def test_nothing_needs_an_approval_at_first(robot: Robot, second: Robot, llm_team: Project) -> None:
    assert robot.get(RULES).json() == {"approvals": []}
    plan = robot.send("POST", PATH, QUOTA).json()
    assert (plan["needsApproval"], plan["approvedBy"]) == (False, "")
    assert code(second.send("POST", f"{PATH}/{plan['id']}/approve")) == (409, "approval_not_needed")
    assert robot.send("POST", f"{PATH}/{plan['id']}/apply").status_code == 200


@pytest.mark.usefixtures("required")
def test_a_second_admin_approves_before_the_plan_is_applied(robot: Robot, second: Robot, llm_team: Project) -> None:
    plan = robot.send("POST", PATH, QUOTA).json()
    assert plan["needsApproval"]
    path = f"{PATH}/{plan['id']}"
    assert code(robot.send("POST", f"{path}/apply")) == (409, "approval_required")
    assert code(robot.send("POST", f"{path}/approve")) == (403, "own_plan")
    approved = second.send("POST", f"{path}/approve").json()
    assert (approved["needsApproval"], approved["approvedBy"]) == (False, "second-robot")
    assert code(second.send("POST", f"{path}/approve")) == (409, "plan_approved")
    assert robot.send("POST", f"{path}/apply").status_code == 200
    assert ProjectQuota.objects.get().gpu_deserved == 2 * GPU
    rows = AuditRecord.objects.filter(entity_type="plan", result="Succeeded").order_by("id")
    named = [("plan.create", "platform-robot"), ("plan.approve", "second-robot"), ("plan.apply", "platform-robot")]
    assert list(rows.values_list("action", "actor_name")) == named


@pytest.mark.usefixtures("required")
def test_an_approval_counts_no_more_once_the_basis_moved(robot: Robot, second: Robot, llm_team: Project) -> None:
    path = f"{PATH}/{robot.send('POST', PATH, QUOTA).json()['id']}"
    assert second.send("POST", f"{path}/approve").status_code == 200
    ProjectQuota.objects.update(gpu_deserved=3 * GPU)
    assert code(robot.send("POST", f"{path}/apply")) == (409, "plan_moved")
    late = f"{PATH}/{robot.send('POST', PATH, QUOTA).json()['id']}"
    ProjectQuota.objects.update(gpu_deserved=5 * GPU)
    assert code(second.send("POST", f"{late}/approve")) == (409, "plan_moved")


@pytest.mark.usefixtures("required")
def test_only_those_with_the_permissions_of_the_plan_approve(robot: Robot, member: Robot, llm_team: Project) -> None:
    path = f"{PATH}/{robot.send('POST', PATH, QUOTA).json()['id']}"
    assert member.send("POST", f"{path}/approve").status_code == 404
    assert Plan.objects.get().approved_at is None
    assert member.send("PUT", RULES, {"required": True}).status_code == 403
    foreign = Robot("foreign-robot", role=Role.MEMBER, project=llm_team)
    assert foreign.send("PUT", RULES, {"departmentId": 10**9, "required": True}).status_code in {403, 404}


@pytest.mark.usefixtures("required")
def test_other_departments_and_kinds_need_none(robot: Robot, vision_team: Project) -> None:
    body = {"kind": "min_runtime", "change": {"project": "vision-team", "minutes": 5}}
    plan = robot.send("POST", PATH, body).json()
    assert not plan["needsApproval"]
    assert (
        robot.send("PATCH", f"v1/workload-priorities/{Priority.objects.get(name='low').pk}", {"value": 45}).status_code
        == 200
    )


@pytest.mark.usefixtures("required")
def test_a_write_without_a_plan_is_refused_and_says_so(robot: Robot, llm_team: Project) -> None:
    project = f"v1/org-unit/projects/{llm_team.pk}"
    writes = [
        ("PUT", f"{project}/priority-caps/high", {"gpuLimit": 2}),
        ("PUT", f"{project}/min-runtime", {"minutes": 5}),
        ("PUT", f"v1/org-unit/departments/{llm_team.department_id}/time-limits/Train", {"minutes": 60}),
        ("PUT", f"{project}/resources", []),
        ("PUT", project, {"resources": []}),
        ("PUT", RULES, {"departmentId": llm_team.department_id, "required": False}),
    ]
    for method, path, body in writes:
        assert code(robot.send(method, path, body)) == (409, "approval_required"), path
        assert robot.send(method, f"{path}?dryRun=true", body).json()["plan"]["needsApproval"], path
    assert not MinRuntime.objects.exists()
    assert PlanApproval.objects.count() == 1


def test_for_the_whole_installation_every_plan_and_the_dictionary_need_one(
    robot: Robot, second: Robot, llm_team: Project
) -> None:
    assert robot.send("PUT", RULES, {"required": True}).json()["approvals"][0]["departmentId"] is None
    low = Priority.objects.get(name="low")
    refused = robot.send("PATCH", f"v1/workload-priorities/{low.pk}", {"value": 45})
    assert code(refused) == (409, "approval_required")
    change = {"kind": "approval", "change": {"required": False}}
    path = f"{PATH}/{robot.send('POST', PATH, change).json()['id']}"
    assert code(robot.send("POST", f"{path}/apply")) == (409, "approval_required")
    assert second.send("POST", f"{path}/approve").status_code == 200
    assert robot.send("POST", f"{path}/apply").status_code == 200
    assert robot.get(RULES).json() == {"approvals": []}


@pytest.mark.usefixtures("required")
def test_those_who_may_approve_are_notified(robot: Robot, llm_team: Project) -> None:
    plan = robot.send("POST", PATH, QUOTA).json()
    notice = Notice.objects.get()
    assert (notice.type, notice.project, notice.permission) == ("PlanNeedsApproval", llm_team, "manage_project_quota")
    assert (notice.title, notice.path) == (f"Approval needed: {plan['title']}", f"/plans/{plan['id']}/")


def test_the_pages_require_approve_and_apply(
    client_of: Clients, admin: User, alice: User, llm_team: Project, as_alice: Actor
) -> None:
    MembershipFactory(user=alice, project=None, department=llm_team.department, role=Role.DEPARTMENT_ADMIN)
    client = client_of(admin)
    page = client.get("/plans/approval/").content.decode()
    assert "All plans" in page
    assert "research" in page
    applied(client, client.post("/plans/approval/", {"department": llm_team.department_id, "required": "on"}))
    change = {"project": "llm-team", "pool": "h100", "values": {"gpu_deserved": 2 * GPU}, "reason": ""}
    plan = plan_change(kind="project_quota", change=change, actor=as_alice)
    assert "needs approval" in client.get("/plans/").content.decode()
    own = client_of(alice).get(f"/plans/{plan.pk}/").content.decode()
    assert "You created it, so you cannot approve it." in " ".join(own.split())
    assert f"/plans/{plan.pk}/apply/" not in own
    with pytest.raises(Forbidden):
        approve_plan(plan=plan, actor=as_alice)
    with pytest.raises(Conflict):
        apply_plan(plan=plan, actor=as_alice)
    assert client.post(f"/plans/{plan.pk}/approve/")["Location"] == f"/plans/{plan.pk}/"
    assert "Approved by admin" in " ".join(client.get(f"/plans/{plan.pk}/").content.decode().split())
    assert client_of(alice).post(f"/plans/{plan.pk}/apply/").status_code == 302
    assert ProjectQuota.objects.get().gpu_deserved == 2 * GPU


@pytest.mark.usefixtures("required")
def test_the_console_deletes_nothing_that_needs_an_approval(client_of: Clients, admin: User, llm_team: Project) -> None:
    quota = ProjectQuota.objects.get()
    url = reverse("admin:tenants_projectquota_delete", args=[quota.pk])
    answer = client_of(admin).post(url, {"post": "yes"}, follow=True)
    assert "A second admin has to approve this change." in answer.content.decode()
    assert ProjectQuota.objects.exists()
