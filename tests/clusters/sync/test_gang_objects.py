"""A gang's objects: made in an order in which pods never miss their group, taken away together, never changed apart."""

from dataclasses import replace

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore, store_of
from clusters.inventory.models import Cluster
from clusters.ports.gateway import ClusterError, ClusterRefused, Kind, Manifest, ObjectConflict, ObjectRef
from clusters.ports.objects import GANG_POD_GROUP, GANG_WORKLOAD, kind_of_workload, owned
from clusters.ports.workload_kinds import kind_named
from clusters.sync.services.workload_objects import apply_job, delete_job
from clusters.watch.services.informers import observe_cluster
from tests.clusters.observation_recorder import ObservationRecorder
from tests.clusters.samples import sample
from tests.clusters.specs import WORKLOAD, job
from tests.factories.clusters import build_cluster

NAME, SPACE = "train-0b0e5a3c", "runai-vision"
JOB = kind_of_workload(kind_named("Job"))
KINDS = (GANG_WORKLOAD, GANG_POD_GROUP, JOB)
GANG = job(min_member=4)


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A cluster in memory whose scheduler knows gangs."""
    return build_cluster(name="gangs", flavour="kube-gangs")


@pytest.fixture
def store(cluster: Cluster) -> MemoryStore:
    """What it holds: the project's namespace."""
    found = store_of(str(cluster.pk))
    metadata = owned(SPACE, owner="project.1", generation=1)
    MemoryGateway(found).create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    found.writes.clear()
    return found


def live(store: MemoryStore, kind: Kind) -> Manifest:
    found = MemoryGateway(store).get(ObjectRef(kind, NAME, SPACE))
    assert found is not None
    return found


def there(store: MemoryStore) -> list[str]:
    gateway = MemoryGateway(store)
    return [kind.kind for kind in KINDS if gateway.get(ObjectRef(kind, NAME, SPACE))]


def written(store: MemoryStore) -> list[tuple[str, str]]:
    return [(verb, ref.kind.kind) for verb, ref in store.writes]


def test_the_group_is_there_before_the_pods_and_goes_after_them(cluster: Cluster, store: MemoryStore) -> None:
    apply_job(cluster, GANG)
    assert written(store) == [("ADDED", "Workload"), ("ADDED", "PodGroup"), ("ADDED", "Job")]
    store.writes.clear()
    delete_job(cluster, GANG)
    assert written(store) == [("DELETED", "Job"), ("DELETED", "PodGroup"), ("DELETED", "Workload")]


def test_a_second_apply_writes_nothing(cluster: Cluster, store: MemoryStore) -> None:
    apply_job(cluster, GANG)
    store.writes.clear()
    apply_job(cluster, GANG)
    assert store.writes == []


def test_stop_and_resume_leave_the_group_as_it_is(cluster: Cluster, store: MemoryStore) -> None:
    apply_job(cluster, GANG)
    uid = live(store, GANG_POD_GROUP)["metadata"]["uid"]
    apply_job(cluster, replace(GANG, suspended=True, generation=4))
    assert live(store, JOB)["spec"]["suspend"] is True
    apply_job(cluster, replace(GANG, generation=5))
    assert live(store, GANG_POD_GROUP)["metadata"]["uid"] == uid


def test_what_cannot_be_suspended_takes_its_group_along(cluster: Cluster, store: MemoryStore) -> None:
    spec = job(sample(kind_named("RayService")), min_member=2)
    apply_job(cluster, spec)
    apply_job(cluster, replace(spec, suspended=True, generation=4))
    assert there(store) == []


def test_another_gang_is_recreated_from_its_job_on(cluster: Cluster, store: MemoryStore) -> None:
    """Specs of groups never change, and pods of the old job must not start in the new group."""
    apply_job(cluster, GANG)
    store.writes.clear()
    apply_job(cluster, replace(GANG, min_member=3, generation=4))
    assert written(store) == [
        ("DELETED", "Job"),
        ("DELETED", "PodGroup"),
        ("DELETED", "Workload"),
        ("ADDED", "Workload"),
        ("ADDED", "PodGroup"),
        ("ADDED", "Job"),
    ]
    assert live(store, GANG_POD_GROUP)["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}


def test_a_running_gang_keeps_its_group(cluster: Cluster, store: MemoryStore) -> None:
    apply_job(cluster, GANG)
    apply_job(cluster, replace(GANG, min_member=3, generation=4), pods_run=True)
    assert live(store, GANG_POD_GROUP)["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    assert live(store, GANG_POD_GROUP)["metadata"]["annotations"]["rung.dev/generation"] == "4"


def test_a_late_writer_changes_no_part_of_a_gang(cluster: Cluster, store: MemoryStore) -> None:
    apply_job(cluster, replace(GANG, generation=5))
    store.writes.clear()
    apply_job(cluster, replace(GANG, min_member=3, generation=4))
    delete_job(cluster, replace(GANG, generation=4))
    assert store.writes == []


def test_a_group_of_somebody_else_is_left_alone_and_its_name_not_shared(cluster: Cluster, store: MemoryStore) -> None:
    theirs = {"apiVersion": GANG_POD_GROUP.api_version, "kind": "PodGroup"}
    MemoryGateway(store).create({**theirs, "metadata": {"name": NAME, "namespace": SPACE}, "spec": {}})
    with pytest.raises(ObjectConflict):
        apply_job(cluster, GANG)
    delete_job(cluster, GANG)
    assert there(store) == ["PodGroup"]


def test_what_failed_half_way_is_finished_by_the_next_try(cluster: Cluster, store: MemoryStore) -> None:
    refusals = iter([True])

    def refuse(verb: str, ref: ObjectRef) -> ClusterError | None:
        return ClusterRefused("not now") if ref.kind == JOB and next(refusals, False) else None

    store.faults.append(refuse)
    with pytest.raises(ClusterRefused):
        apply_job(cluster, GANG)
    assert there(store) == ["Workload", "PodGroup"]
    apply_job(cluster, GANG)
    assert there(store) == ["Workload", "PodGroup", "Job"]


def test_a_group_that_a_foreign_hand_takes_away_is_missed(
    cluster: Cluster, store: MemoryStore, told: ObservationRecorder
) -> None:
    apply_job(cluster, GANG)
    observe_cluster(cluster)
    assert told.last.jobs[WORKLOAD].phase == "active"
    MemoryGateway(store).delete(ObjectRef(GANG_POD_GROUP, NAME, SPACE))
    observe_cluster(cluster)
    assert told.last.jobs[WORKLOAD].phase == "missing"


def test_a_job_that_goes_is_missed_though_its_group_stays(
    cluster: Cluster, store: MemoryStore, told: ObservationRecorder
) -> None:
    apply_job(cluster, GANG)
    observe_cluster(cluster)
    MemoryGateway(store).delete(ObjectRef(JOB, NAME, SPACE))
    observe_cluster(cluster)
    assert told.last.jobs[WORKLOAD].phase == "missing"
