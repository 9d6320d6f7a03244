"""A living cluster gets another scheduler, on the real API server: as planned, and nothing else is touched."""

import uuid
from collections.abc import Iterator

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import KAI_QUEUE, PRIORITY_CLASS, RESOURCE_QUOTA, VOLCANO_QUEUE, ref_of
from clusters.sync.models import OrphanedObject
from clusters.sync.services.scheduler_switch import SwitchPlan, plan_switch, switch_flavour
from portal.kit.security.actors import SYSTEM
from tests.factories.workloads import bare_pod
from tests.real.product import Product, cluster_with_schedulers, grant
from tests.support.lab import Kept, LabCluster
from tests.support.processes import eventually
from workloads.lifecycle.services import relocation
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.lab
OURS = "app.kubernetes.io/managed-by=rung"
SCHEDULERS = {"kube": "default-scheduler", "kai": "kai-scheduler", "volcano": "volcano"}
TARGETS: dict[str, Kind] = {"kai": KAI_QUEUE, "volcano": VOLCANO_QUEUE}


@pytest.fixture
def lab(kept: Kept) -> LabCluster:
    """A control plane that serves the queues of both."""
    return kept.cluster(cluster_with_schedulers)


@pytest.fixture(params=list(TARGETS))
def target(request: pytest.FixtureRequest, lab: LabCluster) -> str:
    """The scheduler it goes to; the account has the rights for both sides."""
    grant(lab, "kube", beside=request.param)
    return str(request.param)


@pytest.fixture
def product(
    lab: LabCluster, target: str, db: None, socket_enabled: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Product]:
    """Under kube-scheduler at first. Nobody waits for the queues: the test makes them first."""
    monkeypatch.setattr(relocation, "FIRST_THE_QUEUES", relocation.FIRST_THE_QUEUES * 0)
    product = Product(lab, uuid.uuid4().hex[:6])
    yield product
    product.end()
    for kind in (*TARGETS.values(), PRIORITY_CLASS):
        for each in ours(product, kind):
            product.admin.delete(ref_of(each))


def ours(product: Product, kind: Kind) -> list[Manifest]:
    return list(product.admin.list(kind, labels=OURS))


def switch(product: Product, flavour: str) -> SwitchPlan:
    """Look at the plan, and do it."""
    cluster = Cluster.objects.get(pk=product.cluster.pk)
    plan = plan_switch(cluster=cluster, flavour=flavour)
    assert plan.possible, plan.hindrances
    switch_flavour(cluster=cluster, flavour=flavour, generation=plan.generation, actor=SYSTEM)
    product.reconcile()
    return plan


def made_for(product: Product, workload: Workload, scheduler: str) -> bool:
    """A worker takes the old object away, and makes the new one once it is gone."""

    def stands() -> bool:
        Workload.objects.filter(pk=workload.pk).update(due_at=timezone.now())
        product.apply(workload)
        found = product.object_of(workload)
        return found is not None and found["spec"]["schedulerName"] == scheduler

    eventually(stands, seconds=30)
    return True


def foreign(product: Product, kind: Kind) -> Manifest:
    """Somebody else's object of a kind that Rung is about to use."""
    name = f"foreign-{product.mark}"
    much = {"quota": 1, "limit": 1, "overQuotaWeight": 1}
    resources = {"resources": dict.fromkeys(("gpu", "cpu", "memory"), much)}
    spec = resources if kind is KAI_QUEUE else {"weight": 1}
    product.admin.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec})
    return product.admin.must(ObjectRef(kind, name))


def test_it_goes_as_planned_and_back_and_leaves_what_runs_and_what_is_foreign_alone(
    product: Product, target: str
) -> None:
    team, queues = product.project("switch", deserved=16, limit=16), TARGETS[target]
    product.reconcile()
    runs = product.submit(team, bare_pod("runs", gpus=6))
    runs = product.until(runs, lambda row: row.phase == Phase.RUNNING)
    waits = product.submit(team, bare_pod("waits", gpus=9))
    before, not_ours = product.object_of(runs), foreign(product, queues)
    assert before is not None

    plan = switch(product, target)
    planned = {each.kind: each for each in plan.kinds}
    assert (plan.conflicts, plan.work.stays.count, plan.work.recreated.count) == ((), 1, 1)
    assert len(ours(product, queues)) == planned[queues.key].create > 0
    assert planned["ResourceQuota"].delete > 0
    assert ours(product, RESOURCE_QUOTA) == []
    assert made_for(product, waits, SCHEDULERS[target])
    assert product.object_of(runs) == before
    assert list(OrphanedObject.objects.values_list("workload_id", flat=True)) == [str(runs.pk)]

    assert switch(product, "kube").work.recreated.count == 1
    assert made_for(product, waits, SCHEDULERS["kube"])
    product.reconcile()
    assert len(ours(product, RESOURCE_QUOTA)) == planned["ResourceQuota"].delete
    assert ours(product, queues) == []
    assert product.object_of(runs) == before
    assert product.admin.must(ref_of(not_ours)) == not_ours
    product.admin.delete(ref_of(not_ours))
