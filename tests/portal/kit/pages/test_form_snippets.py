"""Every form of the pages says how the same is done from elsewhere, and what it says is true."""

import html
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from runpy import run_path
from typing import Any, Final

import pytest
import yaml
from django.db import models
from django.test import Client

from clusters.inventory.models import Cluster, NodePool
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from rung_cli.main import run
from tenants.access.models import AccessKey, Role, User
from tenants.access.services import credentials
from tenants.organisation.models import Project
from tests.factories.cast import acting, applied
from tests.factories.tenants import MembershipFactory
from tests.support.repository import ROOT
from tests.support.rest_clients import Person
from tests.workloads.notifications.mail_config import config
from workloads.notifications.models import NotificationChannel, Subscription
from workloads.notifications.services import channels
from workloads.policies.models import Policy
from workloads.reports.models import Report
from workloads.workload_templates.models import WorkloadTemplate

pytestmark = pytest.mark.django_db
ASKING: Final = {"HX-Request": "true", "HX-Target": "copies"}


@dataclass(frozen=True)
class Twin:
    """A page with a form, what is typed there, and the rows that come of it, by the columns that tell them apart."""

    page: str
    typed: Mapping[str, Any]
    rows: type[models.Model]
    told: tuple[str, ...]
    rung: str = ""
    """The command of `rung` that does the same, where it has one of its own."""


POOL: Final = {"label_key": "example.com/pool", "label_value": "b", "topology_levels": "example.com/zone"}
SMTP: Final = {
    "smtp_host": "127.0.0.1",
    "smtp_port": "25",
    "auth_type": "auth_none",
    "sender": "r@example.org",
    "direct_notifications": "on",
}
EVERYWHERE: Final = "the whole installation"
TWINS: Final = (
    Twin("/clusters/lab/pools/", {"name": "h200", **POOL}, NodePool, ("name", "label_key", "label_value")),
    Twin("/clusters/lab/pools/h100/", POOL, NodePool, ("name", "label_key", "label_value")),
    Twin("/access-keys/", {"name": "nightly", "lasts": "", "read_only": "on"}, AccessKey, ("name", "read_only")),
    Twin(
        "/reports/",
        {"name": "weekly", "start": "2026-01-05", "end": "2026-01-11", "group_by": "Project"},
        Report,
        ("name", "start", "end", "group_by", "filter_by"),
        "rung reports make --no-wait --from 2026-01-05 --to 2026-01-11 --by project -- weekly",
    ),
    Twin(
        "/policies/add/",
        {"kind": "distributed", "place": EVERYWHERE, "name": "house", "priority_options": ["low", "medium"]},
        Policy,
        ("name", "kind", "scope", "document"),
    ),
    Twin("/notifications/", {"workload-status-change": "Failed", "channels": "mail"}, Subscription, ("events",)),
    Twin("/notifications/add-channel/", {"name": "second", **SMTP}, NotificationChannel, ("name", "config")),
    Twin("/notifications/channels/mail/", SMTP, NotificationChannel, ("name", "config")),
    Twin(
        "/templates/add/",
        {"kind": "workspaces", "place": EVERYWHERE, "name": "notebook", "text": "image: docker.io/a/b:1"},
        WorkloadTemplate,
        ("name", "kind", "scope", "spec"),
    ),
)
BY_PAGE: Final = [pytest.param(twin, id=twin.page) for twin in TWINS]
WITHOUT: Final = {
    "registration/login.html": "signing in",
    "registration/code.html": "signing in",
    "tenants/access/reauthenticate.html": "proving who one is",
    "tenants/access/second_factor.html": "one's own second factor",
    "clusters/connection/disconnect.html": "each of its buttons has its own",
    "tenants/audit_log/audit_log.html": "a filter: its address is what is copied",
    "workloads/policies/policies.html": "a filter: its address is what is copied",
    "workloads/lifecycle/list.html": "a filter: its address is what is copied",
    "tenants/quotas/quotas.html": "ends in a plan, which has its own",
    "workloads/dictionary/change.html": "ends in a plan, which has its own",
}


@pytest.fixture
def page(cluster: Cluster, llm_team: Project, admin: User, client_of: Callable[[User], Client]) -> Client:
    """An admin's window; a channel of mail is there."""
    channels.add_channel(name="mail", type_="email", config=config(25), actor=SYSTEM)
    return client_of(admin)


def copied(page: Client, twin: Twin) -> dict[str, str]:
    answer = page.post(twin.page, twin.typed, headers=ASKING)
    assert answer.status_code == 200
    found = re.findall(r'<pre[^>]*id="copy-text-(\w+)">(.*?)</pre>', answer.content.decode(), re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


def rows(twin: Twin) -> list[Any]:
    return sorted(map(repr, twin.rows._default_manager.values_list(*twin.told)))


@pytest.mark.parametrize("twin", BY_PAGE)
def test_asking_for_the_texts_does_nothing(page: Client, twin: Twin) -> None:
    before, records = rows(twin), AuditRecord.objects.count()
    assert set(copied(page, twin)) == {"yaml", "curl", "rung", "python"}
    assert (rows(twin), AuditRecord.objects.count()) == (before, records)
    assert "components/copies.html" not in page.get(twin.page).content.decode()
    assert 'id="copies"' in page.get(twin.page).content.decode()


@pytest.mark.parametrize("twin", BY_PAGE)
def test_the_call_has_the_effect_of_the_form(page: Client, twin: Twin) -> None:
    texts, every = copied(page, twin), twin.rows._default_manager.all()
    person = Person("copier", role=Role.PLATFORM_ADMIN)
    before, kept = rows(twin), list(every)
    head, body = texts["curl"].split("<<'JSON'\n")
    words = shlex.split(head.replace("\\\n", " ").replace("<(", "").replace(")", ""))
    verb = words[words.index("--request") + 1]
    address = next(word for word in words if word.startswith("http://"))
    sent = json.loads(body.removesuffix("\nJSON"))
    assert sent == yaml.safe_load(texts["yaml"])
    asked_by_rung = f"rung api {verb} {address.partition('/api/')[2]} -f - <<'YAML'"
    assert texts["rung"].splitlines()[0] == (twin.rung or asked_by_rung)
    answer = person.client.generic(
        verb, address.removeprefix("http://testserver"), json.dumps(sent), "application/json"
    )
    assert answer.status_code < 300, answer.content
    by_call = rows(twin)
    assert by_call != before
    every.exclude(pk__in=[each.pk for each in kept]).delete()
    for each in kept:
        each.save()
    assert rows(twin) == before
    done = page.post(twin.page, twin.typed)
    assert done.status_code in {200, 302}
    if done.get("Location", "").startswith("/plans/"):
        applied(page, done)
    assert rows(twin) == by_call


@pytest.mark.enable_socket
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("twin", BY_PAGE)
def test_the_script_has_the_effect_of_the_call(
    page: Client,
    twin: Twin,
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, before = copied(page, twin)["python"].replace("http://testserver", str(live_server)), rows(twin)
    user = MembershipFactory(user__username="scripts", role=Role.PLATFORM_ADMIN, project=None).user
    key, secret = credentials.create_access_key(name="asking", actor=acting(user))
    monkeypatch.setenv("RUNG_CLIENT_ID", key.client_id)
    monkeypatch.setenv("RUNG_CLIENT_SECRET", secret)
    script = tmp_path / "copied.py"
    script.write_text(text)
    run_path(str(script))["client"].close()
    assert set(rows(twin)) - set(before)
    assert capsys.readouterr().out


@pytest.mark.enable_socket
@pytest.mark.django_db(transaction=True)
def test_the_command_has_the_effect_of_the_form(
    page: Client, llm_team: Project, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = MembershipFactory(user__username="scripts", role=Role.PLATFORM_ADMIN, project=None).user
    key, secret = credentials.create_access_key(name="asking", actor=acting(user))
    for name, value in (("URL", live_server.url), ("CLIENT_ID", key.client_id), ("CLIENT_SECRET", secret)):
        monkeypatch.setenv(f"RUNG_{name}", value)
    monkeypatch.setenv("RUNG_CONFIG", str(tmp_path))
    days = {"start": "2026-01-05", "end": "2026-01-11"}
    department = f"department {llm_team.department.name} on {llm_team.cluster.name}"
    places = (f"project {llm_team.name}", department, "")
    for group, place in product(("Project", "Department", "Nodepool", "Cluster"), places):
        typed = {"name": "a week's", "group_by": group, "filter_by": place, **days}
        twin = Twin("/reports/", typed, Report, ("name", "start", "end", "group_by", "filter_by"))
        assert run(shlex.split(copied(page, twin)["rung"])[1:]) == 0
        by_command = rows(twin)
        Report.objects.all().delete()
        assert page.post("/reports/", typed).status_code == 302
        assert rows(twin) == by_command
        Report.objects.all().delete()


def test_an_incomplete_form_names_its_empty_required_fields(page: Client) -> None:
    answer = page.post("/reports/", {"name": ""}, headers=ASKING).content.decode()
    assert "Enter the required fields first: Name, From, To" in answer
    assert "<pre" not in answer


def test_no_form_with_fields_is_without_them() -> None:
    drawn = re.compile(r"as_field_group|for field in form")
    for path in sorted((ROOT / "templates").rglob("*.html")):
        text, name = path.read_text(), path.relative_to(ROOT / "templates").as_posix()
        if "<form" in text and drawn.search(text):
            has = re.search("components/(copies|copy_as|form_card).html", text) is not None
            assert has != bool(WITHOUT.get(name)), f"{name}: copies or a reason, not both"
