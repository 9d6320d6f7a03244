"""The model says of a gang what the real kube-scheduler then does: placed, waits or preempts, with the same victims.

RUNG_REALITY_SEED replays the scenario of one seed; RUNG_REALITY_COUNT puts more of them to the scheduler.
"""

import os
from collections import Counter

import pytest

from tests.real.gang_agreement import GangAnswer, gang_answers, table
from tests.real.scenarios.gangs import FAMILIES, gang_scenario
from tests.real.scenarios.plain import Kind
from tests.support.lab import own_cluster

COUNT = 64


def seeds() -> range:
    """One seed where one is named, else as many as wanted."""
    if named := os.environ.get("RUNG_REALITY_SEED"):
        return range(int(named), int(named) + 1)
    return range(int(os.environ.get("RUNG_REALITY_COUNT", COUNT)))


def explained(found: list[GangAnswer]) -> str:
    return "\n".join([*(str(each) for each in found if not each.agrees), table(found)])


@pytest.mark.lab
@pytest.mark.enable_socket
@pytest.mark.timeout(600)  # half a minute on two idle cores; more scenarios take longer
def test_same_verdict_and_same_victims_of_gangs_in_every_scenario() -> None:
    with own_cluster("--gang") as cluster:
        found = list(gang_answers(cluster.admin, seeds()))
    assert len({each.scenario.seed for each in found}) == len(seeds())
    assert all(each.agrees for each in found), explained(found)
    if len(seeds()) >= COUNT:
        kinds = Counter(each.seen.kind for each in found)
        assert min(kinds[kind] for kind in Kind) > len(found) / 16, explained(found)


def test_a_seed_is_the_same_scenario_of_gangs_for_ever() -> None:
    assert [gang_scenario(seed) for seed in range(50)] == [gang_scenario(seed) for seed in range(50)]
    assert {gang_scenario(seed).family for seed in range(len(FAMILIES))} == set(FAMILIES)


def test_every_newcomer_of_a_scenario_wants_room() -> None:
    for seed in range(100):
        assert gang_scenario(seed).coming[0] == gang_scenario(seed).candidate
        assert all(pod.node is None for pod in gang_scenario(seed).coming)
