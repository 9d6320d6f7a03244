"""People, roles, service accounts, departments and projects in the admin console."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from clusters.inventory.models import Cluster
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import AccessRole, Membership, Role, ServiceAccount, User
from tenants.access.services.credentials import exchange
from tenants.access.services.roles import create_role
from tenants.organisation.models import Department, Project
from tests.factories.cast import Ledger
from tests.factories.tenants import PASSWORD, ServiceAccountFactory, UserFactory
from workloads.plans.models import Plan


@pytest.fixture
def console(client_of: Callable[[User], Client], admin: User) -> Client:
    """The console as admin sees it."""
    return client_of(admin)


def url(name: str, *args: object) -> str:
    return reverse(f"admin:tenants_{name}", args=args)


def errors_of(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


class TestDepartmentsAndProjects:
    """Made, described and removed through the services."""

    def test_a_department_and_a_project_in_it(self, console: Client, cluster: Cluster) -> None:
        console.post(url("department_add"), {"cluster": str(cluster.pk), "name": "research", "description": ""})
        department = Department.objects.get()
        form = {"department": str(department.pk), "name": "speech", "default_node_pools": "a100, h100"}
        assert console.post(url("project_add"), form).status_code == 302
        project = Project.objects.get()
        assert (project.namespace, project.default_node_pools) == ("runai-speech", ["a100", "h100"])
        assert (project.created_by, project.history.get().history_user.username) == ("admin", "admin")
        actions = set(AuditRecord.objects.filter(channel="admin").values_list("action", flat=True))
        assert {"department.create", "project.create"} <= actions

    @pytest.mark.parametrize(
        ("form", "field"),
        [
            pytest.param({"name": "Speech"}, "name", id="no DNS label"),
            pytest.param({"name": "llm-team"}, "name", id="taken"),
            pytest.param({"name": "x", "namespace": "kube-system"}, "namespace", id="reserved namespace"),
            pytest.param({"name": "x", "default_node_pools": "h100,tpu"}, "default_node_pools", id="unknown pool"),
            pytest.param({"name": "x", "description": "y" * 3000}, "description", id="long text"),
        ],
    )
    def test_refusals_stand_at_their_field(
        self, console: Client, llm_team: Project, form: dict[str, str], field: str
    ) -> None:
        answer = console.post(url("project_add"), {"department": str(llm_team.department_id), **form})
        assert list(errors_of(answer)) == [field]

    def test_name_and_namespace_are_fixed(self, console: Client, llm_team: Project) -> None:
        form = {"name": "other", "namespace": "other", "description": "Language", "reason": "Words"}
        assert console.post(url("project_change", llm_team.pk), form).status_code == 302
        llm_team.refresh_from_db()
        assert (llm_team.name, llm_team.namespace, llm_team.description) == ("llm-team", "runai-llm-team", "Language")
        assert llm_team.history.latest().history_change_reason == "Words"

    def test_enforcing_what_does_not_hold_is_a_form_error(
        self, console: Client, research: Department, llm_team: Project
    ) -> None:
        llm_team.quotas.update(gpu_deserved=9000, gpu_limit=None)
        answer = console.post(url("department_change", research.pk), {"enforce_deserved": "on"})
        assert "9 GPUs" in str(errors_of(answer))

    def test_saving_enforcement_opens_a_plan_and_saves_the_description_at_once(
        self, console: Client, research: Department
    ) -> None:
        page, form = url("department_change", research.pk), {"description": "Labs", "reason": "Audit"}
        answer = console.post(page, {**form, "enforce_deserved": "on"})
        plan = Plan.objects.get()
        assert (answer["Location"], plan.kind) == (f"/plans/{plan.pk}/", "enforce_deserved")
        research.refresh_from_db()
        assert (research.description, research.enforce_deserved) == ("Labs", False)
        assert console.post(f"/plans/{plan.pk}/apply/").status_code == 302
        research.refresh_from_db()
        assert research.enforce_deserved
        assert research.history.latest().history_change_reason == "Audit"
        console.post(page, {**form, "description": "Rooms", "enforce_deserved": "on"})
        research.refresh_from_db()
        assert (research.description, Plan.objects.count()) == ("Rooms", 1)

    def test_a_project_in_use_stays(self, console: Client, llm_team: Project, ledger: Ledger) -> None:
        ledger.live[llm_team.pk] = 2
        answer = console.post(url("project_delete", llm_team.pk), {"post": "yes"}, follow=True)
        assert "still has 2 workloads" in answer.content.decode()
        assert Project.objects.exists()


class TestRoles:
    """Memberships."""

    def test_a_role_is_given_changed_and_taken(self, console: Client, llm_team: Project) -> None:
        user = UserFactory()
        form = {"user": str(user.pk), "role": Role.MEMBER, "project": str(llm_team.pk)}
        assert console.post(url("membership_add"), form).status_code == 302
        membership = user.memberships.get()
        console.post(url("membership_change", membership.pk), {"role": Role.OWNER})
        assert user.memberships.get().role_id == Role.OWNER
        console.post(url("membership_delete", membership.pk), {"post": "yes"})
        assert not user.memberships.exists()
        actions = list(AuditRecord.objects.filter(entity_type="membership").values_list("action", flat=True))
        assert sorted(actions) == ["membership.change", "membership.grant", "membership.revoke"]

    @pytest.mark.parametrize(
        "form",
        [
            pytest.param({"role": Role.MEMBER}, id="nobody"),
            pytest.param({"role": "king"}, id="unknown role"),
            pytest.param({"role": Role.PLATFORM_ADMIN, "project": "x"}, id="unknown project"),
        ],
    )
    def test_what_is_no_role_is_a_form_error(self, console: Client, form: dict[str, str]) -> None:
        assert errors_of(console.post(url("membership_add"), form))
        assert not Membership.objects.exists()

    def test_a_role_that_is_held_in_the_scope_is_a_form_error(
        self, console: Client, bob: User, llm_team: Project
    ) -> None:
        form = {"user": str(bob.pk), "role": Role.MEMBER, "project": str(llm_team.pk)}
        assert "already" in str(errors_of(console.post(url("membership_add"), form)))

    def test_a_group_gets_a_role_in_a_cluster(self, console: Client, cluster: Cluster) -> None:
        form = {"group_name": "ml-engineers", "role": Role.VIEWER, "cluster": str(cluster.pk)}
        assert console.post(url("membership_add"), form).status_code == 302
        membership = Membership.objects.get(group__name="ml-engineers")
        assert (membership.cluster, membership.created_by) == (cluster, "admin")
        page = console.get(url("membership_change", membership.pk)).content.decode()
        assert "ml-engineers" in page

    def test_two_subjects_or_two_scopes_are_a_form_error(
        self, console: Client, bob: User, llm_team: Project, cluster: Cluster
    ) -> None:
        twice = {"user": str(bob.pk), "group_name": "both", "role": Role.VIEWER}
        assert "Choose a user" in str(errors_of(console.post(url("membership_add"), twice)))
        wide = {"group_name": "g", "role": Role.VIEWER, "project": str(llm_team.pk), "cluster": str(cluster.pk)}
        assert "Choose one project, department or cluster." in str(errors_of(console.post(url("membership_add"), wide)))
        assert not Group.objects.exists()


class TestCustomRoles:
    """Made of permission sets."""

    def test_one_is_made_changed_given_and_deleted(self, console: Client, bob: User) -> None:
        form = {"name": "Auditor", "description": "Reads along", "enabled": "on", "chosen": ["view-event-history"]}
        assert console.post(url("accessrole_add"), form).status_code == 302
        role = AccessRole.objects.get(name="Auditor")
        assert (role.permission_sets, role.created_by, role.custom) == (["view-event-history"], "admin", True)
        console.post(url("accessrole_change", role.pk), {**form, "chosen": ["view", "view-event-history"]})
        role.refresh_from_db()
        assert role.permission_sets == ["view", "view-event-history"]
        page = console.get(url("accessrole_change", role.pk)).content.decode()
        assert page.count(" checked") == 3
        console.post(url("membership_add"), {"user": str(bob.pk), "role": role.key})
        answer = console.post(url("accessrole_delete", role.pk), {"post": "yes"}, follow=True)
        assert AccessRole.objects.filter(pk=role.pk).exists(), answer.content
        bob.memberships.filter(role=role).delete()
        console.post(url("accessrole_delete", role.pk), {"post": "yes"})
        assert not AccessRole.objects.filter(pk=role.pk).exists()
        actions = set(AuditRecord.objects.filter(entity_type="accessrole").values_list("action", flat=True))
        assert {"role.create", "role.update", "role.delete"} <= actions

    def test_those_that_come_with_rung_are_only_looked_at(self, console: Client, db: None) -> None:
        role = AccessRole.objects.get(key=Role.MEMBER)
        page = console.get(url("accessrole_change", role.pk))
        assert page.status_code == 200
        assert "Submit workloads" in page.content.decode()
        form = {"name": "Other", "description": "", "enabled": "on", "chosen": ["view"]}
        assert console.post(url("accessrole_change", role.pk), form).status_code == 403
        assert console.post(url("accessrole_delete", role.pk), {"post": "yes"}).status_code == 403

    def test_bad_ones_are_form_errors(self, console: Client, db: None) -> None:
        taken = {"name": "Viewer", "enabled": "on", "chosen": ["view"]}
        assert "name" in errors_of(console.post(url("accessrole_add"), taken))
        assert "chosen" in errors_of(console.post(url("accessrole_add"), {**taken, "name": "Empty", "chosen": []}))


class TestPeople:
    """Who signs in."""

    def test_a_person_is_made_and_recorded_without_the_password(self, console: Client) -> None:
        form = {"username": "dana", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
        assert console.post(url("user_add"), form).status_code == 302
        assert Client().login(username="dana", password=PASSWORD)
        entry = AuditRecord.objects.get(action="user.create")
        assert entry.entity_name == "dana"
        assert PASSWORD not in str(entry.detail)

    def test_t62_a_person_who_is_shut_out_has_no_session_any_more(
        self, console: Client, client_of: Callable[[User], Client], bob: User, admin: User
    ) -> None:
        other = UserFactory(username="boss", is_staff=True, is_superuser=True)
        session = client_of(other)
        assert session.get(url("project_changelist")).status_code == 200
        console.post(url("user_change", other.pk), {"username": "boss", "is_staff": "on", "is_superuser": "on"})
        assert session.get(url("project_changelist")).status_code == 302

    def test_nobody_sets_the_password_of_somebody_who_may_do_more(
        self, client_of: Callable[[User], Client], admin: User, bob: User
    ) -> None:
        role = create_role(name="Keeper", permission_sets=["manage-access"], actor=SYSTEM)
        keeper = UserFactory(is_staff=True)
        Membership.objects.create(user=keeper, role=role)
        form = {"usable_password": "true", "password1": "another long one 7", "password2": "another long one 7"}
        page = reverse("admin:auth_user_password_change", args=[admin.pk])
        assert client_of(keeper).post(page, form).status_code == 403
        form = {"username": keeper.username, "is_active": "on", "is_staff": "on", "is_superuser": "on"}
        client_of(keeper).post(url("user_change", keeper.pk), form)
        keeper.refresh_from_db()
        assert not keeper.is_superuser

    def test_the_last_admin_cannot_be_shut_out(self, console: Client, admin: User) -> None:
        answer = console.post(url("user_change", admin.pk), {"username": "admin", "is_staff": "on"}, follow=True)
        assert "at least one platform admin" in answer.content.decode()
        admin.refresh_from_db()
        assert admin.is_superuser

    def test_a_set_password_is_recorded_and_ends_sessions(
        self, console: Client, client_of: Callable[[User], Client]
    ) -> None:
        other = UserFactory(is_staff=True, is_superuser=True)
        session = client_of(other)
        page = reverse("admin:auth_user_password_change", args=[other.pk])
        form = {"usable_password": "true", "password1": "another long one 7", "password2": "another long one 7"}
        assert console.post(page, form).status_code == 302
        assert AuditRecord.objects.filter(action="user.password", entity_id=str(other.pk)).exists()
        assert session.get(url("project_changelist")).status_code == 302

    def test_a_removed_person_leaves_the_record(self, console: Client, bob: User) -> None:
        console.post(url("user_delete", bob.pk), {"post": "yes"})
        assert not User.objects.filter(username="bob").exists()
        assert AuditRecord.objects.get(action="user.delete").entity_name == "bob"


class TestServiceAccounts:
    """Their secret is on screen once."""

    def make(self, console: Client, **more: str) -> Any:
        form = {"name": "robot", "role": Role.MEMBER, **more}
        return console.post(url("serviceaccount_add"), form)

    def test_the_secret_is_shown_once_and_works(self, console: Client, llm_team: Project) -> None:
        answer = self.make(console, project=str(llm_team.pk))
        assert "no-store" in answer["Cache-Control"]
        secret = secret_on(answer)
        assert exchange("robot", secret)
        account = ServiceAccount.objects.get()
        assert account.memberships.get().project == llm_team
        page = console.get(url("serviceaccount_change", account.pk)).content.decode()
        assert secret not in page
        assert account.secret_hash not in page

    def test_the_dry_run_leaves_nothing_behind(self, console: Client) -> None:
        self.make(console)
        assert ServiceAccount.objects.count() == 1
        assert AuditRecord.objects.filter(action="service-account.create").count() == 1

    def test_a_new_secret_replaces_the_old_one(self, console: Client) -> None:
        first = secret_on(self.make(console))
        account = ServiceAccount.objects.get()
        form = {"action": "rotate", "_selected_action": [str(account.pk)]}
        second = secret_on(console.post(url("serviceaccount_changelist"), form))
        assert second != first
        assert exchange("robot", second)

    def test_two_at_once_get_none(self, console: Client, db: None) -> None:
        accounts = ServiceAccountFactory.create_batch(2)
        form = {"action": "rotate", "_selected_action": [str(account.pk) for account in accounts]}
        answer = console.post(url("serviceaccount_changelist"), form, follow=True)
        assert "Choose one service account" in answer.content.decode()

    def test_an_account_is_shut_out_and_removed(self, console: Client) -> None:
        account = ServiceAccountFactory()
        console.post(url("serviceaccount_change", account.pk), {})
        account.refresh_from_db()
        assert not account.enabled
        console.post(url("serviceaccount_delete", account.pk), {"post": "yes"})
        assert not ServiceAccount.objects.exists()

    @pytest.mark.parametrize("name", ["", "Robot", "<b>", "x" * 70])
    def test_bad_names_are_form_errors(self, console: Client, name: str) -> None:
        assert "name" in errors_of(self.make(console, name=name))

    def test_a_role_that_does_not_fit_its_scope_is_a_form_error(self, console: Client, llm_team: Project) -> None:
        answer = self.make(console, role=Role.PLATFORM_ADMIN, project=str(llm_team.pk))
        assert "no scope" in str(errors_of(answer))
        assert not ServiceAccount.objects.exists()


def secret_on(answer: Any) -> str:
    found = re.search(r'id="client-secret">([^<]+)<', answer.content.decode())
    assert found
    return found[1]


@pytest.mark.parametrize(
    "name",
    [
        "department",
        "project",
        "projectquota",
        "departmentquota",
        "prioritycap",
        "membership",
        "accessrole",
        "user",
        "serviceaccount",
    ],
)
def test_every_list_and_add_page_opens_for_admin_and_for_nobody_else(
    name: str, console: Client, client_of: Callable[[User], Client], llm_team: Project, alice: User
) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    for page in ("changelist", "add"):
        assert console.get(url(f"{name}_{page}")).status_code == 200
        assert client_of(alice).get(url(f"{name}_{page}")).status_code == 403
