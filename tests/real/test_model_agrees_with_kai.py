"""The model says of a workload what the real KAI then does: same kind, same victims for the same cause, same reason.

Scenarios about quotas are put to a KAI that is told not to move running work; those about domains of close nodes, about
moves and with others that wait to one as it ships: there also the domain is compared. They come one after the other,
since shares are the whole cluster's. RUNG_REALITY_SEED replays the one of a seed; RUNG_REALITY_COUNT puts more of them
to KAI.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.kai_agreement import SCENARIOS, Compared, compared
from tests.real.scenarios import kai_crowds, kai_near, kai_plans
from tests.support.lab import own_cluster
from tests.support.real import by_hand

COUNT = 60
MOST_DIFFER = 0.05
CONF = 'actions: "allocate, reclaim, preempt, stalegangeviction"\n'


def seeds() -> range:
    """One seed where one is named, else as many as wanted."""
    if named := os.environ.get("RUNG_REALITY_SEED"):
        return range(int(named), int(named) + 1)
    return range(int(os.environ.get("RUNG_REALITY_COUNT", COUNT)))


def all_agree(found: list[Compared], *kinds: str) -> None:
    """And of so many scenarios, there are some with each outcome."""
    differ = [each for each in found if not each.agrees]
    assert not differ, "\n".join(map(str, differ))
    if len(found) >= COUNT:
        seen = Counter(each.seen.kind for each in found)
        assert seen.keys() >= set(kinds), seen


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
        found = compared(cluster.admin, list(map(SCENARIOS["quotas"], seeds())), consolidates=False)
    all_agree(found, "placed", "pending", "preempts", "reclaims")


@pytest.mark.lab
@pytest.mark.enable_socket
@pytest.mark.timeout(600)
def test_same_domain_and_same_moves_in_every_scenario() -> None:
    by_hand("LAB_KAI_BIN", "KAI 0.17.0")
    with own_cluster("--kai", flavour="kai") as cluster:
        found = compared(cluster.admin, list(map(SCENARIOS["near"], seeds())), consolidates=True)
    all_agree(found, "placed", "pending", "preempts", "reclaims", "consolidates")


@pytest.mark.lab
@pytest.mark.enable_socket
@pytest.mark.timeout(900)
def test_beside_others_that_wait_nearly_every_scenario_ends_as_predicted() -> None:
    """KAI forgets from cycle to cycle for whom it has evicted: in some others get the room first."""
    by_hand("LAB_KAI_BIN", "KAI 0.17.0")
    with own_cluster("--kai", flavour="kai") as cluster:
        found = compared(cluster.admin, list(map(SCENARIOS["crowds"], seeds())), consolidates=True)
    differ = [each for each in found if not each.agrees]
    assert len(differ) <= len(found) * MOST_DIFFER, "\n".join(map(str, differ))


@pytest.mark.parametrize(
    ("make", "families"),
    [
        pytest.param(kai_plans.scenario, kai_plans.FAMILIES, id="quotas"),
        pytest.param(kai_near.near, kai_near.FAMILIES, id="near"),
        pytest.param(kai_crowds.crowd, kai_plans.FAMILIES, id="crowds"),
    ],
)
def test_a_seed_is_the_same_scenario_for_ever(make: Callable[[int], kai_plans.Plan], families: tuple[str, ...]) -> None:
    assert list(map(make, range(20))) == list(map(make, range(20)))
    assert make(9).family == families[9 % len(families)]
