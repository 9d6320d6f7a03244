"""What the cluster pages show: room, runs, drift and age, in a constant number of queries."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from clusters.inventory.models import Cluster
from clusters.sync.models import Drift, DriftKind, SyncRun, SyncState
from clusters.sync.selectors import Comparison
from clusters.sync.services.reconcile import forget_old_runs
from clusters.web.selectors import (
    ClusterRow,
    ObjectVisibility,
    cluster_rows,
    drifts_of,
    node_rows,
    pool_rows,
    runs_of,
)
from tests.factories.clusters import (
    NodeFactory,
    NodePoolFactory,
    ObservedPodFactory,
    SyncRunFactory,
    build_cluster,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A KAI cluster in memory, without nodes."""
    return build_cluster(name="blue", flavour="kai")


def row_of(cluster: Cluster) -> ClusterRow:
    (row,) = cluster_rows([Cluster.objects.get(pk=cluster.pk)])
    return row


def test_free_gpus_are_what_living_pods_leave_on_nodes_that_take_pods(cluster: Cluster) -> None:
    for name, fields in {"n1": {}, "n2": {"ready": False}, "n3": {"unschedulable": True}}.items():
        NodeFactory.create(cluster=cluster, name=name, **fields)
    ObservedPodFactory.create(cluster=cluster, node_name="n1", gpu_milli=2500)
    ObservedPodFactory.create(cluster=cluster, node_name="n2", gpu_milli=1000)
    ObservedPodFactory.create(cluster=cluster, node_name="n1", gone_at=timezone.now())
    ObservedPodFactory.create(cluster=cluster, node_name="n1", phase="Succeeded")
    ObservedPodFactory.create(cluster=cluster, node_name="", phase="Pending")
    row = row_of(cluster)
    assert (row.nodes, row.total, row.held, row.free) == (3, 24_000, 3_500, 5_500)


def test_a_cluster_without_nodes_has_no_room(cluster: Cluster) -> None:
    row = row_of(cluster)
    assert (row.nodes, row.total, row.free, row.last_run, row.drifts) == (0, 0, 0, None, 0)


@pytest.mark.parametrize(
    ("fields", "state", "why"),
    [
        pytest.param({"synced_at": None}, "never", "", id="never compared"),
        pytest.param({}, "synced", "", id="compared a minute ago"),
        pytest.param({"generation": 2}, "changing", "", id="decided since"),
        pytest.param({"state": "paused"}, "unknown", "The cluster is paused.", id="paused"),
        pytest.param(
            {"breaker_reason": "401"}, "unknown", "The cluster does not accept work now.", id="work is stopped"
        ),
        pytest.param({"failures": 1}, "unknown", "The last sync run failed.", id="the last run failed"),
        pytest.param({"synced_at": timedelta(minutes=4)}, "unknown", "No sync run has finished since.", id="old"),
    ],
)
def test_what_a_comparison_says_stops_holding(cluster: Cluster, fields: dict[str, Any], state: str, why: str) -> None:
    age = fields.pop("synced_at", timedelta(minutes=1))
    at = age and timezone.now() - age
    Cluster.objects.update(**{"synced_at": at, "generation": 1, "synced_generation": 1, **fields})
    assert row_of(cluster).comparison == Comparison(state, at, why)


def test_the_last_run_is_no_dry_run(cluster: Cluster) -> None:
    now = timezone.now()
    SyncRunFactory.create(cluster=cluster, state=SyncState.FAILED, started_at=now - timedelta(minutes=2))
    last = SyncRunFactory.create(cluster=cluster, state=SyncState.SUCCEEDED, started_at=now - timedelta(minutes=1))
    dry = SyncRunFactory.create(cluster=cluster, state=SyncState.SUCCEEDED, dry_run=True, started_at=now)
    assert row_of(cluster).last_run == last
    assert list(runs_of(cluster, ObjectVisibility(everything=True))[:2]) == [dry, last]


def test_quiet_runs_are_forgotten_after_a_day_and_telling_ones_after_a_month(cluster: Cluster) -> None:
    now = timezone.now()

    def run(days: float, **fields: object) -> SyncRun:
        ended = now - timedelta(days=days)
        return SyncRunFactory.create(
            cluster=cluster, state=SyncState.SUCCEEDED, started_at=ended, finished_at=ended, **fields
        )

    forgotten = [run(40, written=3), run(2), run(3)]
    kept = [run(20, written=3), run(20, failed=1), run(20, error_code="cluster_busy"), run(0.5)]
    assert forget_old_runs() == len(forgotten)
    assert set(SyncRun.objects.all()) == set(kept)


def test_the_last_run_of_a_cluster_is_never_forgotten(cluster: Cluster) -> None:
    ended = timezone.now() - timedelta(days=90)
    SyncRunFactory.create(cluster=cluster, state=SyncState.SUCCEEDED, started_at=ended, finished_at=ended)
    assert forget_old_runs() == 0


def test_pools_are_counted_apart(cluster: Cluster) -> None:
    a100, h100 = (NodePoolFactory.create(cluster=cluster, name=name) for name in ("a100", "h100"))
    for pool, name in ((a100, "a1"), (a100, "a2"), (h100, "h1"), (None, "x")):
        NodeFactory.create(cluster=cluster, pool=pool, name=name)
    ObservedPodFactory.create(cluster=cluster, node_name="a1", gpu_milli=6000)
    pools = {row.name: row for row in pool_rows(node_rows(cluster))}
    assert set(pools) == {"a100", "h100", ""}
    assert (pools["a100"].nodes, pools["a100"].total, pools["a100"].free, pools["a100"].largest) == (
        2,
        16_000,
        10_000,
        8_000,
    )


def test_a_node_shows_one_cell_per_gpu(cluster: Cluster) -> None:
    NodeFactory.create(cluster=cluster, name="n1", gpu_milli=4000)
    ObservedPodFactory.create(cluster=cluster, node_name="n1", gpu_milli=1000, preemptible=False)
    ObservedPodFactory.create(cluster=cluster, node_name="n1", gpu_milli=1000)
    (node,) = node_rows(cluster)
    assert node.cells == ["fixed", "used", "free", "free"]


def test_a_gpu_of_which_a_part_is_held_has_a_cell_of_its_own(cluster: Cluster) -> None:
    NodeFactory.create(cluster=cluster, name="n1", gpu_milli=4000)
    ObservedPodFactory.create(cluster=cluster, node_name="n1", gpu_milli=1500, preemptible=False)
    ObservedPodFactory.create(cluster=cluster, node_name="n1", gpu_milli=1000)
    (node,) = node_rows(cluster)
    assert (node.cells, node.free) == (["fixed", "fixed", "part", "free"], 1500)


def test_differences_are_listed(cluster: Cluster) -> None:
    for category in (DriftKind.STALE, DriftKind.CHANGED):
        Drift.objects.create(cluster=cluster, category=category, kind="Pod", name="x", seen_at=timezone.now())
    assert row_of(cluster).drifts == 2
    assert [each.category for each in drifts_of(cluster, ObjectVisibility(everything=True))] == ["changed", "stale"]


@pytest.mark.parametrize("clusters", [1, 8])
def test_more_clusters_need_no_more_queries(clusters: int, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for _ in range(clusters):
        SyncRunFactory.create(cluster=NodeFactory.create(cluster=build_cluster()).cluster)
    found = list(Cluster.objects.all())
    with django_assert_num_queries(3):
        assert len(cluster_rows(found)) == clusters
