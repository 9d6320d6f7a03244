"""People and service accounts over REST: what is refused, and that refusing changes nothing."""

from typing import Any

import pytest

from portal.audit.models import AuditRecord
from tenants.access.models import ServiceAccount, User
from tenants.access.services import credentials
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.support.rest_clients import Robot


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({}, "/email", id="nothing"),
        pytest.param({"email": "dana"}, "/email", id="no address"),
        pytest.param({"email": f"{'d' * 150}@example.com"}, "/email", id="long"),
        pytest.param({"email": "dana@example.com\x00"}, "/email", id="NUL"),
        pytest.param({"email": "dana@example.com", "notify": True}, "/notify", id="mail that nobody would send"),
        pytest.param({"email": "dana@example.com", "resetPassword": True}, "/resetPassword", id="what is not enforced"),
        pytest.param({"email": "dana@example.com", "isStaff": True}, "/isStaff", id="T52 is_staff"),
        pytest.param({"email": "dana@example.com", "is_superuser": True}, "/is_superuser", id="T52 is_superuser"),
        pytest.param({"email": "dana@example.com", "createdBy": "bob"}, "/createdBy", id="T52 created_by"),
    ],
)
def test_a_person_that_is_not_well_said_is_refused_at_the_field(
    robot: Robot, body: dict[str, Any], pointer: str
) -> None:
    before = User.objects.count()
    answer = robot.send("POST", "v1/users", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert User.objects.count() == before


def test_one_name_is_one_person_however_it_is_spelt(robot: Robot) -> None:
    assert robot.send("POST", "v1/users", {"email": "dana@example.com", "notify": False}).status_code == 201
    answer = robot.send("POST", "v1/users", {"email": "Dana@example.com"})
    assert (answer.status_code, answer.json()["details"]) == (409, "taken")


def test_the_last_platform_admin_stays(robot: Robot, admin: User) -> None:
    answer = robot.send("DELETE", f"v1/users/{admin.pk}")
    assert (answer.status_code, answer.json()["details"]) == (409, "last_platform_admin")
    assert User.objects.filter(pk=admin.pk).exists()


@pytest.mark.parametrize("unit", ["999999", "1" + "0" * 30, "1%2e%2e", "x", "1;2"])
def test_t68_an_id_that_is_none_is_404(robot: Robot, unit: str) -> None:
    assert robot.get(f"v1/users/{unit}").status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("filterBy=password=^a", id="T51 another column"),
        pytest.param("filterBy=isLocal==perhaps", id="no boolean"),
        pytest.param("sortBy=password", id="T51 sorted by another column"),
        pytest.param("limit=501", id="page"),
        pytest.param("filter=runai.is_local:true", id="the older filter"),
    ],
)
def test_a_query_that_is_not_known_is_400(robot: Robot, query: str) -> None:
    assert robot.get(f"v1/users?{query}").status_code == 400


def test_a_text_that_no_name_holds_finds_nobody(robot: Robot, alice: User) -> None:
    assert robot.get("v1/users?search=%00nobody").json() == []
    assert robot.get("v1/administration/access-keys?clientId=%00x").json() == {"accessKeys": []}


def test_a_dry_run_creates_no_account_and_resets_no_password(robot: Robot, alice: User) -> None:
    answer = robot.send("POST", "v1/users?dryRun=true", {"email": "dana@example.com"})
    assert (answer.status_code, answer.json()["username"]) == (200, "dana@example.com")
    assert robot.send("POST", f"v1/users/{alice.pk}/password?dryRun=true").status_code == 200
    assert not User.objects.filter(username="dana@example.com").exists()
    assert User.objects.get(pk=alice.pk).password == alice.password


def test_t64_a_repeated_reset_tells_no_password_twice_and_keeps_none(robot: Robot, alice: User) -> None:
    first, second = (
        robot.send("POST", f"v1/users/{alice.pk}/password", None, **{"Idempotency-Key": "once"}) for _ in range(2)
    )
    assert User.objects.get(pk=alice.pk).check_password(first.json()["tempPassword"])
    assert second.json() == {}
    assert first.json()["tempPassword"] not in str(list(AuditRecord.objects.values()))


def test_an_admins_key_gets_no_password_of_its_owner(robot: Robot, admin: User) -> None:
    key, secret = credentials.create_access_key(name="short", actor=acting(admin))
    robot.client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {exchange(key.client_id, secret).text}"
    answer = robot.send("POST", f"v1/users/{admin.pk}/password")
    assert (answer.status_code, answer.json()["details"]) == (403, "own_password")
    assert User.objects.get(pk=admin.pk).password == admin.password


class TestOwnPassword:
    """Only who knows the old one sets a new one."""

    @pytest.fixture
    def program(self, robot: Robot, alice: User) -> Robot:
        key, secret = credentials.create_access_key(name="laptop", actor=acting(alice))
        robot.client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {exchange(key.client_id, secret).text}"
        return robot

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            pytest.param({"currentPassword": "guess", "newPassword": "a long new one"}, "/currentPassword", id="wrong"),
            pytest.param({"newPassword": "a long new one"}, "/currentPassword", id="none"),
            pytest.param({"currentPassword": "correct horse battery staple"}, "/newPassword", id="no new one"),
            pytest.param(
                {"currentPassword": "correct horse battery staple", "newPassword": "short"}, "/newPassword", id="weak"
            ),
        ],
    )
    def test_else_it_stays(self, program: Robot, alice: User, body: dict[str, str], pointer: str) -> None:
        answer = program.send("POST", "v1/me/password", body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer
        assert User.objects.get(pk=alice.pk).password == alice.password

    def test_programs_have_none(self, robot: Robot) -> None:
        body = {"currentPassword": "guess", "newPassword": "a long new one"}
        answer = robot.send("POST", "v1/me/password", body)
        assert (answer.status_code, answer.json()["details"]) == (403, "only_people")


class TestServiceAccounts:
    """An account is for platform admins to make, and for nobody to bend."""

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            pytest.param({"name": "Pipeline"}, "/name", id="name"),
            pytest.param({"name": "pipeline", "role": "platform-admin"}, "/role", id="T52 role"),
            pytest.param({"name": "pipeline", "clientSecret": "chosen"}, "/clientSecret", id="T52 secret"),
            pytest.param({"name": "pipeline", "createdBy": "bob"}, "/createdBy", id="T52 created_by"),
            pytest.param({"name": "pipeline", "expiresAt": "2001-01-01T00:00:00Z"}, "/expiresAt", id="in the past"),
        ],
    )
    def test_what_is_not_well_said_is_refused_at_the_field(
        self, robot: Robot, body: dict[str, Any], pointer: str
    ) -> None:
        answer = robot.send("POST", "v1/service-accounts", body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer
        assert not ServiceAccount.objects.filter(name="pipeline").exists()

    def test_a_change_names_what_may_change(self, robot: Robot) -> None:
        account = robot.account
        answer = robot.send("PATCH", f"v1/service-accounts/{account.pk}", {"enabled": True, "name": "boss"})
        assert answer.status_code == 422
        assert robot.send("PATCH", f"v1/service-accounts/{account.pk}", {}).status_code == 422

    def test_one_with_an_end_says_so(self, robot: Robot) -> None:
        made = robot.send("POST", "v1/service-accounts", {"name": "pipeline", "expiresAt": "2999-01-01T00:00:00Z"})
        assert robot.get(f"v1/service-accounts/{made.json()['id']}").json()["expiresAt"] == "2999-01-01T00:00:00Z"


def test_an_admins_key_for_one_project_administers_nobody(robot: Robot, admin: User, llm_team: Project) -> None:
    key, secret = credentials.create_access_key(name="narrow", actor=acting(admin), project=llm_team)
    robot.client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {exchange(key.client_id, secret).text}"
    for path in ("v1/users", "v1/service-accounts", "v1/administration/access-keys"):
        assert robot.get(path).status_code == 403
    assert robot.send("POST", "v1/service-accounts", {"name": "wider"}).status_code == 403
