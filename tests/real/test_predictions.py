"""What a plan and a start estimate say, and what the real kube-scheduler and API server then do."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.ports.gateway import ObjectRef
from clusters.ports.objects import POD, RESOURCE_QUOTA
from tenants.organisation.models import Project
from tests.factories.tenants import GPU
from tests.factories.workloads import WorkloadFactory, job
from tests.real.product import Product, fresh, quick
from tests.real.test_quotas import GPUS, LOW
from workloads.forecast.selectors.start_estimate import start_estimate
from workloads.plans.services.plans import apply_plan, plan_change, plan_inverse
from workloads.state.models import Phase, Workload

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def running(product: Product, project: Project, name: str, gpus: int) -> Workload:
    workload = product.submit(project, quick(job(name, gpus=gpus)), **LOW)
    return product.until(workload, lambda row: row.phase == Phase.RUNNING)


def waiting(product: Product, project: Project, name: str, gpus: int) -> Workload:
    workload = product.submit(project, quick(job(name, gpus=gpus)), **LOW)
    return product.until(workload, lambda row: row.phase == Phase.PENDING and row.phase_reason)


def limit_of(product: Product, project: Project) -> str:
    quotas = product.admin.list(RESOURCE_QUOTA, namespace=project.namespace)
    (found,) = (quota["spec"]["hard"][GPUS] for quota in quotas if quota["metadata"]["name"] == "rung-limit")
    return str(found)


def named(effect: dict[str, Any], group: str) -> list[str]:
    return [each["name"] for each in effect["workloads"][group]["examples"]]


def test_what_a_plan_says_no_longer_fits_waits_until_the_plan_is_rolled_back(product: Product) -> None:
    project = product.project("vision", deserved=2, limit=8)
    product.reconcile()
    first = running(product, project, "first", 6)
    second = waiting(product, project, "second", 4)
    change = {"project": project.name, "pool": "lab", "values": {"gpu_limit": 3 * GPU}, "reason": "Fewer nodes"}
    plan = plan_change(kind="project_quota", change=change, actor=product.actor)
    assert named(plan.effect, "no_longer_fit") == ["second"]
    (on_cluster,) = plan.effect["objects"]
    assert [(each["mark"], each["kind"]) for each in on_cluster["changes"]] == [("~", "ResourceQuota")]
    assert limit_of(product, project) == "8", "a plan changes nothing"
    applied = apply_plan(plan=plan, actor=product.actor)
    product.reconcile()
    assert limit_of(product, project) == "3"
    product.stop(first)
    third = running(product, project, "third", 1)
    assert third.running_pods == 1, "the quota admits what fits"
    assert fresh(second).phase == Phase.PENDING
    assert product.pods_of(second) == []
    apply_plan(plan=plan_inverse(plan=applied, actor=product.actor), actor=product.actor)
    product.reconcile()
    assert limit_of(product, project) == "8"
    product.until(second, lambda row: row.phase == Phase.RUNNING)


def test_a_workload_starts_when_its_start_estimate_says(product: Product) -> None:
    project = product.project("vision", deserved=64)
    product.reconcile()
    holders = [running(product, project, f"holder-{number}", 8) for number in range(4)]
    for each in holders:
        (pod,) = product.pods_of(each)
        ref = ObjectRef(POD, pod["metadata"]["name"], project.namespace)
        product.admin.patch(ref, {"metadata": {"annotations": {"lab.rung.dev/run-for": "40s"}}})
    annotated = timezone.now()
    for seconds in range(35, 46):
        done = timezone.now() - timedelta(hours=1)
        WorkloadFactory(
            project=project,
            name=f"ended-{seconds}",
            type=holders[0].type,
            gpu_milli=holders[0].gpu_milli,
            phase=Phase.COMPLETED,
            phase_at=done,
            started_at=done - timedelta(seconds=seconds),
            completed_at=done,
        )
    mine = waiting(product, project, "mine", 8)
    found = start_estimate(fresh(mine))
    assert found is not None
    assert found.median is not None
    assert found.p90 is not None
    assert found.median > timezone.now()
    product.until(mine, lambda row: row.phase == Phase.RUNNING)
    began = fresh(mine).started_at
    assert began is not None
    late = annotated - min(row.started_at for row in map(fresh, holders) if row.started_at)
    assert found.median - timedelta(seconds=10) <= began <= found.p90 + late + timedelta(seconds=10)
