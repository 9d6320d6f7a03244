"""What Kueue evicts is all that is evicted: real pods with a real grace period, and a real kube-scheduler beside it."""

import uuid
from collections.abc import Iterator

import pytest

from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import KUEUE_WORKLOAD, PRIORITY_CLASS
from portal.kit.security.actors import SYSTEM
from tests.clusters.watch.streaming import streaming
from tests.factories.workloads import spec_of
from tests.real.product import PATIENCE, Product, fresh
from tests.real.queued import a_job, in_phase, running, two_projects
from tests.support.lab import LabCluster
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.preemption.models import PreemptionRecord

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket, pytest.mark.timeout(300)]
GRACE = 15


@pytest.fixture
def product(kueue_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights."""
    product = Product(kueue_cluster, uuid.uuid4().hex[:6], "kueue")
    yield product
    product.end(KUEUE_WORKLOAD)


def test_while_its_victims_end_a_preemptor_takes_no_pod_of_a_project_inside_its_quota(product: Product) -> None:
    """The innocent pods are the weakest on the nodes: kube-scheduler would choose them, if it were let."""
    one, two = two_projects(product, deserved=16)
    with streaming(product.cluster, product.gateway) as watching:
        innocent = [
            running(product, watching, two, a_job(name, grace=GRACE), priority="very-low") for name in ("r1", "r2")
        ]
        victims = {running(product, watching, one, a_job(name, grace=GRACE), priority="low") for name in ("q2", "q3")}
        strong = a_job("strong", pods=2, grace=GRACE)
        requested = {"priority": "high", "preemptibility": "preemptible"}
        said = forecast(spec=spec_of(strong, namespace=one.namespace, **requested), project=one, actor=SYSTEM)
        assert (said.verdict, {each.workload for each in said.victims}) == (Verdict.EVICTS, victims)
        preemptor = product.submit(one, strong, **requested)
        watching.until(in_phase(preemptor, "Running"), seconds=PATIENCE + GRACE)
        watching.until(lambda: PreemptionRecord.objects.count() >= len(victims), seconds=PATIENCE)
    gone = {each.victim for each in PreemptionRecord.objects.all()}
    assert gone == victims, "only those that were predicted"
    assert [fresh(each).preempted_count for each in innocent] == [0, 0]
    assert {pod["spec"]["preemptionPolicy"] for each in innocent for pod in product.pods_of(each)} == {"Never"}
    assert product.admin.must(ObjectRef(PRIORITY_CLASS, "high"))["preemptionPolicy"] == "Never"
