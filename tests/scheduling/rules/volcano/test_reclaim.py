"""Volcano between queues: whom it reclaims, and when; what surprises even its admins is on purpose."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Evict, Outcome, OutcomeKind, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import Reason
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode
from scheduling.state.workspace import successor
from tests.builders import gang, node, queue, running, snapshot

TEAM = queue("team", deserved=4)
NEXT = queue("next", deserved=0, created=1)


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="volcano")


def victims(found: Outcome) -> list[str]:
    return [pod for evict in found.victims for pod in evict.pods]


def sized(candidate: PodGroup, **requests: int) -> PodGroup:
    """The same group with other requests for each of its pods."""
    return replace(candidate, pods=tuple(replace(pod, requests=Resources.of(**requests)) for pod in candidate.pods))


def test_reclaims_work_of_any_priority_from_a_queue_over_its_deserved() -> None:
    high = running("high", "n", queue="next", priority="very-high", preemptible=True)
    found = outcome(gang("new", priority="very-low"), node("n", 1), TEAM, NEXT, high)
    assert (found.kind, victims(found), found.victims[0].cause) == (OutcomeKind.RECLAIMS, ["high-0"], Cause.RECLAIM)


def test_its_own_queues_weaker_work_goes_before_another_queues() -> None:
    work = (running("mine", "n", priority="low"), running("theirs", "n", queue="next", priority="very-low"))
    found = outcome(gang("new"), node("n", 2), TEAM, NEXT, *work)
    assert (found.kind, victims(found)) == (OutcomeKind.PREEMPTS, ["mine-0"])


@pytest.mark.parametrize(
    ("deserved", "kind"),
    [
        pytest.param(2, OutcomeKind.RECLAIMS, id="within"),
        pytest.param(1, OutcomeKind.PENDING, id="above"),
        pytest.param(None, OutcomeKind.RECLAIMS, id="unlimited"),
    ],
)
def test_the_reclaimer_stays_within_its_own_deserved(deserved: int | None, kind: OutcomeKind) -> None:
    other = running("other", "n", gpus=2, queue="next")
    assert outcome(gang("new", gpus=2), node("n", 2), queue("team", deserved=deserved), NEXT, other).kind is kind


@pytest.mark.parametrize(
    ("deserved", "kind"), [(3, OutcomeKind.RECLAIMS), (4, OutcomeKind.PENDING), (None, OutcomeKind.PENDING)]
)
def test_the_victims_queue_is_over_its_deserved_before_and_may_fall_below(
    deserved: int | None, kind: OutcomeKind
) -> None:
    only = running("only", "n", gpus=4, queue="next")
    assert outcome(gang("new"), node("n", 4), TEAM, queue("next", deserved=deserved), only).kind is kind


def test_a_queue_deserves_no_more_than_its_limit() -> None:
    walled = queue("next", deserved=4, limit=1)
    work = (running("one", "n", queue="next"), running("two", "n", queue="next", start=1))
    assert victims(outcome(gang("new"), node("n", 2), TEAM, walled, *work)) == ["two-0"]


def test_the_queue_that_is_served_last_gives_first() -> None:
    queues = (queue("a", deserved=1, rank=110), queue("b", deserved=1), queue("c", deserved=1, created=1))
    work = [
        running(f"{name}{index}", "n", queue=name, priority=priority, start=index)
        for name, priority in (("a", "very-low"), ("b", "low"), ("c", "high"))
        for index in range(2)
    ]
    spared = [replace(each, preemptible=True) for each in work]
    assert victims(outcome(gang("new"), node("n", 6), TEAM, *queues, *spared)) == ["c1-0"]
    assert victims(outcome(gang("new", gpus=3), node("n", 6), TEAM, *queues, *spared)) == ["c1-0", "b1-0", "a1-0"]


def test_pods_above_the_minimum_of_a_gang_go_though_their_queue_is_within_its_deserved() -> None:
    kind = queue("next", deserved=2)
    elastic = gang("elastic", pods=2, min_member=1, nodes=("n", "n"), queue="next")
    found = outcome(gang("new"), node("n", 2), TEAM, kind, elastic)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["elastic-0"])
    system = replace(elastic, namespace="kube-system")
    assert outcome(gang("new"), node("n", 2), TEAM, kind, system).kind is OutcomeKind.PENDING


def test_where_a_gang_has_pods_to_spare_nobody_else_is_looked_at() -> None:
    elastic = gang("elastic", pods=2, min_member=1, nodes=("n", "n"), queue="next")
    large = running("large", "n", gpus=4, queue="next")
    assert outcome(gang("new", gpus=3), node("n", 6), TEAM, NEXT, elastic, large).kind is OutcomeKind.PENDING
    fixed = replace(elastic, min_member=2)
    assert outcome(gang("new", gpus=3), node("n", 6), TEAM, NEXT, fixed, large).kind is OutcomeKind.RECLAIMS


def test_a_second_pod_gets_the_room_its_own_victim_left_only_beside_another_that_could_go() -> None:
    large = running("large", "n", gpus=2, queue="next")
    alone = outcome(gang("new", pods=2), node("n", 2), TEAM, NEXT, large)
    assert (alone.kind, victims(alone)) == (OutcomeKind.PENDING, [])
    small = running("small", "n", queue="next", priority="high", preemptible=True)
    beside = outcome(gang("new", pods=2), node("n", 3), TEAM, NEXT, large, small)
    assert (beside.kind, victims(beside)) == (OutcomeKind.RECLAIMS, ["large-0"])


def test_a_gang_keeps_free_room_and_reclaims_for_the_rest() -> None:
    other = running("other", "a", queue="next")
    nodes = (node("a", 1), node("b", 1, order=1))
    found = outcome(gang("new", pods=2), *nodes, TEAM, NEXT, other)
    assert (victims(found), found.placements) == (["other-0"], {"new-0": "b", "new-1": "a"})


def test_nodes_are_looked_at_in_their_plain_order() -> None:
    work = (running("first", "a", gpus=4, queue="next"), running("second", "b", queue="next", start=1))
    assert victims(outcome(gang("new"), node("a", 4), node("b", 1, order=1), TEAM, NEXT, *work)) == ["first-0"]
    assert victims(outcome(gang("new"), node("a", 4, order=1), node("b", 1), TEAM, NEXT, *work)) == ["second-0"]


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ((2, 2), OutcomeKind.RECLAIMS),
        ((3, 1), OutcomeKind.RECLAIMS),
        ((3, 2), OutcomeKind.PENDING),
        ((3, 3), OutcomeKind.PENDING),
    ],
)
@pytest.mark.parametrize("free", [0, 1])
def test_a_gang_reclaims_only_if_its_minimum_is_within_its_queues_deserved(
    sizes: tuple[int, int], kind: OutcomeKind, free: int
) -> None:
    work = [running(f"other{index}", "n", gpus=3, queue="next", start=index) for index in range(2)]
    pods = gang("new", pods=2, min_member=2)
    unequal = replace(
        pods,
        pods=tuple(replace(pod, requests=Resources.of(gpu=gpus)) for pod, gpus in zip(pods.pods, sizes, strict=True)),
    )
    found = outcome(unequal, node("n", 6 + free), TEAM, NEXT, *work)
    assert (found.kind, bool(found.victims)) == (kind, kind is OutcomeKind.RECLAIMS)


def test_who_shares_no_dimension_with_the_reclaimer_is_left_alone() -> None:
    shelf = SnapshotNode("n", "default", Resources.of(gpu=1, cpu=1))
    processors = sized(running("cpu", "n", queue="next"), cpu=1)
    devices = sized(running("gpu", "n", queue="next"), gpu=1)
    assert victims(outcome(gang("new"), shelf, TEAM, NEXT, processors, devices)) == ["gpu-0"]


def test_cpu_counts_where_a_queue_deserves_some() -> None:
    shelf = SnapshotNode("n", "default", Resources.of(gpu=2, cpu=2))
    told_cpu = replace(NEXT, deserved=Limit.of(gpu=2, cpu=1))
    mine = replace(TEAM, deserved=Limit.of(gpu=2, cpu=2))
    pods = [sized(running(f"g{index}", "n", queue="next", start=index), gpu=1, cpu=1) for index in range(2)]
    assert victims(outcome(sized(gang("new"), gpu=1, cpu=1), shelf, mine, told_cpu, *pods)) == ["g1-0"]
    within = replace(NEXT, deserved=Limit.of(gpu=2, cpu=2))
    assert outcome(sized(gang("new"), gpu=1, cpu=1), shelf, mine, within, *pods).kind is OutcomeKind.PENDING


def test_work_without_gpus_reclaims_cpu() -> None:
    shelf = SnapshotNode("n", "default", Resources.of(cpu=1))
    mine = replace(TEAM, deserved=Limit.of(cpu=1))
    other = sized(running("other", "n", queue="next"), cpu=1)
    assert victims(outcome(sized(gang("new"), cpu=1), shelf, mine, NEXT, other)) == ["other-0"]


def test_a_node_with_free_gpus_is_reclaimed_for_its_cpu() -> None:
    shelf = SnapshotNode("n", "default", Resources.of(gpu=1, cpu=1))
    mine = replace(TEAM, deserved=Limit.of(gpu=1, cpu=1))
    other = sized(running("other", "n", queue="next"), cpu=1)
    assert victims(outcome(sized(gang("new"), gpu=1, cpu=1), shelf, mine, NEXT, other)) == ["other-0"]


def test_pods_on_unknown_nodes_are_not_reclaimed() -> None:
    work = (running("here", "n", queue="next"), running("elsewhere", "gone", queue="next", start=1))
    assert victims(outcome(gang("new"), node("n", 1), TEAM, NEXT, *work)) == ["here-0"]


def test_equal_groups_behind_a_refused_one_wait_too() -> None:
    waiting = [
        gang(name, gpus=2, pods=2, min_member=2, created=index) for index, name in enumerate(("first", "second"))
    ]
    work = [running(f"fixed-{each}", each, preemptible=False) for each in ("a", "b")]
    found = cycle(snapshot(node("a", 2), node("b", 2), TEAM, NEXT, *work, *waiting), flavour="volcano")
    assert [(type(each), each.group.name) for each in found] == [(Wait, "first"), (Wait, "second")]


def test_work_of_a_queue_that_is_not_there_is_left_alone() -> None:
    assert outcome(gang("new"), node("n", 1), TEAM, running("lost", "n", queue="lost")).kind is OutcomeKind.PENDING


def test_two_gangs_of_two_queues_do_not_take_the_same_room() -> None:
    other = running("other", "n", queue="next")
    third = queue("third", deserved=1, created=2)
    items = (node("n", 1), TEAM, NEXT, third, other, gang("a", priority="low"), gang("b", queue="third"))
    waits = [decision for decision in cycle(snapshot(*items), flavour="volcano") if isinstance(decision, Wait)]
    assert [(wait.group.name, wait.pend.reason) for wait in waits] == [("a", Reason.EVICTING), ("b", Reason.NO_ROOM)]


SHARED = (queue("a", deserved=4), queue("a1", parent="a", deserved=4), queue("a2", parent="a", created=1))
OTHERS = (queue("b", deserved=0), queue("b1", parent="b", created=2))


def test_work_of_the_same_department_goes_first() -> None:
    near = running("near", "n", queue="a2", priority="high", preemptible=True)
    work = (near, running("far", "n", queue="b1", priority="very-low"))
    found = outcome(gang("new", queue="a1"), node("n", 2), *SHARED, *OTHERS, *work)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["near-0"])


def test_projects_of_two_departments_are_served_as_these_stand() -> None:
    """The project that deserves nothing comes first, since its department has the smaller part of its own in use."""
    queues = (
        *(queue("a", deserved=4), queue("a1", parent="a", deserved=2), queue("a2", parent="a", deserved=2)),
        *(queue("b", deserved=4), queue("b1", parent="b", created=1)),
    )
    waiting = (gang("one", queue="a1"), gang("two", queue="b1"))
    busy = running("busy", "full", gpus=2, queue="a2")
    found = cycle(snapshot(node("full", 2), node("n", 1), *queues, busy, *waiting), flavour="volcano")
    assert [each.group.name for each in found if isinstance(each, Start)] == ["two"]


def test_somebody_may_go_for_what_then_waits_at_its_departments_limit() -> None:
    """Seen on Volcano 1.15.1: reclaim does not look at what the department has given out already."""
    walled = (queue("a", deserved=3, limit=3), *SHARED[1:])
    work = (running("own", "m", gpus=3, queue="a2", preemptible=False), running("far", "n", queue="b1"))
    found = outcome(gang("new", queue="a1"), node("m", 3), node("n", 1), *walled, *OTHERS, *work)
    assert found.kind is OutcomeKind.RECLAIMS
    assert found.pend is not None
    assert (found.pend.reason, found.pend.queue) == (Reason.OVER_LIMIT, "a")


def test_a_queue_that_was_brought_to_its_deserved_gives_no_more_in_the_cycle() -> None:
    work = (running("one", "n", queue="next"), running("two", "n", queue="next", start=1))
    waiting = (gang("first"), gang("second", queue="third"))
    queues = (TEAM, queue("next", deserved=1, created=1), queue("third", deserved=1, created=2))
    decisions = cycle(snapshot(node("n", 2), *queues, *work, *waiting), flavour="volcano")
    evictions = [each for each in decisions if isinstance(each, Evict)]
    assert [(each.for_group, each.pods) for each in evictions] == [("first", ("two-0",))]


def test_work_that_came_since_the_last_cycle_is_reclaimed_where_it_runs() -> None:
    nodes, old = (node("n", 2), node("m", 2, order=1)), running("old", "n", gpus=2, queue="next")
    wall = running("wall", "m", gpus=2, queue="next", start=1)
    cluster = snapshot(*nodes, TEAM, NEXT, old, replace(wall, preemptible=False), gang("new", gpus=2))
    evictions = [each for each in cycle(cluster, flavour="volcano") if isinstance(each, Evict)]
    assert [each.pods for each in evictions] == [("old-0",)]
    others = (replace(old, preemptible=False), wall)
    later = successor(cluster, ["old", "wall"], others, now=1)
    evictions = [each for each in cycle(later, flavour="volcano") if isinstance(each, Evict)]
    assert [each.pods for each in evictions] == [("wall-0",)]
