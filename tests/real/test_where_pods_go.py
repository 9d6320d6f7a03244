"""On a real control plane: pods together or apart, the next of a workload's pools, an inference with its address."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import SERVICE
from portal.kit.security.actors import SYSTEM
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, ProjectQuotaFactory
from tests.factories.workloads import job
from tests.real.product import Product, fresh, quick
from tests.support.lab import POOL
from workloads.intake import FormFields
from workloads.intake.services import read_fields
from workloads.lifecycle.services.actions import delete, resume, stop
from workloads.lifecycle.services.relocation import try_next_pools
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.selectors.workloads import object_name
from workloads.submission.services import submit

pytestmark = pytest.mark.lab


def placed(name: str, placement: str, *, pods: int = 3) -> Manifest:
    """Pods of one GPU that run until they are ended; a node has room for eight."""
    manifest = quick(job(name, pods=pods))
    manifest["metadata"]["annotations"] = {"rung.dev/placement": placement}
    return manifest


@pytest.mark.parametrize(("placement", "nodes"), [("binpack", 1), ("spread", 3)])
def test_kube_scheduler_keeps_pods_together_or_apart(product: Product, placement: str, nodes: int) -> None:
    project = product.project("team", deserved=8)
    product.reconcile()
    workload = product.submit(project, placed("train", placement))
    product.until(workload, lambda row: row.phase == Phase.RUNNING)
    assert len({pod["spec"]["nodeName"] for pod in product.pods_of(workload)}) == nodes


def test_the_next_pool_takes_what_the_first_has_no_node_for(product: Product) -> None:
    project = product.project("team", deserved=8)
    empty = NodePoolFactory(cluster=product.cluster, name="empty")
    ProjectQuotaFactory(project=project, node_pool=empty, gpu_deserved=8 * GPU)
    product.reconcile()
    workload = product.submit(project, quick(job("train")), node_pools=("empty", POOL), preemptibility="preemptible")
    product.until(workload, lambda row: row.phase == Phase.PENDING and row.phase_message)
    Workload.objects.filter(pk=workload.pk).update(phase_at=timezone.now() - timedelta(seconds=40))
    assert try_next_pools() == 1
    running = product.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)
    assert running.pool_name == POOL
    [event] = workload.timeline.filter(reason="NextPool")
    assert event.message.startswith("After 40 s in empty, where it ")


def inference(product: Product, **fields: Any) -> Workload:
    project = product.project("served", deserved=8)
    product.reconcile()
    given = {"type": "HuggingFaceInference", "image": "docker.io/vllm/vllm-openai:v1", "model": "acme/tiny", **fields}
    spec = read_fields(fields=FormFields(**{"name": "chat", "gpus": "1", **given}), project=project, actor=SYSTEM)
    workload = submit(spec=spec, project=project, actor=SYSTEM)
    product.apply(workload)
    return workload


def address(product: Product, workload: Workload) -> Manifest | None:
    return product.admin.get(ObjectRef(SERVICE, object_name(workload), workload.project.namespace))


def test_an_inference_runs_behind_a_service_that_comes_and_goes_with_it(product: Product) -> None:
    workload = inference(product, replicas=2, secret="hf-token", grace_seconds=1)
    product.until(workload, lambda row: row.phase == Phase.RUNNING)
    served = address(product, workload)
    assert served is not None
    assert served["spec"]["ports"][0]["targetPort"] == 8000
    [chosen] = served["spec"]["selector"].items()
    assert [dict(pod["metadata"]["labels"])[chosen[0]] for pod in product.pods_of(workload)] == [chosen[1]] * 2
    stop(workload=fresh(workload), actor=SYSTEM)
    product.until(workload, lambda row: row.phase == Phase.STOPPED, work=True)
    assert address(product, workload) is None
    resume(workload=fresh(workload), actor=SYSTEM)
    product.until(workload, lambda row: row.phase == Phase.RUNNING, work=True)
    assert address(product, workload) is not None
    delete(workload=fresh(workload), actor=SYSTEM)
    product.until(workload, lambda row: row.deleted_at, work=True)
    assert (address(product, workload), fresh(workload).desired_phase) == (None, DesiredPhase.DELETED)
