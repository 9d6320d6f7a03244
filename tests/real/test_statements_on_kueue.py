"""Sentences of pages put to a real Kueue: each test is one statement, and what Kueue then did."""

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.ports.gateway import Manifest
from clusters.ports.objects import KUEUE_WORKLOAD
from clusters.sync.models import Drift
from clusters.watch.models import ObservedObject
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.selectors.quota_rows import PoolQuota, startable_rows
from tests.clusters.watch.streaming import Watching, streaming
from tests.factories.tenants import GPU
from tests.factories.workloads import spec_of
from tests.real.product import PATIENCE, Product, fresh
from tests.real.queued import a_job, in_phase, running, two_projects
from tests.support.lab import LabCluster
from workloads.detectors.models import Finding
from workloads.detectors.rules import FindingKind
from workloads.detectors.services import detect
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.alternatives import waiting_alternatives
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import why_waiting
from workloads.lifecycle.selectors.workloads import applied_objects
from workloads.lifecycle.services.actions import change_priority
from workloads.plans.services.plans import plan_change
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket, pytest.mark.timeout(300)]
LOW = {"priority": "low", "preemptibility": "preemptible"}
CORE = 1000


@pytest.fixture
def product(kueue_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights."""
    product = Product(kueue_cluster, uuid.uuid4().hex[:6], "kueue")
    yield product
    product.end(KUEUE_WORKLOAD)


def current(project: Project) -> Project:
    return Project.objects.select_related("cluster", "department").get(pk=project.pk)


def startable(product: Product, project: Project) -> PoolQuota:
    return next(row for row in startable_rows(current(project)) if row.pool == product.pool)


def with_cpu(manifest: Manifest, cpu: int) -> Manifest:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"] = {"cpu": str(cpu)}
    return manifest


def let_deserve(product: Product, *projects: Project, cpu: int) -> None:
    """So many CPUs each, beside their GPUs, and their department as much as they do.

    Not through the service: a later generation of queues would stay in the cluster, and fence off the next test's.
    """
    ProjectQuota.objects.filter(project__in=projects).update(cpu_deserved=cpu * CORE)
    DepartmentQuota.objects.filter(department=product.department).update(cpu_deserved=len(projects) * cpu * CORE)
    product.reconcile()


def queued(product: Product, watching: Watching, project: Project, manifest: Manifest) -> Workload:
    workload = product.submit(project, manifest, **LOW)
    watching.until(in_phase(workload, "Pending", "WaitingForQuota"), seconds=PATIENCE)
    return workload


def test_as_much_starts_as_quota_can_lend_and_the_next_one_waits(product: Product) -> None:
    """Point 14: sixteen GPUs of quota, though thirty-two are free."""
    one, _two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        watching.until(lambda: startable(product, one).headroom is not None, seconds=PATIENCE)
        row = startable(product, one)
        assert row.sentence.startswith("8 GPUs can start in lab within quota, 8 more over quota")
        assert "No more quota to borrow." in row.sentence
        running(product, watching, one, a_job("fills", pods=2), priority="low")
        assert "No quota left, and none to borrow." in startable(product, one).sentence
        queued(product, watching, one, a_job("more"))


def test_a_wait_for_quota_of_cpu_names_cpu_and_more_of_it_starts_the_job(product: Product) -> None:
    """Points 14 and 18: on the project's page, in the preview and why it waits."""
    one, two = two_projects(product)
    let_deserve(product, one, two, cpu=4)
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, one, with_cpu(a_job("first"), 5), priority="low")
        said = startable(product, one).sentence
        assert "At most 3 CPUs in total for these pods: no more quota to borrow." in said
        spec = spec_of(with_cpu(a_job("second"), 4), namespace=one.namespace, **LOW)
        answer = forecast(spec=spec, project=current(one), actor=SYSTEM)
        assert (answer.verdict, answer.numbers.get("short")) == (Verdict.WAITS, "cpu")
        assert "CPU" in answer.sentence
        second = queued(product, watching, one, with_cpu(a_job("second"), 4))
        headline = why_waiting(fresh(second))
        assert headline
        assert "CPU" in headline.sentence
        let_deserve(product, one, two, cpu=5)
        watching.until(in_phase(second, "Running"), seconds=PATIENCE)


def test_a_stronger_priority_evicts_whom_the_way_out_names(product: Product) -> None:
    """Point 23."""
    one, two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        victim = running(product, watching, one, a_job("victim"), priority="low")
        running(product, watching, two, a_job("other"), priority="low")
        waiting = queued(product, watching, one, a_job("waits"))
        way = next(each for each in waiting_alternatives(workload=fresh(waiting), actor=SYSTEM) if each.priority)
        assert (way.priority, "after evicting victim (8 GPUs)" in way.words) == ("medium-low", True)
        change_priority(workload=fresh(waiting), priority=way.priority, actor=SYSTEM)
        product.apply(waiting)
        watching.until(lambda: fresh(waiting).phase == "Running" or product.apply(waiting), seconds=PATIENCE)
        watching.until(lambda: fresh(victim).preempted_count == 1, seconds=PATIENCE)


def test_what_kueue_writes_on_a_job_is_no_difference_and_another_queue_is(product: Product) -> None:
    """What is held is compared with what was written, where the watch shows it."""
    one, two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        job = running(product, watching, one, a_job("job"), priority="low")
        assert (applied_objects(fresh(job)).held, applied_objects(fresh(job)).changes) == ("same", ())
        waits = product.submit(two, a_job("waits", pods=3), **LOW)
        watching.until(in_phase(waits, "Pending", "OverLimit"), seconds=PATIENCE)
        product.reconcile()
        assert not Drift.objects.filter(cluster=product.cluster, owner__startswith="workload.").exists()
        product.admin.patch(product.ref_to(waits), {"metadata": {"labels": {QUEUE: "elsewhere"}}})
        watching.until(lambda: scheduling_of(waits).get(POINTER) == "elsewhere", seconds=PATIENCE)
        (found,) = applied_objects(fresh(waits)).changes
        assert (applied_objects(fresh(waits)).held, found.path, found.observed) == ("changed", POINTER, "elsewhere")
        product.reconcile()
    (row,) = Drift.objects.filter(cluster=product.cluster, owner__startswith="workload.")
    assert (row.owner, row.changes) == (f"workload.{waits.pk}", [[POINTER, "elsewhere", found.desired]])


QUEUE = "kueue.x-k8s.io/queue-name"
POINTER = "/metadata/labels/kueue.x-k8s.io~1queue-name"


def test_no_finding_calls_a_lowered_quota_pinned_since_kueue_reclaims_non_preemptible_work(product: Product) -> None:
    one, two = two_projects(product, deserved=16)
    fixed = {"priority": "high", "preemptibility": "non-preemptible"}
    with streaming(product.cluster, product.gateway) as watching:
        older, newer = (product.submit(one, a_job(name), **fixed) for name in ("older", "newer"))
        for each in (older, newer):
            watching.until(in_phase(each, "Running"), seconds=PATIENCE)
        quota = one.quotas.get()
        quota.gpu_deserved = 8 * GPU  # Rung itself refuses to go below what such work holds
        quota.save()
        product.department.quotas.update(gpu_deserved=24 * GPU)
        product.reconcile()
        detect(product.cluster, timezone.now())
        assert not Finding.objects.filter(kind=FindingKind.PINNED_QUOTA).exists()
        for name in ("claim-1", "claim-2"):
            watching.until(in_phase(product.submit(two, a_job(name), **LOW), "Running"), seconds=PATIENCE)
        watching.until(PreemptionRecord.objects.exists, seconds=PATIENCE)  # what Kueue says may come last
    (record,) = PreemptionRecord.objects.all()
    assert record.victim in {older, newer}
    assert record.cause == "reclaim"


def test_a_plan_names_the_non_preemptible_work_that_kueue_then_reclaims(product: Product) -> None:
    """What it proposes is written to the rows, as in `let_deserve`."""
    one, two = two_projects(product, deserved=16)
    with streaming(product.cluster, product.gateway) as watching:
        older = running(product, watching, one, a_job("older"), priority="high")
        watching.until(lambda: timezone.now() - (fresh(older).started_at or timezone.now()) > timedelta(seconds=2))
        fixed = product.submit(one, a_job("fixed"), priority="high", preemptibility="non-preemptible")
        watching.until(in_phase(fixed, "Running"), seconds=PATIENCE)
        change = {"project": one.name, "pool": "lab", "values": {"gpu_deserved": 8 * GPU}, "reason": "Less is needed"}
        plan = plan_change(kind="project_quota", change=change, actor=SYSTEM)
        assert [each["name"] for each in plan.effect["workloads"]["becomes_reclaimable"]["examples"]] == ["fixed"]
        one.quotas.update(gpu_deserved=8 * GPU)
        product.department.quotas.update(gpu_deserved=24 * GPU)
        product.reconcile()
        for name in ("claim-1", "claim-2"):
            watching.until(in_phase(product.submit(two, a_job(name), **LOW), "Running"), seconds=PATIENCE)
        watching.until(PreemptionRecord.objects.exists, seconds=PATIENCE)
    (record,) = PreemptionRecord.objects.all()
    assert (record.victim, record.cause) == (fixed, "reclaim")


def scheduling_of(workload: Workload) -> dict[str, object]:
    rows = ObservedObject.objects.filter(owner_id=str(workload.pk), kind="Job.batch")
    found: dict[str, object] = rows.values_list("scheduling", flat=True).first() or {}
    return found
