"""KAI takes from other queues: for deserved quota and fair share, at the level where the paths part."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import OutcomeKind
from scheduling.model.preemptibility import Cause, EvictionExemptions
from scheduling.model.reasons import Reason
from tests.builders import gang, node, queue, running, snapshot
from tests.scheduling.rules.kai.decisions import DEP, outcome, reason, victims


def test_the_quick_starts_over_quota_team_gives_back_one_gpu() -> None:
    """Run:ai's quick start: both teams deserve 2 of 4 GPUs, team-a uses 3; b2 gets its GPU from a1."""
    teams = (DEP, queue("team-a", "dep", deserved=2), queue("team-b", "dep", deserved=2))
    work = [
        running("a1", "n0", gpus=1, queue="team-a", priority="low", start=1),
        running("a2", "n1", gpus=2, queue="team-a", priority="low", start=0),
        running("b1", "n0", gpus=1, queue="team-b", priority="low", start=2),
    ]
    found = outcome(gang("b2", queue="team-b", priority="low"), node("n0", 2), node("n1", 2), *teams, *work)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["a1"])


def test_reclaim_ignores_priority() -> None:
    queues = (DEP, queue("mine", "dep", deserved=1), queue("theirs", "dep"))
    strong = running("strong", "n", queue="theirs", priority="very-high", preemptible=True)
    found = outcome(gang("new", queue="mine", priority="very-low"), node("n", 1), *queues, strong)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["strong"])
    assert found.victims[0].cause is Cause.RECLAIM


def test_reclaim_comes_before_preempt() -> None:
    queues = (DEP, queue("mine", "dep", deserved=2), queue("theirs", "dep"))
    work = [
        running("own", "n", queue="mine", priority="very-low"),
        running("strong", "n", queue="theirs", priority="medium-high"),
    ]
    found = outcome(gang("new", queue="mine", priority="high"), node("n", 2), *queues, *work)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["strong"])


def test_a_queue_slightly_over_its_quota_can_lose_everything() -> None:
    queues = (DEP, queue("mine", "dep", deserved=1), queue("theirs", "dep", deserved=3))
    found = outcome(
        gang("new", queue="mine"),
        node("n", 4),
        *queues,
        running("big", "n", gpus=4, queue="theirs", priority="high", preemptible=True),
    )
    assert victims(found) == ["big"]


def test_a_queue_inside_its_fair_share_takes_nothing_that_would_bring_it_beyond() -> None:
    queues = (DEP, queue("mine", "dep", deserved=2, weight=0), queue("theirs", "dep", weight=0))
    work = [
        running("own", "n", queue="mine", preemptible=True),
        running("young", "n", gpus=2, queue="theirs", preemptible=True, start=1),
        running("old", "n", queue="theirs", preemptible=True),
    ]
    one, two = gang("new", queue="mine", priority="low"), gang("new", gpus=2, queue="mine", priority="low")
    assert outcome(one, node("n", 4), *queues, *work).kind is OutcomeKind.RECLAIMS
    assert outcome(two, node("n", 4), *queues, *work).kind is OutcomeKind.PENDING


@pytest.mark.parametrize(
    ("left", "right", "taken"),
    [
        pytest.param(4, 0, ["theirs"], id="their department is over"),
        pytest.param(0, 4, [], id="their department is inside, though their project is over"),
    ],
)
def test_queues_of_two_departments_are_compared_by_their_departments(left: int, right: int, taken: list[str]) -> None:
    queues = (
        queue("here", deserved=left),
        queue("there", deserved=right),
        queue("mine", "here", deserved=4),
        queue("other", "there", deserved=4 - right),
    )
    work = running("theirs", "n", gpus=4, queue="other", priority="medium")
    assert victims(outcome(gang("new", gpus=4, queue="mine"), node("n", 4), *queues, work)) == taken


def test_a_queue_reclaims_up_to_its_fair_share_only() -> None:
    queues = (DEP, queue("mine", "dep", weight=1), queue("theirs", "dep", weight=1))
    work = [running(f"t{index}", "n", queue="theirs", priority="low", start=index) for index in range(4)]
    first = outcome(gang("new", queue="mine"), node("n", 4), *queues, *work)
    greedy = outcome(gang("new", gpus=3, queue="mine"), node("n", 4), *queues, *work)
    assert (first.kind, victims(first)) == (OutcomeKind.RECLAIMS, ["t3"])
    assert greedy.kind is OutcomeKind.PENDING


def test_a_department_above_its_share_takes_nothing_from_one_that_is_less_so() -> None:
    queues = (
        queue("here", deserved=2, weight=0, rank=120),
        queue("there", deserved=2, weight=0),
        queue("busy", "here", deserved=1),
        queue("mine", "here", deserved=1),
        queue("theirs", "there", deserved=2),
    )
    work = [
        running("fixed", "n", gpus=4, queue="busy", priority="high"),
        *[running(f"t{index}", "n", queue="theirs", priority="low", start=index) for index in range(4)],
    ]
    found = outcome(gang("new", queue="mine"), node("n", 8), *queues, *work)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_weight_zero_reclaims_nothing_above_its_quota() -> None:
    queues = (DEP, queue("mine", "dep", weight=0), queue("theirs", "dep", weight=1))
    work = [running(f"t{index}", "n", queue="theirs", priority="low", start=index) for index in range(4)]
    assert outcome(gang("new", queue="mine"), node("n", 4), *queues, *work).kind is OutcomeKind.PENDING


def test_non_preemptible_work_reclaims_inside_deserved_quota_only() -> None:
    queues = (DEP, queue("mine", "dep", deserved=1, weight=9), queue("theirs", "dep"))
    work = [
        running("own", "n", queue="mine", priority="high"),
        *[running(f"t{index}", "n", queue="theirs", priority="low", start=index) for index in range(3)],
    ]
    found = outcome(gang("new", queue="mine", priority="high"), node("n", 4), *queues, *work)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NON_PREEMPTIBLE_OVER_QUOTA)


def test_a_victim_may_be_moved_to_a_free_node_instead_of_losing_its_room() -> None:
    queues = (DEP, queue("mine", "dep", deserved=4), queue("theirs", "dep", deserved=1))
    work = [
        running("small", "a", gpus=1, queue="theirs", priority="low", start=1),
        running("big", "a", gpus=3, queue="theirs", priority="low", start=0),
    ]
    found = outcome(gang("new", gpus=4, queue="mine"), node("a", 4), node("b", 1, order=1), *queues, *work)
    moved = {evict.victim.name: dict(evict.moves_to) for evict in found.victims}
    assert moved == {"small": {"small-0": "b"}, "big": {}}


def test_other_pools_are_another_world() -> None:
    queues = (
        DEP,
        queue("mine", "dep", deserved=1),
        queue("dep-h100", deserved=None, pool="h100"),
        queue("theirs", "dep-h100", pool="h100"),
    )
    over = running("over", "h", queue="theirs", priority="low", pool="h100")
    busy = running("busy", "n", queue="mine", priority="high")
    waiting = gang("new", queue="mine", priority="high", preemptible=True)
    found = outcome(waiting, node("n", 1), node("h", 1, pool="h100"), *queues, over, busy)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


@pytest.mark.parametrize(("deserved", "taken"), [(2, []), (1, ["theirs"]), (0, ["theirs"])])
def test_work_of_a_queue_that_may_lose_nothing_is_not_even_moved_out_of_the_way(
    deserved: int, taken: list[str]
) -> None:
    """There would be room for it on the other node, to which one at its deserved quota is moved."""
    queues = (DEP, queue("mine", "dep", deserved=2), queue("other", "dep", deserved=deserved))
    work = running("theirs", "n1", queue="other", priority="low")
    world = replace(
        snapshot(node("n0", 1), node("n1", 2), *queues, work), exempt=EvictionExemptions(frozenset({Cause.CONSOLIDATE}))
    )
    found = preview(world, gang("new", gpus=2, queue="mine"), flavour="kai")
    assert victims(found) == taken
