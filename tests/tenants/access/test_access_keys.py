"""Access keys: a person's own, never more than the person, shown once, dead as soon as anything about them ends."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.audit.models import AuditRecord
from portal.kit.errors import BadRequest, Conflict, Forbidden, NotFound, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor, ActorKind, CredentialLimits
from tenants.access.models import AccessKey, Membership, ServiceAccount, User
from tenants.access.services import access_rules, credentials, subjects
from tenants.access.services.credentials import exchange, subject_of, subject_of_token
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Project
from tests.factories.cast import acting
from tests.factories.tenants import AccessKeyFactory

Made = tuple[AccessKey, str]


@pytest.fixture
def made(alice: User) -> Made:
    """A key of Alice's without bounds, and its secret."""
    return credentials.create_access_key(name="laptop", actor=acting(alice))


def by(key: AccessKey) -> Actor:
    """The actor that a token of the key is."""
    subject = subject_of(key)
    assert subject is not None
    return subject.actor()


def bearer(made: Made) -> Client:
    """A program that asks with a token of the key."""
    key, secret = made
    return Client(headers={"Authorization": f"Bearer {exchange(key.client_id, secret).text}"})


class TestWhatIsKept:
    """A hash, an owner, and a record of every change."""

    def test_the_secret_is_random_and_only_its_hash_is_stored(self, made: Made) -> None:
        key, secret = made
        assert len(secret) >= 43
        assert secret not in str(AccessKey.objects.values().get())
        assert credentials.secret_matches(secret, key.secret_hash)

    def test_two_people_may_use_one_name_and_one_person_may_not(self, made: Made, alice: User, bob: User) -> None:
        other, _ = credentials.create_access_key(name="laptop", actor=acting(bob))
        assert other.client_id != made[0].client_id
        with pytest.raises(Conflict):
            credentials.create_access_key(name="laptop", actor=acting(alice))

    @pytest.mark.parametrize("name", ["", "Laptop", "9lives", "a", "lap top", "laptop\n", "x" * 64, "nul\x00l", "a.b"])
    def test_names_follow_the_pattern_of_runai(self, alice: User, name: str) -> None:
        with pytest.raises(ValidationFailed):
            credentials.create_access_key(name=name, actor=acting(alice))

    def test_nobody_has_more_than_a_hundred(self, alice: User) -> None:
        AccessKeyFactory.create_batch(credentials.MOST_KEYS, owner=alice)
        with pytest.raises(Conflict) as refusal:
            credentials.create_access_key(name="laptop", actor=acting(alice))
        assert refusal.value.code == "too_many_keys"

    @pytest.mark.parametrize(
        "actor",
        [
            pytest.param(SYSTEM, id="the system"),
            pytest.param(Actor(ActorKind.SERVICE_ACCOUNT, "7", "robot", SYSTEM.channel), id="demo setup"),
        ],
    )
    def test_keys_are_for_people(self, db: None, actor: Actor) -> None:
        with pytest.raises(Forbidden):
            credentials.create_access_key(name="laptop", actor=actor)
        assert not credentials.keys_of(actor).exists()

    def test_every_change_is_recorded_with_what_it_allowed(self, alice: User, llm_team: Project) -> None:
        key, _ = credentials.create_access_key(name="laptop", actor=acting(alice), read_only=True, project=llm_team)
        credentials.rotate_access_key(key=key, actor=acting(alice))
        credentials.revoke_own_key(key=key, actor=acting(alice))
        rows = list(AuditRecord.objects.filter(entity_type="accesskey").order_by("id"))
        assert [row.action for row in rows] == ["access-key.create", "access-key.rotate", "access-key.revoke"]
        assert rows[0].detail["readOnly"] is True
        assert rows[0].detail["projectId"] == llm_team.pk

    def test_the_last_use_is_recorded(self, made: Made) -> None:
        exchange(*(made[0].client_id, made[1]))
        made[0].refresh_from_db()
        assert made[0].last_login is not None
        entry = AuditRecord.objects.get(action="session.start")
        assert (entry.actor_name, entry.entity_name, entry.channel) == ("alice", "laptop", "api")


class TestWhoItIs:
    """A token of a key is its owner, narrowed."""

    def test_it_is_the_owner_through_the_api(self, made: Made, alice: User) -> None:
        actor = by(made[0])
        assert (actor.kind, actor.id, actor.name, actor.channel) == (ActorKind.USER, str(alice.pk), "alice", "api")
        assert actor.limits == CredentialLimits(key=str(made[0].pk))

    def test_its_bounds_come_along(self, alice: User, llm_team: Project) -> None:
        key, _ = credentials.create_access_key(name="laptop", actor=acting(alice), read_only=True, project=llm_team)
        assert by(key).limits == CredentialLimits(str(key.pk), read_only=True, project_id=llm_team.pk)

    def test_what_it_did_is_told_from_what_its_owner_did(self, made: Made, alice: User) -> None:
        credentials.create_access_key(name="by-key", actor=by(made[0]))
        credentials.create_access_key(name="by-hand", actor=acting(alice))
        rows = AuditRecord.objects.filter(actor_name="alice", entity_name__startswith="by-").order_by("id")
        assert [row.detail.get("byAccessKey") for row in rows] == [str(made[0].pk), None]

    def test_one_that_only_reads_changes_nothing(self, alice: User, llm_team: Project) -> None:
        program = bearer(credentials.create_access_key(name="laptop", actor=acting(alice), read_only=True))
        assert program.get("/api/v1/org-unit/projects").json()["projects"][0]["name"] == "llm-team"
        answer = program.post("/api/v1/access-keys", {"name": "wider"}, content_type="application/json")
        assert (answer.status_code, answer.json()["details"]) == (403, "read_only_key")

    def test_it_is_bound_only_to_what_its_owner_sees(self, alice: User, vision_team: Project) -> None:
        with pytest.raises(NotFound):
            credentials.create_access_key(name="laptop", actor=acting(alice), project=vision_team)
        with pytest.raises(NotFound):
            credentials.create_access_key(name="laptop", actor=acting(alice), department=vision_team.department)

    def test_it_ends_in_the_future(self, alice: User) -> None:
        with pytest.raises(ValidationFailed):
            credentials.create_access_key(name="laptop", actor=acting(alice), expires_at=timezone.now())


class TestNothingWider:
    """Whoever finds a narrow or short-lived key makes no better one with it, and takes over none."""

    @pytest.fixture
    def narrow(self, admin: User, llm_team: Project) -> Actor:
        ends = timezone.now() + timedelta(hours=1)
        return by(
            credentials.create_access_key(name="narrow", actor=acting(admin), project=llm_team, expires_at=ends)[0]
        )

    @pytest.mark.parametrize(
        "bounds",
        [
            pytest.param({}, id="none"),
            pytest.param({"expires_at": timedelta(minutes=5)}, id="of time only"),
            pytest.param({"project": True}, id="of place only"),
            pytest.param({"project": True, "expires_at": timedelta(hours=2)}, id="of more time"),
        ],
    )
    def test_a_key_of_fewer_bounds_is_refused(self, narrow: Actor, llm_team: Project, bounds: dict[str, Any]) -> None:
        with pytest.raises((Forbidden, NotFound)):
            credentials.create_access_key(name="wider", actor=narrow, **self._real(bounds, llm_team))

    def test_one_within_its_own_is_made(self, narrow: Actor, llm_team: Project) -> None:
        bounds = {"project": True, "expires_at": timedelta(minutes=5), "read_only": True}
        assert credentials.create_access_key(name="narrower", actor=narrow, **self._real(bounds, llm_team))

    def test_a_project_is_within_its_department(self, admin: User, llm_team: Project) -> None:
        within = by(credentials.create_access_key(name="one", actor=acting(admin), department=llm_team.department)[0])
        assert credentials.create_access_key(name="two", actor=within, project=llm_team)

    def test_a_wider_one_gets_no_new_secret_and_is_not_revoked(self, narrow: Actor, admin: User) -> None:
        wide, _ = credentials.create_access_key(name="wide", actor=acting(admin))
        for change in (credentials.rotate_access_key, credentials.revoke_own_key):
            with pytest.raises(Forbidden):
                change(key=wide, actor=narrow)

    def _real(self, bounds: dict[str, Any], project: Project) -> dict[str, Any]:
        real: dict[str, Any] = dict(bounds)
        if "project" in real:
            real["project"] = project
        if "expires_at" in real:
            real["expires_at"] += timezone.now()
        return real


class TestWhoseTheyAre:
    """Nobody reads, turns or revokes another's key, but platform admins revoke."""

    def test_others_find_nothing(self, made: Made, bob: User, admin: User) -> None:
        for somebody in (bob, admin):
            assert not credentials.keys_of(acting(somebody)).exists()
            for change in (credentials.rotate_access_key, credentials.revoke_own_key):
                with pytest.raises(NotFound):
                    change(key=made[0], actor=acting(somebody))

    def test_platform_admins_revoke_and_it_says_whose(self, made: Made, bob: User, admin: User) -> None:
        with pytest.raises(Forbidden):
            credentials.revoke_any_key(key=made[0], actor=acting(bob))
        credentials.revoke_any_key(key=made[0], actor=acting(admin))
        assert AuditRecord.objects.get(action="access-key.revoke").detail["owner"] == "alice"


def revoked(key: AccessKey) -> None:
    credentials.revoke_own_key(key=key, actor=acting(key.owner))


def rotated(key: AccessKey) -> None:
    credentials.rotate_access_key(key=key, actor=acting(key.owner))


def expired(key: AccessKey) -> None:
    AccessKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())


def disabled(key: AccessKey) -> None:
    key.owner.is_active = False
    subjects.save_user(user=key.owner, actor=SYSTEM)


def removed(key: AccessKey) -> None:
    subjects.delete_user(user=key.owner, actor=SYSTEM)


class TestT62:
    """Whatever ends, the next request is refused: also by a process that kept what it read."""

    @pytest.mark.parametrize("end", [revoked, rotated, expired, disabled, removed])
    def test_the_token_dies_with_it(self, made: Made, end: Callable[[AccessKey], None]) -> None:
        program = bearer(made)
        assert [program.get("/api/v1/org-unit/projects").status_code for _ in range(2)] == [200, 200]
        end(made[0])
        assert program.get("/api/v1/org-unit/projects").status_code == 401

    @pytest.mark.parametrize("end", [revoked, rotated, expired, disabled, removed])
    def test_the_old_secret_gives_no_token(self, made: Made, end: Callable[[AccessKey], None]) -> None:
        end(made[0])
        with pytest.raises(BadRequest) as refusal:
            exchange(made[0].client_id, made[1])
        assert refusal.value.code == "invalid_client"

    def test_a_removed_membership_hides_the_project(self, made: Made, alice: User) -> None:
        program = bearer(made)
        assert len(program.get("/api/v1/org-unit/projects").json()["projects"]) == 1
        access_rules.revoke(membership=Membership.objects.get(user=alice), actor=SYSTEM)
        assert program.get("/api/v1/org-unit/projects").json()["projects"] == []

    def test_a_key_goes_with_the_project_that_bounds_it(self, alice: User, admin: User, llm_team: Project) -> None:
        program = bearer(credentials.create_access_key(name="bound", actor=acting(admin), project=llm_team))
        organisation_services.delete_project(project=llm_team, actor=SYSTEM)
        assert program.get("/api/v1/org-unit/projects").status_code == 401

    def test_a_token_never_outlives_its_key(self, alice: User) -> None:
        ends = timezone.now() + timedelta(minutes=10)
        key, secret = credentials.create_access_key(name="short", actor=acting(alice), expires_at=ends)
        assert 590 <= exchange(key.client_id, secret).seconds <= 600

    def test_accounts_expire_too(self, db: None) -> None:
        ends = timezone.now() + timedelta(minutes=10)
        account, secret = subjects.create_service_account(name="robot", actor=SYSTEM, expires_at=ends)
        token = exchange("robot", secret).text
        assert subject_of_token(token) is not None
        ServiceAccount.objects.filter(pk=account.pk).update(expires_at=timezone.now())
        assert subject_of_token(token) is None
        with pytest.raises(BadRequest):
            exchange("robot", secret)


def test_a_key_is_read_once_per_request(made: Made, django_assert_max_num_queries: Any) -> None:
    token = exchange(made[0].client_id, made[1]).text
    program = Client(headers={"Authorization": f"Bearer {token}"})
    program.get("/api/v1/workload-priorities")
    with django_assert_max_num_queries(3) as queries:
        program.get("/api/v1/workload-priorities")
    assert sum("tenants_accesskey" in query["sql"] for query in queries) == 1


def test_t64_no_secret_reaches_the_audit_trail_or_an_answer(
    made: Made, alice: User, caplog: pytest.LogCaptureFixture
) -> None:
    key, secret = made
    fresh = credentials.rotate_access_key(key=key, actor=acting(alice))
    body = {"grantType": "app_token", "AppId": key.client_id, "AppSecret": "canary-secret"}
    refused = Client().post("/api/v1/token", body, content_type="application/json")
    granted = Client().post("/api/v1/token", {**body, "AppSecret": fresh}, content_type="application/json")
    program = Client(headers={"Authorization": f"Bearer {granted.json()['accessToken']}"})
    listed = program.get("/api/v1/access-keys")
    told = f"{list(AuditRecord.objects.values())}{caplog.text}{refused.content!r}{listed.content!r}"
    for hidden in (secret, fresh, "canary-secret", key.secret_hash, granted.json()["accessToken"]):
        assert hidden not in told


@pytest.mark.parametrize(
    "field", ["owner", "ownerId", "createdBy", "clientId", "clientSecret", "secretHash", "lastLogin", "limits", "id"]
)
def test_t52_nothing_else_is_assigned(made: Made, field: str, bob: User) -> None:
    answer = bearer(made).post("/api/v1/access-keys", {"name": "extra", field: "bob"}, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/{field}"
    assert not AccessKey.objects.filter(name="extra").exists()


def test_t55_no_header_makes_somebody_else_of_it(made: Made, bob: User) -> None:
    spoofed = {"X-Remote-User": "bob", "Impersonate-User": "bob", "Remote-User": "bob"}
    listed = bearer(made).get("/api/v1/access-keys", headers=spoofed).json()["accessKeys"]
    assert [each["name"] for each in listed] == ["laptop"]


def test_what_is_beyond_runai_is_taken_and_told(made: Made, llm_team: Project) -> None:
    body = {
        "name": "extra",
        "readOnly": True,
        "projectId": str(llm_team.pk),
        "expiresAt": (timezone.now() + timedelta(days=1)).isoformat(),
    }
    answer = bearer(made).post("/api/v1/access-keys", body, content_type="application/json")
    assert answer.status_code == 201
    told = answer.json()
    assert (told["readOnly"], told["projectId"], told["departmentId"]) == (True, str(llm_team.pk), None)
    assert told["expiresAt"]


@pytest.mark.parametrize(
    ("extra", "pointer"),
    [
        pytest.param({"expiresAt": "2001-01-01T00:00:00Z"}, "/expiresAt", id="in the past"),
        pytest.param({"expiresAt": "soon"}, "/expiresAt", id="no time"),
        pytest.param({"projectId": "999999"}, "/projectId", id="absent project"),
        pytest.param({"projectId": "10" * 10}, "/projectId", id="huge id"),
        pytest.param({"projectId": "x"}, "/projectId", id="no id"),
        pytest.param({"departmentId": "999999"}, "/departmentId", id="absent department"),
        pytest.param({"readOnly": "perhaps"}, "/readOnly", id="no boolean"),
        pytest.param({"name": "Extra"}, "/name", id="name"),
    ],
)
def test_a_bad_bound_is_refused_at_its_field(made: Made, extra: dict[str, Any], pointer: str) -> None:
    answer = bearer(made).post("/api/v1/access-keys", {"name": "extra", **extra}, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_repeated_request_makes_one_key_and_shows_its_secret_once(made: Made) -> None:
    program = bearer(made)
    again = [
        program.post(
            "/api/v1/access-keys", {"name": "extra"}, content_type="application/json", headers={"Idempotency-Key": "k1"}
        )
        for _ in range(2)
    ]
    assert [answer.status_code for answer in again] == [201, 201]
    assert ["clientSecret" in answer.json() for answer in again] == [True, False]
    assert AccessKey.objects.filter(name="extra").count() == 1
