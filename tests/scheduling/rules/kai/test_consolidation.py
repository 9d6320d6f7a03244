"""KAI moves running work together before it takes any: where enough is free in all, and everybody finds a place."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Evict, Outcome, OutcomeKind, Wait
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause, EvictionExemptions
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode
from tests.builders import gang, node, queue, running, snapshot

DEP = queue("dep", deserved=None)
QUEUES = (DEP, queue("mine", "dep", deserved=4), queue("theirs", "dep", deserved=8))
NODES = (node("n0", 4), node("n1", 4))
WORK = (
    running("left", "n0", gpus=2, queue="theirs", priority="high", preemptible=True, start=1),
    running("right", "n1", gpus=2, queue="theirs", priority="high", preemptible=True),
)
WHOLE = gang("new", gpus=4, queue="mine", priority="very-low")


def outcome(
    candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup, exempt: EvictionExemptions = NO_EXEMPTIONS
) -> Outcome:
    return preview(replace(snapshot(*items), exempt=exempt), candidate, flavour="kai")


def moves(found: Outcome) -> dict[str, str]:
    return {pod: node for evict in found.victims for pod, node in evict.moves_to.items()}


def test_work_of_any_queue_and_priority_is_moved_to_where_it_fits() -> None:
    found = outcome(WHOLE, *NODES, *QUEUES, *WORK)
    assert (found.kind, found.victims[0].cause) == (OutcomeKind.CONSOLIDATES, Cause.CONSOLIDATE)
    assert moves(found) == {"left-0": "n1"}
    assert set(found.placements.values()) == {"n0"}


def test_without_it_somebody_is_evicted_or_it_waits() -> None:
    assert (
        outcome(WHOLE, *NODES, *QUEUES, *WORK, exempt=EvictionExemptions(frozenset({Cause.CONSOLIDATE}))).kind
        is OutcomeKind.PENDING
    )


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(gang("new", gpus=4, queue="mine", preemptible=False), id="non-preemptible"),
        pytest.param(gang("new", gpus=2, pods=3, min_member=3, queue="mine"), id="more than is free in all"),
        pytest.param(gang("new", gpus=4, queue="full"), id="beyond its limit"),
    ],
)
def test_nobody_is_moved_for_what_is(candidate: PodGroup) -> None:
    full = queue("full", "dep", deserved=2, limit=2)
    assert outcome(candidate, *NODES, *QUEUES, full, *WORK).kind is not OutcomeKind.CONSOLIDATES


def test_what_may_not_be_evicted_is_not_moved() -> None:
    fixed = [replace(each, preemptible=False) for each in WORK]
    assert outcome(WHOLE, *NODES, *QUEUES, *fixed).victims == ()


def test_a_gang_is_moved_whole_or_not_at_all() -> None:
    pair = gang("pair", gpus=1, pods=2, min_member=2, queue="theirs", nodes=("n0", "n1"), started=0)
    fixed = (
        running("a", "n0", gpus=1, queue="theirs", preemptible=False),
        running("b", "n1", gpus=1, queue="theirs", preemptible=False),
    )
    nodes = (node("n0", 3), node("n1", 3))
    found = outcome(gang("new", gpus=2, queue="mine", priority="very-low"), *nodes, *QUEUES, pair, *fixed)
    assert found.kind in {OutcomeKind.CONSOLIDATES, OutcomeKind.PENDING}
    assert {pod for evict in found.victims for pod in evict.pods} == set(moves(found))


def test_pods_on_unknown_nodes_are_moved_where_there_is_room_for_them() -> None:
    pair = gang("pair", gpus=2, pods=2, min_member=2, queue="theirs", nodes=("n0", "gone"), started=0)
    assert moves(outcome(WHOLE, *NODES, node("n2", 2), *QUEUES, pair)) == {}
    found = outcome(WHOLE, node("n0", 4), node("n1", 2), node("n2", 2), *QUEUES, pair)
    assert moves(found) == {"pair-0": "n1", "pair-1": "n2"}


def test_work_as_large_as_the_newcomer_is_not_moved_to_make_room_for_it() -> None:
    nodes = (node("n0", 4), node("n1", 3), node("n2", 3))
    large = running("large", "n0", gpus=4, queue="theirs", preemptible=True)
    assert outcome(WHOLE, *nodes, *QUEUES, large).kind is OutcomeKind.PENDING


def test_a_group_does_not_move_its_own_pods_for_another_one() -> None:
    half = gang("half", gpus=2, pods=2, min_member=1, queue="theirs", priority="very-low", nodes=("n0",), started=0)
    nodes, wide = (node("n0", 3), node("n1", 2), node("n2", 2)), replace(half.pods[1], requests=Resources.of(gpu=3))
    grown = replace(half, pods=(half.pods[0], wide))
    assert [type(each) for each in cycle(snapshot(*nodes, *QUEUES, grown), flavour="kai")] == [Wait]
    other = running("other", "n0", gpus=2, queue="theirs", preemptible=True)
    found = cycle(
        snapshot(*nodes, *QUEUES, replace(grown, pods=(replace(grown.pods[0], node="n1"), wide)), other), flavour="kai"
    )
    assert [each.moves_to for each in found if isinstance(each, Evict)] == [{"other-0": "n2"}]


def test_a_move_is_preferred_to_an_eviction() -> None:
    weak = running("weak", "n0", gpus=2, queue="mine", priority="very-low")
    strong = gang("strong", gpus=4, queue="mine", priority="medium")
    found = outcome(strong, *NODES, *QUEUES, weak, WORK[1])
    assert found.kind is OutcomeKind.CONSOLIDATES


def test_who_waits_next_is_weighed_against_the_same_work_as_long_as_nobody_moved() -> None:
    nodes = node("n0", 5), node("n1", 5)
    large = [running(f"large-{each.name}", each.name, gpus=3, queue="theirs", preemptible=True) for each in nodes]
    waiting = [gang(name, gpus=gpus, queue="mine", priority="very-low") for name, gpus in (("a", 4), ("b", 3))]
    found = cycle(snapshot(*nodes, *QUEUES, *large, *waiting), flavour="kai")
    assert [(type(each), each.group.name) for each in found] == [(Wait, "a"), (Wait, "b")]
