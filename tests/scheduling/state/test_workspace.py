"""A state that is used again and again says what one that was made just now says."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.forecast.cycle import FLAVOURS, cycle, preview
from scheduling.model.resources import Limit
from scheduling.model.snapshot import PodGroup, Snapshot, Strategy
from scheduling.rules.kai.victims import LAST_VICTIMS_FIRST, WEAKEST_FIRST
from scheduling.rules.kube.gangs import BY_IMPORTANCE
from scheduling.rules.kube.preemption import kube_state
from scheduling.state.cluster_state import SchedulingState, packed_state
from scheduling.state.workspace import (
    MOST_CACHED,
    NODES,
    OutOfTime,
    SavedSnapshot,
    check_time,
    interrupted_when,
    requeued,
    successor,
    workspace,
)
from tests.builders import gang, node, queue, running, snapshot
from tests.scheduling.test_invariants import after, clusters, life, modest, newcomers

flavours = st.sampled_from(list(FLAVOURS))


def settled(cluster: Snapshot, flavour: str) -> Snapshot:
    """After a while, with things that run, that wait and that end; no state was made of it yet."""
    *_earlier, (before, decisions, _following) = life(cluster, flavour)
    return replace(after(before, decisions, 6))


@modest
@given(clusters(), st.lists(newcomers, min_size=2, max_size=4), flavours)
def test_questions_leave_no_trace_in_later_answers(cluster: Snapshot, requested: list[PodGroup], flavour: str) -> None:
    asked_often = settled(cluster, flavour)
    for each in (*requested, *requested):
        assert preview(asked_often, each, flavour=flavour) == preview(replace(asked_often), each, flavour=flavour)


@modest
@given(clusters(), newcomers, st.sampled_from(["kube", "kube-gangs", "kai", "volcano"]), st.data())
def test_a_question_under_other_quotas_is_answered_as_in_a_new_state_and_leaves_no_trace(
    cluster: Snapshot, requested: PodGroup, flavour: str, data: st.DataObject
) -> None:
    there = settled(cluster, flavour)
    before = preview(there, requested, flavour=flavour)
    bounds = st.sampled_from([None, 1, 2, 4, 8, 16])
    for _change in range(4):
        changed = tuple(
            replace(each, deserved=Limit.of(gpu=data.draw(bounds)), limit=Limit.of(gpu=data.draw(bounds)))
            for each in there.queues
        )
        in_new_state = preview(replace(there, queues=changed), requested, flavour=flavour)
        assert preview(requeued(there, changed), requested, flavour=flavour) == in_new_state
    assert preview(there, requested, flavour=flavour) == before


@modest
@given(clusters(), newcomers, flavours, st.integers(0, 40))
def test_a_question_that_ran_out_of_time_leaves_no_trace(
    cluster: Snapshot, requested: PodGroup, flavour: str, steps: int
) -> None:
    interrupted, left = settled(cluster, flavour), iter(range(steps))
    with suppress(OutOfTime), interrupted_when(lambda: next(left, None) is None):
        preview(interrupted, requested, flavour=flavour)
    assert preview(interrupted, requested, flavour=flavour) == preview(replace(interrupted), requested, flavour=flavour)


def test_a_saved_snapshot_gets_its_states_back_and_none_that_were_made_since() -> None:
    there = snapshot(node("a", 8), node("b", 8, pool="other"), node("c", 8, pool="third"), queue("team"))
    first = there.with_groups([running("old", "a", gpus=8), running("far", "b", gpus=4, pool="other")])
    first = successor(first, (), (), now=0)
    for pool in ("default", "other"):
        with workspace(first.shard(pool), packed_state) as state:
            kept = state
    saved = SavedSnapshot(first)
    for _ in range(2):
        later = successor(first, ["old", "far"], [running("new", "a", gpus=2)], now=1)
        with workspace(later.shard("other"), packed_state) as state:
            assert state is kept
            assert not state.assignments_of
        with workspace(later, kube_state), workspace(later.shard("third"), kube_state):
            pass
        assert saved.rewind(later) is first
        assert (kube_state in first.workspaces, "third" in first.shards) == (False, False)
        with workspace(first.shard("default"), packed_state) as state:
            assert {*state.assignments_of} == {"old"}
            assert [each.future.gpu for each in state.capacities.all] == [0]
        with workspace(first.shard("other"), packed_state) as state:
            assert state is kept
            assert {*state.assignments_of} == {"far"}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_question_about_pods_on_unknown_nodes_leaves_no_trace(flavour: str) -> None:
    """The same where pods are added that run, or are somewhere that the snapshot does not know."""
    queues = (queue("team", "dep", deserved=8), queue("dep", deserved=8))
    there = snapshot(node("a", 8), *queues, running("lost", "nowhere", gpus=2), gang("mine", gpus=8))
    other = there.changed(["lost"], [running("here", "a", gpus=4)], now=None)
    for _ in range(2):
        assert cycle(other, flavour=flavour) == cycle(replace(other), flavour=flavour)
        assert cycle(there, flavour=flavour) == cycle(replace(there), flavour=flavour)


def test_a_node_that_one_question_filled_has_victims_for_the_next() -> None:
    """What evictions cost is first asked for after another pod has taken the room that such an eviction would need."""
    nodes, queues = (node("n0", 2), node("n1", 2, order=1)), (queue("team", deserved=None),)
    weak, other = running("weak", "n0", priority="very-low"), running("other", "n1", gpus=2, priority="low")
    cluster = snapshot(*nodes, *queues, weak, other)
    small, large = gang("small", priority="high"), gang("large", gpus=2, priority="high", created=1)
    assert [each.victim for each in preview(cluster, small, large, flavour="kube").victims] == [other]
    assert [each.victim for each in preview(cluster, large, flavour="kube").victims] == [weak]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_scheduler_stops_when_its_time_is_over(flavour: str) -> None:
    queues = (queue("team", "dep", deserved=8), queue("dep", deserved=8))
    cluster = snapshot(node("a", 8), *queues, running("old", "a", gpus=8, priority=25))
    with pytest.raises(OutOfTime), interrupted_when(lambda: True):
        preview(cluster, gang("new", gpus=8, priority=80), flavour=flavour)


def test_the_time_around_a_question_counts_as_well() -> None:
    with interrupted_when(lambda: True), interrupted_when(lambda: False), pytest.raises(OutOfTime):
        check_time()
    check_time()


@modest
@given(clusters(), newcomers, flavours, st.data())
def test_a_successor_decides_as_a_snapshot_that_was_never_another(
    cluster: Snapshot, requested: PodGroup, flavour: str, data: st.DataObject
) -> None:
    first = settled(cluster, flavour)
    preview(first, requested, flavour=flavour)
    names = data.draw(st.sets(st.sampled_from([group.name for group in first.groups]), max_size=3))
    changed = [replace(group, pods=group.pods[:1]) for group in first.groups if group.name in names]
    gone = {group.name for group in changed if group.waiting}
    second = successor(first, gone, [each for each in changed if each.name not in gone], now=7)
    alone = Snapshot(nodes=first.nodes, queues=first.queues, groups=second.groups, now=7)
    assert cycle(second, flavour=flavour) == cycle(alone, flavour=flavour)
    assert preview(second, requested, flavour=flavour) == preview(alone, requested, flavour=flavour)
    assert preview(first, requested, flavour=flavour) == preview(replace(first), requested, flavour=flavour)


def ranked(cluster: Snapshot) -> list[object]:
    """What the rankings of victims say: their sort keys, in order."""
    queues = [(LAST_VICTIMS_FIRST, each.name) for each in cluster.queues]
    with workspace(cluster, packed_state) as state:
        lines = [state.ranked(*each) for each in (*queues, (WEAKEST_FIRST,), (BY_IMPORTANCE,))]
        return [[rank for rank, _value in line] for line in lines]


@modest
@given(clusters(), newcomers, flavours, st.data())
def test_victims_are_ranked_as_in_a_new_state_whatever_has_come_and_gone(
    cluster: Snapshot, requested: PodGroup, flavour: str, data: st.DataObject
) -> None:
    first = settled(cluster, flavour)
    before, saved = ranked(first), SavedSnapshot(first)
    names = data.draw(st.sets(st.sampled_from([group.name for group in first.groups]), min_size=1))
    come = replace(requested, pods=tuple(replace(pod, node=first.nodes[0].name) for pod in requested.pods))
    derived = first.changed(names, [come], now=7)
    assert ranked(derived) == ranked(replace(derived))
    assert ranked(first) == before
    later = successor(first, names, [come], now=7)
    assert ranked(later) == ranked(replace(later))
    assert ranked(saved.rewind(later)) == before


def test_after_many_changes_it_holds_the_same_groups_in_the_same_order() -> None:
    first = snapshot(*(gang(f"first-{number}") for number in range(3)))
    later, expected = first, dict(first.group_by_name)
    for number in range(100):
        gone = (f"come-{number - 2}", "unknown") if number % 3 else ("first-1",)
        come = (gang(f"come-{number}"), running("first-0", "a", gpus=number + 1))
        later = successor(later, gone, come, now=number)
        for name in (*gone, "first-0"):
            expected.pop(name, None)
        expected |= {group.name: group for group in come}
        assert (later.group("first-0"), later.group(gone[0])) == (come[1], None)
        if number % 40 == 7:
            assert later.groups == tuple(expected.values())
    assert later.groups == tuple(expected.values())
    assert later.waiting == tuple(group for group in expected.values() if group.waiting)
    assert [group.name for group in first.groups] == ["first-0", "first-1", "first-2"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_derived_is_decided_about_beside_what_it_was_derived_from(flavour: str) -> None:
    queues = (queue("team", "dep", deserved=8), queue("dep", deserved=8))
    cluster = snapshot(node("a", 8), *queues, running("old", "a", gpus=8, priority=25))
    new = gang("new", gpus=8, priority=80)
    busy = preview(cluster, new, flavour=flavour)
    free = preview(cluster.without_groups({"old"}), new, flavour=flavour)
    assert (len(busy.victims), len(free.victims)) == (1, 0)
    assert preview(cluster, new, flavour=flavour) == busy


def test_two_new_groups_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="more than one pod group is named new"):
        snapshot(node("a", 8)).with_groups([gang("new"), gang("new")])


def contested() -> tuple[Snapshot, PodGroup]:
    """A pool whose only node is held by a weak workload, another pool, and a strong newcomer."""
    nodes = (node("a", 8, pool="x"), node("b", 8, pool="y", order=1))
    old = running("old", "a", gpus=8, priority=25, pool="x")
    return snapshot(*nodes, queue("team", deserved=8), old), gang("new", gpus=8, priority=80, pool="x")


def test_a_state_that_a_later_snapshot_took_over_is_made_again() -> None:
    first, new = contested()
    before = preview(first, new, flavour="kube")
    fetched = dict(first.workspaces)
    successor(first, {"old"}, (), now=1)
    first.workspaces.update(fetched)  # as a question has it that waited for the lock meanwhile
    assert preview(first, new, flavour="kube") == before


def test_a_successor_of_a_snapshot_whose_state_is_lost_decides_by_its_own() -> None:
    first, new = contested()
    with suppress(OutOfTime), interrupted_when(lambda: True):
        preview(first, new, flavour="kube")
    assert len(preview(replace(first), new, flavour="kube").victims) == 1
    assert not preview(successor(first, {"old"}, (), now=1), new, flavour="kube").victims


def test_a_pool_of_a_successor_has_what_changed_in_it() -> None:
    first, new = contested()
    assert len(preview(first.shard("x"), new, flavour="kube").victims) == 1
    second = successor(first, {"old"}, (), now=1)
    assert not preview(second.shard("x"), new, flavour="kube").victims


def test_a_state_keeps_a_bounded_number_of_answers_about_nodes() -> None:
    state, made = SchedulingState(contested()[0], default=Strategy.SPREAD), list[int]()
    for number in (*range(MOST_CACHED), 0, MOST_CACHED, 0):
        state.cached(NODES, number, partial(made.append, number))
    assert made == [*range(MOST_CACHED), MOST_CACHED, 0]
