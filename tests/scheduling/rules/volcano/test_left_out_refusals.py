"""Volcano: a cycle that is asked for changes decides as one that tells every refusal."""

from dataclasses import replace

from hypothesis import given, settings

from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Decision, Evict, Start, Until, Wait
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import Snapshot
from scheduling.state.workspace import successor
from tests.builders import gang, node, queue, running, snapshot
from tests.scheduling.test_invariants import after, clusters

TEAM = queue("team", deserved=8)


def changes(cluster: Snapshot) -> list[Decision]:
    return cycle(cluster, flavour="volcano", about=(), until=Until.CHANGES)


def acts(decisions: list[Decision]) -> list[object]:
    """Starts, evictions and nominations."""
    waits = [(each.group.name, each.nominated) for each in decisions if isinstance(each, Wait) and each.nominated]
    return [*(each for each in decisions if not isinstance(each, Wait)), *waits]


def reasons(decisions: list[Decision]) -> list[tuple[str, Reason]]:
    return [(each.group.name, each.pend.reason) for each in decisions if isinstance(each, Wait)]


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_it_decides_as_a_cycle_that_tells_all_refusals(cluster: Snapshot) -> None:
    for now in range(4):
        decisions = cycle(cluster, flavour="volcano", about=())
        assert acts(changes(cluster)) == acts(decisions)
        cluster = after(cluster, decisions, now)


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_a_state_of_earlier_cycles_decides_as_a_new_one(cluster: Snapshot) -> None:
    for now in range(5):
        decisions = changes(cluster)
        assert decisions == changes(replace(cluster, groups=cluster.groups))
        later = after(cluster, decisions, now).group_by_name
        changed = [later[group.name] for group in cluster.groups if later[group.name] != group]
        cluster = successor(cluster, (), changed, now=now)


def test_a_refusal_that_others_may_end_is_left_out_and_one_for_ever_is_not() -> None:
    waiting = (gang("waits", gpus=2), gang("huge", gpus=9), gang("stray", queue="none"))
    cluster = snapshot(node("n", 8), TEAM, running("old", "n", gpus=7), *waiting)
    assert reasons(changes(cluster)) == [("huge", Reason.NEVER_FITS), ("stray", Reason.QUEUE_MISSING)]
    assert [name for name, _reason in reasons(cycle(cluster, flavour="volcano"))] == ["waits", "huge", "stray"]


def test_what_was_passed_over_starts_once_there_is_room_for_it() -> None:
    cluster = snapshot(node("n", 8), TEAM, running("old", "n", gpus=7), gang("waits", gpus=2))
    assert changes(cluster) == []
    (start,) = changes(successor(cluster, ["old"], (), now=1))
    assert isinstance(start, Start)


def test_a_gang_is_passed_over_until_there_is_room_for_its_minimum() -> None:
    cluster = snapshot(node("n", 8), TEAM, running("old", "n", gpus=7), gang("waits", gpus=1, pods=2))
    assert changes(cluster) == []
    (start,) = changes(successor(cluster, ["old"], (), now=1))
    assert isinstance(start, Start)
    assert len(start.pods) == 2


def test_a_running_group_gets_one_more_pod_where_its_minimum_would_find_no_room() -> None:
    more = gang("grows", pods=4, min_member=2, nodes=("n", "n"))
    cluster = snapshot(node("n", 3), TEAM, more)
    (start,) = changes(cluster)
    assert isinstance(start, Start)
    assert len(start.pods) == 1


def test_who_finds_no_room_still_evicts_weaker_work_of_its_queue() -> None:
    cluster = snapshot(node("n", 8), TEAM, running("old", "n", gpus=8, priority="low"), gang("waits", gpus=2))
    assert isinstance(changes(cluster)[0], Evict)


def test_a_changed_group_of_the_same_name_is_looked_at_again() -> None:
    cluster = snapshot(node("n", 8), TEAM, running("old", "n", gpus=8), gang("waits", gpus=2))
    assert changes(cluster) == []
    larger = cluster.changed(["waits"], [gang("waits", gpus=9)], now=None)
    assert reasons(changes(larger)) == [("waits", Reason.NEVER_FITS)]


def test_work_of_a_department_and_of_its_projects_take_turns() -> None:
    """The project uses none of its deserved quota, the department a part: the project comes first."""
    queues = (queue("d", deserved=4), queue("p", "d", deserved=4, created=1), queue("e", deserved=4, created=2))
    old = (running("one", "n", queue="d"), running("two", "n", queue="e"))
    late = [gang(f"late-{name}", gpus=2, queue=name) for name in ("d", "p", "e")]
    cluster = snapshot(node("n", 4), *queues, *old, *late)
    starts = [each.group.name for each in changes(cluster) if isinstance(each, Start)]
    assert starts == ["late-p"]


def test_a_gang_is_passed_over_until_preemption_would_free_enough_for_all_its_pods() -> None:
    weak = running("weak", "n", gpus=4, priority="low")
    strong = running("strong", "n", gpus=4, priority="medium")
    cluster = snapshot(node("n", 8), TEAM, weak, strong, gang("waits", gpus=4, pods=2, priority="medium"))
    assert changes(cluster) == []
    weaker = running("weaker", "n", gpus=4, priority="low")
    evicted = changes(successor(cluster, ["strong"], [weaker], now=1))
    assert {each.victim.name for each in evicted if isinstance(each, Evict)} == {"weak", "weaker"}


def test_weaker_work_is_preempted_once_enough_is_free_beside_it() -> None:
    weak, strong = running("weak", "n", gpus=4, priority="low"), running("strong", "n", gpus=4)
    cluster = snapshot(node("n", 8), TEAM, weak, strong, gang("waits", gpus=8))
    assert changes(cluster) == []
    assert isinstance(changes(successor(cluster, ["strong"], (), now=1))[0], Evict)


def test_what_has_become_weaker_work_is_preempted_in_a_later_cycle() -> None:
    old = running("old", "n", gpus=8, priority="medium")
    cluster = snapshot(node("n", 8), TEAM, old, gang("waits", gpus=2, priority="medium"))
    assert changes(cluster) == []
    assert isinstance(changes(successor(cluster, [], [replace(old, priority=1)], now=1))[0], Evict)


def test_a_forecast_between_two_cycles_does_not_change_the_order_of_what_waits() -> None:
    first, second = gang("first"), gang("second")
    cluster = snapshot(node("n", 2), TEAM, running("old", "n", gpus=2), first, second)
    assert changes(cluster) == []
    assert changes(cluster.changed(["first"], [replace(first, created=9)], now=None)) == []
    starts = changes(successor(cluster, ["old"], (), now=1))
    assert [each.group.name for each in starts if isinstance(each, Start)] == ["first", "second"]
