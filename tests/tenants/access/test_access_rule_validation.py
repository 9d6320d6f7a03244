"""What access rules, roles and permissions refuse: nothing foreign is told, nothing is smuggled in."""

import tracemalloc
from typing import Any

import pytest
from django.test import Client

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access.models import AccessRole, Membership, Role, User
from tenants.access.services import credentials
from tenants.access.services.access_rules import get_or_create_group, grant
from tenants.access.services.credentials import exchange
from tenants.access.services.roles import create_role
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory, UserFactory
from tests.support.rest_clients import Robot

RULES = "v1/authorization/access-rules"
ROLES = "v2/authorization/roles"
PERMISSIONS = "v1/authorization/permissions"


@pytest.fixture
def rule(llm_team: Project) -> dict[str, Any]:
    """The body of a rule that a platform admin may make."""
    role = AccessRole.objects.get(key=Role.VIEWER)
    return {
        "subjectId": UserFactory(username="dana").username,
        "subjectType": "user",
        "roleId": role.pk,
        "scopeId": str(llm_team.pk),
        "scopeType": "project",
    }


@pytest.fixture
def role() -> dict[str, Any]:
    """The body of a custom role."""
    return {"name": "Auditor", "description": "", "permissionSets": [{"id": "view-event-history"}]}


def problem(response: Any) -> tuple[int, str]:
    """Status and where it hurts."""
    body = response.json()
    return response.status_code, body["errors"][0]["pointer"] if body.get("errors") else body["details"]


class TestRules:
    """Bodies and paths of access rules."""

    @pytest.mark.parametrize(
        ("change", "answer"),
        [
            ({"subjectId": "nobody"}, (404, "/subjectId")),
            ({"subjectId": "nul\x00l"}, (422, "/subjectId")),
            ({"subjectType": "service-account"}, (404, "/subjectId")),
            ({"subjectType": "robot"}, (422, "/subjectType")),
            ({"subjectType": "group", "subjectId": "a\nb"}, (422, "/group")),
            ({"roleId": 999999}, (404, "/roleId")),
            ({"roleId": 0}, (422, "/roleId")),
            ({"roleId": "viewer"}, (422, "/roleId")),
            ({"roleId": 10**18}, (422, "/roleId")),
            ({"scopeId": "999999"}, (404, "/scopeId")),
            ({"scopeId": "9" * 64}, (404, "/scopeId")),
            ({"scopeId": "1; DROP"}, (404, "/scopeId")),
            ({"scopeType": "cluster"}, (404, "/scopeId")),
            ({"scopeType": "tenant", "scopeId": "2"}, (404, "/scopeId")),
            ({"scopeType": "galaxy"}, (422, "/scopeType")),
            ({"clusterId": "4b7c6b0e-0000-4000-8000-000000000000"}, (404, "/clusterId")),
        ],
    )
    def test_what_is_not_there_is_404_at_its_field(
        self, robot: Robot, rule: dict[str, Any], change: dict[str, Any], answer: tuple[int, str]
    ) -> None:
        before = Membership.objects.count()
        assert problem(robot.send("POST", RULES, rule | change)) == answer
        assert Membership.objects.count() == before

    def test_t52_what_the_server_sets_is_refused(self, robot: Robot, rule: dict[str, Any]) -> None:
        for name, value in {
            "id": 7,
            "createdBy": "somebody",
            "createdAt": "2020-01-01T00:00:00Z",
            "roleName": "System administrator",
            "scopeName": "x",
            "tenantId": 2,
            "status": {"phase": "Ready"},
            "is_superuser": True,
        }.items():
            assert problem(robot.send("POST", RULES, rule | {name: value})) == (422, f"/{name}")
        payload = {
            "roleId": rule["roleId"],
            "subjects": [{"subjectId": "dana", "subjectType": "user", "role": "owner"}],
            "scopes": [{"scopeId": rule["scopeId"], "scopeType": "project"}],
        }
        answer = robot.send("POST", f"{RULES}/batch-create", {"payload": payload})
        assert problem(answer) == (422, "/payload/subjects/0/role")
        assert not User.objects.get(username="dana").memberships.exists()

    def test_a_foreign_scope_is_as_absent_as_none(
        self, rule: dict[str, Any], llm_team: Project, vision_team: Project
    ) -> None:
        owner = Robot("owning-robot", role=Role.OWNER, project=llm_team)
        foreign = owner.send("POST", RULES, rule | {"scopeId": str(vision_team.pk)})
        absent = owner.send("POST", RULES, rule | {"scopeId": "999999"})
        assert (foreign.status_code, foreign.json()) == (absent.status_code, absent.json())
        assert foreign.status_code == 404

    def test_a_person_is_named_and_never_numbered(self, robot: Robot, rule: dict[str, Any]) -> None:
        dana = User.objects.get(username="dana")
        assert problem(robot.send("POST", RULES, rule | {"subjectId": str(dana.pk)})) == (404, "/subjectId")

    def test_who_gives_no_roles_learns_of_nobody(self, member: Robot, rule: dict[str, Any]) -> None:
        changes: list[dict[str, Any]] = [{}, {"subjectId": "nobody"}, {"roleId": 999999}]
        for place in ({}, {"scopeType": "tenant", "scopeId": ""}):
            answers = [member.send("POST", RULES, rule | place | change) for change in changes]
            assert [answer.status_code for answer in answers] == [403] * 3
            assert len({answer.content for answer in answers}) == 1

    def test_nobody_gives_more_than_they_hold(self, rule: dict[str, Any], llm_team: Project) -> None:
        owner = Robot("owning-robot", role=Role.OWNER, project=llm_team)
        strong = create_role(name="Strong", permission_sets=["manage-projects"], actor=SYSTEM)
        assert owner.send("POST", RULES, rule | {"roleId": strong.pk}).status_code == 403
        assert owner.send("POST", RULES, rule | {"scopeType": "tenant", "scopeId": ""}).status_code == 403
        assert owner.send("POST", RULES, rule).status_code == 201

    @pytest.mark.parametrize(
        "query",
        [
            "subjectType=robot",
            "scopeType=galaxy",
            "clusterId=lab",
            "roleId=viewer",
            "lastUpdated=yesterday",
            "includeDeleted=perhaps",
            "limit=0",
            "offset=-1",
            "sortBy=secret_hash",
            "filterBy=service_account__secret_hash=^a",
            "filterBy=roleId==x",
            "search=%00",
            "subjectIdFilter=%00",
        ],
    )
    def test_t51_queries_that_mean_nothing_are_400(self, robot: Robot, query: str) -> None:
        assert robot.get(f"{RULES}?{query}").status_code == 400

    def test_t51_a_filter_reaches_no_foreign_rule(self, llm_team: Project, vision_team: Project) -> None:
        foreign = MembershipFactory(project=vision_team, user__username="foreigner")
        owner = Robot("owning-robot", role=Role.OWNER, project=llm_team)
        for query in (f"scopeId={vision_team.pk}", "filterBy=subjectId==foreigner", "search=foreigner"):
            assert owner.get(f"{RULES}?{query}").json()["totalRecords"] == 0
        answer = owner.send("POST", f"{RULES}/batch", {"ids": [str(foreign.pk)], "action": "delete"})
        assert [each["code"] for each in answer.json()["failed"]] == [404]
        assert Membership.objects.filter(pk=foreign.pk).exists()

    @pytest.mark.parametrize("key", ["1" + "0" * 30, "0x1", "%2e%2e", "1;2", "-1"])
    def test_t68_ids_that_are_tricks_are_404(self, robot: Robot, key: str) -> None:
        for method in ("GET", "DELETE"):
            assert robot.send(method, f"{RULES}/{key}").status_code == 404
        assert robot.get(f"{ROLES}/{key}").status_code == 404

    def test_a_batch_is_bounded(self, robot: Robot, rule: dict[str, Any]) -> None:
        assert robot.send("POST", f"{RULES}/batch", {"ids": [], "action": "delete"}).status_code == 422
        assert robot.send("POST", f"{RULES}/batch", {"ids": ["1"], "action": "explode"}).status_code == 422
        many = [{"subjectId": f"group-{n}", "subjectType": "group"} for n in range(501)]
        scopes = [{"scopeId": rule["scopeId"], "scopeType": "project"}]
        payload = {"roleId": rule["roleId"], "subjects": many, "scopes": scopes}
        assert problem(robot.send("POST", f"{RULES}/batch-create", {"payload": payload})) == (422, "/payload")

    def test_a_small_body_that_asks_for_very_much_costs_little(self, robot: Robot, rule: dict[str, Any]) -> None:
        many = [{"subjectId": f"group-{n}", "subjectType": "group"} for n in range(800)]
        scopes = [{"scopeId": rule["scopeId"], "scopeType": "project"}] * 800
        payload = {"roleId": rule["roleId"], "subjects": many, "scopes": scopes}
        tracemalloc.start()
        try:
            answer = robot.send("POST", f"{RULES}/batch-create", {"payload": payload})
            _now, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert problem(answer) == (422, "/payload")
        assert most < 20 << 20

    def test_a_dry_run_makes_and_deletes_nothing(self, robot: Robot, rule: dict[str, Any]) -> None:
        made = robot.send("POST", f"{RULES}?dryRun=true", rule)
        assert (made.status_code, made.json()["subjectId"]) == (200, "dana")
        held = Membership.objects.get()
        ids = {"ids": [str(held.pk)], "action": "delete"}
        MembershipFactory(role=Role.PLATFORM_ADMIN, project=None)
        assert robot.send("POST", f"{RULES}/batch?dryRun=true", ids).json()["succeeded"] == [str(held.pk)]
        assert Membership.objects.filter(pk=held.pk).exists()


class TestRoles:
    """Bodies and paths of roles."""

    @pytest.mark.parametrize(
        ("change", "answer"),
        [
            ({"permissionSets": [{"id": "view"}, {"id": "rule-the-world"}]}, (422, "/permissionSets/1/id")),
            ({"permissionSets": []}, (422, "/permissionSets")),
            ({"permissionSets": [{"name": "View"}]}, (422, "/permissionSets/0/id")),
            ({"permissionSets": ["view"]}, (422, "/permissionSets/0")),
            ({"kubernetesPermissions": {"predefinedRole": "1"}}, (422, "/kubernetesPermissions")),
            ({"name": "Viewer"}, (409, "/name")),
            ({"name": "a\u0007b"}, (422, "/name")),
        ],
    )
    def test_bad_bodies_are_refused_at_their_field(
        self, robot: Robot, role: dict[str, Any], change: dict[str, Any], answer: tuple[int, str]
    ) -> None:
        assert problem(robot.send("POST", ROLES, role | change)) == answer
        assert not AccessRole.objects.filter(custom=True).exists()

    def test_t52_what_the_server_sets_is_refused(self, robot: Robot, role: dict[str, Any]) -> None:
        for name, value in {
            "id": 1,
            "key": "platform-admin",
            "custom": False,
            "effectiveEnabled": True,
            "permissions": [{"resourceType": "users", "actions": ["create"]}],
            "createdBy": "somebody",
        }.items():
            assert problem(robot.send("POST", ROLES, role | {name: value})) == (422, f"/{name}")
        smuggled = role | {"permissionSets": [{"id": "view", "verbs": ["manage_access"]}]}
        assert problem(robot.send("POST", ROLES, smuggled)) == (422, "/permissionSets/0/verbs")

    def test_a_role_is_made_changed_and_deleted(self, robot: Robot, role: dict[str, Any]) -> None:
        made = robot.send("POST", ROLES, role)
        assert (made.status_code, made.json()["createdBy"], made.json()["custom"]) == (201, "platform-robot", True)
        where = f"{ROLES}/{made.json()['id']}"
        wider = role | {"permissionSets": [{"id": "view"}, {"id": "view-event-history"}], "enabled": False}
        changed = robot.send("PUT", where, wider).json()
        assert (changed["effectiveEnabled"], len(changed["permissionSets"])) == (False, 2)
        assert robot.get(where).json() == changed
        assert robot.get(where.replace("v2", "v1")).json()["permissions"][0]["displayName"]
        assert robot.send("DELETE", where).status_code == 204
        assert robot.get(where).status_code == 404
        actions = AuditRecord.objects.filter(entity_type="accessrole").values_list("action", flat=True)
        assert sorted(actions) == ["role.create", "role.delete", "role.update"]

    def test_those_that_come_with_rung_stay(self, robot: Robot, role: dict[str, Any]) -> None:
        where = f"{ROLES}/{AccessRole.objects.get(key=Role.VIEWER).pk}"
        assert robot.send("PUT", where, role).status_code == 409
        assert robot.send("DELETE", where).status_code == 409

    def test_only_those_who_manage_access_write_them(self, member: Robot, role: dict[str, Any]) -> None:
        assert member.send("POST", ROLES, role).status_code == 403
        where = f"{ROLES}/{AccessRole.objects.get(key=Role.VIEWER).pk}"
        assert [member.send(method, where, role).status_code for method in ("PUT", "DELETE")] == [403, 403]
        assert member.get(ROLES).status_code == 200

    def test_permission_sets_are_read_by_everybody(self, member: Robot) -> None:
        sets = {each["id"]: each for each in member.get("v1/authorization/permission-sets").json()}
        assert {"resourceType": "workloads", "actions": ["create", "read"]} in sets["submit-workloads"]["permissions"]
        assert member.get("v1/authorization/permission-sets/view").json() == sets["view"]
        assert member.get("v1/authorization/permission-sets/none").status_code == 404


class TestQuestions:
    """Permissions and permitted scopes."""

    def test_a_question_without_a_resource_type_is_refused(self, member: Robot) -> None:
        where = "v1/authorization/permitted-scopes"
        assert problem(member.send("POST", where, {})) == (422, "/resourceType")
        unknown = {"resourceType": "workloads", "action": "explode"}
        assert problem(member.send("POST", where, unknown)) == (422, "/action")

    def test_what_everybody_may_is_permitted_everywhere(self, member: Robot) -> None:
        scopes = member.send("POST", "v1/authorization/permitted-scopes", {"resourceType": "nodes"}).json()
        assert (scopes["read"]["system"], scopes["create"]["system"]) == (True, False)


class TestOneself:
    """One's own rules and rights, by an access key."""

    def client(self, user: User, **limits: Any) -> Client:
        key, secret = credentials.create_access_key(name="asking", actor=acting(user), **limits)
        return Client(headers={"Authorization": f"Bearer {exchange(key.client_id, secret).text}"})

    def test_a_superuser_has_a_rule_without_id(self, admin: User) -> None:
        found = self.client(admin).get("/api/v1/authorization/me/access-rules").json()["accessRules"]
        (rule,) = found["accessRules"]
        assert (rule["roleName"], rule["scopeType"], "id" in rule) == ("System administrator", "tenant", False)

    def test_a_groups_rule_is_ones_own(self, bob: User, vision_team: Project) -> None:
        group = get_or_create_group("ml-engineers")
        grant(subject=group, role=Role.VIEWER, project=vision_team, actor=SYSTEM)
        client = self.client(bob)
        assert client.get("/api/v1/authorization/me/access-rules/count").json() == {"count": 1}
        bob.groups.add(group)
        found = client.get("/api/v1/authorization/me/access-rules").json()["accessRules"]["accessRules"]
        assert [(each["subjectType"], each["scopeName"]) for each in found] == [
            ("user", "llm-team"),
            ("group", "vision-team"),
        ]

    def test_a_narrowed_key_is_permitted_less(self, admin: User, llm_team: Project) -> None:
        client = self.client(admin, read_only=True, project=llm_team)
        held = {each["resourceType"]: each["actions"] for each in client.get(f"/api/{PERMISSIONS}").json()}
        assert (held["workloads"], "users" in held) == (["read"], False)
        question = {"resourceType": "project", "action": "update"}
        answer = client.post("/api/v1/authorization/permitted-scopes", question, "application/json")
        assert answer.status_code == 200
        assert (answer.json()["read"]["projects"], answer.json()["update"]["projects"]) == ([str(llm_team.pk)], [])
        assert answer.json()["read"]["system"] is False
        assert client.get(f"/api/{RULES}").json()["totalRecords"] == 0
