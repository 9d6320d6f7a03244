"""A form in which a secret is typed has its texts, too: they take it from the environment and do what the form does."""

import html
import json
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from django.test import Client

from clusters.connection.models import ClusterCredential, MetricsSource
from clusters.connection.services import registration
from clusters.inventory.models import Cluster
from portal.kit.security.actors import SYSTEM
from rung_cli.main import run
from tenants.access.models import Role, User
from tenants.access.services import credentials
from tests.cli.conftest import Typed
from tests.clusters.connection.answering import SERVER, Answering, entered
from tests.clusters.connection.kubeconfigs import TOKEN, ca, kubeconfig, text
from tests.factories.cast import acting
from tests.support.listeners import api_server
from tests.support.real import needed
from tests.support.rest_clients import Person
from workloads.notifications.models import NotificationChannel
from workloads.notifications.services.channels import password_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.django_db(transaction=True)]
CANARY = TOKEN
KUBECONFIG = text(kubeconfig()).decode()
PARTS = {"way": "parts", "server": SERVER, "ca": ca().pem, "token": CANARY}


@dataclass
class Scene:
    """One form: its page, what is typed, which secret in which variable; how things stand, and stand as before."""

    page: str
    typed: dict[str, str]
    variable: str
    secret: str
    standing: Callable[[], object]
    again: Callable[[], object]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    answering = Answering()
    for service in (registration.register_cluster, registration.change_connection):
        monkeypatch.setitem(service.__kwdefaults__, "opens", answering)
    return answering


def reached(answering: Answering) -> object:
    token = answering.opened[-1].token if answering.opened else ""
    return token, list(ClusterCredential.objects.values_list("cluster__name", "cluster__flavour", "server"))


@contextmanager
def connecting(answering: Answering, _folder: Path, **typed: str) -> Iterator[Scene]:
    def again() -> None:
        Cluster.objects.all().delete()
        answering.opened.clear()

    secret = typed.get("kubeconfig", CANARY)
    variable = "CLUSTER_KUBECONFIG" if "kubeconfig" in typed else "CLUSTER_TOKEN"
    everything = {"name": "real", "flavour": "kube", **typed}
    yield Scene("/connect-cluster/", everything, variable, secret, lambda: reached(answering), again)


@contextmanager
def reconnecting(answering: Answering, _folder: Path) -> Iterator[Scene]:
    registration.register_cluster(name="real", flavour="kube", source=entered(), actor=SYSTEM)

    def again() -> None:
        answering.opened.clear()

    typed = {**PARTS, "server": "https://other.example.org:6443"}
    yield Scene("/clusters/real/connection/", typed, "CLUSTER_TOKEN", CANARY, lambda: reached(answering), again)


@contextmanager
def measuring(_answering: Answering, folder: Path) -> Iterator[Scene]:
    Cluster.objects.create(name="real", flavour="kube", backend="kubernetes")
    with api_server(folder) as prometheus:
        prometheus.answers = lambda _: (200, {"data": {"result": []}})

        def standing() -> object:
            rows = list(MetricsSource.objects.values_list("server", "metric"))
            return rows, rows and prometheus.requests[-1].headers["Authorization"]

        typed = {"server": prometheus.url, "ca": prometheus.authority.pem, "token": CANARY, "metric": "gpu_util"}
        gone = MetricsSource.objects.all().delete
        yield Scene("/clusters/real/gpu-use/", typed, "PROMETHEUS_TOKEN", CANARY, standing, gone)


@contextmanager
def mailing(_answering: Answering, _folder: Path) -> Iterator[Scene]:
    typed = {"smtp_host": "127.0.0.1", "smtp_port": "587", "sender": "r@example.org", "smtp_tls_enabled": "on"}
    secret = {"auth_type": "auth_login", "username": "u", "password": CANARY, "direct_notifications": "on"}

    def standing() -> object:
        return [(row.name, row.config, password_of(row)) for row in NotificationChannel.objects.all()]

    gone = NotificationChannel.objects.all().delete
    page = "/notifications/add-channel/"
    yield Scene(page, {"name": "mail", **typed, **secret}, "MAIL_PASSWORD", CANARY, standing, gone)


SCENES: dict[str, Callable[..., Any]] = {
    "a pasted kubeconfig": lambda *given: connecting(*given, way="kubeconfig", kubeconfig=KUBECONFIG),
    "a server and its token": lambda *given: connecting(*given, **PARTS),
    "another way to a cluster": reconnecting,
    "a Prometheus": measuring,
    "a mail server": mailing,
}


@pytest.mark.parametrize("scene", list(SCENES))
def test_every_text_does_what_the_form_does_and_holds_no_secret(
    scene: str,
    answering: Answering,
    live_server: Any,
    client_of: Callable[[User], Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = Person("connector", role=Role.PLATFORM_ADMIN)
    key, secret = credentials.create_access_key(name="by-text", actor=acting(person.user))
    requested = {"grantType": "client_credentials", "clientId": key.client_id, "clientSecret": secret}
    for name, value in (("URL", live_server.url), ("CLIENT_ID", key.client_id), ("CLIENT_SECRET", secret)):
        monkeypatch.setenv(f"RUNG_{name}", value)
    monkeypatch.setenv("RUNG_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("RUNG_TOKEN", token_from(f"{live_server.url}/api/v1/token", requested))
    page = client_of(person.user)

    with SCENES[scene](answering, tmp_path) as held:
        answer = page.post(held.page, held.typed, headers={"HX-Request": "true", "HX-Target": "copies"})
        found = re.findall(r'<pre[^>]*id="copy-text-(\w+)">(.*?)</pre>', answer.content.decode(), re.DOTALL)
        texts = {name: html.unescape(text).replace("http://testserver", live_server.url) for name, text in found}
        assert set(texts) == {"yaml", "curl", "rung", "python"}
        assert CANARY not in answer.content.decode()
        ways = {"curl": by_shell, "rung": by_rung, "python": by_python}
        for name, way in ways.items():
            monkeypatch.delenv(held.variable, raising=False)
            before = held.standing()
            with pytest.raises((AssertionError, KeyError)):
                way(texts[name], tmp_path, monkeypatch)
            assert held.standing() == before, f"{name} without its variable"
            monkeypatch.setenv(held.variable, held.secret)
            way(texts[name], tmp_path, monkeypatch)
            by_text = held.standing()
            held.again()
            assert page.post(held.page, held.typed).status_code == 302
            assert by_text == held.standing(), name
            held.again()


def token_from(address: str, requested: object) -> str:
    sent = urllib.request.Request(address, json.dumps(requested).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent, timeout=20) as answer:
        return str(json.load(answer)["accessToken"])


def by_shell(text: str, _folder: Path, _environment: pytest.MonkeyPatch) -> None:
    for each in ("bash", "curl", "jq"):
        needed(each)
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def by_rung(text: str, _folder: Path, environment: pytest.MonkeyPatch) -> None:
    head, _, body = text.partition(" <<'YAML'\n")
    environment.setattr("sys.stdin", Typed(body.removesuffix("\nYAML"), terminal=False))
    assert run(shlex.split(head)[1:]) == 0


def by_python(text: str, folder: Path, _environment: pytest.MonkeyPatch) -> None:
    script = folder / "copied.py"
    script.write_text(text)
    run_path(str(script))["client"].close()
