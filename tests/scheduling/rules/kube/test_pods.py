"""Plain kube-scheduler: pod by pod, any namespace, no queues, no gangs, nothing protected."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Decision, Evict, Outcome, OutcomeKind, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode, Strategy
from scheduling.rules.kube.preemption import EvictionCosts
from scheduling.state.cluster_state import SchedulingState
from tests.builders import gang, node, queue, running, snapshot


def decide(*items: SnapshotNode | Queue | PodGroup) -> list[Decision]:
    return cycle(snapshot(*items), flavour="kube")


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kube")


def victims(found: Outcome) -> list[str]:
    return sorted(evict.victim.name for evict in found.victims)


def reason(found: Outcome) -> Reason | None:
    return found.pend.reason if found.pend else None


def test_it_takes_lower_priorities_of_any_namespace_whatever_their_preemptibility() -> None:
    other = running("other", "n", gpus=8, priority="low", preemptible=False, namespace="elsewhere")
    found = outcome(gang("new", priority="high"), node("n"), other)
    assert (found.kind, victims(found), reason(found)) == (OutcomeKind.PREEMPTS, ["other"], Reason.EVICTING)
    assert found.victims[0].cause is Cause.PREEMPT
    assert found.victims[0].nodes == {"other-0": "n"}
    assert found.placements == {"new-0": "n"}


@pytest.mark.parametrize("priority", ["high", "very-high"])
def test_equal_or_higher_priority_is_never_taken(priority: str) -> None:
    found = outcome(gang("new", priority="high"), node("n"), running("other", "n", gpus=8, priority=priority))
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_nothing_is_taken_where_it_fits() -> None:
    found = outcome(gang("new", gpus=4, priority="high"), node("n"), running("low", "n", gpus=4, priority="low"))
    assert (found.kind, found.victims, found.pend) == (OutcomeKind.PLACED, (), None)


def test_victims_are_given_back_by_priority_then_by_age() -> None:
    found = outcome(
        gang("new", gpus=2, priority="high"),
        node("n", 4),
        running("strong", "n", priority="medium", start=9),
        running("old", "n", priority="low", start=1),
        running("young", "n", priority="low", start=5),
        running("weak", "n", priority="very-low", start=0),
    )
    assert victims(found) == ["weak", "young"]


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        pytest.param([("a", "low", 1, 0)], [("b", "medium", 1, 0)], ["a"], id="lowest highest-priority victim first"),
        pytest.param([("a", "low", 1, 0), ("b", "low", 1, 0)], [("c", "low", 2, 0)], ["c"], id="then fewer victims"),
        pytest.param([("a", "low", 2, 3)], [("b", "low", 2, 7)], ["b"], id="then the later start"),
        pytest.param([("a", "low", 2, 3)], [("b", "low", 2, 3)], ["a"], id="then the first node"),
    ],
)
def test_the_node_is_chosen_by_what_it_costs(
    first: list[tuple[str, str, int, int]], second: list[tuple[str, str, int, int]], taken: list[str]
) -> None:
    work = [
        running(name, on, gpus=gpus, priority=priority, start=start)
        for on, rows in (("n0", first), ("n1", second))
        for name, priority, gpus, start in rows
    ]
    sizes = [sum(row[2] for row in rows) for rows in (first, second)]
    nodes = [node(f"n{index}", size, order=index) for index, size in enumerate(sizes)]
    found = outcome(gang("new", gpus=min(sizes), priority="high"), *nodes, *work)
    assert victims(found) == taken


def test_never_evicts_nobody_and_says_that_it_could_have() -> None:
    never = gang("new", priority="high", never=True)
    assert reason(outcome(never, node("n", 1), running("low", "n", priority="low"))) is Reason.PREEMPTION_NEVER
    assert reason(outcome(never, node("n", 1), running("top", "n", priority=1000))) is Reason.NO_ROOM


def test_its_own_pods_may_be_taken_all_the_same() -> None:
    meek = gang("meek", priority="low", nodes=("n",), never=True)
    assert victims(outcome(gang("new", priority="high"), node("n", 1), meek)) == ["meek"]


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        pytest.param(gang("new", gpus=16), Reason.NEVER_FITS, id="larger than any node"),
        pytest.param(gang("new", pool="h100"), Reason.NO_SUCH_POOL, id="no such pool"),
        pytest.param(gang("new", node_selector={"kind": "x"}), Reason.NEVER_FITS, id="no node with that label"),
    ],
)
def test_what_can_never_run_says_so(candidate: PodGroup, expected: Reason) -> None:
    assert reason(outcome(candidate, node("n"))) is expected


def test_a_node_that_is_down_may_come_back() -> None:
    down = SnapshotNode("n", "default", node("n").capacity, ready=False)
    assert reason(outcome(gang("new"), down)) is Reason.NO_ROOM


def test_a_queue_in_the_snapshot_is_a_resource_quota() -> None:
    full = running("mine", "n", gpus=2, priority="low")
    quota = queue("team", deserved=1, limit=2)
    found = outcome(gang("new", priority="high"), node("n"), quota, full)
    assert (found.kind, reason(found), found.victims) == (OutcomeKind.PENDING, Reason.OVER_LIMIT, ())
    guaranteed = outcome(gang("new", gpus=2, priority="high"), node("n"), queue("team", deserved=1))
    assert reason(guaranteed) is Reason.NON_PREEMPTIBLE_OVER_QUOTA


def test_pods_of_one_group_start_one_by_one() -> None:
    group = gang("job", gpus=4, pods=3)
    start, wait = decide(node("n", 8), queue("team", deserved=4), group)
    assert isinstance(start, Start)
    assert isinstance(wait, Wait)
    assert start.placements == {"job-0": "n", "job-1": "n"}
    assert start.over_quota
    assert wait.pend.reason is Reason.NO_ROOM


def test_higher_priority_goes_first_then_the_older() -> None:
    waiting = [gang("young", created=9), gang("old", created=1), gang("strong", priority="high", created=20)]
    started = [d.group.name for d in decide(node("n", 2), *waiting) if isinstance(d, Start)]
    assert started == ["strong", "old"]


def test_what_waits_for_its_victims_is_counted_without_what_starts() -> None:
    work = (running("low", "b", priority="low"), gang("new", pods=2, priority="high"))
    start, _evict, wait = decide(node("a", 1), node("b", 1), *work)
    assert isinstance(start, Start)
    assert isinstance(wait, Wait)
    assert (start.placements, wait.nominated) == ({"new-0": "a"}, {"new-1": "b"})
    assert wait.pend.numbers()["needed"] == "1 GPU"


def test_room_on_its_way_is_waited_for_and_nobody_else_is_taken() -> None:
    ending = gang("ending", gpus=1, priority="low", nodes=("n",), terminating=True)
    other = running("other", "n", priority="low")
    (wait,) = decide(node("n", 2), ending, other, gang("new", priority="high"))
    assert isinstance(wait, Wait)
    assert (wait.pend.reason, wait.nominated) == (Reason.EVICTING, {"new-0": "n"})


def test_what_one_evicts_another_does_not_get() -> None:
    decisions = decide(
        node("n", 4),
        running("low", "n", gpus=4, priority="low"),
        gang("first", gpus=3, priority="very-high"),
        gang("second", gpus=2, priority="high"),
    )
    evicted = [(d.victim.name, d.for_group) for d in decisions if isinstance(d, Evict)]
    waiting = {d.group.name: d.pend.reason for d in decisions if isinstance(d, Wait)}
    assert evicted == [("low", "first")]
    assert waiting == {"first": Reason.EVICTING, "second": Reason.NO_ROOM}


def test_one_decision_per_victim_group() -> None:
    low = gang("low", pods=2, priority="low", nodes=("n", "n"))
    (evict,) = outcome(gang("new", gpus=2, priority="high"), node("n", 2), low).victims
    assert evict.pods == ("low-0", "low-1")


def test_two_equal_workloads_take_two_victims() -> None:
    work = [running("cheap", "a", priority="very-low"), running("dear", "b", priority="low")]
    decisions = decide(node("a", 1), node("b", 1), *work, gang("one", priority="high"), gang("two", priority="high"))
    evicted = {(d.victim.name, d.for_group) for d in decisions if isinstance(d, Evict)}
    assert evicted == {("cheap", "one"), ("dear", "two")}


def test_pods_that_exist_count_against_a_quota_while_they_wait_and_until_they_are_gone() -> None:
    team = queue("team", limit=4)
    waits = replace(gang("waits", gpus=8, priority="high"), made=True)
    small = gang("mine", gpus=1)
    over = preview(snapshot(node("n", 4), team, waits), small, flavour="kube")
    assert (over.kind, over.pend and over.pend.reason, over.pend and over.pend.used.gpu) == (
        OutcomeKind.PENDING,
        Reason.OVER_LIMIT,
        8000,
    )
    leaving = replace(gang("leaves", gpus=4, nodes=("n",), terminating=True), made=True)
    assert preview(snapshot(node("n", 8), team, leaving), small, flavour="kube").kind is OutcomeKind.PENDING


def test_a_pod_that_exists_has_passed_its_quota_and_starts_whatever_it_says_now() -> None:
    made = replace(gang("made", gpus=8), made=True)
    found = cycle(snapshot(node("n", 8), queue("team", limit=4), made), flavour="kube")
    assert [type(each) for each in found] == [Start]


def test_a_victim_that_exists_gives_its_quota_back_only_when_it_is_gone() -> None:
    weak = replace(running("weak", "n", gpus=4, priority="low"), made=True)
    found = preview(
        snapshot(node("n", 4), queue("team", limit=8), weak),
        gang("mine", gpus=4, pods=2, priority="medium"),
        flavour="kube",
    )
    assert (found.kind, found.coming, found.waiting, found.pend and found.pend.reason) == (
        OutcomeKind.PREEMPTS,
        1,
        1,
        Reason.OVER_LIMIT,
    )


def test_a_node_with_room_needs_no_eviction() -> None:
    state = SchedulingState(snapshot(node("n", 2), running("weak", "n", priority="very-low")), default=Strategy.SPREAD)
    capacities = state.capacities.matching(gang("new"))
    costs = EvictionCosts(state, capacities, Resources.of(gpu=1), priority=80)
    assert costs.entry(capacities[0]) is None
