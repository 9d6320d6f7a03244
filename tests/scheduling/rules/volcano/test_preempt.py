"""Volcano inside one queue: how it places and preempts; what surprises even its admins is on purpose."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Decision, Outcome, OutcomeKind, Start, Wait
from scheduling.model.preemptibility import Cause, EvictionExemptions
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode
from tests.builders import gang, node, queue, running, snapshot

TEAM = queue("team", deserved=4)
NEXT = queue("next", deserved=0, created=1)


def decide(*items: SnapshotNode | Queue | PodGroup) -> list[Decision]:
    return cycle(snapshot(*items), flavour="volcano")


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="volcano")


def victims(found: Outcome) -> list[str]:
    return [pod for evict in found.victims for pod in evict.pods]


def reason(found: Outcome) -> Reason | None:
    return found.pend.reason if found.pend else None


def told(decisions: list[Decision]) -> list[tuple[str, str]]:
    """What is decided about each waiting group: started, or why not."""
    return [
        (decision.group.name, "started" if isinstance(decision, Start) else decision.pend.reason)
        for decision in decisions
        if isinstance(decision, Start | Wait)
    ]


def sized(candidate: PodGroup, **requests: int) -> PodGroup:
    """The same group with other requests for each of its pods."""
    return replace(candidate, pods=tuple(replace(pod, requests=Resources.of(**requests)) for pod in candidate.pods))


# Allocate


def test_the_node_with_the_smaller_part_of_its_gpus_in_use_is_best() -> None:
    nodes = (node("small", 2), node("half", 4, order=1), node("large", 8, order=2))
    found = outcome(gang("new"), *nodes, TEAM, running("other", "large", gpus=4))
    assert (found.kind, found.placements) == (OutcomeKind.PLACED, {"new-0": "half"})


def test_without_gpus_a_node_whose_cpu_and_memory_suit_each_other_is_best() -> None:
    even = SnapshotNode("even", "default", Resources.of(cpu=10, memory=10), order=1)
    uneven = SnapshotNode("uneven", "default", Resources.of(cpu=100, memory=10))
    assert outcome(sized(gang("new"), cpu=5, memory=5), uneven, even, TEAM).placements == {"new-0": "even"}


def test_a_node_without_an_amount_of_a_dimension_has_none_of_it_in_use() -> None:
    bare = SnapshotNode("bare", "default", Resources.of(cpu=10))
    assert outcome(sized(gang("new"), cpu=5), bare, TEAM).placements == {"new-0": "bare"}


def test_a_pod_that_asks_for_nothing_starts_on_a_full_node() -> None:
    full = running("other", "n", gpus=1)
    assert outcome(gang("new", gpus=0), node("n", 1), TEAM, full).kind is OutcomeKind.PLACED


def test_a_gang_gets_its_minimum_or_nothing() -> None:
    assert told(decide(node("n", 2), TEAM, gang("three", pods=3), gang("two", pods=2, created=1))) == [
        ("three", Reason.NEVER_FITS),
        ("two", "started"),
    ]
    assert told(decide(node("n", 3), TEAM, running("other", "n"), gang("three", pods=3))) == [("three", Reason.NO_ROOM)]


def test_pods_beyond_the_minimum_start_one_by_one_while_there_is_room() -> None:
    first, second = decide(node("n", 2), TEAM, gang("new", pods=3, min_member=1))
    assert isinstance(first, Start)
    assert isinstance(second, Wait)
    assert list(first.placements) == ["new-0", "new-1"]
    assert second.pend.reason is Reason.NO_ROOM


def test_room_that_ending_pods_leave_is_given_away_at_once() -> None:
    ending = gang("old", nodes=("n",), terminating=True)
    found = outcome(gang("new", pods=2), node("n", 2), TEAM, ending)
    assert (found.kind, reason(found), sorted(found.placements)) == (
        OutcomeKind.PENDING,
        Reason.EVICTING,
        ["new-0", "new-1"],
    )
    elastic = decide(node("n", 2), TEAM, ending, gang("new", pods=2, min_member=1))
    assert told(elastic) == [("new", "started"), ("new", Reason.EVICTING)]


@pytest.mark.parametrize(
    ("nominated", "where"),
    [("far", "far"), ("full", "near"), ("other pool", "near"), ("gone", "near")],
)
def test_a_nominated_node_comes_first_while_it_has_room(nominated: str, where: str) -> None:
    nodes = (node("near", 8), node("far", 2, order=1), node("full", 1, order=2), node("other pool", 8, pool="b"))
    found = outcome(gang("new", nominated=nominated), *nodes, TEAM, running("other", "full"))
    assert found.placements == {"new-0": where}


def test_queues_take_turns_by_rank_then_by_the_part_of_their_deserved_in_use() -> None:
    ranked = queue("ranked", deserved=1, rank=110)
    empty = queue("empty", deserved=8)
    half = queue("half", deserved=2)
    full = queue("full", deserved=1)
    waiting = [gang(name, queue=name) for name in ("best", "full", "half", "empty", "ranked")]
    used = (running("a", "n", queue="half"), running("b", "n", queue="full"))
    for capacity, started in enumerate(("ranked", "empty", "half", "full", "best"), start=1):
        decisions = decide(node("n", 2 + capacity), queue("best"), full, half, empty, ranked, *used, *waiting)
        assert (started, "started") in told(decisions)
        assert sum(said == "started" for _name, said in told(decisions)) == capacity


def test_refused_work_of_equal_departments_does_not_hold_up_a_queue_of_lower_rank() -> None:
    departments = (queue("d1", deserved=2), queue("d2", deserved=2))
    queues = (queue("a", parent="d1", deserved=2), queue("b", parent="d2", deserved=2), queue("late", rank=90))
    waiting = [gang(f"of-{name}", gpus=2, queue=name) for name in ("a", "b")]
    found = decide(node("n", 1), *departments, *queues, *waiting, gang("small", queue="late"))
    assert [each.group.name for each in found if isinstance(each, Start)] == ["small"]


def test_inside_a_queue_priority_then_the_gang_below_its_minimum_then_age() -> None:
    grown = gang("grown", pods=2, min_member=1, nodes=("n",), priority="high")
    items = (TEAM, grown, gang("fresh", priority="high", created=2), gang("newer", priority="high", created=3))
    assert told(decide(node("n", 2), *items, gang("low", priority="low")))[:2] == [
        ("grown", Reason.NO_ROOM),
        ("fresh", "started"),
    ]


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        pytest.param(gang("new", pool="b"), Reason.NO_SUCH_POOL, id="a pool without nodes"),
        pytest.param(gang("new", queue="nobody"), Reason.QUEUE_MISSING, id="a queue that is not there"),
        pytest.param(gang("new", min_member=2), Reason.GANG_INCOMPLETE, id="pods still to come"),
        pytest.param(gang("new", gpus=3), Reason.OVER_LIMIT, id="more than the queue's limit"),
        pytest.param(gang("new", gpus=5), Reason.NEVER_FITS, id="larger than any node, and than the limit"),
    ],
)
def test_waits_with_the_reason(candidate: PodGroup, expected: Reason) -> None:
    assert reason(outcome(candidate, node("n", 4), queue("team", limit=2))) is expected


# Preempt


def test_the_causes_that_a_configuration_leaves_out_evict_nobody() -> None:
    inside = snapshot(node("n", 1), TEAM, NEXT, running("low", "n", priority="low"))
    across = snapshot(node("n", 1), TEAM, NEXT, running("loan", "n", queue="next"))
    for world, cause in ((inside, Cause.PREEMPT), (across, Cause.RECLAIM)):
        said = {
            each: preview(
                replace(world, exempt=EvictionExemptions(frozenset({each}))), gang("new"), flavour="volcano"
            ).kind
            for each in (Cause.PREEMPT, Cause.RECLAIM)
        }
        assert said.pop(cause) is OutcomeKind.PENDING
        assert list(said.values()) == [OutcomeKind.PREEMPTS if cause is Cause.PREEMPT else OutcomeKind.RECLAIMS]


@pytest.mark.parametrize(("minimum", "gone"), [(1, ["low-0", "low-1"]), (2, ["low-0"]), (3, [])])
def test_nothing_is_preempted_below_its_minimum_where_the_gang_plugin_is_asked(minimum: int, gone: list[str]) -> None:
    low = gang("low", pods=3, min_member=minimum, nodes=("n", "n", "n"), priority="low")
    world = replace(snapshot(node("n", 3), TEAM, low), exempt=EvictionExemptions(below_minimum=True))
    found = preview(world, gang("new", gpus=max(len(gone), 1)), flavour="volcano")
    assert victims(found) == gone
    assert preview(world, gang("new", gpus=len(gone) + 1), flavour="volcano").kind is OutcomeKind.PENDING


def test_preempts_strictly_lower_preemptible_work_of_its_own_queue() -> None:
    found = outcome(gang("new", priority="medium"), node("n", 1), TEAM, running("low", "n", priority="low"))
    assert (found.kind, victims(found), found.victims[0].cause) == (OutcomeKind.PREEMPTS, ["low-0"], Cause.PREEMPT)
    assert (reason(found), found.placements) == (Reason.EVICTING, {"new-0": "n"})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(running("other", "n", priority="medium"), id="equal priority"),
        pytest.param(running("other", "n", priority="low", preemptible=False), id="non-preemptible"),
        pytest.param(running("other", "n", priority="low", namespace="kube-system"), id="of the system"),
        pytest.param(running("other", "n", priority="low", queue="kept"), id="of a queue that gives nothing back"),
    ],
)
def test_spares(other: PodGroup) -> None:
    kept = replace(queue("kept"), reclaimable=False)
    found = outcome(gang("new", priority="medium"), node("n", 1), TEAM, kept, other)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_the_weakest_then_youngest_goes_first_and_nothing_is_given_back() -> None:
    work = (
        running("weak", "n", priority="very-low", gpus=1),
        running("old", "n", priority="low", gpus=2, start=1),
        running("young", "n", priority="low", gpus=1, start=2),
    )
    assert victims(outcome(gang("new", gpus=1), node("n", 4), TEAM, *work)) == ["weak-0"]
    assert victims(outcome(gang("new", gpus=2), node("n", 4), TEAM, *work)) == ["weak-0", "young-0"]
    assert victims(outcome(gang("new", gpus=3), node("n", 4), TEAM, *work)) == ["weak-0", "young-0", "old-0"]


def test_a_gang_with_its_minimum_goes_before_one_that_has_lost_it() -> None:
    broken = gang("broken", pods=2, nodes=("n",), priority="low", started=5, created=5)
    whole = running("whole", "n", priority="low")
    assert victims(outcome(gang("new", priority="high"), node("n", 2), TEAM, whole, broken)) == ["whole-0"]


def test_one_pod_of_a_gang_is_taken() -> None:
    pair = gang("pair", pods=2, nodes=("n", "n"), priority="low")
    assert victims(outcome(gang("new"), node("n", 2), TEAM, pair)) == ["pair-0"]


def test_the_first_node_with_enough_is_used_not_the_one_with_the_least_loss() -> None:
    dear = running("dear", "a", gpus=4, priority="medium-low")
    cheap = running("cheap", "b", gpus=1, priority="very-low")
    assert victims(outcome(gang("new"), node("a", 4), node("b", 1, order=1), TEAM, dear, cheap)) == ["dear-0"]


def test_a_queue_at_its_limit_preempts_though_nodes_have_room() -> None:
    walled = queue("team", deserved=1, limit=2)
    work = (running("low", "b", priority="low", gpus=2), running("other", "b", queue="next"))
    found = outcome(gang("new"), node("a", 8), node("b", 8, order=1), walled, NEXT, *work)
    assert (victims(found), found.placements) == (["low-0"], {"new-0": "b"})


def test_the_limit_of_a_parent_queue_counts() -> None:
    parent, child = queue("dep", limit=1), queue("team", "dep", deserved=1)
    assert reason(outcome(gang("new", gpus=2), node("n", 8), parent, child)) is Reason.OVER_LIMIT


def test_only_the_minimum_of_a_gang_evicts_the_rest_takes_free_room() -> None:
    low = gang("low", pods=3, nodes=("n", "n", "n"), priority="low", min_member=1)
    found = outcome(gang("new", pods=3, min_member=1), node("n", 3), TEAM, low)
    assert (len(victims(found)), len(found.placements)) == (1, 1)
    large = running("large", "n", gpus=3, priority="low")
    found = outcome(gang("new", pods=3, min_member=1), node("n", 3), TEAM, large)
    assert (victims(found), len(found.placements)) == (["large-0"], 3)


def test_the_rest_of_a_gang_takes_no_room_above_the_queues_limit() -> None:
    large = running("large", "n", gpus=2, priority="low")
    found = outcome(gang("new", pods=3, min_member=1), node("n", 3), queue("team", limit=2), large)
    assert len(found.placements) == 2


def test_a_gang_that_gets_too_little_evicts_nobody() -> None:
    work = (running("low", "n", priority="low"), running("high", "n", priority="high"))
    found = outcome(gang("new", pods=2), node("n", 2), TEAM, *work)
    assert (found.kind, victims(found), found.placements) == (OutcomeKind.PENDING, [], {})


def test_a_node_on_which_taking_all_does_not_help_is_left_alone() -> None:
    walled = queue("team", deserved=1, limit=3)
    work = (running("low", "a", priority="low"), running("high", "b", gpus=2, priority="high"))
    found = outcome(gang("new", gpus=2), node("a", 2), node("b", 2, order=1), walled, *work)
    assert (found.kind, victims(found)) == (OutcomeKind.PENDING, [])


def test_a_class_that_never_preempts_evicts_nobody_and_is_told_so() -> None:
    low = running("low", "n", priority="low")
    assert reason(outcome(gang("new", never=True), node("n", 1), TEAM, low)) is Reason.PREEMPTION_NEVER
    assert reason(outcome(gang("new", never=True, priority="low"), node("n", 1), TEAM, low)) is Reason.NO_ROOM
    other = running("other", "n", queue="next")
    assert reason(outcome(gang("new", never=True), node("n", 1), TEAM, NEXT, other)) is Reason.PREEMPTION_NEVER


def test_a_gang_whose_other_pod_is_taken_meanwhile_is_told_once() -> None:
    broken = gang("broken", pods=2, nodes=("full",), priority="low", node_selector={"zone": "b"})
    strong = gang("strong", gpus=1, priority="high", node_selector={"zone": "a"}, created=1)
    nodes = (node("full", 1, zone="a"), node("free", 1, order=1, zone="b"))
    assert told(decide(*nodes, TEAM, broken, strong)) == [("broken", "started"), ("strong", Reason.EVICTING)]


def test_weaker_work_on_an_unknown_node_is_no_victim() -> None:
    work = (running("away", "removed", priority="very-low"), running("here", "n", priority="low"))
    assert victims(outcome(gang("new"), node("n", 1), TEAM, *work)) == ["here-0"]
