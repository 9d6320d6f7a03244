"""A cluster is made equal to the database, again and again."""

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import KAI_QUEUE, PRIORITY_CLASS
from clusters.sync.models import Drift, DriftKind, SyncState
from clusters.sync.services.reconcile import reconcile
from tests.clusters.specs import Wanted, job_manifest, priority, project, state
from tests.clusters.synced import FULL, PRIORITIES, drifts, edit, names, outcomes
from tests.factories.clusters import ObservedPodFactory


def test_everything_wanted_is_brought_about(cluster: Cluster, wanted: Wanted, gateway: MemoryGateway) -> None:
    wanted.state = FULL
    run = reconcile(cluster)
    cluster.refresh_from_db()
    assert (run.state, run.written, run.failed) == (SyncState.SUCCEEDED, 5, 0)
    assert sorted(names(gateway)) == ["department.1.a100", "high", "low", "project.1.a100", "runai-vision"]
    assert cluster.synced_generation == cluster.generation
    assert cluster.uid == gateway.identity()[0]


def test_what_is_already_right_is_not_written_again(synced: Cluster, store: MemoryStore) -> None:
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


def test_a_dry_run_tells_everything_and_writes_nothing(cluster: Cluster, wanted: Wanted, store: MemoryStore) -> None:
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
    wanted.state = state(*FULL.projects, priorities=PRIORITIES[:1], departments=FULL.departments)
    reconcile(synced, dry_run=True)
    assert drifts(synced) == {(DriftKind.EXTRA, "low")}
    assert outcomes(reconcile(synced)) == [("delete", "low", True)]
    assert "low" not in names(gateway)


def test_a_changed_value_replaces_the_class_and_pods_with_the_old_one_are_no_drift_where_it_does_not_count(
    synced: Cluster, wanted: Wanted, gateway: MemoryGateway
) -> None:
    ObservedPodFactory.create(cluster=synced, name="old", priority_class="low", priority=40)
    ObservedPodFactory.create(cluster=synced, name="new", priority_class="low", priority=45)
    ObservedPodFactory.create(cluster=synced, name="gone", priority_class="low", priority=40, gone_at=timezone.now())
    wanted.state = state(*FULL.projects, priorities=(PRIORITIES[0], priority("low", 45)), departments=FULL.departments)
    run = reconcile(synced)
    assert outcomes(run) == [("replace", "low", True)]
    stored = gateway.get(ObjectRef(PRIORITY_CLASS, "low"))
    assert stored is not None
    assert stored["value"] == 45
    assert drifts(synced) == set()
    assert run.state == SyncState.SUCCEEDED


def test_a_quota_is_lowered_before_another_is_raised(synced: Cluster, wanted: Wanted, store: MemoryStore) -> None:
    b, a = project("beta", owner="project.2", deserved=1), project("vision", deserved=7)
    wanted.state = state(a, b, priorities=PRIORITIES, departments=FULL.departments)
    reconcile(synced)
    store.writes.clear()
    wanted.state = state(
        project("vision", deserved=8),
        project("beta", owner="project.2", deserved=0),
        priorities=PRIORITIES,
        departments=FULL.departments,
    )
    reconcile(synced)
    assert [ref.name for _, ref in store.writes] == ["project.2.a100", "project.1.a100"]


def test_lowering_one_amount_and_raising_another_of_one_queue_takes_two_writes(
    synced: Cluster, wanted: Wanted, gateway: MemoryGateway
) -> None:
    for deserved, limit in ((4, 8), (6, 6)):
        leaf = project("vision", deserved=deserved, limit=limit)
        wanted.state = state(leaf, priorities=PRIORITIES, departments=FULL.departments)
        foreseen, run = reconcile(synced, dry_run=True), reconcile(synced)
    stored = gateway.get(ObjectRef(KAI_QUEUE, "project.1.a100"))
    assert stored is not None
    gpu = stored["spec"]["resources"]["gpu"]
    assert (gpu["quota"], gpu["limit"]) == (6, 6)
    assert outcomes(foreseen) == outcomes(run) == [("update", "project.1.a100", True)] * 2
    assert reconcile(synced).written == 0


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_project_that_still_holds_work_keeps_namespace_and_quotas(
    synced: Cluster, wanted: Wanted, gateway: MemoryGateway, dry_run: bool
) -> None:
    gateway.create(job_manifest(name="train", namespace="runai-vision"))
    wanted.state = state(priorities=PRIORITIES, departments=FULL.departments)
    run = reconcile(synced, dry_run=dry_run)
    refused = run.outcomes.filter(ok=False)
    assert set(refused.values_list("name", "code")) == {
        ("runai-vision", "namespace_in_use"),
        ("project.1.a100", "namespace_in_use"),
    }
    assert "Job train" in refused[0].message
    assert {"runai-vision", "project.1.a100"} <= set(names(gateway))


def test_an_empty_namespace_of_a_deleted_project_goes(synced: Cluster, wanted: Wanted, gateway: MemoryGateway) -> None:
    wanted.state = state(priorities=PRIORITIES, departments=FULL.departments)
    assert reconcile(synced).state == SyncState.SUCCEEDED
    assert not {"runai-vision", "project.1.a100"} & set(names(gateway))
