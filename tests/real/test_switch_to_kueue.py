"""A living cluster goes from kube-scheduler to a real Kueue: rights first, then what stays and what is queued."""

import uuid
from collections.abc import Iterator

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.ports.connection import Connection
from clusters.ports.objects import KUEUE_WORKLOAD
from clusters.sync.models import OrphanedObject
from clusters.sync.services.scheduler_switch import plan_switch, switch_flavour
from portal.kit.security.actors import SYSTEM
from tests.real.product import PATIENCE, Product, fresh, grant
from tests.real.queued import a_job, two_projects
from tests.support.lab import LabCluster, has_rights
from tests.support.processes import eventually
from workloads.lifecycle.services import relocation
from workloads.lifecycle.services.actions import resume, stop
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket, pytest.mark.timeout(300)]
QUEUE = "kueue.x-k8s.io/queue-name"
GRACE = 20


@pytest.fixture
def product(
    kueue_cluster: LabCluster, db: None, socket_enabled: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Product]:
    """Under kube-scheduler at first, with the rights for that alone."""
    monkeypatch.setattr(relocation, "FIRST_THE_QUEUES", relocation.FIRST_THE_QUEUES * 0)
    grant(kueue_cluster, "kube")
    product = Product(kueue_cluster, uuid.uuid4().hex[:6])
    yield product
    product.end(KUEUE_WORKLOAD)


def is_queued(product: Product, workload: Workload) -> bool:
    Workload.objects.filter(pk=workload.pk).update(due_at=timezone.now())
    product.apply(workload)
    found = product.object_of(workload)
    return found is not None and QUEUE in found["metadata"]["labels"]


def test_rights_come_first_running_work_stays_and_what_is_resumed_at_once_is_queued(
    product: Product, kueue_cluster: LabCluster
) -> None:
    one, two = two_projects(product, deserved=16)
    requested = {"priority": "very-low", "preemptibility": "preemptible"}
    running = [
        product.submit(project, a_job(name, pods=2, grace=GRACE), **requested)
        for project, name in ((one, "r1"), (two, "r2"))
    ]
    for each in running:
        product.until(each, lambda row: row.phase == "Running")

    cluster = Cluster.objects.get(pk=product.cluster.pk)
    eventually(lambda: not plan_switch(cluster=cluster, flavour="kueue").possible, seconds=30)
    refused = plan_switch(cluster=cluster, flavour="kueue")
    assert "clusterqueues.kueue.x-k8s.io" in refused.hindrances.sentence
    assert "ClusterQueue.kueue.x-k8s.io" in refused.uncompared

    grant(kueue_cluster, "kueue", beside="kube")
    account = Connection(kueue_cluster.server, ca=kueue_cluster.ca, token=kueue_cluster.token)
    eventually(lambda: has_rights(account, "kueue"), seconds=60)
    plan = plan_switch(cluster=cluster, flavour="kueue")
    assert plan.possible, plan.hindrances.sentence
    assert plan.work.evicted is not None
    assert (plan.work.stays.count, plan.work.evicted.count, plan.work.uncounted) == (2, 0, 32_000)
    switch_flavour(cluster=cluster, flavour="kueue", generation=plan.generation, actor=SYSTEM)
    product.reconcile()

    strong = product.submit(one, a_job("strong"), priority="high", preemptibility="preemptible")
    waiting = product.until(strong, lambda row: row.phase_reason == "Unschedulable", work=True)
    assert waiting.running_pods == 0, "admitted beside what runs, it waits for a node"
    assert [fresh(each).phase for each in running] == ["Running", "Running"]
    assert not PreemptionRecord.objects.exists()

    stopped = running[1]
    stop(workload=fresh(stopped), actor=SYSTEM)
    product.apply(stopped)
    resume(workload=fresh(stopped), actor=SYSTEM)
    assert product.pods_of(stopped), "they still have their grace period"
    eventually(lambda: is_queued(product, stopped), seconds=PATIENCE)
    assert [each.workload_id for each in OrphanedObject.objects.all()] == [str(running[0].pk)]
