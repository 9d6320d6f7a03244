"""What an admin asks for one difference: repair it, or take a foreign object over after its difference was shown."""

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore, store_of
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import pause
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import KAI_QUEUE, NAMESPACE, PRIORITY_CLASS, owner_of
from clusters.sync.models import Adoption, Drift, DriftKind, SyncState
from clusters.sync.services.drift import adopt, repair
from clusters.sync.services.reconcile import reconcile
from portal.audit.models import AuditRecord
from portal.kit.errors import Conflict
from portal.kit.security.actors import SYSTEM
from tests.clusters.specs import Wanted, priority, project, state
from tests.clusters.synced import FULL, drifts, outcomes
from tests.factories.clusters import ObservedPodFactory

HIGH = ObjectRef(PRIORITY_CLASS, "high")
FOREIGN: Manifest = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high", "labels": {"team": "theirs"}},
    "value": 1,
}


@pytest.fixture
def contested(cluster: Cluster, wanted: Wanted, gateway: MemoryGateway) -> Drift:
    """Somebody else's class holds a name that Rung wants."""
    gateway.create(FOREIGN)
    wanted.state = FULL
    reconcile(cluster)
    return Drift.objects.get(cluster=cluster)


def test_a_foreign_object_is_shown_with_what_it_would_become(contested: Drift) -> None:
    assert (contested.category, contested.name, bool(contested.object_uid)) == (DriftKind.CONFLICT, "high", True)
    assert ["/value", 1, 125] in contested.changes


def test_a_foreign_object_is_asked_for_and_not_tried_again(
    contested: Drift, cluster: Cluster, store: MemoryStore
) -> None:
    requested: list[str] = []
    store.faults.append(lambda verb, ref: requested.append(ref.name))
    for _ in range(2):
        assert reconcile(cluster).failed == 1
    assert requested == []


def test_a_dry_run_finds_what_is_in_the_way(cluster: Cluster, wanted: Wanted, gateway: MemoryGateway) -> None:
    gateway.create(FOREIGN)
    wanted.state = FULL
    run = reconcile(cluster, dry_run=True)
    assert ("conflict", "high", False) in outcomes(run)
    assert run.failed == 1


def test_an_adopted_object_becomes_ours_and_keeps_foreign_labels(
    contested: Drift, cluster: Cluster, gateway: MemoryGateway
) -> None:
    adopt(drift=contested, uid=contested.object_uid, actor=SYSTEM)
    run = reconcile(cluster)
    stored = gateway.get(HIGH)
    assert stored is not None
    assert (run.state, stored["value"], owner_of(stored)) == (SyncState.SUCCEEDED, 125, "priority.high")
    assert drifts(cluster) == set()
    assert not Adoption.objects.exists()
    assert AuditRecord.objects.filter(action="cluster.adopt").count() == 1


def test_an_adopted_namespace_takes_what_belongs_into_it(plain: Cluster, wanted: Wanted) -> None:
    theirs = MemoryGateway(store_of(str(plain.pk)))
    theirs.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "runai-vision", "labels": {"a": "b"}}})
    wanted.state = state(project("vision", limit=8), priorities=(priority("high", 125),))
    reconcile(plain)
    drift = Drift.objects.get(cluster=plain, kind="Namespace")
    adopt(drift=drift, uid=drift.object_uid, actor=SYSTEM)
    assert reconcile(plain).state == SyncState.SUCCEEDED
    found = theirs.get(ObjectRef(NAMESPACE, "runai-vision"))
    assert found is not None
    assert found["metadata"]["labels"]["a"] == "b"
    assert not Drift.objects.filter(cluster=plain).exists()


def test_another_object_of_that_name_was_not_adopted(
    contested: Drift, cluster: Cluster, gateway: MemoryGateway
) -> None:
    adopt(drift=contested, uid=contested.object_uid, actor=SYSTEM)
    gateway.delete(HIGH)
    gateway.create(FOREIGN)
    run = reconcile(cluster)
    stored = gateway.get(HIGH)
    assert stored is not None
    assert (run.failed, stored["value"]) == (1, 1)
    assert not Adoption.objects.exists()


def test_what_was_not_shown_cannot_be_adopted(contested: Drift, cluster: Cluster) -> None:
    with pytest.raises(Conflict):
        adopt(drift=contested, uid="another", actor=SYSTEM)
    assert not Adoption.objects.exists()


def test_one_difference_is_repaired_on_request(synced: Cluster, gateway: MemoryGateway) -> None:
    for name in ("project.1.a100", "department.1.a100"):
        gateway.delete(ObjectRef(KAI_QUEUE, name))
    reconcile(synced, dry_run=True)
    repair(drift=Drift.objects.get(name="project.1.a100"), actor=SYSTEM)
    assert outcomes(reconcile(synced)) == [("create", "project.1.a100", True)]
    assert drifts(synced) == {(DriftKind.MISSING, "department.1.a100")}
    assert AuditRecord.objects.filter(action="cluster.repair").count() == 1


def test_what_is_not_ours_is_not_repaired(contested: Drift) -> None:
    with pytest.raises(Conflict):
        repair(drift=contested, actor=SYSTEM)


def test_a_paused_cluster_is_left_alone(contested: Drift, cluster: Cluster) -> None:
    pause(cluster=cluster, reason="maintenance", actor=SYSTEM)
    drift = Drift.objects.get(pk=contested.pk)
    with pytest.raises(Conflict, match="maintenance"):
        adopt(drift=drift, uid=drift.object_uid, actor=SYSTEM)
    assert not Adoption.objects.exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_replaced_class_names_the_pods_that_keep_the_old_integer(
    synced: Cluster, wanted: Wanted, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setattr("clusters.inventory.selectors._namers", [lambda ids: dict.fromkeys(ids, "train-llm")])
    ObservedPodFactory.create(cluster=synced, name="old", priority_class="low", priority=40, owner_id="w1")
    wanted.state = state(
        *FULL.projects, priorities=(FULL.priorities[0], priority("low", 45)), departments=FULL.departments
    )
    run = reconcile(synced, dry_run=dry_run)
    message = run.outcomes.get(action="replace").message
    assert "1 pods keep their old value" in message
    assert "runai-team/old (train-llm, 40)" in message
    assert "KAI Scheduler uses the value of the class" in message


@pytest.mark.parametrize(("flavour", "found"), [("kai", []), ("kube", ["old"])])
def test_a_pod_with_an_old_integer_differs_where_its_scheduler_counts_it(
    synced: Cluster, flavour: str, found: list[str]
) -> None:
    Cluster.objects.update(flavour=flavour)
    ObservedPodFactory.create(cluster=synced, name="old", priority_class="low", priority=39, owner_id="w1")
    reconcile(Cluster.objects.get(), dry_run=True)
    stale = Drift.objects.filter(category=DriftKind.STALE)
    assert list(stale.values_list("name", flat=True)) == found
