"""How far a department's admin reaches in the console: its projects and their quotas, as if there were no others."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from tenants.access.models import Role, User
from tenants.organisation.models import Department, Project
from tests.factories.tenants import GPU, DepartmentQuotaFactory, MembershipFactory, UserFactory

FORM = {
    "gpu_deserved": "5",
    "gpu_limit": "",
    "over_quota_weight": "2",
    "rank": "medium-low",
    "reason": "Within the department",
}


@pytest.fixture
def boss(research: Department, client_of: Callable[[User], Client]) -> Client:
    """The console as the admin of research sees it."""
    user = UserFactory(username="boss", is_staff=True)
    MembershipFactory(user=user, role=Role.DEPARTMENT_ADMIN, project=None, department=research)
    return client_of(user)


def url(page: str, *args: object) -> str:
    return reverse(f"admin:tenants_{page}", args=args)


def test_lists_hold_the_departments_rows_only(boss: Client, llm_team: Project, vision_team: Project) -> None:
    for page in ("project_changelist", "projectquota_changelist"):
        shown = boss.get(url(page)).content.decode()
        assert "llm-team" in shown
        assert "vision-team" not in shown


def test_quotas_within_reach_are_changed(boss: Client, llm_team: Project) -> None:
    quota = llm_team.quotas.get()
    plan = boss.post(url("projectquota_change", quota.pk), FORM)["Location"]
    assert boss.post(f"{plan}apply/").status_code == 302
    quota.refresh_from_db()
    assert quota.gpu_deserved == 5000


@pytest.mark.parametrize("page", ["change", "delete", "history"])
def test_t50_a_foreign_quota_is_as_good_as_absent(boss: Client, vision_team: Project, page: str) -> None:
    quota = vision_team.quotas.get()
    foreign = boss.post(url(f"projectquota_{page}", quota.pk), {**FORM, "post": "yes"})
    absent = boss.post(url(f"projectquota_{page}", 10**9), {**FORM, "post": "yes"})
    assert foreign.status_code in {302, 403, 404}
    quota.refresh_from_db()
    assert quota.gpu_deserved == 4000
    assert (foreign.status_code, foreign.headers.get("Location")) == (
        absent.status_code,
        absent.headers.get("Location"),
    )


def test_t50_an_older_version_of_a_foreign_quota_is_absent(boss: Client, vision_team: Project) -> None:
    quota = vision_team.quotas.get()
    version = quota.history.get()
    assert boss.get(url("projectquota_simple_history", quota.pk, version.history_id)).status_code == 404
    assert boss.post(url("projectquota_simple_history", quota.pk, version.history_id), FORM).status_code == 404


def test_t53_bulk_actions_do_not_reach_foreign_rows(boss: Client, llm_team: Project, vision_team: Project) -> None:
    form = {"action": "delete_selected", "_selected_action": [vision_team.quotas.get().pk], "post": "yes"}
    boss.post(url("projectquota_changelist"), form)
    assert vision_team.quotas.exists()


def test_a_new_quota_is_offered_for_own_projects_only(boss: Client, llm_team: Project, vision_team: Project) -> None:
    assert "vision-team" not in boss.get(url("projectquota_add")).content.decode()
    pool = str(vision_team.cluster.node_pools.get(name="a100").pk)
    form = {**FORM, "project": str(vision_team.pk), "node_pool": pool}
    assert "project" in boss.post(url("projectquota_add"), form).context["adminform"].form.errors
    DepartmentQuotaFactory(department=llm_team.department, node_pool_id=int(pool), gpu_deserved=8 * GPU)
    form = {**FORM, "project": str(llm_team.pk), "node_pool": pool}
    assert boss.post(url("projectquota_add"), form).status_code == 302


def test_a_new_project_goes_into_the_own_department_only(
    boss: Client, research: Department, perception: Department
) -> None:
    assert boss.post(url("project_add"), {"department": str(research.pk), "name": "speech"}).status_code == 302
    answer = boss.post(url("project_add"), {"department": str(perception.pk), "name": "robots"})
    assert "department" in answer.context["adminform"].form.errors
    assert not Project.objects.filter(name="robots").exists()


@pytest.mark.parametrize(
    "page",
    [
        "department_changelist",
        "departmentquota_changelist",
        "membership_changelist",
        "user_changelist",
        "serviceaccount_changelist",
        "projectquota_import",
        "projectquota_export",
    ],
)
def test_everything_else_stays_closed(boss: Client, llm_team: Project, page: str) -> None:
    assert boss.get(url(page)).status_code == 403


def test_a_projects_owner_has_no_console(client_of: Callable[[User], Client], alice: User, llm_team: Project) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    assert client_of(alice).get(url("projectquota_changelist")).status_code == 403
