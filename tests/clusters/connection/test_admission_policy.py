"""A real API server keeps Rung's account to namespaces and objects with Rung's label, whoever holds its token."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clusters.connection.rules.rights import admission_policy_for
from clusters.connection.services.connection_test import try_connection
from clusters.connection.services.gateways import gateway_to
from clusters.ports.connection import Connection
from clusters.ports.gateway import ClusterGateway, ClusterRefused, Manifest, ObjectRef
from clusters.ports.objects import LIMIT_RANGE, MANAGED_BY, MANAGER, NAMESPACE, PRIORITY_CLASS
from tests.support.lab import Kept, LabCluster, own_cluster
from tests.support.processes import eventually

OURS = {MANAGED_BY: MANAGER}


def thing(kind: str, name: str, labels: dict[str, str], **parts: Any) -> Manifest:
    space = {"namespace": parts.pop("namespace")} if "namespace" in parts else {}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels, **space}, **parts}


def limits(namespace: str, labels: dict[str, str]) -> Manifest:
    bounds = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
    return thing("LimitRange", "d", labels, namespace=namespace, spec={"limits": bounds})


@contextmanager
def with_policy() -> Iterator[LabCluster]:
    """A cluster whose policy is at work."""
    with own_cluster() as cluster, gateway_of(cluster) as gateway:
        for manifest in admission_policy_for():
            cluster.admin.create(manifest)
        eventually(lambda: _is_refused(lambda: gateway.create(thing("Namespace", "probe", {}))), seconds=20)
        yield cluster


@contextmanager
def gateway_of(cluster: LabCluster) -> Iterator[ClusterGateway]:
    """A gateway under Rung's account."""
    gateway = gateway_to(Connection(cluster.server, ca=cluster.ca, token=cluster.token), name="guarded")
    yield gateway
    gateway.close()


@pytest.fixture
def guarded(kept: Kept) -> Iterator[tuple[LabCluster, ClusterGateway]]:
    """A cluster with the policy, shared by the tests of this module, and a gateway under Rung's account."""
    cluster = kept.cluster(with_policy)
    with gateway_of(cluster) as gateway:
        yield cluster, gateway


def _is_refused(act: Callable[[], object]) -> bool:
    """False before the policy is at work: the object is there, or was there from the last try."""
    try:
        act()
    except ClusterRefused as error:
        return "with its label" in error.message
    except Exception:
        return False
    return False


def test_a_stolen_token_reaches_nothing_that_is_not_rungs(guarded: tuple[LabCluster, ClusterGateway]) -> None:
    cluster, gateway = guarded
    cluster.admin.create(thing("Namespace", "theirs", {}))
    cluster.admin.create(limits("theirs", {}))
    there = cluster.admin.get(ObjectRef(LIMIT_RANGE, "d", "theirs"))
    assert there is not None
    priority_class = {**thing("PriorityClass", "theirs", {}), "apiVersion": "scheduling.k8s.io/v1", "value": 7}
    cluster.admin.create(priority_class)
    for act in (
        lambda: gateway.create(limits("kube-system", OURS)),
        lambda: gateway.create(limits("theirs", {})),
        lambda: gateway.update({**there, "metadata": {**there["metadata"], "labels": OURS}}, observed=there),
        lambda: gateway.delete(ObjectRef(LIMIT_RANGE, "d", "theirs")),
        lambda: gateway.delete(ObjectRef(NAMESPACE, "theirs")),
        lambda: gateway.delete(ObjectRef(PRIORITY_CLASS, "theirs")),
    ):
        with pytest.raises(ClusterRefused, match="with its label"):
            act()
    assert cluster.admin.get(ObjectRef(LIMIT_RANGE, "d", "theirs")) is not None


def test_rungs_own_work_goes_on(guarded: tuple[LabCluster, ClusterGateway]) -> None:
    cluster, gateway = guarded
    gateway.create(thing("Namespace", "ours", OURS))
    made = gateway.create(limits("ours", OURS))
    gateway.delete(ObjectRef(LIMIT_RANGE, "d", "ours"), uid=made["metadata"]["uid"])
    gateway.delete(ObjectRef(NAMESPACE, "ours"))
    report = try_connection(Connection(cluster.server, ca=cluster.ca, token=cluster.token), "kube")
    assert report.works
