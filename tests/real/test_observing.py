"""The observer on a real API server: watches that stay open, what they bring, and what it costs nobody to lose."""

from collections.abc import Callable, Iterator

import pytest

from clusters.connection.models import ClusterCredential
from clusters.connection.services.gateways import encrypt_connection, forget_gateways
from clusters.inventory.models import Cluster, Node
from clusters.ports.connection import Connection
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import POD, owned, stamped
from clusters.watch.models import ObservedPod, ObserverLease
from clusters.watch.services.observer import Observer
from tests.clusters.watch.test_observer import watching
from tests.factories.clusters import build_cluster
from tests.support.lab import LabCluster
from tests.support.processes import eventually

pytestmark = [pytest.mark.lab, pytest.mark.postgres]


@pytest.fixture
def cluster(lab_cluster: LabCluster) -> Iterator[Cluster]:
    """The lab's cluster, registered."""
    forget_gateways()
    row = build_cluster(name="real", flavour="kube", backend="kubernetes")
    credential = ClusterCredential(cluster=row)
    encrypt_connection(
        credential, Connection(lab_cluster.server, ca=lab_cluster.ca, token=lab_cluster.token), expires_at=None
    )
    credential.save()
    yield row
    forget_gateways()


def live(name: str) -> bool:
    return ObservedPod.objects.filter(name=name, gone_at=None).exists()


def waiting_pod(name: str, namespace: str) -> Manifest:
    spec = {"nodeSelector": {"nobody": "has"}, "containers": [{"name": "main", "image": "any"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def test_what_happens_is_seen_and_an_observer_that_dies_loses_nothing(
    lab_cluster: LabCluster, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    admin, namespace = lab_cluster.admin, unique("observed")
    admin.namespace(namespace)
    with watching(Observer(pause=0.1)):
        eventually(lambda: Node.objects.filter(cluster=cluster).count() >= 4)
        admin.create(waiting_pod(unique("first"), namespace))
        eventually(lambda: live(unique("first")))
        pod = ObservedPod.objects.get(name=unique("first"))
        eventually(lambda: ObservedPod.objects.get(pk=pod.pk).reason == "Unschedulable")
        eventually(lambda: "Job.batch" in ObserverLease.objects.get(cluster=cluster).versions)
        assert not any("ray.io" in key for key in ObserverLease.objects.get(cluster=cluster).versions)
    admin.delete(ObjectRef(POD, unique("first"), namespace), grace=0)
    admin.create(waiting_pod(unique("second"), namespace))
    with watching(Observer(pause=0.1)):
        eventually(lambda: live(unique("second")))
        eventually(lambda: not live(unique("first")))
    assert Cluster.objects.get(pk=cluster.pk).observed_at is not None


def test_a_foreign_hand_on_a_quota_calls_for_a_reconcile_at_once(
    lab_cluster: LabCluster, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    admin, namespace = lab_cluster.admin, unique("touched")
    admin.namespace(namespace)
    metadata = owned("rung-limit", owner="project.1", generation=1, namespace=namespace)
    spec = {"hard": {"requests.nvidia.com/gpu": "8"}}
    quota = stamped({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec})
    admin.create(quota)
    with watching(Observer(pause=0.1)):
        eventually(lambda: cluster.objects_seen.filter(name="rung-limit", namespace=namespace).exists())
        Cluster.objects.filter(pk=cluster.pk).update(sync_due_at=None)
        admin.patch(admin.ref(quota), {"spec": {"hard": {"requests.nvidia.com/gpu": "64"}}})
        eventually(lambda: Cluster.objects.get(pk=cluster.pk).sync_due_at is not None)
    admin.delete(admin.ref(quota))  # the cluster is everybody's, and this carries the label of ours
