"""Volcano's own scheduler keeps a gang in one domain of the HyperNodes that Rung writes, as the model says it does."""

import time
import uuid
from collections.abc import Iterator

import pytest

from clusters.flavours.volcano import CEILING
from clusters.flavours.volcano_config import CONF, KEY
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import update_node_pool
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import NODE, VOLCANO_HYPER_NODE, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tests.clusters.watch.streaming import Watching, streaming
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, DepartmentQuotaFactory, ProjectQuotaFactory
from tests.factories.workloads import spec_of
from tests.real.product import PATIENCE, Product, fresh
from tests.support.lab import GPUS, LabCluster
from workloads.forecast.rules.forecast import Forecast
from workloads.forecast.selectors.preview import forecast
from workloads.forecast.selectors.uncertainties import IN_VAIN
from workloads.lifecycle.services.actions import delete
from workloads.state.models import Workload

pytestmark = [pytest.mark.lab, pytest.mark.enable_socket]

POOL = "racks"
ZONE, RACK = "example.com/zone", "example.com/rack"
NODES = {"racks-1": "small", "racks-2": "large", "racks-3": "large", "racks-4": "large"}
SEEN = 1.0
"""Seconds after which whatever has happened has been observed."""
ASKED = {"preemptibility": "preemptible", "node_pools": (POOL,)}


class Racks:
    """A rack of one node and one of three, in one zone; two projects that deserve half of it each."""

    def __init__(self, product: Product) -> None:
        self.product = product
        pool: NodePool = NodePoolFactory(cluster=product.cluster, name=POOL, label_value=POOL)
        product.admin.gpu_nodes(len(NODES), GPUS, POOL)
        for name, rack in NODES.items():
            self.move(name, rack)
        DepartmentQuotaFactory(department=product.department, node_pool=pool, gpu_deserved=64 * GPU)
        self.one, self.two = product.project("one"), product.project("two")
        for project in (self.one, self.two):
            ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=2 * GPUS * GPU)
        update_node_pool(pool=pool, topology_levels=[ZONE, RACK], actor=SYSTEM)
        product.look()
        product.reconcile()
        for queue in product.admin.list(VOLCANO_QUEUE):
            ref = ObjectRef(VOLCANO_QUEUE, queue["metadata"]["name"])
            product.admin.wait_until(ref, lambda found: found.get("status", {}).get("state") == "Open")

    def move(self, node: str, rack: str) -> None:
        """As an admin does who labels nodes, and the node is open."""
        labels = {"metadata": {"labels": {RACK: rack, ZONE: "a"}}, "spec": {"taints": None}}
        self.product.admin.patch(ObjectRef(NODE, node), labels)

    def project(self, project: Project) -> Project:
        """With what was read of its cluster since."""
        return Project.objects.select_related("cluster", "department").get(pk=project.pk)

    def predicted(self, watching: Watching, project: Project, manifest: Manifest, *, priority: str = "low") -> Forecast:
        """What the model says of the cluster as it stands."""
        end = time.monotonic() + SEEN
        watching.until(lambda: time.monotonic() > end, seconds=PATIENCE)
        spec = spec_of(manifest, namespace=project.namespace, priority=priority, **ASKED)
        return forecast(spec=spec, project=self.project(project), actor=SYSTEM)

    def submit(self, project: Project, manifest: Manifest, *, priority: str = "low", **requested: str) -> Workload:
        return self.product.submit(self.project(project), manifest, priority=priority, **{**ASKED, **requested})

    def end(self, workload: Workload) -> None:
        delete(workload=fresh(workload), actor=SYSTEM)
        self.product.apply(workload)

    def of(self, workload: Workload) -> list[str]:
        """The rack of each of its pods that has a node."""
        nodes = [pod["spec"].get("nodeName") for pod in self.product.pods_of(workload)]
        labels = [self.product.admin.must(ObjectRef(NODE, node))["metadata"]["labels"] for node in nodes if node]
        return sorted(each[RACK] for each in labels)

    def clear(self) -> None:
        """Nodes and domains go with the test."""
        self.product.end(VOLCANO_POD_GROUP)
        for ref in (*(ObjectRef(NODE, name) for name in NODES), *self.domains()):
            self.product.admin.delete(ref)
            self.product.admin.wait_gone(ref)

    def domains(self) -> list[ObjectRef]:
        """The HyperNodes that Rung wrote."""
        found = self.product.admin.list(VOLCANO_HYPER_NODE)
        return [ObjectRef(VOLCANO_HYPER_NODE, each["metadata"]["name"]) for each in found]


@pytest.fixture
def racks(volcano_cluster: LabCluster, db: None, socket_enabled: None) -> Iterator[Racks]:
    """The product, under the account of few rights."""
    racks = Racks(Product(volcano_cluster, uuid.uuid4().hex[:6], "volcano"))
    yield racks
    racks.clear()


def gang(name: str, *, near: str = "", pods: int = 2) -> Manifest:
    """Pods that take a node each, in one domain if `near` names a level."""
    limits = {"nvidia.com/gpu": str(GPUS), "cpu": "4", "memory": "8Gi"}
    container = {"name": "main", "image": "ghcr.io/team/x:1", "resources": {"limits": limits}}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    notes = {"rung.dev/topology-key": near} if near else {}
    metadata = {"name": name, "annotations": {"rung.dev/min-member": str(pods), **notes}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def runs(watching: Watching, workload: Workload, pods: int = 2) -> None:
    watching.until(lambda: fresh(workload).running_pods == pods, seconds=PATIENCE)


def waits_for_a_domain(watching: Watching, workload: Workload) -> None:
    watching.until(lambda: fresh(workload).phase_reason == "NoDomain", seconds=PATIENCE)
    assert fresh(workload).phase == "Pending"


def test_a_gang_runs_in_one_rack_or_waits_though_there_is_room_and_in_the_zone_it_runs(racks: Racks) -> None:
    """Two nodes are free, one in each rack."""
    assert len(racks.domains()) == len({CEILING, "the zone", "small", "large"})
    with streaming(racks.product.cluster, racks.product.gateway) as watching:
        answer = racks.predicted(watching, racks.one, gang("first", near=RACK))
        first = racks.submit(racks.one, gang("first", near=RACK))
        runs(watching, first)
        assert (answer.verdict, racks.of(first)) == ("starts", ["large", "large"])
        answer = racks.predicted(watching, racks.one, gang("second", near=RACK))
        second = racks.submit(racks.one, gang("second", near=RACK))
        waits_for_a_domain(watching, second)
        assert (answer.verdict, answer.reason, racks.of(second)) == ("waits", "NoDomain", [])
        assert f"No single {RACK} fits" in fresh(second).phase_message
        racks.end(second)
        answer = racks.predicted(watching, racks.one, gang("wide", near=ZONE))
        wide = racks.submit(racks.one, gang("wide", near=ZONE))
        runs(watching, wide)
        assert (answer.verdict, racks.of(wide)) == ("starts", ["large", "small"])


def test_a_node_that_moves_to_another_rack_is_counted_there_and_the_gang_starts(racks: Racks) -> None:
    with streaming(racks.product.cluster, racks.product.gateway) as watching:
        first = racks.submit(racks.one, gang("first", near=RACK))
        runs(watching, first)
        second = racks.submit(racks.one, gang("second", near=RACK))
        waits_for_a_domain(watching, second)
        nodes = {pod["spec"]["nodeName"] for pod in racks.product.pods_of(first)}
        [free] = [name for name, rack in NODES.items() if rack == "large" and name not in nodes]
        before = Cluster.objects.get().generation
        racks.move(free, "small")
        watching.until(lambda: Cluster.objects.get().generation > before, seconds=PATIENCE)
        racks.product.reconcile()
        runs(watching, second)
        assert racks.of(second) == ["small", "small"]
        racks.end(first)
        third = racks.submit(racks.one, gang("third", near=RACK, pods=3))
        waits_for_a_domain(watching, third)


def test_no_workload_is_preempted_for_it_as_predicted(racks: Racks) -> None:
    with streaming(racks.product.cluster, racks.product.gateway) as watching:
        weak = racks.submit(racks.one, gang("weak", pods=4))
        runs(watching, weak, pods=4)
        answer = racks.predicted(watching, racks.one, gang("strong", near=RACK), priority="high")
        assert racks.predicted(watching, racks.one, gang("strong"), priority="high").verdict == "evicts"
        strong = racks.submit(racks.one, gang("strong", near=RACK), priority="high")
        waits_for_a_domain(watching, strong)
        assert (answer.verdict, answer.reason, fresh(weak).running_pods) == ("waits", "NoDomain", 4)


def test_reclaim_takes_what_is_over_quota_without_a_look_at_racks_as_predicted(racks: Racks) -> None:
    """The borrower has one node in each rack: it goes, and the gang still waits."""
    with streaming(racks.product.cluster, racks.product.gateway) as watching:
        first = racks.submit(racks.one, gang("first", near=RACK), preemptibility="non-preemptible")
        runs(watching, first)
        wide = racks.submit(racks.one, gang("wide"))
        runs(watching, wide)
        answer = racks.predicted(watching, racks.two, gang("mine", near=RACK))
        assert (answer.verdict, answer.reason) == ("reclaims", "NoDomain")
        assert IN_VAIN in answer.cautions
        assert [each.workload for each in answer.victims] == [wide]
        mine = racks.submit(racks.two, gang("mine", near=RACK))
        watching.until(lambda: fresh(wide).preempted_count, seconds=PATIENCE)
        waits_for_a_domain(watching, mine)
        assert fresh(first).running_pods == 2


def test_where_all_that_is_reclaimed_is_in_one_rack_the_gang_starts_there_as_predicted(racks: Racks) -> None:
    racks.move("racks-1", "large")
    racks.product.look()
    racks.product.reconcile()
    assert len(racks.domains()) == len({CEILING, "the zone", "large"})
    with streaming(racks.product.cluster, racks.product.gateway) as watching:
        borrower = racks.submit(racks.one, gang("borrower", pods=4))
        runs(watching, borrower, pods=4)
        answer = racks.predicted(watching, racks.two, gang("mine", near=RACK))
        mine = racks.submit(racks.two, gang("mine", near=RACK))
        runs(watching, mine)
        assert (answer.verdict, [each.workload for each in answer.victims]) == ("reclaims", [borrower])
        assert IN_VAIN not in answer.cautions
        assert fresh(borrower).preempted_count == 1


def test_without_its_plugin_asking_for_a_rack_is_refused(racks: Racks) -> None:
    before = racks.product.admin.must(CONF)["data"][KEY]
    racks.product.admin.patch(CONF, {"data": {KEY: before.replace("network-topology-aware", "sla")}})
    try:
        Cluster.objects.update(configured={}, resync_due_at=None)
        racks.product.reconcile()
        with pytest.raises(ValidationFailed, match="lacks the plugin network-topology-aware"):
            racks.submit(racks.one, gang("train", near=RACK))
    finally:
        racks.product.admin.patch(CONF, {"data": {KEY: before}})
