"""Which victims KAI tries together: those around one node, and where that is no solution those of some nodes."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Outcome, OutcomeKind
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode
from scheduling.rules.kai import solver
from scheduling.rules.kai.scenarios import PotentialVictims
from tests.builders import gang, node, queue, running, snapshot

QUEUES = (queue("dep", deserved=None), queue("team", "dep", deserved=None), queue("other", "dep", deserved=None))


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kai")


def taken(found: Outcome) -> dict[str, int]:
    return {evict.victim.name: len(evict.pods) for evict in found.victims}


def weak(name: str, on: str, *, gpus: int = 1, start: int = 0) -> PodGroup:
    return running(name, on, gpus=gpus, priority="very-low", start=start)


def test_victims_of_two_nodes_go_where_neither_alone_would_do() -> None:
    """Its queue is at its limit: on whichever node it starts, both have to go."""
    queues = (queue("dep", deserved=None), queue("team", "dep", deserved=8, limit=2))
    nodes = (node("n0", 4), node("n1", 4))
    found = outcome(gang("new", gpus=2, priority="high"), *queues, *nodes, weak("a", "n0"), weak("b", "n1", start=1))
    assert (found.kind, taken(found)) == (OutcomeKind.PREEMPTS, {"a": 1, "b": 1})


def test_for_a_domain_the_nodes_of_several_victims_are_emptied_and_who_can_is_moved() -> None:
    """The first pod took the youngest, in the small rack; the oldest then finds its room there."""
    names = {"n0": "r0", "n1": "r1", "n2": "r1"}
    nodes = [replace(node(name, 4), labels={"rack": rack, "host": name}) for name, rack in names.items()]
    work = [weak(f"w{name}", name, gpus=4, start=age) for age, name in enumerate(reversed(names))]
    candidate = replace(gang("new", gpus=4, pods=2, min_member=2, priority="high"), topology="rack")
    levels = {"default": ("rack", "host")}
    found = preview(replace(snapshot(*QUEUES, *nodes, *work), levels=levels), candidate, flavour="kai")
    assert (found.kind, taken(found)) == (OutcomeKind.PREEMPTS, {"wn0": 1, "wn1": 1, "wn2": 1})
    assert {pod: place for evict in found.victims for pod, place in evict.moves_to.items()} == {"wn2-0": "n0"}


def test_nobody_is_moved_on_a_node_too_small_for_the_newcomer() -> None:
    """A small one on a third node would have to make room for the large one that makes room for the newcomer."""
    nodes = (node("n0", 4), node("n1", 4, order=1), node("n2", 2, order=2))
    work = (
        running("stays", "n0", gpus=1, queue="other", preemptible=False),
        running("large", "n1", gpus=3, queue="other", preemptible=True, priority="high"),
        running("small", "n0", gpus=1, queue="other", preemptible=True, priority="high"),
        running("tiny", "n2", gpus=1, queue="other", preemptible=False),
    )
    found = outcome(gang("new", gpus=4, queue="team", priority="very-low"), *QUEUES, *nodes, *work)
    assert (found.kind, taken(found)) == (OutcomeKind.PENDING, {})


def test_a_gang_that_one_pod_needs_gone_is_gone_for_all_of_them() -> None:
    """Where the first pod evicts a gang of which another pod would keep its room, the second pod may have that room."""
    nodes = (node("n0", 2), node("n1", 2, order=1), node("n2", 2, order=2))
    pair = gang("pair", gpus=2, pods=2, min_member=2, priority="very-low", nodes=("n0", "n1"), started=5)
    late = running("late", "n2", gpus=2, priority="low", start=9)
    found = outcome(gang("new", gpus=2, pods=2, min_member=2, priority="high"), *QUEUES, *nodes, pair, late)
    assert taken(found) == {"pair": 2}


def test_gpus_on_a_node_that_the_newcomer_may_not_use_replace_no_victims() -> None:
    """Its queue is at its limit, so that it needs both victims gone."""
    queues = (queue("dep", deserved=None), queue("team", "dep", deserved=8, limit=2))
    usable = [replace(node(name, 4, order=order), labels={"kind": "a"}) for order, name in enumerate(("n0", "n1"))]
    candidate = replace(gang("new", gpus=2, priority="high"), node_selector={"kind": "a"})
    found = outcome(candidate, *queues, *usable, node("large", 8, order=2), weak("a", "n0"), weak("b", "n1", start=1))
    assert (found.kind, taken(found)) == (OutcomeKind.PREEMPTS, {"a": 1, "b": 1})


def test_who_leaves_room_beside_a_newcomer_without_gpus_stays() -> None:
    """The youngest frees one of two cores; once the older one goes as well, it has its place again."""

    def cores(group: PodGroup, number: int) -> PodGroup:
        return replace(group, pods=tuple(replace(pod, requests=Resources.of(cpu=number)) for pod in group.pods))

    small = replace(node("n", 0), capacity=Resources.of(cpu=3))
    work = (cores(weak("old", "n"), 2), cores(weak("young", "n", start=1), 1))
    found = outcome(cores(gang("new", priority="high"), 2), *QUEUES, small, *work)
    assert (found.kind, taken(found)) == (OutcomeKind.PREEMPTS, {"old": 1})


@pytest.mark.parametrize(("free", "kind"), [(3, OutcomeKind.PENDING), (4, OutcomeKind.PREEMPTS)])
def test_a_gang_finds_room_for_all_of_its_pods_or_for_none(free: int, kind: OutcomeKind) -> None:
    """Four pods, each of a whole node: of three nodes none is emptied."""
    nodes = [node(f"n{number}", 2, order=number) for number in range(5)]
    work = [weak(f"w{number}", f"n{number}", gpus=2, start=number) for number in range(free)]
    kept = [running(f"k{number}", f"n{number}", gpus=2, preemptible=False) for number in range(free, 5)]
    found = outcome(gang("new", gpus=2, pods=4, min_member=4, priority="high"), *QUEUES, *nodes, *work, *kept)
    assert (found.kind, len(taken(found))) == (kind, free if kind is OutcomeKind.PREEMPTS else 0)


def test_after_so_many_scenarios_of_several_nodes_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "GENERATORS", ((PotentialVictims.around, None), (PotentialVictims.across, 1)))
    queues = (queue("dep", deserved=None), queue("team", "dep", deserved=8, limit=3))
    nodes = [node(f"n{number}", 4, order=number) for number in range(3)]
    work = [weak(f"w{number}", f"n{number}", start=number) for number in range(3)]
    candidate = gang("new", gpus=3, priority="high")
    assert outcome(candidate, *queues, *nodes, *work).kind is OutcomeKind.PENDING
    monkeypatch.undo()
    assert outcome(candidate, *queues, *nodes, *work).kind is OutcomeKind.PREEMPTS


def test_a_gang_with_a_pod_on_a_node_that_is_away_frees_what_the_others_hold() -> None:
    torn = gang("torn", gpus=2, pods=2, min_member=2, priority="very-low", nodes=("n0", "away"), started=0)
    found = outcome(gang("new", gpus=2, priority="high"), *QUEUES, node("n0", 2), torn)
    assert (found.kind, taken(found)) == (OutcomeKind.PREEMPTS, {"torn": 2})


@pytest.mark.parametrize(
    ("nodes", "gone"),
    [
        pytest.param(("n0", "n0", "n1"), {"extra": 1, "other": 1}, id="the first to go shares its node with the other"),
        pytest.param(("n0", "n1", "n0"), {"extra": 2}, id="the second one does"),
        pytest.param(("n1", "n0", "n0"), {"extra": 2}, id="neither does"),
    ],
)
def test_what_a_victim_loses_for_the_first_pod_counts_twice_for_the_second(
    nodes: tuple[str, str, str], gone: dict[str, int]
) -> None:
    """KAI's own count around one node: what a borrower lends out allows no third one. Across nodes it counts right."""
    queues = (
        queue("dep", deserved=2),
        queue("lender", "dep", deserved=2, weight=3),
        queue("borrower", "dep", deserved=0, weight=2, created=1),
    )
    extra = gang("extra", pods=3, queue="borrower", priority="low", nodes=nodes, min_member=1, started=0)
    other = running("other", "n1", queue="borrower", priority="medium", start=3)
    mine = [
        gang(name, pods=2, min_member=2, queue="lender", priority="low", nodes=("n0", "n1"), started=age)
        for age, name in enumerate(("a", "b"), start=1)
    ]
    new = gang("new", pods=2, min_member=2, queue="lender", priority="high")
    found = outcome(new, *queues, node("n0", 4), node("n1", 4, order=1), extra, other, *mine)
    assert (found.kind, taken(found)) == (OutcomeKind.RECLAIMS, gone)


def test_nodes_without_enough_for_all_pods_together_are_not_emptied() -> None:
    """The large pod would find room, the small one beside it would not."""
    work = (weak("large", "n0", gpus=4), weak("no-gpu", "n1", gpus=0))
    fixed = running("fixed", "n1", gpus=1, preemptible=False)
    candidate = gang("new", gpus=4, pods=2, min_member=2, priority="high")
    small = replace(candidate.pods[1], requests=Resources.of(gpu=1))
    candidate = replace(candidate, pods=(candidate.pods[0], small))
    assert outcome(candidate, *QUEUES, node("n0", 4), node("n1", 1, order=1), *work, fixed).kind is OutcomeKind.PENDING
