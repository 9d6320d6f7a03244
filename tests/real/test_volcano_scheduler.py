"""Volcano's own scheduler takes what Rung writes, and what it decides is read back with its reason."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.utils import timezone

from clusters.connection.services.registration import try_stored
from clusters.flavours.volcano_config import CONF, ENQUEUE, KEY, NO_CAPACITY, NO_PREEMPT, NO_RECLAIM, NOT_SPARED, OPENED
from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import VOLCANO_POD_GROUP, VOLCANO_QUEUE
from clusters.sync.services.reconcile import reconcile
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.services.runtime_rules import set_min_runtime
from tests.clusters.watch.streaming import Watching, streaming
from tests.factories.tenants import GPU
from tests.real.product import PATIENCE, Product, fresh
from tests.support.lab import GPUS, NODES, LabCluster
from workloads.detectors.models import Finding
from workloads.detectors.rules import FindingKind
from workloads.detectors.services import detect
from workloads.lifecycle.services.actions import delete
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket]

SEVERAL_CYCLES = 3.0
SHIPPED = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates}, {name: proportion}]
"""
TIERS = """
actions: "allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang, enablePreemptable: false}}, {{name: conformance}}{first}]
- plugins: [{{name: predicates}}, {{name: capacity, enableHierarchy: true}}{second}]
"""


@pytest.fixture
def product(volcano_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights."""
    product = Product(volcano_cluster, uuid.uuid4().hex[:6], "volcano")
    yield product
    product.end(VOLCANO_POD_GROUP)


def a_job(name: str, *, pods: int = 1) -> Manifest:
    """A Job whose pods take a node each and some of its CPU, and run until they are ended."""
    limits = {"nvidia.com/gpu": str(GPUS), "cpu": "4", "memory": "8Gi"}
    container = {"name": "main", "image": "ghcr.io/team/x:1", "resources": {"limits": limits}}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def two_projects(product: Product, *, deserved: int) -> tuple[Project, Project]:
    """Of one department, with so many GPUs deserved each; their queues are open."""
    projects = product.project("one", deserved=deserved), product.project("two", deserved=deserved)
    product.reconcile()
    for queue in product.admin.list(VOLCANO_QUEUE):
        ref = ObjectRef(VOLCANO_QUEUE, queue["metadata"]["name"])
        product.admin.wait_until(ref, lambda found: found.get("status", {}).get("state") == "Open")
    return projects


def running(
    product: Product, watching: Watching, project: Project, *names: str, priority: str, pods: int = 1
) -> list[Workload]:
    """Preemptible workloads all of whose pods run."""
    found = [submitted(product, project, a_job(name, pods=pods), priority=priority) for name in names]
    watching.until(lambda: all(fresh(each).running_pods == pods for each in found), seconds=PATIENCE)
    return found


def submitted(product: Product, project: Project, manifest: Manifest, *, priority: str) -> Workload:
    return product.submit(project, manifest, priority=priority, preemptibility="preemptible")


def stays_away(product: Product, watching: Watching, waiting: Workload) -> None:
    """It waits for some cycles of the scheduler, and nobody goes for it."""
    waits(watching)
    assert fresh(waiting).phase == "Pending"
    assert fresh(waiting).phase_reason
    assert not PreemptionRecord.objects.exists(), product.everyone()


def waits(watching: Watching) -> None:
    end = time.monotonic() + SEVERAL_CYCLES
    watching.until(lambda: time.monotonic() > end, seconds=PATIENCE)


@contextmanager
def configured(lab: LabCluster, text: str) -> Iterator[None]:
    """Another configuration, in the file that the scheduler reads and in the object that Rung does."""
    file = lab.kubeconfig.parent / "clusters" / lab.kubeconfig.stem / "volcano" / KEY
    before = file.read_text(encoding="utf-8")
    _configure(lab, file, text)
    try:
        yield
    finally:
        _configure(lab, file, before)


def _configure(lab: LabCluster, file: Path, text: str) -> None:
    lab.admin.patch(CONF, {"data": {KEY: text}})
    file.write_text(text, encoding="utf-8")
    time.sleep(1.0)  # the scheduler has read it again


def test_the_account_of_few_rights_is_enough_and_every_queue_opens(product: Product) -> None:
    two_projects(product, deserved=16)
    again = reconcile(Cluster.objects.get(pk=product.cluster.pk))
    assert (again.written, again.failed) == (0, 0)
    report = try_stored(product.cluster)
    assert (report.works, report.fitting, report.warnings) == (True, "volcano", ()), report


def test_a_higher_priority_evicts_in_its_own_queue_and_the_lower_one_waits(product: Product) -> None:
    """The other queue has weaker ones; they stay. Of two weaker ones of its own on equal nodes it would be any."""
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        others = running(product, watching, two, "a", "b", priority="very-low")
        [train, better] = running(product, watching, one, "train", priority="low") + running(
            product, watching, one, "better", priority="high"
        )
        [serve] = running(product, watching, one, "serve", priority="high")
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
        watching.until(lambda: fresh(train).phase == "Pending" and fresh(train).phase_reason, seconds=PATIENCE)
    record = PreemptionRecord.objects.get()
    assert (record.victim, record.cause, record.gpu_milli) == (train, "preempt", GPUS * GPU)
    assert fresh(train).preempted_count == 1
    assert {fresh(each).phase for each in (*others, better, serve)} == {"Running"}


@pytest.mark.parametrize(("cause", "taker"), [("preempt", 0), ("reclaim", 1)])
def test_protected_work_keeps_its_place_for_as_long_as_its_pods_carry_and_then_goes(
    product: Product, cause: str, taker: int
) -> None:
    """Nothing else changes meanwhile. Stamps are of whole seconds."""
    projects = two_projects(product, deserved=2 * GPUS)
    set_min_runtime(owner=projects[0], minutes=1, actor=SYSTEM)
    with streaming(product.cluster, product.gateway) as watching:
        began = time.monotonic()
        young = running(product, watching, projects[0], "a", "b", "c", "d", priority="low")
        comer = submitted(product, projects[taker], a_job("comer"), priority="high")
        stays_away(product, watching, comer)
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=60 + PATIENCE)
        assert time.monotonic() - began > 59
        watching.until(lambda: fresh(comer).phase == "Running", seconds=PATIENCE)
    record = PreemptionRecord.objects.get()
    assert (record.victim in young, record.cause) == (True, cause)


@pytest.mark.parametrize(
    ("first", "second", "taker", "warning"),
    [
        pytest.param(", {name: cdp}", "", 1, NOT_SPARED.format(actions="reclaim"), id="not asked in the second tier"),
        pytest.param("", ", {name: cdp}", 0, OPENED.format(actions="preempt"), id="alone in the second tier"),
    ],
)
def test_where_the_plugin_stands_wrong_work_goes_that_should_stay(
    product: Product, volcano_cluster: LabCluster, first: str, second: str, taker: int, warning: str
) -> None:
    """In the one case though it is young, in the other though it is stronger than the one that it goes for."""
    projects = two_projects(product, deserved=2 * GPUS)
    if first:
        set_min_runtime(owner=projects[0], minutes=60, actor=SYSTEM)
    with configured(volcano_cluster, TIERS.format(first=first, second=second)):
        assert warning in try_stored(product.cluster).warnings
        with streaming(product.cluster, product.gateway) as watching:
            work = running(product, watching, projects[0], "a", "b", "c", "d", priority="medium")
            submitted(product, projects[taker], a_job("comer"), priority="low")
            watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
        assert PreemptionRecord.objects.earliest("pk").victim in work


def test_what_a_project_has_above_its_quota_is_reclaimed_by_one_below_its_own(product: Product) -> None:
    """The borrower has the higher priority: between queues that does not count."""
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        borrowers = running(product, watching, one, "a", "b", "c", "d", priority="high")
        [mine] = running(product, watching, two, "mine", priority="low")
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
        watching.until(lambda: "Pending" in {fresh(each).phase for each in borrowers}, seconds=PATIENCE)
    record = PreemptionRecord.objects.get()
    assert record.victim in borrowers
    assert record.cause == "reclaim"
    assert fresh(mine).phase == "Running"


def test_one_above_its_quota_takes_nothing_from_another_above_its_own(product: Product) -> None:
    """Its CPU is unlimited, which is no claim to GPUs of other queues."""
    one, two = two_projects(product, deserved=GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, one, "a", "b", priority="low")
        running(product, watching, two, "c", "d", priority="low")
        more = submitted(product, one, a_job("more"), priority="low")
        stays_away(product, watching, more)


def test_non_preemptible_work_above_the_deserved_quota_is_refused_with_the_numbers(product: Product) -> None:
    one, _two = two_projects(product, deserved=GPUS)
    with pytest.raises(ValidationFailed) as refused:
        product.submit(one, a_job("serve", pods=2), priority="high", preemptibility="non-preemptible")
    [problem] = refused.value.problems
    assert problem.code == "NonPreemptibleOverQuota"
    assert (problem.numbers["allowed"], problem.numbers["missing"]) == ("8 GPU", "8 GPU")
    with streaming(product.cluster, product.gateway) as watching:
        serve = product.submit(one, a_job("serve"), priority="high", preemptibility="non-preemptible")
        watching.until(lambda: fresh(serve).phase == "Running", seconds=PATIENCE)


def test_non_preemptible_work_pins_a_lowered_quota_as_the_finding_says_until_it_is_submitted_as_preemptible(
    product: Product,
) -> None:
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        jobs = (a_job("c"), a_job("d"))
        work = [product.submit(one, job, priority="high", preemptibility="non-preemptible") for job in jobs]
        watching.until(lambda: {fresh(each).phase for each in work} == {"Running"}, seconds=PATIENCE)
        running(product, watching, two, "a", "b", priority="low")
        one.quotas.update(gpu_deserved=GPUS * GPU)  # Rung itself refuses to go below what such work holds
        two.quotas.update(gpu_deserved=3 * GPUS * GPU)
        product.reconcile()
        claim = submitted(product, two, a_job("claim"), priority="low")
        stays_away(product, watching, claim)
        detect(product.cluster, timezone.now())
        finding = Finding.objects.get(kind=FindingKind.PINNED_QUOTA)
        assert finding.project == one
        assert finding.workload in work
        delete(workload=fresh(finding.workload), actor=SYSTEM)
        product.apply(finding.workload)
        watching.until(lambda: fresh(claim).phase == "Running", seconds=PATIENCE)
        again = submitted(product, one, a_job("again"), priority="high")
        stays_away(product, watching, again)
        detect(product.cluster, timezone.now())
        assert not Finding.objects.filter(kind=FindingKind.PINNED_QUOTA, ended_at=None).exists()


def test_at_its_limit_a_project_waits_though_there_is_room_and_says_so(product: Product) -> None:
    bounded = product.project("bounded", deserved=GPUS, limit=GPUS)
    product.reconcile()
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, bounded, "first", priority="medium")
        more = submitted(product, bounded, a_job("more"), priority="medium")
        stays_away(product, watching, more)
    assert fresh(more).phase_reason == "OverLimit"
    assert "is at its limit" in fresh(more).phase_message


def test_a_gang_waits_as_a_whole_says_why_and_starts_as_a_whole(product: Product) -> None:
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        [first] = running(product, watching, two, "first", priority="medium")
        gang = submitted(product, one, a_job("gang", pods=NODES), priority="medium")
        watching.until(lambda: fresh(gang).phase_reason, seconds=PATIENCE)
        waits(watching)
        assert [pod["spec"].get("nodeName") for pod in product.pods_of(gang)] == [None] * NODES
        assert fresh(gang).phase_reason == "Unschedulable"
        assert "too few free GPUs" in fresh(gang).phase_message
        delete(workload=fresh(first), actor=SYSTEM)
        product.apply(first)
        watching.until(lambda: fresh(gang).running_pods == NODES, seconds=PATIENCE)


def test_as_shipped_volcano_neither_preempts_nor_reclaims_and_the_connection_test_says_so(
    product: Product, volcano_cluster: LabCluster
) -> None:
    one, two = two_projects(product, deserved=2 * GPUS)
    with configured(volcano_cluster, SHIPPED):
        assert {NO_PREEMPT, NO_RECLAIM, ENQUEUE, NO_CAPACITY} <= set(try_stored(product.cluster).warnings)
        with streaming(product.cluster, product.gateway) as watching:
            running(product, watching, one, "a", "b", "c", "d", priority="low")
            comers = [submitted(product, each, a_job("comer"), priority="high") for each in (one, two)]
            for comer in comers:
                stays_away(product, watching, comer)
