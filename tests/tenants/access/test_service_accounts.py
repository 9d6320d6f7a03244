"""Service accounts: secrets are seen once and kept as hashes; shutting one out counts at once."""

import pytest
from django.test.utils import override_settings

from portal.audit.models import AuditRecord
from portal.kit.errors import BadRequest, Conflict, Forbidden, ValidationFailed
from portal.kit.security.actors import SYSTEM, Actor
from tenants.access.models import Role, ServiceAccount, User
from tenants.access.rules import Permission
from tenants.access.selectors import can
from tenants.access.services import credentials, subjects
from tenants.access.services.credentials import exchange, subject_of, subject_of_token
from tenants.organisation.models import Project
from tests.factories.cast import acting


@pytest.fixture
def robot(db: None) -> tuple[ServiceAccount, str]:
    """An account without roles, and its secret."""
    return subjects.create_service_account(name="robot", actor=SYSTEM)


def actor_of(account: ServiceAccount) -> Actor:
    subject = subject_of(account)
    assert subject is not None
    return subject.actor()


def test_a_generated_secret_is_long_random_and_kept_as_a_hash(robot: tuple[ServiceAccount, str]) -> None:
    account, secret = robot
    assert len(secret) >= 43
    assert secret not in account.secret_hash
    assert account.secret_hash.startswith("sha256$")
    assert subjects.create_service_account(name="other", actor=SYSTEM)[1] != secret


@override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.PBKDF2PasswordHasher"])
def test_a_chosen_secret_gets_the_slow_hash_of_passwords(db: None) -> None:
    account, secret = subjects.create_service_account(name="demo", secret="a demo password", actor=SYSTEM)
    assert secret == "a demo password"
    assert account.secret_hash.startswith("pbkdf2_sha256$")
    assert exchange("demo", "a demo password")


def test_a_role_comes_with_it(llm_team: Project) -> None:
    account, _ = subjects.create_service_account(name="robot", role=Role.MEMBER, project=llm_team, actor=SYSTEM)
    assert can(actor_of(account), Permission.SUBMIT, project=llm_team)


def test_a_role_without_scope_reaches_everything(llm_team: Project) -> None:
    account, _ = subjects.create_service_account(name="robot", role=Role.PLATFORM_ADMIN, actor=SYSTEM)
    assert can(actor_of(account), Permission.MANAGE_DICTIONARY)


@pytest.mark.parametrize("name", ["", "Robot", "9lives", "a", "robot-", "ro bot", "robot\n", "x" * 64, "nul\x00l"])
def test_names_follow_the_pattern_of_runai(db: None, name: str) -> None:
    with pytest.raises(ValidationFailed):
        subjects.create_service_account(name=name, actor=SYSTEM)


def test_a_taken_name_is_a_conflict(robot: tuple[ServiceAccount, str]) -> None:
    with pytest.raises(Conflict):
        subjects.create_service_account(name="robot", actor=SYSTEM)


def test_only_platform_admins_make_them(alice: User) -> None:
    with pytest.raises(Forbidden):
        subjects.create_service_account(name="robot", actor=acting(alice))


def test_the_right_secret_gives_a_token_of_the_account(robot: tuple[ServiceAccount, str]) -> None:
    account, secret = robot
    assert subject_of_token(exchange("robot", secret).text) == subject_of(account)
    account.refresh_from_db()
    assert account.last_login is not None
    entry = AuditRecord.objects.get(action="session.start")
    assert (entry.actor_name, entry.channel, entry.result) == ("robot", "api", "Succeeded")


@pytest.mark.parametrize(
    ("client_id", "secret"),
    [
        pytest.param("robot", "wrong", id="wrong secret"),
        pytest.param("robot", "", id="empty secret"),
        pytest.param("nobody", "", id="unknown client"),
        pytest.param("nul\x00l", "x", id="NUL in the client id"),
        pytest.param("robot", "\ud800", id="lone surrogate"),
        pytest.param("robot", "x" * 100_000, id="huge"),
    ],
)
def test_everything_else_is_refused_in_the_same_words(
    robot: tuple[ServiceAccount, str], client_id: str, secret: str
) -> None:
    with pytest.raises(BadRequest) as refusal:
        exchange(client_id, secret)
    assert (refusal.value.code, refusal.value.message) == ("invalid_client", "Wrong client id or secret.")
    assert AuditRecord.objects.get(action="session.start").result == "Denied"


def test_t64_no_secret_reaches_the_audit_trail(robot: tuple[ServiceAccount, str]) -> None:
    _, secret = robot
    exchange("robot", secret)
    with pytest.raises(BadRequest):
        exchange("robot", "canary-secret")
    subjects.rotate_service_account(account=robot[0], actor=SYSTEM)
    written = str(list(AuditRecord.objects.values()))
    assert secret not in written
    assert "canary-secret" not in written
    assert robot[0].secret_hash not in written


class TestT62:
    """An account that is shut out is out with its next request, whatever tokens it holds."""

    @pytest.fixture
    def token(self, robot: tuple[ServiceAccount, str]) -> str:
        return exchange("robot", robot[1]).text

    def test_disabled(self, robot: tuple[ServiceAccount, str], token: str) -> None:
        subjects.enable_service_account(account=robot[0], enabled=False, actor=SYSTEM)
        assert subject_of_token(token) is None
        with pytest.raises(BadRequest):
            exchange("robot", robot[1])

    def test_enabled_again(self, robot: tuple[ServiceAccount, str], token: str) -> None:
        for enabled in (False, True):
            subjects.enable_service_account(account=robot[0], enabled=enabled, actor=SYSTEM)
        assert subject_of_token(token) == subject_of(robot[0])

    def test_deleted(self, robot: tuple[ServiceAccount, str], token: str) -> None:
        subjects.delete_service_account(account=robot[0], actor=SYSTEM)
        assert subject_of_token(token) is None

    def test_rotated(self, robot: tuple[ServiceAccount, str], token: str) -> None:
        fresh = subjects.rotate_service_account(account=robot[0], actor=SYSTEM)
        assert subject_of_token(token) is None
        assert subject_of_token(exchange("robot", fresh).text) is not None
        with pytest.raises(BadRequest):
            exchange("robot", robot[1])


def test_hashes_are_compared_with_the_kind_they_are() -> None:
    assert credentials.secret_matches("abc", credentials.hash_generated_secret("abc"))
    assert credentials.secret_matches("abc", credentials.hash_chosen_secret("abc"))
    assert not credentials.secret_matches("abd", credentials.hash_generated_secret("abc"))
    assert not credentials.secret_matches("abd", credentials.hash_chosen_secret("abc"))
    assert credentials.TOKEN_SECONDS == 24 * 3600
