"""Kueue's own controller takes the queues Rung makes, and what it decides is read back with its reason."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from clusters.connection.services.registration import try_stored
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import set_defer_preemptors, update_node_pool
from clusters.ports.gateway import Kind, Manifest, ObjectRef
from clusters.ports.objects import KUEUE_COHORT, KUEUE_FLAVOR, KUEUE_QUEUE, KUEUE_TOPOLOGY, KUEUE_WORKLOAD, NODE, ref_of
from clusters.sync.models import Drift, DriftKind
from clusters.sync.rules.diff import is_leaving
from clusters.sync.services.reconcile import reconcile
from clusters.watch.models import ObservedPod
from clusters.watch.services.visibility_poller import job_rejection_of
from portal.kit.errors import Conflict, ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.services.runtime_rules import remove_min_runtime, set_min_runtime
from tests.clusters.watch.streaming import streaming
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, DepartmentQuotaFactory, ProjectQuotaFactory
from tests.factories.workloads import deployment, spec_of
from tests.real.product import PATIENCE, Product, fresh, quick
from tests.real.queued import a_job, in_phase, running, two_projects
from tests.support.kube import KubeError
from tests.support.lab import LabCluster
from tests.support.processes import eventually
from workloads.forecast.rules.forecast import Verdict
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.waiting import queue_place
from workloads.lifecycle.services.actions import change_priority, resume, stop
from workloads.preemption.models import PreemptionRecord
from workloads.state.models import Workload

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket]

CONFIGURATION = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
RACK = "topology.example.com/rack"
WEBHOOKS = ObjectRef(CONFIGURATION, "kueue-mutating-webhook-configuration")


@pytest.fixture
def product(kueue_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Product]:
    """The product on it, under the account of few rights."""
    product = Product(kueue_cluster, uuid.uuid4().hex[:6], "kueue")
    yield product
    product.end(KUEUE_WORKLOAD)  # what is left in a queue counts in the next test's queue of the same name


def a_job_set(name: str) -> Manifest:
    """A leader and a worker, each with a node of its own."""
    template = a_job(name)["spec"]
    jobs = [{"name": role, "replicas": 1, "template": {"spec": template}} for role in ("leader", "worker")]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs},
    }


def is_active(queue: Manifest) -> bool:
    said = queue.get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Active", "True") for each in said)


def records_of(victim: Workload) -> QuerySet[PreemptionRecord]:
    """Complete ones."""
    return PreemptionRecord.objects.filter(victim=victim, preemptor__isnull=False, gone_at__isnull=False)


@contextmanager
def kueue_away(product: Product) -> Iterator[None]:
    """Nobody answers where Kueue's webhook for Jobs should; the API server has noticed."""
    before = product.admin.must(WEBHOOKS)["webhooks"]
    away = [{**each, "clientConfig": {"url": "https://127.0.0.1:1/away"}} for each in before]
    product.admin.patch(WEBHOOKS, {"webhooks": away})
    try:
        eventually(lambda: not takes_jobs(product), seconds=20)
        yield
    finally:
        product.admin.patch(WEBHOOKS, {"webhooks": before})
        eventually(lambda: takes_jobs(product), seconds=20)


def takes_jobs(product: Product) -> bool:
    body = {**quick(a_job("probe")), "metadata": {"name": "probe", "namespace": "default"}}
    try:
        product.admin.call("POST", "/apis/batch/v1/namespaces/default/jobs?dryRun=All", body)
    except KubeError as error:
        if "webhook" not in error.message:
            raise
        return False
    return True


def test_queues_are_made_once_and_then_left_alone(product: Product) -> None:
    one, _two = two_projects(product)
    again = reconcile(Cluster.objects.get(pk=product.cluster.pk))
    assert (again.written, again.failed) == (0, 0)
    queue = product.admin.wait_until(ObjectRef(KUEUE_QUEUE, one.owner), is_active)
    assert queue["spec"]["cohortName"] == product.department.owner
    cohort = product.admin.must(ObjectRef(KUEUE_COHORT, product.department.owner))
    assert cohort["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "0"
    report = try_stored(product.cluster)
    assert (report.works, report.fitting) == (True, "kueue"), report


def test_a_kind_that_kueue_is_configured_to_leave_alone_is_refused_and_named_to_admins(product: Product) -> None:
    """The lab's Kueue manages Jobs and JobSets alone. The account of few rights may read that."""
    one, _two = two_projects(product)
    assert Cluster.objects.get(pk=product.cluster.pk).configured["integrations"] == [
        "batch/job",
        "jobset.x-k8s.io/jobset",
    ]
    with pytest.raises(ValidationFailed, match="the integration deployment is disabled in Kueue's configuration"):
        product.submit(fresh_project(one), deployment())
    (warning,) = try_stored(product.cluster).warnings
    assert "Deployment, StatefulSet, LeaderWorkerSet, all kinds that Kueue does not support" in warning


def test_a_higher_priority_evicts_in_its_queue_and_the_lower_one_waits_with_the_reason(product: Product) -> None:
    one, two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        train = running(product, watching, one, a_job("train"), priority="low")
        running(product, watching, two, a_job("other"), priority="low")
        serve = running(product, watching, one, a_job("serve"), priority="high")
        watching.until(records_of(train).exists, seconds=PATIENCE)
        watching.until(in_phase(train, "Pending", "WaitingForQuota"), seconds=PATIENCE)
    record = PreemptionRecord.objects.get(victim=train)
    assert (record.preemptor, record.cause, record.gpu_milli) == (serve, "preempt", 8 * GPU)
    assert fresh(train).phase_message.startswith("Waits for quota: ")
    assert fresh(train).phase_message.endswith(" more in lab.")
    assert fresh(train).preempted_count == 1


def test_who_would_evict_protected_work_in_its_queue_is_held_back_until_the_rule_is_lifted(product: Product) -> None:
    one, two = two_projects(product)
    set_defer_preemptors(cluster=product.cluster, enabled=True, actor=SYSTEM)
    rule = set_min_runtime(owner=one, minutes=30, actor=SYSTEM)
    with streaming(product.cluster, product.gateway) as watching:
        train = running(product, watching, one, a_job("train"), priority="low")
        running(product, watching, two, a_job("other"), priority="low")
        serve = product.submit(one, a_job("serve"), priority="high")
        assert (fresh(serve).phase, fresh(serve).phase_reason) == ("Pending", "HeldBack")
        assert product.object_of(serve) is None
        remove_min_runtime(rule=rule, actor=SYSTEM)
        product.apply(serve)
        watching.until(records_of(train).exists, seconds=PATIENCE)
        watching.until(in_phase(serve, "Running"), seconds=PATIENCE)


def test_another_priority_reaches_a_running_job_at_once(product: Product) -> None:
    """As far as Kueue goes, which alone decides who is evicted in its queues; pods keep the number they have."""
    one, _two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        train = running(product, watching, one, a_job("train"), priority="low")
        change_priority(workload=fresh(train), priority="high", actor=SYSTEM)
        product.apply(train)
        live = product.object_of(train)
        assert live is not None
        assert live["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
        eventually(lambda: kueue_priorities(product) == [125], seconds=20)
        assert [pod["spec"]["priority"] for pod in product.pods_of(train)] == [40]
        assert fresh(train).phase == "Running"


def kueue_priorities(product: Product) -> list[int]:
    return [each["spec"].get("priority") for each in product.admin.list(KUEUE_WORKLOAD)]


def test_what_a_project_has_borrowed_is_reclaimed_by_the_one_that_deserves_it(product: Product) -> None:
    """The borrower has the higher priority: between queues that does not count."""
    one, two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        train = running(product, watching, one, a_job("train", pods=2), priority="high")
        mine = running(product, watching, two, a_job("mine"), priority="low")
        watching.until(lambda: records_of(train).count() == 2, seconds=PATIENCE)
    taken = PreemptionRecord.objects.filter(victim=train)
    assert {(record.preemptor, record.cause) for record in taken} == {(mine, "reclaim")}
    assert fresh(train).preempted_count == 1


def test_one_that_asks_for_more_than_there_is_says_so_and_a_stopped_one_leaves_the_queue(product: Product) -> None:
    one, _two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        huge = product.submit(one, a_job("huge", pods=3), priority="low")
        watching.until(in_phase(huge, "Pending", "OverLimit"), seconds=PATIENCE)
        product.apply(huge)  # whatever is written again: a queued job is not let go
        held = product.object_of(huge)
        assert held is not None
        assert held["spec"]["suspend"] is True
        stop(workload=fresh(huge), actor=SYSTEM)
        product.apply(huge)
        watching.until(lambda: fresh(huge).phase == "Stopped", seconds=PATIENCE)
        assert product.object_of(huge) is None
        resume(workload=fresh(huge), actor=SYSTEM)
        product.apply(huge)
        watching.until(in_phase(huge, "Pending", "OverLimit"), seconds=PATIENCE)
    assert product.pods_of(huge) == []


def test_a_job_set_waits_whole_starts_whole_and_ends(product: Product) -> None:
    """Kueue holds it back and lets it go, JobSet's own controller makes its jobs: both are real."""
    one, two = two_projects(product)
    with streaming(product.cluster, product.gateway) as watching:
        other = running(product, watching, two, a_job("other"), priority="low")
        pair = product.submit(one, a_job_set("pair"), priority="low", preemptibility="preemptible")
        watching.until(in_phase(pair, "Pending", "WaitingForQuota"), seconds=PATIENCE)
        held = product.object_of(pair)
        assert held is not None
        assert (held["spec"]["suspend"], product.pods_of(pair)) == (True, []), "though one of its pods had room"
        stop(workload=fresh(other), actor=SYSTEM)
        product.apply(other)
        watching.until(in_phase(pair, "Running"), seconds=PATIENCE)
        assert fresh(pair).running_pods == 2
        for pod in product.pods_of(pair):
            product.admin.patch(ref_of(pod), {"metadata": {"annotations": {"lab.rung.dev/run-for": "0s"}}})
        watching.until(lambda: fresh(pair).phase == "Completed", seconds=PATIENCE)


@contextmanager
def racks(product: Product) -> Iterator[NodePool]:
    """A pool of three nodes: one in the rack small, two in the rack large. No node says in which row it stands."""
    pool: NodePool = NodePoolFactory(cluster=product.cluster, name="racks", label_value="racks")
    nodes = list(product.admin.gpu_nodes(3, 8, "racks"))
    for name, rack in zip(nodes, ("small", "large", "large"), strict=True):
        product.admin.patch(ObjectRef(NODE, name), {"metadata": {"labels": {RACK: rack}}})
    try:
        yield pool
    finally:
        product.end(KUEUE_WORKLOAD)
        made = (KUEUE_QUEUE, KUEUE_FLAVOR, KUEUE_TOPOLOGY)
        left = [ref_of(each) for kind in made for each in product.admin.list(kind)]
        for ref in (*left, *(ObjectRef(NODE, name) for name in nodes)):
            product.admin.delete(ref)
        for ref in left:
            let_go(product, ref)


def let_go(product: Product, ref: ObjectRef) -> None:
    """Wait until Kueue has let go of what was deleted.

    It looks at a Topology that waits for its flavors only when something happens, and perhaps a moment too early.
    """

    def is_gone() -> bool:
        with suppress(KubeError):  # gone in between
            product.admin.patch(ref, {"metadata": {"annotations": {"lab.rung.dev/looked-at": uuid.uuid4().hex}}})
        return product.admin.get(ref) is None

    eventually(is_gone, seconds=PATIENCE)


def test_a_gang_that_asks_for_one_rack_gets_it_or_waits_though_its_quota_is_free(product: Product) -> None:
    with racks(product) as pool:
        DepartmentQuotaFactory(department=product.department, node_pool=pool, gpu_deserved=64 * GPU)
        project = product.project("one")
        ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=64 * GPU)
        near = a_job("near", pods=2)
        near["metadata"]["annotations"] = {"rung.dev/topology-key": RACK}
        requested = {"priority": "low", "preemptibility": "preemptible", "node_pools": ("racks",)}
        with pytest.raises(ValidationFailed, match="node pool racks has no topology levels"):
            product.submit(project, near, **requested)
        product.reconcile()
        give_levels(product, RACK)
        with streaming(product.cluster, product.gateway) as watching:
            first = product.submit(fresh_project(project), near, **requested)
            watching.until(in_phase(first, "Running"), seconds=PATIENCE)
            assert racks_of(product, first) == {"large"}
            near["metadata"]["name"] = "far"
            second = product.submit(fresh_project(project), near, **requested)
            watching.until(in_phase(second, "Pending", "NoDomain"), seconds=PATIENCE)
        elsewhere = a_job("row", pods=2)
        elsewhere["metadata"]["annotations"] = {"rung.dev/topology-key": "rung.dev/node-pool"}
        with pytest.raises(ValidationFailed, match="is not a topology level of node pool racks"):
            product.submit(fresh_project(project), elsewhere, **requested)


def test_for_a_rack_kueue_evicts_though_quota_is_free_as_predicted_and_what_asks_for_none_runs_beside(
    product: Product,
) -> None:
    """The project's queue has a pool without levels, too."""
    with racks(product) as pool:
        DepartmentQuotaFactory(department=product.department, node_pool=pool, gpu_deserved=64 * GPU)
        project = product.project("one")
        ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=64 * GPU)
        product.reconcile()
        give_levels(product, RACK)
        near = a_job("weak", pods=2)
        near["metadata"]["annotations"] = {"rung.dev/topology-key": RACK}
        requested: dict[str, Any] = {"preemptibility": "preemptible", "node_pools": ("racks",)}
        with streaming(product.cluster, product.gateway) as watching:
            weak = product.submit(fresh_project(project), near, priority="low", **requested)
            watching.until(in_phase(weak, "Running"), seconds=PATIENCE)
            plain = product.submit(fresh_project(project), a_job("plain"), priority="high", **requested)
            watching.until(in_phase(plain, "Running"), seconds=PATIENCE)
            near["metadata"]["name"] = "strong"
            spec = spec_of(near, namespace=project.namespace, priority="high", **requested)
            predicted = forecast(spec=spec, project=fresh_project(project), actor=SYSTEM)
            assert (predicted.verdict, [each.workload for each in predicted.victims]) == (Verdict.EVICTS, [weak])
            strong = product.submit(fresh_project(project), near, priority="high", **requested)
            watching.until(in_phase(strong, "Running"), seconds=PATIENCE)
            watching.until(in_phase(weak, "Pending", "NoDomain"), seconds=PATIENCE)
            watching.until(records_of(weak).exists, seconds=PATIENCE)
        assert racks_of(product, strong) == {"large"}
        records = PreemptionRecord.objects.all()
        assert {(each.victim, each.preemptor, each.cause) for each in records} == {(weak, strong, "preempt")}


def racks_of(product: Product, workload: Workload) -> set[str]:
    """The racks in which its pods are."""
    nodes = (product.admin.must(ObjectRef(NODE, pod["spec"]["nodeName"])) for pod in product.pods_of(workload))
    return {node["metadata"]["labels"][RACK] for node in nodes}


def give_levels(product: Product, *levels: str) -> set[str]:
    """What an admin does on the pool's page, and the next run; names of the topologies that Kueue then has."""
    update_node_pool(pool=NodePool.objects.get(name="racks"), topology_levels=levels, actor=SYSTEM)
    product.reconcile()
    assert not Drift.objects.filter(cluster=product.cluster, category=DriftKind.CONFLICT).exists()
    return {each["metadata"]["name"] for each in product.admin.list(KUEUE_TOPOLOGY) if not is_leaving(each)}


def holds_nothing(workload: Workload) -> bool:
    """No node is held by it as far as Rung has seen."""
    return not ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None).exclude(node_name="").exists()


def test_levels_come_change_and_go_though_kueue_never_changes_a_flavor(product: Product) -> None:
    with racks(product) as pool:
        DepartmentQuotaFactory(department=product.department, node_pool=pool, gpu_deserved=64 * GPU)
        project = product.project("one")
        ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=64 * GPU)
        product.reconcile()
        assert give_levels(product, RACK) == {"racks"}
        topology = product.admin.must(ObjectRef(KUEUE_TOPOLOGY, "racks"))
        assert topology["spec"]["levels"] == [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        assert product.admin.must(ObjectRef(KUEUE_FLAVOR, "racks"))["spec"]["topologyName"] == "racks"
        near = a_job("near", pods=2)
        near["metadata"]["annotations"] = {"rung.dev/topology-key": RACK}
        requested = {"priority": "low", "preemptibility": "preemptible", "node_pools": ("racks",)}
        with streaming(product.cluster, product.gateway) as watching:
            first = product.submit(fresh_project(project), near, **requested)
            watching.until(in_phase(first, "Running"), seconds=PATIENCE)
            with pytest.raises(Conflict, match="1 workload is running in racks"):
                give_levels(product, "example.com/row", RACK)
            stop(workload=fresh(first), actor=SYSTEM)
            product.apply(first)
            watching.until(partial(holds_nothing, first), seconds=PATIENCE)
            assert give_levels(product, RACK, "kubernetes.io/hostname") == {"racks.1"}
            for ref in (ObjectRef(KUEUE_FLAVOR, "racks"), ObjectRef(KUEUE_TOPOLOGY, "racks")):
                let_go(product, ref)
            near["metadata"]["name"] = "again"
            again = product.submit(fresh_project(project), near, **requested)
            watching.until(in_phase(again, "Running"), seconds=PATIENCE)
            stop(workload=fresh(again), actor=SYSTEM)
            product.apply(again)
            watching.until(partial(holds_nothing, again), seconds=PATIENCE)
        assert give_levels(product) == set()
        assert "topologyName" not in product.admin.must(ObjectRef(KUEUE_FLAVOR, "racks.2"))["spec"]


def fresh_project(project: Project) -> Project:
    return Project.objects.select_related("cluster", "department").get(pk=project.pk)


def test_while_kueue_is_away_a_job_waits_to_be_made_and_the_cluster_says_so(product: Product) -> None:
    """Its webhook fails closed: without it no Job of the cluster can be created."""
    one, _two = two_projects(product)
    product.look()
    assert job_rejection_of(product.cluster) is None
    with kueue_away(product):
        train = product.submit(one, a_job("train"), priority="low")
        assert product.object_of(train) is None
        assert "webhook" in fresh(train).apply_error
        product.look()
        door = job_rejection_of(product.cluster)
        assert door is not None
        assert 'failed calling webhook "mjob.kb.io"' in door.message
    product.look()
    assert job_rejection_of(product.cluster) is None
    due = fresh(train).due_at
    assert due is not None
    assert due <= timezone.now(), "who was refused is tried again at once"
    product.until(train, lambda row: row.phase == "Running", work=True)
    assert fresh(train).apply_error == ""


def test_who_waits_is_told_its_place_as_kueue_counts(product: Product) -> None:
    """By priority; who leaves makes the others move up. The account of few rights may ask for it."""
    one, _two = two_projects(product)
    requested = [("one", "medium", 3), ("two", "low", 3), ("three", "very-low", 3)]
    waiting = [
        product.submit(one, a_job(name, pods=pods), priority=priority, preemptibility="preemptible")
        for name, priority, pods in requested
    ]
    with streaming(product.cluster, product.gateway) as watching:
        watching.until(lambda: places(waiting) == [(1, 3), (2, 3), (3, 3)], seconds=PATIENCE)
        stop(workload=fresh(waiting[0]), actor=SYSTEM)
        product.apply(waiting[0])
        watching.until(lambda: places(waiting) == [None, (1, 2), (2, 2)], seconds=PATIENCE)


def places(workloads: list[Workload]) -> list[tuple[int, int] | None]:
    told = [queue_place(fresh(each)) for each in workloads]
    return [(each.number, each.among) if each else None for each in told]
