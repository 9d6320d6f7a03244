"""What somebody laid hands on is looked at alone, as long as nothing else was touched; nothing is taken for right."""

from collections.abc import Callable

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore, store_of
from clusters.connection.services.gateways import gateway_for
from clusters.inventory.models import Cluster, ClusterState, DirtyOwner
from clusters.inventory.services.dirty_owners import FEW
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.flavour import DesiredState
from clusters.ports.gateway import ClusterRefused, Manifest, NotAuthorized, ObjectRef
from clusters.ports.objects import NAMESPACE, RESOURCE_QUOTA
from clusters.sync.models import Drift, DriftKind, SyncState
from clusters.sync.services import object_reads
from clusters.sync.services.reconcile import reconcile
from clusters.watch.services.informers import observe_cluster
from tenants.organisation.models import Project
from tenants.quotas.models import PriorityCap
from tests.clusters.synced import outcomes
from tests.factories.clusters import NodePoolFactory, build_cluster
from tests.factories.tenants import GPU, DepartmentFactory, ProjectFactory, ProjectQuotaFactory

SPACE = "runai-p1"
LIMIT, DESERVED = "rung-limit", "rung-deserved"
CAPS = ("very-low", "low", "medium", "high", "very-high")


@pytest.fixture
def plain(db: None) -> Cluster:
    """A kube cluster of two projects, as it should be, and seen so by the observer."""
    cluster = build_cluster(name="plain", flavour="kube", backend="memory")
    pool = NodePoolFactory(cluster=cluster, name="h100", is_default=True)
    department = DepartmentFactory(cluster=cluster)
    for number in range(2):
        project = ProjectFactory(department=department, name=f"p{number}", namespace=f"runai-p{number}")
        ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=4 * GPU, gpu_limit=8 * GPU)
        PriorityCap.objects.bulk_create(PriorityCap(project=project, priority=name, gpu_limit=2) for name in CAPS)
    mark_dirty(cluster)
    assert reconcile(cluster).state == SyncState.SUCCEEDED
    observe_cluster(cluster)
    return cluster


@pytest.fixture
def store(plain: Cluster) -> MemoryStore:
    return store_of(str(plain.pk))


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the objects that the API server is asked for, in order."""
    names: list[str] = []
    real = MemoryGateway.get

    def get(gateway: MemoryGateway, ref: ObjectRef) -> Manifest | None:
        names.append(ref.name)
        return real(gateway, ref)

    monkeypatch.setattr(MemoryGateway, "get", get)
    return names


def live(cluster: Cluster, name: str) -> Manifest:
    found = gateway_for(cluster).get(ObjectRef(RESOURCE_QUOTA, name, SPACE))
    assert found is not None
    return found


def edited(cluster: Cluster, *names: str) -> None:
    """Somebody raises these quotas, and the observer sees it in one look."""
    for name in names:
        quota = live(cluster, name)
        hard = {**quota["spec"]["hard"], "requests.nvidia.com/gpu": "99"}
        gateway_for(cluster).update({**quota, "spec": {**quota["spec"], "hard": hard}}, observed=quota)
    observe_cluster(cluster)


def is_right(cluster: Cluster, name: str) -> bool:
    return bool(live(cluster, name)["spec"]["hard"].get("requests.nvidia.com/gpu") != "99")


def test_of_an_edited_quota_only_it_and_its_namespace_are_asked_for(plain: Cluster, requested: list[str]) -> None:
    edited(plain, LIMIT)
    requested.clear()
    run = reconcile(plain)
    assert outcomes(run) == [("update", LIMIT, True)]
    assert sorted(requested) == ["kube-system", SPACE, LIMIT]
    assert is_right(plain, LIMIT)
    assert not DirtyOwner.objects.exists()


def test_a_deleted_quota_is_recreated(plain: Cluster, requested: list[str]) -> None:
    gateway_for(plain).delete(ObjectRef(RESOURCE_QUOTA, LIMIT, SPACE))
    observe_cluster(plain)
    requested.clear()
    assert outcomes(reconcile(plain)) == [("create", LIMIT, True)]
    assert sorted(requested) == ["kube-system", SPACE, LIMIT]


def test_two_that_were_seen_together_are_repaired_together(plain: Cluster) -> None:
    edited(plain, LIMIT, DESERVED)
    assert {name for _, name, _ in outcomes(reconcile(plain))} == {LIMIT, DESERVED}
    assert not DirtyOwner.objects.exists()


def test_two_that_were_seen_one_after_the_other_are_repaired_together(plain: Cluster) -> None:
    edited(plain, LIMIT)
    edited(plain, DESERVED)
    assert {name for _, name, _ in outcomes(reconcile(plain))} == {LIMIT, DESERVED}
    assert not DirtyOwner.objects.exists()


def test_many_of_one_owner_are_repaired_too(plain: Cluster) -> None:
    names = [f"rung-cap-{name}" for name in CAPS]
    assert len(names) > FEW
    edited(plain, *names)
    assert {name for _, name, _ in outcomes(reconcile(plain))} == set(names)


@pytest.mark.parametrize("drift_first", [True, False])
def test_what_an_admin_changes_beside_a_drift_is_brought_about(plain: Cluster, *, drift_first: bool) -> None:
    project = Project.objects.get(namespace=SPACE)
    if drift_first:
        edited(plain, LIMIT)
    project.quotas.update(gpu_deserved=5 * GPU)
    mark_dirty(plain, owner=project.owner)
    if not drift_first:
        edited(plain, LIMIT)
    assert {name for _, name, _ in outcomes(reconcile(plain))} == {LIMIT, DESERVED}
    assert live(plain, DESERVED)["spec"]["hard"]["requests.nvidia.com/gpu"] == "5"


def test_what_is_touched_while_the_database_is_read_is_looked_at_too(
    plain: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run takes the later generation for its own, so it must not have looked at the first object alone."""
    edited(plain, LIMIT)
    again = iter([DESERVED])
    real: Callable[..., tuple[DesiredState, list[Manifest]]] = object_reads.wanted_of

    def wanted_of(*given: object) -> tuple[DesiredState, list[Manifest]]:
        found = real(*given)
        for name in again:
            edited(plain, name)
        return found

    monkeypatch.setattr(object_reads, "wanted_of", wanted_of)
    run = reconcile(plain)
    assert {name for _, name, _ in outcomes(run)} == {LIMIT, DESERVED}
    assert not DirtyOwner.objects.exists()
    plain.refresh_from_db()
    assert plain.synced_generation == plain.generation == run.generation


def test_nothing_is_written_into_a_namespace_that_has_become_somebody_elses(plain: Cluster, store: MemoryStore) -> None:
    edited(plain, LIMIT)
    store.objects[NAMESPACE.key, "", SPACE]["metadata"]["labels"].clear()
    run = reconcile(plain)
    assert (run.written, run.failed > 0) == (0, True)
    assert not is_right(plain, LIMIT)
    assert DirtyOwner.objects.exists()


def test_what_was_not_looked_at_is_still_told_as_different(plain: Cluster, store: MemoryStore) -> None:
    edited(plain, DESERVED)
    store.faults.append(lambda _verb, _ref: ClusterRefused("no"))
    assert reconcile(plain).failed == 1
    store.faults.clear()
    DirtyOwner.objects.all().delete()
    edited(plain, LIMIT)
    assert outcomes(reconcile(plain)) == [("update", LIMIT, True)]
    assert set(Drift.objects.values_list("category", "name")) == {(DriftKind.CHANGED, DESERVED)}


def test_an_object_with_our_label_that_nobody_wants_goes(plain: Cluster) -> None:
    quota = live(plain, LIMIT)
    metadata = {**quota["metadata"], "name": "planted", "annotations": {}}
    gateway_for(plain).create({**quota, "metadata": metadata})
    observe_cluster(plain)
    assert outcomes(reconcile(plain)) == [("delete", "planted", True)]


def test_a_cluster_that_refuses_everything_gets_no_work_until_it_takes_some(
    plain: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_gateway: MemoryGateway, _ref: ObjectRef) -> Manifest | None:
        raise NotAuthorized("Unauthorized")

    edited(plain, LIMIT)
    monkeypatch.setattr(MemoryGateway, "get", get)
    assert reconcile(plain).error_code == NotAuthorized.code
    plain.refresh_from_db()
    assert (plain.state, plain.breaker_reason) == (ClusterState.ACTIVE, "Unauthorized")
    monkeypatch.undo()
    assert reconcile(plain).error_code == ""
    plain.refresh_from_db()
    assert plain.breaker_reason == ""


def test_another_cluster_at_its_address_is_not_written_to(plain: Cluster, store: MemoryStore) -> None:
    edited(plain, LIMIT)
    store.objects[NAMESPACE.key, "", "kube-system"]["metadata"]["uid"] = "another"
    writes = len(store.writes)
    reconcile(plain)
    plain.refresh_from_db()
    assert (plain.state, len(store.writes)) == (ClusterState.PAUSED, writes)


def test_a_touch_of_an_older_release_means_all_of_its_owner(plain: Cluster) -> None:
    """Its worker knows the generation of a touch and nothing of single objects."""
    edited(plain, LIMIT)
    gateway = gateway_for(plain)
    assert isinstance(gateway, MemoryGateway)
    quota = live(plain, DESERVED)
    gateway.update({**quota, "spec": {**quota["spec"], "hard": {"requests.nvidia.com/gpu": "99"}}}, observed=quota)
    generation = Cluster.objects.get(pk=plain.pk).generation + 1
    Cluster.objects.filter(pk=plain.pk).update(generation=generation)
    DirtyOwner.objects.update(generation=generation)
    assert {name for _, name, _ in outcomes(reconcile(plain))} == {LIMIT, DESERVED}
