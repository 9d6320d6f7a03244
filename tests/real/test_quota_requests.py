"""A quota that is granted until a date, as the real API server holds it: raised, seen there, taken back."""

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.ports.objects import RESOURCE_QUOTA
from tenants.organisation.models import Project
from tests.factories.workloads import job
from tests.real.product import Product, quick
from tests.real.test_quotas import GPUS, HIGH
from workloads.lifecycle.services.actions import stop
from workloads.quota_requests.models import QuotaRequest
from workloads.quota_requests.selectors import sync_state
from workloads.quota_requests.services import approve_request, create_request, end_due
from workloads.state.models import Phase

pytestmark = pytest.mark.lab


def enforced(product: Product, project: Project) -> dict[str, str]:
    """GPUs of the deserved quota and of the limit, by the ResourceQuota that says so."""
    quotas = product.admin.list(RESOURCE_QUOTA, namespace=project.namespace)
    return {
        quota["metadata"]["name"]: quota["spec"]["hard"][GPUS]
        for quota in quotas
        if quota["metadata"]["name"] in {"rung-deserved", "rung-limit"}
    }


def reread(row: QuotaRequest) -> QuotaRequest:
    return QuotaRequest.objects.select_related("project__cluster", "node_pool").get(pk=row.pk)


def test_a_grant_reaches_the_api_server_lets_work_run_and_is_taken_back_after_its_date(product: Product) -> None:
    project = product.project("vision", deserved=2, limit=4)
    product.reconcile()
    assert enforced(product, project) == {"rung-deserved": "2", "rung-limit": "4"}
    requested = create_request(
        project=project,
        node_pool=product.pool,
        gpus=1,
        until=timezone.now().date(),
        reason="Paper deadline",
        actor=product.actor,
    )
    row = approve_request(key=requested.pk, base=requested.base, actor=product.actor)
    assert (row.state, sync_state(reread(row))) == ("approved", "pending")
    assert enforced(product, project)["rung-deserved"] == "2", "nothing reaches the cluster but by a sync run"
    product.reconcile()
    assert sync_state(reread(row)) == "synced"
    assert enforced(product, project) == {"rung-deserved": "3", "rung-limit": "5"}
    workload = product.submit(project, quick(job("urgent", gpus=3)), **HIGH)
    product.until(workload, lambda found: found.phase == Phase.RUNNING)
    assert row.ends_at is not None
    assert end_due(row.ends_at) == 0
    kept = reread(row)
    assert kept.kept_because == "Non-preemptible workloads use 3 GPUs, more than 2 GPUs. Stop some of them first."
    stop(workload=workload, actor=product.actor)
    product.apply(workload)
    product.until(workload, lambda found: not found.allocated_gpu_milli and found.phase == Phase.STOPPED)
    assert end_due(row.ends_at + timedelta(minutes=1)) == 1
    assert (reread(row).state, sync_state(reread(row))) == ("ended", "pending")
    product.reconcile()
    assert sync_state(reread(row)) == "synced"
    assert enforced(product, project) == {"rung-deserved": "2", "rung-limit": "4"}
