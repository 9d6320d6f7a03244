"""Who may do what where: the whole table, and how far a role reaches."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import Forbidden, NotFound
from portal.kit.security.actors import SYSTEM, Actor, ActorKind, Channel
from tenants.access.models import Membership, Role, User
from tenants.access.rules import Permission
from tenants.access.selectors import access_for, can, require, visible_departments, visible_projects
from tenants.organisation.models import Department, Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory, ProjectFactory, ServiceAccountFactory, UserFactory

V = Permission
SIGHT = {V.VIEW_PROJECT, V.VIEW_DEPARTMENT}
VIEWER = SIGHT | {V.VIEW_ACCESS}
MEMBER = SIGHT | {V.SUBMIT, V.MANAGE_WORKLOAD}
OWNER = MEMBER | {V.VIEW_ACCESS, V.MANAGE_ANY_WORKLOAD, V.MANAGE_MEMBERS, V.VIEW_AUDIT}
DEPARTMENT_ADMIN = OWNER | {V.MANAGE_PROJECT, V.MANAGE_PROJECT_QUOTA, V.MANAGE_DEPARTMENT}
EXPECTED = {
    Role.VIEWER: VIEWER,
    Role.MEMBER: MEMBER,
    Role.OWNER: OWNER,
    Role.DEPARTMENT_ADMIN: DEPARTMENT_ADMIN,
    Role.PLATFORM_ADMIN: set(Permission),
}
SCOPE = {Role.DEPARTMENT_ADMIN: "department", Role.PLATFORM_ADMIN: "installation"}


def granted(role: Role, project: Project, scope: str) -> Actor:
    """Somebody with this role in the project, in its department or everywhere."""
    where = {
        "project": {"project": project},
        "department": {"project": None, "department": project.department},
        "installation": {"project": None},
    }
    return acting(MembershipFactory(role=role, **where[scope]).user)


@pytest.mark.parametrize("permission", list(Permission))
@pytest.mark.parametrize("role", list(Role))
def test_every_role_and_verb(role: Role, permission: Permission, llm_team: Project) -> None:
    actor = granted(role, llm_team, SCOPE.get(role, "project"))
    assert can(actor, permission, project=llm_team) is (permission in EXPECTED[role])


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER, Role.OWNER, Role.DEPARTMENT_ADMIN])
def test_a_role_in_a_department_reaches_its_projects_and_no_others(
    role: Role, llm_team: Project, vision_team: Project
) -> None:
    actor = granted(role, llm_team, "department")
    standing = access_for(actor)
    assert standing.permissions_in(project=llm_team) == EXPECTED[role]
    assert standing.permissions_in(project=vision_team) == set()
    assert list(visible_projects(actor)) == [llm_team]
    assert list(visible_departments(actor)) == [llm_team.department]


def test_a_role_in_a_project_does_not_reach_its_siblings(llm_team: Project, alice: User) -> None:
    sibling = ProjectFactory(department=llm_team.department)
    assert not can(acting(alice), Permission.VIEW_PROJECT, project=sibling)
    assert not can(acting(alice), Permission.VIEW_DEPARTMENT, department=llm_team.department)


def test_a_viewer_of_everything_sees_everything_and_changes_nothing(llm_team: Project, vision_team: Project) -> None:
    actor = granted(Role.VIEWER, llm_team, "installation")
    assert set(visible_projects(actor)) == {llm_team, vision_team}
    assert not can(actor, Permission.SUBMIT, project=llm_team)


def test_several_roles_add_up(llm_team: Project) -> None:
    actor = granted(Role.VIEWER, llm_team, "department")
    MembershipFactory(user_id=int(actor.id), project=llm_team, role=Role.OWNER)
    assert access_for(actor).permissions_in(project=llm_team) == OWNER


def test_department_admins_do_not_rule_the_installation(llm_team: Project) -> None:
    actor = granted(Role.DEPARTMENT_ADMIN, llm_team, "department")
    for permission in (
        Permission.MANAGE_CLUSTERS,
        Permission.MANAGE_DICTIONARY,
        Permission.MANAGE_DEPARTMENT_QUOTA,
        Permission.MANAGE_ACCESS,
    ):
        assert not can(actor, permission)
        assert not can(actor, permission, department=llm_team.department)


def test_a_superuser_needs_no_membership(admin: User, llm_team: Project) -> None:
    assert can(acting(admin), Permission.MANAGE_DICTIONARY)
    assert list(visible_projects(acting(admin))) == [llm_team]


def test_the_system_may_do_everything(llm_team: Project) -> None:
    assert can(SYSTEM, Permission.MANAGE_CLUSTERS)
    assert can(SYSTEM, Permission.SUBMIT, project=llm_team)


def test_a_service_account_stands_by_its_memberships(llm_team: Project, vision_team: Project) -> None:
    account = ServiceAccountFactory()
    MembershipFactory(user=None, service_account=account, project=llm_team)
    actor = Actor(ActorKind.SERVICE_ACCOUNT, str(account.pk), account.name, Channel.API)
    assert can(actor, Permission.SUBMIT, project=llm_team)
    assert not can(actor, Permission.SUBMIT, project=vision_team)


class TestT62:
    """Whoever is shut out is out with the next question."""

    def test_a_disabled_person(self, alice: User, llm_team: Project) -> None:
        User.objects.filter(pk=alice.pk).update(is_active=False)
        assert not can(acting(alice), Permission.VIEW_PROJECT, project=llm_team)
        assert not visible_projects(acting(alice)).exists()

    def test_a_disabled_superuser(self, admin: User) -> None:
        User.objects.filter(pk=admin.pk).update(is_active=False)
        assert not can(acting(admin), Permission.MANAGE_ACCESS)

    def test_a_removed_membership(self, bob: User, llm_team: Project) -> None:
        Membership.objects.filter(user=bob).delete()
        assert not can(acting(bob), Permission.VIEW_PROJECT, project=llm_team)

    def test_a_disabled_service_account(self, llm_team: Project) -> None:
        account = ServiceAccountFactory(enabled=False)
        MembershipFactory(user=None, service_account=account, project=llm_team)
        actor = Actor(ActorKind.SERVICE_ACCOUNT, str(account.pk), account.name, Channel.API)
        assert not can(actor, Permission.VIEW_PROJECT, project=llm_team)


def test_nobody_in_particular_may_do_nothing(llm_team: Project) -> None:
    for kind in (ActorKind.USER, ActorKind.SERVICE_ACCOUNT):
        assert not can(Actor(kind, "", "anonymous", Channel.UI), Permission.VIEW_PROJECT, project=llm_team)


class TestRequire:
    """What may not be seen does not exist; what may be seen is denied by name."""

    def test_a_foreign_project_is_absent(self, charlie: User, llm_team: Project) -> None:
        with pytest.raises(NotFound):
            require(acting(charlie), Permission.SUBMIT, project=llm_team)

    def test_a_seen_project_is_denied(self, bob: User, llm_team: Project) -> None:
        with pytest.raises(Forbidden, match="the permission set “Manage workloads”"):
            require(acting(bob), Permission.MANAGE_ANY_WORKLOAD, project=llm_team)

    def test_a_foreign_department_is_absent(self, alice: User, perception: Department) -> None:
        with pytest.raises(NotFound):
            require(acting(alice), Permission.MANAGE_DEPARTMENT, department=perception)

    def test_the_installation_itself_is_denied(self, alice: User) -> None:
        with pytest.raises(Forbidden):
            require(acting(alice), Permission.MANAGE_DICTIONARY)

    def test_what_is_allowed_passes(self, bob: User, llm_team: Project) -> None:
        require(acting(bob), Permission.SUBMIT, project=llm_team)


@pytest.mark.parametrize("memberships", [0, 1, 20])
def test_a_question_costs_one_query_however_many_roles_there_are(memberships: int, llm_team: Project) -> None:
    user = UserFactory()
    MembershipFactory.create_batch(memberships, user=user)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        can(acting(user), Permission.SUBMIT, project=llm_team)
    assert len(queries) == 1


@pytest.mark.django_db
def test_a_request_may_read_everybodys_grants_once_and_the_next_reads_again() -> None:
    membership, other = MembershipFactory(role=Role.MEMBER), UserFactory()
    actor, project = acting(membership.user), membership.project
    with cached_reads(), CaptureQueriesContext(connection) as queries:
        assert all(can(actor, V.SUBMIT, project=project) for _ in range(3))
        assert not can(acting(other), V.SUBMIT, project=project)
        membership.delete()
        assert can(actor, V.SUBMIT, project=project)
    assert len([each for each in queries if each["sql"].startswith("SELECT")]) == 2
    assert not can(actor, V.SUBMIT, project=project)
