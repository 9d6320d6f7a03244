"""Kueue on the sandbox as its configuration says: with fair sharing who borrows less takes from who borrows more."""

import pytest

from clusters.flavours.kueue_capabilities import CONF, HEAD, KEY
from clusters.ports.gateway import Manifest
from clusters.ports.objects import KUEUE_WORKLOAD
from tests.clusters.sandbox.test_kueue_topology import kueue
from tests.clusters.sandboxes import TEAM, Sandbox, job

pytestmark = pytest.mark.django_db


def lending(*, configured: str, rich_weight: int = 1) -> Sandbox:
    """A cohort of one queue that lends 8 GPUs, and two that have none of their own."""
    sandbox = Sandbox("kueue")
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.node("node", gpus=8, pool="h100")
    sandbox.namespace(CONF.namespace)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONF.name, "namespace": CONF.namespace}}
    sandbox.create({**config, "data": {KEY: f"{HEAD}{configured}"}})
    sandbox.create(kueue("ResourceFlavor", "h100", nodeLabels={"rung.dev/node-pool": "h100"}))
    for name, quota, weight in (("lender", 8, 1), ("team", 0, 1), ("rich", 0, rich_weight)):
        amounts = [{"name": "nvidia.com/gpu", "nominalQuota": str(quota)}]
        group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": amounts}]}
        shared = {"cohortName": "all", "fairSharing": {"weight": str(weight)}}
        spec = {"resourceGroups": [group], "preemption": {"reclaimWithinCohort": "Any"}, **shared}
        sandbox.create(kueue("ClusterQueue", name, **spec))
        sandbox.create(kueue("LocalQueue", name, namespace=TEAM, clusterQueue=name))
    sandbox.create({**kueue("WorkloadPriorityClass", "low"), "value": 40})
    return sandbox


def queued(name: str, queue: str, gpus: int) -> Manifest:
    manifest = job(name, parallelism=1, gpus=gpus, priority="low")
    manifest["metadata"]["labels"] |= {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": "low"}
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {"rung.dev/node-pool": "h100"}
    return manifest


def admitted(sandbox: Sandbox) -> set[str]:
    found = sandbox.gateway.list(KUEUE_WORKLOAD, managed_only=False)[0]
    return {
        each["metadata"]["ownerReferences"][0]["name"]
        for each in found
        if any(said["type"] == "Admitted" and said["status"] == "True" for said in each["status"]["conditions"])
    }


@pytest.mark.parametrize(
    ("configured", "weight", "left"),
    [
        ("fairSharing: {}", 1, {"first"}),
        ("fairSharing: {}", 9, {"first", "second"}),
        ("", 1, {"first", "second"}),
    ],
    ids=["shares", "weights", "no fair sharing"],
)
def test_a_share_is_taken_back_where_fair_sharing_is_configured(configured: str, weight: int, left: set[str]) -> None:
    sandbox = lending(configured=configured, rich_weight=weight)
    sandbox.create(queued("first", "rich", 4))
    sandbox.ticks(2)
    sandbox.create(queued("second", "rich", 4))
    sandbox.ticks(2)
    sandbox.create(queued("new", "team", 4))
    sandbox.ticks(2)
    assert admitted(sandbox) == left
