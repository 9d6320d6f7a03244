"""What Rung made in a cluster is deleted by a worker: whole, watched, and by the next worker where one has died."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, MemoryStore, forget_all, store_of
from clusters.connection.services.gateways import gateway_for
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import pause, unpause
from clusters.ports.gateway import ClusterError, ClusterRefused, ClusterUnreachable, ObjectRef
from clusters.ports.objects import MANAGED_BY, MANAGER, NAMESPACE, PRIORITY_CLASS
from clusters.sync import tasks
from clusters.sync.models import SyncRun
from clusters.sync.services import disconnect
from clusters.sync.services.disconnect import (
    continue_removal,
    disconnect_cluster,
    managed_counts,
    removal_of,
    request_removal,
)
from clusters.sync.services.reconcile import reconcile, sweep
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A paused cluster with objects of Rung's and of others."""
    monkeypatch.setattr(disconnect, "PAUSE", 0)
    monkeypatch.setattr(disconnect, "BEAT", 0.0)
    cluster = build_cluster(flavour="kube")
    gateway = gateway_for(cluster)

    def make(kind: str, api: str, name: str, *, ours: bool = True, namespace: str = "") -> None:
        labels = {MANAGED_BY: MANAGER} if ours else {}
        place = {"namespace": namespace} if namespace else {}
        gateway.create({"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels, **place}})

    make("Namespace", "v1", "runai-a")
    make("Namespace", "v1", "foreign", ours=False)
    make("PriorityClass", "scheduling.k8s.io/v1", "high")
    make("PriorityClass", "scheduling.k8s.io/v1", "foreign", ours=False)
    make("Job", "batch/v1", "train", namespace="runai-a")
    pause(cluster=cluster, reason="leaving", actor=SYSTEM)
    yield cluster
    forget_all()


@pytest.fixture
def store(left: Cluster) -> MemoryStore:
    return store_of(str(left.pk))


def names(cluster: Cluster) -> set[str]:
    gateway = gateway_for(cluster)
    every = [each for kind in (NAMESPACE, PRIORITY_CLASS) for each in gateway.list(kind, managed_only=False)[0]]
    return {each["metadata"]["name"] for each in every}


def test_only_a_paused_cluster_is_cleared_and_only_once_at_a_time(left: Cluster) -> None:
    unpause(cluster=left, actor=SYSTEM)
    with pytest.raises(Conflict, match="Pause"):
        request_removal(cluster=left, actor=SYSTEM)
    assert AuditRecord.objects.get(action="cluster.remove_traces").result == "Denied"
    pause(cluster=left, reason="again", actor=SYSTEM)
    request_removal(cluster=left, actor=SYSTEM)
    with pytest.raises(Conflict, match="A sync run is active"):
        request_removal(cluster=left, actor=SYSTEM)


def emptied(cluster: Cluster) -> None:
    """Asked to be left, and a worker has deleted everything."""
    assert not disconnect_cluster(cluster=cluster, actor=SYSTEM)
    tasks.remove_traces(str(cluster.pk))
    run = removal_of(cluster)
    assert run is not None
    assert run.state == "succeeded"


def test_an_emptied_cluster_is_forgotten_when_it_is_left_again(left: Cluster) -> None:
    emptied(left)
    assert disconnect_cluster(cluster=left, actor=SYSTEM)
    assert not Cluster.objects.filter(pk=left.pk).exists()


def test_a_cluster_that_rung_was_let_at_again_is_emptied_again(left: Cluster) -> None:
    emptied(left)
    unpause(cluster=left, actor=SYSTEM)
    assert not disconnect_cluster(cluster=left, actor=SYSTEM), "it is at work there"
    assert SyncRun.objects.filter(cluster=left, trigger="removal").count() == 2
    tasks.remove_traces(str(left.pk))
    unpause(cluster=left, actor=SYSTEM)
    reconcile(left)
    pause(cluster=left, reason="again", actor=SYSTEM)
    assert not disconnect_cluster(cluster=left, actor=SYSTEM), "it was at work there"


def test_asking_deletes_nothing_and_a_worker_everything_of_rungs(left: Cluster) -> None:
    request_removal(cluster=left, actor=SYSTEM)
    assert managed_counts(left) == {"Job": 1, "Namespace": 1, "PriorityClass": 1}
    tasks.remove_traces(str(left.pk))
    run = removal_of(left)
    assert run is not None
    assert (run.state, run.listed, run.written, run.failed) == ("succeeded", 3, 3, 0)
    assert set(run.outcomes.values_list("kind", "name", "ok")) == {
        ("Job.batch", "train", True),
        ("Namespace", "runai-a", True),
        ("PriorityClass.scheduling.k8s.io", "high", True),
    }
    assert managed_counts(left) == {}
    assert {"foreign", "runai-a", "high"} & names(left) == {"foreign"}
    said = AuditRecord.objects.get(action="cluster.traces_removed")
    assert said.detail["deleted"] == {"Job": 1, "Namespace": 1, "PriorityClass": 1}
    assert continue_removal(left) is None


def test_how_far_it_is_is_told_while_it_works(left: Cluster, store: MemoryStore) -> None:
    seen: list[tuple[str, int]] = []

    def watch(_verb: str, _ref: ObjectRef) -> None:
        run = SyncRun.objects.get()
        seen.append((run.state, run.written))

    request_removal(cluster=left, actor=SYSTEM)
    store.faults.append(watch)
    continue_removal(left)
    assert seen == [("running", 0), ("running", 1), ("running", 2)]


def test_what_refuses_to_go_is_named_and_the_rest_goes(left: Cluster, store: MemoryStore) -> None:
    def refuse(_verb: str, ref: ObjectRef) -> ClusterError | None:
        return ClusterRefused("a policy keeps it") if ref.name == "high" else None

    store.faults.append(refuse)
    request_removal(cluster=left, actor=SYSTEM)
    run = continue_removal(left)
    assert run is not None
    assert (run.state, run.written, run.failed) == ("partial", 2, 1)
    assert "PriorityClass /high: a policy keeps it" in run.error
    store.faults.clear()
    request_removal(cluster=left, actor=SYSTEM)
    again = continue_removal(left)
    assert again is not None
    assert (again.state, again.written) == ("succeeded", 1)


def test_what_somebodys_finalizer_holds_is_left_and_told(
    left: Cluster, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnect, "STUCK", 0.05)
    store.objects["Namespace", "", "runai-a"]["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    request_removal(cluster=left, actor=SYSTEM)
    run = continue_removal(left)
    assert run is not None
    assert (run.state, run.error_code) == ("partial", "still_ending")
    assert "1 objects are still terminating" in run.error


def test_a_dead_workers_removal_is_found_by_the_sweep_and_the_late_one_stops(
    left: Cluster, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    monkeypatch.setattr("clusters.sync.services.reconcile.notify_removal", woken.append)
    turns = iter([True])

    def stall(_verb: str, _ref: ObjectRef) -> None:
        """The first worker sleeps inside its first deletion; another one is woken and does it all."""
        if next(turns, None):
            SyncRun.objects.update(heartbeat_at=timezone.now() - timedelta(seconds=30))
            sweep()
            continue_removal(left)

    request_removal(cluster=left, actor=SYSTEM)
    sweep()
    assert woken == []
    store.faults.append(stall)
    continue_removal(left)
    assert woken == [str(left.pk)]
    run = SyncRun.objects.get()
    assert (run.state, run.generation, run.written) == ("succeeded", 2, 3)
    assert AuditRecord.objects.filter(action="cluster.traces_removed").count() == 1
    assert managed_counts(left) == {}


def test_letting_the_cluster_go_on_ends_the_removal(left: Cluster, store: MemoryStore) -> None:
    def let_go(_verb: str, _ref: ObjectRef) -> None:
        store.faults.clear()
        unpause(cluster=left, actor=SYSTEM)

    request_removal(cluster=left, actor=SYSTEM)
    store.faults.append(let_go)
    run = continue_removal(left)
    assert run is not None
    assert (run.state, run.error_code, run.written) == ("partial", "cluster_unpaused", 1)
    assert reconcile(Cluster.objects.get(pk=left.pk)).trigger == "sweep"


def test_a_cluster_that_goes_away_meanwhile_ends_it_with_the_reason(
    left: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: MemoryGateway, *_requested: object, **_options: object) -> None:
        raise ClusterUnreachable("Timeout: no response.")

    request_removal(cluster=left, actor=SYSTEM)
    monkeypatch.setattr(MemoryGateway, "list", away)
    started = time.monotonic()
    run = continue_removal(left)
    assert run is not None
    assert (run.state, run.error_code, run.error) == ("failed", "cluster_unreachable", "Timeout: no response.")
    assert time.monotonic() - started < 5
