"""T47: events are written by whoever may write them somewhere: no field of theirs stops the watch or stays for ever."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.backends.memory import MemoryGateway, MemoryStore, forget_all, store_of
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.ports.objects import EVENT, MANAGED_BY, MANAGER, OWNER, POD
from clusters.watch.models import ClusterEvent
from clusters.watch.services.informers import observe_cluster
from clusters.watch.services.observations import prune
from tests.clusters.sandboxes import TEAM
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db

WORKLOAD = "4f1c"
BURST = 10_000
HOSTILE: dict[str, dict[str, Any]] = {
    "nothing but its metadata": {},
    "about nothing": {"involvedObject": None},
    "about a list": {"involvedObject": ["Pod"]},
    "about a number": {"involvedObject": {"kind": 7, "uid": 7, "name": 7, "namespace": 7}},
    "a sentence of a megabyte": {"message": "x" * (1 << 20)},
    "a reason of a megabyte": {"reason": "x" * (1 << 20)},
    "control characters": {"message": "a\x00b\x1b]8;;https://evil.example\x07c\u202ed", "reason": "a\x00\nb"},
    "half a character": {"message": "\ud800", "reason": "\udfff"},
    "a count that is a text": {"count": "many"},
    "a count beyond any column": {"count": 10**4000},
    "a count below nothing": {"count": -5},
    "a series that is a list": {"series": [1, 2]},
    "a series without an end": {"series": {"count": float("inf"), "lastObservedTime": {}}},
    "a source that is a text": {"source": "kubelet", "reportingComponent": {}},
    "times that are none": {"lastTimestamp": "yesterday", "eventTime": 7, "firstTimestamp": []},
    "a type that is an object": {"type": {"is": "Warning"}},
}


@pytest.fixture
def cluster() -> Any:
    yield build_cluster(name="strange", flavour="kube", backend="memory")
    forget_all()


@pytest.fixture
def store(cluster: Cluster) -> MemoryStore:
    return store_of(str(cluster.pk))


@pytest.fixture
def pod(store: MemoryStore) -> Manifest:
    """A pod of a workload."""
    gateway = MemoryGateway(store)
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    labels = {MANAGED_BY: MANAGER, OWNER: f"workload.{WORKLOAD}"}
    metadata = {"name": "runs", "namespace": TEAM, "labels": labels}
    return gateway.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {}})


def event(pod: Manifest, name: str, **fields: Any) -> Manifest:
    about = {"kind": POD.kind, "name": "runs", "namespace": TEAM, "uid": pod["metadata"]["uid"]}
    metadata = {"name": name, "namespace": TEAM, "uid": f"uid-{name}", "resourceVersion": "7"}
    known = {"involvedObject": about, "reason": "Pulled", "message": "It happened.", "type": "Normal"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, **known, **fields}


def put(store: MemoryStore, *manifests: Manifest) -> None:
    """Into the server's memory as they are: nothing of ours checks them on the way."""
    for each in manifests:
        store.objects[EVENT.key, each["metadata"].get("namespace", ""), each["metadata"]["name"]] = each


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_event_is_kept_as_far_as_it_can_be_read_and_stops_no_other(
    what: str, cluster: Cluster, store: MemoryStore, pod: Manifest
) -> None:
    put(store, event(pod, "bad", **HOSTILE[what]), event(pod, "good"))
    observe_cluster(cluster)
    assert ClusterEvent.objects.filter(cluster=cluster, uid="uid-good", owner_id=WORKLOAD).exists()
    for row in ClusterEvent.objects.all():
        assert len(row.message) <= 8192
        assert len(row.reason) <= 128
        assert row.count >= 1
        assert all(said.isprintable() for said in (row.reason, row.type, row.source, row.kind, row.name))
        assert not {"\x00", "\x1b", "\u202e"} & set(row.message)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"name": "bad"},
        {"name": "bad", "uid": 7},
        {"name": "bad", "uid": "u" * 10_000},
        {"name": "b\x00d", "uid": "u"},
    ],
    ids=["empty", "without a uid", "a number for one", "a long one", "a name that is none"],
)
def test_an_event_that_cannot_be_told_from_others_is_none(
    metadata: Any, cluster: Cluster, store: MemoryStore, pod: Manifest
) -> None:
    store.objects[EVENT.key, TEAM, "bad"] = {**event(pod, "bad"), "metadata": {**metadata, "namespace": TEAM}}
    put(store, event(pod, "good"))
    observe_cluster(cluster)
    assert list(ClusterEvent.objects.values_list("uid", flat=True)) == ["uid-good"]


@pytest.mark.parametrize(
    "about",
    [{"uid": "somebody-elses"}, {"kind": "Node"}, {"kind": "Secret"}, {"namespace": "kube-system"}],
    ids=["an object never seen", "a node", "a kind of no workload", "another namespace"],
)
def test_an_event_about_something_else_is_never_the_workloads(
    about: Any, cluster: Cluster, store: MemoryStore, pod: Manifest
) -> None:
    """The last one names our pod's uid, and where that stands is what counts: an event lives where its object does."""
    told = event(pod, "wrong")
    told["involvedObject"] |= about
    if "namespace" in about:
        told["metadata"]["namespace"] = about["namespace"]
    put(store, told)
    observe_cluster(cluster)
    observe_cluster(cluster)
    assert not ClusterEvent.objects.exclude(owner_id="").exists()


@pytest.mark.parametrize("field", ["lastTimestamp", "eventTime", "series"])
def test_an_event_of_the_future_happened_when_it_was_seen_and_goes_in_its_time(
    field: str, cluster: Cluster, store: MemoryStore, pod: Manifest
) -> None:
    said = "2070-01-01T00:00:00Z"
    put(store, event(pod, "later", **{field: {"count": 2, "lastObservedTime": said} if field == "series" else said}))
    observe_cluster(cluster)
    row = ClusterEvent.objects.get()
    assert abs(row.at - timezone.now()) < timedelta(minutes=1)


def test_a_clock_that_is_a_little_ahead_is_believed(cluster: Cluster, store: MemoryStore, pod: Manifest) -> None:
    ahead = timezone.now().replace(microsecond=0) + timedelta(minutes=5)
    put(store, event(pod, "soon", lastTimestamp=ahead.astimezone(UTC).isoformat()))
    observe_cluster(cluster)
    assert ClusterEvent.objects.get().at == ahead


def test_an_event_of_long_ago_goes_at_once(cluster: Cluster, store: MemoryStore, pod: Manifest) -> None:
    put(store, event(pod, "old", lastTimestamp=datetime(2015, 1, 1, tzinfo=UTC).isoformat()))
    observe_cluster(cluster)
    assert prune()[1] == 1


def test_ten_thousand_events_at_once_are_kept_in_seconds_and_once_each(
    cluster: Cluster, store: MemoryStore, pod: Manifest
) -> None:
    put(store, *(event(pod, f"burst-{number}", count=number) for number in range(BURST)))
    begun = time.process_time()
    observe_cluster(cluster)
    observe_cluster(cluster)
    assert ClusterEvent.objects.filter(owner_id=WORKLOAD).count() == BURST
    assert time.process_time() - begun < 30
