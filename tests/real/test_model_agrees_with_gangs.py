"""The model says of a gang what the real kube-scheduler then does: placed, waits or preempts, with the same victims.

RUNG_REALITY_SEED replays the scenario of one seed; RUNG_REALITY_COUNT puts more of them to the scheduler.
"""

from collections import Counter

import pytest

from tests.real.comparing import differing, seeds, table
from tests.real.gang_agreement import gang_answers
from tests.real.scenarios.gang_stage import GangStage
from tests.real.scenarios.gangs import FAMILIES, gang_scenario
from tests.real.scenarios.plain import Kind
from tests.support.lab import LabCluster

COUNT = 64


@pytest.mark.lab
@pytest.mark.enable_socket
@pytest.mark.timeout(600)  # half a minute on two idle cores; more scenarios take longer
def test_same_verdict_and_same_victims_of_gangs_in_every_scenario(gang_cluster: LabCluster) -> None:
    try:
        found = list(gang_answers(gang_cluster.admin, seeds(COUNT)))
    finally:
        GangStage(gang_cluster.admin).clear()
    explained = "\n".join([*differing(found), table(found, FAMILIES)])
    assert len({each.scenario.seed for each in found}) == len(seeds(COUNT))
    assert all(each.agrees for each in found), explained
    if len(seeds(COUNT)) >= COUNT:
        kinds = Counter(each.seen.kind for each in found)
        assert min(kinds[kind] for kind in Kind) > len(found) / 16, explained


def test_a_seed_is_the_same_scenario_of_gangs_for_ever() -> None:
    assert [gang_scenario(seed) for seed in range(50)] == [gang_scenario(seed) for seed in range(50)]
    assert {gang_scenario(seed).family for seed in range(len(FAMILIES))} == set(FAMILIES)


def test_every_newcomer_of_a_scenario_wants_room() -> None:
    for seed in range(100):
        assert gang_scenario(seed).coming[0] == gang_scenario(seed).candidate
        assert all(pod.node is None for pod in gang_scenario(seed).coming)
