"""Chromium, signed-in people, and an organisation worth looking at."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from clusters.inventory.models import Cluster
from clusters.sync.models import Drift, SyncOutcome, SyncRun
from portal.kit.security.actors import SYSTEM
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.browser.example_clusters import differences, on_kube
from tests.browser.example_notifications import told_by_mail
from tests.browser.example_templates import kept_templates
from tests.factories.tenants import AccessKeyFactory
from tests.factories.workloads import ObservedPodFactory, PolicyFactory, ReportFactory, WorkloadFactory
from tests.support import real
from workloads.dictionary.models import Priority, WorkloadType
from workloads.dictionary.services.plans import plan_priority_change
from workloads.forecast.models import ForecastCount, StoredForecast
from workloads.plans.services.plans import apply_plan
from workloads.preemption.models import PreemptionCause, PreemptionRecord
from workloads.state.models import Phase, Workload, WorkloadEvent

HERE = Path(__file__).parent
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
ABORTED = ("htmx:afterRequest", "htmx:sendAbort")  # what htmx logs when a click leaves the page during its request
BUSY = ".htmx-request, .htmx-swapping, .htmx-settling, .htmx-added"
NARROW = {"defaults": {"priorityClass": "low"}, "rules": {"priorityClass": {"options": [{"value": "low"}]}}}
SIZES = {"narrow": {"width": 390, "height": 844}, "wide": {"width": 1280, "height": 900}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder drives a browser over sockets, and commits."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.enable_socket)
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # playwright keeps a loop in the test's thread
    path = shutil.which("chromium") or real.needed("chromium", "usr/bin/chromium-browser", "usr/bin/google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """One person's window, which notes what it asked of whom and what it complained about."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.context = context
        self.origin = origin
        self.page: Page = context.new_page()
        self.foreign: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self._note(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self._hear(said.type, said.text))

    def _hear(self, level: str, text: str) -> None:
        if level == "error" and not text.startswith(ABORTED):
            self.complaints.append(text)

    def _note(self, url: str) -> None:
        if not url.startswith((self.origin, "data:")):
            self.foreign.append(url)

    def open(self, path: str) -> Page:
        """Go to a page of the portal and let its first htmx requests finish."""
        self.page.goto(self.origin + path)
        expect(self.page.locator(BUSY)).to_have_count(0, timeout=30_000)
        return self.page

    def open_with_clock(self, path: str) -> Page:
        """The same, of a page that need not be waited for: `page.clock.fast_forward` lets it poll now."""
        self.page.clock.install()
        return self.open(path)

    def look(self, theme: str, size: str) -> None:
        """See the page that is open in another theme and size."""
        self.page.emulate_media(color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce")
        self.page.set_viewport_size({"width": SIZES[size]["width"], "height": SIZES[size]["height"]})
        expect(self.page.locator("html")).to_have_attribute("data-bs-theme", theme, timeout=30_000)


Visitor = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, live_server: object) -> Iterator[Visitor]:
    """Open a window as somebody, in a theme and a size."""
    contexts: list[BrowserContext] = []
    origin = str(live_server)

    def opened(user: User | None, *, theme: str = "light", size: str = "wide") -> Visit:
        scheme = "dark" if theme == "dark" else "light"
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)  # type: ignore[arg-type]  # a size
        context.set_default_timeout(30_000)
        contexts.append(context)
        if user is not None:
            client = Client()
            client.force_login(user)
            key = client.cookies[settings.SESSION_COOKIE_NAME].value
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": key, "url": origin}])
        return Visit(context, origin)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def organisation(
    cluster: Cluster, llm_team: Project, vision_team: Project, admin: User, alice: User, bob: User
) -> dict[str, str]:
    """A cluster that was synced with a conflict, and workloads in several phases; addresses by name."""
    Cluster.objects.filter(pk=cluster.pk).update(observed_at=timezone.now(), backend="sandbox")
    running = _workload(llm_team, alice, "llm-finetune", Phase.RUNNING, gpus=2)
    waiting = _workload(llm_team, alice, "llm-pretrain", Phase.PENDING, gpus=8, priority="very-high")
    evicted = _workload(llm_team, bob, "tokenize", Phase.PENDING, gpus=1)
    _workload(llm_team, bob, "evaluate", Phase.COMPLETED, gpus=1)
    _workload(vision_team, bob, "segment", Phase.RUNNING, gpus=2)
    _evicted_by(evicted, running)
    _synced(cluster)
    _scored(cluster)
    _keys_of(admin, llm_team)
    _reports_of(admin)
    return {
        "home": "/",
        "workloads": "/workloads/",
        "filtered": "/workloads/?phase=Pending&sort=priority",
        "nothing found": "/workloads/?q=no-such-name",
        "submit": "/workloads/submit/",
        "submit yaml": "/workloads/submit/yaml/",
        "waiting": f"/workloads/{waiting.pk}/",
        "evicted": f"/workloads/{evicted.pk}/",
        "pods": f"/workloads/{running.pk}/?tab=pods",
        "events": f"/workloads/{running.pk}/?tab=events",
        "yaml": f"/workloads/{running.pk}/?tab=yaml",
        "projects": "/projects/",
        "quotas": "/quotas/",
        "CPU quotas": "/quotas/?resource=cpu",
        "project": "/projects/llm-team/",
        "department": f"/departments/{llm_team.department_id}/",
        "priorities": "/priorities/",
        "a priority": "/priorities/low/",
        "new priority": "/priorities/add/",
        "preset": "/priorities/preset/four-tiers/",
        "plan": f"/plans/{_planned('low', 41)}/",
        "plan that is done": f"/plans/{_planned('low', 42, done=True)}/",
        "types": "/types/",
        "policies": "/policies/",
        "new policy": "/policies/add/",
        "a policy": f"/policies/{PolicyFactory(kind='inference', document=NARROW).pk}/",
        "a type": f"/types/{WorkloadType.objects.get(name='PyTorchJob').pk}/",
        "clusters": "/clusters/",
        "nodes": "/clusters/lab/",
        "sync runs": "/clusters/lab/?tab=sync",
        "drift": "/clusters/lab/?tab=drift",
        "cluster activity": "/clusters/lab/?tab=activity",
        "guarantees": "/clusters/lab/?tab=guarantees",
        "forecasts": "/clusters/lab/?tab=forecasts",
        "connection": "/clusters/lab/connection/",
        "gpu use": "/clusters/lab/gpu-use/",
        "node pools": "/clusters/lab/pools/",
        "a node pool": "/clusters/lab/pools/h100/",
        "leave": "/clusters/lab/leave/",
        "connect": "/connect-cluster/",
        "reports": "/reports/",
        "audit": "/audit/",
        **told_by_mail(admin),
        **kept_templates(llm_team, alice),
        "access keys": "/access-keys/",
        "security": "/security/",
        "second factor": "/security/second-factor/",
        "second factor off": "/security/remove-app/",
        "absent": "/projects/no-such-project/",
    }


@pytest.fixture
def estate(cluster: Cluster, alice: User) -> dict[str, str]:
    """What an admin looks after: differences, runs of every sort, a paused cluster; addresses by name."""
    _synced(cluster)
    return {**differences(cluster), **on_kube(alice)}


def _planned(name: str, value: int, *, done: bool = False) -> UUID:
    """A plan to change a priority's value, perhaps applied."""
    plan = plan_priority_change(change={"op": "change", "name": name, "value": value}, actor=SYSTEM)
    return (apply_plan(plan=plan, actor=SYSTEM) if done else plan).pk


def _workload(project: Project, user: User, name: str, phase: str, *, gpus: int, priority: str = "low") -> Workload:
    held = gpus * 1000 if phase == Phase.RUNNING else 0
    entry = Priority.objects.get(name=priority)
    ago = timezone.now() - timedelta(minutes=40)
    workload: Workload = WorkloadFactory.create(
        project=project,
        name=name,
        phase=phase,
        phase_at=ago,
        created_at=ago,
        started_at=ago if held else None,
        priority=entry,
        preemptibility="non-preemptible" if entry.value >= 100 else "preemptible",
        gpu_milli=gpus * 1000,
        allocated_gpu_milli=held,
        running_pods=1 if held else 0,
        submitted_by=user.username,
        submitted_by_id=str(user.pk),
        warnings=[
            {
                "code": "note",
                "message": "Preemptibility stays preemptible, although high (125) alone means non-preemptible.",
            }
        ],
        discarded=[
            {"field": "priority", "source": "label", "value": "high", "because": "the explicit value low applies"}
        ],
    )
    if held:
        ObservedPodFactory.create(workload=workload, name=f"{name}-0", gpu_milli=held)
    WorkloadEvent.objects.create(
        workload=workload, at=ago, type="action", message=f"Submitted {name}.", actor=user.username
    )
    return workload


def _keys_of(user: User, project: Project) -> None:
    """A key in use, one that only reads in a project and was never used, and one that is over."""
    now = timezone.now()
    AccessKeyFactory(owner=user, name="laptop", last_login=now - timedelta(hours=3))
    ends = now + timedelta(days=5)
    AccessKeyFactory(owner=user, name="dashboard", project=project, read_only=True, expires_at=ends)
    AccessKeyFactory(owner=user, name="old-pipeline", department=project.department, expires_at=now)


def _reports_of(user: User) -> None:
    """One with a file, and one that failed."""
    own = {"subject_id": str(user.pk), "due_at": None}
    ReportFactory(**own, name="June", status="Ready", message="98.2 % of the period.", content="cluster")
    ReportFactory(**own, group_by="Project", filter_by=["projectName==llm-team"], status="Failed", message="No luck.")


def _evicted_by(victim: Workload, preemptor: Workload) -> None:
    victim.preempted_count = 1
    victim.save()
    PreemptionRecord.objects.create(
        cluster=victim.project.cluster,
        pod_uid="gone",
        pod_name="tokenize-0",
        at=timezone.now() - timedelta(minutes=9),
        victim=victim,
        preemptor=preemptor,
        preemptor_name=preemptor.name,
        preemptor_priority="very-high",
        preemptor_value=150,
        cause=PreemptionCause.PREEMPT,
        gpu_milli=1000,
        ran_seconds=20_400,
        lost_gpu_seconds=5760,
    )


def _scored(cluster: Cluster) -> None:
    """Forecasts of two weeks; some of those that did not hold."""
    monday = date(2026, 11, 16)
    for week, result, why, count in (
        (monday, "held", "", 1224),
        (monday, "doubted", "rivals_first", 9),
        (monday, "overtaken", "submission", 4),
        (monday, "unexplained", "", 3),
        (monday, "not_judged", "stopped", 12),
        (monday - timedelta(weeks=1), "held", "", 310),
    ):
        ForecastCount.objects.create(cluster=cluster, flavour="kai", week=week, result=result, why=why, count=count)
    workloads = Workload.objects.filter(project__cluster=cluster).order_by("name")[:3]
    results = (("overtaken", "submission"), ("doubted", "rivals_first"), ("unexplained", ""))
    for workload, (result, why) in zip(workloads, results, strict=False):
        StoredForecast.objects.create(
            cluster=cluster,
            project=workload.project,
            workload=workload,
            at=timezone.now() - timedelta(hours=2),
            data_at=timezone.now() - timedelta(hours=2, seconds=3),
            flavour="kai",
            pool_name="h100",
            verdict="evicts",
            starts=True,
            victims=[str(workloads[0].pk), "pod:1"],
            result=result,
            why=why,
            overtaken_by=workloads[1] if result == "overtaken" else None,
        )


def _synced(cluster: Cluster) -> None:
    now = timezone.now()
    times = {"started_at": now, "heartbeat_at": now, "finished_at": now}
    run = SyncRun.objects.create(cluster=cluster, state="partial", listed=9, written=1, failed=1, **times)
    SyncOutcome.objects.create(
        run=run, action="update", kind="Queue", name="llm-team", ok=True, changes=[["/spec/resources/gpu/quota", 2, 4]]
    )
    SyncOutcome.objects.create(
        run=run,
        action="conflict",
        kind="PriorityClass",
        name="high",
        ok=False,
        code="object_conflict",
        message="Foreign.",
    )
    Drift.objects.create(
        cluster=cluster,
        category="changed",
        kind="Queue",
        name="llm-team",
        changes=[["/spec/priority", 100, 60]],
        seen_at=now,
    )


def name_of(address: str) -> str:
    """A file name for a picture of the page."""
    return re.sub(r"[^a-z]+", "-", address)
