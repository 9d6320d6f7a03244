"""Two tabs, two thieves, two servers: the same code or the same newcomer at once. On a real PostgreSQL."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, generate_totp_secret, hotp_value
from django.db import connection
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from portal.kit.errors import RungError
from portal.kit.security.actors import Actor, ActorKind, Channel
from portal.sso.provider import Identity
from tenants.access.models import User
from tenants.access.services import second_factor
from tenants.access.services.subjects import account_for
from tests.factories.tenants import PASSWORD, UserFactory

pytestmark = pytest.mark.postgres
AT_ONCE = 8
NOBODY = Actor(ActorKind.USER, "", "anonymous", Channel.UI)
Answer = TypeVar("Answer")


def at_once(call: Callable[[], Answer]) -> list[Answer | str]:
    """What the call answers in many threads at the same moment; the code of its refusal where it refuses."""
    start = Barrier(AT_ONCE)

    def run(_number: int) -> Answer | str:
        try:
            start.wait()
            return call()
        except RungError as error:
            return error.code
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, range(AT_ONCE)))


@pytest.fixture
def protected(postgres_db: str) -> tuple[User, str, list[str]]:
    """Somebody with a second factor, the secret in the app, and the recovery codes."""
    user, secret = UserFactory.create(username="alice"), generate_totp_secret()
    codes = second_factor.enable(user=user, secret=secret, code=shown(secret, -1), actor=NOBODY)
    return user, secret, codes


def shown(secret: str, periods_from_now: int) -> str:
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + periods_from_now)))


def test_one_code_lets_one_in(protected: tuple[User, str, list[str]]) -> None:
    user, secret, _ = protected
    code = shown(secret, 0)
    assert sorted(at_once(lambda: second_factor.accept_code(user=user, code=code))) == [""] * (AT_ONCE - 1) + ["app"]


def test_one_recovery_code_lets_one_in(protected: tuple[User, str, list[str]]) -> None:
    user, _, codes = protected
    found = at_once(lambda: second_factor.accept_code(user=user, code=codes[0]))
    assert sorted(found) == [""] * (AT_ONCE - 1) + ["recovery"]


def test_t63_of_many_wrong_codes_at_once_only_the_allowed_ones_are_looked_at(
    protected: tuple[User, str, list[str]], settings: Settings
) -> None:
    settings.RUNG_SIGN_IN_LIMITS = {
        "name": (99, 300),
        "account": (99, 300),
        "address": (99, 300),
        "code": (3, 300),
        "code day": (99, 300),
    }
    browsers = [Client() for _ in range(AT_ONCE)]
    for browser in browsers:
        browser.post("/login/", {"username": "alice", "password": PASSWORD})
    waiting = iter(browsers)
    found = at_once(lambda: next(waiting).post(reverse("login-code"), {"code": "000000"}).status_code)
    assert sorted(found, key=str) == [200] * 3 + [429] * (AT_ONCE - 3)


def test_it_is_set_up_once(postgres_db: str) -> None:
    user, secret = UserFactory.create(), generate_totp_secret()
    code = shown(secret, 0)
    found = at_once(lambda: second_factor.enable(user=user, secret=secret, code=code, actor=NOBODY))
    assert found.count("exists") == AT_ONCE - 1
    assert Authenticator.objects.count() == 2


def test_a_newcomer_in_many_tabs_is_one_account(postgres_db: str) -> None:
    dora = Identity("https://login.example.org", "1", "dora", "", "", "", frozenset({"ml", "ops"}), second_factor=False)
    found = at_once(lambda: account_for(identity=dora, actor=NOBODY).username)
    assert set(found) <= {"dora", "taken", "name_taken"}
    assert "dora" in found
    assert User.objects.count() == 1
    assert account_for(identity=dora, actor=NOBODY).groups.count() == 2
