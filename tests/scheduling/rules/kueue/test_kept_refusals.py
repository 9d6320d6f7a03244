"""Kueue's refusals are kept while nothing changes in their tree of quotas, and no longer. Quotas in GPUs."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Start, Wait
from scheduling.model.preemptibility import FairSharingStrategy
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.rules.kueue.state import MOST_REFUSED
from scheduling.state.workspace import successor
from tests.builders import gang, node, queue, running, snapshot

TEAM, OTHER = queue("team", deserved=4), queue("other", deserved=4)
FULL = (running("old", "a", gpus=4), running("foreign", "a", gpus=4, queue="other"))


def started(cluster: Snapshot) -> list[str]:
    return [each.group.name for each in cycle(cluster, flavour="kueue") if isinstance(each, Start)]


def refused(cluster: Snapshot) -> list[str]:
    return [each.group.name for each in cycle(cluster, flavour="kueue") if isinstance(each, Wait)]


def test_refused_work_starts_once_work_of_its_tree_has_ended() -> None:
    cluster = snapshot(TEAM, OTHER, *FULL, gang("new", gpus=4), gang("stays", gpus=4, queue="other"))
    assert refused(cluster) == ["new", "stays"]
    cluster = successor(cluster, ["old"], (), now=1)
    assert (started(cluster), refused(cluster)) == (["new"], ["stays"])


def test_work_that_comes_to_a_tree_in_which_all_was_refused_is_decided_about() -> None:
    cluster = snapshot(TEAM, OTHER, *FULL, gang("new", gpus=4), gang("stays", gpus=4, queue="other"))
    assert refused(cluster) == ["new", "stays"]
    cluster = successor(cluster, ["new"], [gang("next", gpus=4), gang("later", gpus=4, created=1)], now=1)
    assert refused(cluster) == ["next", "later", "stays"]


@pytest.mark.parametrize("fair", [(), (FairSharingStrategy.LESS_THAN_INITIAL,)])
def test_a_change_that_was_only_tried_leaves_the_refusals_as_they_were(fair: tuple[FairSharingStrategy, ...]) -> None:
    cluster = replace(snapshot(TEAM, OTHER, *FULL, gang("new", gpus=4)), fair_sharing=fair)
    assert refused(cluster) == ["new"]
    assert started(cluster.without_groups({"old"})) == ["new"]
    assert refused(cluster.with_groups([gang("too", gpus=4, created=1)])) == ["new", "too"]
    assert refused(cluster.without_groups({"new"})) == []
    assert refused(cluster) == ["new"]


def test_pods_of_unknown_queues_come_and_go_without_a_decision_about_others() -> None:
    def stray(name: str) -> PodGroup:
        return gang(name, gpus=4, pods=2, queue="unknown", nodes=("a",))

    cluster = snapshot(node("a", 16), TEAM, *FULL[:1], stray("first"), gang("new", gpus=4))
    assert refused(cluster) == ["new"]
    assert refused(cluster.changed(["first"], [stray("second")], now=None)) == ["new"]
    assert refused(successor(cluster, ["first"], [stray("second")], now=1)) == ["new"]


def test_more_refusals_than_are_remembered_change_no_decision() -> None:
    waiting = [gang(f"new-{number}", gpus=4, priority=80, created=number) for number in range(2)]
    many = [gang(f"low-{number}", gpus=4, priority=-number) for number in range(MOST_REFUSED)]
    cluster = snapshot(TEAM, running("old", "a", gpus=4, priority=100), *waiting, *many)
    assert len(refused(cluster)) == MOST_REFUSED + 2
    cluster = successor(cluster, ["old"], (), now=1)
    assert started(cluster) == ["new-0"]
