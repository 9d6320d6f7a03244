"""Findings over time: opened, refreshed, ended, reopened; who may read them on the page, over REST, as a metric."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.connection.models import MetricsSource
from clusters.inventory.models import Cluster, ClusterState
from clusters.watch.models import GpuUse
from portal.kit.security.actors import SYSTEM
from tenants.access.models import Role, User
from tenants.organisation.models import Project
from tenants.quotas.models import ProjectQuota
from tenants.quotas.services.runtime_rules import set_min_runtime
from tests.factories.clusters import ClusterFactory, build_cluster
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory
from tests.support.rest_clients import Robot
from tests.workloads.detectors.conftest import History
from workloads.detectors.models import DetectorRun, Finding
from workloads.detectors.services import detect, detect_on, request_checks
from workloads.lifecycle.tasks import detect_cluster
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


def kinds(**wanted: Any) -> list[str]:
    return sorted(Finding.objects.filter(**wanted).values_list("kind", flat=True))


@pytest.fixture
def inversion(history: History, llm_team: Project) -> Workload:
    """A workload of high priority that waits while one of low priority started later."""
    waiting = history.waiting(llm_team, "urgent", priority="high")
    history.running(llm_team, "batch")
    return waiting


def test_a_finding_is_opened_once_refreshed_and_ended(history: History, inversion: Workload) -> None:
    assert detect_on(str(history.cluster.pk), history.now) == 1
    later = history.now + timedelta(minutes=2)
    history.observe(later)
    assert detect_on(str(history.cluster.pk), later) == 0
    row = Finding.objects.get()
    assert (row.kind, row.workload, row.ended_at, row.last_seen) == ("priority-inversion", inversion, None, later)
    assert row.gpu_seconds == 8 * 7 * 60
    Workload.objects.filter(pk=inversion.pk).update(phase=Phase.RUNNING)
    assert detect_on(str(history.cluster.pk), later + timedelta(minutes=1)) == 0
    row.refresh_from_db()
    assert row.ended_at == later + timedelta(minutes=1)


def test_a_finding_that_comes_back_within_an_hour_is_the_same_and_later_a_new_one(
    history: History, inversion: Workload
) -> None:
    rows = Workload.objects.filter(pk=inversion.pk)
    for minutes, reason, new in [(0, "NoRoom", 1), (1, "OverLimit", 0), (30, "NoRoom", 0), (31, "OverLimit", 0)]:
        rows.update(phase_reason=reason)
        assert detect(history.cluster, history.now + timedelta(minutes=minutes)) == new
    rows.update(phase_reason="NoRoom")
    assert detect(history.cluster, history.now + timedelta(minutes=120)) == 1
    assert Finding.objects.count() == 2


def test_its_project_is_notified_once_without_names_of_others(
    history: History, llm_team: Project, vision_team: Project
) -> None:
    victim = history.waiting(llm_team, "train", phase_reason="Reclaimed", since=history.ago(minutes=30))
    times = {"started_at": history.ago(minutes=29), "completed_at": history.ago(minutes=28)}
    taker = WorkloadFactory(project=vision_team, name="secret-name", phase=Phase.COMPLETED, **times)
    history.evicted(victim, taker, cause="reclaim")
    for _again in range(3):
        detect(history.cluster, history.now)
    (entry,) = victim.timeline.all()
    assert (entry.reason, entry.type) == ("ShortEvictsLong", "scheduling")
    assert entry.message.startswith("Short job evicted a long one. A workload of another project reclaimed its")
    assert "48.0 GPU-hours lost" in entry.message
    assert "secret-name" not in entry.message


def test_an_eviction_stays_open_while_its_victim_waits_and_ends_with_its_next_run(
    history: History, llm_team: Project
) -> None:
    victim = history.waiting(llm_team, "train", priority="low", since=history.ago(minutes=30))
    times = {"started_at": history.ago(minutes=29), "completed_at": history.ago(minutes=28)}
    taker = WorkloadFactory(project=llm_team, name="infer", phase=Phase.COMPLETED, **times)
    history.evicted(victim, taker)
    detect(history.cluster, history.now)
    detect(history.cluster, history.now + timedelta(hours=5))
    assert kinds(ended_at=None) == ["short-evicts-long"]
    again = history.now + timedelta(hours=5)
    Workload.objects.filter(pk=victim.pk).update(phase=Phase.RUNNING, phase_at=again, started_at=again)
    detect(history.cluster, again + timedelta(minutes=1))
    assert kinds(ended_at=None) == []
    assert Finding.objects.count() == 1


def test_pods_of_one_decision_are_one_eviction(history: History, llm_team: Project) -> None:
    victim = history.waiting(llm_team, "gang", pod_count=3, since=history.ago(minutes=30))
    taker = history.running(llm_team, "infer")
    for seconds in range(3):
        history.evicted(victim, taker, at=history.ago(minutes=30, seconds=seconds))
    detect(history.cluster, history.now)
    assert "thrashing" not in kinds()
    for minutes in (60, 90):
        history.evicted(victim, taker, at=history.ago(minutes=minutes))
    detect(history.cluster, history.now)
    assert kinds() == ["thrashing"]
    detect(history.cluster, history.now + timedelta(hours=1))
    assert kinds(ended_at=None) == []


@pytest.mark.parametrize(("ran", "found"), [(600, ["inside-min-runtime"]), (7200, [])])
def test_a_guaranteed_minimum_runtime_is_that_of_the_project(
    history: History, llm_team: Project, ran: int, found: list[str]
) -> None:
    set_min_runtime(owner=llm_team, minutes=60, actor=SYSTEM)
    victim, taker = history.waiting(llm_team, "train"), history.running(llm_team, "infer")
    history.evicted(victim, taker, ran_seconds=ran)
    detect(history.cluster, history.now)
    assert kinds() == found


def test_fragmentation_names_the_move_from_observed_pods(history: History, llm_team: Project) -> None:
    history.waiting(llm_team, "big")
    long_ago = history.ago(hours=9)
    for name, gpus, node in [("a", 2, "node-a"), ("b", 4, "node-b"), ("c", 6, "node-c")]:
        history.running(llm_team, name, gpus=gpus, node=node, since=long_ago)
    detect(history.cluster, history.now)
    (row,) = Finding.objects.all()
    assert (row.kind, row.workload and row.workload.name) == ("fragmentation", "big")
    assert row.advice.startswith("Move {1} (2 GPUs) from node-a to node-c: then node-a has room for {0}.")
    assert [each["name"] for each in row.named] == ["big", "a"]
    history.pool.cluster.nodes.filter(name="node-c").update(unschedulable=True)
    detect(history.cluster, history.now)
    assert "node-b" in Finding.objects.get().advice


def test_nodes_that_take_no_pods_have_no_free_gpus_but_count_as_physical(history: History, llm_team: Project) -> None:
    history.waiting(llm_team, "big")
    history.running(llm_team, "a", gpus=2, since=history.ago(hours=9))
    history.pool.cluster.nodes.exclude(name="node-a").update(ready=False)
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=24000, gpu_limit=None)
    detect(history.cluster, history.now)
    assert kinds() == []
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=24001)
    detect(history.cluster, history.now)
    assert kinds() == ["quota-above-physical"]


def test_idle_gpus_are_those_of_pods_that_were_measured_lately(history: History, llm_team: Project) -> None:
    notebook = history.running(llm_team, "notebook", gpus=2, since=history.ago(hours=9))
    pod = ObservedPodFactory(workload=notebook)
    for each in history.cluster.pods.all():
        GpuUse.objects.create(pod=each, percent=0, idle_since=history.ago(hours=8, minutes=5), measured_at=history.now)
    detect(history.cluster, history.now)
    assert kinds(ended_at=None) == ["idle-gpus"]
    GpuUse.objects.filter(pod=pod).update(percent=80, idle_since=None)
    detect(history.cluster, history.now)
    assert kinds(ended_at=None) == []


def test_non_preemptible_work_pins_a_quota_that_was_lowered(history: History, llm_team: Project) -> None:
    quota = ProjectQuota.objects.get(project=llm_team)
    for deserved in (8000, 3000, 4000):
        quota.gpu_deserved = deserved
        quota.save()
    serve = history.running(llm_team, "serve", preemptibility="non-preemptible")
    history.running(llm_team, "train", node="node-b")
    detect(history.cluster, history.now)
    (row,) = Finding.objects.filter(kind="pinned-quota")
    assert row.workload == serve
    assert "hold 8 GPUs in h100; its deserved quota there is 4 GPUs. It was 8 GPUs until" in row.evidence[0]
    quota.gpu_deserved = 8000
    quota.save()
    detect(history.cluster, history.now)
    assert kinds(ended_at=None) == []


@pytest.mark.parametrize("flavour", ["kube", "kueue"])
def test_a_scheduler_that_evicts_non_preemptible_work_leaves_no_quota_pinned(
    history: History, llm_team: Project, flavour: str
) -> None:
    ProjectQuota.objects.update(gpu_deserved=4000)
    history.running(llm_team, "serve", preemptibility="non-preemptible")
    Cluster.objects.update(flavour=flavour)
    detect(history.cluster, history.now)
    assert kinds(ended_at=None) == []


def test_a_worker_is_asked_to_check_each_watched_cluster_and_does(history: History, inversion: Workload) -> None:
    idle = build_cluster(name="paused", state=ClusterState.PAUSED)
    assert request_checks(history.now) == 1
    for cluster in (history.cluster, idle):
        detect_cluster(str(cluster.pk))
    assert kinds(cluster=history.cluster) == ["priority-inversion"]
    assert not Finding.objects.filter(cluster=idle).exists()
    assert request_checks(history.now + timedelta(minutes=6)) == 0


def test_findings_that_ended_long_ago_are_dropped(history: History, inversion: Workload) -> None:
    detect_on(str(history.cluster.pk), history.now)
    Finding.objects.update(ended_at=history.now - timedelta(days=91))
    request_checks(history.now)
    assert not Finding.objects.exists()


def test_a_cluster_that_was_not_observed_is_not_judged(history: History, inversion: Workload) -> None:
    detect_on(str(history.cluster.pk), history.now)
    Workload.objects.filter(pk=inversion.pk).update(phase=Phase.RUNNING)
    assert detect_on(str(history.cluster.pk), history.now + timedelta(minutes=6)) == 0
    assert kinds(ended_at=None) == ["priority-inversion"]


def test_on_kube_scheduler_priorities_compete_across_projects(
    history: History, llm_team: Project, vision_team: Project
) -> None:
    history.waiting(llm_team, "urgent", priority="high")
    history.running(vision_team, "batch")
    assert detect(history.cluster, history.now) == 0
    cluster = history.cluster
    cluster.flavour = "kube"
    cluster.save()
    detect(cluster, history.now)
    assert kinds() == ["priority-inversion"]


def test_the_number_of_queries_does_not_grow(
    history: History, llm_team: Project, django_assert_max_num_queries: Callable[[int], AbstractContextManager[Any]]
) -> None:
    for number in range(12):
        waiting = history.waiting(llm_team, f"urgent-{number}", priority="high")
        taker = history.running(llm_team, f"batch-{number}", gpus=1, node="node-b", preemptibility="non-preemptible")
        history.evicted(waiting, taker)
        big = history.running(llm_team, f"big-{number}", node="elsewhere")
        for pod in history.cluster.pods.filter(owner_id=str(big.pk)):
            idle = history.ago(hours=9)
            GpuUse.objects.create(pod=pod, percent=0, idle_since=idle, measured_at=history.now)
    detect(history.cluster, history.now)
    assert {"idle-gpus", "pinned-quota", "priority-inversion"} <= set(kinds())
    with django_assert_max_num_queries(28):
        detect(history.cluster, history.now + timedelta(minutes=1))


def page(client: Client, query: str = "") -> str:
    return " ".join(client.get(f"/findings/{query}").content.decode().split())


def test_the_page_shows_evidence_with_links_cost_and_advice(
    client_of: Clients, admin: User, history: History, inversion: Workload
) -> None:
    unchecked = page(client_of(admin))
    assert "lab: not checked yet." in unchecked
    assert "Last checked" not in unchecked
    detect(history.cluster, history.now)
    text = page(client_of(admin))
    assert f'<a href="/workloads/{inversion.pk}/">urgent</a> (high 125) waits since' in text
    assert "Priority inversion" in text
    assert "GPU-minutes delayed" in text or "GPU-hours delayed" in text
    assert "Last checked" in text


def test_the_page_is_filtered_and_old_findings_leave_it(
    client_of: Clients, admin: User, history: History, inversion: Workload
) -> None:
    detect(history.cluster, history.now)
    client = client_of(admin)
    for query in ("?kind=priority-inversion", "?status=open", "?cluster=lab&kind=priority-inversion&status=open"):
        assert "urgent" in page(client, query)
    for query in ("?kind=thrashing", "?status=ended", "?cluster=no-such", "?kind=nonsense"):
        assert "No findings in the last 7 days." in page(client, query)
    long_ago = history.ago(days=8)
    Finding.objects.update(ended_at=long_ago, last_seen=long_ago)
    assert "No findings in the last 7 days." in page(client)


def test_what_could_not_be_checked_is_named_with_its_reason(
    client_of: Clients, admin: User, member: Robot, history: History
) -> None:
    detect(history.cluster, history.now)
    text = "Idle GPUs: not checked on lab: no GPU metrics."
    assert text in page(client_of(admin))
    body = member.get("v1/findings").json()
    assert (body["notChecked"], body["checkedAt"] is None) == ([text], False)
    source = MetricsSource.objects.create(cluster=history.cluster, server="https://metrics.example")
    assert "Idle GPUs: not checked on lab: GPU use was not read" in page(client_of(admin))
    MetricsSource.objects.filter(pk=source.pk).update(read_at=history.now)
    assert "ot checked" not in page(client_of(admin))
    Cluster.objects.update(state=ClusterState.PAUSED)
    shown = page(client_of(admin))
    assert f"lab: not checked since {history.now:%Y-%m-%d %H:%M} UTC, paused." in shown
    assert "Last checked" not in shown


def test_of_many_clusters_three_are_named_and_others_projects_clusters_are_not(
    client_of: Clients,
    admin: User,
    alice: User,
    history: History,
    llm_team: Project,
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[Any]],
) -> None:
    detect(history.cluster, history.now)
    client = client_of(admin)
    page(client)
    with CaptureQueriesContext(connection) as one:
        page(client)
    for number in range(5):
        gone = ClusterFactory(name=f"gone-{number}", observed_at=history.ago(hours=2))
        DetectorRun.objects.create(cluster=gone, checked_at=history.ago(hours=2))
        fresh = ClusterFactory(name=f"seen-{number}", observed_at=history.now)
        DetectorRun.objects.create(cluster=fresh, checked_at=history.ago(minutes=3))
    with django_assert_max_num_queries(len(one)):
        shown = page(client)
    since = f"{history.ago(hours=2):%Y-%m-%d %H:%M} UTC"
    assert f"gone-2: not checked since {since}, not observed since {since}." in shown
    assert "Not checked either: 2 more clusters." in shown
    assert "Idle GPUs: not checked on lab, seen-0, seen-1 and 3 more: no GPU metrics." in shown
    assert "Last checked: 6 clusters, the oldest" in shown
    assert "gone-0" not in page(client, "?cluster=lab").partition('id="table"')[2]
    assert "gone-0" not in page(client_of(alice)).partition('id="table"')[2]


def test_others_findings_are_absent_and_their_names_are_hidden(
    client_of: Clients,
    alice: User,
    charlie: User,
    admin: User,
    history: History,
    llm_team: Project,
    vision_team: Project,
) -> None:
    victim = history.waiting(llm_team, "train", since=history.ago(minutes=30))
    times = {"started_at": history.ago(minutes=29), "completed_at": history.ago(minutes=28)}
    taker = WorkloadFactory(project=vision_team, name="secret-name", phase=Phase.COMPLETED, **times)
    history.evicted(victim, taker, cause="reclaim")
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=99000, gpu_limit=None)
    detect(history.cluster, history.now)
    own = page(client_of(alice))
    assert "workload of another project reclaimed" in own
    assert "secret-name" not in own
    assert "Projects deserve" not in own
    assert "No findings in the last 7 days." in page(client_of(charlie))
    assert "secret-name" in page(client_of(admin))
    assert "Projects deserve 103 GPUs in h100; its nodes have 24 GPUs." in page(client_of(admin))


def test_over_rest_findings_are_listed_filtered_and_read(
    member: Robot, history: History, inversion: Workload, vision_team: Project
) -> None:
    detect(history.cluster, history.now)
    body = member.get("v1/findings?status=open&filterBy=kind==priority-inversion").json()
    (found,) = body["findings"]
    assert (found["title"], found["workloadName"], found["projectName"]) == ("Priority inversion", "urgent", "llm-team")
    assert found["evidence"][0].startswith("urgent (high 125) waits since")
    assert (found["gpuHours"], found["endedAt"], body["next"]) == (0.67, None, None)
    assert body["checkedAt"] is not None
    assert member.get(f"v1/findings/{found['id']}").json() == found
    stranger = Robot("stranger", role=Role.MEMBER, project=vision_team)
    assert stranger.get("v1/findings").json()["findings"] == []
    assert stranger.get(f"v1/findings/{found['id']}").status_code == 404
    assert member.get("v1/findings?status=ended").json()["findings"] == []
    refused = member.get("v1/findings?status=new")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/status")


def test_open_findings_are_a_metric_per_kind_and_cluster(
    client: Client, settings: Any, history: History, inversion: Workload
) -> None:
    settings.RUNG_METRICS_TOKEN = "scrape"
    detect(history.cluster, history.now)
    text = client.get("/metrics", headers={"authorization": "Bearer scrape"}).content.decode()
    assert 'rung_findings_open{cluster="lab",kind="priority-inversion"} 1\n' in text
    assert 'rung_findings_open{cluster="lab",kind="thrashing"} 0\n' in text
