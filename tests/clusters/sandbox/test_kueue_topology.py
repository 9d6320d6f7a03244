"""Kueue on the sandbox where a flavor has a topology: jobs are admitted to places on nodes, and their pods go there."""

from typing import Any

import pytest

from clusters.ports.gateway import Manifest
from clusters.ports.objects import KUEUE_WORKLOAD
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, job

pytestmark = pytest.mark.django_db

VERSION = "kueue.x-k8s.io/v1beta2"
RACK = "example.com/rack"
HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"


def kueue(kind: str, name: str, *, namespace: str = "", **spec: Any) -> Manifest:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def racked(*racks: str, gpus: int = 4, levels: tuple[str, ...] = (RACK, HOSTNAME), quota: int = 64) -> Sandbox:
    """A node per rack that is named, a queue with enough quota, and a flavor with these levels; none: no topology."""
    sandbox = Sandbox("kueue")
    sandbox.priority_classes()
    sandbox.namespace()
    for number, rack in enumerate(racks):
        marks = {RACK: rack} if rack else {}
        sandbox.node(f"node-{number}", gpus=gpus, pool="h100", **marks)
    if levels:
        sandbox.create(kueue("Topology", "h100", levels=[{"nodeLabel": level} for level in levels]))
    named = {"topologyName": "h100"} if levels else {}
    sandbox.create(kueue("ResourceFlavor", "h100", nodeLabels={"rung.dev/node-pool": "h100"}, **named))
    amounts = [{"name": "nvidia.com/gpu", "nominalQuota": str(quota)}]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": amounts}]}
    sandbox.create(
        kueue("ClusterQueue", "team", resourceGroups=[group], preemption={"withinClusterQueue": "LowerPriority"})
    )
    sandbox.create(kueue("LocalQueue", "team", namespace=TEAM, clusterQueue="team"))
    for name, value in (("low", 40), ("high", 125)):
        sandbox.create({**kueue("WorkloadPriorityClass", name), "value": value})
    return sandbox


def queued(name: str, *, pods: int = 2, gpus: int = 4, near: str = RACK, priority: str = "low") -> Manifest:
    """A Job of that many pods, as it is rendered for Kueue."""
    manifest = job(name, parallelism=pods, gpus=gpus, priority=priority)
    labels = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": priority}
    manifest["metadata"]["labels"] |= labels
    template = manifest["spec"]["template"]
    template["spec"]["nodeSelector"] = {"rung.dev/node-pool": "h100"}
    if near:
        template["metadata"]["annotations"][REQUIRED] = near
    return manifest


def nodes(sandbox: Sandbox, owner: str) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in sandbox.pods(owner))


def said(sandbox: Sandbox, owner: str) -> str:
    """What its Workload says of its quota."""
    found = sandbox.gateway.list(KUEUE_WORKLOAD, managed_only=False)[0]
    [mine] = [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == owner]
    return next(str(each["message"]) for each in mine["status"]["conditions"] if each["type"] == "QuotaReserved")


def test_a_gang_that_asks_for_one_rack_runs_in_one() -> None:
    sandbox = racked("a", "b", "a", "b")
    sandbox.create(queued("first"))
    sandbox.create(queued("second"))
    sandbox.ticks(2)
    assert nodes(sandbox, "first") == ["node-0", "node-2"]
    assert nodes(sandbox, "second") == ["node-1", "node-3"]


def test_one_that_no_rack_holds_is_not_admitted_though_its_quota_is_free() -> None:
    sandbox = racked("a", "b", "c")
    sandbox.create(queued("train"))
    sandbox.ticks(2)
    assert sandbox.pods("train") == []
    assert said(sandbox, "train") == (
        'couldn\'t assign flavors to pod set main: topology "h100" allows to fit only 1 out of 2 pod(s)'
    )
    sandbox.node("node-9", gpus=4, pool="h100", **{RACK: "b"})
    sandbox.ticks(2)
    assert nodes(sandbox, "train") == ["node-1", "node-9"]


def test_without_a_topology_its_quota_lets_it_go_wherever_its_nodes_are() -> None:
    sandbox = racked("a", "b", levels=())
    sandbox.create(queued("train"))
    sandbox.ticks(2)
    assert nodes(sandbox, "train") == ["node-0", "node-1"]


def test_what_asks_for_no_rack_is_admitted_only_where_all_its_pods_have_places() -> None:
    sandbox = racked("a", "b")
    sandbox.create(queued("wide", pods=2, near=""))
    sandbox.create(queued("more", pods=1, near=""))
    sandbox.ticks(2)
    assert nodes(sandbox, "wide") == ["node-0", "node-1"]
    assert sandbox.pods("more") == []
    assert said(sandbox, "more").endswith('topology "h100" doesn\'t allow to fit any of 1 pod(s)')


def test_a_node_without_the_label_takes_nothing_of_its_queues() -> None:
    sandbox = racked("")
    sandbox.create(queued("train", pods=1, near=""))
    sandbox.ticks(2)
    assert sandbox.pods("train") == []


def test_pods_that_stand_in_no_queue_keep_their_room() -> None:
    sandbox = racked("a", "a", "b", "b")
    stranger = job("stranger", gpus=4)
    stranger["spec"]["template"]["spec"]["nodeSelector"] = {RACK: "a"}
    sandbox.create(stranger)
    sandbox.tick()
    sandbox.create(queued("train"))
    sandbox.ticks(2)
    assert nodes(sandbox, "train") == ["node-2", "node-3"]


def test_a_stronger_gang_takes_its_rack_from_a_weaker_one_and_starts_there_once_that_has_gone() -> None:
    sandbox = racked("a", "a")
    weak = sandbox.create(queued("weak"))
    sandbox.ticks(2)
    sandbox.create(queued("strong", priority="high"))
    sandbox.tick()
    assert said(sandbox, "strong") == (
        "couldn't assign flavors to pod set main: topology \"h100\" doesn't allow to fit any of 2 pod(s). "
        "Pending the preemption of 1 workload(s)"
    )
    assert "Preempted to accommodate" in said(sandbox, "weak")
    assert sandbox.tick().evicted == 0, "it is evicted once"
    sandbox.ticks(4, after=40)
    assert nodes(sandbox, "strong") == ["node-0", "node-1"]
    assert (sandbox.get(weak) or {})["spec"]["suspend"] is True


def test_who_was_evicted_comes_again_by_its_age_and_not_by_its_eviction() -> None:
    sandbox = racked("a", "a")
    for name, priority in (("old", "low"), ("new", "low"), ("strong", "high")):
        made = sandbox.create(queued(name, priority=priority))
        sandbox.ticks(2)
    sandbox.ticks(4, after=40)
    assert nodes(sandbox, "strong") == ["node-0", "node-1"]
    sandbox.delete(made)
    sandbox.ticks(4, after=40)
    assert (nodes(sandbox, "old"), nodes(sandbox, "new")) == (["node-0", "node-1"], [])


def test_a_pod_that_is_recreated_goes_to_the_place_of_its_predecessor_which_no_other_pod_gets() -> None:
    sandbox = racked("a", "a")
    sandbox.create(queued("train"))
    sandbox.ticks(2)
    sandbox.create(queued("other", pods=1, near=""))
    first = sandbox.pods("train")[0]
    sandbox.delete(first)
    sandbox.ticks(3, after=40)
    assert (nodes(sandbox, "train"), nodes(sandbox, "other")) == (["node-0", "node-1"], [])
    assert first["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in sandbox.pods("train")}


def test_a_gang_that_loses_a_node_of_its_places_queues_for_others() -> None:
    sandbox = racked("a", "a", "b", "b")
    sandbox.create(queued("train"))
    sandbox.ticks(2)
    assert nodes(sandbox, "train") == ["node-0", "node-1"]
    sandbox.remove_node("node-1")
    sandbox.ticks(4, after=40)
    assert nodes(sandbox, "train") == ["node-2", "node-3"]


def test_what_waits_behind_gates_is_let_go_to_its_places() -> None:
    sandbox = racked("a", "b")
    body = queued("serve")
    spec = {"replicas": 2, "template": body["spec"]["template"]}
    sandbox.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": body["metadata"], "spec": spec})
    alone = bare_pod("alone", gpus=4)
    alone["metadata"]["labels"] = body["metadata"]["labels"]
    sandbox.create({**alone, "spec": {**alone["spec"], "nodeSelector": {RACK: "b"}}})
    sandbox.ticks(2)
    assert (nodes(sandbox, "serve"), nodes(sandbox, "alone")) == (["", ""], ["node-1"])
    for name in ("node-2", "node-3"):
        sandbox.node(name, gpus=4, pool="h100", **{RACK: "c"})
    sandbox.ticks(2)
    assert nodes(sandbox, "serve") == ["node-2", "node-3"]


def test_a_node_whose_hostname_is_not_its_name_is_found_by_that() -> None:
    sandbox = racked()
    sandbox.node("i-0001", gpus=4, pool="h100", **{RACK: "a", HOSTNAME: "worker-1"})
    sandbox.create(queued("train", pods=1, near=""))
    sandbox.ticks(2)
    [pod] = sandbox.pods("train")
    assert (pod["spec"]["nodeName"], pod["spec"]["nodeSelector"][HOSTNAME]) == ("i-0001", "worker-1")
