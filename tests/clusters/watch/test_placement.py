"""What decides where pods may go is kept of nodes and of waiting pods."""

import pytest

from clusters.inventory.models import Node
from clusters.ports.pods import max_pods, taints_of, tolerations_of
from clusters.watch.models import ObservedPod
from clusters.watch.services.informers import observe_cluster
from scheduling.model.snapshot import Taint, Toleration
from tests.clusters.sandboxes import TEAM, Sandbox, bare_pod, furnished

TAINTS = [
    {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
    {"key": "team", "value": "x", "effect": "NoExecute"},
    {"key": "slow", "effect": "PreferNoSchedule"},
]


def test_a_preference_is_no_taint() -> None:
    found = taints_of({"spec": {"taints": TAINTS}})
    assert found == (Taint("nvidia.com/gpu"), Taint("team", "x", "NoExecute"))
    assert taints_of({}) == ()


def test_tolerations_are_read_with_their_defaults() -> None:
    assert tolerations_of({"tolerations": [{"key": "a", "value": "b"}, {"operator": "Exists"}]}) == (
        Toleration("a", "Equal", "b"),
        Toleration(operator="Exists"),
    )


def test_a_node_that_says_no_number_of_pods_has_none() -> None:
    assert max_pods({"status": {"allocatable": {"pods": "110"}}}) == 110
    assert max_pods({}) is None


@pytest.mark.django_db
def test_taints_and_the_number_of_pods_are_stored_with_the_node() -> None:
    sandbox = Sandbox("kube")
    status = {"allocatable": {"pods": "2"}, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata, spec = {"name": "n"}, {"taints": TAINTS}
    sandbox.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status})
    observe_cluster(sandbox.cluster)
    node = Node.objects.get()
    assert (node.max_pods, [taint["key"] for taint in node.taints]) == (2, ["nvidia.com/gpu", "team"])


@pytest.mark.django_db
def test_a_pod_is_stored_with_its_wishes_until_it_has_a_node() -> None:
    sandbox = furnished("kube", gpus=1)
    sandbox.namespace("elsewhere")
    for name in ("first", "second"):
        pod = bare_pod(name, namespace=TEAM)
        pod["spec"] |= {"nodeSelector": {}, "tolerations": [{"key": "a", "operator": "Exists"}]}
        sandbox.create(pod)
    sandbox.ticks(2)
    observe_cluster(sandbox.cluster)
    kept = {pod.name: [each["key"] for each in pod.tolerations] for pod in ObservedPod.objects.all()}
    assert kept == {"first": [], "second": ["a"]}
