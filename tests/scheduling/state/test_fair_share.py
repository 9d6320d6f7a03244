"""Deserved first, then surplus by rank, then by weight. Worked numbers of KAI's and Run:ai's documentation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.model.resources import ZERO, Limit, Resources
from scheduling.model.snapshot import Queue
from scheduling.state import fair_share
from scheduling.state.fair_share import Division, divide, fair_shares
from tests.builders import queue

GPU = Resources.of(gpu=1)


def shares(total: float, wanted: dict[str, float], *queues: Queue) -> dict[str, float]:
    """GPUs in, GPUs out."""
    requested = {name: Resources(gpu=int(gpus * 1000)) for name, gpus in wanted.items()}
    found = divide(Resources(gpu=int(total * 1000)), queues, requested)
    return {name: share.gpu / 1000 for name, share in found.items()}


def pair(**of_first: int) -> tuple[Queue, Queue]:
    """Two queues with 2 GPUs deserved and weight 2, the first one older; keyword: its weight, rank or limit."""
    weight, rank, limit = of_first.get("weight", 2), of_first.get("rank", 100), of_first.get("limit")
    first = queue("1", deserved=2, weight=weight, rank=rank, limit=limit, created=1)
    return first, queue("2", deserved=2, weight=of_first.get("other_weight", 2), created=2)


@pytest.mark.parametrize(
    ("total", "queues", "requested", "first", "second"),
    [
        pytest.param(15, pair(), 6, 6, 6, id="more than anybody asks for"),
        pytest.param(12, pair(), 6, 6, 6, id="exactly what is asked for"),
        pytest.param(8, pair(weight=1, other_weight=3), 6, 3, 5, id="surplus in proportion to weight"),
        pytest.param(12, pair(limit=5), 6, 5, 6, id="never above the limit"),
        pytest.param(11, pair(weight=1, other_weight=4), 10, 3, 8, id="the larger remainder gets the odd GPU"),
        pytest.param(11, pair(), 6, 6, 5, id="equal remainders: the older queue"),
        pytest.param(4, pair(rank=99), 6, 2, 2, id="rank does not touch what is deserved"),
        pytest.param(6, pair(rank=99), 6, 2, 4, id="the higher rank has all the surplus"),
        pytest.param(6, pair(rank=99, weight=100, other_weight=1), 6, 2, 4, id="rank before weight"),
        pytest.param(2, pair(), 6, 2, 2, id="deserved even if the nodes do not have it"),
        pytest.param(8, pair(weight=0), 6, 2, 6, id="weight zero gets nothing above its quota"),
    ],
)
def test_two_queues(total: int, queues: tuple[Queue, Queue], requested: int, first: float, second: float) -> None:
    assert shares(total, {"1": requested, "2": requested}, *queues) == {"1": first, "2": second}


def test_each_resource_is_divided_by_its_own_weights() -> None:
    plain = replace(queue("plain", weight=1000), deserved=Limit(0, 0, 0))
    own = replace(plain, name="own", cpu_weight=3000, memory_weight=500)
    total, requested = Resources(8000, 8000, 6000), Resources(8000, 8000, 6000)
    assert divide(total, [plain, own], {"plain": requested, "own": requested}) == {
        "plain": Resources(4000, 2000, 4000),
        "own": Resources(4000, 6000, 2000),
    }


def test_the_fair_share_simulators_example() -> None:
    three_to_one = (queue("queue1", deserved=10, weight=3), queue("queue2", deserved=10, weight=1))
    assert shares(100, {"queue1": 100, "queue2": 100}, *three_to_one) == {"queue1": 70, "queue2": 30}


def test_weights_equal_to_quotas_give_over_quota_in_the_ratio_of_quotas() -> None:
    teams = (
        queue("team-a", deserved=4, weight=4),
        queue("team-b", deserved=2, weight=2),
        queue("team-c", deserved=2, weight=2),
    )
    requested = {"team-a": 20.0, "team-b": 20.0, "team-c": 20.0}
    assert shares(16, requested, *teams) == {"team-a": 8, "team-b": 4, "team-c": 4}


def test_the_remainder_is_divided_inside_the_higher_rank_too() -> None:
    queues = (
        queue("1", deserved=2, weight=2, rank=2, created=1),
        queue("2", deserved=2, weight=2, rank=2, created=2),
        queue("3", deserved=1, weight=2, rank=1, created=3),
    )
    assert shares(5, {"1": 5, "2": 5, "3": 0}, *queues) == {"1": 3, "2": 2, "3": 0}


@pytest.mark.parametrize(
    ("total", "weight", "requested", "expected"),
    [
        pytest.param(2, 0, 2, 2, id="asks for less than it deserves"),
        pytest.param(7, 0, 5, 3, id="nothing above its quota without weight"),
        pytest.param(2, 0, 1.5, 1.5, id="fractions are kept where asked for"),
        pytest.param(3.5, 1, 5, 3.5, id="and where only a fraction is left"),
    ],
)
def test_one_queue_that_deserves_three(total: float, weight: int, requested: float, expected: float) -> None:
    assert shares(total, {"1": requested}, queue("1", deserved=3, weight=weight)) == {"1": expected}


def test_what_a_satisfied_queue_leaves_goes_round_again() -> None:
    queues = (queue("small", weight=1), queue("big", weight=1), queue("bigger", weight=2))
    assert shares(12, {"small": 1, "big": 20, "bigger": 20}, *queues) == {"small": 1, "big": 4, "bigger": 7}


def test_projects_divide_their_departments_share() -> None:
    queues = (
        queue("left", deserved=4, weight=1),
        queue("right", deserved=4, weight=1),
        queue("a", "left", deserved=3),
        queue("b", "left", deserved=1),
        queue("c", "right", deserved=2, limit=3),
    )
    requested = {"a": GPU * 6, "b": GPU * 1, "left": GPU * 7, "c": GPU * 8, "right": GPU * 8}
    found = fair_shares(queues, requested, GPU * 12)
    assert {name: share.gpu // 1000 for name, share in found.items()} == {
        "left": 6,
        "right": 6,
        "a": 5,
        "b": 1,
        "c": 3,
    }


def test_divisions_are_known_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_share, "MOST_KNOWN", 2)
    queues, known = (queue("dep", deserved=4), queue("a", "dep", deserved=4)), dict[Division, dict[str, Resources]]()
    for gpus in (1, 2, 3, 3):
        requested = {"a": GPU * gpus, "dep": GPU * gpus}
        assert fair_shares(queues, requested, GPU * 12, known) == requested
        assert len(known) <= 2


def test_unlimited_quota_takes_what_it_asks_for() -> None:
    assert shares(8, {"a": 6, "b": 6}, queue("a", deserved=None), queue("b")) == {"a": 6, "b": 2}


def test_cpu_and_memory_are_divided_by_the_same_rule() -> None:
    queues = (Queue("a", deserved=Limit(0, 5000, 0)), Queue("b", deserved=Limit(0, 0, 0)))
    requested = {"a": Resources(cpu=10_000, memory=100), "b": Resources(cpu=5000, memory=3)}
    found = divide(Resources(cpu=10_000, memory=50), queues, requested)
    assert found == {"a": Resources(cpu=7500, memory=47), "b": Resources(cpu=2500, memory=3)}


quotas = st.integers(0, 12)
any_queues = st.lists(
    st.tuples(quotas, st.none() | quotas, st.integers(0, 4), st.sampled_from([80, 100, 120]), st.integers(0, 16)),
    min_size=1,
    max_size=6,
)


@given(any_queues, st.integers(0, 40))
def test_shares_never_pass_request_or_limit_and_never_give_away_more_than_there_is(
    drawn: list[tuple[int, int | None, int, int, int]], total: int
) -> None:
    queues = [
        queue(f"q{index}", deserved=deserved, limit=limit, weight=weight, rank=rank, created=index)
        for index, (deserved, limit, weight, rank, _requested) in enumerate(drawn)
    ]
    requested = {f"q{index}": GPU * row[4] for index, row in enumerate(drawn)}
    found = divide(GPU * total, queues, requested)
    guaranteed = sum(min(one.deserved.gpu or 0, requested[one.name].clamp(one.limit).gpu) for one in queues)
    for one in queues:
        assert found[one.name].fits_in(requested[one.name].clamp(one.limit))
        assert found[one.name].gpu >= min(one.deserved.gpu or 0, requested[one.name].clamp(one.limit).gpu)
    assert sum(share.gpu for share in found.values()) <= max(total * 1000, guaranteed)
    assert divide(ZERO, [], {}) == {}
