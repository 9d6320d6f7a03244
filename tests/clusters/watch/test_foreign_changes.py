"""A foreign hand on our objects is noticed by the look that sees it; our own writes are not."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.backends.memory import MemoryGateway
from clusters.connection.services.gateways import gateway_for
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest
from clusters.ports.objects import GENERATION, MANAGED_BY, NAMESPACE, RESOURCE_QUOTA, owned, ref_of, stamped
from clusters.watch.models import ObservedObject, ObserverLease
from clusters.watch.services import watch_buffer
from clusters.watch.services.informers import ClusterWatch, observe_cluster
from tests.support.processes import eventually

pytestmark = pytest.mark.django_db

QUOTA = "rung-limit"


def quota(gpus: str = "8", generation: int = 3) -> Manifest:
    """As reconcile writes it."""
    metadata = owned(QUOTA, owner="project.1", generation=generation, namespace="runai-team")
    spec = {"hard": {"requests.nvidia.com/gpu": gpus}}
    return stamped({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec})


@pytest.fixture
def gateway(plain: Cluster) -> MemoryGateway:
    """A cluster with one quota of ours, seen once, and nothing due."""
    found = gateway_for(plain)
    assert isinstance(found, MemoryGateway)
    found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "runai-team"}})
    found.create(quota())
    assert not noticed(plain)
    return found


def noticed(cluster: Cluster) -> bool:
    """Does a look call for a reconcile?"""
    Cluster.objects.update(sync_due_at=None)
    observe_cluster(cluster)
    return Cluster.objects.get().sync_due_at is not None


def live(gateway: MemoryGateway) -> Manifest:
    found = gateway.get(ref_of(quota()))
    assert found is not None
    return found


def write(gateway: MemoryGateway, manifest: Manifest) -> None:
    gateway.update(manifest, observed=live(gateway))


def edited(gateway: MemoryGateway, **hard: Any) -> Manifest:
    return {**live(gateway), "spec": {"hard": {"requests.nvidia.com/gpu": "64", **hard}}}


def test_an_edit_that_leaves_our_annotations_alone(plain: Cluster, gateway: MemoryGateway) -> None:
    write(gateway, edited(gateway))
    assert noticed(plain)


def test_a_deletion(plain: Cluster, gateway: MemoryGateway) -> None:
    gateway.delete(ref_of(quota()))
    assert noticed(plain)
    assert not ObservedObject.objects.filter(kind=RESOURCE_QUOTA.key).exists()


def test_a_deletion_that_only_a_list_tells(plain: Cluster, gateway: MemoryGateway) -> None:
    gateway.delete(ref_of(quota()))
    gateway.store.forget_events()
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    gateway.store.forget_events()
    assert noticed(plain)


def test_our_label_taken_away(plain: Cluster, gateway: MemoryGateway) -> None:
    stripped = live(gateway)
    del stripped["metadata"]["labels"][MANAGED_BY]
    with gateway.store.lock:
        gateway.store.objects["ResourceQuota", "runai-team", QUOTA]["metadata"]["labels"].pop(MANAGED_BY)
    write(gateway, stripped)
    assert noticed(plain)


def test_an_earlier_generation_put_back(plain: Cluster, gateway: MemoryGateway) -> None:
    write(gateway, quota(gpus="4", generation=2))
    assert noticed(plain)


def test_an_object_with_our_label_that_we_did_not_write(plain: Cluster, gateway: MemoryGateway) -> None:
    foreign = quota()
    foreign["metadata"]["name"] = "planted"
    foreign["metadata"]["annotations"] = {GENERATION: "3"}
    gateway.create(foreign)
    assert noticed(plain)


def test_our_own_write_is_no_reason(plain: Cluster, gateway: MemoryGateway) -> None:
    write(gateway, quota(gpus="16", generation=4))
    assert not noticed(plain)


def test_our_repair_is_no_reason(plain: Cluster, gateway: MemoryGateway) -> None:
    write(gateway, edited(gateway))
    assert noticed(plain)
    write(gateway, quota())
    assert not noticed(plain)


def test_a_status_is_no_reason_and_costs_no_row(plain: Cluster, gateway: MemoryGateway) -> None:
    with gateway.store.lock:
        gateway.store.objects["ResourceQuota", "runai-team", QUOTA]["status"] = {"used": {}}
    write(gateway, live(gateway))
    assert not noticed(plain)


def test_an_edit_that_stays_is_a_reason_once(plain: Cluster, gateway: MemoryGateway) -> None:
    write(gateway, edited(gateway))
    assert noticed(plain)
    with gateway.store.lock:
        gateway.store.objects["ResourceQuota", "runai-team", QUOTA]["status"] = {"used": {}}
    write(gateway, live(gateway))
    assert not noticed(plain)


def test_foreign_objects_are_nobodys_business(plain: Cluster, gateway: MemoryGateway) -> None:
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}})
    assert not noticed(plain)
    assert not ObservedObject.objects.filter(kind=NAMESPACE.key).exists()


@pytest.fixture
def streams(plain: Cluster, gateway: MemoryGateway, bell: threading.Event) -> Iterator[ClusterWatch]:
    """The cluster's open watches."""
    opened = ClusterWatch(plain, gateway, bell)
    yield opened
    opened.close()


@pytest.fixture
def bell() -> threading.Event:
    return threading.Event()


def noted(gateway: MemoryGateway, text: str) -> Manifest:
    """The quota with somebody else's annotation."""
    found = live(gateway)
    annotations = {**found["metadata"]["annotations"], "somebody.example/note": text}
    return {**found, "metadata": {**found["metadata"], "annotations": annotations}}


def rings(bell: threading.Event, gateway: MemoryGateway, change: Manifest, *, within: float) -> bool:
    bell.clear()
    write(gateway, change)
    return bell.wait(within)


def test_what_others_note_beside_it_can_wait_and_what_it_says_cannot(
    gateway: MemoryGateway, streams: ClusterWatch, bell: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_buffer, "LONGER", 3600.0)
    for note in ("one", "two"):
        assert not rings(bell, gateway, noted(gateway, note), within=0.5)
    assert not streams.is_due()
    assert rings(bell, gateway, edited(gateway), within=10)
    assert streams.is_due()


def test_what_others_note_beside_it_moves_the_version_and_is_not_stored(
    plain: Cluster, gateway: MemoryGateway, streams: ClusterWatch
) -> None:
    write(gateway, noted(gateway, "one"))
    eventually(streams.is_due)
    with CaptureQueriesContext(connection) as captured:
        streams.turn()
    assert not [each for each in captured.captured_queries if "observedobject" in each["sql"]]
    kept = ObserverLease.objects.get(cluster=plain).versions[RESOURCE_QUOTA.key]
    assert kept == live(gateway)["metadata"]["resourceVersion"]


def test_what_others_note_beside_a_change_that_waits_does_not_hide_it(
    plain: Cluster, gateway: MemoryGateway, streams: ClusterWatch, bell: threading.Event
) -> None:
    Cluster.objects.update(sync_due_at=None)
    assert rings(bell, gateway, edited(gateway), within=10)
    assert rings(bell, gateway, noted(gateway, "one"), within=10), "it still is due"
    streams.turn()
    assert Cluster.objects.get().sync_due_at is not None
