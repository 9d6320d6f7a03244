"""A cluster is made equal to the database, again and again, by whoever gets the claim."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from clusters import sources
from clusters.backends.memory import MemoryGateway, Store
from clusters.errors import ClusterError, ClusterRefused, ClusterUnreachable
from clusters.gateways import gateway_for
from clusters.kinds_core import KAI_QUEUE, NAMESPACE, PRIORITY_CLASS
from clusters.models import Cluster, Drift, DriftKind, SyncOutcome, SyncRun, SyncState
from clusters.ports import Manifest, ObjectRef, PoolSpec, ProjectSpec
from clusters.services.estate import pause, request_reconcile, touch, unpause
from clusters.services.reconcile import reconcile
from clusters.services.sweep import sweep
from portal.audit.models import AuditRecord
from portal.core.actors import SYSTEM
from portal.core.errors import Conflict
from tests.clusters.specs import Wanted, job_manifest, level, project, queue, state
from tests.factories.clusters import ObservedPodFactory, SyncRunFactory

LEVELS = (level("high", 125), level("low", 40))
FULL = state(project("vision"), levels=LEVELS, departments=(queue("department.1", parent=None, deserved=8),))


@pytest.fixture
def gateway(store: Store) -> MemoryGateway:
    return MemoryGateway(store)


@pytest.fixture
def synced(cluster: Cluster, wanted: Wanted) -> Cluster:
    """A cluster that holds two priorities, one department and one project."""
    wanted.state = FULL
    reconcile(cluster)
    cluster.refresh_from_db()
    return cluster


def names(gateway: MemoryGateway) -> list[str]:
    return [
        each["metadata"]["name"] for kind in (PRIORITY_CLASS, NAMESPACE, KAI_QUEUE) for each in gateway.list(kind)[0]
    ]


def edit(gateway: MemoryGateway, ref: ObjectRef, **fields: object) -> None:
    """Somebody's own change of a live object."""
    live = gateway.get(ref)
    assert live is not None
    gateway.update({**live, **fields}, observed=live)


def outcomes(run: SyncRun) -> list[tuple[str, str, bool]]:
    return [(row.action, row.name, row.ok) for row in run.outcomes.order_by("id")]


def drifts(cluster: Cluster) -> set[tuple[str, str]]:
    return set(Drift.objects.filter(cluster=cluster).values_list("category", "name"))


def test_everything_wanted_is_brought_about(cluster: Cluster, wanted: Wanted, gateway: MemoryGateway) -> None:
    wanted.state = FULL
    run = reconcile(cluster)
    cluster.refresh_from_db()
    assert (run.state, run.written, run.failed) == (SyncState.SUCCEEDED, 5, 0)
    assert sorted(names(gateway)) == ["department.1.a100", "high", "low", "project.1.a100", "runai-vision"]
    assert cluster.synced_generation == cluster.generation
    assert cluster.uid == gateway.identity()[0]


def test_what_is_already_right_is_not_written_again(synced: Cluster, store: Store) -> None:
    before = len(store.writes)
    runs = [reconcile(synced) for _ in range(3)]
    assert [(run.state, run.written, run.listed) for run in runs] == [(SyncState.SUCCEEDED, 0, 5)] * 3
    assert len(store.writes) == before


def test_what_others_stand_on_is_created_first(cluster: Cluster, wanted: Wanted) -> None:
    wanted.state = FULL
    run = reconcile(cluster)
    assert [name for _, name, _ in outcomes(run)] == [
        "high",
        "low",
        "runai-vision",
        "department.1.a100",
        "project.1.a100",
    ]


def test_children_go_before_their_parents(synced: Cluster, wanted: Wanted) -> None:
    wanted.state = state()
    run = reconcile(synced)
    assert [name for _, name, _ in outcomes(run)] == [
        "project.1.a100",
        "department.1.a100",
        "runai-vision",
        "high",
        "low",
    ]


def test_a_dry_run_tells_everything_and_writes_nothing(cluster: Cluster, wanted: Wanted, store: Store) -> None:
    wanted.state = FULL
    before = len(store.writes)
    run = reconcile(cluster, dry_run=True)
    assert (run.state, run.written, len(outcomes(run))) == (SyncState.SUCCEEDED, 0, 5)
    assert len(store.writes) == before
    assert {category for category, _ in drifts(cluster)} == {DriftKind.MISSING}
    cluster.refresh_from_db()
    assert cluster.synced_generation == 0


def test_a_missing_object_is_found_and_brought_back(synced: Cluster, gateway: MemoryGateway) -> None:
    gateway.delete(ObjectRef(PRIORITY_CLASS, "high"))
    reconcile(synced, dry_run=True)
    assert drifts(synced) == {(DriftKind.MISSING, "high")}
    assert outcomes(reconcile(synced)) == [("create", "high", True)]
    assert drifts(synced) == set()


def test_an_edit_by_hand_is_found_although_the_hash_still_stands(synced: Cluster, gateway: MemoryGateway) -> None:
    ref = ObjectRef(KAI_QUEUE, "project.1.a100")
    live = gateway.get(ref)
    assert live is not None
    live["spec"]["resources"]["gpu"]["quota"] = 99
    edit(gateway, ref, spec=live["spec"])
    reconcile(synced, dry_run=True)
    drift = Drift.objects.get(cluster=synced)
    assert (drift.category, drift.changes) == (DriftKind.CHANGED, [["/spec/resources/gpu/quota", 99, 4]])
    assert outcomes(reconcile(synced)) == [("update", "project.1.a100", True)]
    assert drifts(synced) == set()


def test_an_object_nobody_wants_any_more_goes(synced: Cluster, wanted: Wanted, gateway: MemoryGateway) -> None:
    wanted.state = state(*FULL.projects, levels=LEVELS[:1], departments=FULL.departments)
    reconcile(synced, dry_run=True)
    assert drifts(synced) == {(DriftKind.EXTRA, "low")}
    assert outcomes(reconcile(synced)) == [("delete", "low", True)]
    assert "low" not in names(gateway)


def test_a_changed_value_replaces_the_class_and_lists_the_pods_that_keep_the_old_one(
    synced: Cluster, wanted: Wanted, gateway: MemoryGateway
) -> None:
    ObservedPodFactory.create(cluster=synced, name="old", priority_class="low", priority=40)
    ObservedPodFactory.create(cluster=synced, name="new", priority_class="low", priority=45)
    ObservedPodFactory.create(cluster=synced, name="gone", priority_class="low", priority=40, gone_at=timezone.now())
    wanted.state = state(*FULL.projects, levels=(LEVELS[0], level("low", 45)), departments=FULL.departments)
    run = reconcile(synced)
    assert outcomes(run) == [("replace", "low", True)]
    stored = gateway.get(ObjectRef(PRIORITY_CLASS, "low"))
    assert stored is not None
    assert stored["value"] == 45
    assert drifts(synced) == {(DriftKind.STALE, "old")}
    assert run.state == SyncState.SUCCEEDED


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
    wanted.state = state(project("vision", limit=8), levels=LEVELS)
    run = reconcile(plain)
    refused = set(run.outcomes.filter(ok=False).values_list("kind", "code"))
    assert refused == {(kind, "object_conflict") for kind in ("Namespace", "ResourceQuota", "LimitRange")}
    assert run.written == 2


def test_one_refused_object_does_not_stop_the_others(cluster: Cluster, wanted: Wanted, store: Store) -> None:
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
    assert (cluster.state, cluster.paused_reason) == ("paused", "The cluster refuses Rung: token expired")


def test_a_fault_of_our_own_closes_the_run_and_is_not_hidden(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_cluster: Cluster, *, owner: str = "") -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sources, "_sources", [broken])
    with pytest.raises(ZeroDivisionError):
        reconcile(cluster)
    run = SyncRun.objects.get()
    assert (run.state, run.error_code, run.error) == (SyncState.FAILED, "unexpected", "ZeroDivisionError")


def test_an_unreachable_cluster_ends_the_attempt_and_asks_for_another(
    cluster: Cluster, wanted: Wanted, store: Store
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
    wanted.state = state(newer, levels=LEVELS, departments=FULL.departments)
    reconcile(synced)
    wanted.state = FULL
    run = reconcile(synced)
    stored = gateway.get(ObjectRef(KAI_QUEUE, "project.1.a100"))
    assert stored is not None
    assert stored["spec"]["resources"]["gpu"]["quota"] == 6
    assert outcomes(run) == [("fenced", "project.1.a100", False)]


def test_a_quota_is_lowered_before_another_is_raised(synced: Cluster, wanted: Wanted, store: Store) -> None:
    b, a = project("beta", owner="project.2", deserved=1), project("vision", deserved=7)
    wanted.state = state(a, b, levels=LEVELS, departments=FULL.departments)
    reconcile(synced)
    store.writes.clear()
    wanted.state = state(
        project("vision", deserved=8),
        project("beta", owner="project.2", deserved=0),
        levels=LEVELS,
        departments=FULL.departments,
    )
    reconcile(synced)
    assert [ref.name for _, ref in store.writes] == ["project.2.a100", "project.1.a100"]


def test_lowering_one_amount_and_raising_another_of_one_queue_takes_two_writes(
    synced: Cluster, wanted: Wanted, gateway: MemoryGateway
) -> None:
    for deserved, limit in ((4, 8), (6, 6)):
        leaf = project("vision", deserved=deserved, limit=limit)
        wanted.state = state(leaf, levels=LEVELS, departments=FULL.departments)
        foreseen, run = reconcile(synced, dry_run=True), reconcile(synced)
    stored = gateway.get(ObjectRef(KAI_QUEUE, "project.1.a100"))
    assert stored is not None
    gpu = stored["spec"]["resources"]["gpu"]
    assert (gpu["quota"], gpu["limit"]) == (6, 6)
    assert outcomes(foreseen) == outcomes(run) == [("update", "project.1.a100", True)] * 2
    assert reconcile(synced).written == 0


def test_a_raise_waits_for_the_lowering_of_the_same_owner_that_failed(
    synced: Cluster, wanted: Wanted, store: Store
) -> None:
    pools = (PoolSpec("a100", "rung.dev/node-pool", "a100"), PoolSpec("h100", "rung.dev/node-pool", "h100"))

    def split(first: int, second: int) -> ProjectSpec:
        queues = tuple(
            queue("project.1", pool=pool, deserved=gpus, parent=None)
            for pool, gpus in zip(pools, (first, second), strict=True)
        )
        return replace(project("vision"), queues=queues)

    wanted.state = state(split(4, 4), levels=LEVELS)
    reconcile(synced)
    store.faults.append(lambda verb, ref: ClusterRefused("no") if ref.name == "project.1.a100" else None)
    wanted.state = state(split(0, 8), levels=LEVELS)
    run = reconcile(synced)
    codes = dict(run.outcomes.filter(ok=False).values_list("name", "code"))
    assert codes == {"project.1.a100": "cluster_refused", "project.1.h100": "waits_for_lowering"}


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_project_that_still_holds_work_keeps_namespace_and_quotas(
    synced: Cluster, wanted: Wanted, gateway: MemoryGateway, dry_run: bool
) -> None:
    gateway.create(job_manifest(name="train", namespace="runai-vision"))
    wanted.state = state(levels=LEVELS, departments=FULL.departments)
    run = reconcile(synced, dry_run=dry_run)
    refused = run.outcomes.filter(ok=False)
    assert set(refused.values_list("name", "code")) == {
        ("runai-vision", "namespace_in_use"),
        ("project.1.a100", "namespace_in_use"),
    }
    assert "Job train" in refused[0].message
    assert {"runai-vision", "project.1.a100"} <= set(names(gateway))


def test_an_empty_namespace_of_a_deleted_project_goes(synced: Cluster, wanted: Wanted, gateway: MemoryGateway) -> None:
    wanted.state = state(levels=LEVELS, departments=FULL.departments)
    assert reconcile(synced).state == SyncState.SUCCEEDED
    assert not {"runai-vision", "project.1.a100"} & set(names(gateway))


def test_the_run_of_a_dead_worker_is_taken_over(cluster: Cluster, wanted: Wanted) -> None:
    dead = SyncRunFactory.create(cluster=cluster, heartbeat_at=timezone.now() - timedelta(seconds=61))
    run = reconcile(cluster)
    dead.refresh_from_db()
    assert run.state == SyncState.SUCCEEDED
    assert (dead.state, dead.error_code) == (SyncState.FAILED, "abandoned")


def test_a_live_run_is_left_to_its_worker(cluster: Cluster, wanted: Wanted, store: Store) -> None:
    live = SyncRunFactory.create(cluster=cluster, heartbeat_at=timezone.now() - timedelta(seconds=50))
    wanted.state = FULL
    before = len(store.writes)
    assert reconcile(cluster) == live
    assert len(store.writes) == before
    assert wanted.asked == []


def test_a_worker_that_was_taken_over_stops_writing(cluster: Cluster, wanted: Wanted, store: Store) -> None:
    def taken_over(verb: str, ref: ObjectRef) -> None:
        SyncRun.objects.filter(cluster=cluster).update(state=SyncState.FAILED, error_code="abandoned")

    store.faults.append(taken_over)
    wanted.state = FULL
    run = reconcile(cluster)
    assert (run.state, run.error_code, run.written) == (SyncState.FAILED, "abandoned", 0)
    assert [name for _, name, _ in outcomes(run)] == ["high", "low"]


def test_another_cluster_behind_the_address_pauses_until_it_is_adopted(
    synced: Cluster, wanted: Wanted, store: Store
) -> None:
    gateway = MemoryGateway(store)
    gateway.delete(ObjectRef(NAMESPACE, "kube-system"))
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    gateway.delete(ObjectRef(PRIORITY_CLASS, "high"))
    run = reconcile(synced)
    synced.refresh_from_db()
    assert (run.state, run.error_code) == (SyncState.FAILED, "cluster_changed")
    assert synced.state == "paused"
    assert "Another cluster" in synced.paused_reason
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


def test_a_newer_generation_is_due_at_once(cluster: Cluster, wanted: Wanted, store: Store) -> None:
    def change_and_sweep(verb: str, ref: ObjectRef) -> None:
        touch(cluster)
        sweep()

    store.faults.append(change_and_sweep)
    wanted.state = state(levels=LEVELS[:1])
    reconcile(cluster)
    cluster.refresh_from_db()
    assert (cluster.generation, cluster.synced_generation) == (2, 1)
    assert cluster.sync_due_at is not None
    assert cluster.sync_due_at <= timezone.now()


def test_of_two_sweeps_that_saw_the_same_due_time_one_gets_it(cluster: Cluster) -> None:
    mine, theirs = Cluster.objects.get(), Cluster.objects.get()
    until = timezone.now() + timedelta(seconds=30)
    assert Cluster.objects.claim_due(mine, until)
    assert not Cluster.objects.claim_due(theirs, until + timedelta(seconds=1))


def test_each_due_cluster_is_swept_once(cluster: Cluster, plain: Cluster) -> None:
    pause(cluster=plain, reason="maintenance", actor=SYSTEM)
    assert (sweep(), sweep()) == (1, 0)
    request_reconcile(cluster, SYSTEM)
    assert sweep() == 1


def test_a_paused_cluster_refuses_a_requested_reconcile(cluster: Cluster) -> None:
    pause(cluster=cluster, reason="maintenance", actor=SYSTEM)
    with pytest.raises(Conflict, match="maintenance"):
        request_reconcile(cluster, SYSTEM)
