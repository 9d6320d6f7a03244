"""What a finding says of a real kube-scheduler's decisions, and what follows when its advice is taken."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from django.utils import timezone

from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import NODE, ref_of
from clusters.watch.models import ObservedPod
from tenants.access.models import Role
from tenants.organisation.models import Project
from tests.factories.tenants import GPU
from tests.factories.workloads import deployment, job
from tests.real.product import Product, fresh, quick
from tests.support.rest_clients import Robot
from workloads.detectors.models import Finding
from workloads.detectors.rules import FindingKind
from workloads.detectors.services import detect
from workloads.dictionary.models import Priority
from workloads.lifecycle.services.actions import change_priority
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Phase, Workload

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
BACK_OFF: Final = timedelta(seconds=3)
"""For so long kube-scheduler leaves a new pod alone that found no node; an older one may be placed meanwhile."""


@pytest.fixture
def team(product: Product) -> Project:
    """Deserves every GPU of the lab."""
    project = product.project("team", deserved=32)
    product.department.quotas.update(gpu_deserved=32 * GPU)
    product.reconcile()
    return project


def submitted(product: Product, project: Project, manifest: Manifest, priority: str) -> Workload:
    return product.submit(project, quick(manifest), priority=priority, preemptibility="preemptible")


def running(product: Product, project: Project, manifest: Manifest, priority: str) -> Workload:
    workload = submitted(product, project, manifest, priority)
    pods = manifest["spec"].get("parallelism", 1)
    return product.until(workload, lambda row: row.phase == Phase.RUNNING and row.running_pods == pods)


def waiting(product: Product, project: Project, manifest: Manifest, priority: str) -> Workload:
    workload = submitted(product, project, manifest, priority)
    return product.until(workload, lambda row: row.phase == Phase.PENDING and row.phase_reason)


def ended(product: Product, workload: Workload) -> None:
    """Its container completes by itself."""
    for pod in product.pods_of(workload):
        product.admin.patch(ref_of(pod), {"metadata": {"annotations": {"lab.rung.dev/run-for": "0s"}}})


def aged(product: Product, workload: Workload, span: timedelta) -> None:
    """Its pods have run for so long, as their kubelet says."""
    began = f"{timezone.now() - span:%Y-%m-%dT%H:%M:%SZ}"
    for pod in product.pods_of(workload):
        product.admin.patch_status(ref_of(pod), {"startTime": began})
    pods = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None)
    product.until(workload, lambda _row: pods.get().started_at and timezone.now() - pods.get().started_at >= span)


def nodes_of(workload: Workload) -> set[str]:
    pods = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None).exclude(node_name="")
    return set(pods.values_list("node_name", flat=True))


class Check:
    """A check of the detectors and what REST answers afterwards."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._reader = Robot("reader", role=Role.PLATFORM_ADMIN)

    def finds(self, kind: FindingKind, **later: float) -> dict[str, Any]:
        """The finding of this kind, if the cluster stays so long as it is. One of an eviction may be over already."""
        self._check(later)
        answer = self._reader.get(f"v1/findings?filterBy=kind=={kind}").json()
        found: dict[str, Any]
        (found,) = answer["findings"]
        return found

    def finds_no_more(self, kind: FindingKind, **later: float) -> None:
        self._check(later)
        assert not Finding.objects.filter(kind=kind, ended_at=None).exists()

    def _check(self, later: Mapping[str, float]) -> None:
        self._product.look()
        detect(self._product.cluster, timezone.now() + timedelta(**later))


@pytest.fixture
def check(product: Product) -> Check:
    return Check(product)


def test_a_short_job_that_evicts_a_long_one_is_named_with_its_cost_and_waits_at_the_priority_advised(
    product: Product, team: Project, check: Check
) -> None:
    running(product, team, job("others", gpus=8, pods=3), "high")
    train = running(product, team, deployment("train", gpus=8), "low")
    aged(product, train, timedelta(hours=2))
    short = running(product, team, job("short", gpus=8), "high")
    ended(product, short)
    product.until(short, lambda row: row.phase == Phase.COMPLETED)
    found = check.finds(FindingKind.SHORT_EVICTS_LONG)
    assert found["workloadName"] == "train"
    assert found["evidence"][0].startswith("short (high 125) evicted train (low 40) at ")
    assert found["evidence"][1].startswith("train had run 2 h on 8 GPUs: about 16.")
    assert round(found["gpuHours"]) == 16
    assert "submit it with a priority of at most low" in found["advice"]
    product.until(train, lambda row: row.phase == Phase.RUNNING)
    waiting(product, team, job("again", gpus=8), "low")
    assert (fresh(train).phase, fresh(train).preempted_count) == (Phase.RUNNING, 1)
    check.finds_no_more(FindingKind.SHORT_EVICTS_LONG)


def test_what_is_evicted_again_and_again_is_named_and_nothing_is_evicted_once_it_is_stopped(
    product: Product, team: Project, check: Check
) -> None:
    running(product, team, job("others", gpus=8, pods=3), "high")
    train = running(product, team, deployment("train", gpus=8), "low")
    for number in range(3):
        check.finds_no_more(FindingKind.THRASHING)
        short = running(product, team, job(f"short-{number}", gpus=8), "high")
        ended(product, short)
        product.until(train, lambda row: row.phase == Phase.RUNNING)
    found = check.finds(FindingKind.THRASHING)
    assert found["workloadName"] == "train"
    assert found["evidence"][0].startswith("train was evicted 3 times from ")
    assert found["evidence"][0].endswith(", 0 of them by reclaim.")
    assert found["advice"].startswith("Stop it until the work of higher priority is done")
    product.stop(train)
    running(product, team, job("short-3", gpus=8), "high")
    assert PreemptionRecord.objects.filter(victim=train).count() == 3
    check.finds_no_more(FindingKind.THRASHING)


def test_a_job_that_later_ones_pass_by_is_named_and_starts_with_the_priority_that_is_advised(
    product: Product, team: Project, check: Check
) -> None:
    running(product, team, job("others", gpus=8), "high")
    holders = running(product, team, job("holders", gpus=8, pods=3), "high")
    starved = waiting(product, team, job("starved", gpus=8), "low")
    later = [submitted(product, team, job(f"later-{number}", gpus=8), "medium") for number in range(3)]
    for each in later:
        product.until(each, lambda row: row.phase == Phase.PENDING and row.phase_reason)
    check.finds_no_more(FindingKind.STARVATION, hours=5)
    product.until(later[-1], lambda row: timezone.now() - row.created_at > BACK_OFF)
    product.stop(holders)
    for each in later:
        product.until(each, lambda row: row.phase == Phase.RUNNING)
    found = check.finds(FindingKind.STARVATION, hours=5)
    assert found["workloadName"] == "starved"
    assert found["evidence"][1].startswith(
        "3 workloads that were submitted later run on 24 GPUs: 3 of higher and 0 of the same priority. later-"
    )
    assert found["advice"].startswith("Raise its priority if it is urgent")
    change_priority(workload=fresh(starved), priority="high", actor=product.actor)
    product.until(starved, lambda row: row.phase == Phase.RUNNING, work=True)
    check.finds_no_more(FindingKind.STARVATION, hours=5)


@pytest.fixture
def other_gpus(product: Product) -> Iterator[str]:
    """One node has GPUs of this product."""
    node, label, name = product.admin.list(NODE)[0], "nvidia.com/gpu.product", "NVIDIA-H200"
    before = node["metadata"]["labels"][label]
    product.admin.patch(ref_of(node), {"metadata": {"labels": {label: name}}})
    yield name
    product.admin.patch(ref_of(node), {"metadata": {"labels": {label: before}}})


def test_a_higher_priority_that_lower_ones_pass_by_is_named_and_starts_where_its_priority_may_evict(
    product: Product, team: Project, check: Check, other_gpus: str
) -> None:
    """Its GPUs are held by another one, which its priority does not evict."""
    Priority.objects.filter(name="high").update(preemption_policy="Never")
    product.reconcile()

    def choosy(name: str) -> Manifest:
        manifest = job(name, gpus=8)
        manifest["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": other_gpus}
        return manifest

    holder = running(product, team, choosy("holder"), "low")
    urgent = waiting(product, team, choosy("urgent"), "high")
    check.finds_no_more(FindingKind.PRIORITY_INVERSION, minutes=11)
    product.until(urgent, lambda row: timezone.now() - row.phase_at > timedelta(seconds=1))  # kubelets count in seconds
    running(product, team, job("later", gpus=8), "low")
    found = check.finds(FindingKind.PRIORITY_INVERSION, minutes=11)
    assert found["workloadName"] == "urgent"
    assert found["evidence"][1].startswith("later (low 40) started at ")
    assert found["evidence"][1].endswith("All that started later with a lower priority (1) have 8 GPUs.")
    assert found["advice"].startswith("Check whether its priority may evict others")
    change_priority(workload=fresh(urgent), priority="very-high", actor=product.actor)
    product.until(urgent, lambda row: row.phase == Phase.RUNNING, work=True)
    assert fresh(holder).preempted_count == 1
    check.finds_no_more(FindingKind.PRIORITY_INVERSION, minutes=11)


def test_where_projects_deserve_more_than_there_is_a_guarantee_fails_until_a_node_is_added(
    product: Product, check: Check
) -> None:
    one, two = product.project("one", deserved=24), product.project("two", deserved=16)
    product.department.quotas.update(gpu_deserved=40 * GPU)
    product.reconcile()
    running(product, one, job("inside", gpus=8, pods=3), "low")
    running(product, two, job("first", gpus=8), "low")
    second = waiting(product, two, job("second", gpus=8), "low")
    found = check.finds(FindingKind.QUOTA_ABOVE_PHYSICAL)
    assert found["evidence"] == ["Projects deserve 40 GPUs in lab; its nodes have 32 GPUs."]
    assert found["advice"].startswith("Lower deserved quotas by 8 GPUs, or add nodes")
    node = another_node(product)
    try:
        product.until(second, lambda row: row.phase == Phase.RUNNING)
        check.finds_no_more(FindingKind.QUOTA_ABOVE_PHYSICAL)
    finally:
        product.admin.delete(node)


def another_node(product: Product) -> ObjectRef:
    """Like the others of the pool."""
    first = product.admin.list(NODE)[0]
    metadata = {"name": "lab-more", **{key: dict(first["metadata"][key]) for key in ("labels", "annotations")}}
    metadata["labels"]["kubernetes.io/hostname"] = "lab-more"
    status = {key: first["status"][key] for key in ("capacity", "allocatable")}
    node = product.admin.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    return ref_of(node)


def test_the_move_that_a_fragmentation_finding_names_lets_the_waiting_workload_start(
    product: Product, team: Project, check: Check
) -> None:
    large = [running(product, team, job(f"large-{number}", gpus=5), "low") for number in range(4)]
    small = running(product, team, deployment("small", gpus=2), "low")
    (source,) = nodes_of(small)
    product.stop(next(each for each in large if nodes_of(each) == {source}))
    mine = waiting(product, team, job("mine", gpus=8), "low")
    check.finds_no_more(FindingKind.FRAGMENTATION)
    found = check.finds(FindingKind.FRAGMENTATION, minutes=11)
    assert found["workloadName"] == "mine"
    assert found["evidence"][0] == "15 GPUs are free in lab (nodes: 4), at most 6 GPUs on one."
    assert found["advice"].startswith(f"Move small (2 GPUs) from {source} to ")
    move_away(product, small, source)
    product.until(mine, lambda row: row.phase == Phase.RUNNING)
    assert nodes_of(mine) == {source}
    check.finds_no_more(FindingKind.FRAGMENTATION, minutes=12)


def move_away(product: Product, workload: Workload, source: str) -> None:
    """As an admin does by hand: the node takes no pods until the workload's next pod is on another one."""
    node = ObjectRef(NODE, source)
    product.admin.patch(node, {"spec": {"unschedulable": True}})
    try:
        for pod in product.pods_of(workload):
            product.admin.delete(ref_of(pod))
        product.until(workload, lambda row: row.phase == Phase.RUNNING and source not in (nodes_of(row) or {source}))
    finally:
        product.admin.patch(node, {"spec": {"unschedulable": None}})
