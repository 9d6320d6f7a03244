"""The model says of a workload what the real Volcano then does: the same kind, the same victims for the same cause.

RUNG_REALITY_SEED replays the scenario of one seed; RUNG_REALITY_COUNT puts more of them to Volcano.
"""

import os
from collections import Counter

import pytest

from tests.real.scenarios.volcano_plans import FAMILIES, contest
from tests.real.volcano_agreement import KINDS, VolcanoAnswer, table, volcano_answers
from tests.support.lab import own_cluster
from tests.support.real import by_hand

COUNT = 64


def seeds() -> range:
    """One seed where one is named, else as many as wanted."""
    if named := os.environ.get("RUNG_REALITY_SEED"):
        return range(int(named), int(named) + 1)
    return range(int(os.environ.get("RUNG_REALITY_COUNT", COUNT)))


def explained(found: list[VolcanoAnswer]) -> str:
    return "\n".join([*(str(each) for each in found if not each.agrees), table(found)])


@pytest.mark.lab
@pytest.mark.enable_socket
@pytest.mark.timeout(600)
def test_same_kind_and_same_victims_on_volcano_in_every_scenario() -> None:
    by_hand("LAB_VOLCANO_BIN", "Volcano 1.15.1")
    with own_cluster("--volcano", flavour="volcano") as cluster:
        found = list(volcano_answers(cluster.admin, seeds()))
    assert len(found) == len(seeds())
    assert all(each.agrees for each in found), explained(found)
    if len(found) >= COUNT:
        kinds = Counter(each.seen.kind for each in found)
        assert set(KINDS[:4]) <= kinds.keys(), explained(found)


def test_a_seed_is_the_same_contest_each_time() -> None:
    assert [contest(seed) for seed in range(20)] == [contest(seed) for seed in range(20)]
    assert {contest(seed).family for seed in range(len(FAMILIES))} == set(FAMILIES)
