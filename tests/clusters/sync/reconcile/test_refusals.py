"""What is refused, foreign or broken is said, left alone, and stops nothing else."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.connection.services.gateways import BACKENDS, gateway_for
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import unpause
from clusters.ports.flavour import PoolSpec, ProjectSpec
from clusters.ports.gateway import ClusterError, ClusterRefused, ClusterUnreachable, Manifest, ObjectRef
from clusters.ports.objects import KAI_QUEUE, NAMESPACE, PRIORITY_CLASS
from clusters.sync import selectors as sync_selectors
from clusters.sync.models import DriftKind, SyncOutcome, SyncRun, SyncState
from clusters.sync.services.reconcile import reconcile
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM
from tests.clusters.specs import Wanted, project, queue, state
from tests.clusters.synced import FULL, PRIORITIES, drifts, names, outcomes
from tests.factories.clusters import build_cluster


def test_a_foreign_object_with_our_name_is_shown_and_never_overwritten(
    cluster: Cluster, wanted: Wanted, gateway: MemoryGateway
) -> None:
    foreign: Manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1,
    }
    gateway.create(foreign)
    wanted.state = FULL
    run = reconcile(cluster)
    stored = gateway.get(ObjectRef(PRIORITY_CLASS, "high"))
    assert stored is not None
    assert stored["value"] == 1
    assert (run.state, run.failed) == (SyncState.PARTIAL, 1)
    assert drifts(cluster) == {(DriftKind.CONFLICT, "high")}
    assert SyncOutcome.objects.get(run=run, ok=False).code == "object_conflict"


def test_nothing_is_written_into_a_namespace_that_is_not_ours(plain: Cluster, wanted: Wanted) -> None:
    gateway_for(plain).create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "runai-vision"}})
    wanted.state = state(project("vision", limit=8), priorities=PRIORITIES)
    run = reconcile(plain)
    refused = set(run.outcomes.filter(ok=False).values_list("kind", "code"))
    assert refused == {(kind, "object_conflict") for kind in ("Namespace", "ResourceQuota", "LimitRange")}
    assert run.written == 2


def test_one_refused_object_does_not_stop_the_others(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    def no_namespaces(verb: str, ref: ObjectRef) -> ClusterError | None:
        return ClusterRefused("namespaces are forbidden") if (verb, ref.kind) == ("create", NAMESPACE) else None

    store.faults.append(no_namespaces)
    wanted.state = FULL
    run = reconcile(cluster)
    assert (run.state, run.written, run.failed) == (SyncState.PARTIAL, 4, 1)
    assert drifts(cluster) == {(DriftKind.MISSING, "runai-vision")}
    cluster.refresh_from_db()
    assert cluster.synced_generation == 0

    store.faults.clear()
    assert outcomes(reconcile(cluster)) == [("create", "runai-vision", True)]
    cluster.refresh_from_db()
    assert cluster.synced_generation == cluster.generation


def test_a_cluster_that_refuses_to_say_who_it_is_is_paused(
    cluster: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_gateway: MemoryGateway) -> tuple[str, str]:
        raise ClusterRefused("token expired")

    monkeypatch.setattr(MemoryGateway, "identity", refuse)
    run = reconcile(cluster)
    cluster.refresh_from_db()
    assert (run.state, run.error_code) == (SyncState.FAILED, "cluster_refused")
    assert (cluster.state, cluster.paused_reason) == ("paused", "The cluster rejected the request: token expired")


def test_a_fault_of_our_own_closes_the_run_and_is_not_hidden(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_cluster: Cluster, *, owner: str = "") -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sync_selectors, "_sources", [broken])
    with pytest.raises(ZeroDivisionError):
        reconcile(cluster)
    run = SyncRun.objects.get()
    assert (run.state, run.error_code, run.error) == (SyncState.FAILED, "unexpected", "ZeroDivisionError")


def test_an_unreachable_cluster_ends_the_attempt_and_asks_for_another(
    cluster: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    store.faults.append(lambda verb, ref: ClusterUnreachable("timed out") if ref.name == "low" else None)
    wanted.state = FULL
    with pytest.raises(ClusterUnreachable):
        reconcile(cluster)
    run = SyncRun.objects.get(cluster=cluster)
    assert (run.state, run.error_code, len(outcomes(run))) == (SyncState.PARTIAL, "cluster_unreachable", 2)
    cluster.refresh_from_db()
    assert cluster.sync_due_at is not None
    assert cluster.sync_due_at < timezone.now() + timedelta(seconds=30)


def test_a_late_writer_changes_nothing(synced: Cluster, wanted: Wanted, gateway: MemoryGateway) -> None:
    newer = project("vision", deserved=6, generation=5)
    wanted.state = state(newer, priorities=PRIORITIES, departments=FULL.departments)
    reconcile(synced)
    wanted.state = FULL
    run = reconcile(synced)
    stored = gateway.get(ObjectRef(KAI_QUEUE, "project.1.a100"))
    assert stored is not None
    assert stored["spec"]["resources"]["gpu"]["quota"] == 6
    assert outcomes(run) == [("fenced", "project.1.a100", False)]


def test_a_raise_waits_for_the_lowering_of_the_same_owner_that_failed(
    synced: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    pools = (PoolSpec("a100", "rung.dev/node-pool", "a100"), PoolSpec("h100", "rung.dev/node-pool", "h100"))

    def split(first: int, second: int) -> ProjectSpec:
        queues = tuple(
            queue("project.1", pool=pool, deserved=gpus, parent=None)
            for pool, gpus in zip(pools, (first, second), strict=True)
        )
        return replace(project("vision"), queues=queues)

    wanted.state = state(split(4, 4), priorities=PRIORITIES)
    reconcile(synced)
    store.faults.append(lambda verb, ref: ClusterRefused("no") if ref.name == "project.1.a100" else None)
    wanted.state = state(split(0, 8), priorities=PRIORITIES)
    run = reconcile(synced)
    codes = dict(run.outcomes.filter(ok=False).values_list("name", "code"))
    assert codes == {"project.1.a100": "cluster_refused", "project.1.h100": "waits_for_lowering"}


def test_another_cluster_behind_the_address_pauses_until_it_is_adopted(
    synced: Cluster, wanted: Wanted, store: MemoryStore
) -> None:
    gateway = MemoryGateway(store)
    gateway.delete(ObjectRef(NAMESPACE, "kube-system"))
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    gateway.delete(ObjectRef(PRIORITY_CLASS, "high"))
    run = reconcile(synced)
    synced.refresh_from_db()
    assert (run.state, run.error_code) == (SyncState.FAILED, "cluster_changed")
    assert synced.state == "paused"
    assert "A different cluster responds at this address" in synced.paused_reason
    assert "high" not in names(gateway)
    with pytest.raises(Conflict):
        reconcile(synced)

    unpause(cluster=synced, actor=SYSTEM, adopt=True)
    assert reconcile(synced).state == SyncState.SUCCEEDED
    assert "high" in names(gateway)
    assert list(AuditRecord.objects.values_list("action", flat=True).order_by("id")) == [
        "cluster.pause",
        "cluster.unpause",
    ]


@pytest.mark.parametrize(
    ("uid", "said"),
    [
        ("", "Invalid UID of the kube-system namespace"),
        ("x" * 10_000, "Invalid UID of the kube-system namespace"),
        ("the-other-one", "This cluster is already connected as first."),
    ],
)
def test_t47_a_cluster_that_claims_an_identity_it_cannot_have_is_paused(
    cluster: Cluster, wanted: Wanted, store: MemoryStore, uid: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_cluster(name="first", backend="kubernetes", uid="the-other-one")
    Cluster.objects.filter(pk=cluster.pk).update(backend="kubernetes")
    cluster.refresh_from_db()
    monkeypatch.setattr(MemoryGateway, "identity", lambda _gateway: (uid, "v1.36.3" * 100))
    monkeypatch.setitem(BACKENDS, "kubernetes", BACKENDS["memory"])
    assert reconcile(cluster).error_code == "cluster_changed"
    cluster.refresh_from_db()
    assert cluster.state == "paused"
    assert said in cluster.paused_reason
    assert not store.writes[1:]  # kube-system was there before
