"""What a forecast names as a doubt, or answers with never, put to a real kube-scheduler."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import BUDGET, ref_of
from scheduling.rules.kube.preemption import equally_good
from tenants.organisation.models import Project
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, DepartmentQuotaFactory, ProjectQuotaFactory
from tests.factories.workloads import job
from tests.real.product import Product
from tests.real.test_statements import GPUS, HIGH, LOW, NODES, asking, forecast_of, runs, waits
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.rules.messages import DoubtCode
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def registries(settings: Settings) -> None:
    settings.RUNG_IMAGE_REGISTRIES = ["registry.example"]


@pytest.fixture
def team(product: Product) -> Project:
    project = product.project("team", deserved=NODES * GPUS)
    product.reconcile()
    product.look()
    return project


def codes(answer: Forecast) -> set[DoubtCode]:
    return {each.code for each in answer.doubts}


def said_of_waiting(product: Product, workload: Workload) -> str:
    """What the scheduler says of its only pod without a node."""
    [pod] = [each for each in product.pods_of(workload) if not each["spec"].get("nodeName")]
    return str(pod["status"].get("conditions"))


def with_pod(manifest: Manifest, **fields: Any) -> Manifest:
    manifest["spec"]["template"]["spec"] |= fields
    return manifest


def test_ephemeral_storage_above_every_node_never_fits_and_stays_pending(product: Product, team: Project) -> None:
    manifest = asking("large")
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"]["ephemeral-storage"] = "900Ti"
    answer = forecast_of(team, manifest, **LOW)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NeverFits")
    assert "Insufficient ephemeral-storage" in said_of_waiting(product, waits(product, team, manifest))


@pytest.fixture
def pool_of(product: Product, team: Project) -> Iterator[Callable[..., str]]:
    """Makes a node pool of so many nodes with one resource."""
    made: list[Manifest] = []

    def make(name: str, resource: str, amount: int, *, nodes: int = 1) -> str:
        pool = NodePoolFactory(cluster=product.cluster, name=name)
        quota = {"node_pool": pool, "gpu_deserved": max(amount * nodes, 8) * GPU}
        DepartmentQuotaFactory(department=product.department, **quota)
        ProjectQuotaFactory(project=team, **quota)
        size = {"cpu": "64", "memory": "256Gi", "pods": "110", resource: str(amount)}
        for number in range(nodes):
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": f"{name}-{product.mark}-{number}",
                    "labels": {pool.label_key: pool.label_value},
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
            }
            product.admin.create(node)
            made.append(node)
        for node in made:  # a new node is tainted until the controller manager has seen that it is ready
            product.admin.wait_until(ref_of(node), lambda found: not found["spec"].get("taints"))
        product.reconcile()
        product.look()
        return str(pool.name)

    yield make
    for node in made:
        product.admin.delete(ref_of(node))


def test_a_whole_gpu_on_nodes_of_slices_never_fits_and_stays_pending(
    product: Product, team: Project, pool_of: Callable[..., str]
) -> None:
    slices = pool_of("slices", "nvidia.com/mig-1g.10gb", 7)
    manifest, requested = asking("whole"), {**LOW, "node_pools": (slices,)}
    answer = forecast_of(team, manifest, **requested)
    assert (answer.verdict, answer.reason) == (Verdict.WAITS, "NeverFits")
    assert "its nodes offer nvidia.com/mig-1g.10gb" in answer.sentence
    assert "Insufficient nvidia.com/gpu" in said_of_waiting(product, waits(product, team, manifest, **requested))


def test_a_claim_that_does_not_exist_is_a_doubt_and_the_pod_waits(product: Product, team: Project) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    manifest = with_pod(asking("mounts"), volumes=[volume])
    assert DoubtCode.VOLUME_CLAIM in codes(forecast_of(team, manifest, **LOW))
    said = said_of_waiting(product, waits(product, team, manifest))
    assert 'persistentvolumeclaim "nowhere" not found' in said


def test_pods_that_must_be_spread_wait_where_only_one_node_has_room(product: Product, team: Project) -> None:
    runs(product, team, asking("full", gpus=GPUS, pods=NODES - 1), pods=NODES - 1, **HIGH)
    labels = {"app": "apart"}
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    manifest = with_pod(
        asking("apart", pods=2), topologySpreadConstraints=[{**constraint, "labelSelector": {"matchLabels": labels}}]
    )
    manifest["spec"]["template"]["metadata"] = {"labels": labels}
    assert DoubtCode.TOPOLOGY_SPREAD in codes(forecast_of(team, manifest, **LOW))
    workload = product.submit(team, manifest, **LOW)
    product.until(workload, lambda row: row.running_pods == 1)
    assert "topology spread constraints" in said_of_waiting(product, workload)


def test_a_disruption_budget_on_the_weakest_is_a_doubt_and_another_is_evicted(product: Product, team: Project) -> None:
    weak = runs(product, team, asking("weak", gpus=GPUS), priority="very-low", preemptibility="preemptible")
    runs(product, team, asking("rest", gpus=GPUS, pods=NODES - 1), pods=NODES - 1, **LOW)
    for pod in product.pods_of(weak):
        labels = {"matchLabels": {"rung.dev/owner": pod["metadata"]["labels"]["rung.dev/owner"]}}
        budget = {
            "apiVersion": BUDGET.api_version,
            "kind": BUDGET.kind,
            "metadata": {"name": "kept", "namespace": team.namespace},
            "spec": {"minAvailable": 1, "selector": labels},
        }
        product.admin.apply(budget, manager="test")
    kept = ObjectRef(BUDGET, "kept", team.namespace)
    product.admin.wait_until(kept, lambda found: found.get("status", {}).get("expectedPods") == 1)
    Cluster.objects.update(resync_due_at=None)
    product.reconcile()
    product.look()
    answer = forecast_of(team, job("strong", gpus=GPUS), **HIGH)
    assert (answer.verdict, [each.label for each in answer.victims]) == (Verdict.EVICTS, ["weak"])
    assert DoubtCode.DISRUPTION_BUDGETS in codes(answer)
    runs(product, team, asking("strong", gpus=GPUS), **HIGH)
    assert len([pod for pod in product.pods_of(weak) if not pod["metadata"].get("deletionTimestamp")]) == 1


def test_above_100_nodes_it_evicts_on_one_of_the_nodes_that_the_doubt_counts(
    product: Product, team: Project, pool_of: Callable[..., str]
) -> None:
    pool = {"node_pools": (pool_of("many", "nvidia.com/gpu", 1, nodes=104),)}
    weak = runs(product, team, asking("weak", pods=60), pods=60, **{**LOW, **pool, "priority": "very-low"})
    runs(product, team, asking("rest", pods=44), pods=44, **{**LOW, **pool})
    answer = forecast_of(team, asking("strong"), **{**HIGH, **pool})
    assert answer.verdict is Verdict.EVICTS
    assert DoubtCode.NODES_SAMPLED in codes(answer)
    assert answer.basis is not None
    _nodes, equal = equally_good(answer.basis.snapshot, answer.basis.candidates[0])
    assert set(equal) <= {pod["spec"]["nodeName"] for pod in product.pods_of(weak)}
    strong = runs(product, team, asking("strong"), **{**HIGH, **pool})
    assert product.pods_of(strong)[0]["spec"]["nodeName"] in equal


def test_of_victims_that_started_in_one_second_it_evicts_one_that_the_forecast_names(
    product: Product, team: Project, pool_of: Callable[..., str]
) -> None:
    pool = {"node_pools": (pool_of("tied", "nvidia.com/gpu", 1, nodes=3),)}
    weak = [runs(product, team, asking(f"weak-{number}"), **{**LOW, **pool}) for number in range(3)]
    began = f"{timezone.now() - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    for workload in weak:
        (pod,) = product.pods_of(workload)
        product.admin.patch_status(ref_of(pod), {"startTime": began})
    product.look()
    answer = forecast_of(team, asking("strong"), **{**HIGH, **pool})
    (victim,) = answer.victims
    (tied,) = (each.sentence for each in answer.doubts if each.code is DoubtCode.TIED_VICTIMS)
    runs(product, team, asking("strong"), **{**HIGH, **pool})
    (evicted,) = PreemptionRecord.objects.filter(preemptor__name="strong").values_list("victim__name", flat=True)
    others = {each.name for each in weak} - {victim.label}
    assert f"{' or '.join(sorted(others))} may be evicted instead" in tied
    assert evicted in {victim.label, *others}


def container(resource: str, amount: int, **more: Any) -> Manifest:
    requested = {resource: str(amount)}
    return {
        "name": f"c-{uuid4().hex[:6]}",
        "image": "work",
        "resources": {"requests": requested, "limits": requested},
        **more,
    }


GPU_NAME = "nvidia.com/gpu"
COUNTED = {
    "a sidecar, beside the main container": (
        GPU_NAME,
        {
            "containers": [container(GPU_NAME, 3)],
            "initContainers": [container(GPU_NAME, 2, restartPolicy="Always")],
        },
        5,
    ),
    "an init container, which is larger": (
        GPU_NAME,
        {"containers": [container(GPU_NAME, 3)], "initContainers": [container(GPU_NAME, 6)]},
        6,
    ),
    "the resources of the whole pod": (
        "cpu",
        {"containers": [container("cpu", 1)], "resources": {"requests": {"cpu": "60"}, "limits": {"cpu": "60"}}},
        60,
    ),
    "the overhead of its runtime class": (
        "cpu",
        {"containers": [container("cpu", 20)], "runtimeClassName": "heavy"},
        50,
    ),
}


@pytest.fixture
def heavy(product: Product) -> Iterator[None]:
    """A runtime class with 30 CPUs of its own."""
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "heavy"}}
    product.admin.apply({**runtime, "handler": "heavy", "overhead": {"podFixed": {"cpu": "30"}}})
    yield
    product.admin.delete(product.admin.ref(runtime))


@pytest.mark.parametrize(("resource", "spec", "taken"), COUNTED.values(), ids=list(COUNTED))
@pytest.mark.usefixtures("heavy")
def test_a_pod_of_others_holds_what_the_scheduler_counts(
    product: Product, team: Project, pool_of: Callable[..., str], resource: str, spec: Manifest, taken: int
) -> None:
    pool = pool_of("counted", GPU_NAME, 8)
    requested = {**LOW, "node_pools": (pool,)}
    label = NodePool.objects.get(name=pool)
    placed = {"nodeSelector": {label.label_key: label.label_value}, "priorityClassName": "system-cluster-critical"}
    name = {"name": f"other-{product.mark}", "namespace": "default"}
    other = product.admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": {**spec, **placed}})
    try:
        product.admin.wait_until(ref_of(other), lambda found: found["spec"].get("nodeName"))
        product.look()
        left = (8 if resource == GPU_NAME else 64) - taken
        fits, large = (
            asking(f"asks-{amount}", **({"gpus": amount} if resource == GPU_NAME else {"cpu": amount}))
            for amount in (left, left + 1)
        )
        assert [forecast_of(team, each, **requested).verdict for each in (fits, large)] == [
            Verdict.STARTS,
            Verdict.WAITS,
        ]
        assert f"Insufficient {resource}" in said_of_waiting(product, waits(product, team, large, **requested))
        runs(product, team, fits, **requested)
    finally:
        product.admin.delete(ref_of(other), grace=0)
