"""KAI's own scheduler takes what Rung writes, and what it decides is read back with its reason and who gained.

Its programs come with nothing: LAB_KAI_BIN names the folder that holds them.
"""

import time
import uuid
from collections.abc import Iterator

import pytest
from django.utils import timezone

from clusters.connection.services.registration import try_stored
from clusters.flavours.kai import NODE_POOL_LABEL
from clusters.flavours.kai_status import RUNS
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import KAI_POD_GROUP, KAI_QUEUE, PRIORITY_CLASS, ref_of
from clusters.sync.services.reconcile import reconcile
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.services.runtime_rules import remove_min_runtime, set_min_runtime
from tests.clusters.watch.streaming import Watching, streaming
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU
from tests.factories.workloads import spec_of
from tests.real.product import PATIENCE, Product, fresh
from tests.support.lab import GPUS, NODES, LabCluster
from workloads.detectors.models import Finding
from workloads.detectors.rules import FindingKind
from workloads.detectors.services import detect
from workloads.dictionary.services.changes import change_priority_entry
from workloads.forecast.rules.forecast import Forecast, Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.lifecycle.services.actions import delete
from workloads.preemption.models import PreemptionRecord
from workloads.preemption.selectors import was_moved
from workloads.state.models import Workload, WorkloadEvent
from workloads.state.selectors.workloads import events_of

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket]

SEVERAL_CYCLES = 2.0
SPAM = 25
"""Events about one object that a client sends in a burst; KAI says at every cycle of 200 ms that a group waits."""


@pytest.fixture
def product(kai_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights."""
    product = Product(kai_cluster, uuid.uuid4().hex[:6], "kai")
    yield product
    product.end(KAI_POD_GROUP)
    for kind in (KAI_QUEUE, PRIORITY_CLASS):  # shares are the whole cluster's: an empty queue counts, too
        for each in kai_cluster.admin.list(kind, labels="app.kubernetes.io/managed-by=rung"):
            kai_cluster.admin.delete(ref_of(each))


def a_job(name: str, *, pods: int = 1, gpus: int = GPUS, grace: int = 1) -> Manifest:
    """A Job whose pods take a node each, and run until they are ended."""
    container = {"name": "main", "image": "ghcr.io/team/x:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [container]}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def a_share(name: str, share: str) -> Manifest:
    """A Job of one pod with a part of one GPU."""
    manifest = a_job(name)
    template = manifest["spec"]["template"]
    template["metadata"] = {"annotations": {"gpu-fraction": share}}
    del template["spec"]["containers"][0]["resources"]
    return manifest


def a_deployment(name: str, *, pods: int) -> Manifest:
    """Whose pods take a node each."""
    template = a_job(name)["spec"]["template"]
    template["metadata"] = {"labels": {"app": name}}
    del template["spec"]["restartPolicy"]
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def two_projects(product: Product, *, deserved: int) -> tuple[Project, Project]:
    """Of one department, with so many GPUs deserved each."""
    projects = product.project("one", deserved=deserved), product.project("two", deserved=deserved)
    product.reconcile()
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


def forecast_of(project: Project, manifest: Manifest, *, priority: str) -> Forecast:
    """Before it is submitted, as preemptible."""
    requested = {"priority": priority, "preemptibility": "preemptible"}
    spec = spec_of(manifest, namespace=project.namespace, **requested)
    row = Project.objects.select_related("cluster", "department").get(pk=project.pk)
    return forecast(spec=spec, project=row, actor=SYSTEM)


def waits(watching: Watching, *, seconds: float = SEVERAL_CYCLES) -> None:
    end = time.monotonic() + seconds
    watching.until(lambda: time.monotonic() > end, seconds=PATIENCE)


def in_the_cluster(product: Product, project: Project, **gpu: int) -> None:
    """Somebody has written another amount of GPUs into the project's queue."""
    [queue] = [each for each in product.admin.list(KAI_QUEUE) if each["metadata"]["name"].startswith(project.owner)]
    product.admin.patch(ObjectRef(KAI_QUEUE, queue["metadata"]["name"]), {"spec": {"resources": {"gpu": gpu}}})


def said_by_group(workload: Workload) -> dict[str, str]:
    """What KAI's pod group of a workload says now."""
    told = (each for each in events_of(workload) if each.kind == "Job" and each.source == "kai-scheduler")
    return {each.reason: each.message for each in told}


def the_record() -> PreemptionRecord:
    return PreemptionRecord.objects.select_related("victim", "preemptor").get()


def test_the_account_of_few_rights_is_enough_and_queues_are_made_once(product: Product) -> None:
    two_projects(product, deserved=2 * GPUS)
    again = reconcile(Cluster.objects.get(pk=product.cluster.pk))
    assert (again.written, again.failed) == (0, 0)
    report = try_stored(product.cluster)
    assert (report.works, report.fitting, report.warnings) == (True, "kai", ()), report


def test_a_higher_priority_evicts_in_its_own_queue_and_both_sides_are_named(product: Product) -> None:
    """The other queue has a weaker one; it stays."""
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        others = running(product, watching, two, "a", "b", priority="very-low")
        train = submitted(product, one, a_job("train", grace=5), priority="low")
        watching.until(lambda: fresh(train).phase == "Running", seconds=PATIENCE)
        [better] = running(product, watching, one, "better", priority="medium")
        serve = submitted(product, one, a_job("serve"), priority="high")
        watching.until(lambda: fresh(serve).phase_reason == "Evicting", seconds=PATIENCE)
        watching.until(lambda: fresh(serve).phase == "Running", seconds=PATIENCE)
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
        watching.until(lambda: fresh(train).phase == "Pending" and fresh(train).phase_reason, seconds=PATIENCE)
    record = the_record()
    assert (record.victim, record.preemptor, record.cause) == (train, serve, "preempt")
    assert record.gpu_milli == GPUS * GPU
    assert fresh(train).preempted_count == 1
    assert {fresh(each).phase for each in (*others, better, serve)} == {"Running"}


def test_a_class_recreated_counts_for_what_runs_whatever_its_pods_carry(product: Product) -> None:
    """As the forecast says: pods that run keep 80, and 65 evicts none of 80."""
    one, _two = two_projects(product, deserved=NODES * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        others = running(product, watching, one, "a", "b", "c", "d", priority="medium")
        assert forecast_of(one, a_job("asked"), priority="medium-low").verdict is Verdict.WAITS
        change_priority_entry(name="medium", value=30, actor=SYSTEM)
        product.reconcile()
        assert forecast_of(one, a_job("asked"), priority="medium-low").verdict is Verdict.EVICTS
        taker = submitted(product, one, a_job("taker"), priority="medium-low")
        watching.until(lambda: fresh(taker).phase == "Running", seconds=PATIENCE)
    assert the_record().preemptor == taker
    kept = [pod["spec"]["priority"] for each in others for pod in product.pods_of(each) if pod["spec"].get("nodeName")]
    assert kept == [80, 80, 80]


def test_each_pod_of_a_deployment_starts_waits_or_evicts_for_itself(product: Product) -> None:
    one, _two = two_projects(product, deserved=NODES * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, one, "a", priority="low")
        time.sleep(1.0)  # KAI keeps whole seconds
        running(product, watching, one, "b", priority="low")
        said = forecast_of(one, a_deployment("first", pods=3), priority="low")
        assert (said.starting, said.coming, said.waiting) == (2, 0, 1)
        first = submitted(product, one, a_deployment("first", pods=3), priority="low")
        watching.until(lambda: fresh(first).running_pods == 2, seconds=PATIENCE)
        waits(watching)
        assert fresh(first).running_pods == 2
        said = forecast_of(one, a_deployment("second", pods=3), priority="medium")
        assert (said.verdict, said.coming, said.waiting) == (Verdict.EVICTS, 3, 0)
        second = submitted(product, one, a_deployment("second", pods=3), priority="medium")
        watching.until(lambda: fresh(second).running_pods == 3, seconds=PATIENCE)
    found = PreemptionRecord.objects.all()
    assert {each.preemptor for each in found} == {second}
    assert {each.victim for each in found} == {each.workload for each in said.victims}
    assert sum(each.gpu_milli for each in found) == sum(each.gpu_milli for each in said.victims) == 3 * GPUS * GPU


def test_a_protected_run_keeps_its_place_for_as_long_as_that_is_guaranteed(product: Product) -> None:
    """As before, but for the rule; when it is lifted the same one goes."""
    one, two = two_projects(product, deserved=2 * GPUS)
    rule = set_min_runtime(owner=one, minutes=60, actor=SYSTEM)
    product.reconcile()
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, two, "a", "b", priority="very-low")
        young = running(product, watching, one, "train", "better", priority="low")
        serve = submitted(product, one, a_job("serve"), priority="high")
        watching.until(lambda: fresh(serve).phase_reason, seconds=PATIENCE)
        waits(watching)
        assert [fresh(each).phase for each in (*young, serve)] == ["Running", "Running", "Pending"]
        remove_min_runtime(rule=rule, actor=SYSTEM)
        product.reconcile()
        watching.until(lambda: fresh(serve).phase == "Running", seconds=PATIENCE)
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
    assert (the_record().victim in young, the_record().cause) == (True, "preempt")


def test_what_a_project_has_above_its_quota_is_reclaimed_by_one_below_its_own(product: Product) -> None:
    """The borrower has the higher priority: between queues that does not count. The youngest goes."""
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        borrowers = running(product, watching, one, "a", "b", "c", priority="high")
        time.sleep(1.0)  # KAI keeps whole seconds
        [youngest] = running(product, watching, one, "d", priority="high")
        [mine] = running(product, watching, two, "mine", priority="low")
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
        watching.until(lambda: fresh(youngest).phase == "Pending", seconds=PATIENCE)
    record = the_record()
    assert (record.victim, record.preemptor, record.cause) == (youngest, mine, "reclaim")
    assert {fresh(each).phase for each in (*borrowers, mine)} == {"Running"}


def test_parts_of_a_gpu_are_counted_once_and_come_out_of_one_device(product: Product) -> None:
    """KAI holds the device by a pod of its own; what is left of it is for parts alone, and none is larger than that."""
    one, _two = two_projects(product, deserved=NODES * GPUS)
    shares = (a_share("half", "0.5"), a_share("third", "0.3"))
    with streaming(product.cluster, product.gateway) as watching:
        for manifest in shares:
            share = submitted(product, one, manifest, priority="low")
            watching.until(lambda share=share: fresh(share).phase == "Running", seconds=PATIENCE)
        running(product, watching, one, "a", "b", "c", priority="low")
        assert forecast_of(one, a_job("seven", gpus=GPUS - 1), priority="low").verdict is Verdict.STARTS
        seven = submitted(product, one, a_job("seven", gpus=GPUS - 1), priority="low")
        watching.until(lambda: fresh(seven).phase == "Running", seconds=PATIENCE)
        assert forecast_of(one, a_share("more", "0.3"), priority="low").verdict is Verdict.WAITS
        assert forecast_of(one, a_share("rest", "0.2"), priority="low").verdict is Verdict.STARTS
        more = submitted(product, one, a_share("more", "0.3"), priority="low")
        rest = submitted(product, one, a_share("rest", "0.2"), priority="low")
        watching.until(lambda: fresh(rest).phase == "Running", seconds=PATIENCE)
        assert fresh(more).phase == "Pending"


def test_three_parts_of_six_tenths_do_not_fit_two_gpus(product: Product) -> None:
    """1.8 GPUs of 2 are asked for, but a part is never taken out of two devices."""
    one, _two = two_projects(product, deserved=NODES * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, one, "a", "b", "c", priority="low")
        six = submitted(product, one, a_job("six", gpus=GPUS - 2), priority="low")
        watching.until(lambda: fresh(six).phase == "Running", seconds=PATIENCE)
        for name in ("first", "second"):
            assert forecast_of(one, a_share(name, "0.6"), priority="low").verdict is Verdict.STARTS
            share = submitted(product, one, a_share(name, "0.6"), priority="low")
            watching.until(lambda share=share: fresh(share).phase == "Running", seconds=PATIENCE)
        assert forecast_of(one, a_share("third", "0.6"), priority="low").verdict is Verdict.WAITS
        third = submitted(product, one, a_share("third", "0.6"), priority="low")
        rest = submitted(product, one, a_share("rest", "0.4"), priority="low")
        watching.until(lambda: fresh(rest).phase == "Running", seconds=PATIENCE)
        assert fresh(third).phase == "Pending"


def test_non_preemptible_work_above_the_deserved_quota_is_refused_here_and_there(product: Product) -> None:
    """Rung refuses it at submission; where the queue in the cluster has less, KAI says why, with its numbers."""
    one, _two = two_projects(product, deserved=2 * GPUS)
    with pytest.raises(ValidationFailed) as refused:
        product.submit(one, a_job("serve", pods=3), priority="high", preemptibility="non-preemptible")
    assert refused.value.problems[0].code == "NonPreemptibleOverQuota"
    in_the_cluster(product, one, quota=GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        first = product.submit(one, a_job("first"), priority="high", preemptibility="non-preemptible")
        watching.until(lambda: fresh(first).phase == "Running", seconds=PATIENCE)
        second = product.submit(one, a_job("second"), priority="high", preemptibility="non-preemptible")
        watching.until(lambda: fresh(second).phase_reason == "NonPreemptibleOverQuota", seconds=PATIENCE)
    deserves = (
        f"Needs {GPUS} GPUs in lab; project {one.name} deserves {GPUS} GPUs, its non-preemptible workloads use {GPUS}"
    )
    assert deserves in fresh(second).phase_message
    assert not PreemptionRecord.objects.exists(), product.everyone()


def test_non_preemptible_work_above_a_lowered_quota_is_named_and_frees_it_only_as_preemptible(product: Product) -> None:
    one, two = two_projects(product, deserved=2 * GPUS)
    fixed = {"priority": "high", "preemptibility": "non-preemptible"}
    with streaming(product.cluster, product.gateway) as watching:
        older, newer = (product.submit(one, a_job(name), **fixed) for name in ("older", "newer"))
        watching.until(lambda: all(fresh(each).phase == "Running" for each in (older, newer)), seconds=PATIENCE)
        one.quotas.update(gpu_deserved=GPUS * GPU)  # Rung itself refuses to go below what such work holds
        two.quotas.update(gpu_deserved=(NODES - 1) * GPUS * GPU)
        product.reconcile()
        running(product, watching, two, *(f"claim-{number}" for number in range(NODES - 2)), priority="low")
        last = submitted(product, two, a_job("last"), priority="low")
        watching.until(lambda: fresh(last).phase_reason == "Unschedulable", seconds=PATIENCE)
        waits(watching)
        detect(product.cluster, timezone.now())
        found = Finding.objects.get(kind=FindingKind.PINNED_QUOTA)
        assert f"hold {2 * GPUS} GPUs in lab; its deserved quota there is {GPUS} GPUs" in found.evidence[0]
        assert "submit {0} again as preemptible" in found.advice
        assert fresh(last).phase == "Pending"
        assert not PreemptionRecord.objects.exists(), product.everyone()
        delete(workload=fresh(newer), actor=SYSTEM)
        product.apply(newer)
        again = submitted(product, one, a_job("newer-again"), priority="high")
        watching.until(lambda: fresh(last).phase == "Running", seconds=PATIENCE)
        assert fresh(again).phase == "Pending"


def test_a_queue_at_its_limit_says_so(product: Product) -> None:
    one, _two = two_projects(product, deserved=2 * GPUS)
    in_the_cluster(product, one, limit=GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, one, "first", priority="medium")
        second = submitted(product, one, a_job("second"), priority="medium")
        watching.until(lambda: fresh(second).phase_reason == "OverLimit", seconds=PATIENCE)
        watching.until(lambda: "Queued" in said_by_group(second), seconds=PATIENCE)
        assert said_by_group(second)["Queued"].startswith("OverLimit: ")
        assert f"project {one.name} uses {GPUS} of its limit of {GPUS} GPUs" in fresh(second).phase_message
        in_the_cluster(product, one, limit=2 * GPUS)
        watching.until(lambda: fresh(second).phase == "Running", seconds=PATIENCE)
        watching.until(lambda: said_by_group(second) == {"Admitted": RUNS}, seconds=PATIENCE)


def test_a_queue_that_is_not_there_is_told_so(product: Product) -> None:
    one, _two = two_projects(product, deserved=2 * GPUS)
    [queue] = [each for each in product.admin.list(KAI_QUEUE) if each["metadata"]["name"].startswith(one.owner)]
    product.admin.delete(ref_of(queue))
    with streaming(product.cluster, product.gateway) as watching:
        lost = submitted(product, one, a_job("lost"), priority="medium")
        watching.until(lambda: fresh(lost).phase_reason == "QueueMissing", seconds=PATIENCE)
    assert said_by_group(lost)["Queued"].startswith("QueueDoesNotExist: ")


def test_a_gang_waits_as_a_whole_and_starts_as_a_whole(product: Product) -> None:
    """Also a Job, of which KAI would start any pod for itself."""
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        [first] = running(product, watching, two, "first", priority="medium")
        gang = submitted(product, one, a_job("gang", pods=NODES), priority="medium")
        watching.until(lambda: fresh(gang).phase_reason, seconds=PATIENCE)
        waits(watching)
        assert [pod["spec"].get("nodeName") for pod in product.pods_of(gang)] == [None] * NODES
        delete(workload=fresh(first), actor=SYSTEM)
        product.apply(first)
        watching.until(lambda: fresh(gang).running_pods == NODES, seconds=PATIENCE)


def test_a_gang_that_is_reclaimed_goes_whole(product: Product) -> None:
    one, two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        [gang] = running(product, watching, one, "gang", priority="high", pods=NODES)
        [mine] = running(product, watching, two, "mine", priority="low")
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False)[NODES - 1 :].exists, seconds=PATIENCE)
    found = PreemptionRecord.objects.all()
    assert {(each.victim, each.preemptor, each.cause) for each in found} == {(gang, mine, "reclaim")}
    assert (len(found), fresh(gang).preempted_count) == (NODES, 1)


def ended(product: Product, watching: Watching, *workloads: Workload) -> None:
    """Taken out of the cluster, with their pods."""
    for each in workloads:
        delete(workload=fresh(each), actor=SYSTEM)
        product.apply(each)
    watching.until(lambda: not any(product.pods_of(each) for each in workloads), seconds=PATIENCE)


def why_it_stopped(workload: Workload) -> list[str]:
    """Reasons of its moves back to Pending, since it ran."""
    moves = WorkloadEvent.objects.filter(workload=workload, type="phase").order_by("pk").values_list("phase", "reason")
    ran = [phase for phase, _ in moves].index("Running")
    return [reason for phase, reason in list(moves)[ran:] if phase == "Pending"]


def test_an_eviction_whose_event_is_lost_is_recorded_without_who_gained(product: Product) -> None:
    """A group that has waited long has used up the events that a client sends about it."""
    one, _two = two_projects(product, deserved=2 * GPUS)
    with streaming(product.cluster, product.gateway) as watching:
        first, *_others = running(product, watching, one, "a", "b", "c", "d", priority="medium")
        victim = submitted(product, one, a_job("victim"), priority="low")
        waits(watching, seconds=SPAM * 0.2 + SEVERAL_CYCLES)
        ended(product, watching, first)
        watching.until(lambda: fresh(victim).phase == "Running", seconds=PATIENCE)
        serve = submitted(product, one, a_job("serve"), priority="high")
        watching.until(lambda: fresh(serve).phase == "Running", seconds=PATIENCE)
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
    assert not [each for each in events_of(victim) if each.reason == "Evict"]
    record = the_record()
    assert (record.victim, record.preemptor, record.cause) == (victim, None, "unknown")
    assert why_it_stopped(victim) == ["Evicted"]


def test_a_move_is_recorded_as_one(product: Product) -> None:
    """Four GPUs are free on each of two nodes, and somebody needs eight on one."""
    one, _two = two_projects(product, deserved=2 * GPUS)
    half = GPUS // 2
    with streaming(product.cluster, product.gateway) as watching:
        running(product, watching, one, "x", "y", priority="medium")
        parts = [submitted(product, one, a_job(name, gpus=half), priority="medium") for name in "abcd"]
        watching.until(lambda: all(fresh(each).phase == "Running" for each in parts), seconds=PATIENCE)
        nodes: dict[str, Workload] = {}
        for each in parts:
            [pod] = product.pods_of(each)
            nodes.setdefault(pod["spec"]["nodeName"], each)
        ended(product, watching, *nodes.values())
        big = submitted(product, one, a_job("big"), priority="medium")
        watching.until(lambda: fresh(big).phase == "Running", seconds=PATIENCE)
        watching.until(PreemptionRecord.objects.filter(gone_at__isnull=False).exists, seconds=PATIENCE)
        watching.until(lambda: all(fresh(each).phase == "Running" for each in left(parts)), seconds=PATIENCE)
    record = the_record()
    assert was_moved([record]), record.message
    assert why_it_stopped(record.victim)[:1] == ["Moved"]


def left(parts: list[Workload]) -> list[Workload]:
    return [each for each in map(fresh, parts) if each.deleted_at is None and each.desired_phase == "Running"]


def shard(product: Product, value: str) -> Manifest:
    """What KAI's operator would run one more scheduler for."""
    named = {"name": f"{product.mark}-{value or 'default'}"}
    spec = {"partitionLabelValue": value} if value else {}
    return {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": named, "spec": spec}


def test_pools_that_share_a_scheduler_or_have_none_are_named_by_what_the_account_may_read(product: Product) -> None:
    NodePoolFactory(cluster=product.cluster, name="a100", label_key=NODE_POOL_LABEL)
    NodePoolFactory(cluster=product.cluster, name="l40", label_key=NODE_POOL_LABEL)
    assert try_stored(product.cluster).warnings == ()
    made = [product.admin.apply(shard(product, value), manager="lab") for value in ("", "l40")]
    try:
        (warning,) = try_stored(product.cluster).warnings
        assert warning.startswith("No SchedulingShard of KAI Scheduler covers the nodes of a100")
        product.reconcile()
        assert Cluster.objects.get(pk=product.cluster.pk).configured == {"shards": ["", "l40"]}
        NodePool.objects.filter(cluster=product.cluster, name="a100").update(label_key="rung.dev/node-pool")
        (warning,) = try_stored(product.cluster).warnings
        assert warning.startswith("One KAI Scheduler serves the node pools a100 and lab and counts quotas")
    finally:
        for each in made:
            product.admin.delete(ref_of(each))
