"""What the real API server refuses over each quota, read back as the reason a workload waits, with its numbers."""

from collections.abc import Callable
from typing import Any

import pytest

from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import LIMIT_RANGE, NAMESPACE, PRIORITY_CLASS, RESOURCE_QUOTA
from tenants.organisation.models import Project
from tenants.quotas.models import PriorityCap
from tests.factories.tenants import GPU
from tests.factories.workloads import bare_pod, deployment, job
from tests.real.product import Product, fresh, quick
from workloads.dictionary.models import Priority
from workloads.forecast.rules.reasons import SCHEDULER_MESSAGE
from workloads.lifecycle.services.actions import stop
from workloads.state.models import Phase, Workload

pytestmark = pytest.mark.lab
GPUS = "requests.nvidia.com/gpu"
MAKERS: dict[str, Callable[..., Manifest]] = {"Job": job, "Deployment": deployment, "Pod": bare_pod}
every_kind = pytest.mark.parametrize("kind", sorted(MAKERS))


def filled(product: Product, project: Project, **requested: Any) -> Workload:
    """Three of the project's GPUs are in use."""
    product.reconcile()
    first = product.submit(project, quick(job("first", gpus=3)), **requested)
    return product.until(first, lambda row: row.phase == Phase.RUNNING)


def refused(product: Product, project: Project, kind: str = "Job", **requested: Any) -> Workload:
    """Two more, which the API server refuses."""
    workload = product.submit(project, MAKERS[kind]("second", gpus=2), **requested)
    return product.until(workload, lambda row: row.phase == Phase.PENDING and row.phase_reason)


def numbers(workload: Workload) -> dict[str, str]:
    """The refusal's numbers in the timeline, which has the server's own text beside them."""
    found = workload.timeline.filter(detail__has_key="quota").first()
    if found is None:
        return {}
    assert f"exceeded quota: {found.detail['quota']}" in found.detail[SCHEDULER_MESSAGE]
    return {name: text for name, text in found.detail.items() if name != SCHEDULER_MESSAGE}


def of_gpus(quota: str, *, requested: int, used: int, limited: int) -> dict[str, str]:
    amounts = {"requested": requested, "used": used, "limited": limited}
    return {"quota": quota, **{name: f"{GPUS}={amount}" for name, amount in amounts.items()}}


LOW = {"priority": "low", "preemptibility": "preemptible"}
HIGH = {"priority": "high", "preemptibility": "non-preemptible"}


@every_kind
def test_over_the_limit_it_waits_with_the_limits_numbers(product: Product, kind: str) -> None:
    project = product.project("vision", deserved=2, limit=4)
    filled(product, project, **LOW)
    second = refused(product, project, kind, **LOW)
    assert second.phase_reason == "OverLimit"
    assert numbers(second) == of_gpus("rung-limit", requested=2, used=3, limited=4)
    assert product.pods_of(second) == []


@every_kind
def test_non_preemptible_work_over_the_deserved_quota_waits(product: Product, kind: str) -> None:
    project = product.project("vision", deserved=4)
    filled(product, project, **HIGH)
    second = refused(product, project, kind, **HIGH)
    assert second.phase_reason == "NonPreemptibleOverQuota"
    assert numbers(second) == of_gpus("rung-deserved", requested=2, used=3, limited=4)


def test_preemptible_work_passes_the_deserved_quota(product: Product) -> None:
    project = product.project("vision", deserved=4)
    filled(product, project, **HIGH)
    second = product.submit(project, job("second", gpus=2), **LOW)
    product.until(second, lambda row: row.phase == Phase.RUNNING)


@every_kind
def test_over_the_cap_of_its_priority_it_waits(product: Product, kind: str) -> None:
    project = product.project("vision")
    PriorityCap.objects.create(project=project, priority="low", gpu_limit=4 * GPU)
    filled(product, project, **LOW)
    second = refused(product, project, kind, **LOW)
    assert second.phase_reason == "OverPriorityCap"
    assert numbers(second) == of_gpus("rung-cap-low", requested=2, used=3, limited=4)
    other = product.submit(project, job("third", gpus=2), priority="medium", preemptibility="preemptible")
    product.until(other, lambda row: row.phase == Phase.RUNNING)


@every_kind
def test_a_freed_quota_is_taken_later(product: Product, kind: str) -> None:
    """A Job's controller asks again after 1, 2, 4 … 60 seconds; for a bare pod Rung does.

    A Deployment's doubles its delay up to a quarter of an hour: soon after the refusal it is still short.
    """
    project = product.project("vision", deserved=2, limit=4)
    first = filled(product, project, **LOW)
    second = refused(product, project, kind, **LOW)
    stop(workload=fresh(first), actor=product.actor)
    product.apply(first)
    started = product.until(second, lambda row: row.phase == Phase.RUNNING, work=kind == "Pod")
    assert started.phase_reason == ""


def test_what_reconcile_writes_is_what_the_server_holds(product: Product) -> None:
    project = product.project("vision", deserved=4, limit=8)
    product.reconcile()
    for name, value, policy in Priority.objects.values_list("name", "value", "preemption_policy"):
        found = product.admin.must(ObjectRef(PRIORITY_CLASS, name))
        assert (found["value"], found["preemptionPolicy"], found.get("globalDefault", False)) == (value, policy, False)
    space = product.admin.must(ObjectRef(NAMESPACE, project.namespace))
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert product.admin.get(ObjectRef(LIMIT_RANGE, "rung-defaults", project.namespace))
    deserved = product.admin.must(ObjectRef(RESOURCE_QUOTA, "rung-deserved", project.namespace))
    (scope,) = deserved["spec"]["scopeSelector"]["matchExpressions"]
    assert scope["values"] == ["high", "very-high"]


def test_a_class_that_never_preempts_waits_where_another_evicts(product: Product) -> None:
    Priority.objects.filter(name="high").update(preemption_policy="Never")
    project = product.project("vision", deserved=64)
    product.reconcile()
    running = [product.submit(project, quick(job(f"low-{number}", gpus=8)), **LOW) for number in range(4)]
    for each in running:
        product.until(each, lambda row: row.phase == Phase.RUNNING)
    polite = product.submit(project, job("polite", gpus=8), **HIGH)
    waits = product.until(polite, lambda row: row.phase_reason == "Unschedulable")
    assert waits.phase == Phase.PENDING
    rude = product.submit(project, job("rude", gpus=8), priority="very-high", preemptibility="non-preemptible")
    product.until(rude, lambda row: row.phase == Phase.RUNNING)
    assert sum(fresh(each).preemptions.count() for each in running) == 1
