"""Signing in and out: audited, limited exactly, and never a way to another site."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from tenants.access import middleware
from tenants.access.models import User
from tenants.access.services import subjects

RIGHT = "correct-horse-battery"

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", password=RIGHT)


@pytest.fixture(autouse=True)
def _three_tries(settings: Settings) -> None:
    settings.RUNG_SIGN_IN_LIMITS = {"name": (3, 300), "account": (99, 300), "address": (5, 300)}


def sign_in(client: Client, name: str, password: str, **more: str) -> int:
    fields = {"username": name, "password": password}
    return client.post(reverse("login"), fields, **more).status_code


def story() -> list[tuple[str, str, str]]:
    return list(AuditRecord.objects.order_by("id").values_list("actor_name", "action", "result"))


def test_coming_and_going_is_audited(client: Client, alice: User) -> None:
    assert sign_in(client, "alice", RIGHT) == 302
    client.post(reverse("logout"))
    assert story() == [("alice", "session.start", "Succeeded"), ("alice", "session.end", "Succeeded")]


def test_a_wrong_password_is_audited_under_the_name_it_was_tried_for(client: Client, alice: User) -> None:
    assert sign_in(client, "alice", "wrong") == 200
    assert story() == [("alice", "session.start", "Denied")]


def test_a_name_nobody_has_is_not_written_down(client: Client) -> None:
    sign_in(client, "my-password-by-mistake", "wrong")
    assert story() == [("unknown", "session.start", "Denied")]


def test_t63_after_too_many_wrong_tries_even_the_right_password_waits(client: Client, alice: User) -> None:
    assert [sign_in(client, "alice", "wrong") for _ in range(4)] == [200, 200, 200, 429]
    assert sign_in(client, "alice", RIGHT) == 429


def test_t63_the_answer_says_when_to_come_back(client: Client, alice: User) -> None:
    fields = {"username": "alice", "password": "wrong"}
    answers = [client.post(reverse("login"), fields) for _ in range(4)]
    assert 0 < int(answers[-1]["Retry-After"]) <= 300


def test_t63_another_forwarded_address_is_no_fresh_start(client: Client, alice: User) -> None:
    tries = [sign_in(client, "alice", "wrong", HTTP_X_FORWARDED_FOR=f"198.51.100.{n}") for n in range(4)]
    assert tries[-1] == 429


def test_t63_many_names_from_one_address_are_one_guesser(client: Client) -> None:
    tries = [sign_in(client, f"name-{number}", "wrong") for number in range(6)]
    assert tries == [200] * 5 + [429]


@pytest.mark.parametrize("spelling", ["  alice", "alice\u3000", "\uff41lice", "ALICE"])
def test_t63_another_spelling_of_a_name_is_no_fresh_start(client: Client, alice: User, spelling: str) -> None:
    for _ in range(3):
        sign_in(client, "alice", "wrong")
    assert sign_in(client, spelling, "wrong") == 429


def test_t63_guesses_of_one_name_are_limited_over_all_addresses(
    client: Client, alice: User, settings: Settings
) -> None:
    settings.RUNG_SIGN_IN_LIMITS = {**settings.RUNG_SIGN_IN_LIMITS, "account": (4, 3600)}
    tries = [sign_in(client, "alice", "wrong", REMOTE_ADDR=f"198.51.100.{n}") for n in range(5)]
    assert tries == [200] * 4 + [429]
    assert sign_in(client, "bob", "wrong", REMOTE_ADDR="198.51.100.9") == 200


def test_t63_the_console_has_no_second_door(client: Client, alice: User) -> None:
    for _ in range(3):
        sign_in(client, "alice", "wrong")
    answer = client.post("/admin/login/", {"username": "alice", "password": RIGHT})
    assert answer.status_code == 429


def test_right_passwords_are_not_counted(client: Client, alice: User) -> None:
    assert [sign_in(client, "alice", RIGHT) for _ in range(8)] == [302] * 8


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_t61_signing_in_never_leads_to_another_site(client: Client, alice: User, target: str) -> None:
    fields = {"username": "alice", "password": RIGHT, "next": target}
    answer = client.post(reverse("login"), fields)
    assert answer["Location"] == reverse("home")


def test_t60_a_sign_in_form_of_another_site_is_refused(alice: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    assert sign_in(strict, "alice", RIGHT) == 403
    assert sign_in(strict, "alice", RIGHT, HTTP_HX_REQUEST="true") == 403


def test_t62_a_disabled_user_is_out_at_the_next_request(client: Client, alice: User) -> None:
    sign_in(client, "alice", RIGHT)
    User.objects.update(is_active=False)
    assert client.get(reverse("home")).status_code == 302


def test_t62_a_session_ends_when_the_password_changes(client: Client, alice: User) -> None:
    sign_in(client, "alice", RIGHT)
    alice.set_password("another-correct-horse")
    alice.save()
    assert client.get(reverse("home")).status_code == 302


def test_a_portal_without_an_admin_says_how_to_make_one(client: Client, alice: User) -> None:
    assert "python manage.py createsuperuser" in client.get(reverse("login")).content.decode()
    User.objects.create_superuser("admin")
    assert "createsuperuser" not in client.get(reverse("login")).content.decode()


class TestTemporaryPassword:
    """A password that an admin handed out signs in for a while; its person changes it on a page."""

    @pytest.fixture
    def temporary(self, alice: User) -> str:
        return subjects.reset_password(user=alice, actor=SYSTEM)

    def later(self, hours: int) -> None:
        User.objects.update(password_expires_at=F("password_expires_at") - timedelta(hours=hours))

    def test_it_signs_in_until_it_ends(self, client: Client, temporary: str) -> None:
        self.later(hours=71)
        assert sign_in(client, "alice", temporary) == 302
        self.later(hours=1)
        assert sign_in(client, "alice", temporary) == 200

    def test_a_new_user_gets_one_too(self, client: Client) -> None:
        _user, password = subjects.create_user(email="dana@example.org", actor=SYSTEM)
        self.later(hours=72)
        assert sign_in(client, "dana@example.org", password) == 200

    def test_a_stronger_hash_of_it_gives_it_no_longer_life(
        self, client: Client, temporary: str, settings: Settings
    ) -> None:
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2SHA1PasswordHasher", *settings.PASSWORD_HASHERS]
        assert sign_in(client, "alice", temporary) == 302
        self.later(hours=72)
        assert sign_in(client, "alice", temporary) == 200

    def test_the_page_changes_it_for_one_without_an_end(self, client: Client, temporary: str) -> None:
        sign_in(client, "alice", temporary)
        assert "temporary" in client.get(reverse("tenants:security")).content.decode()
        page = reverse("tenants:security-act", kwargs={"name": "change-password"})
        assert client.post(page, {"proof": temporary, "new_password": "short"}).status_code == 422
        assert client.post(page, {"proof": "wrong", "new_password": "a long new phrase 8"}).status_code == 422
        assert client.post(page, {"proof": temporary, "new_password": "a long new phrase 8"}).status_code == 302
        assert "temporary" not in client.get(reverse("tenants:security")).content.decode()
        assert User.objects.get(username="alice").password_expires_at is None
        assert sign_in(Client(), "alice", "a long new phrase 8") == 302


class TestSessionLimits:
    """A session ends 12 hours after the sign-in, and earlier when nobody uses it."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """The time, which the test moves."""
        now = [time.time()]
        monkeypatch.setattr(middleware.time, "time", lambda: now[0])
        return now

    @pytest.fixture
    def page(self, client: Client, alice: User, clock: list[float]) -> Callable[..., int]:
        """Opens a page some minutes later; answers the status."""
        sign_in(client, "alice", RIGHT)

        def after(minutes: float, **headers: str) -> int:
            clock[0] += minutes * 60
            return client.get(reverse("tenants:security"), headers=headers).status_code

        return after

    def test_an_idle_session_ends_and_leaves_a_record(self, page: Callable[..., int]) -> None:
        assert page(59) == 200
        assert page(61) == 302
        assert page(0) == 302
        assert story()[-1] == ("alice", "session.end", "Succeeded")

    def test_each_use_begins_the_time_again_until_the_session_is_old(self, page: Callable[..., int]) -> None:
        assert [page(30) for _ in range(24)] == [200] * 24
        assert page(1) == 302

    def test_a_page_that_refreshes_itself_is_no_use(self, page: Callable[..., int]) -> None:
        assert [page(20, **{"Rung-Poll": "true"}) for _ in range(3)] == [200] * 3
        assert page(1, **{"Rung-Poll": "true"}) == 302

    def test_an_operator_sets_the_time_or_none(self, page: Callable[..., int], settings: Settings) -> None:
        settings.RUNG_SESSION_IDLE_MINUTES = 5
        assert page(4) == 200
        settings.RUNG_SESSION_IDLE_MINUTES = 0
        assert page(300) == 200
        settings.RUNG_SESSION_IDLE_MINUTES = 5
        assert page(6) == 302

    def test_a_clock_that_was_set_back_is_no_way_to_stay(self, page: Callable[..., int]) -> None:
        assert page(-10) == 200
        assert page(-120) == 302
