"""The page of one's own access keys: what it shows, makes and ends, and that its examples work as they stand."""

import html
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings as configured
from django.test import Client
from django.utils import timezone

from tenants.access.models import AccessKey, User
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Project
from tests.factories.tenants import AccessKeyFactory
from tests.support.real import needed

URL = "/access-keys/"
MADE = re.compile(r'id="client-id">([^<]+)<.*id="client-secret">([^<]+)<', re.DOTALL)
EXAMPLE = re.compile(r'<pre class="block" id="(\w+)-lines">(.*?)</pre>', re.DOTALL)


@pytest.fixture
def alices(client_of: Callable[[User], Client], alice: User) -> Client:
    """Alice's browser."""
    return client_of(alice)


def make(browser: Client, **form: str) -> str:
    """The page that answers a new key."""
    return browser.post(URL, {"name": "nightly", "lasts": "90", "reach": "", **form}).content.decode()


def test_the_first_visit_says_what_a_key_is_for(alices: Client) -> None:
    page = alices.get(URL).content.decode()
    assert "No access keys yet" in page
    assert "Create key" in page


def test_a_key_is_made_and_its_secret_shown_once(alices: Client) -> None:
    answer = alices.post(URL, {"name": "nightly", "lasts": "90", "reach": ""})
    found = MADE.search(answer.content.decode())
    assert found is not None
    client_id, secret = found.groups()
    assert exchange(client_id, secret)
    assert "no-store" in answer["Cache-Control"]
    listed = alices.get(URL).content.decode()
    assert client_id in listed
    assert secret not in listed


def test_its_bounds_are_what_was_chosen(alices: Client, llm_team: Project) -> None:
    make(alices, reach="project llm-team", read_only="on", lasts="7")
    key = AccessKey.objects.get()
    assert (key.project, key.read_only) == (llm_team, True)
    assert timedelta(days=6) < key.expires_at - timezone.now() <= timedelta(days=7)
    page = alices.get(URL).content.decode()
    assert "Project llm-team only." in page
    assert "read-only" in page


def test_it_may_last_until_it_is_revoked(alices: Client) -> None:
    make(alices, lasts="")
    assert AccessKey.objects.get().expires_at is None
    assert "No expiry." in alices.get(URL).content.decode()


@pytest.mark.parametrize(
    ("form", "told"),
    [
        pytest.param({"name": "Nightly"}, "Start with a letter", id="name"),
        pytest.param({"name": ""}, "required", id="no name"),
        pytest.param({"lasts": "36500"}, "valid choice", id="time"),
        pytest.param({"reach": "project absent"}, "valid choice", id="absent project"),
    ],
)
def test_a_refusal_is_shown_at_its_field(alices: Client, form: dict[str, str], told: str) -> None:
    answer = alices.post(URL, {"name": "nightly", "lasts": "90", "reach": "", **form})
    assert answer.status_code == 422
    assert told in answer.content.decode()
    assert not AccessKey.objects.exists()


def test_a_taken_name_is_told_beside_it(alices: Client) -> None:
    make(alices)
    assert "already" in make(alices)
    assert AccessKey.objects.count() == 1


def test_another_persons_project_is_no_choice(alices: Client, vision_team: Project) -> None:
    assert "vision-team" not in alices.get(URL).content.decode()
    make(alices, reach="project vision-team")
    assert not AccessKey.objects.exists()


def test_a_new_secret_ends_the_old_one(alices: Client) -> None:
    make(alices)
    key = AccessKey.objects.get()
    found = MADE.search(alices.post(f"{URL}{key.pk}/secret/").content.decode())
    assert found is not None
    assert exchange(*found.groups())
    assert AccessKey.objects.get().secret_hash != key.secret_hash


def test_a_revoked_key_is_gone_and_it_is_said(alices: Client) -> None:
    make(alices)
    answer = alices.post(f"{URL}{AccessKey.objects.get().pk}/revoke/", follow=True)
    assert "Revoked nightly" in answer.content.decode()
    assert not AccessKey.objects.exists()


def test_its_age_and_end_are_told(alices: Client, alice: User) -> None:
    AccessKeyFactory(owner=alice, expires_at=timezone.now() - timedelta(days=1))
    AccessKeyFactory(owner=alice, last_login=timezone.now() - timedelta(days=3))
    page = " ".join(alices.get(URL).content.decode().split())
    assert "expired" in page
    assert "Expired on" in page
    assert "Never used." in page
    assert "3 d ago" in page


@pytest.mark.parametrize("act", ["secret", "revoke"])
def test_t50_anothers_key_is_absent(alices: Client, bob: User, act: str) -> None:
    key = AccessKeyFactory(owner=bob)
    assert alices.post(f"{URL}{key.pk}/{act}/").status_code == 404
    assert key.name not in alices.get(URL).content.decode()
    assert AccessKey.objects.get().secret_hash == key.secret_hash


@pytest.mark.parametrize("act", ["secret", "revoke"])
def test_looking_at_an_address_changes_nothing(alices: Client, alice: User, act: str) -> None:
    key = AccessKeyFactory(owner=alice)
    assert alices.get(f"{URL}{key.pk}/{act}/").status_code == 405
    assert AccessKey.objects.get().secret_hash == key.secret_hash


def test_nobody_else_gets_in(db: None) -> None:
    assert Client().get(URL).status_code == 302


@pytest.mark.enable_socket
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["rung", "curl", "Python"])
def test_the_examples_work_as_they_stand(
    live_server: object, alices: Client, llm_team: Project, tmp_path: Path, name: str
) -> None:
    bash = needed("bash")
    host = str(live_server).removeprefix("http://")
    answer = alices.post(URL, {"name": "nightly", "lasts": "7", "reach": ""}, headers={"Host": host})
    page = answer.content.decode()
    found = MADE.search(page)
    assert found is not None
    lines = {key: html.unescape(text) for key, text in EXAMPLE.findall(page)}
    script, todo = lines["shell"], lines[name]
    if name == "Python":
        (tmp_path / "example.py").write_text(todo)
        todo = f"{sys.executable} {tmp_path}/example.py"
    if name == "rung":
        todo = f'rung() {{ {sys.executable} -m rung_cli "$@"; }}\nset -e\n{todo}'
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(configured.BASE_DIR) / "cli"),
    }
    done = subprocess.run(
        [bash, "-c", f"{script}\n{todo}"],
        input=f"{found[2]}\n",
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("llm-team" if name != "rung" else "alice") in done.stdout
