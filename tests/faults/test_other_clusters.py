"""F8: while one cluster is a black hole, another one is served as before, by the same observer and the same workers."""

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

import pytest
from django.db import connection
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import NAMESPACE, POD
from clusters.sync.tasks import reconcile_cluster
from clusters.watch.models import ObservedPod
from tenants.organisation.models import Project
from tests.faults.invariants import assert_all, quotas_of
from tests.faults.observing import observer
from tests.faults.rig import PATIENCE, SEEDS, Rig
from tests.support.faultproxy import FaultProxy
from tests.support.lab import LabCluster, own_cluster
from tests.support.processes import eventually

pytestmark = [pytest.mark.postgres, pytest.mark.parametrize("seed", SEEDS)]
WORKERS = 2
ROUNDS = 5
LONGER = 4
"""A wait for the other cluster's deadlines would be ten times as long and more."""


@pytest.fixture(scope="module")
def second_cluster() -> Iterator[LabCluster]:
    with own_cluster() as cluster:
        yield cluster


@pytest.fixture
def healthy(rig: Rig, second_cluster: LabCluster, seed: int) -> Iterator[Rig]:
    """A cluster beside the rig's that nothing ever happens to."""
    with FaultProxy(second_cluster, seed) as proxy:
        other = Rig(second_cluster, proxy, uuid.uuid4().hex[:6], seed)
        try:
            yield other
        finally:
            other.end()


@contextmanager
def workers(*rigs: Rig) -> Iterator[None]:
    """As few workers as there are, and a sweep that finds every cluster due all the time."""
    stop = threading.Event()

    def bring(rig: Rig) -> None:
        try:
            Cluster.objects.filter(pk=rig.cluster.pk).update(sync_due_at=timezone.now())
            reconcile_cluster(str(rig.cluster.pk))
        finally:
            connection.close()

    def sweep() -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            at_work: dict[str, Future[None]] = {}
            while not stop.wait(0.05):
                for rig in rigs:
                    if rig.mark not in at_work or at_work[rig.mark].done():
                        at_work[rig.mark] = pool.submit(bring, rig)

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def served(rig: Rig, project: Project, namespace: str, number: int) -> tuple[float, float]:
    """Seconds until a new quota is enforced, and until a new pod is known."""
    begun = time.monotonic()
    rig.grant(project, 1 + number % 7)
    wanted = rig.ledger.last()[project.namespace]
    key = (project.namespace, "rung-deserved")
    eventually(lambda: quotas_of(rig.admin).get(key) == wanted["rung-deserved"], seconds=PATIENCE)
    enforced = time.monotonic()
    spec = {"containers": [{"name": "main", "image": "any"}]}
    metadata = {"name": f"pod-{number}", "namespace": namespace}
    made = rig.admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    known = ObservedPod.objects.filter(cluster=rig.cluster, uid=made["metadata"]["uid"])
    eventually(known.exists, seconds=PATIENCE)
    return enforced - begun, time.monotonic() - enforced


def test_f8_a_black_hole_costs_the_others_nothing(rig: Rig, healthy: Rig) -> None:
    rig.projects(2)
    (project,) = healthy.projects(1)
    namespace = healthy.admin.namespace(f"somebody-{healthy.mark}")
    with observer(), workers(rig, healthy):
        eventually(lambda: not (rig.troubles() | healthy.troubles()), seconds=PATIENCE)
        usual = [served(healthy, project, namespace, number) for number in range(ROUNDS)]
        rig.proxy.go_deaf()
        eventually(lambda: "failing" in rig.troubles(), seconds=PATIENCE)
        beside = [served(healthy, project, namespace, number) for number in range(ROUNDS, 2 * ROUNDS)]
        assert Cluster.objects.get(pk=rig.cluster.pk).failures
        rig.proxy.heal()
    for before, after in zip(zip(*usual, strict=True), zip(*beside, strict=True), strict=True):
        assert median(after) <= LONGER * median(before), (before, after)
    for number in range(2 * ROUNDS):
        healthy.admin.delete(ObjectRef(POD, f"pod-{number}", namespace), grace=0)
    healthy.admin.delete(ObjectRef(NAMESPACE, namespace))
    rig.settle()
    assert_all(healthy, [])
