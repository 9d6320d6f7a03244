"""A real kube-scheduler evicts whoever is weaker, however young: what Rung holds back never reaches it."""

import pytest

from clusters.inventory.services.inventory import set_defer_preemptors
from clusters.ports.objects import NODE
from portal.kit.security.actors import SYSTEM
from tenants.quotas.services.runtime_rules import remove_min_runtime, set_min_runtime
from tests.real.product import Product, fresh
from tests.real.test_preemption_records import batch_job
from workloads.lifecycle.services.actions import resume, stop
from workloads.state.models import Workload

pytestmark = pytest.mark.lab
HELD = ("Pending", "HeldBack")


def test_young_work_keeps_its_place_until_the_rule_is_lifted(product: Product) -> None:
    """The stronger one is not in the cluster meanwhile, or suspended there."""
    project = product.project("team", deserved=64)
    set_defer_preemptors(cluster=product.cluster, enabled=True, actor=SYSTEM)
    rule = set_min_runtime(owner=project, minutes=30, actor=SYSTEM)
    product.reconcile()
    nodes = {node["metadata"]["name"] for node in product.admin.list(NODE)}
    young = product.submit(project, batch_job("young", pods=len(nodes)), priority="low")
    product.until(young, lambda found: found.running_pods == len(nodes))
    strong = product.submit(project, batch_job("strong"), priority="high")
    assert state(strong) == HELD
    assert product.object_of(strong) is None
    stop(workload=fresh(strong), actor=SYSTEM)
    product.until(strong, lambda found: found.phase == "Stopped", work=True)
    resume(workload=fresh(strong), actor=SYSTEM)
    product.apply(strong)
    product.look()
    assert state(strong) == HELD
    assert product.pods_of(strong) == []
    remove_min_runtime(rule=rule, actor=SYSTEM)
    product.until(strong, lambda found: found.phase == "Running", work=True)
    product.until(young, lambda found: found.preempted_count == 1)


def state(workload: Workload) -> tuple[str, str]:
    found = fresh(workload)
    return found.phase, found.phase_reason
