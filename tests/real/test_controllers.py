"""A real API server takes kinds of which no operator runs: after a minute Rung says so, until something answers."""

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.inventory.models import Cluster
from tests.factories.workloads import pytorch_job
from tests.real.product import Product, fresh
from workloads.lifecycle.services.observe import PATIENCE, check_controllers

pytestmark = pytest.mark.lab


def test_a_kind_without_its_operator_is_named_until_its_object_gets_a_status(product: Product) -> None:
    project = product.project("vision", deserved=8)
    product.reconcile()
    workload = product.submit(project, pytorch_job(), priority="low", preemptibility="preemptible")
    product.look()
    later = timezone.now() + PATIENCE + timedelta(seconds=5)
    Cluster.objects.filter(pk=product.cluster.pk).update(observed_at=later)
    check_controllers(later)
    found = fresh(workload)
    assert (found.phase, found.phase_reason) == ("Pending", "NoController")
    live = product.object_of(workload)
    assert live is not None
    product.admin.patch_status(product.admin.ref(live), {"conditions": [{"type": "Created", "status": "True"}]})
    product.look()
    Cluster.objects.filter(pk=product.cluster.pk).update(observed_at=later)
    check_controllers(later)
    assert fresh(workload).phase_reason == "HandedOver"
    assert Cluster.objects.get(pk=product.cluster.pk).silent_kinds == {}
