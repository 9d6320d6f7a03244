"""Clusters: figures with their age, per-object outcomes, drift side by side, and a reconcile on request."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster, Node
from clusters.sync.models import Drift, SyncOutcome, SyncRun
from clusters.web.views.clusters import CLUSTERS, NODES
from portal.audit.models import AuditRecord
from tenants.access.models import User
from tenants.organisation.models import Project
from tests.factories.cast import applied
from tests.factories.clusters import ClusterFactory, NodeFactory, build_cluster
from tests.factories.workloads import ObservedPodFactory, WorkloadFactory

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]


def words(client: Client, page: str) -> str:
    answer = client.get(page)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


@pytest.fixture
def run(cluster: Cluster) -> SyncRun:
    """A run with one object written and one in conflict."""
    now = timezone.now()
    run = SyncRun.objects.create(
        cluster=cluster, state="partial", started_at=now, heartbeat_at=now, listed=9, written=1, failed=1
    )
    SyncOutcome.objects.create(
        run=run,
        action="update",
        kind="Queue",
        name="a",
        owner="priority.1",
        ok=True,
        changes=[["/spec/priority", 100, 60]],
    )
    SyncOutcome.objects.create(
        run=run,
        action="conflict",
        kind="PriorityClass",
        name="high",
        owner="priority.2",
        ok=False,
        code="object_conflict",
    )
    return run


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "age-fresh"), (45, "stale: 45 s ago"), (400, "not current: 6 min ago")],
    ids=["fresh", "amber", "not current"],
)
def test_staleness_is_shown(client_of: Clients, alice: User, cluster: Cluster, seconds: int, said: str) -> None:
    for page in ("/clusters/", "/clusters/lab/", "/projects/llm-team/"):
        Cluster.objects.update(observed_at=timezone.now() - timedelta(seconds=seconds))
        assert said in words(client_of(alice), page)


def test_many_clusters_are_listed_page_by_page(client_of: Clients, alice: User, cluster: Cluster) -> None:
    for number in range(CLUSTERS):
        build_cluster(name=f"a{number:02}")
    client = client_of(alice)
    first = client.get("/clusters/")
    assert f"/clusters/a{CLUSTERS - 1}/" in first.content.decode()
    assert "/clusters/lab/" not in first.content.decode()
    assert "/clusters/lab/" in client.get("/clusters/", {"after": first.context["page"].next}).content.decode()


def test_many_nodes_are_shown_page_by_page_and_counted_together(
    client_of: Clients, alice: User, cluster: Cluster
) -> None:
    before = cluster.nodes.count()
    NodeFactory.create_batch(NODES, cluster=cluster, pool=cluster.node_pools.get(name="h100"))
    client = client_of(alice)
    first, second = (words(client, f"/clusters/lab/{query}") for query in ("", "?page=2"))
    assert first.count("<strong>") == NODES
    assert second.count("<strong>") == before
    assert f"Nodes {NODES + 1} to {NODES + before} of {NODES + before}." in second
    assert 'href="?page=2"' in first
    assert 'href="?page=1"' in second
    assert f"free on {NODES + 2} nodes." in first
    assert f"free on {NODES + 2} nodes." in second


def test_numbers_of_a_simulated_cluster_say_so(client_of: Clients, alice: User, cluster: Cluster) -> None:
    for page in ("/", "/clusters/", "/clusters/lab/", "/projects/", "/projects/llm-team/"):
        assert "simulated" in words(client_of(alice), page)


def test_free_gpus_and_the_largest_pod_per_pool(client_of: Clients, alice: User, llm_team: Project) -> None:
    node = Node.objects.filter(pool__name="h100").first()
    assert node is not None
    ObservedPodFactory(workload=WorkloadFactory(project=llm_team), node_name=node.name, gpu_milli=3000)
    text = words(client_of(alice), "/clusters/lab/")
    assert "13 of 16 GPUs free on 2 nodes." in text
    assert "Largest pod that can start now: 8 GPUs." in text
    assert text.count('class="cell cell-used" x="') - 1 == 3  # one more stands in the legend


def test_a_node_leads_to_its_workloads(client_of: Clients, alice: User, llm_team: Project) -> None:
    node = Node.objects.filter(pool__name="h100").first()
    assert node is not None
    made = WorkloadFactory(project=llm_team, name="on-it")
    WorkloadFactory(project=llm_team, name="elsewhere")
    ObservedPodFactory(workload=made, node_name=node.name, gpu_milli=500)
    client, address = client_of(alice), f"/workloads/?cluster=lab&node={node.name}"
    page = words(client, "/clusters/lab/")
    assert address in page.replace("&amp;", "&")
    assert page.count("cell cell-half") - 1 == 1  # one more is in the legend
    listed = client.get(address).content.decode()
    assert ">on-it</a>" in listed
    assert ">elsewhere</a>" not in listed


def test_a_run_tells_what_happened_to_each_object(client_of: Clients, alice: User, run: SyncRun) -> None:
    text = words(client_of(alice), "/clusters/lab/?tab=sync")
    assert "9 objects, 1 changed, 1 failed" in text
    assert "/spec/priority: 100 → 60" in text
    assert "object_conflict" in text
    SyncRun.objects.filter(pk=run.pk).update(listed=1)
    assert "· 1 object, 1 changed, 1 failed" in words(client_of(alice), "/clusters/lab/?tab=sync")


def test_drift_stands_side_by_side(client_of: Clients, alice: User, cluster: Cluster) -> None:
    Drift.objects.create(
        cluster=cluster,
        category="changed",
        kind="Queue",
        name="a",
        owner="priority.1",
        changes=[["/spec/x", None, 24]],
        seen_at=timezone.now(),
    )
    text = words(client_of(alice), "/clusters/lab/?tab=drift")
    assert "absent</pre>" in text
    assert "24</pre>" in text
    assert "1 difference" in words(client_of(alice), "/clusters/")


def test_what_the_scheduler_cannot_enforce_comes_with_a_remedy(client_of: Clients, alice: User) -> None:
    ClusterFactory(name="plain", flavour="kube")
    text = words(client_of(alice), "/clusters/plain/?tab=guarantees")
    assert "not enforced" in text
    assert "What to do:" in text


def test_reconcile_now_makes_it_due_and_is_audited(client_of: Clients, admin: User, cluster: Cluster) -> None:
    client = client_of(admin)
    assert client.post("/clusters/lab/reconcile/")["Location"] == "/clusters/lab/?tab=sync"
    cluster.refresh_from_db()
    assert cluster.sync_due_at is not None
    assert AuditRecord.objects.filter(action="cluster.reconcile", actor_name="admin").exists()
    assert "Reconcile of lab started." in words(client, "/clusters/lab/")


def test_others_may_look_but_not_reconcile(client_of: Clients, alice: User, cluster: Cluster) -> None:
    client = client_of(alice)
    assert "Reconcile now" not in words(client, "/clusters/lab/")
    assert client.post("/clusters/lab/reconcile/").status_code == 403
    assert client.post("/clusters/no-such/reconcile/").status_code in {403, 404}


def test_a_paused_cluster_refuses_with_its_reason(client_of: Clients, admin: User, cluster: Cluster) -> None:
    Cluster.objects.update(state="paused", paused_reason="A different cluster responds at this address.")
    answer = client_of(admin).post("/clusters/lab/reconcile/")
    assert answer.status_code == 409
    assert "A different cluster responds at this address." in answer.content.decode()


@pytest.mark.parametrize("tab", ["nodes", "sync", "drift", "activity", "guarantees"])
def test_t57_what_a_cluster_is_called_and_says_is_text(client_of: Clients, alice: User, run: SyncRun, tab: str) -> None:
    evil = "<script>alert(1)</script>"
    Node.objects.filter(pool__name="h100").update(gpu_type=evil)
    SyncOutcome.objects.update(message=evil, changes=[[evil, evil, {"a": evil}]])
    Drift.objects.create(
        cluster=run.cluster,
        category="extra",
        kind=evil,
        name=evil,
        owner="priority.1",
        message=evil,
        changes=[[evil, evil, 1]],
        seen_at=timezone.now(),
    )
    text = words(client_of(alice), f"/clusters/lab/?tab={tab}")
    assert "<script>alert" not in text
    if tab not in {"activity", "guarantees"}:
        assert "&lt;script&gt;alert(1)" in text


@pytest.mark.parametrize("page", ["/clusters/", "/clusters/lab/", "/clusters/lab/?tab=sync"])
def test_more_of_everything_costs_no_more_queries(
    client_of: Clients, alice: User, run: SyncRun, cluster: Cluster, page: str
) -> None:
    client = client_of(alice)
    counts = []
    for more in (1, 6):
        NodeFactory.create_batch(more, cluster=cluster, pool=cluster.node_pools.get(name="h100"))
        ClusterFactory.create_batch(more)
        now = timezone.now()
        for _ in range(more):
            extra = SyncRun.objects.create(cluster=cluster, state="succeeded", started_at=now, heartbeat_at=now)
            SyncOutcome.objects.create(run=extra, action="create", kind="Queue", name="b", ok=True)
        with CaptureQueriesContext(connection) as queries:
            client.get(page)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_an_admin_chooses_the_pod_security_of_a_cluster(
    client_of: Clients, admin: User, alice: User, cluster: Cluster
) -> None:
    where = "/clusters/lab/pod-security/"
    assert client_of(alice).post(where, {"level": "baseline"}).status_code == 403
    assert client_of(admin).post(where, {"level": "privileged"}).status_code == 422
    before = cluster.generation
    assert client_of(admin).post(where, {"level": "baseline"})["Location"] == "/clusters/lab/?tab=guarantees"
    cluster.refresh_from_db()
    assert (cluster.pod_security, cluster.generation) == ("baseline", before + 1)
    assert AuditRecord.objects.get(action="cluster.pod_security").detail["after"] == "baseline"
    assert "Images may run as root" in words(client_of(alice), "/clusters/lab/?tab=guarantees")


def test_an_admin_lets_rung_defer_preemptors_on_a_cluster(
    client_of: Clients, admin: User, alice: User, cluster: Cluster
) -> None:
    where, guarantees = "/clusters/lab/defer-preemptors/", "/clusters/lab/?tab=guarantees"
    assert "KAI Scheduler keeps minimum runtimes itself, so this changes nothing here." in words(
        client_of(alice), guarantees
    )
    Cluster.objects.update(flavour="kube")
    assert client_of(alice).post(where, {"enabled": "on"}).status_code == 403
    assert "option Defer preemptors is off." in words(client_of(alice), guarantees)
    applied(client_of(admin), client_of(admin).post(where, {"enabled": "on"}))
    assert Cluster.objects.get().defer_preemptors
    record = AuditRecord.objects.get(action="cluster.defer_preemptors")
    assert record.detail == {"before": False, "after": True}
    assert "so Rung defers workloads that would evict a run inside its minimum runtime" in words(
        client_of(alice), guarantees
    )
    applied(client_of(admin), client_of(admin).post(where, {"enabled": ""}))
    assert not Cluster.objects.get().defer_preemptors


def test_what_each_scheduler_does_not_enforce_is_told_where_one_is_chosen(client_of: Clients, admin: User) -> None:
    text = words(client_of(admin), "/connect-cluster/")
    assert "What kube-scheduler does not enforce" in text
    assert "even very-low (25) evicts them, in any namespace" in text


@pytest.mark.parametrize(
    ("configured", "said", "not_said"),
    [
        (
            {},
            ("state their assumptions", "Assumption: default configuration, because it cannot be read"),
            "supports everything",
        ),
        (
            {"actions": ["allocate"], "plugins": {"priority": {}, "gang": {"enablePreemptable": False}}},
            (
                "use the configuration read last",
                "lacks the action reclaim",
                "Without the action preempt",
                "lacks the plugin capacity",
            ),
            "Assumed",
        ),
        (
            {
                "actions": ["allocate", "preempt", "reclaim"],
                "plugins": {
                    "priority": {},
                    "gang": {"enablePreemptable": False},
                    "capacity": {"enableHierarchy": True},
                    "network-topology-aware": {},
                },
            },
            ("The configuration supports everything Rung needs.",),
            "Without the action",
        ),
    ],
    ids=["nobody could read it", "as shipped", "as it should be"],
)
def test_promises_are_those_of_the_configuration_there(
    client_of: Clients, alice: User, cluster: Cluster, configured: dict[str, Any], said: tuple[str, ...], not_said: str
) -> None:
    Cluster.objects.update(flavour="volcano", configured=configured)
    text = words(client_of(alice), "/clusters/lab/?tab=guarantees")
    assert [each for each in said if each not in text] == []
    assert not_said not in text


def test_what_has_no_configuration_to_read_says_nothing_of_one(
    client_of: Clients, alice: User, cluster: Cluster
) -> None:
    assert "The configuration of" not in words(client_of(alice), "/clusters/lab/?tab=guarantees")


def test_pools_that_share_one_kai_scheduler_are_named_on_every_tab(
    client_of: Clients, alice: User, cluster: Cluster
) -> None:
    Cluster.objects.update(flavour="kai", backend="kubernetes")
    for tab in ("nodes", "guarantees"):
        assert "One KAI Scheduler serves the node pools" in words(client_of(alice), f"/clusters/lab/?tab={tab}")
