"""Kueue on the sandbox: quota that a job has reclaimed is that job's, whatever waited longer in its queue."""

import pytest

from clusters.ports.gateway import Manifest
from tests.clusters.sandbox.test_kueue_fair_sharing import admitted, queued
from tests.clusters.sandbox.test_kueue_topology import kueue
from tests.clusters.sandboxes import TEAM, Sandbox

pytestmark = pytest.mark.django_db


def two_queues() -> Sandbox:
    """Of 4 GPUs each, which they lend each other and reclaim."""
    sandbox = Sandbox("kueue")
    sandbox.priority_classes()
    sandbox.namespace()
    sandbox.node("node", gpus=8, pool="h100")
    sandbox.create(kueue("ResourceFlavor", "h100", nodeLabels={"rung.dev/node-pool": "h100"}))
    amounts = [{"name": "nvidia.com/gpu", "nominalQuota": "4"}]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": amounts}]}
    for name in ("left", "right"):
        policies = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        sandbox.create(kueue("ClusterQueue", name, resourceGroups=[group], preemption=policies, cohortName="all"))
        sandbox.create(kueue("LocalQueue", name, namespace=TEAM, clusterQueue=name))
    sandbox.create({**kueue("WorkloadPriorityClass", "low"), "value": 40})
    return sandbox


def test_a_job_that_reclaims_starts_before_an_older_one_of_its_queue_lets_others_borrow_again() -> None:
    """`large` requests more than its queue deserves, so it evicts nothing; `borrows` would fit again before `small`."""
    sandbox = two_queues()

    def comes(job: Manifest) -> None:
        sandbox.create(job)
        sandbox.ticks(2)

    comes(queued("old", "left", 4))
    comes(queued("borrows", "left", 4))
    assert admitted(sandbox) == {"old", "borrows"}
    comes(queued("large", "right", 5))
    comes(queued("small", "right", 3))
    sandbox.ticks(45)
    assert admitted(sandbox) == {"old", "small"}
