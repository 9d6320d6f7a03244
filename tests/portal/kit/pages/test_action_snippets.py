"""A button that does one thing says how the same is done from elsewhere, and what it says is true."""

import html
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from clusters.connection.models import MetricsSource
from clusters.inventory.models import Cluster, ClusterState, NodePool
from clusters.sync.models import Adoption, Drift, DriftKind, SyncRun
from portal.audit.models import AuditRecord
from portal.kit.security.actors import SYSTEM
from rung_cli.main import run
from tenants.access.models import AccessKey, Role, User
from tenants.access.services import credentials
from tenants.organisation.models import Project
from tests.cli.conftest import Typed
from tests.factories.cast import acting, applied
from tests.factories.clusters import ClusterFactory
from tests.factories.workloads import PolicyFactory, ReportFactory, WorkloadFactory, WorkloadTemplateFactory
from tests.support.repository import ROOT
from tests.support.rest_clients import Person
from tests.workloads.notifications.mail_config import config
from workloads.lifecycle.services import actions
from workloads.notifications.models import NotificationChannel
from workloads.notifications.services import channels
from workloads.policies.models import Policy
from workloads.reports.models import Report
from workloads.state.models import Phase, Workload
from workloads.workload_templates.models import WorkloadTemplate

ASKING: Final = {"HX-Request": "true", "HX-Target": "act-copies"}
"""What a page sends for the texts."""
WITHOUT: Final = {
    "components/nav.html": "signing out",
    "registration/code.html": "signing in",
    "registration/login.html": "signing in",
    "tenants/access/reauthenticate.html": "proving who one is",
    "tenants/access/second_factor.html": "one's own second factor",
    "tenants/quotas/quotas.html": "ends in a plan, which has its own",
    "workloads/dictionary/change.html": "ends in a plan, which has its own",
    "workloads/dictionary/parts/priority_row.html": "ends in a plan, which has its own",
    "workloads/dictionary/parts/type_row.html": "ends in a plan, which has its own",
    "workloads/plans/approval.html": "ends in a plan, which has its own",
    "workloads/plans/parts/plan_again.html": "ends in a plan, which has its own",
    "workloads/plans/plan.html": "has them beside the form",
    "workloads/submission/submit_base.html": "has them in its forecast",
}


class Scene:
    """Things to act on, made by and for one platform admin."""

    def __init__(self, person: Person, project: Project) -> None:
        self.person, self.project = person, project
        self.actor = acting(person.user)
        self.made = 0

    def name(self) -> str:
        self.made += 1
        return f"thing-{self.made}"

    def workload(self, *, stopped: bool = False) -> Workload:
        made: Workload = WorkloadFactory.create(project=self.project, name=self.name(), phase=Phase.RUNNING)
        if stopped:
            actions.stop(workload=made, actor=SYSTEM)
        return made


Thing = tuple[str, dict[str, Any], Callable[[], object]]
"""Address of the act, what its form sends, and how the thing stands."""


def _workload(act: str, *, stopped: bool = False, **sent: str) -> Callable[[Scene], Thing]:
    def make(scene: Scene) -> Thing:
        made = scene.workload(stopped=stopped)
        standing = Workload.objects.filter(pk=made.pk).values_list("desired_phase", "priority__name")
        return reverse(f"workloads:{act}", args=[made.pk]), sent, standing.get

    return make


def _refused(*, ticked: bool = False) -> Callable[[Scene], Thing]:
    """One that failed to apply, or two."""

    def make(scene: Scene) -> Thing:
        made = [
            WorkloadFactory.create(project=scene.project, name=scene.name(), failed_to_apply=True)
            for _ in range(1 + ticked)
        ]
        ids = [str(each.pk) for each in made]
        standing = Workload.objects.filter(pk__in=ids).values_list("phase", flat=True)
        sent = {"verb": "retry", "id": ids} if ticked else {}
        address = reverse("workloads:bulk") if ticked else reverse("workloads:retry", args=ids)
        return address, sent, lambda: tuple(standing.all())

    return make


def _report(scene: Scene) -> Thing:
    row = ReportFactory.create(subject_kind="user", subject_id=str(scene.person.user.pk), name=scene.name())
    return reverse("workloads:report-delete", args=[row.pk]), {}, Report.objects.filter(pk=row.pk).exists


def _template(scene: Scene) -> Thing:
    row = WorkloadTemplateFactory.create(name=scene.name())
    found = WorkloadTemplate.objects.filter(pk=row.pk)
    return reverse("workloads:template-delete", args=[row.pk]), {}, found.exists


def _channel(scene: Scene) -> Thing:
    row = channels.add_channel(name=scene.name(), type_="email", config=config(25), actor=SYSTEM)
    found = NotificationChannel.objects.filter(pk=row.pk)
    return reverse("workloads:channel-delete", args=[row.name]), {}, found.exists


def _trial(scene: Scene) -> Thing:
    row = channels.add_channel(name=scene.name(), type_="email", config=config(1), actor=SYSTEM)
    tried = AuditRecord.objects.filter(action="notifications.try_channel")
    known = tried.count()
    address = reverse("workloads:channel-test", args=[row.name])
    return address, {"to": "a@example.org"}, lambda: tuple(each.detail["to"] for each in tried[known:])


def _ticked(verb: str, *, stopped: bool = False) -> Callable[[Scene], Thing]:
    def make(scene: Scene) -> Thing:
        ids = [str(scene.workload(stopped=stopped).pk) for _ in range(2)]
        standing = Workload.objects.filter(pk__in=ids).values_list("desired_phase", flat=True)
        return reverse("workloads:bulk"), {"verb": verb, "id": ids, "sure": "yes"}, lambda: tuple(standing.all())

    return make


def _scheduler(scene: Scene) -> Thing:
    cluster = Cluster.objects.filter(pk=scene.project.cluster_id)
    cluster.update(flavour="kai")
    sent = {"to": "kube", "generation": str(cluster.get().generation)}
    return reverse("clusters:scheduler", args=[cluster.get().name]), sent, cluster.values_list("flavour", flat=True).get


def _left(act: str) -> Callable[[Scene], Thing]:
    """A cluster that nobody uses."""

    def make(scene: Scene) -> Thing:
        cluster = ClusterFactory.create(name=scene.name(), state=ClusterState.PAUSED)
        runs = SyncRun.objects.filter(cluster_id=cluster.pk).values_list("trigger", flat=True)
        standing = Cluster.objects.filter(pk=cluster.pk).exists
        sent = {"act": act, "confirm": cluster.name}
        return reverse("clusters:leave", args=[cluster.name]), sent, lambda: (standing(), tuple(runs.all()))

    return make


def _metrics(scene: Scene) -> Thing:
    cluster = scene.project.cluster
    MetricsSource.objects.update_or_create(cluster=cluster, defaults={"server": "https://prometheus.example.org"})
    standing = MetricsSource.objects.filter(cluster=cluster).exists
    return reverse("clusters:remove-metrics", args=[cluster.name]), {}, standing


def _mail(_scene: Scene) -> Thing:
    channels.set_state(actor=SYSTEM, enabled=True)
    return reverse("workloads:mail-switch"), {"on": "no"}, lambda: channels.state().email


def _policy(scene: Scene) -> Thing:
    Policy.objects.all().delete()
    row = PolicyFactory.create(scope="project", project=scene.project)
    return reverse("workloads:policy-lift", args=[row.pk]), {}, Policy.objects.filter(pk=row.pk).exists


def _pool(scene: Scene) -> Thing:
    cluster = scene.project.cluster
    row = NodePool.objects.create(cluster=cluster, name=scene.name(), label_key="a/b", label_value=scene.name())
    return reverse("clusters:remove-pool", args=[cluster.name, row.name]), {}, NodePool.objects.filter(pk=row.pk).exists


def _key(scene: Scene) -> AccessKey:
    return credentials.create_access_key(name=scene.name(), actor=scene.actor)[0]


def _revoked(scene: Scene) -> Thing:
    row = _key(scene)
    return reverse("tenants:revoke-key", args=[row.pk]), {}, AccessKey.objects.filter(pk=row.pk).exists


def _rotated(scene: Scene) -> Thing:
    row = _key(scene)
    first = row.secret_hash
    changed = AccessKey.objects.filter(pk=row.pk).exclude(secret_hash=first)
    return reverse("tenants:rotate-key", args=[row.pk]), {}, changed.exists


def _requested(page: str, action: str) -> Callable[[Scene], Thing]:
    """What a worker is asked for: the record of it is what can be seen."""

    def make(scene: Scene) -> Thing:
        records = AuditRecord.objects.filter(action=action)
        known = records.count()
        return reverse(f"clusters:{page}", args=[scene.project.cluster.name]), {}, lambda: records.count() - known

    return make


def _pod_security(scene: Scene) -> Thing:
    cluster = Cluster.objects.filter(pk=scene.project.cluster_id)
    cluster.update(pod_security="restricted")
    standing = cluster.values_list("pod_security", flat=True)
    return reverse("clusters:pod-security", args=[scene.project.cluster.name]), {"level": "baseline"}, standing.get


def _deferring(scene: Scene) -> Thing:
    cluster = Cluster.objects.filter(pk=scene.project.cluster_id)
    cluster.update(defer_preemptors=False)
    standing = cluster.values_list("defer_preemptors", flat=True)
    return reverse("clusters:defer-preemptors", args=[scene.project.cluster.name]), {"enabled": "on"}, standing.get


def _held(state: ClusterState) -> Callable[[Scene], Thing]:
    def make(scene: Scene) -> Thing:
        cluster = Cluster.objects.filter(pk=scene.project.cluster_id)
        cluster.update(state=state)
        standing = cluster.values_list("state", flat=True)
        return reverse("clusters:hold", args=[scene.project.cluster.name]), {}, standing.get

    return make


def _difference(category: DriftKind, stranger: str = "", **sent: str) -> Callable[[Scene], Thing]:
    def make(scene: Scene) -> Thing:
        Adoption.objects.all().delete()
        cluster = scene.project.cluster
        row = Drift(cluster=cluster, category=category, kind="ResourceQuota", namespace="ns", name=scene.name())
        row.object_uid, row.owner, row.seen_at = stranger, "project.1", timezone.now()
        row.save()
        query = urlencode({"kind": row.kind, "namespace": row.namespace, "name": row.name})
        records = AuditRecord.objects.filter(action__in=["cluster.repair", "cluster.adopt"])
        known = records.count()
        address = f"{reverse('clusters:difference', args=[cluster.name])}?{query}"
        return address, sent, lambda: (records.count() - known, Adoption.objects.count())

    return make


ACTS: Final[dict[str, Callable[[Scene], Thing]]] = {
    "reconcile now": _requested("reconcile", "cluster.reconcile"),
    "dry run": _requested("dry-run", "cluster.dry_run"),
    "let images start as root": _pod_security,
    "defer preemptors": _deferring,
    "pause a cluster": _held(ClusterState.ACTIVE),
    "work with a cluster again": _held(ClusterState.PAUSED),
    "repair an object": _difference(DriftKind.CHANGED, act="repair"),
    "take an object over": _difference(DriftKind.CONFLICT, "abc", act="adopt", uid="abc"),
    "stop a workload": _workload("stop"),
    "resume a workload": _workload("resume", stopped=True),
    "retry a workload": _refused(),
    "delete a workload": _workload("delete"),
    "another priority": _workload("change-priority", priority="high"),
    "delete a report": _report,
    "delete a template": _template,
    "delete a channel": _channel,
    "switch mail off": _mail,
    "try a channel": _trial,
    "stop ticked workloads": _ticked("stop"),
    "resume ticked workloads": _ticked("resume", stopped=True),
    "retry ticked workloads": _refused(ticked=True),
    "delete ticked workloads": _ticked("delete"),
    "another scheduler": _scheduler,
    "delete what Rung made in a cluster": _left("traces"),
    "forget a cluster": _left("forget"),
    "ask a Prometheus no more": _metrics,
    "lift a policy": _policy,
    "remove a node pool": _pool,
    "revoke a key": _revoked,
    "a key's new secret": _rotated,
}


@pytest.fixture
def scene(cluster: Cluster, llm_team: Project) -> Scene:
    return Scene(Person("presser", role=Role.PLATFORM_ADMIN), llm_team)


def texts_of(page: Client, thing: Thing) -> dict[str, str]:
    answer = page.post(thing[0], thing[1], headers=ASKING)
    assert answer.status_code == 200
    found = re.findall(r'<pre[^>]*id="act-copy-text-(\w+)">(.*?)</pre>', answer.content.decode(), re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


@pytest.mark.enable_socket
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", list(ACTS))
def test_every_text_does_what_the_button_does(
    scene: Scene,
    act: str,
    live_server: Any,
    client_of: Callable[[User], Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, key = client_of(scene.person.user), credentials.create_access_key(name="by-text", actor=scene.actor)
    for name, value in (("URL", live_server.url), ("CLIENT_ID", key[0].client_id), ("CLIENT_SECRET", key[1])):
        monkeypatch.setenv(f"RUNG_{name}", value)
    monkeypatch.setenv("RUNG_CONFIG", str(tmp_path))

    def by_curl(text: str) -> None:
        head, _, body = text.partition("<<'JSON'\n")
        words = shlex.split(head.replace("\\\n", " ").replace("<(", "").replace(")", ""))
        path = next(word for word in words if word.startswith("http")).removeprefix("http://testserver")
        sent = body.removesuffix("\nJSON")
        answer = scene.person.client.generic(words[words.index("--request") + 1], path, sent, "application/json")
        assert answer.status_code < 300, answer.content

    def by_rung(text: str) -> None:
        head, _, body = text.partition(" <<'YAML'\n")
        monkeypatch.setattr("sys.stdin", Typed(body.removesuffix("\nYAML"), terminal=False))
        assert run(shlex.split(head)[1:]) == 0

    def by_python(text: str) -> None:
        script = tmp_path / "copied.py"
        script.write_text(text.replace("http://testserver", live_server.url))
        run_path(str(script))["client"].close()

    standings = []
    for name, way in (("curl", by_curl), ("rung", by_rung), ("python", by_python)):
        thing = ACTS[act](scene)
        before, records = thing[2](), AuditRecord.objects.count()
        texts = texts_of(page, thing)
        assert (thing[2](), AuditRecord.objects.count()) == (before, records), "asking does nothing"
        assert ("yaml" in texts) == ("JSON" in texts["curl"])
        way(texts[name])
        standings.append(thing[2]())
        assert standings[-1] != before, name
    address, sent, standing = ACTS[act](scene)
    answer = page.post(address, sent)
    assert answer.status_code in {200, 302}
    if answer.get("Location", "").startswith("/plans/"):
        applied(page, answer)
    assert set(standings) == {standing()}


@pytest.mark.django_db
def test_without_a_ticked_row_it_says_to_tick_some(scene: Scene, client_of: Callable[[User], Client]) -> None:
    page = client_of(scene.person.user)
    assert texts_of(page, (reverse("workloads:bulk"), {"verb": "stop"}, list)) == {}
    assert (
        "Select up to 100 workloads first"
        in page.post(reverse("workloads:bulk"), {"verb": "stop"}, headers=ASKING).content.decode()
    )


@pytest.mark.django_db
def test_who_may_not_see_it_gets_no_texts(scene: Scene, client_of: Callable[[User], Client]) -> None:
    stranger = Person("stranger", role=Role.VIEWER, project=None).user
    stranger.memberships.all().delete()
    address, sent, _standing = ACTS["stop a workload"](scene)
    assert client_of(stranger).post(address, sent, headers=ASKING).status_code == 404


def test_no_form_that_does_something_is_without_them() -> None:
    lacking = set()
    for path in sorted((ROOT / "templates").rglob("*.html")):
        forms = re.findall(r'<form\b[^>]*method="post".*?</form>', path.read_text(), re.DOTALL)
        if any(not re.search("components/(cop|form_card)", form) for form in forms):
            lacking.add(path.relative_to(ROOT / "templates").as_posix())
    assert lacking == set(WITHOUT)
