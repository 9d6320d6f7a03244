"""Approval by a second admin: off at first, required by scope, never by the author, and no way around it."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from clusters.inventory.models import NodePool
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tenants.quotas.models import MinRuntime, ProjectQuota
from tests.factories.cast import applied
from tests.factories.tenants import GPU, DepartmentFactory, MembershipFactory, UserFactory
from tests.support.rest_clients import Robot
from workloads.dictionary.models import Priority
from workloads.notifications.models import Notice
from workloads.plans.models import Plan
from workloads.plans.services.plans import NEEDS_APPROVAL, apply_plan, approve_plan, plan_change
from workloads.policies.rules.merge import PolicyKind
from workloads.policies.services import PolicyTarget, set_policy
from workloads.quota_requests.services import create_request

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


@pytest.mark.parametrize("place", ["department", "installation"])
def test_a_plan_to_require_approvals_warns_where_nobody_else_could_approve(
    robot: Robot, llm_team: Project, place: str
) -> None:
    named = {"department": llm_team.department.name} if place == "department" else {}
    body = {"kind": "approval", "change": {**named, "required": True}}

    def warned() -> list[str]:
        found: list[str] = robot.send("POST", PATH, body).json()["warnings"]
        return [each for each in found if "cannot approve it" in each]

    assert len(warned()) == 1
    department_admin = MembershipFactory(department=llm_team.department, project=None, role=Role.DEPARTMENT_ADMIN)
    assert warned(), "may not change the department's own quota"
    UserFactory(is_superuser=True, is_active=False)
    assert warned(), "cannot sign in"
    department_admin.user.is_superuser = True
    department_admin.user.save()
    assert not warned()
    stop = {"kind": "approval", "change": {**named, "required": False}}
    assert not robot.send("POST", PATH, stop).json()["warnings"]


@pytest.mark.usefixtures("required")
def test_plans_that_wait_for_an_approval_are_found_and_counted_on_the_home_of_who_may_give_it(
    robot: Robot, second: Robot, llm_team: Project, vision_team: Project, client_of: Clients
) -> None:
    other = {"kind": "min_runtime", "change": {"project": "vision-team", "minutes": 5}}
    assert robot.send("POST", PATH, other).status_code == 201
    plan = robot.send("POST", PATH, QUOTA).json()
    found = second.get(f"{PATH}?state=needs-approval").json()["plans"]
    assert [each["id"] for each in found] == [plan["id"]]
    admin = client_of(UserFactory(is_superuser=True))
    home = admin.get("/").content.decode()
    assert "Waiting for your approval" in home
    assert '<a href="/plans/?state=needs-approval">1 plan</a>' in home
    assert plan["title"] in admin.get("/plans/?state=needs-approval").content.decode()
    assert "your approval" not in client_of(MembershipFactory(project=llm_team).user).get("/").content.decode()
    assert second.send("POST", f"{PATH}/{plan['id']}/approve").status_code == 200
    assert second.get(f"{PATH}?state=needs-approval").json()["plans"] == []
    assert "Waiting for your approval" not in admin.get("/").content.decode()


RULE = {"trainingJobTimeLimitSeconds": 3600}


def _resources(pool: NodePool) -> list[dict[str, Any]]:
    return [{"nodePool": {"id": str(pool.pk)}, "gpu": {"deserved": 9}}]


def test_no_writer_gets_around_an_approval(
    robot: Robot, client_of: Clients, admin: User, as_bob: Actor, llm_team: Project, h100: NodePool
) -> None:
    requested = create_request(project=llm_team, node_pool=h100, gpus=1, until=None, reason="Paper", actor=as_bob)
    place = {"departmentId": str(llm_team.department_id), "scope": "department"}
    rule = {"policy": {"rules": {"priorityClass": {"options": [{"value": "low"}]}}}}
    policy = {"meta": {**place, "name": "small"}, **rule}
    training = PolicyTarget(PolicyKind("training"), llm_team.department)
    set_policy(target=training, name="old", document=rule["policy"], actor=SYSTEM)
    assert robot.send("PUT", RULES, {"required": True}).status_code == 200
    project, cluster = f"v1/org-unit/projects/{llm_team.pk}", h100.cluster_id
    department, low = f"v1/org-unit/departments/{llm_team.department_id}", Priority.objects.get(name="low")
    pool = {"labelKey": h100.label_key}
    new = {"name": "new", "clusterId": str(cluster), "resources": _resources(h100)}
    child = {**new, "parentId": str(llm_team.department_id)}
    writes: list[tuple[str, str, Any]] = [
        ("PUT", f"{project}/resources", []),
        ("PATCH", f"{project}/resources", _resources(h100)),
        ("PUT", f"{department}/resources", _resources(h100)),
        ("PUT", project, {"resources": []}),
        ("PUT", department, {"resources": _resources(h100)}),
        ("POST", "v1/org-unit/projects", child),
        ("POST", "v1/org-unit/projects", {**child, "resources": [], "schedulingRules": RULE}),
        ("POST", "v1/org-unit/departments", new),
        ("PUT", f"{project}/priority-caps/high", {"gpuLimit": 2}),
        ("PUT", f"{project}/min-runtime", {"minutes": 5}),
        ("PUT", f"{department}/time-limits/Train", {"minutes": 60}),
        ("PUT", f"{department}/idle-limits/Build", {"minutes": 60}),
        ("PUT", f"{department}/enforce-deserved", {"enforceDeserved": True}),
        ("PUT", f"v1/clusters/{cluster}/defer-preemptors", {"deferPreemptors": True}),
        ("POST", f"v1/quota-requests/{requested.pk}/approve", {"base": requested.base}),
        ("PUT", "v2/policy/trainings", policy),
        ("PATCH", "v2/policy/trainings", policy),
        ("DELETE", f"v2/policy/trainings?scope=department&departmentId={llm_team.department_id}", None),
        ("POST", "v1/node-pools", {**pool, "name": "l40s", "labelValue": "l40s", "clusterId": str(cluster)}),
        ("PUT", f"v1/node-pools/{h100.pk}", {**pool, "labelValue": "h100-nvl"}),
        ("DELETE", f"v1/node-pools/{h100.pk}", None),
        ("PUT", f"v1/clusters/{cluster}/scheduler", {"flavour": "kai", "generation": h100.cluster.generation}),
        ("POST", "v1/workload-priorities", {"name": "urgent", "value": 140}),
        ("PATCH", f"v1/workload-priorities/{low.pk}", {"value": 45}),
        ("DELETE", f"v1/workload-priorities/{low.pk}", None),
        ("DELETE", project, None),
        ("PUT", RULES, {"required": False}),
    ]
    for method, path, body in writes:
        assert code(robot.send(method, path, body)) == (409, "approval_required"), (method, path)
    console, head = client_of(admin), "project,node_pool,gpu_deserved,reason"
    upload = SimpleUploadedFile("quotas.csv", f"{head}\nllm-team,h100,9,Q4\n".encode(), content_type="text/csv")
    sent = console.post(reverse("admin:tenants_projectquota_import"), {"format": "0", "import_file": upload})
    assert "confirm_form" in sent.context, "confirmed, it opens a plan, which needs the approval"
    gone = reverse("admin:tenants_projectquota_delete", args=[ProjectQuota.objects.get().pk])
    assert NEEDS_APPROVAL[:50] in console.post(gone, {"post": "yes"}, follow=True).content.decode()
    assert (ProjectQuota.objects.get().gpu_deserved, Project.objects.count()) == (4 * GPU, 1)
    assert not Plan.objects.exists()


@pytest.mark.usefixtures("required")
def test_what_changes_nothing_and_a_dry_run_need_no_approval(robot: Robot, llm_team: Project, h100: NodePool) -> None:
    path = f"v1/org-unit/projects/{llm_team.pk}/min-runtime"
    shown = robot.send("PUT", f"{path}?dryRun=true", {"minutes": 5}).json()
    assert (shown["minutes"], shown["plan"]["needsApproval"]) == (5, True)
    body = {"parentId": str(llm_team.department_id), "clusterId": str(h100.cluster_id), "name": "new", "resources": []}
    assert robot.send("POST", "v1/org-unit/projects", body).status_code == 201
    assert not MinRuntime.objects.exists()


@pytest.mark.usefixtures("required")
def test_a_quota_request_is_approved_by_a_plan_and_taken_back_by_its_rollback(
    client_of: Clients, admin: User, second: Robot, as_bob: Actor, llm_team: Project, h100: NodePool
) -> None:
    requested = create_request(project=llm_team, node_pool=h100, gpus=3, until=None, reason="Paper", actor=as_bob)
    body = {"kind": "quota_request", "change": {"request": str(requested.pk), "gpus": 2}}
    assert second.send("POST", f"{PATH}?dryRun=true", body).json()["sums"][0]["after"] == 6
    client = client_of(admin)
    assert "A second admin has to approve it, too" in client.get(f"/quota-requests/{requested.pk}/").content.decode()
    page = client.post(
        f"/quota-requests/{requested.pk}/approve/", {"base": requested.base, "gpus": "2", "reason": "Part"}
    )
    plan = Plan.objects.get()
    assert page["Location"] == f"/plans/{plan.pk}/"
    assert "GPUs deserved 4 → 6" in plan.effect["sentence"]
    assert second.send("POST", f"{PATH}/{plan.pk}/approve").status_code == 200
    assert client.post(f"/plans/{plan.pk}/apply/").status_code == 302
    requested.refresh_from_db()
    assert (requested.state, requested.granted_milli, ProjectQuota.objects.get().gpu_deserved) == (
        "approved",
        2 * GPU,
        6 * GPU,
    )
    back = second.send("POST", f"{PATH}/{plan.pk}/rollback").json()
    assert client.post(f"/plans/{back['id']}/approve/").status_code == 302
    assert second.send("POST", f"{PATH}/{back['id']}/apply").status_code == 200
    requested.refresh_from_db()
    assert (requested.state, ProjectQuota.objects.get().gpu_deserved) == ("ended", 4 * GPU)


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


@pytest.mark.usefixtures("required")
def test_a_project_with_quota_is_deleted_once_a_plan_has_taken_its_quota_away(
    robot: Robot, llm_team: Project, h100: NodePool
) -> None:
    path = f"v1/org-unit/projects/{llm_team.pk}"
    refused = robot.send("DELETE", path)
    assert code(refused) == (409, "approval_required")
    assert "plan its quotas as 0 first" in refused.content.decode()
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=0)
    assert robot.send("DELETE", path).status_code == 204
    empty = f"v1/org-unit/departments/{llm_team.department_id}"
    assert code(robot.send("DELETE", empty)) == (409, "approval_required")


def test_departments_are_listed_a_page_at_a_time_and_found_by_a_part_of_their_name(
    client_of: Clients, admin: User, llm_team: Project
) -> None:
    for number in range(60):
        DepartmentFactory(cluster=llm_team.cluster, name=f"lab-{number:02}")
    client = client_of(admin)
    first = client.get("/plans/approval/").content.decode()
    assert ("All plans" in first, "lab-00" in first, "lab-59" in first) == (True, True, False)
    (after,) = re.findall(r'href="\?(after=[^"]+)"', first)
    second = client.get(f"/plans/approval/?{after}").content.decode()
    assert ("All plans" in second, "lab-00" in second, "lab-59" in second) == (False, False, True)
    found = client.get("/plans/approval/?q=B-42").content.decode()
    assert ("lab-42" in found, "lab-41" in found) == (True, False)
    assert "No department of yours" in client.get("/plans/approval/?q=zz").content.decode()


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
