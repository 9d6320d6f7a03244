"""The model says of a workload what the real Kueue then does: the same kind, the same victims for the same cause.

RUNG_REALITY_SEED replays the scenario of one seed; RUNG_REALITY_COUNT puts more of them to Kueue.
"""

import os
from collections import Counter
from pprint import pformat

import pytest

from tests.real.scenarios.admission import Admission
from tests.real.scenarios.quotas import FAMILIES, predict, scenario
from tests.support.lab import own_cluster

COUNT = 60


def seeds() -> range:
    """One seed where one is named, else as many as wanted."""
    if named := os.environ.get("RUNG_REALITY_SEED"):
        return range(int(named), int(named) + 1)
    return range(int(os.environ.get("RUNG_REALITY_COUNT", COUNT)))


@pytest.mark.lab
@pytest.mark.enable_socket
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fair", "options"), [(False, ()), (True, ("--kueue-fair",))], ids=["classical", "fair"])
def test_same_kind_and_same_victims_in_every_scenario(fair: bool, options: tuple[str, ...]) -> None:
    plans = [scenario(seed, fair=fair) for seed in seeds()]
    with own_cluster("--kueue", *options) as cluster:
        seen = Admission(cluster.admin).answers(plans)
    differ = [(plan, seen[plan.seed], predict(plan)) for plan in plans if seen[plan.seed] != predict(plan)]
    assert not differ, "\n".join(pformat(each, width=140) for each in differ)
    if len(plans) >= COUNT:
        kinds = Counter(answer.kind for answer in seen.values())
        most = {"placed", "pending", "preempts", "reclaims"}
        assert kinds.keys() >= (most if fair else most | {"preempts+reclaims"}), kinds


def test_a_seed_is_the_same_scenario_for_ever() -> None:
    for fair in (False, True):
        plans = [scenario(seed, fair=fair) for seed in range(50)]
        assert plans == [scenario(seed, fair=fair) for seed in range(50)]
        assert {predict(plan).kind for plan in plans} >= {"placed", "pending", "preempts", "reclaims"}
    assert scenario(7).family == FAMILIES[7 % len(FAMILIES)]
