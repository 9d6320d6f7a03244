"""Several workers, one cluster: one of them writes. On a real PostgreSQL, since only there they truly race."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, store_of
from clusters.inventory.models import Cluster, DirtyOwner
from clusters.inventory.services import dirty_owners
from clusters.ports.gateway import ClusterUnreachable, ObjectRef
from clusters.ports.objects import PRIORITY_CLASS
from clusters.sync import tasks
from clusters.sync.models import SyncRun, SyncState
from clusters.sync.services import sync_runs
from clusters.sync.services.reconcile import reconcile, sweep
from tests.clusters.specs import Wanted, priority, state
from tests.factories.clusters import build_cluster

WORKERS = 6


@pytest.fixture
def busy(postgres_db: str, wanted: Wanted) -> Iterator[Cluster]:
    """A cluster that should hold three priorities."""
    wanted.state = state(priorities=(priority("low", 40), priority("medium", 80), priority("high", 125)))
    return build_cluster(name="busy")


def reconcile_at_once(cluster: Cluster) -> list[SyncRun]:
    start = Barrier(WORKERS)

    def run(_number: int) -> SyncRun:
        try:
            start.wait()
            return reconcile(Cluster.objects.get(pk=cluster.pk))
        finally:
            connection.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(run, range(WORKERS)))


@pytest.mark.postgres
def test_of_many_workers_one_creates_each_object(busy: Cluster) -> None:
    store = store_of(str(busy.pk))
    store.writes.clear()
    reconcile_at_once(busy)
    assert sorted(ref.name for _, ref in store.writes) == ["high", "low", "medium"]
    states = list(SyncRun.objects.values_list("state", flat=True))
    assert set(states) == {SyncState.SUCCEEDED}
    assert sum(SyncRun.objects.values_list("written", flat=True)) == 3


@pytest.mark.postgres
def test_while_one_run_lives_the_others_get_that_run(busy: Cluster) -> None:
    live = SyncRun.objects.create(cluster=busy, started_at=timezone.now(), heartbeat_at=timezone.now())
    assert {run.pk for run in reconcile_at_once(busy)} == {live.pk}


@pytest.mark.postgres
def test_of_many_sweeps_one_wakes(busy: Cluster) -> None:
    def run(_number: int) -> int:
        try:
            return sweep()
        finally:
            connection.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        assert sum(pool.map(run, range(WORKERS))) == 1


@pytest.mark.postgres
def test_a_change_while_a_run_ends_waits_for_nobody_in_a_circle(busy: Cluster) -> None:
    with transaction.atomic():
        dirty_owners.enqueue(busy.pk, [dirty_owners.ALL_OWNERS])
    reconcile(Cluster.objects.get(pk=busy.pk))
    with transaction.atomic():
        dirty_owners.enqueue(busy.pk, ["project.7"])
    run = sync_runs.claim(busy, trigger="sweep", dry_run=False)
    assert run is not None
    run.generation = Cluster.objects.get(pk=busy.pk).generation

    def end() -> None:
        try:
            sync_runs.finish(run)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Cluster.objects.filter(pk=busy.pk).update(generation=F("generation") + 1)
            ending = pool.submit(end)
            await_a_lock()
            dirty_owners.record_dirty(busy.pk, ["project.7"], run.generation + 1)
        ending.result(20)
    assert list(DirtyOwner.objects.values_list("owner", "generation")) == [("project.7", run.generation + 1)]
    assert Cluster.objects.get(pk=busy.pk).synced_generation == run.generation


def await_a_lock() -> None:
    """Until some other connection waits for a row."""
    deadline = time.monotonic() + 10
    waiting = 0
    while not waiting:
        assert time.monotonic() < deadline, "nobody waits"
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            (waiting,) = cursor.fetchone()


@pytest.mark.django_db
def test_a_task_for_a_cluster_that_has_gone_or_is_paused_does_nothing(cluster: Cluster, wanted: Wanted) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state="paused")
    tasks.reconcile_cluster(str(cluster.pk))
    tasks.reconcile_cluster("00000000-0000-0000-0000-000000000000")
    assert not SyncRun.objects.exists()


@pytest.mark.django_db
def test_a_task_reconciles_its_cluster(cluster: Cluster, wanted: Wanted) -> None:
    wanted.state = state(priorities=(priority("low", 40),))
    tasks.reconcile_cluster(str(cluster.pk))
    assert store_of(str(cluster.pk)).writes[-1][1] == ObjectRef(PRIORITY_CLASS, "low")
    assert SyncRun.objects.get().trigger == "wake-up"


@pytest.mark.django_db
def test_a_failed_run_says_itself_when_the_next_is_due(
    cluster: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_gateway: MemoryGateway) -> tuple[str, str]:
        raise ClusterUnreachable("gone")

    monkeypatch.setattr(MemoryGateway, "identity", gone)
    tasks.reconcile_cluster(str(cluster.pk))
    cluster.refresh_from_db()
    assert not hasattr(tasks.reconcile_cluster, "autoretry_for")
    assert (SyncRun.objects.get().error_code, cluster.failures) == ("cluster_unreachable", 1)
    assert cluster.sync_due_at is not None
    assert cluster.sync_due_at > timezone.now()


@pytest.mark.django_db
def test_a_dry_run_that_was_asked_for_tells_and_writes_nothing(cluster: Cluster, wanted: Wanted) -> None:
    wanted.state = state(priorities=(priority("low", 40),))
    tasks.dry_run(str(cluster.pk))
    run = SyncRun.objects.get()
    assert (run.dry_run, run.trigger, run.outcomes.count(), run.written) == (True, "dry-run", 1, 0)


@pytest.mark.django_db
def test_two_beats_sweep_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[str] = []
    monkeypatch.setattr("clusters.sync.services.reconcile.notify_sync", lambda pk: woken.append(str(pk)))
    for _ in range(2):
        tasks.sweep()
    assert woken == [str(cluster.pk)]
