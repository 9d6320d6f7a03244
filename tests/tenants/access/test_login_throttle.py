"""T63: a thousand guesses at once at the token routes. On a real PostgreSQL, since only there they truly race."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection
from django.test import Client

from portal.audit.models import AuditRecord
from portal.kit.errors import TooManyRequests, ValidationFailed
from tenants.access.models import AccessKey, User
from tenants.access.services import credentials, subjects
from tests.factories.cast import acting
from tests.factories.tenants import PASSWORD, UserFactory

WORKERS = 20
GUESSES = 1000
Guess = Callable[[Client, int], int]

AFTER_A_RESTART = """
import django
django.setup()
from django.test import Client
body = {"grantType": "app_token", "AppId": "CLIENT", "AppSecret": "SECRET"}
print("status", Client().post("/api/v1/token", body, content_type="application/json").status_code)
"""


def by_json(client_id: str, secret: Callable[[int], str]) -> Guess:
    def guess(client: Client, number: int) -> int:
        body = {"grantType": "app_token", "AppId": client_id, "AppSecret": secret(number)}
        spoofed = {"X-Forwarded-For": f"203.0.113.{number % 250}"}
        return client.post("/api/v1/token", body, content_type="application/json", headers=spoofed).status_code

    return guess


def all_at_once(guess: Guess, number: int = GUESSES) -> Counter[int]:
    """The statuses of so many guesses, made by twenty programs that begin at the same moment."""
    start = Barrier(WORKERS)

    def work(worker: int) -> list[int]:
        try:
            client = Client()
            start.wait()
            return [guess(client, each) for each in range(worker, number, WORKERS)]
        finally:
            connection.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        return Counter(status for found in pool.map(work, range(WORKERS)) for status in found)


@pytest.fixture
def key(postgres_db: str) -> tuple[AccessKey, str]:
    """Somebody's key and its secret."""
    return credentials.create_access_key(name="laptop", actor=acting(UserFactory(username="dana")))


@pytest.mark.postgres
def test_exactly_the_limit_is_looked_at_and_a_restart_changes_nothing(
    key: tuple[AccessKey, str], postgres_url: str
) -> None:
    tries, _ = configured.RUNG_SIGN_IN_LIMITS["name"]
    row, secret = key
    found = all_at_once(by_json(row.client_id, lambda number: f"guess-{number}"))
    assert abs(found[400] - tries) <= 1
    assert found[429] == GUESSES - found[400]
    assert AuditRecord.objects.filter(action="session.start", result="Denied").count() == found[400]
    assert by_json(row.client_id, lambda _: secret)(Client(), 7) == 429

    script = AFTER_A_RESTART.replace("CLIENT", row.client_id).replace("SECRET", secret)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "portal.settings", "DATABASE_URL": postgres_url}
    anew = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(configured.BASE_DIR),
        env={**environment, "RUNG_HOSTS": "testserver"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "status 429" in anew.stdout


@pytest.mark.postgres
def test_many_names_from_one_address_end_at_its_limit(postgres_db: str) -> None:
    tries, _ = configured.RUNG_SIGN_IN_LIMITS["address"]

    def guess(client: Client, number: int) -> int:
        return by_json(f"nobody-{number}", lambda _: "guess")(client, number)

    found = all_at_once(guess, 3 * tries)
    assert abs(found[400] - tries) <= 1
    assert found[429] == 3 * tries - found[400]


def test_the_second_version_of_the_route_counts_with_the_first(db: None) -> None:
    tries, _ = configured.RUNG_SIGN_IN_LIMITS["name"]

    def guess(route: str) -> Any:
        form = "grant_type=client_credentials&client_id=nobody&client_secret=guess"
        return Client().post(route, form, content_type="application/x-www-form-urlencoded")

    answers = [guess("/api/v2/token") for _ in range(tries + 1)]
    assert [answer.status_code for answer in answers] == [400] * tries + [429]
    assert answers[0].json()["error"] == "invalid_client"
    assert int(answers[-1]["Retry-After"]) > 0
    assert by_json("nobody", lambda _: "guess")(Client(), 0) == 429


def test_guesses_of_ones_own_password_count_too(alice: User) -> None:
    tries, _ = configured.RUNG_SIGN_IN_LIMITS["name"]
    for _ in range(tries):
        with pytest.raises(ValidationFailed):
            subjects.change_own_password(current="guess", new="quite another phrase 8", actor=acting(alice))
    with pytest.raises(TooManyRequests):
        subjects.change_own_password(current=PASSWORD, new="quite another phrase 8", actor=acting(alice))
    assert User.objects.get(pk=alice.pk).check_password(PASSWORD)
