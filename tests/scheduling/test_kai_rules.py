"""KAI: quotas first, reclaim between queues, preempt inside one; what surprises even its admins is on purpose."""

import pytest

from scheduling.cycle import cycle, preview
from scheduling.decisions import Cause, Decision, Evict, Kind, Outcome, Start, Wait
from scheduling.model import Node, Pod, PodGroup, Queue, Snapshot
from scheduling.reasons import Reason
from scheduling.resources import UNLIMITED, Limit, Resources
from tests.builders import gang, node, queue, running, snapshot

DEP = queue("dep", deserved=None)


def decide(*items: Node | Queue | PodGroup) -> list[Decision]:
    return cycle(snapshot(*items), flavour="kai")


def outcome(candidate: PodGroup, *items: Node | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kai")


def victims(found: Outcome) -> list[str]:
    return sorted(evict.victim.name for evict in found.victims)


def reason(found: Outcome) -> Reason | None:
    return found.pend.reason if found.pend else None


def started(decisions: list[Decision]) -> list[str]:
    return [decision.group.name for decision in decisions if isinstance(decision, Start)]


# Preempt: inside one queue


def test_preempts_strictly_lower_preemptible_work_of_its_own_queue() -> None:
    team = (DEP, queue("team", "dep", deserved=2))
    low = running("low", "n", gpus=2, priority="low")
    found = outcome(gang("new", priority="medium"), node("n", 2), *team, low)
    assert (found.kind, victims(found), reason(found)) == (Kind.PREEMPTS, ["low"], Reason.EVICTING)
    assert found.victims[0].cause is Cause.PREEMPT


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(running("other", "n", priority="medium"), id="equal priority"),
        pytest.param(running("other", "n", priority="low", preemptible=False), id="non-preemptible"),
        pytest.param(running("other", "n", priority="low", queue="next"), id="another queue inside its quota"),
    ],
)
def test_spares(other: PodGroup) -> None:
    queues = (DEP, queue("team", "dep", deserved=1), queue("next", "dep", deserved=1))
    found = outcome(gang("new", priority="medium"), node("n", 1), *queues, other)
    assert (found.kind, reason(found)) == (Kind.PENDING, Reason.NO_ROOM)


def test_the_lowest_then_youngest_goes_first_and_size_plays_no_part() -> None:
    team = (DEP, queue("team", "dep", deserved=6))
    work = [
        running("old", "a", gpus=1, priority="low", start=1),
        running("young", "b", gpus=4, priority="low", start=2),
        running("stronger", "c", gpus=1, priority="medium-low", start=3),
    ]
    nodes = [node("a", 1), node("b", 4), node("c", 1)]
    assert victims(outcome(gang("new", priority="medium"), *nodes, *team, *work)) == ["young"]


def test_who_is_not_needed_on_the_node_is_given_back() -> None:
    team = (DEP, queue("team", "dep", deserved=4))
    work = [
        running("weak", "n", gpus=1, priority="very-low", start=1),
        running("strong", "n", gpus=3, priority="low", start=2),
    ]
    assert victims(outcome(gang("new", gpus=3, priority="medium"), node("n", 4), *team, *work)) == ["strong"]


def test_never_is_ignored() -> None:
    low = running("low", "n", priority="low")
    found = outcome(gang("new", never=True), node("n", 1), DEP, queue("team", "dep", deserved=1), low)
    assert found.kind is Kind.PREEMPTS


def test_a_queue_at_its_limit_evicts_though_a_node_has_room() -> None:
    queues = (queue("dep", limit=4), queue("team", "dep", deserved=4))
    low = running("low", "a", gpus=4, priority="low")
    found = outcome(gang("new", priority="medium"), node("a", 4), node("b", 8, order=1), *queues, low)
    assert (found.kind, victims(found), found.placements) == (Kind.PREEMPTS, ["low"], {"new-0": "b"})


def test_a_limit_that_eviction_cannot_cure_is_the_reason() -> None:
    queues = (queue("dep", limit=1), queue("team", "dep", deserved=4))
    found = outcome(gang("new", gpus=2), node("n", 8), *queues)
    assert (reason(found), found.pend and found.pend.queue) == (Reason.OVER_LIMIT, "dep")


# Quotas


def test_non_preemptible_work_over_quota_is_refused_on_an_empty_cluster() -> None:
    queues = (queue("dep", deserved=1), queue("team", "dep", deserved=4))
    found = outcome(gang("new", gpus=2, priority="high"), node("n", 8), *queues)
    assert (reason(found), found.pend and found.pend.queue) == (Reason.NON_PREEMPTIBLE_OVER_QUOTA, "dep")


def test_preemptible_work_goes_over_quota_freely_and_says_so() -> None:
    found = outcome(gang("new", gpus=2), node("n", 8), DEP, queue("team", "dep"))
    assert (found.kind, found.over_quota) == (Kind.PLACED, True)


def test_two_reasons_are_both_told() -> None:
    found = outcome(gang("new", gpus=9, priority="high"), node("n", 8), DEP, queue("team", "dep", deserved=1))
    assert found.pend is not None
    assert (found.pend.reason, found.pend.also) == (Reason.NON_PREEMPTIBLE_OVER_QUOTA, (Reason.NEVER_FITS,))


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        pytest.param(gang("new", queue="nowhere"), Reason.QUEUE_MISSING, id="no such queue"),
        pytest.param(gang("new", queue="dep"), Reason.QUEUE_MISSING, id="a department holds no work"),
        pytest.param(gang("new", queue="orphan"), Reason.QUEUE_MISSING, id="its department is missing"),
        pytest.param(gang("new", pool="h100"), Reason.NO_SUCH_POOL, id="no such pool"),
        pytest.param(gang("new", gpus=9), Reason.NEVER_FITS, id="larger than any node"),
        pytest.param(gang("new", gpus=5, pods=2), Reason.NEVER_FITS, id="larger than the pool"),
    ],
)
def test_what_can_never_run_says_so(candidate: PodGroup, expected: Reason) -> None:
    queues = (DEP, queue("team", "dep"), queue("orphan", "gone"))
    assert reason(outcome(candidate, node("n", 8), *queues)) is expected


# Reclaim: between queues


def test_the_quick_starts_over_quota_team_gives_back_one_gpu() -> None:
    """Run:ai's quick start: both teams deserve 2 of 4 GPUs, team-a uses 3; b2 gets its GPU from a1."""
    teams = (DEP, queue("team-a", "dep", deserved=2), queue("team-b", "dep", deserved=2))
    work = [
        running("a1", "n0", gpus=1, queue="team-a", priority="low", start=1),
        running("a2", "n1", gpus=2, queue="team-a", priority="low", start=0),
        running("b1", "n0", gpus=1, queue="team-b", priority="low", start=2),
    ]
    found = outcome(gang("b2", queue="team-b", priority="low"), node("n0", 2), node("n1", 2), *teams, *work)
    assert (found.kind, victims(found)) == (Kind.RECLAIMS, ["a1"])


def test_reclaim_ignores_priority() -> None:
    queues = (DEP, queue("mine", "dep", deserved=1), queue("theirs", "dep"))
    strong = running("strong", "n", queue="theirs", priority="very-high", preemptible=True)
    found = outcome(gang("new", queue="mine", priority="very-low"), node("n", 1), *queues, strong)
    assert (found.kind, victims(found)) == (Kind.RECLAIMS, ["strong"])
    assert found.victims[0].cause is Cause.RECLAIM


def test_reclaim_comes_before_preempt() -> None:
    queues = (DEP, queue("mine", "dep", deserved=2), queue("theirs", "dep"))
    work = [
        running("own", "n", queue="mine", priority="very-low"),
        running("strong", "n", queue="theirs", priority="medium-high"),
    ]
    found = outcome(gang("new", queue="mine", priority="high"), node("n", 2), *queues, *work)
    assert (found.kind, victims(found)) == (Kind.RECLAIMS, ["strong"])


def test_a_queue_slightly_over_its_quota_can_lose_everything() -> None:
    queues = (DEP, queue("mine", "dep", deserved=1), queue("theirs", "dep", deserved=3))
    found = outcome(
        gang("new", queue="mine"),
        node("n", 4),
        *queues,
        running("big", "n", gpus=4, queue="theirs", priority="high", preemptible=True),
    )
    assert victims(found) == ["big"]


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
    assert (first.kind, victims(first)) == (Kind.RECLAIMS, ["t3"])
    assert greedy.kind is Kind.PENDING


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
    assert (found.kind, reason(found)) == (Kind.PENDING, Reason.NO_ROOM)


def test_weight_zero_reclaims_nothing_above_its_quota() -> None:
    queues = (DEP, queue("mine", "dep", weight=0), queue("theirs", "dep", weight=1))
    work = [running(f"t{index}", "n", queue="theirs", priority="low", start=index) for index in range(4)]
    assert outcome(gang("new", queue="mine"), node("n", 4), *queues, *work).kind is Kind.PENDING


def test_non_preemptible_work_reclaims_inside_deserved_quota_only() -> None:
    queues = (DEP, queue("mine", "dep", deserved=1, weight=9), queue("theirs", "dep"))
    work = [
        running("own", "n", queue="mine", priority="high"),
        *[running(f"t{index}", "n", queue="theirs", priority="low", start=index) for index in range(3)],
    ]
    found = outcome(gang("new", queue="mine", priority="high"), node("n", 4), *queues, *work)
    assert (found.kind, reason(found)) == (Kind.PENDING, Reason.NON_PREEMPTIBLE_OVER_QUOTA)


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
    assert (found.kind, reason(found)) == (Kind.PENDING, Reason.NO_ROOM)


# Gangs


def test_a_gang_evicts_for_all_its_pods_or_for_none() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    work = [running(f"low{index}", f"n{index}", gpus=2, priority="low", start=index) for index in range(2)]
    nodes = [node(f"n{index}", 2, order=index) for index in range(2)]
    both = outcome(gang("new", gpus=2, pods=2), *nodes, *team, *work)
    kept = running("kept", "n1", gpus=2, priority="medium", start=7)
    neither = outcome(gang("new", gpus=2, pods=2), *nodes, *team, work[0], kept)
    assert (victims(both), sorted(both.placements.values())) == (["low0", "low1"], ["n0", "n1"])
    assert (neither.kind, reason(neither)) == (Kind.PENDING, Reason.NO_ROOM)


def test_a_victim_gang_goes_whole() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    low = gang("low", pods=2, priority="low", nodes=("a", "b"))
    (evict,) = outcome(gang("new"), node("a", 1), node("b", 1), *team, low).victims
    assert sorted(evict.pods) == ["low-0", "low-1"]


def test_pods_beyond_the_minimum_go_one_by_one_youngest_first() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    low = gang("low", pods=3, min_member=1, priority="low", nodes=("n", "n", "n"))
    (evict,) = outcome(gang("new"), node("n", 3), *team, low).victims
    assert evict.pods == ("low-2",)


def test_reclaiming_counts_extra_pods_one_by_one() -> None:
    queues = (DEP, queue("mine", "dep", deserved=2), queue("theirs", "dep", deserved=2))
    elastic = gang("elastic", pods=4, min_member=2, queue="theirs", priority="low", nodes=("n",) * 4)
    (evict,) = outcome(gang("new", gpus=2, queue="mine"), node("n", 4), *queues, elastic).victims
    assert sorted(evict.pods) == ["elastic-2", "elastic-3"]


def test_a_started_gang_takes_more_pods_when_there_is_room() -> None:
    team = (DEP, queue("team", "dep"))
    group = gang("job", gpus=1, pods=4, min_member=2)
    start, wait = decide(node("n", 3), *team, group)
    assert isinstance(start, Start)
    assert isinstance(wait, Wait)
    assert list(start.placements) == ["job-0", "job-1", "job-2"]
    assert (wait.pend.reason, wait.pend.needed) == (Reason.NO_ROOM, Resources.of(gpu=1))


# Cycles


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
    small = Node("n", "default", Resources.of(gpu=4, cpu=4, memory=4))
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
    assert (found.kind, reason(found)) == (Kind.PENDING, Reason.NO_ROOM)


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
    assert (found.kind, victims(found)) == (Kind.RECLAIMS, ["over38", "over39"])
