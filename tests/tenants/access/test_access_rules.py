"""Roles are given, changed and taken by those who hold at least as much."""

import pytest
from django.db import IntegrityError, transaction

from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Membership, Role, User
from tenants.access.rules import Permission
from tenants.access.selectors import can
from tenants.access.services.access_rules import change_role, grant, revoke
from tenants.organisation.models import Department, Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory, ServiceAccountFactory, UserFactory


def test_an_owner_lets_somebody_in(llm_team: Project, alice: User) -> None:
    newcomer = UserFactory(username="dana")
    grant(subject=newcomer, role=Role.MEMBER, project=llm_team, actor=acting(alice))
    assert newcomer.memberships.get().project == llm_team
    entry = AuditRecord.objects.get(action="membership.grant")
    assert (entry.actor_name, entry.entity_name, entry.project_id) == ("alice", "dana", str(llm_team.pk))


def test_a_member_lets_nobody_in(llm_team: Project, bob: User) -> None:
    with pytest.raises(Forbidden):
        grant(subject=UserFactory(), role=Role.VIEWER, project=llm_team, actor=acting(bob))


def test_an_owner_of_one_project_does_not_reach_another(vision_team: Project, alice: User) -> None:
    with pytest.raises(NotFound):
        grant(subject=UserFactory(), role=Role.MEMBER, project=vision_team, actor=acting(alice))


def test_nobody_gives_more_than_they_hold(research: Department) -> None:
    boss = MembershipFactory(role=Role.DEPARTMENT_ADMIN, project=None, department=research).user
    grant(subject=UserFactory(), role=Role.DEPARTMENT_ADMIN, department=research, actor=acting(boss))
    with pytest.raises(Forbidden):
        grant(subject=UserFactory(), role=Role.PLATFORM_ADMIN, department=research, actor=acting(boss))


def test_nobody_takes_from_somebody_stronger(llm_team: Project, alice: User) -> None:
    Membership.objects.filter(user=alice).update(role=Role.OWNER)
    stronger = MembershipFactory(role=Role.OWNER, project=llm_team)
    revoke(membership=stronger, actor=acting(alice))
    assert not Membership.objects.filter(pk=stronger.pk).exists()


def test_a_second_role_in_the_same_scope_adds_what_it_allows_until_it_is_taken_away(llm_team: Project) -> None:
    subject = MembershipFactory(role=Role.VIEWER, project=llm_team).user
    assert not can(acting(subject), Permission.MANAGE_MEMBERS, project=llm_team)
    second = grant(subject=subject, role=Role.OWNER, project=llm_team, actor=SYSTEM)
    assert can(acting(subject), Permission.MANAGE_MEMBERS, project=llm_team)
    revoke(membership=second, actor=SYSTEM)
    assert not can(acting(subject), Permission.MANAGE_MEMBERS, project=llm_team)
    assert can(acting(subject), Permission.VIEW_PROJECT, project=llm_team)


def test_the_same_role_in_the_same_scope_again_is_a_conflict(llm_team: Project, bob: User) -> None:
    with pytest.raises(Conflict, match="already"):
        grant(subject=bob, role=Role.MEMBER, project=llm_team, actor=SYSTEM)


def test_a_role_is_not_changed_into_one_that_is_held_there_too(llm_team: Project, bob: User) -> None:
    second = grant(subject=bob, role=Role.VIEWER, project=llm_team, actor=SYSTEM)
    with pytest.raises(Conflict, match="already"):
        change_role(membership=second, role=Role.MEMBER, actor=SYSTEM)
    assert sorted(bob.memberships.values_list("role_id", flat=True)) == [Role.MEMBER, Role.VIEWER]


@pytest.mark.parametrize("scope", ["project", "department", "installation"])
@pytest.mark.parametrize("subject", ["user", "service_account"])
def test_the_database_holds_a_role_once_per_subject_and_scope(scope: str, subject: str, llm_team: Project) -> None:
    where = {
        "project": {"project": llm_team},
        "department": {"department": llm_team.department},
        "installation": {},
    }[scope]
    who = {"user": UserFactory()} if subject == "user" else {"service_account": ServiceAccountFactory()}
    Membership.objects.create(role_id=Role.VIEWER, **who, **where)
    Membership.objects.create(role_id=Role.MEMBER, **who, **where)
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.create(role_id=Role.VIEWER, **who, **where)


def test_an_unknown_role_is_refused_with_the_known_ones(llm_team: Project) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        grant(subject=UserFactory(), role="king", project=llm_team, actor=SYSTEM)
    assert refusal.value.problems[0].allowed == tuple(Role.values)


@pytest.mark.parametrize(
    ("role", "scope"),
    [
        pytest.param(Role.PLATFORM_ADMIN, "project", id="platform admins have no scope"),
        pytest.param(Role.DEPARTMENT_ADMIN, "project", id="department admins need a department"),
        pytest.param(Role.DEPARTMENT_ADMIN, None, id="and not the installation"),
    ],
)
def test_roles_fit_their_scope(role: Role, scope: str | None, llm_team: Project) -> None:
    where = {"project": llm_team} if scope else {}
    with pytest.raises(ValidationFailed):
        grant(subject=UserFactory(), role=role, actor=SYSTEM, **where)


def test_a_role_is_changed_in_place(llm_team: Project, alice: User, bob: User) -> None:
    change_role(membership=bob.memberships.get(), role=Role.OWNER, actor=acting(alice))
    assert bob.memberships.get().role_id == Role.OWNER
    assert AuditRecord.objects.get(action="membership.change").detail["before"] == Role.MEMBER


def test_the_last_platform_admin_stays(llm_team: Project) -> None:
    last = MembershipFactory(role=Role.PLATFORM_ADMIN, project=None)
    with pytest.raises(Conflict) as refusal:
        revoke(membership=last, actor=SYSTEM)
    assert refusal.value.code == "last_platform_admin"
    assert Membership.objects.filter(pk=last.pk).exists()
