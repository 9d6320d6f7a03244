"""A real kube-scheduler evicts whoever is weaker, however young: what Rung holds back never reaches it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.inventory.services.inventory import set_defer_preemptors
from clusters.ports.objects import NODE
from portal.kit.security.actors import SYSTEM
from tenants.quotas.services.runtime_rules import remove_min_runtime, set_min_runtime
from tests.factories.workloads import spec_of
from tests.real.product import Product, fresh
from tests.real.test_preemption_records import batch_job
from workloads.detectors.models import Finding
from workloads.detectors.rules import FindingKind
from workloads.detectors.services import detect
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.actions import resume, stop
from workloads.plans.services.plans import apply_plan, plan_change
from workloads.state.models import Workload

pytestmark = pytest.mark.lab
HELD = ("Pending", "HeldBack")


def test_protected_work_keeps_its_place_until_the_rule_is_lifted(product: Product) -> None:
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


def test_a_finding_names_who_was_evicted_inside_a_minimum_runtime_and_its_advice_protects_the_rest(
    product: Product,
) -> None:
    project = product.project("team", deserved=64)
    set_min_runtime(owner=project, minutes=30, actor=SYSTEM)
    product.reconcile()
    nodes = product.admin.list(NODE)
    young = product.submit(project, batch_job("young", pods=len(nodes)), priority="low")
    product.until(young, lambda found: found.running_pods == len(nodes) and has_run(found, timedelta(seconds=2)))
    spec = spec_of(batch_job("first"), namespace=project.namespace, priority="high")
    said = forecast(spec=spec, project=project, actor=SYSTEM)
    assert (said.verdict, [each.workload for each in said.victims]) == (Verdict.EVICTS, [young])
    first = product.submit(project, batch_job("first"), priority="high")
    product.until(first, lambda found: found.phase == "Running")
    product.until(young, lambda found: found.preempted_count == 1)
    detect(product.cluster, timezone.now())
    finding = Finding.objects.get(kind=FindingKind.INSIDE_MIN_RUNTIME)
    assert [each["name"] for each in finding.named] == ["young", "first"]
    assert finding.advice.endswith("Let Rung defer preemptors on this cluster.")
    change = {"cluster": product.cluster.name, "defer_preemptors": True}
    plan = apply_plan(plan=plan_change(kind="defer_preemptors", change=change, actor=SYSTEM), actor=SYSTEM)
    assert [each["name"] for each in plan.effect["workloads"]["protected"]["examples"]] == ["young"]
    second = product.submit(project, batch_job("second"), priority="high")
    assert state(second) == HELD
    product.look()
    assert fresh(young).running_pods == len(nodes) - 1


def has_run(workload: Workload, time: timedelta) -> bool:
    """Long enough to have something to lose: API servers count in seconds."""
    return workload.started_at is not None and timezone.now() - workload.started_at >= time


def state(workload: Workload) -> tuple[str, str]:
    found = fresh(workload)
    return found.phase, found.phase_reason
