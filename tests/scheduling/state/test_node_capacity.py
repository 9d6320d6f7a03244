"""Where pods go: bin-pack or spread, only matching nodes of the pool, gangs whole or not at all."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.model.resources import ZERO, Resources, sum_of
from scheduling.model.snapshot import PodGroup, Snapshot, SnapshotNode, Strategy
from scheduling.state import node_capacity
from scheduling.state.assignments import PlacedPods
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import MOST_LOGGED, by_size, slots, wants_part
from tests.builders import gang, node, running, snapshot
from tests.scheduling.test_invariants import modest

CROWDED = (node("empty", 8, order=0), node("half", 8, order=1), node("full", 8, order=2))
WORK = (running("a", "half", gpus=4), running("b", "full", gpus=7))


def state(*items: SnapshotNode | PodGroup, default: Strategy = Strategy.BINPACK) -> SchedulingState:
    return SchedulingState(snapshot(*items), default=default)


def chosen(on: SchedulingState, group: PodGroup) -> list[str] | None:
    placed = on.place_all(group, group.waiting)
    return None if placed is None else list(placed.nodes.values())


@pytest.mark.parametrize(
    ("strategy", "gpus", "expected"),
    [
        pytest.param(Strategy.BINPACK, 1, "full", id="the fullest that fits"),
        pytest.param(Strategy.BINPACK, 2, "half", id="not the one where it does not fit"),
        pytest.param(Strategy.SPREAD, 1, "empty", id="the emptiest"),
    ],
)
def test_strategy(strategy: Strategy, gpus: int, expected: str) -> None:
    group = gang("new", gpus=gpus)
    assert chosen(state(*CROWDED, *WORK, group, default=strategy), group) == [expected]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_equal_nodes_are_taken_in_their_order(strategy: Strategy) -> None:
    group = gang("new")
    nodes = (node("late", order=2), node("early", order=1))
    assert chosen(state(*nodes, group, default=strategy), group) == ["early"]


def test_work_without_gpus_is_packed_by_cpu() -> None:
    nodes = (node("roomy", 0), node("busy", 8))
    busy = running("a", "busy")
    cpu_only = gang("web", gpus=0)
    pod = cpu_only.pods[0]
    group = PodGroup("web", "team", "team", 1, True, (type(pod)("p", Resources.of(cpu=2)),))
    eater = PodGroup("eater", "team", "team", 1, True, (type(pod)("p", Resources.of(cpu=500), "busy"),))
    assert chosen(state(*nodes, busy, eater, group), group) == ["busy"]


def test_a_pools_own_strategy_wins() -> None:
    group = gang("new")
    found = Snapshot(CROWDED, (), (*WORK, group), {"default": Strategy.SPREAD})
    assert chosen(SchedulingState(found, default=Strategy.BINPACK), group) == ["empty"]


def test_only_nodes_of_the_pool_with_the_selected_labels_count() -> None:
    nodes = (
        node("other-pool", pool="h100", kind="a"),
        node("unlabelled"),
        node("wrong", kind="b"),
        node("right", kind="a"),
        SnapshotNode("down", "default", Resources.of(gpu=8), {"kind": "a"}, ready=False),
    )
    group = gang("new", gpus=8, pods=2, min_member=1, node_selector={"kind": "a"})
    on = state(*nodes, group)
    assert chosen(on, group) is None
    assert on.place_all(group, group.waiting[:1]) == PlacedPods({"new-0": "right"}, now=True)


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    group = gang("gang", gpus=4, pods=3)
    on = state(node("a", 8), node("b", 4), group)
    small = state(node("a", 8), group)
    assert chosen(on, group) == ["b", "a", "a"]
    assert chosen(small, group) is None
    assert small.capacities.free(group) == (Resources.of(gpu=8, cpu=1000, memory="16Ti"),) * 2


def test_a_gang_waits_whole_for_room_on_its_way() -> None:
    group = gang("gang", gpus=4, pods=2)
    ending = gang("ending", gpus=8, nodes=("a",), terminating=True)
    on = state(node("a", 8), node("b", 4), ending, group)
    assert on.place_all(group, group.waiting) == PlacedPods({"gang-0": "b", "gang-1": "a"}, now=False)
    idle = on.capacities.get("b")
    assert idle is not None
    assert idle.idle.gpu == 4000
    assert idle.future.gpu == 0


def test_everything_can_be_undone() -> None:
    group = gang("gang", gpus=2, pods=2)
    victim = running("a", "n", gpus=4)
    on = state(node("n", 8), victim, group)
    before = (on.capacities.free(group), dict(on.active))
    mark = on.mark()
    (assignment,) = on.assignments_of["a"]
    on.evict(assignment)
    on.place_all(group, group.waiting)
    on.keep(assignment)
    on.undo(mark)
    assert (on.capacities.free(group), dict(on.active)) == before
    assert not assignment.leaving


def added_up(on: SchedulingState, group: PodGroup) -> tuple[Resources, Resources]:
    """What is free for the group, from all its nodes."""
    part = wants_part(group)
    found = [capacity.free(part=part).floor() for capacity in on.capacities.matching(group)]
    return sum_of(found), max(found, key=by_size, default=ZERO)


@modest
@given(st.builds(Random, st.integers(0, 2**32)))
def test_free_amounts_follow_every_change(chance: Random) -> None:
    """Pods come and go, are placed, evicted and put back; the oldest changes are forgotten now and then."""
    on = state(*(node(f"n{number}", 4, kind=chance.choice("ab")) for number in range(5)))
    news = [gang("any", gpus=1), gang("a", gpus=2, node_selector={"kind": "a"}), gang("part", gpus="0.5")]
    on.advance((), news)
    for step in range(12):
        come = running(f"r{step}", f"n{chance.randrange(5)}", gpus=chance.choice(["0.5", 1, 3]))
        match chance.randrange(5):
            case 0:
                on.restore()
                on.advance((), [come])
            case 1:
                on.exchange((), [come])
            case 2:
                on.place_all(group := chance.choice(news), group.waiting)
            case 3 if leaves := [
                each for on_node in on.assignments_on.values() for each in on_node if not each.leaving
            ]:
                on.evict(chance.choice(leaves))
            case _:
                on.undo(chance.randrange(on.mark() + 1))
        group = chance.choice(news)
        assert on.capacities.free(group) == added_up(on, group)


def test_free_amounts_are_right_after_more_changes_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_capacity, "MOST_LOGGED", 0)
    group = gang("new")
    on = state(node("n", 8), group)
    assert on.capacities.free(group)[0].gpu == 8000
    on.advance((), [running("a", "n", gpus=3)])
    assert on.capacities.free(group)[0].gpu == 5000


def test_pods_on_unknown_nodes_take_no_room() -> None:
    on = state(node("n", 8), running("lost", "gone"))
    (assignment,) = on.assignments_of["lost"]
    on.evict(assignment)
    assert on.capacities.get(None) is None
    assert on.capacities.free(gang("any"))[0].gpu == 8000


@pytest.mark.parametrize(
    ("free", "requested", "times"),
    [
        pytest.param(Resources(8, 4, 0), Resources(2, 2, 0), 2, id="the scarcest dimension counts"),
        pytest.param(Resources(-1, 4, 0), Resources(1, 1, 0), 0, id="never negative"),
        pytest.param(Resources(1, 1, 1), ZERO, 1, id="nothing fits once"),
    ],
)
def test_how_often_a_request_fits(free: Resources, requested: Resources, times: int) -> None:
    assert slots(free, requested) == times


def wishing(name: str, placement: Strategy, *, pods: int = 3, kin: str = "") -> PodGroup:
    """Pods of 2 GPUs that want to be near each other, or far."""
    return replace(gang(name, gpus=2, pods=pods), placement=placement, kin=kin)


EQUAL = (node("a", 4, order=0), node("b", 4, order=1), node("c", 4, order=2))


@pytest.mark.parametrize(
    ("wish", "pool", "expected"),
    [
        pytest.param(Strategy.BINPACK, Strategy.SPREAD, ["a", "a", "b"], id="together in a pool that spreads"),
        pytest.param(Strategy.SPREAD, Strategy.BINPACK, ["a", "b", "c"], id="apart in a pool that packs"),
    ],
)
def test_its_own_wish_comes_before_the_pools_strategy(wish: Strategy, pool: Strategy, expected: list[str]) -> None:
    group = wishing("new", wish)
    assert chosen(state(*EQUAL, group, default=pool), group) == expected


def test_pods_of_its_kin_count_and_those_of_others_do_not() -> None:
    first = replace(running("first", "b", gpus=2), placement=Strategy.BINPACK, kin="mine")
    other = replace(running("other", "c", gpus=2), placement=Strategy.BINPACK, kin="theirs")
    group = wishing("second", Strategy.BINPACK, pods=1, kin="mine")
    assert chosen(state(*EQUAL, first, other, group, default=Strategy.SPREAD), group) == ["b"]


def test_a_wish_keeps_nobody_from_starting() -> None:
    group = wishing("new", Strategy.SPREAD, pods=6)
    assert sorted(chosen(state(*EQUAL, group), group) or []) == ["a", "a", "b", "b", "c", "c"]


def test_an_attempt_that_is_taken_back_leaves_nobody_behind() -> None:
    group = wishing("new", Strategy.BINPACK, pods=2)
    on = state(*EQUAL, group, default=Strategy.SPREAD)
    mark = on.mark()
    on.place(group, group.pods[0], on.capacities.matching(group)[2], now=True)
    on.undo(mark)
    assert chosen(on, group) == ["a", "a"]


def test_nodes_that_changed_are_known_until_there_were_too_many_changes() -> None:
    on = state(*CROWDED)
    capacities, begin = on.capacities, on.capacities.point
    half = capacities.all[1]
    capacities.change(half, pods=1)
    assert capacities.changed_since(begin) == {half.index}
    assert capacities.changed_since(capacities.point) == set()
    for _ in range(MOST_LOGGED):
        capacities.change(half, pods=1)
    capacities.settle()
    assert capacities.changed_since(begin) is None
    assert capacities.changed_since(capacities.point) == set()


def test_what_is_free_is_known_after_too_many_changes_to_name_the_nodes() -> None:
    requested = gang("asked")
    on = state(*CROWDED, *WORK, requested)
    capacities = on.capacities
    assert [amount.gpu for amount in capacities.free(requested)] == [13_000, 8_000]
    change = Resources(gpu=-6_000)
    capacities.change(capacities.all[0], idle=change, future=change)
    for _ in range(MOST_LOGGED):
        capacities.change(capacities.all[1], pods=1)
    capacities.settle()
    assert [amount.gpu for amount in capacities.free(requested)] == [7_000, 4_000]
