"""One worker at a time has a cluster, and each due cluster gets its turn."""

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryStore
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import mark_dirty, pause, request_reconcile
from clusters.ports.gateway import ObjectRef
from clusters.sync.models import SyncRun, SyncState
from clusters.sync.services.reconcile import reconcile, sweep
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM
from tests.clusters.specs import Wanted, state
from tests.clusters.synced import FULL, PRIORITIES, outcomes
from tests.factories.clusters import SyncRunFactory


def test_the_run_of_a_dead_worker_is_taken_over(cluster: Cluster, wanted: Wanted) -> None:
    dead = SyncRunFactory.create(cluster=cluster, heartbeat_at=timezone.now() - timedelta(seconds=61))
    run = reconcile(cluster)
    dead.refresh_from_db()
    assert run.state == SyncState.SUCCEEDED
    assert (dead.state, dead.error_code) == (SyncState.FAILED, "abandoned")


@pytest.mark.parametrize(
    ("silent", "state"),
    [pytest.param(61, SyncState.FAILED, id="dead"), pytest.param(50, SyncState.RUNNING, id="alive")],
)
def test_a_dry_run_is_closed_by_the_sweep_when_its_worker_has_died(
    cluster: Cluster, silent: int, state: SyncState
) -> None:
    run = SyncRunFactory.create(cluster=cluster, dry_run=True, heartbeat_at=timezone.now() - timedelta(seconds=silent))
    sweep()
    run.refresh_from_db()
    assert run.state == state


def test_a_live_run_is_left_to_its_worker(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    live = SyncRunFactory.create(cluster=cluster, heartbeat_at=timezone.now() - timedelta(seconds=50))
    wanted.state = FULL
    before = len(store.writes)
    assert reconcile(cluster) == live
    assert len(store.writes) == before
    assert wanted.requested == []


def test_a_worker_that_was_taken_over_stops_writing(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    def taken_over(verb: str, ref: ObjectRef) -> None:
        SyncRun.objects.filter(cluster=cluster).update(state=SyncState.FAILED, error_code="abandoned")

    store.faults.append(taken_over)
    wanted.state = FULL
    run = reconcile(cluster)
    assert (run.state, run.error_code, run.written) == (SyncState.FAILED, "abandoned", 0)
    assert [name for _, name, _ in outcomes(run)] == ["high", "low"]


def test_a_newer_generation_is_due_at_once(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    def change_and_sweep(verb: str, ref: ObjectRef) -> None:
        mark_dirty(cluster)
        sweep()

    store.faults.append(change_and_sweep)
    wanted.state = state(priorities=PRIORITIES[:1])
    reconcile(cluster)
    cluster.refresh_from_db()
    assert (cluster.generation, cluster.synced_generation) == (2, 1)
    assert cluster.sync_due_at is not None
    assert cluster.sync_due_at <= timezone.now()


def test_of_two_sweeps_that_saw_the_same_due_time_one_gets_it(cluster: Cluster) -> None:
    mine, theirs = Cluster.objects.get(), Cluster.objects.get()
    now = timezone.now()
    until = now + timedelta(seconds=30)
    assert Cluster.objects.claim_due(mine, now, until)
    assert not Cluster.objects.claim_due(theirs, now, until + timedelta(seconds=1))


def test_a_change_of_what_is_wanted_is_swept_once(cluster: Cluster) -> None:
    """The change writes the database's own time, which SQLite keeps with other digits than a clock of Python."""
    sweep()
    mark_dirty(cluster)
    assert (sweep(), sweep()) == (1, 0)


def test_each_due_cluster_is_swept_once(cluster: Cluster, plain: Cluster) -> None:
    pause(cluster=plain, reason="maintenance", actor=SYSTEM)
    assert (sweep(), sweep()) == (1, 0)
    request_reconcile(cluster, SYSTEM)
    assert sweep() == 1


def test_a_paused_cluster_refuses_a_requested_reconcile(cluster: Cluster) -> None:
    pause(cluster=cluster, reason="maintenance", actor=SYSTEM)
    with pytest.raises(Conflict, match="maintenance"):
        request_reconcile(cluster, SYSTEM)
