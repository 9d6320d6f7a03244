"""What one look makes of a cluster: nodes, versions, and a message to whoever registered."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from clusters.backends.memory import forget_all
from clusters.connection.services.gateways import gateway_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.services.inventory import pause, unpause
from clusters.ports.gateway import ClusterBusy, ClusterChanged, ClusterRefused, Kind, Manifest
from clusters.ports.objects import POD, kind_of, ref_of
from clusters.sandbox.services import simulation
from clusters.watch.models import ObservedObject, ObservedPod, ObserverLease
from clusters.watch.services import observations
from clusters.watch.services.informers import observe_cluster
from portal.kit.security.actors import SYSTEM
from tests.clusters.observation_recorder import ObservationRecorder
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished, job
from tests.factories.clusters import build_cluster

pytestmark = pytest.mark.django_db


def test_nodes_become_rows_in_the_pool_their_label_names() -> None:
    sandbox = Sandbox()
    pool = NodePool.objects.create(cluster=sandbox.cluster, name="a100", label_value="a100", is_default=True)
    NodePool.objects.create(cluster=sandbox.cluster, name="h100", label_value="h100")
    sandbox.node("plain", gpus=4)
    sandbox.node("big", gpus=8, pool="h100", **{"nvidia.com/gpu.product": "H100"})
    observe_cluster(sandbox.cluster)
    assert Node.objects.get(name="plain").pool == pool
    big = Node.objects.get(name="big")
    assert (big.pool and big.pool.name, big.gpu_milli, big.cpu_milli, big.gpu_type) == ("h100", 8000, 64000, "H100")
    assert big.memory_bytes == 512 * 2**30


def test_a_pool_defined_later_takes_its_nodes() -> None:
    sandbox = Sandbox()
    sandbox.node("big", pool="h100")
    observe_cluster(sandbox.cluster)
    assert Node.objects.get().pool is None
    NodePool.objects.create(cluster=sandbox.cluster, name="h100", label_value="h100")
    observe_cluster(sandbox.cluster)
    assert str(Node.objects.get().pool) == "h100"


def test_a_node_that_left_has_no_row() -> None:
    sandbox = Sandbox()
    sandbox.node("here")
    sandbox.node("gone")
    observe_cluster(sandbox.cluster)
    sandbox.remove_node("gone")
    observe_cluster(sandbox.cluster)
    assert [node.name for node in Node.objects.all()] == ["here"]


def test_nothing_new_tells_nobody(told: ObservationRecorder) -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    count = len(told.observations)
    assert observe_cluster(sandbox.cluster).pods == ()
    assert len(told.observations) == count


def test_only_kinds_that_changed_are_read_again() -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    observe_cluster(sandbox.cluster)
    sandbox.create(bare_pod("other"))
    with CaptureQueriesContext(connection) as requested:
        observe_cluster(sandbox.cluster)
    read = [each["sql"] for each in requested if '"clusters_sandboxobject"."manifest"' in each["sql"]]
    assert len(read) == 1
    assert f"{POD.key!r}" in read[0]


def test_kinds_of_another_scheduler_are_read_though_they_did_not_change() -> None:
    sandbox = furnished("kube")
    observe_cluster(sandbox.cluster)
    queue = sandbox.queue("team", **{"app.kubernetes.io/managed-by": "rung"})
    observe_cluster(sandbox.cluster)
    Cluster.objects.update(flavour="kai")
    sandbox.create(bare_pod("train"))
    observe_cluster(Cluster.objects.get())
    assert ObservedObject.objects.get(kind=kind_of(queue).key).name == "team"


def test_a_list_older_than_what_was_seen_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train"))
    observe_cluster(sandbox.cluster)
    lease = ObserverLease.objects.get()
    lease.versions = {**lease.versions, POD.key: "999999", "newest": ""}
    lease.save()
    with pytest.raises(ClusterBusy, match="older than what was seen"):
        observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get().gone_at is None


def test_another_cluster_behind_the_same_address_is_not_observed() -> None:
    sandbox = furnished()
    sandbox.create(bare_pod("train"))
    observe_cluster(sandbox.cluster)
    sandbox.cluster.uid = "somebody-else"
    ObserverLease.objects.update(versions={})
    with pytest.raises(ClusterChanged):
        observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.get().gone_at is None


def test_a_handler_that_fails_sees_the_same_observation_again(told: ObservationRecorder) -> None:
    sandbox = furnished()
    sandbox.create(job("train", workload="4f1c"))
    sandbox.ticks(2)
    told.broken = True
    with pytest.raises(RuntimeError, match="handler"):
        observe_cluster(sandbox.cluster)
    assert ObservedPod.objects.count() == 0
    told.broken = False
    observe_cluster(sandbox.cluster)
    assert [pod.owner_id for pod in told.last.pods] == ["4f1c"]
    assert told.last.events != ()


def test_the_slower_of_two_observers_changes_nothing(
    told: ObservationRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.tick()
    listed = simulation.SandboxGateway.list

    def overtaken(gateway: simulation.SandboxGateway, kind: Kind, **requested: Any) -> tuple[list[Manifest], str]:
        if kind == POD:
            monkeypatch.setattr(simulation.SandboxGateway, "list", listed)
            observe_cluster(sandbox.cluster)
        return listed(gateway, kind, **requested)

    monkeypatch.setattr(simulation.SandboxGateway, "list", overtaken)
    assert observe_cluster(sandbox.cluster).pods == ()
    assert len(told.observations) == 1


def test_a_registered_handler_is_called_once_however_often_it_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "_handlers", [])
    handler = ObservationRecorder()
    observations.register_handler(handler)
    observations.register_handler(handler)
    assert observations.handlers() == (handler,)


def test_a_quiet_cluster_costs_few_queries(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    sandbox = furnished()
    sandbox.create(job("train"))
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    with django_assert_max_num_queries(10):
        observe_cluster(sandbox.cluster)


def test_many_pods_cost_no_more_queries_than_few(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    sandbox = furnished()
    sandbox.create(job("small"))
    sandbox.ticks(2)
    with CaptureQueriesContext(connection) as few:
        observe_cluster(sandbox.cluster)
    sandbox.create(job("large", parallelism=7, workload="other"))
    sandbox.ticks(2)
    with django_assert_max_num_queries(len(few)):
        observe_cluster(sandbox.cluster)


def test_a_memory_cluster_is_observed_too(told: ObservationRecorder) -> None:
    cluster = build_cluster()
    gateway = gateway_for(cluster)
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    manifest = bare_pod("train")
    gateway.create(manifest)
    observe_cluster(cluster)
    assert [pod.name for pod in told.last.pods] == ["train"]
    gateway.delete(ref_of(manifest))
    observe_cluster(cluster)
    assert ObservedPod.objects.get().gone_at is not None


def test_a_cluster_that_refuses_its_pods_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_gateway: simulation.SandboxGateway, _kind: Kind, **_requested: Any) -> tuple[list[Manifest], str]:
        raise ClusterRefused("forbidden")

    sandbox = furnished()
    monkeypatch.setattr(simulation.SandboxGateway, "list", refuse)
    with pytest.raises(ClusterRefused):
        observe_cluster(sandbox.cluster)
    assert Cluster.objects.get().observed_at is None


def test_a_cluster_that_was_taken_for_another_is_listed_from_the_beginning(
    cluster: Cluster, told: ObservationRecorder
) -> None:
    old = gateway_for(cluster)
    for number in range(50):  # it has counted far beyond where the new one is
        old.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"old-{number}"}})
    observe_cluster(cluster)
    forget_all()
    fresh = gateway_for(cluster)
    fresh.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    fresh.create(bare_pod("hello"))
    pause(cluster=cluster, reason="another one answers", actor=SYSTEM)
    unpause(cluster=cluster, actor=SYSTEM, adopt=True)
    observe_cluster(cluster)
    assert [row.name for row in ObservedPod.objects.all()] == ["hello"]
