"""Custom roles, groups, clusters as scopes, and what a credential's limits leave."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.audit.models import AuditRecord
from portal.kit.db.read_cache import cached_reads
from portal.kit.errors import Conflict, Forbidden, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor, CredentialLimits
from tenants.access.api.access_rules import COLUMNS
from tenants.access.models import AccessRole, Membership, Role, User
from tenants.access.rules import (
    ALL_PERMISSIONS,
    NEEDS,
    PREDEFINED,
    READ_PERMISSIONS,
    SETS,
    Permission,
    permissions_of_role,
)
from tenants.access.selectors import (
    access_for,
    can,
    visible_departments,
    visible_projects,
    visible_rules,
    with_api_columns,
)
from tenants.access.services import credentials, subjects
from tenants.access.services.access_rules import change_role, get_or_create_group, grant, revoke
from tenants.access.services.roles import create_role, delete_role, update_role
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.clusters import ClusterFactory
from tests.factories.tenants import (
    AccessKeyFactory,
    DepartmentFactory,
    MembershipFactory,
    ProjectFactory,
    ServiceAccountFactory,
    UserFactory,
)


def custom(*sets: str, name: str = "Custom", **more: Any) -> AccessRole:
    return create_role(name=name, permission_sets=sets, actor=SYSTEM, **more)


def changed(role: AccessRole, *sets: str, enabled: bool = True, actor: Actor = SYSTEM) -> AccessRole:
    return update_role(role=role, name=role.name, description="", permission_sets=sets, enabled=enabled, actor=actor)


@pytest.fixture
def dana(db: None) -> User:
    return UserFactory(username="dana")


class TestTheTable:
    """Between permissions, permissions and permission sets."""

    def test_every_verb_is_in_a_set_and_behind_a_permission(self) -> None:
        assert frozenset().union(*(each.permissions for each in SETS.values())) == ALL_PERMISSIONS
        assert frozenset().union(*NEEDS.values()) == ALL_PERMISSIONS

    def test_every_role_that_comes_with_rung_has_its_row(self, db: None) -> None:
        rows = {role.key: role for role in AccessRole.objects.filter(custom=False)}
        assert list(rows) == list(PREDEFINED) == list(Role.values)
        assert permissions_of_role(Role.PLATFORM_ADMIN) == ALL_PERMISSIONS

    def test_each_role_holds_what_the_weaker_ones_hold_but_members_do_not_look_at_access(self) -> None:
        ranks = [permissions - {Permission.VIEW_ACCESS} for permissions in map(permissions_of_role, Role)]
        assert all(weaker < stronger for weaker, stronger in pairwise(ranks))
        assert [role for role in Role if Permission.VIEW_ACCESS not in permissions_of_role(role)] == [Role.MEMBER]


class TestCustomRoles:
    """Made of permission sets; what they allow counts at once."""

    def test_it_allows_its_sets_and_nothing_else(self, llm_team: Project, dana: User) -> None:
        grant(subject=dana, role=custom("view", "manage-workloads"), project=llm_team, actor=SYSTEM)
        assert access_for(acting(dana)).permissions_in(project=llm_team) == {
            Permission.VIEW_PROJECT,
            Permission.VIEW_DEPARTMENT,
            Permission.MANAGE_ANY_WORKLOAD,
        }
        assert list(visible_projects(acting(dana))) == [llm_team]

    def test_without_sight_nothing_is_seen(self, llm_team: Project, dana: User) -> None:
        grant(subject=dana, role=custom("view-event-history"), project=llm_team, actor=SYSTEM)
        assert not visible_projects(acting(dana)).exists()
        assert can(acting(dana), Permission.VIEW_AUDIT, project=llm_team)

    def test_t62_a_changed_role_counts_from_the_next_question_on(self, llm_team: Project, dana: User) -> None:
        role = custom("submit-workloads")
        grant(subject=dana, role=role, project=llm_team, actor=SYSTEM)

        def may_submit() -> bool:
            return can(acting(dana), Permission.SUBMIT, project=llm_team)

        assert may_submit()
        changed(role, "view")
        assert not may_submit()
        changed(role, "submit-workloads")
        assert may_submit()
        changed(role, "submit-workloads", enabled=False)
        assert not may_submit()
        entry = AuditRecord.objects.filter(action="role.update").latest("pk")
        assert (entry.detail["before"]["enabled"], entry.detail["after"]["enabled"]) == (True, False)

    def test_roles_that_come_with_rung_stay_as_they_are(self, db: None) -> None:
        role = AccessRole.objects.get(key=Role.MEMBER)
        with pytest.raises(Conflict, match="Built-in roles cannot be changed"):
            changed(role, "view")
        with pytest.raises(Conflict):
            delete_role(role=role, actor=SYSTEM)

    def test_a_role_that_somebody_has_is_not_deleted(self, llm_team: Project, dana: User) -> None:
        role = custom("view")
        held = grant(subject=dana, role=role, project=llm_team, actor=SYSTEM)
        with pytest.raises(Conflict) as refusal:
            delete_role(role=role, actor=SYSTEM)
        assert refusal.value.problems[0].numbers == {"accessRules": "1"}
        revoke(membership=held, actor=SYSTEM)
        delete_role(role=role, actor=SYSTEM)
        assert not AccessRole.objects.filter(pk=role.pk).exists()

    @pytest.mark.parametrize(
        ("requested", "pointer"),
        [
            pytest.param({"permission_sets": ["view", "rule-the-world"]}, "/permissionSets/1/id", id="unknown set"),
            pytest.param({"permission_sets": []}, "/permissionSets", id="no set"),
            pytest.param({"name": "a\x00b"}, "/name", id="control characters"),
            pytest.param({"name": ""}, "/name", id="no name"),
            pytest.param({"name": "x" * 101}, "/name", id="long name"),
        ],
    )
    def test_what_is_no_role_is_refused_at_its_field(self, db: None, requested: dict[str, Any], pointer: str) -> None:
        with pytest.raises(ValidationFailed) as refusal:
            create_role(**{"name": "Custom", "permission_sets": ["view"], "actor": SYSTEM, **requested})
        assert refusal.value.problems[0].pointer == pointer

    def test_a_name_is_taken_once(self, db: None) -> None:
        with pytest.raises(Conflict):
            custom("view", name="Viewer")


class TestNobodyHandsOutMoreThanTheyHold:
    """Roles are compared by what they allow."""

    @pytest.fixture
    def keeper(self, db: None) -> User:
        """Manages access and sees everything, and nothing else."""
        return MembershipFactory(role=custom("view", "manage-access", name="Keeper"), project=None).user

    def test_a_stronger_role_is_not_made(self, keeper: User) -> None:
        create_role(name="Weak", permission_sets=["view"], actor=acting(keeper))
        with pytest.raises(Forbidden):
            create_role(name="Strong", permission_sets=["view", "manage-clusters"], actor=acting(keeper))

    def test_the_own_role_is_not_made_stronger(self, keeper: User) -> None:
        with pytest.raises(Forbidden):
            changed(AccessRole.objects.get(name="Keeper"), *SETS, actor=acting(keeper))

    def test_a_stronger_role_is_neither_changed_nor_deleted(self, keeper: User) -> None:
        role = custom("manage-clusters", name="Strong")
        with pytest.raises(Forbidden):
            changed(role, "view", actor=acting(keeper))
        with pytest.raises(Forbidden):
            delete_role(role=role, actor=acting(keeper))

    def test_an_incomparable_role_is_not_given(self, llm_team: Project, alice: User) -> None:
        with pytest.raises(Forbidden):
            grant(subject=UserFactory(), role=custom("manage-projects"), project=llm_team, actor=acting(alice))
        weak = custom("manage-workloads", name="Weak")
        assert grant(subject=UserFactory(), role=weak, project=llm_team, actor=acting(alice)).role == weak

    def test_an_incomparable_role_is_not_taken(self, llm_team: Project, alice: User) -> None:
        strong = MembershipFactory(role=custom("manage-projects"), project=llm_team)
        with pytest.raises(Forbidden):
            revoke(membership=strong, actor=acting(alice))
        with pytest.raises(Forbidden):
            change_role(membership=strong, role=Role.VIEWER, actor=acting(alice))

    def test_a_stronger_ones_secret_is_not_set(self, keeper: User, admin: User) -> None:
        account, _ = subjects.create_service_account(name="robot", role=Role.PLATFORM_ADMIN, actor=SYSTEM)
        in_group, group = UserFactory(), get_or_create_group("operators")
        in_group.groups.add(group)
        grant(subject=group, role=Role.PLATFORM_ADMIN, actor=SYSTEM)
        with pytest.raises(Forbidden):
            subjects.rotate_service_account(account=account, actor=acting(keeper))
        for stronger in (admin, in_group):
            with pytest.raises(Forbidden):
                subjects.reset_password(user=stronger, actor=acting(keeper))
        assert subjects.reset_password(user=UserFactory(), actor=acting(keeper))

    def test_a_stronger_ones_key_is_not_revoked(self, keeper: User, admin: User) -> None:
        with pytest.raises(Forbidden):
            credentials.revoke_any_key(key=AccessKeyFactory(owner=admin), actor=acting(keeper))
        credentials.revoke_any_key(key=AccessKeyFactory(owner=UserFactory()), actor=acting(keeper))

    def test_nobody_makes_themselves_a_superuser(self, keeper: User) -> None:
        keeper.is_superuser = True
        with pytest.raises(Forbidden):
            subjects.save_user(user=keeper, actor=acting(keeper))


class TestGroups:
    """A group's role is that of everybody in it."""

    @pytest.fixture
    def group(self, llm_team: Project) -> Group:
        group = get_or_create_group("ml-engineers")
        grant(subject=group, role=Role.OWNER, project=llm_team, actor=SYSTEM)
        return group

    def test_its_role_adds_to_ones_own(self, group: Group, bob: User, llm_team: Project) -> None:
        assert not can(acting(bob), Permission.MANAGE_MEMBERS, project=llm_team)
        bob.groups.add(group)
        assert access_for(acting(bob)).permissions_in(project=llm_team) == permissions_of_role(Role.OWNER)

    def test_t62_whoever_leaves_it_is_out_with_the_next_question(
        self, group: Group, dana: User, llm_team: Project
    ) -> None:
        dana.groups.add(group)

        def sees() -> bool:
            return can(acting(dana), Permission.VIEW_PROJECT, project=llm_team)

        assert sees()
        dana.groups.clear()
        assert not sees()
        dana.groups.add(group)
        assert sees()
        group.delete()
        assert not sees()
        assert not Membership.objects.filter(project=llm_team, user=None).exists()

    def test_somebody_in_groups_costs_one_query_too(self, group: Group, dana: User, llm_team: Project) -> None:
        dana.groups.add(group, *(Group.objects.create(name=f"group-{n}") for n in range(5)))
        MembershipFactory.create_batch(3, user=dana)
        with CaptureQueriesContext(connection) as queries:
            assert can(acting(dana), Permission.SUBMIT, project=llm_team)
        assert len(queries) == 1

    def test_a_disabled_person_has_no_groups_role(self, group: Group, llm_team: Project) -> None:
        user = UserFactory(is_active=False)
        user.groups.add(group)
        assert not can(acting(user), Permission.VIEW_PROJECT, project=llm_team)

    def test_an_admin_by_a_group_is_an_admin(self, db: None) -> None:
        last = MembershipFactory(role=Role.PLATFORM_ADMIN, project=None)
        user, group = UserFactory(), get_or_create_group("operators")
        given = grant(subject=group, role=Role.PLATFORM_ADMIN, actor=SYSTEM)
        with pytest.raises(Conflict):
            revoke(membership=last, actor=SYSTEM)
        user.groups.add(group)
        revoke(membership=last, actor=SYSTEM)
        with pytest.raises(Conflict):
            revoke(membership=given, actor=SYSTEM)

    @pytest.mark.parametrize("name", ["", " ", "x" * 151, "a\nb", "a\x00b"])
    def test_bad_names_are_refused(self, db: None, name: str) -> None:
        with pytest.raises(ValidationFailed):
            get_or_create_group(name)


class TestClusters:
    """A role in a cluster reaches down to its departments and projects."""

    def test_it_reaches_down_and_not_aside(self, llm_team: Project, vision_team: Project, dana: User) -> None:
        elsewhere = ProjectFactory(department=DepartmentFactory(cluster=ClusterFactory(name="other")))
        grant(subject=dana, role=Role.DEPARTMENT_ADMIN, cluster=llm_team.cluster, actor=SYSTEM)
        actor = acting(dana)
        assert set(visible_projects(actor)) == {llm_team, vision_team}
        assert set(visible_departments(actor)) == {llm_team.department, vision_team.department}
        assert can(actor, Permission.MANAGE_PROJECT, project=llm_team)
        assert can(actor, Permission.MANAGE_DEPARTMENT, department=llm_team.department)
        assert can(actor, Permission.VIEW_PROJECT, cluster=llm_team.cluster)
        assert not can(actor, Permission.VIEW_PROJECT, project=elsewhere)
        assert not can(actor, Permission.VIEW_PROJECT, cluster=elsewhere.cluster)
        assert not can(actor, Permission.VIEW_PROJECT)

    def test_a_role_below_does_not_reach_it(self, llm_team: Project, alice: User) -> None:
        assert not can(acting(alice), Permission.VIEW_PROJECT, cluster=llm_team.cluster)

    def test_only_those_who_manage_access_give_it(self, llm_team: Project) -> None:
        boss = MembershipFactory(role=Role.DEPARTMENT_ADMIN, project=None, cluster=llm_team.cluster).user
        with pytest.raises(Forbidden):
            grant(subject=UserFactory(), role=Role.VIEWER, cluster=llm_team.cluster, actor=acting(boss))

    def test_a_platform_admin_has_no_cluster(self, llm_team: Project, dana: User) -> None:
        with pytest.raises(ValidationFailed, match="no scope"):
            grant(subject=dana, role=Role.PLATFORM_ADMIN, cluster=llm_team.cluster, actor=SYSTEM)

    def test_one_scope_at_a_time(self, llm_team: Project, dana: User) -> None:
        with pytest.raises(ValidationFailed, match="Choose one project, department or cluster"):
            grant(subject=dana, role=Role.VIEWER, cluster=llm_team.cluster, project=llm_team, actor=SYSTEM)


class TestLimits:
    """A credential reaches less than its subject, never more."""

    def narrowed(self, user: User, **limits: Any) -> Actor:
        return replace(acting(user), limits=CredentialLimits(key="k", **limits))

    def test_reading_only_leaves_looking(self, admin: User, llm_team: Project) -> None:
        actor = self.narrowed(admin, read_only=True)
        assert access_for(actor).permissions == READ_PERMISSIONS
        assert list(visible_projects(actor)) == [llm_team]
        assert not can(actor, Permission.MANAGE_ACCESS)
        assert not can(actor, Permission.SUBMIT, project=llm_team)

    def test_one_project_is_all_that_is_reached(self, admin: User, llm_team: Project, vision_team: Project) -> None:
        actor = self.narrowed(admin, project_id=llm_team.pk)
        assert list(visible_projects(actor)) == [llm_team]
        assert can(actor, Permission.MANAGE_PROJECT_QUOTA, project=llm_team)
        assert not can(actor, Permission.VIEW_PROJECT, project=vision_team)
        assert not can(actor, Permission.VIEW_DEPARTMENT, department=llm_team.department)
        assert not can(actor, Permission.MANAGE_DICTIONARY)

    def test_one_department_with_its_projects(self, admin: User, llm_team: Project, vision_team: Project) -> None:
        actor = self.narrowed(admin, department_id=llm_team.department_id)
        assert list(visible_projects(actor)) == [llm_team]
        assert list(visible_departments(actor)) == [llm_team.department]
        assert not can(actor, Permission.MANAGE_CLUSTERS)

    def test_a_role_below_the_limit_reaches_no_further_than_it_did(
        self, alice: User, llm_team: Project, vision_team: Project
    ) -> None:
        own = self.narrowed(alice, department_id=llm_team.department_id)
        assert access_for(own).permissions_in(project=llm_team) == permissions_of_role(Role.OWNER)
        assert not can(own, Permission.VIEW_DEPARTMENT, department=llm_team.department)
        for limits in ({"department_id": vision_team.department_id}, {"project_id": vision_team.pk}):
            assert not visible_projects(self.narrowed(alice, **limits)).exists()

    def test_a_departments_role_bound_to_a_foreign_project_reaches_nothing(
        self, llm_team: Project, vision_team: Project
    ) -> None:
        boss = MembershipFactory(role=Role.DEPARTMENT_ADMIN, project=None, department=llm_team.department).user
        actor = self.narrowed(boss, project_id=vision_team.pk)
        assert not visible_projects(actor).exists()
        assert not can(actor, Permission.VIEW_PROJECT, project=vision_team)
        assert not can(actor, Permission.VIEW_PROJECT, project=llm_team)

    def test_limits_do_not_stick_to_the_subject(self, admin: User, llm_team: Project, vision_team: Project) -> None:
        with cached_reads():
            assert visible_projects(self.narrowed(admin, project_id=llm_team.pk)).count() == 1
            assert visible_projects(acting(admin)).count() == 2


def test_a_service_accounts_roles_do_not_come_from_groups(llm_team: Project) -> None:
    account, group = ServiceAccountFactory(), get_or_create_group("robots")
    grant(subject=account, role=Role.VIEWER, project=llm_team, actor=SYSTEM)
    grant(subject=group, role=Role.OWNER, project=llm_team, actor=SYSTEM)
    assert Membership.objects.filter(project=llm_team).count() == 2


@pytest.mark.postgres
def test_postgresql_reads_the_same_rights_and_rules(postgres_db: str) -> None:
    membership = MembershipFactory(role=custom("view", "manage-workloads"))
    group, cluster = get_or_create_group("ml-engineers"), membership.project.cluster
    membership.user.groups.add(group)
    grant(subject=group, role=Role.DEPARTMENT_ADMIN, cluster=cluster, actor=SYSTEM)
    assert access_for(acting(membership.user)).permissions_in(project=membership.project) == permissions_of_role(
        Role.DEPARTMENT_ADMIN
    )
    for name, column in COLUMNS.items():
        rows = with_api_columns(visible_rules(SYSTEM)).order_by(column.path, "pk")
        assert rows.count() == len(rows) == 2, name
    assert with_api_columns(visible_rules(SYSTEM)).filter(scope_key=cluster.pk.hex).get().group == group
    assert not with_api_columns(visible_rules(SYSTEM)).filter(deleted_at__isnull=False).exists()
    with pytest.raises(Conflict):
        grant(subject=group, role=Role.DEPARTMENT_ADMIN, cluster=cluster, actor=SYSTEM)
