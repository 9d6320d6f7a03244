"""What every gateway promises, whatever stands behind it: a dictionary, rows of the database, a real API server.

The real one is shared by all tests of the run: names are a test's own, and what others do there is looked past.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest

from clusters.backends.kubernetes.gateway import KubernetesGateway
from clusters.backends.memory import MemoryGateway, MemoryStore, store_of
from clusters.ports.gateway import (
    ClusterGateway,
    ClusterRefused,
    Manifest,
    NotSynced,
    ObjectConflict,
    ObjectRef,
    VersionConflict,
    VersionExpired,
    WatchEvent,
)
from clusters.ports.objects import NAMESPACE, POD, PRIORITY_CLASS, owned
from clusters.sandbox.services.simulation import SandboxGateway
from tests.clusters.backends.real_gateways import gateway_to_lab
from tests.clusters.specs import pod_template
from tests.factories.clusters import build_cluster
from tests.support.lab import LabCluster

pytestmark = pytest.mark.django_db
REAL = (pytest.mark.lab, pytest.mark.enable_socket)


@pytest.fixture
def low(unique: Callable[[str], str]) -> ObjectRef:
    """A PriorityClass of this test's own."""
    return ObjectRef(PRIORITY_CLASS, unique("low"))


@pytest.fixture
def high(unique: Callable[[str], str]) -> ObjectRef:
    """Another one."""
    return ObjectRef(PRIORITY_CLASS, unique("high"))


@pytest.fixture
def place(unique: Callable[[str], str]) -> ObjectRef:
    """A namespace of this test's own."""
    return ObjectRef(NAMESPACE, unique("rung-vision"))


def memory() -> ClusterGateway:
    return MemoryGateway(store_of(str(build_cluster(backend="memory").pk)))


def sandbox() -> ClusterGateway:
    return SandboxGateway(build_cluster(backend="sandbox"))


SIMULATED: dict[str, Callable[[], ClusterGateway]] = {"memory": memory, "sandbox": sandbox}


@pytest.fixture(params=["memory", "sandbox", pytest.param("kubernetes", marks=REAL)])
def gateway(
    request: pytest.FixtureRequest, low: ObjectRef, high: ObjectRef, place: ObjectRef
) -> Iterator[ClusterGateway]:
    if request.param != "kubernetes":
        yield SIMULATED[request.param]()
        return
    lab: LabCluster = request.getfixturevalue("lab_cluster")
    with gateway_to_lab(lab) as real:
        yield real
    for ref in (low, high, place):
        lab.admin.delete(ref)


@pytest.fixture
def somebody_else(request: pytest.FixtureRequest, gateway: ClusterGateway) -> Iterator[ClusterGateway]:
    """Another client of the same cluster. The simulated ones tell writers apart by the names of their labels."""
    if not isinstance(gateway, KubernetesGateway):
        yield gateway
        return
    with gateway_to_lab(request.getfixturevalue("lab_cluster"), manager="kubectl-edit") as other:
        yield other


def named(manifests: Iterable[Manifest], *refs: ObjectRef) -> list[str]:
    """Which of the names are in a list."""
    names = {ref.name for ref in refs}
    return [each["metadata"]["name"] for each in manifests if each["metadata"].get("name") in names]


def told(events: Iterable[WatchEvent], *refs: ObjectRef) -> list[WatchEvent]:
    """What a watch tells of these."""
    return [event for event in events if named([event.manifest], *refs)]


def put_pod(gateway: ClusterGateway, manifest: Manifest) -> None:
    """In a new namespace the account of pods comes a moment later."""
    for _ in range(100):
        with suppress(NotSynced):
            gateway.create(manifest)
            return
        time.sleep(0.1)
    pytest.fail("no account for pods came")


def priority_class(ref: ObjectRef, value: int = 40, **metadata: object) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {**owned(ref.name, owner=f"priority.{ref.name}", generation=1), **metadata},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": "",
    }


def space(ref: ObjectRef) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": owned(ref.name, owner="project.1", generation=1)}


def pod(name: str, place: ObjectRef, **metadata: object) -> Manifest:
    template = pod_template()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **template,
        "metadata": {"name": name, "namespace": place.name, **metadata},
    }


def test_what_is_created_can_be_read_with_a_uid_and_a_version(gateway: ClusterGateway, low: ObjectRef) -> None:
    created = gateway.create(priority_class(low))
    found = gateway.get(low)
    assert found is not None
    assert found == created
    assert found["metadata"]["uid"]
    assert found["metadata"]["resourceVersion"]
    assert found["value"] == 40


def test_what_is_not_there_is_none(gateway: ClusterGateway, low: ObjectRef) -> None:
    assert gateway.get(low) is None
    assert gateway.get(ObjectRef(POD, "nobody", "nowhere")) is None


def test_a_taken_name_is_a_conflict_and_nothing_changes(gateway: ClusterGateway, low: ObjectRef) -> None:
    gateway.create(priority_class(low))
    with pytest.raises(ObjectConflict):
        gateway.create(priority_class(low, value=41))
    found = gateway.get(low)
    assert found is not None
    assert found["value"] == 40


def test_nothing_is_created_in_a_namespace_that_is_not_there(gateway: ClusterGateway, place: ObjectRef) -> None:
    with pytest.raises(ClusterRefused, match=place.name):
        gateway.create(pod("a", place))


def test_a_namespaced_object_without_a_namespace_is_refused(gateway: ClusterGateway, place: ObjectRef) -> None:
    body = pod("a", place)
    del body["metadata"]["namespace"]
    with pytest.raises(ClusterRefused):
        gateway.create(body)


def test_an_unknown_kind_is_refused(gateway: ClusterGateway) -> None:
    with pytest.raises(ClusterRefused):
        gateway.create({"apiVersion": "example.com/v1", "kind": "Mystery", "metadata": {"name": "x"}})


def test_a_list_holds_ours_only_unless_asked_for_all(gateway: ClusterGateway, low: ObjectRef, high: ObjectRef) -> None:
    gateway.create(priority_class(low))
    gateway.create(priority_class(high, labels={}))
    ours, version = gateway.list(PRIORITY_CLASS)
    everything, _ = gateway.list(PRIORITY_CLASS, managed_only=False)
    assert named(ours, low, high) == [low.name]
    assert set(named(everything, low, high)) == {low.name, high.name}
    assert version.isdecimal()


def test_a_list_can_be_narrowed_to_a_namespace(gateway: ClusterGateway, place: ObjectRef) -> None:
    gateway.create(space(place))
    put_pod(gateway, pod("a", place))
    a = ObjectRef(POD, "a", place.name)
    assert named(gateway.list(POD, namespace=place.name, managed_only=False)[0], a) == ["a"]
    assert gateway.list(POD, namespace="rung-another", managed_only=False)[0] == []


def test_an_update_replaces_the_body_and_keeps_identity_and_foreign_labels(
    gateway: ClusterGateway, somebody_else: ClusterGateway, low: ObjectRef
) -> None:
    first = gateway.create(priority_class(low))
    with_team = copy.deepcopy(first)
    with_team["metadata"]["labels"]["team"] = "theirs"
    created = somebody_else.update(with_team, observed=first)
    updated = gateway.update({**priority_class(low), "description": "new"}, observed=created)
    assert updated["description"] == "new"
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]
    assert updated["metadata"]["labels"]["team"] == "theirs"
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert gateway.get(low) == updated


def test_an_update_after_somebody_elses_write_is_refused(gateway: ClusterGateway, low: ObjectRef) -> None:
    created = gateway.create(priority_class(low))
    gateway.update({**priority_class(low), "description": "theirs"}, observed=created)
    with pytest.raises(VersionConflict) as error:
        gateway.update({**priority_class(low), "description": "ours"}, observed=created)
    assert error.value.transient
    found = gateway.get(low)
    assert found is not None
    assert found["description"] == "theirs"


def test_what_we_wrote_before_and_do_not_want_any_more_goes(gateway: ClusterGateway, low: ObjectRef) -> None:
    body = priority_class(low)
    body["metadata"]["annotations"]["rung.dev/note"] = "for nights"
    created = gateway.create({**body, "description": "For nights."})
    wanted = priority_class(low)
    del wanted["description"]
    updated = gateway.update(wanted, observed=created)
    assert "rung.dev/note" not in updated["metadata"]["annotations"]
    assert "description" not in updated


def test_an_update_of_what_has_gone_is_refused(gateway: ClusterGateway, low: ObjectRef) -> None:
    created = gateway.create(priority_class(low))
    gateway.delete(low)
    with pytest.raises(ClusterRefused):
        gateway.update(priority_class(low), observed=created)


@pytest.mark.parametrize("change", [{"value": 41}, {"preemptionPolicy": "Never"}])
def test_value_and_policy_of_a_priority_class_are_immutable(
    gateway: ClusterGateway, change: dict[str, object], low: ObjectRef
) -> None:
    created = gateway.create(priority_class(low))
    with pytest.raises(ClusterRefused, match=r"immutable|may not be changed"):
        gateway.update({**priority_class(low), **change}, observed=created)


def test_deleting_twice_is_success(gateway: ClusterGateway, low: ObjectRef) -> None:
    gateway.create(priority_class(low))
    gateway.delete(low)
    gateway.delete(low)
    assert gateway.get(low) is None


def test_another_object_of_the_same_name_is_left_alone(gateway: ClusterGateway, low: ObjectRef) -> None:
    first = gateway.create(priority_class(low))
    gateway.delete(low)
    second = gateway.create(priority_class(low))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    gateway.delete(low, uid=first["metadata"]["uid"])
    assert gateway.get(low) is not None


def test_a_client_cannot_choose_the_uid(gateway: ClusterGateway, low: ObjectRef) -> None:
    created = gateway.create(priority_class(low, uid="mine", resourceVersion="999999"))
    assert created["metadata"]["uid"] != "mine"
    assert created["metadata"]["resourceVersion"] != "999999"


def test_a_watch_tells_what_happened_since_a_list(
    gateway: ClusterGateway, low: ObjectRef, high: ObjectRef, place: ObjectRef
) -> None:
    created = gateway.create(priority_class(low))
    _, since = gateway.list(PRIORITY_CLASS)
    assert told(gateway.watch(PRIORITY_CLASS, since=since), low, high) == []
    gateway.update({**priority_class(low), "description": "new"}, observed=created)
    gateway.create(priority_class(high, 125))
    gateway.create(space(place))
    seen = told(gateway.watch(PRIORITY_CLASS, since=since, wait=1.0), low, high)
    assert [(event.type, event.manifest["metadata"]["name"]) for event in seen] == [
        ("MODIFIED", low.name),
        ("ADDED", high.name),
    ]


def test_a_watch_tells_of_deletions_with_the_object(gateway: ClusterGateway, low: ObjectRef) -> None:
    created = gateway.create(priority_class(low))
    _, since = gateway.list(PRIORITY_CLASS)
    gateway.delete(low)
    (event,) = told(gateway.watch(PRIORITY_CLASS, since=since, wait=1.0), low)
    assert (event.type, event.manifest["metadata"]["uid"]) == ("DELETED", created["metadata"]["uid"])


@pytest.mark.parametrize("version", ["", "x", "-1"])
def test_a_version_that_cannot_be_followed_means_to_list_again(gateway: ClusterGateway, version: str) -> None:
    with pytest.raises(VersionExpired):
        list(gateway.watch(PRIORITY_CLASS, since=version))


def test_what_is_handed_out_is_a_copy(gateway: ClusterGateway, low: ObjectRef) -> None:
    mine = priority_class(low)
    created = gateway.create(mine)
    created["value"] = mine["value"] = 1
    for manifest in gateway.list(PRIORITY_CLASS)[0]:
        manifest["value"] = 2
    found = gateway.get(low)
    assert found is not None
    assert found["value"] == 40


def test_logs_of_a_pod_that_is_not_there_are_refused(gateway: ClusterGateway, place: ObjectRef) -> None:
    with pytest.raises(ClusterRefused):
        gateway.logs(ObjectRef(POD, "nobody", place.name))


def test_no_more_lines_than_asked_for(gateway: ClusterGateway, place: ObjectRef) -> None:
    gateway.create(space(place))
    put_pod(gateway, pod("a", place))
    assert len(gateway.logs(ObjectRef(POD, "a", place.name), tail=3)) <= 3


def test_a_cluster_keeps_its_identity(gateway: ClusterGateway, low: ObjectRef) -> None:
    uid, version = gateway.identity()
    gateway.create(priority_class(low))
    assert gateway.identity() == (uid, version)
    assert uid
    assert version


def test_it_is_known_whether_a_kind_is_served(gateway: ClusterGateway) -> None:
    assert gateway.serves(PRIORITY_CLASS)
    assert gateway.serves(POD)


def test_metadata_alone_will_do(gateway: ClusterGateway, low: ObjectRef) -> None:
    created = gateway.create(priority_class(low))
    found, _ = gateway.list(PRIORITY_CLASS, metadata_only=True)
    (mine,) = (each for each in found if each["metadata"]["name"] == low.name)
    assert (mine["apiVersion"], mine["kind"]) == (created["apiVersion"], created["kind"])
    assert mine["metadata"]["uid"] == created["metadata"]["uid"]


def test_two_clusters_are_two(low: ObjectRef) -> None:
    for build in SIMULATED.values():
        one, other = build(), build()
        one.create(priority_class(low))
        assert other.get(low) is None
        assert one.identity()[0] != other.identity()[0]


def test_a_compacted_history_means_to_list_again(low: ObjectRef, high: ObjectRef) -> None:
    store = MemoryStore()
    gateway = MemoryGateway(store)
    gateway.create(priority_class(low))
    store.forget_events()
    gateway.create(priority_class(high, 125))
    with pytest.raises(VersionExpired):
        list(gateway.watch(PRIORITY_CLASS, since="1"))
