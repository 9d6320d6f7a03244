"""What every gateway promises, whatever stands behind it. A real API server joins by one more entry in `BACKENDS`."""

from collections.abc import Callable

import pytest

from clusters.backends.memory import MemoryGateway, Store, store_of
from clusters.backends.sandbox import SandboxGateway
from clusters.errors import ClusterRefused, ObjectConflict, VersionConflict, VersionExpired
from clusters.kinds_core import NAMESPACE, POD, PRIORITY_CLASS
from clusters.models import Cluster
from clusters.ownership import owned
from clusters.ports import ClusterGateway, Manifest, ObjectRef
from tests.clusters.specs import pod_template
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db


def memory(cluster: Cluster) -> ClusterGateway:
    return MemoryGateway(store_of(str(cluster.pk)))


def sandbox(cluster: Cluster) -> ClusterGateway:
    return SandboxGateway(cluster)


BACKENDS: dict[str, Callable[[Cluster], ClusterGateway]] = {"memory": memory, "sandbox": sandbox}


@pytest.fixture(params=sorted(BACKENDS))
def gateway(request: pytest.FixtureRequest) -> ClusterGateway:
    name: str = request.param
    return BACKENDS[name](build_cluster(backend=name))


LOW = ObjectRef(PRIORITY_CLASS, "low")
SPACE = ObjectRef(NAMESPACE, "runai-vision")


def priority_class(name: str = "low", value: int = 40, **metadata: object) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {**owned(name, owner=f"priority.{name}", generation=1), **metadata},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": "",
    }


def space(name: str = "runai-vision") -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": owned(name, owner="project.1", generation=1)}


def pod(name: str, **metadata: object) -> Manifest:
    template = pod_template()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **template,
        "metadata": {"name": name, "namespace": SPACE.name, **metadata},
    }


def test_what_is_created_can_be_read_with_a_uid_and_a_version(gateway: ClusterGateway) -> None:
    created = gateway.create(priority_class())
    found = gateway.get(LOW)
    assert found is not None
    assert found == created
    assert found["metadata"]["uid"]
    assert found["metadata"]["resourceVersion"]
    assert found["value"] == 40


def test_what_is_not_there_is_none(gateway: ClusterGateway) -> None:
    assert gateway.get(LOW) is None
    assert gateway.get(ObjectRef(POD, "nobody", "nowhere")) is None


def test_a_taken_name_is_a_conflict_and_nothing_changes(gateway: ClusterGateway) -> None:
    gateway.create(priority_class())
    with pytest.raises(ObjectConflict):
        gateway.create(priority_class(value=41))
    found = gateway.get(LOW)
    assert found is not None
    assert found["value"] == 40


def test_nothing_is_created_in_a_namespace_that_is_not_there(gateway: ClusterGateway) -> None:
    with pytest.raises(ClusterRefused, match=SPACE.name):
        gateway.create(pod("a"))


def test_a_namespaced_object_without_a_namespace_is_refused(gateway: ClusterGateway) -> None:
    body = pod("a")
    del body["metadata"]["namespace"]
    with pytest.raises(ClusterRefused):
        gateway.create(body)


def test_an_unknown_kind_is_refused(gateway: ClusterGateway) -> None:
    with pytest.raises(ClusterRefused):
        gateway.create({"apiVersion": "example.com/v1", "kind": "Mystery", "metadata": {"name": "x"}})


def test_a_list_holds_ours_only_unless_asked_for_all(gateway: ClusterGateway) -> None:
    gateway.create(priority_class())
    gateway.create(priority_class("foreign", labels={}))
    ours, version = gateway.list(PRIORITY_CLASS)
    everything, _ = gateway.list(PRIORITY_CLASS, managed_only=False)
    assert [each["metadata"]["name"] for each in ours] == ["low"]
    assert {each["metadata"]["name"] for each in everything} >= {"low", "foreign"}
    assert version.isdecimal()


def test_a_list_can_be_narrowed_to_a_namespace(gateway: ClusterGateway) -> None:
    gateway.create(space())
    gateway.create(space("runai-other"))
    gateway.create(pod("a"))
    assert [each["metadata"]["name"] for each in gateway.list(POD, namespace=SPACE.name, managed_only=False)[0]] == [
        "a"
    ]
    assert gateway.list(POD, namespace="runai-other", managed_only=False)[0] == []


def test_an_update_replaces_the_body_and_keeps_identity_and_foreign_labels(gateway: ClusterGateway) -> None:
    body = priority_class()
    body["metadata"]["labels"]["team"] = "theirs"
    created = gateway.create(body)
    updated = gateway.update({**priority_class(), "description": "new"}, observed=created)
    assert updated["description"] == "new"
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]
    assert updated["metadata"]["labels"]["team"] == "theirs"
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert gateway.get(LOW) == updated


def test_an_update_after_somebody_elses_write_is_refused(gateway: ClusterGateway) -> None:
    created = gateway.create(priority_class())
    gateway.update({**priority_class(), "description": "theirs"}, observed=created)
    with pytest.raises(VersionConflict) as error:
        gateway.update({**priority_class(), "description": "ours"}, observed=created)
    assert error.value.transient
    found = gateway.get(LOW)
    assert found is not None
    assert found["description"] == "theirs"


def test_an_update_of_what_has_gone_is_refused(gateway: ClusterGateway) -> None:
    created = gateway.create(priority_class())
    gateway.delete(LOW)
    with pytest.raises(ClusterRefused):
        gateway.update(priority_class(), observed=created)


@pytest.mark.parametrize("change", [{"value": 41}, {"preemptionPolicy": "Never"}])
def test_value_and_policy_of_a_priority_class_are_immutable(gateway: ClusterGateway, change: dict[str, object]) -> None:
    created = gateway.create(priority_class())
    with pytest.raises(ClusterRefused, match="immutable"):
        gateway.update({**priority_class(), **change}, observed=created)


def test_deleting_twice_is_success(gateway: ClusterGateway) -> None:
    gateway.create(priority_class())
    gateway.delete(LOW)
    gateway.delete(LOW)
    assert gateway.get(LOW) is None


def test_another_object_of_the_same_name_is_left_alone(gateway: ClusterGateway) -> None:
    first = gateway.create(priority_class())
    gateway.delete(LOW)
    second = gateway.create(priority_class())
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    gateway.delete(LOW, uid=first["metadata"]["uid"])
    assert gateway.get(LOW) is not None


def test_a_client_cannot_choose_the_uid(gateway: ClusterGateway) -> None:
    created = gateway.create(priority_class(uid="mine", resourceVersion="999999"))
    assert created["metadata"]["uid"] != "mine"
    assert created["metadata"]["resourceVersion"] != "999999"


def test_a_watch_tells_what_happened_since_a_list(gateway: ClusterGateway) -> None:
    created = gateway.create(priority_class())
    _, since = gateway.list(PRIORITY_CLASS)
    assert list(gateway.watch(PRIORITY_CLASS, since=since)) == []
    gateway.update({**priority_class(), "description": "new"}, observed=created)
    gateway.create(priority_class("high", 125))
    gateway.create(space())
    seen = [(event.type, event.manifest["metadata"]["name"]) for event in gateway.watch(PRIORITY_CLASS, since=since)]
    assert seen == [("MODIFIED", "low"), ("ADDED", "high")]


def test_a_watch_tells_of_deletions_with_the_object(gateway: ClusterGateway) -> None:
    created = gateway.create(priority_class())
    _, since = gateway.list(PRIORITY_CLASS)
    gateway.delete(LOW)
    (event,) = gateway.watch(PRIORITY_CLASS, since=since)
    assert (event.type, event.manifest["metadata"]["uid"]) == ("DELETED", created["metadata"]["uid"])


@pytest.mark.parametrize("version", ["", "x", "-1"])
def test_a_version_that_cannot_be_followed_means_to_list_again(gateway: ClusterGateway, version: str) -> None:
    with pytest.raises(VersionExpired):
        list(gateway.watch(PRIORITY_CLASS, since=version))


def test_what_is_handed_out_is_a_copy(gateway: ClusterGateway) -> None:
    mine = priority_class()
    created = gateway.create(mine)
    created["value"] = mine["value"] = 1
    for manifest in gateway.list(PRIORITY_CLASS)[0]:
        manifest["value"] = 2
    found = gateway.get(LOW)
    assert found is not None
    assert found["value"] == 40


def test_logs_of_a_pod_that_is_not_there_are_refused(gateway: ClusterGateway) -> None:
    with pytest.raises(ClusterRefused):
        gateway.logs(ObjectRef(POD, "nobody", SPACE.name))


def test_no_more_lines_than_asked_for(gateway: ClusterGateway) -> None:
    gateway.create(space())
    gateway.create(pod("a"))
    assert len(gateway.logs(ObjectRef(POD, "a", SPACE.name), tail=3)) <= 3


def test_a_cluster_keeps_its_identity(gateway: ClusterGateway) -> None:
    uid, version = gateway.identity()
    gateway.create(priority_class())
    assert gateway.identity() == (uid, version)
    assert uid
    assert version


def test_two_clusters_are_two() -> None:
    for backend, build in BACKENDS.items():
        one, other = build(build_cluster(backend=backend)), build(build_cluster(backend=backend))
        one.create(priority_class())
        assert other.get(LOW) is None
        assert one.identity()[0] != other.identity()[0]


def test_a_compacted_history_means_to_list_again() -> None:
    store = Store()
    gateway = MemoryGateway(store)
    gateway.create(priority_class())
    store.forget_events()
    gateway.create(priority_class("high", 125))
    with pytest.raises(VersionExpired):
        list(gateway.watch(PRIORITY_CLASS, since="1"))
