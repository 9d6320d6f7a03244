"""What others have added to Rung's queues, or beside them, put to a real Kueue."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from clusters.inventory.models import Cluster
from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import KUEUE_QUEUE, KUEUE_WORKLOAD
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.clusters.watch.streaming import streaming
from tests.factories.workloads import spec_of
from tests.real.product import PATIENCE, Product
from tests.real.queued import a_job, in_phase, two_projects
from tests.support.lab import LabCluster
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.rules.messages import DoubtCode
from workloads.forecast.selectors.preview import forecast

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket]
CHECK = Kind("kueue.x-k8s.io", "v1beta2", "AdmissionCheck", "admissionchecks", namespaced=False)
ASKED = {"priority": "low", "preemptibility": "preemptible"}


@pytest.fixture
def product(kueue_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    product = Product(kueue_cluster, uuid.uuid4().hex[:6], "kueue")
    yield product
    product.end(KUEUE_WORKLOAD)
    for kind in (CHECK, KUEUE_QUEUE):
        product.admin.delete(ObjectRef(kind, f"others-{product.mark}"))


def forecast_of(product: Product, project: Project, manifest: Manifest) -> Forecast:
    """After everything that others own has been read."""
    Cluster.objects.update(resync_due_at=None)
    product.reconcile()
    product.look()
    current = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    return forecast(spec=spec_of(manifest, namespace=project.namespace, **ASKED), project=current, actor=SYSTEM)


def sentence(answer: Forecast, code: DoubtCode) -> str:
    return next(each.sentence for each in answer.doubts if each.code == code)


def test_quota_of_a_queue_that_rung_did_not_make_is_a_doubt_and_lets_a_job_start(product: Product) -> None:
    one, _two = two_projects(product)
    groups = product.admin.must(ObjectRef(KUEUE_QUEUE, one.owner))["spec"]["resourceGroups"]
    for resource in groups[0]["flavors"][0]["resources"]:
        resource |= {"nominalQuota": "64", "lendingLimit": "32"}
        resource.pop("borrowingLimit", None)
    spec = {"cohortName": product.department.owner, "resourceGroups": groups, "namespaceSelector": {}}
    name = {"metadata": {"name": f"others-{product.mark}"}}
    product.admin.create({"apiVersion": KUEUE_QUEUE.api_version, "kind": KUEUE_QUEUE.kind, **name, "spec": spec})
    large = a_job("large", pods=3)
    answer = forecast_of(product, one, large)
    assert answer.verdict is Verdict.WAITS, "Rung knows the quotas of two projects, with two thirds of these GPUs"
    said = sentence(answer, DoubtCode.QUEUES_OF_OTHERS)
    assert "1 queue or cohort that Rung did not make shares quota with its queues, some with lending limits" in said
    with streaming(product.cluster, product.gateway) as watching:
        workload = product.submit(one, large, **ASKED)
        watching.until(in_phase(workload, "Running"), seconds=PATIENCE)


@contextmanager
def checked(product: Product, queue: ObjectRef) -> Iterator[None]:
    """Its queue has an admission check that no controller answers; the next test may have a queue of the same name."""
    name = f"others-{product.mark}"
    check = {"metadata": {"name": name}, "spec": {"controllerName": "example.com/unknown"}}
    product.admin.create({"apiVersion": CHECK.api_version, "kind": CHECK.kind, **check})
    product.admin.patch(queue, {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}}})
    try:
        yield
    finally:
        product.admin.patch(queue, {"spec": {"admissionChecksStrategy": None}})


def test_an_admission_check_is_a_doubt_and_keeps_a_job_waiting(product: Product) -> None:
    one, _two = two_projects(product)
    with checked(product, ObjectRef(KUEUE_QUEUE, one.owner)):
        answer = forecast_of(product, one, a_job("checked"))
        assert answer.verdict is Verdict.STARTS
        assert DoubtCode.ADMISSION_CHECKS in {each.code for each in answer.doubts}
        with streaming(product.cluster, product.gateway) as watching:
            workload = product.submit(one, a_job("checked"), **ASKED)
            watching.until(lambda: f"{one.owner} is inactive" in waiting_in(product, one), seconds=PATIENCE)
        assert product.pods_of(workload) == []


def waiting_in(product: Product, project: Project) -> str:
    """What Kueue says of its workloads."""
    found = product.admin.list(KUEUE_WORKLOAD, namespace=project.namespace)
    return str([each.get("status", {}).get("conditions") for each in found])
