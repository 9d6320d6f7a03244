"""One workload's object: brought to the cluster, changed, taken away; not by a late writer, not over a foreign one."""

from typing import Any

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.inventory.models import Cluster
from clusters.ports.gateway import (
    ClusterError,
    ClusterRefused,
    Manifest,
    NotSynced,
    ObjectConflict,
    ObjectRef,
    VersionConflict,
)
from clusters.ports.objects import APPLIED_HASH, NAMESPACE, kind_of_workload, owned
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.workload_kinds import KINDS, kind_named
from clusters.sync.services.workload_objects import apply_job, delete_job
from tests.clusters.samples import sample
from tests.clusters.specs import job, job_manifest

REF = ObjectRef(kind_of_workload(kind_named("Job")), "train-0b0e5a3c", "runai-vision")


@pytest.fixture
def gateway(store: MemoryStore) -> MemoryGateway:
    """A cluster with the project's namespace."""
    gateway = MemoryGateway(store)
    metadata = owned("runai-vision", owner="project.1", generation=1)
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return gateway


def live(gateway: MemoryGateway) -> Manifest:
    found = gateway.get(REF)
    assert found is not None
    return found


def test_a_job_is_created_with_its_values(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, job())
    found = live(gateway)
    assert found["metadata"]["labels"]["kai.scheduler/queue"] == "project.1.a100"
    assert found["metadata"]["annotations"][APPLIED_HASH]
    assert found["spec"]["template"]["spec"]["priorityClassName"] == "low"


def test_a_second_apply_is_the_same_apply(cluster: Cluster, gateway: MemoryGateway, store: MemoryStore) -> None:
    apply_job(cluster, job())
    before = list(store.writes)
    apply_job(cluster, job())
    assert store.writes == before


def test_an_edit_by_hand_is_undone(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, job())
    found = live(gateway)
    found["spec"]["suspend"] = True
    gateway.update(found, observed=found)
    apply_job(cluster, job())
    assert live(gateway)["spec"]["suspend"] is False


def test_a_later_generation_is_written_even_if_it_wants_the_same(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, job(generation=3))
    apply_job(cluster, job(generation=4))
    apply_job(cluster, job(generation=3, suspended=True))
    assert live(gateway)["spec"]["suspend"] is False
    assert live(gateway)["metadata"]["annotations"]["rung.dev/generation"] == "4"


def test_stop_and_resume(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, job(generation=1))
    apply_job(cluster, job(generation=2, suspended=True))
    assert live(gateway)["spec"]["suspend"] is True
    apply_job(cluster, job(generation=3))
    assert live(gateway)["spec"]["suspend"] is False


def test_what_cannot_be_suspended_is_taken_away_and_comes_back(cluster: Cluster, gateway: MemoryGateway) -> None:
    body = sample(kind_named("Deployment"))
    ref = ObjectRef(kind_of_workload(kind_named("Deployment")), "train-0b0e5a3c", "runai-vision")
    apply_job(cluster, job(body, generation=1))
    apply_job(cluster, job(body, generation=2, suspended=True))
    assert gateway.get(ref) is None
    apply_job(cluster, job(body, generation=3))
    assert gateway.get(ref) is not None


def test_before_the_first_sync_there_is_nothing_to_stand_on(cluster: Cluster, store: MemoryStore) -> None:
    with pytest.raises(NotSynced) as error:
        apply_job(cluster, job())
    assert error.value.transient


def test_a_foreign_namespace_is_never_written_to(cluster: Cluster, store: MemoryStore) -> None:
    MemoryGateway(store).create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "runai-vision"}})
    with pytest.raises(NotSynced, match="not managed by Rung"):
        apply_job(cluster, job())
    assert MemoryGateway(store).get(REF) is None


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "rung", "rung.dev/owner": "workload.other"}])
def test_an_object_of_somebody_else_is_left_alone(
    cluster: Cluster, gateway: MemoryGateway, labels: dict[str, str]
) -> None:
    theirs = gateway.create(job_manifest(name=REF.name, namespace=REF.namespace, labels=labels))
    with pytest.raises(ObjectConflict):
        apply_job(cluster, job())
    delete_job(cluster, job())
    assert live(gateway) == theirs


def test_a_controllers_write_in_between_is_read_again(
    cluster: Cluster, gateway: MemoryGateway, store: MemoryStore
) -> None:
    apply_job(cluster, job(generation=1))
    interruptions = iter([True])

    def interrupt(verb: str, ref: ObjectRef) -> ClusterError | None:
        return VersionConflict("written by the job controller") if next(interruptions, False) else None

    store.faults.append(interrupt)
    apply_job(cluster, job(generation=2, suspended=True))
    assert live(gateway)["spec"]["suspend"] is True


def test_a_race_that_does_not_end_is_told(cluster: Cluster, gateway: MemoryGateway, store: MemoryStore) -> None:
    apply_job(cluster, job(generation=1))
    store.faults.append(lambda verb, ref: VersionConflict("again"))
    with pytest.raises(VersionConflict):
        apply_job(cluster, job(generation=2))


def test_a_refusal_of_the_server_comes_through(cluster: Cluster, gateway: MemoryGateway, store: MemoryStore) -> None:
    store.faults.append(lambda verb, ref: ClusterRefused("denied by admission"))
    with pytest.raises(ClusterRefused, match="admission"):
        apply_job(cluster, job())


def test_deleting_twice_is_success(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, job())
    delete_job(cluster, job())
    delete_job(cluster, job())
    assert gateway.get(REF) is None


def test_a_late_delete_leaves_a_later_generation(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, job(generation=5))
    delete_job(cluster, job(generation=4))
    assert live(gateway)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_comes_and_goes(cluster: Cluster, gateway: MemoryGateway, kind: WorkloadKind) -> None:
    spec: Any = job(sample(kind))
    ref = ObjectRef(kind_of_workload(kind), spec.name, spec.namespace)
    apply_job(cluster, spec)
    assert gateway.get(ref) is not None
    delete_job(cluster, spec)
    assert gateway.get(ref) is None


def test_a_namespace_takes_its_objects_along(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, job())
    gateway.delete(ObjectRef(NAMESPACE, "runai-vision"))
    assert gateway.get(REF) is None
