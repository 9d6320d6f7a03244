"""An inference is a Deployment behind a Service, which comes before it and goes with it."""

from typing import Any

import pytest

from clusters.backends.memory import MemoryGateway, MemoryStore
from clusters.flavours.registry import FLAVOURS, flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import JobSpec
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import OWNER, SERVICE, kind_of_workload, owned
from clusters.ports.workload_kinds import kind_named
from clusters.sync.services.workload_objects import apply_job, delete_job
from tests.clusters.specs import job, pod_template

ADDRESS = ObjectRef(SERVICE, "train-0b0e5a3c", "runai-vision")
DEPLOYMENT = kind_of_workload(kind_named("Deployment"))


@pytest.fixture
def gateway(store: MemoryStore) -> MemoryGateway:
    """A cluster with the project's namespace."""
    gateway = MemoryGateway(store)
    metadata = owned("runai-vision", owner="project.1", generation=1)
    gateway.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return gateway


def inference(port: int | None = 8000, **fields: Any) -> JobSpec:
    template = pod_template()
    template["spec"]["containers"][0]["ports"] = [{"containerPort": port}] if port else []
    manifest: Manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {"template": template}}
    return job(manifest, **{"type_name": "Inference", **fields})


def test_a_service_chooses_the_very_pods_of_the_deployment(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, inference())
    served, own = gateway.get(ADDRESS), gateway.get(ADDRESS._replace(kind=DEPLOYMENT))
    assert served is not None
    assert own is not None
    assert served["spec"]["selector"][OWNER] == own["spec"]["template"]["metadata"]["labels"][OWNER]
    assert [(each["port"], each["targetPort"]) for each in served["spec"]["ports"]] == [(8000, 8000)]


def test_it_is_written_once_and_before_the_deployment(
    cluster: Cluster, gateway: MemoryGateway, store: MemoryStore
) -> None:
    apply_job(cluster, inference())
    apply_job(cluster, inference())
    written = [(verb, ref.kind.kind) for verb, ref in store.writes if ref.kind.kind != "Namespace"]
    assert written == [("ADDED", "Service"), ("ADDED", "Deployment")]


@pytest.mark.parametrize("ended", ["stopped", "deleted"])
def test_it_goes_with_the_deployment(cluster: Cluster, gateway: MemoryGateway, ended: str) -> None:
    apply_job(cluster, inference(generation=1))
    if ended == "stopped":
        apply_job(cluster, inference(generation=2, suspended=True))
    else:
        delete_job(cluster, inference(generation=2))
    assert gateway.get(ADDRESS) is None


def test_a_later_generation_keeps_its_address(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, inference(generation=1))
    before = gateway.get(ADDRESS)
    apply_job(cluster, inference(generation=2), pods_run=True)
    after = gateway.get(ADDRESS)
    assert before is not None
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(inference(port=None), id="no port is named"),
        pytest.param(inference(type_name="Deployment"), id="a Deployment that was submitted as a manifest"),
        pytest.param(job(), id="no inference"),
    ],
)
def test_nothing_else_gets_one(cluster: Cluster, gateway: MemoryGateway, spec: JobSpec) -> None:
    apply_job(cluster, spec)
    assert gateway.list(SERVICE)[0] == []


def test_its_name_begins_with_a_letter(cluster: Cluster, gateway: MemoryGateway) -> None:
    apply_job(cluster, inference(name="3d-model-0b0e5a3c"))
    assert [each["metadata"]["name"] for each in gateway.list(SERVICE)[0]] == ["s-3d-model-0b0e5a3c"]


def test_somebody_elses_service_of_that_name_is_left_alone(cluster: Cluster, gateway: MemoryGateway) -> None:
    metadata = {"name": ADDRESS.name, "namespace": ADDRESS.namespace}
    gateway.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"type": "ClusterIP"}})
    delete_job(cluster, inference())
    assert gateway.get(ADDRESS) is not None


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("placement", "affinity"), [("binpack", "podAffinity"), ("spread", "podAntiAffinity")])
def test_a_placement_is_a_wish_about_the_workloads_own_pods(flavour: str, placement: str, affinity: str) -> None:
    spec = job({**job().manifest, "metadata": {"annotations": {"rung.dev/placement": placement}}})
    pod = flavour_for(flavour).render(spec)[-1]["spec"]["template"]
    [wish] = pod["spec"]["affinity"][affinity]["preferredDuringSchedulingIgnoredDuringExecution"]
    [chosen] = wish["podAffinityTerm"]["labelSelector"]["matchLabels"].items()
    assert chosen in pod["metadata"]["labels"].items()
    assert "affinity" not in flavour_for(flavour).render(job())[-1]["spec"]["template"]["spec"]
