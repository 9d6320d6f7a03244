"""A replay decides as the sandbox's scheduler does, which takes the same rules to objects of a cluster."""

import pytest

from clusters.ports.pods import condition
from scheduling.forecast.replay import ClusterReplay, RecordedSubmission
from scheduling.model.resources import Resources
from tests.builders import node, queue, snapshot
from tests.clusters.sandboxes import PRIORITIES, furnished, job, owner_name

pytestmark = pytest.mark.django_db
SENT = (("old", 0, "low", 4), ("young", 10, "low", 4), ("strong", 20, "medium", 4), ("weak", 25, "very-low", 4))
"""Name, when it is submitted, priority, GPUs; all of them run for an hour."""


@pytest.mark.parametrize("flavour", ["kai", "kube"])
def test_the_same_one_is_evicted_and_the_same_ones_run(flavour: str) -> None:
    sandbox = furnished(flavour)
    for name, _at, priority, gpus in SENT:
        sandbox.create(job(name, gpus=gpus, priority=priority, seconds="3600", grace=30))
        sandbox.ticks(5)
    evicted = {owner_name(pod) for pod in sandbox.pods() if condition(pod, "DisruptionTarget")}
    sandbox.tick(after=29)
    sandbox.ticks(5)
    running = {owner_name(pod) for pod in sandbox.pods() if pod["status"]["phase"] == "Running"}

    base = snapshot(node("n", 8), queue("department", deserved=8), queue("team", "department", deserved=8))
    replay = ClusterReplay(base, [submission(*each) for each in SENT], flavour=flavour, grace=30)
    while replay.runs["strong"].started is None and replay.advance(1):
        pass
    assert replay.runs["strong"].started == 50
    assert {name for name, run in replay.runs.items() if run.evictions} == evicted == {"young"}
    assert {name for name, run in replay.runs.items() if run.complete} == running == {"old", "strong"}


def submission(name: str, at: int, priority: str, gpus: int) -> RecordedSubmission:
    requested = Resources.of(gpu=gpus)
    return RecordedSubmission(name, at, 3600, "team", PRIORITIES[priority], preemptible=True, requests=requested)
