"""The model says of a workload what the real KAI then does: same kind, same victims for the same cause, same reason.

KAI as it ships also moves running pods to make room, which the model does not: here it is told not to. Scenarios come
one after the other, since shares are the whole cluster's. RUNG_REALITY_SEED replays the one of a seed;
RUNG_REALITY_COUNT puts more of them to KAI.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.real.kai_agreement import compared
from tests.real.scenarios.kai_plans import FAMILIES, scenario
from tests.support.lab import own_cluster
from tests.support.real import by_hand

COUNT = 60
CONF = 'actions: "allocate, reclaim, preempt, stalegangeviction"\n'


def seeds() -> range:
    """One seed where one is named, else as many as wanted."""
    if named := os.environ.get("RUNG_REALITY_SEED"):
        return range(int(named), int(named) + 1)
    return range(int(os.environ.get("RUNG_REALITY_COUNT", COUNT)))


@pytest.mark.lab
@pytest.mark.enable_socket
@pytest.mark.timeout(600)
def test_same_kind_same_victims_and_same_reason_in_every_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand("LAB_KAI_BIN", "KAI 0.17.0")
    conf = tmp_path / "kai.conf"
    conf.write_text(CONF, encoding="utf-8")
    monkeypatch.setenv("LAB_KAI_CONF", str(conf))
    with own_cluster("--kai", flavour="kai") as cluster:
        found = compared(cluster.admin, seeds())
    differ = [each for each in found if not each.agrees]
    assert not differ, "\n".join(map(str, differ))
    if len(found) >= COUNT:
        kinds = Counter(each.seen.kind for each in found)
        assert kinds.keys() == {"placed", "pending", "preempts", "reclaims"}, kinds


def test_a_seed_is_the_same_scenario_for_ever() -> None:
    assert [scenario(seed) for seed in range(20)] == [scenario(seed) for seed in range(20)]
    assert scenario(9).family == FAMILIES[9 % len(FAMILIES)]
