"""Gangs on a real kube-scheduler: they start whole or not at all, and go whole, which is told as one preemption."""

import time
import uuid
from collections.abc import Iterator

import pytest

from clusters.connection.services.registration import try_stored
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import GANG_POD_GROUP, GANG_WORKLOAD, NODE
from clusters.watch.models import ObservedPod
from portal.kit.security.actors import SYSTEM
from tests.clusters.watch.streaming import Watching, streaming
from tests.real.product import PATIENCE, Product, fresh
from tests.real.test_statements import forecast_of
from tests.support.lab import GPUS, NODES, LabCluster
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.rules.messages import DoubtCode
from workloads.lifecycle.services.actions import change_priority, delete
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timelines
from workloads.state.models import Workload
from workloads.state.selectors.workloads import object_name

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket]

GRACE = 3


@pytest.fixture
def product(gang_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights."""
    product = Product(gang_cluster, uuid.uuid4().hex[:6], "kube-gangs")
    yield product
    product.end()


def nodes_of(name: str, pods: int, *, gpus: int = GPUS, grace: int = GRACE) -> Manifest:
    """A Job whose pods take a node each, or so many of its GPUs, and run until they are ended."""
    container = {
        "name": "main",
        "image": "ghcr.io/team/train:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [container]}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def beside(product: Product, workload: Workload) -> list[str]:
    """What stands beside its job now."""
    name, space = object_name(workload), workload.project.namespace
    kinds = (GANG_WORKLOAD, GANG_POD_GROUP)
    return [kind.kind for kind in kinds if product.admin.get(ObjectRef(kind, name, space))]


def brought_about(product: Product, workload: Workload) -> bool:
    """What workers do until the cluster has what the row wants."""
    product.apply(workload)
    time.sleep(0.2)
    row = fresh(workload)
    return row.applied_generation == row.generation


def placed(product: Product, workload: Workload) -> int:
    """How many of its pods have a node."""
    return sum(bool(pod["spec"].get("nodeName")) for pod in product.pods_of(workload))


def test_the_account_of_few_rights_is_enough_and_the_kinds_are_found(product: Product) -> None:
    report = try_stored(product.cluster)
    assert report.works, (report.lacking, report.unserved)
    assert report.fitting == "kube-gangs"


def test_a_gang_starts_whole_once_there_is_room_for_all_of_it(product: Product) -> None:
    project = product.project("team", deserved=2 * NODES * GPUS)
    product.reconcile()
    one = product.submit(project, nodes_of("one", 1), priority="medium")
    product.until(one, lambda row: row.phase == "Running")
    assert beside(product, one) == []
    gang = product.submit(project, nodes_of("gang", NODES), priority="medium")
    waiting = product.until(gang, lambda row: row.phase_reason == "Unschedulable")
    assert beside(product, gang) == ["Workload", "PodGroup"]
    assert len(product.pods_of(gang)) == NODES
    assert placed(product, gang) == 0
    assert "4 have too few free GPUs" in waiting.phase_message
    delete(workload=fresh(one), actor=SYSTEM)
    product.apply(one)
    started = product.until(gang, lambda row: row.phase == "Running")
    assert started.running_pods == NODES
    delete(workload=fresh(gang), actor=SYSTEM)
    product.apply(gang)
    product.until(gang, lambda row: row.deleted_at, work=True)
    assert beside(product, gang) == []


def test_a_stronger_gang_evicts_a_weaker_one_whole_and_it_is_one_preemption(product: Product) -> None:
    """One node is free, and two are wanted: the plain scheduler would take one pod.

    The stronger one waits as an equal first, so that its group, which never changes, has to be recreated.
    """
    project = product.project("team", deserved=2 * NODES * GPUS)
    product.reconcile()
    with streaming(product.cluster, product.gateway) as watching:
        weak = product.submit(project, nodes_of("weak", NODES - 1), priority="low")
        watching.until(lambda: fresh(weak).running_pods == NODES - 1, seconds=PATIENCE)
        strong = product.submit(project, nodes_of("strong", 2), priority="low")
        watching.until(lambda: fresh(strong).phase_reason == "Unschedulable", seconds=PATIENCE)
        change_priority(workload=fresh(strong), priority="high", actor=SYSTEM)
        watching.until(lambda: brought_about(product, strong), seconds=PATIENCE)
        watching.until(lambda: fresh(strong).phase == "Running", seconds=PATIENCE)
        records = PreemptionRecord.objects.filter(victim=weak)
        watching.until(lambda: not records.filter(gone_at=None).exists(), seconds=PATIENCE)
        watching.until(lambda: records.filter(preemptor=strong).count() == NODES - 1, seconds=PATIENCE)
        watching.until(lambda: fresh(weak).phase == "Pending", seconds=PATIENCE)
    preemption = records.get(first=None)
    assert preemption.others.count() == NODES - 2
    assert (preemption.preemptor_name, preemption.preemptor_priority, preemption.cause) == ("strong", "high", "preempt")
    assert len({each.node_name for each in records}) == NODES - 1
    assert placed(product, weak) == 0
    assert fresh(weak).preempted_count == 1
    [story] = eviction_timelines(fresh(weak), SYSTEM)
    assert len(story.records) == NODES - 1
    assert "strong (high 125)" in story.sentence


def test_a_gang_of_one_rack_lands_in_one_and_evicts_nobody_for_it(product: Product) -> None:
    names = sorted(node["metadata"]["name"] for node in product.admin.list(NODE))
    for number, name in enumerate(names):
        product.admin.patch(ObjectRef(NODE, name), {"metadata": {"labels": {"rack": f"rack-{number % 2}"}}})
    project = product.project("team", deserved=2 * NODES * GPUS)
    product.reconcile()
    product.look()
    first = product.submit(project, in_one_rack(nodes_of("first", 2)), priority="low")
    product.until(first, lambda row: row.phase == "Running")
    on = [names.index(pod["spec"]["nodeName"]) % 2 for pod in product.pods_of(first)]
    assert len(on) == 2
    assert len(set(on)) == 1
    single = product.submit(project, nodes_of("single", 1), priority="low")
    product.until(single, lambda row: row.phase == "Running")
    strong = product.submit(project, in_one_rack(nodes_of("strong", 2)), priority="high")
    waiting = product.until(strong, lambda row: row.phase_reason)
    assert (waiting.phase, placed(product, strong)) == ("Pending", 0)
    assert fresh(first).phase == fresh(single).phase == "Running"
    assert not PreemptionRecord.objects.exists()


@pytest.fixture
def waiting_gang(product: Product) -> Iterator[tuple[Workload, Watching]]:
    """A gang of one pod of 3 GPUs per node. For it a pod was evicted, which is still terminating.

    Its other pods are nominated to the three nodes on which they fit. On the fourth one GPU is free.
    """
    project = product.project("team", deserved=2 * NODES * GPUS)
    product.reconcile()
    with streaming(product.cluster, product.gateway) as watching:
        kept = product.submit(project, nodes_of("kept", NODES, gpus=5), priority="very-high")
        watching.until(lambda: fresh(kept).running_pods == NODES, seconds=PATIENCE)
        low = product.submit(project, nodes_of("low", 1, gpus=2, grace=40), priority="low")
        watching.until(lambda: fresh(low).running_pods == 1, seconds=PATIENCE)
        gang = product.submit(project, nodes_of("gang", NODES, gpus=3), priority="high")
        watching.until(PreemptionRecord.objects.filter(victim=low).exists, seconds=PATIENCE)
        nominated = ObservedPod.objects.filter(owner_id=str(gang.pk)).exclude(nominated_node="")
        watching.until(lambda: nominated.count() == NODES - 1, seconds=PATIENCE)
        yield gang, watching


def test_what_takes_a_gpu_that_a_waiting_gang_counts_on_is_evicted_next_as_its_preview_says(
    product: Product, waiting_gang: tuple[Workload, Watching]
) -> None:
    gang, watching = waiting_gang
    manifest = nodes_of("small", 1, gpus=1)
    preview = forecast_of(gang.project, manifest, priority="medium")
    assert preview.verdict is Verdict.STARTS
    assert [each.code for each in preview.doubts] == [DoubtCode.EVICTED_NEXT]
    newcomer = product.submit(gang.project, manifest, priority="medium")
    evictions = PreemptionRecord.objects.filter(victim=newcomer, preemptor=gang)
    watching.until(evictions.exists, seconds=PATIENCE)


def test_nodes_to_which_pods_of_a_waiting_gang_are_nominated_are_reserved(
    product: Product, waiting_gang: tuple[Workload, Watching]
) -> None:
    gang, watching = waiting_gang
    manifest = nodes_of("larger", 1, gpus=2)
    assert forecast_of(gang.project, manifest, priority="medium").verdict is Verdict.WAITS
    newcomer = product.submit(gang.project, manifest, priority="medium")
    watching.until(lambda: fresh(newcomer).phase_reason, seconds=PATIENCE)
    assert placed(product, newcomer) == 0


def in_one_rack(manifest: Manifest) -> Manifest:
    """The same, on nodes with one value of the label rack."""
    manifest["metadata"]["annotations"] = {"rung.dev/topology-key": "rack"}
    return manifest
