"""A snapshot says what there is, and refuses to be ambiguous."""

from dataclasses import asdict

import pytest

from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Snapshot
from tests.builders import gang, node, queue, running, snapshot


def test_pods_wait_hold_or_leave() -> None:
    group = gang("train", pods=3, nodes=("n0",))
    ending = gang("ending", nodes=("n0",), terminating=True)
    assert [pod.name for pod in group.holding] == ["train-0"]
    assert [pod.name for pod in group.waiting] == ["train-1", "train-2"]
    assert ending.holding == ending.waiting == ()
    assert group.total == Resources.of(gpu=3)


def test_age_is_the_start_once_there_is_one() -> None:
    assert gang("waiting", created=3).age_key == 3
    assert gang("started", created=3, started=9).age_key == 9


@pytest.mark.parametrize(
    "twins",
    [
        pytest.param((node("a"), node("a")), id="nodes"),
        pytest.param((queue("a"), queue("a", pool="other")), id="queues"),
        pytest.param((gang("a"), gang("a", namespace="other")), id="pod groups"),
    ],
)
def test_names_are_unique(twins: tuple[object, object]) -> None:
    with pytest.raises(ValueError, match=r"more than one .* is named a"):
        snapshot(*twins)  # type: ignore[arg-type]


def test_a_shard_is_one_node_pool() -> None:
    whole = snapshot(node("a"), node("b", pool="h100"), queue("qa"), queue("qb", pool="h100"), gang("g", pool="l4"))
    assert whole.pools == ("default", "h100", "l4")
    shard = whole.shard("h100")
    assert [item.name for item in (*shard.nodes, *shard.queues, *shard.groups)] == ["b", "qb"]


def test_adding_a_group_leaves_the_snapshot_alone() -> None:
    before = snapshot(node("n0"), gang("a", gpus=1))
    after = before.with_groups([gang("a", gpus=2)])
    assert [group.total.gpu for group in before.groups] == [1000]
    assert [group.total.gpu for group in after.groups] == [2000]
    assert before.with_groups([gang("b")]).group_by_name.keys() == {"a", "b"}


def test_queues_with_children_are_known() -> None:
    assert snapshot(queue("dep"), queue("a", "dep")).parents == {"dep"}


def test_values_can_be_turned_into_plain_data() -> None:
    assert asdict(snapshot(running("a", "n0")))["groups"][0]["pods"][0]["node"] == "n0"
    assert Snapshot().groups == ()


def test_a_refusal_carries_its_numbers() -> None:
    pend = PendingReason(Reason.NO_ROOM, Resources.of(gpu=4), pool="h100", free=Resources.of(gpu=3))
    assert pend.numbers() == {"needed": "4 GPU", "pool": "h100", "free": "3 GPU", "largest_free": "0 GPU"}
    over = PendingReason(Reason.OVER_LIMIT, Resources.of(gpu=1), "team", Limit(gpu=0))
    assert over.numbers()["allowed"] == "0 GPU"
