"""A random hour in the sandbox: whatever is asked, nodes are never over-filled, limits hold, and all work ends."""

import random
from collections import defaultdict

import pytest

from clusters.ports.gateway import Manifest
from clusters.ports.pods import condition, is_leaving, is_terminal, requests_of
from scheduling.model.resources import ZERO, Resources
from tests.clusters.sandboxes import PRIORITIES, Sandbox, job, owner_name

pytestmark = pytest.mark.django_db

NODES, GPUS, LIMIT = 3, 8, 12
SEEDS = range(6)


def estate(flavour: str) -> Sandbox:
    sandbox = Sandbox(flavour, speed=10)
    for number in range(NODES):
        sandbox.node(f"node-{number}", gpus=GPUS)
    sandbox.priority_classes()
    sandbox.namespace()
    if flavour == "kai":
        sandbox.queue("department", deserved=24)
        for name in ("team", "other"):
            sandbox.queue(name, deserved=8, limit=LIMIT, parent="department")
    return sandbox


def holding(sandbox: Sandbox) -> list[Manifest]:
    return [pod for pod in sandbox.pods() if pod["spec"].get("nodeName") and not is_terminal(pod)]


def check(sandbox: Sandbox) -> None:
    on_node: dict[str, Resources] = defaultdict(lambda: ZERO)
    in_queue: dict[str, Resources] = defaultdict(lambda: ZERO)
    for pod in holding(sandbox):
        on_node[pod["spec"]["nodeName"]] += requests_of(pod)
        if not is_leaving(pod):
            in_queue[pod["metadata"]["labels"]["kai.scheduler/queue"]] += requests_of(pod)
    assert all(used.gpu <= GPUS * 1000 for used in on_node.values())
    if sandbox.cluster.flavour == "kai":
        assert all(used.gpu <= LIMIT * 1000 for used in in_queue.values())
    for pod in sandbox.pods():
        evicted = condition(pod, "DisruptionTarget")
        assert evicted is None or is_leaving(pod)
        if evicted and sandbox.cluster.flavour == "kai":
            assert pod["metadata"]["labels"].get("kai.scheduler/preemptibility", "preemptible") == "preemptible"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_nothing_is_over_filled_and_everything_ends(flavour: str, seed: int) -> None:
    dice = random.Random(seed)
    sandbox = estate(flavour)
    for number in range(25):
        sandbox.create(
            job(
                f"job-{number}",
                parallelism=dice.choice([1, 1, 2, 3]),
                gpus=dice.choice([1, 2, 4]),
                priority=dice.choice(list(PRIORITIES)),
                preemptibility=dice.choice(["preemptible", "preemptible", "non-preemptible"]),
                queue=dice.choice(["team", "other"]),
                seconds=str(dice.randint(10, 200)),
                grace=dice.randint(0, 30),
            )
        )
        if dice.random() < 0.1 and (pods := holding(sandbox)):
            sandbox.delete(dice.choice(pods))
        sandbox.tick()
        check(sandbox)
    for _ in range(150):
        if not sandbox.tick(after=dice.randint(1, 5)).waiting and not holding(sandbox):
            break
        check(sandbox)
    unended = {owner_name(pod) for pod in sandbox.pods() if not is_terminal(pod)}
    assert all(wants_too_much(sandbox, name) for name in unended)


def wants_too_much(sandbox: Sandbox, name: str) -> bool:
    """Work that its queue can never take waits for ever: a gang over the limit, a fixed one over the deserved quota."""
    pods = sandbox.pods(name)
    total = sum(requests_of(pod).gpu for pod in pods)
    fixed = pods[0]["metadata"]["labels"]["kai.scheduler/preemptibility"] == "non-preemptible"
    return sandbox.cluster.flavour == "kai" and total > (8000 if fixed else LIMIT * 1000)
