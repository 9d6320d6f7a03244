"""KAI and Volcano on the real API server: what Rung writes is taken as it is, under the least rights of each flavour.

Their own resources come from small schemas (`lab/crds/schedulers`); none of their programs runs.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from clusters.flavours.registry import flavour_for
from clusters.flavours.volcano_config import CONF, KEY, NO_CAPACITY, NO_PREEMPT, NO_RECLAIM, UNREAD
from clusters.inventory.services.inventory import mark_dirty
from clusters.ports.flavour import DesiredState, TopologyDomain
from clusters.ports.gateway import ClusterRefused, NotAuthorized, ObjectRef
from clusters.ports.objects import (
    CONFIG_MAP,
    KAI_TOPOLOGY,
    PRIORITY_CLASS,
    VOLCANO_HYPER_NODE,
    VOLCANO_POD_GROUP,
    VOLCANO_QUEUE,
    kind_of,
)
from clusters.ports.workload_kinds import kind_named
from clusters.sync.models import SyncState
from clusters.sync.services import object_reads
from clusters.sync.services.reconcile import reconcile
from clusters.sync.services.workload_objects import apply_job, delete_job
from clusters.watch.models import ObservedPod
from clusters.watch.services.informers import observe_cluster
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause
from scheduling.model.resources import parse_quantity
from tests.clusters.specs import POOL, templates_in
from tests.clusters.synced import outcomes
from tests.factories.workloads import pytorch_job
from tests.real.other_schedulers import QUEUES, RACKED, Real, clear
from tests.real.product import Product, fresh, grant
from tests.support.kube import KubeError
from tests.support.lab import LabCluster
from workloads.state.selectors.workloads import events_of

pytestmark = pytest.mark.lab
NOT_READY = (
    "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable"
)
SUBMITTED = ("Pod", "Job", "CronJob", "Deployment", "StatefulSet", "PyTorchJob", "MPIJob", "JobSet", "RayJob")
SHIPPED = 'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins: [{name: priority}, {name: proportion}]\n'
GOOD = (
    'actions: "allocate, preempt, reclaim"\ntiers:\n- plugins: [{name: priority}, '
    "{name: gang, enablePreemptable: false}, {name: capacity, enableHierarchy: true}, {name: network-topology-aware}]\n"
)


@pytest.fixture(params=list(QUEUES))
def product(
    request: pytest.FixtureRequest, schedulers_cluster: LabCluster, db: None, socket_enabled: None
) -> Iterator[Product]:
    """The whole product on it."""
    grant(schedulers_cluster, request.param)
    product = Product(schedulers_cluster, uuid.uuid4().hex[:6], request.param)
    yield product
    product.end()
    clear(schedulers_cluster, QUEUES[request.param], VOLCANO_HYPER_NODE, PRIORITY_CLASS)


def test_every_object_is_taken_as_it_is_and_a_quota_change_is_one_update(real: Real) -> None:
    wanted = list(flavour_for(real.flavour).objects_for(real.hold()))
    run = reconcile(real.cluster)
    assert (run.state, run.written, run.failed) == (SyncState.SUCCEEDED, len(wanted), 0)
    live = real.live()
    for each in wanted:
        found = live[f"{each['kind']}/{each['metadata']['name']}"]
        assert each["kind"] != "Queue" or found["spec"].items() >= each["spec"].items()  # and its defaults
    before = {name: each["metadata"]["resourceVersion"] for name, each in live.items()}

    object_reads.forget(real.cluster.pk)
    assert reconcile(real.cluster).written == 0
    assert {name: each["metadata"]["resourceVersion"] for name, each in real.live().items()} == before

    real.hold(limit=12, generation=2)
    mark_dirty(real.cluster, owner="project.2")
    assert outcomes(reconcile(real.cluster)) == [("update", f"project.2.{POOL.name}", True)]
    assert reconcile(real.cluster).written == 0


def test_the_schema_refuses_what_the_scheduler_does_not_know(real: Real) -> None:
    """What makes the acceptance above mean anything."""
    real.hold()
    manifest = next(
        each for each in flavour_for(real.flavour).objects_for(real.wanted.state) if each["kind"] == "Queue"
    )
    for wrong in ({"invented": 1}, {"priority": "high"}):
        with pytest.raises(ClusterRefused):
            real.gateway.create({**manifest, "spec": {**manifest["spec"], **wrong}})


@pytest.mark.parametrize("real", ["kai"], indirect=True)
def test_levels_that_change_are_a_topology_recreated_since_none_is_ever_changed(real: Real) -> None:
    real.hold()
    reconcile(real.cluster)
    for levels in (("example.com/rack",), ("example.com/rack", "kubernetes.io/hostname"), ()):
        pools = (replace(POOL, topology_levels=levels),)
        real.wanted.state = replace(real.wanted.state, pools=pools)
        mark_dirty(real.cluster)
        reconcile(real.cluster)
        wanted = [each["spec"] for each in flavour_for("kai").objects_for(DesiredState(pools=pools))]
        assert [each["spec"] for name, each in real.live().items() if name.startswith("Topology/")] == wanted
        assert reconcile(real.cluster).written == 0
    for wrong in (
        [],
        [{"nodeLabel": "x"}, {"nodeLabel": "x"}],
        [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "x"}],
    ):
        body = {"apiVersion": KAI_TOPOLOGY.api_version, "kind": "Topology", "metadata": {"name": real.mark}}
        with pytest.raises(KubeError):
            real.lab.admin.create({**body, "spec": {"levels": wrong}})


@pytest.mark.parametrize("real", ["kai"], indirect=True)
def test_a_gang_of_one_domain_names_it_where_kais_pod_grouper_reads_it(real: Real) -> None:
    real.furnish()
    spec = real.submitted("PyTorchJob")
    spec.manifest["metadata"]["annotations"] = {"rung.dev/topology-key": "example.com/rack"}
    apply_job(real.cluster, spec)
    found = real.gateway.get(ObjectRef(kind_of(spec.manifest), spec.name, spec.namespace))
    assert found is not None
    notes = found["metadata"]["annotations"]
    named = notes["kai.scheduler/topology"], notes["kai.scheduler/topology-required-placement"]
    assert named == (POOL.name, "example.com/rack")


@pytest.mark.parametrize("real", ["volcano"], indirect=True)
def test_a_domain_whose_nodes_change_is_one_update_and_one_without_nodes_goes(real: Real) -> None:
    real.hold()
    reconcile(real.cluster)
    for domains, written in (
        ((TopologyDomain(("1", "a"), ("n1",)), TopologyDomain(("1", "B_b"), ("n2", "n3"))), 2),
        ((TopologyDomain(("1", "a"), ("n1", "n2", "n3")),), 3),
        ((), 2),
    ):
        real.wanted.state = replace(real.wanted.state, pools=(replace(RACKED, domains=domains),))
        mark_dirty(real.cluster)
        run = reconcile(real.cluster)
        assert (run.written, run.failed) == (written, 0)
        wanted = [each for each in flavour_for("volcano").objects_for(real.wanted.state) if each["kind"] == "HyperNode"]
        found = {name: each["spec"] for name, each in real.live().items() if name.startswith("HyperNode/")}
        assert found == {f"HyperNode/{each['metadata']['name']}": each["spec"] for each in wanted}


@pytest.mark.parametrize("real", ["volcano"], indirect=True)
@pytest.mark.parametrize(
    "spec",
    [
        {"members": [{"type": "Node", "selector": {"exactMatch": {"name": "n"}}}]},
        {"tier": -1},
        {"tier": 1, "members": []},
        {"tier": 1, "members": [{"type": "Rack", "selector": {"exactMatch": {"name": "n"}}}]},
        {"tier": 1, "members": [{"type": "Node", "selector": {}}]},
        {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "B_b"}}}]},
    ],
)
def test_the_schema_refuses_a_domain_that_volcano_would_not_take(real: Real, spec: dict[str, Any]) -> None:
    kind = VOLCANO_HYPER_NODE
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": real.mark}, "spec": spec}
    with pytest.raises(KubeError):
        real.lab.admin.create(body)


@pytest.mark.parametrize("real", ["volcano"], indirect=True)
def test_a_gang_of_one_domain_names_its_tier_and_its_pods_name_the_level(real: Real) -> None:
    real.furnish()
    spec = replace(real.submitted("PyTorchJob"), pool=RACKED)
    spec.manifest["metadata"]["annotations"] = {"rung.dev/topology-key": "example.com/block"}
    apply_job(real.cluster, spec)
    group = real.lab.admin.must(ObjectRef(VOLCANO_POD_GROUP, spec.name, spec.namespace))
    assert group["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    found = real.gateway.get(ObjectRef(kind_of(spec.manifest), spec.name, spec.namespace))
    assert found is not None
    for each in templates_in(found, kind_named("PyTorchJob")):
        assert each.template["metadata"]["annotations"]["rung.dev/topology-key"] == "example.com/block"


@pytest.mark.parametrize("real", ["volcano"], indirect=True)
def test_volcano_takes_no_queue_that_deserves_what_its_capability_leaves_out(real: Real) -> None:
    """Its own admission says so; the schema says it in its place."""
    name, spec = f"{real.mark}-q", {"weight": 1, "deserved": {"cpu": "1"}, "capability": {"nvidia.com/gpu": "8"}}
    with pytest.raises(KubeError, match="less equal"):
        real.lab.admin.create(
            {"apiVersion": VOLCANO_QUEUE.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        )


def test_every_template_of_a_workload_carries_queue_and_preemptibility(real: Real) -> None:
    real.furnish()
    for name in SUBMITTED:
        spec = real.submitted(name)
        apply_job(real.cluster, spec)
        found = real.gateway.get(ObjectRef(kind_of(spec.manifest), spec.name, spec.namespace))
        assert found is not None, name
        templates = [each.template for each in templates_in(found, kind_named(name))]
        assert templates, name
        for template in templates:
            assert _requested(template) == ASKED[real.flavour], name
            assert template["spec"]["priorityClassName"] == real.priority_name("low"), name
        assert real.group_of(spec) == GROUPS[real.flavour].get(name), name
        delete_job(real.cluster, spec)
        assert real.group_of(spec) is None, name


GPUS = "nvidia.com/gpu"
GROUPS: dict[str, dict[str, int]] = {"kai": {}, "volcano": {"PyTorchJob": 2, "MPIJob": 2, "RayJob": 2}}
ASKED = {
    "kai": ("kai-scheduler", "project.1.a100", "preemptible"),
    "volcano": ("volcano", "project.1.a100", "true"),
}


def _requested(template: Any) -> tuple[str, str, str]:
    metadata = {**template["metadata"].get("labels", {}), **template["metadata"].get("annotations", {})}
    if template["spec"]["schedulerName"] == "volcano":
        return "volcano", metadata["scheduling.volcano.sh/queue-name"], metadata["volcano.sh/preemptable"]
    kai = metadata["kai.scheduler/queue"], metadata["kai.scheduler/preemptibility"]
    return template["spec"]["schedulerName"], *kai


def test_a_pod_is_observed_in_the_queue_that_it_names(real: Real) -> None:
    real.furnish()
    apply_job(real.cluster, real.submitted("Pod"))
    observe_cluster(real.cluster)
    assert ObservedPod.objects.get(cluster=real.cluster, namespace=real.namespace).queue == "project.1.a100"


def test_the_connection_test_finds_both_schedulers_and_every_right(real: Real) -> None:
    report = real.report()
    assert (report.works, report.lacking, report.excess) == (True, (), ())
    assert [each.name for each in report.schedulers[:2]] == ["kai", "volcano"]
    assert report.warnings == ((UNREAD,) if real.flavour == "volcano" else ())


def test_volcanos_configuration_is_read_and_no_other_one(real: Real) -> None:
    conf = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONF.name, "namespace": CONF.namespace}}
    if real.flavour == "kai":
        with pytest.raises(NotAuthorized):
            real.gateway.get(CONF)
        return
    real.lab.admin.namespace(CONF.namespace)
    real.lab.admin.apply({**conf, "data": {KEY: SHIPPED}})
    assert {NO_PREEMPT, NO_RECLAIM, NO_CAPACITY} <= set(real.report().warnings)
    assert real.exemptions().causes == {Cause.PREEMPT, Cause.RECLAIM}
    real.lab.admin.apply({**conf, "data": {KEY: GOOD}})
    assert real.report().warnings == ()
    assert real.exemptions() == NO_EXEMPTIONS
    with pytest.raises(NotAuthorized):
        real.gateway.get(ObjectRef(CONFIG_MAP, "kube-root-ca.crt", CONF.namespace))
    real.lab.admin.delete(CONF)


def test_what_is_submitted_names_the_queue_of_its_project(product: Product) -> None:
    project = product.project("team", deserved=4, limit=8)
    product.reconcile()
    workload = product.submit(project, pytorch_job(workers=1))
    assert fresh(workload).apply_error == ""
    found = product.object_of(workload)
    assert found is not None
    [(scheduler, named, preemptibility)] = {
        _requested(each.template) for each in templates_in(found, kind_named("PyTorchJob"))
    }
    assert (scheduler, preemptibility) == (ASKED[product.cluster.flavour][0], ASKED[product.cluster.flavour][2])
    leaf = product.admin.must(ObjectRef(QUEUES[product.cluster.flavour], named))["spec"]
    above = product.admin.must(ObjectRef(QUEUES[product.cluster.flavour], leaf.get("parentQueue") or leaf["parent"]))
    assert _gpus(leaf) == (4, 8)
    assert _gpus(above["spec"])[0] == 64


@pytest.mark.parametrize("product", ["volcano"], indirect=True)
def test_what_a_pod_group_says_is_told_of_its_workload(product: Product) -> None:
    project = product.project("team", deserved=4)
    product.reconcile()
    workload = product.submit(project, pytorch_job(workers=1))
    body = product.object_of(workload)
    assert body is not None
    group = ObjectRef(VOLCANO_POD_GROUP, body["metadata"]["name"], body["metadata"]["namespace"])
    says = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": NOT_READY}
    product.admin.patch(group, {"status": {"phase": "Pending", "conditions": [says]}})
    product.look()
    assert (fresh(workload).phase, fresh(workload).phase_reason) == ("Pending", "Queued")
    product.admin.patch(group, {"status": {"phase": "Inqueue", "conditions": [says]}})
    product.look()
    assert sorted(each.reason for each in events_of(workload)) == ["Admitted", "OverLimit"]


def _gpus(spec: Any) -> tuple[float, float]:
    """Deserved and limit."""
    if gpu := spec.get("resources", {}).get("gpu"):
        return gpu["quota"], gpu["limit"]
    return float(parse_quantity(spec["deserved"][GPUS])), float(parse_quantity(spec["capability"][GPUS]))
