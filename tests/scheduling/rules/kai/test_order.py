"""Whose turn it is in a cycle of KAI, and what one turn leaves for the next."""

import pytest

from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Evict, OutcomeKind, Wait
from scheduling.model.reasons import Reason
from scheduling.model.resources import UNLIMITED, Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode
from tests.builders import gang, node, queue, running
from tests.scheduling.rules.kai.decisions import DEP, decide, outcome, reason, started, victims


def test_the_queue_with_the_smaller_share_of_its_own_is_served_first() -> None:
    queues = (DEP, queue("rich", "dep", deserved=2, created=0), queue("poor", "dep", deserved=2, created=1))
    work = running("r", "n", queue="rich", priority="low")
    waiting = [gang("more", queue="rich"), gang("first", queue="poor")]
    assert started(decide(node("n", 2), *queues, work, *waiting)) == ["first"]


@pytest.mark.parametrize(
    ("one", "other", "winner"),
    [
        pytest.param(queue("a", "dep"), queue("b", "dep", deserved=1), "b", id="inside its quota with the job"),
        pytest.param(queue("a", "dep"), queue("b", "dep", rank=110), "b", id="higher rank"),
        pytest.param(queue("a", "dep", weight=0), queue("b", "dep"), "b", id="has a share at all"),
        pytest.param(queue("a", "dep", created=2), queue("b", "dep", created=1), "b", id="older queue"),
        pytest.param(queue("a", "dep", weight=1), queue("b", "dep", weight=9), "b", id="larger share"),
    ],
)
def test_whose_turn_it_is(one: Queue, other: Queue, winner: str) -> None:
    waiting = [gang("for-a", queue="a", gpus=1), gang("for-b", queue="b", gpus=1)]
    fill = [gang(f"later-{name}", queue=name, gpus=8, created=9) for name in "ab"]
    decisions = decide(node("n", 1), DEP, one, other, *waiting, *fill)
    assert started(decisions) == [f"for-{winner}"]


def test_over_fair_share_in_everything_comes_last() -> None:
    """Only with all three dimensions in use does KAI see a queue as over its fair share."""
    one = Resources.of(gpu=1, cpu=1, memory=1)
    three = Limit(3000, 3000, 3)
    queues = tuple(
        Queue(name, deserved=deserved, limit=UNLIMITED, rank=rank, created=created)
        for name, deserved, rank, created in (("over", Limit(0, 0, 0), 200, 0), ("under", three, 100, 1))
    )
    greedy = PodGroup("greedy", "over", "x", 40, True, tuple(Pod(f"p{i}", one, "n") for i in range(3)), min_member=3)
    waiting = tuple(PodGroup(f"for-{name}", name, "x", 40, True, (Pod("p", one),)) for name in ("over", "under"))
    small = SnapshotNode("n", "default", Resources.of(gpu=4, cpu=4, memory=4))
    decisions = cycle(Snapshot((small,), queues, (greedy, *waiting)), flavour="kai")
    assert started(decisions) == ["for-under"]


def test_inside_a_queue_priority_then_age_decide() -> None:
    team = (DEP, queue("team", "dep"))
    waiting = [gang("young", created=2), gang("old", created=1), gang("strong", priority="medium-high", created=3)]
    assert started(decide(node("n", 2), *team, *waiting)) == ["old", "strong"]


def test_room_on_its_way_is_waited_for_and_nobody_else_is_taken() -> None:
    team = (DEP, queue("team", "dep", deserved=2))
    ending = gang("ending", priority="low", nodes=("n",), terminating=True)
    other = running("other", "n", priority="low")
    (wait,) = decide(node("n", 2), *team, ending, other, gang("new"))
    assert isinstance(wait, Wait)
    assert (wait.pend.reason, wait.nominated) == (Reason.EVICTING, {"new-0": "n"})


def test_room_left_over_by_one_eviction_serves_the_next() -> None:
    team = (DEP, queue("team", "dep", deserved=4))
    big = running("big", "n", gpus=4, priority="low")
    decisions = decide(node("n", 4), *team, big, gang("one", gpus=2, created=1), gang("two", gpus=2, created=2))
    assert [d.for_group for d in decisions if isinstance(d, Evict)] == ["one"]
    assert {d.pend.reason for d in decisions if isinstance(d, Wait)} == {Reason.EVICTING}


def test_a_larger_workload_of_a_queue_that_found_nobody_is_not_searched_for_again() -> None:
    team = (DEP, queue("team", "dep", deserved=4))
    strong = running("strong", "n", gpus=4, priority="high")
    waiting = [gang("one", gpus=2, created=1), gang("two", gpus=3, created=2), gang("three", gpus=1, created=3)]
    decisions = decide(node("n", 4), *team, strong, *waiting, gang("pinned", node_selector={"kind": "x"}))
    assert {d.pend.reason for d in decisions if isinstance(d, Wait)} == {Reason.NO_ROOM, Reason.NEVER_FITS}
    assert not [d for d in decisions if isinstance(d, Evict)]


def test_a_victim_on_an_unknown_node_helps_nobody() -> None:
    team = (DEP, queue("team", "dep", deserved=4))
    lost = running("lost", "gone", priority="low")
    found = outcome(gang("new"), node("n", 1), *team, running("strong", "n", priority="high"), lost)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_in_a_large_cluster_only_queues_that_can_lose_are_searched() -> None:
    queues = (
        DEP,
        queue("mine", "dep", deserved=2),
        queue("safe", "dep", deserved=200),
        queue("over", "dep", deserved=20),
    )
    nodes = [node(f"n{index}", 10, order=index) for index in range(24)]
    work = [
        running(f"{name}{index}", f"n{index // 10 + offset}", queue=name, priority="low", start=index)
        for name, count, offset in (("safe", 200, 0), ("over", 40, 20))
        for index in range(count)
    ]
    found = outcome(gang("new", gpus=2, queue="mine"), *nodes, *queues, *work)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["over38", "over39"])


def test_in_a_large_cluster_all_projects_of_another_department_can_lose_or_none() -> None:
    queues = (
        queue("dep", deserved=4),
        queue("mine", "dep", deserved=4),
        queue("large", deserved=200),
        queue("one", "large", deserved=100),
        queue("two", "large", deserved=100),
    )
    nodes = [node(f"n{index}", 10, order=index) for index in range(24)]
    work = [
        running(f"{name}{index}", f"n{index // 10 + offset}", queue=name, priority="low", start=index)
        for name, offset in (("one", 0), ("two", 12))
        for index in range(120)
    ]
    found = outcome(gang("new", gpus=2, queue="mine"), *nodes, *queues, *work)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["two118", "two119"])
