"""A real scheduler evicts a real pod for another of ours: one record of it, and all of it, after everything is gone."""

import time
from datetime import timedelta

import pytest

from clusters.ports.gateway import Invalid, Manifest, ObjectRef
from clusters.ports.objects import EVENT, NODE, POD, ref_of
from clusters.watch.models import ClusterEvent, ObservedPod, ObserverLease
from portal.kit.security.actors import SYSTEM
from tests.clusters.watch.streaming import Watching, streaming
from tests.real.product import PATIENCE, Product, fresh
from workloads.forecast.selectors.waiting import why_waiting
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import eviction_timelines
from workloads.state.models import Workload

pytestmark = pytest.mark.lab

GRACE = 4


def batch_job(name: str, *, pods: int = 1, gpus: int = 8) -> Manifest:
    """A Job whose pods run until they are ended, and then need all their grace."""
    container = {
        "name": "main",
        "image": "ghcr.io/team/train:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE, "containers": [container]}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_a_higher_priority_evicts_and_the_record_says_who_whom_where_and_what_it_cost(product: Product) -> None:
    """The lower training fills every node. It gets SIGTERM and its whole grace, which people say it does not."""
    project = product.project("team", deserved=8)
    product.reconcile()
    nodes = {node["metadata"]["name"] for node in product.admin.list(NODE)}
    with streaming(product.cluster, product.gateway) as watching:
        train = product.submit(project, batch_job("train", pods=len(nodes)), priority="low")
        watching.until(lambda: fresh(train).running_pods == len(nodes), seconds=PATIENCE)
        time.sleep(1.1)  # something to lose: API servers count in seconds
        serve = product.submit(project, batch_job("serve"), priority="high")
        watching.until(lambda: fresh(serve).phase_reason == "Evicting", seconds=PATIENCE)
        headline = why_waiting(fresh(serve))
        watching.until(lambda: fresh(serve).phase == "Running", seconds=PATIENCE)
        record = _recorded(watching, train)
        _take_everything_away(product, watching, train, serve)
    assert headline is not None
    assert "it waits for evicted pods to stop" in headline.sentence
    assert (record.victim, record.preemptor, record.cause) == (train, serve, "preempt")
    assert (record.preemptor_name, record.preemptor_priority, record.preemptor_value) == ("serve", "high", 125)
    assert record.node_name in nodes
    assert record.grace_seconds == GRACE
    assert record.grace_used_seconds is not None
    assert GRACE <= record.grace_used_seconds <= GRACE + 2
    assert record.gone_at is not None
    assert record.gone_at - record.at >= timedelta(seconds=GRACE - 1)
    assert record.ran_seconds >= 1
    assert record.lost_gpu_seconds == 8 * record.ran_seconds
    (story,) = eviction_timelines(fresh(train), SYSTEM)
    assert "serve (high 125)" in story.sentence
    assert any(f"(grace period {GRACE} s)" in step.words for step in story.steps)


def _recorded(watching: Watching, victim: Workload) -> PreemptionRecord:
    """Exactly one, complete."""
    complete = PreemptionRecord.objects.filter(victim=victim, preemptor__isnull=False, gone_at__isnull=False)
    watching.until(complete.exists, seconds=PATIENCE)
    return PreemptionRecord.objects.get(victim=victim)


def _take_everything_away(product: Product, watching: Watching, *workloads: Workload) -> None:
    """Objects, pods and events leave the cluster, and then what was kept of them leaves the database."""
    for workload in workloads:
        if found := product.object_of(workload):
            product.admin.delete(ref_of(found))
        for pod in product.pods_of(workload):
            product.admin.delete(ObjectRef(POD, pod["metadata"]["name"], workload.project.namespace), grace=0)
    for event in product.admin.list(EVENT, namespace=workloads[0].project.namespace):
        product.admin.delete(ObjectRef(EVENT, event["metadata"]["name"], event["metadata"]["namespace"]))
    owners = [str(each.pk) for each in workloads]
    live = ObservedPod.objects.filter(owner_id__in=owners, gone_at=None)
    watching.until(lambda: not live.exists(), seconds=PATIENCE)
    assert PreemptionRecord.objects.filter(victim__in=workloads).count() == 1
    ObservedPod.objects.filter(owner_id__in=owners).delete()
    ClusterEvent.objects.filter(owner_id__in=owners).delete()


def test_a_look_after_the_fact_records_the_same_from_what_is_left(product: Product) -> None:
    """Nobody watched: the victim had gone before anybody looked again. The event is all that tells of it."""
    project = product.project("team", deserved=8)
    product.reconcile()
    nodes = product.admin.list(NODE)
    train = product.submit(project, batch_job("train", pods=len(nodes)), priority="low")
    product.until(train, lambda row: row.running_pods == len(nodes))
    before = {pod["metadata"]["uid"] for pod in product.pods_of(train)}
    serve = product.submit(project, batch_job("serve"), priority="high")
    deadline = time.monotonic() + PATIENCE
    while before <= {pod["metadata"]["uid"] for pod in product.pods_of(train)}:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    for _ in range(2):
        ObserverLease.objects.update(versions={})
        product.look()
    record = PreemptionRecord.objects.get(victim=train)
    assert (record.preemptor, record.pod_uid in before, record.gone_at is not None) == (serve, True, True)


def test_there_is_no_policy_to_preempt_equals(product: Product) -> None:
    """PreemptHigherPriority is in people's mouths only: the API server knows Never and PreemptLowerPriority."""
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"bold-{product.mark}"},
        "value": 10,
        "preemptionPolicy": "PreemptHigherPriority",
    }
    with pytest.raises(Invalid, match="preemptionPolicy"):
        product.gateway.create(manifest)
