"""The model says of a pod what the real kube-scheduler then does: placed, waits or preempts, with the same victims.

RUNG_REALITY_SEED replays the scenario of one seed; RUNG_REALITY_COUNT puts more of them to the scheduler.
"""

from collections import Counter

import pytest

from tests.real.agreement import answers
from tests.real.comparing import differing, seeds, table
from tests.real.scenarios.generator import FAMILIES, scenario
from tests.real.scenarios.plain import Kind
from tests.real.scenarios.stage import Stage
from tests.support.lab import LabCluster

COUNT = 120


@pytest.mark.timeout(600)  # half a minute on two idle cores; more scenarios take longer
def test_same_verdict_and_same_victims_in_every_scenario(scheduled_cluster: LabCluster) -> None:
    try:
        found = list(answers(scheduled_cluster.admin, seeds(COUNT)))
    finally:
        Stage(scheduled_cluster.admin).clear()
    explained = "\n".join([*differing(found), table(found, FAMILIES)])
    assert len({each.scenario.seed for each in found}) == len(seeds(COUNT))
    assert all(each.agrees for each in found), explained
    if len(seeds(COUNT)) >= COUNT:
        kinds = Counter(each.seen.kind for each in found)
        assert min(kinds[kind] for kind in Kind) > len(found) / 10, explained


def test_a_seed_is_the_same_scenario_for_ever() -> None:
    assert [scenario(seed) for seed in range(50)] == [scenario(seed) for seed in range(50)]
    assert scenario(17).family == list(FAMILIES)[17 % len(FAMILIES)]
    assert scenario(17) != scenario(17 + len(FAMILIES))


def test_no_two_pods_of_a_scenario_started_together() -> None:
    for seed in range(200):
        starts = [pod.start for pod in scenario(seed).pods]
        assert len(set(starts)) == len(starts)
