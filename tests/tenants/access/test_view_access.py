"""The right to look at access: who reads people, accounts, keys and rules, how far, and that it changes nothing."""

import pytest

from tenants.access.models import Membership, Role
from tenants.organisation.models import Project
from tests.factories.tenants import AccessKeyFactory, MembershipFactory, ServiceAccountFactory, UserFactory
from tests.support.rest_clients import Person, Robot

pytestmark = pytest.mark.django_db
LISTS = ["v1/users", "v1/users/count", "v1/service-accounts", "v1/administration/access-keys"]
RULES = "v1/authorization/access-rules"


def test_a_viewer_of_everything_reads_all_of_it_and_changes_none(llm_team: Project) -> None:
    looking = Robot("looking-robot", role=Role.VIEWER)
    user, account, key = UserFactory(), ServiceAccountFactory(), AccessKeyFactory()
    rule = MembershipFactory(project=llm_team)
    for path in (*LISTS, f"v1/users/{user.pk}", f"v1/service-accounts/{account.pk}", f"{RULES}/{rule.pk}"):
        assert looking.get(path).status_code == 200, path
    assert looking.get(RULES).json()["totalRecords"] == Membership.objects.count()
    for path in (
        f"v1/users/{user.pk}",
        f"v1/service-accounts/{account.pk}",
        f"v1/administration/access-keys/{key.pk}",
        f"{RULES}/{rule.pk}",
    ):
        assert looking.send("DELETE", path).status_code == 403, path
    assert looking.send("POST", f"v1/users/{user.pk}/password").status_code == 403
    assert looking.send("POST", f"v1/service-accounts/{account.pk}/secret").status_code == 403


def test_a_key_of_an_admin_that_only_reads_reads_it_too() -> None:
    reading = Person("reading", role=Role.PLATFORM_ADMIN, read_only=True)
    assert [reading.client.get(f"/api/{path}").status_code for path in LISTS] == [200] * len(LISTS)


def test_a_viewer_of_a_project_reads_its_rules_only(llm_team: Project, vision_team: Project) -> None:
    own, foreign = MembershipFactory(project=llm_team), MembershipFactory(project=vision_team)
    looking = Robot("looking-robot", role=Role.VIEWER, project=llm_team)
    shown = {each["id"] for each in looking.get(RULES).json()["accessRules"]}
    assert own.pk in shown
    assert foreign.pk not in shown
    assert looking.get(f"{RULES}/{foreign.pk}").status_code == 404
    assert looking.send("DELETE", f"{RULES}/{own.pk}").status_code == 403
    assert [looking.get(path).status_code for path in LISTS] == [403] * len(LISTS)


def test_a_member_reads_nobody_elses_rules(member: Robot, llm_team: Project) -> None:
    MembershipFactory(project=llm_team)
    assert member.get(RULES).json()["totalRecords"] == 0


def test_an_owner_gives_the_role_that_looks(llm_team: Project) -> None:
    owner = Robot("owning-robot", role=Role.OWNER, project=llm_team)
    roles = {each["name"]: each["id"] for each in owner.get("v1/authorization/roles").json()}
    body = {
        "subjectId": UserFactory().username,
        "subjectType": "user",
        "roleId": roles["Viewer"],
        "scopeType": "project",
        "scopeId": str(llm_team.pk),
    }
    assert owner.send("POST", RULES, body).status_code == 201


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OWNER])
def test_a_role_in_a_project_is_not_told_that_it_may_read_people(llm_team: Project, role: Role) -> None:
    looking = Robot("looking-robot", role=role, project=llm_team)
    held = {each["resourceType"]: each["actions"] for each in looking.get("v1/authorization/permissions").json()}
    assert "read" in held["access_rules"]
    assert "users" not in held
    question = {"resourceType": "users", "action": "read"}
    found = looking.send("POST", "v1/authorization/permitted-scopes", question).json()["read"]
    assert (found["system"], found["projects"]) == (False, [])
