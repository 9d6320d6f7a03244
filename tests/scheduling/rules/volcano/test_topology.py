"""Volcano and gangs that ask for one domain of a topology: where they start, and whom it evicts for them."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Outcome, OutcomeKind, Start, Wait
from scheduling.model.reasons import Reason
from scheduling.model.resources import Limit
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode
from tests.builders import gang, node, queue, running, snapshot

TEAM = queue("team", deserved=4)
NEXT = queue("next", deserved=0, created=1)


def in_rack(name: str, gpus: int, rack: str, *, order: int = 0) -> SnapshotNode:
    return replace(node(name, gpus, order=order), labels={"rack": rack})


RACKS = (in_rack("a1", 1, "a"), in_rack("b1", 1, "b", order=1), in_rack("b2", 1, "b", order=2))


def near(name: str = "new", *, pods: int = 2, **fields: object) -> PodGroup:
    return replace(gang(name, pods=pods), topology="rack", **fields)


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="volcano")


def test_it_starts_in_the_domain_that_has_room_for_all_of_it() -> None:
    found = outcome(near(), *RACKS, TEAM)
    assert (found.kind, set(found.placements.values())) == (OutcomeKind.PLACED, {"b1", "b2"})


def test_of_several_it_takes_the_one_with_least_room() -> None:
    wide = (in_rack("c1", 4, "c", order=3), in_rack("c2", 4, "c", order=4))
    assert set(outcome(near(), *wide, *RACKS, TEAM).placements.values()) == {"b1", "b2"}


def test_one_that_fits_only_across_domains_waits_with_what_the_emptiest_has() -> None:
    found = outcome(near(), *RACKS, TEAM, running("other", "b1"))
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.PENDING, Reason.NO_DOMAIN)
    assert found.pend
    assert (found.pend.domain, found.pend.largest_domain.gpu) in {("a", 1000), ("b", 1000)}
    assert outcome(gang("new", pods=2), *RACKS, TEAM, running("other", "b1")).kind is OutcomeKind.PLACED


def test_nodes_without_the_label_take_none_of_it() -> None:
    bare = (node("n1", 1), node("n2", 1, order=1))
    found = outcome(near(), *bare, TEAM)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.PENDING, Reason.NO_DOMAIN)


def test_one_that_no_domain_could_ever_hold_is_told_so() -> None:
    found = outcome(near(pods=3), *RACKS, TEAM)
    assert found.pend
    assert (found.pend.reason, found.pend.also) == (Reason.NO_DOMAIN, (Reason.NEVER_FITS,))


def test_pods_beyond_its_minimum_stay_in_its_domain() -> None:
    racks = (*RACKS, in_rack("a2", 1, "a", order=3), in_rack("a3", 1, "a", order=4), in_rack("c1", 1, "c", order=5))
    decisions = cycle(snapshot(*racks, TEAM, near(pods=4, min_member=2)), flavour="volcano")
    started = [decision for decision in decisions if isinstance(decision, Start)]
    racks_of = {place[0] for decision in started for place in decision.placements.values()}
    assert len(racks_of) == 1
    assert any(isinstance(decision, Wait) for decision in decisions)


def test_what_replaces_one_of_its_pods_goes_to_where_the_others_are() -> None:
    half = near(pods=1, min_member=2)
    there = replace(half, pods=(*half.pods, *running("x", "b1").pods))
    found = cycle(snapshot(*RACKS, TEAM, there), flavour="volcano")
    assert [decision.placements for decision in found if isinstance(decision, Start)] == [{"new-0": "b2"}]


def test_a_domain_with_room_now_goes_before_one_whose_room_is_on_its_way() -> None:
    leaving = running("other", "b1")
    leaving = replace(leaving, pods=tuple(replace(pod, terminating=True) for pod in leaving.pods))
    wide = (in_rack("c1", 4, "c", order=3), in_rack("c2", 4, "c", order=4))
    assert set(outcome(near(), *RACKS, *wide, TEAM, leaving).placements.values()) <= {"c1", "c2"}
    found = cycle(snapshot(*RACKS, TEAM, leaving, near()), flavour="volcano")
    [waits] = [decision for decision in found if isinstance(decision, Wait)]
    assert set(waits.nominated.values()) == {"b1", "b2"}


def test_nobody_is_preempted_for_it_whatever_its_priority() -> None:
    weak = [running(f"weak-{name}", name, priority="very-low") for name in ("a1", "b1", "b2")]
    assert outcome(replace(gang("new", pods=2)), *RACKS, TEAM, *weak).kind is OutcomeKind.PREEMPTS
    found = outcome(near(), *RACKS, TEAM, *weak)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.PENDING, Reason.NO_DOMAIN)


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        pytest.param(("b1", "b2"), Reason.EVICTING, id="in one: it starts there once they are gone"),
        pytest.param(("a1", "b1"), Reason.NO_DOMAIN, id="in two: they go, and it still waits"),
    ],
)
def test_reclaim_takes_room_without_a_look_at_domains(taken: tuple[str, str], reason: Reason) -> None:
    """Seen on Volcano 1.15.1: its pods were nominated to nodes of two racks and never started."""
    fixed = [running(f"fixed-{each.name}", each.name, preemptible=False) for each in RACKS if each.name not in taken]
    theirs = [running(f"theirs-{name}", name, queue="next") for name in taken]
    found = outcome(near(), *RACKS, TEAM, NEXT, *fixed, *theirs)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.RECLAIMS, reason)
    assert {pod for evict in found.victims for pod in evict.pods} == {f"theirs-{name}-0" for name in taken}


def test_reclaim_goes_on_until_one_domain_has_room_so_more_go_than_are_needed() -> None:
    """Seen on Volcano 1.15.1: one of each rack goes first, then, in the next cycle, another one of the first rack."""
    fixed = running("fixed", "b2", preemptible=False)
    nodes = (in_rack("b1", 1, "b"), in_rack("a1", 2, "a", order=1), in_rack("b2", 1, "b", order=2))
    theirs = [running(f"theirs-{number}", name, queue="next") for number, name in enumerate(("b1", "a1", "a1"))]
    found = outcome(near(), *nodes, TEAM, NEXT, fixed, *theirs)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.RECLAIMS, Reason.EVICTING)
    assert len(found.victims) == 3
    alone = outcome(near(), *nodes[1:], TEAM, NEXT, fixed, *theirs[1:])
    assert len(alone.victims) == 2


def test_at_a_departments_limit_what_is_reclaimed_for_it_does_not_let_it_start() -> None:
    above = queue("department", deserved=4, limit=4)
    mine = replace(queue("team", "department", deserved=4), limit=Limit.of(gpu=4))
    other = replace(queue("sister", "department", deserved=0), created=1)
    nodes = tuple(in_rack(f"a{number}", 2, "a", order=number) for number in range(3))
    work = [running(f"sister-{at}", f"a{at}", gpus=2, queue="sister", preemptible=False) for at in (0, 1)]
    outside = [running(f"outside-{number}", "a2", queue="next") for number in (0, 1)]
    found = outcome(near(), *nodes, above, mine, other, NEXT, *work, *outside)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.RECLAIMS, Reason.OVER_LIMIT)


def test_one_that_never_preempts_reclaims_nothing() -> None:
    theirs = [running(f"theirs-{each.name}", each.name, queue="next") for each in RACKS]
    found = outcome(near(never_preempts=True), *RACKS, TEAM, NEXT, *theirs)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.PENDING, Reason.PREEMPTION_NEVER)


def test_a_node_without_the_label_is_in_no_domain_though_reclaim_takes_it() -> None:
    bare = (node("n1", 1), node("n2", 1, order=1))
    theirs = [running(f"theirs-{each.name}", each.name, queue="next") for each in bare]
    found = outcome(near(), *bare, TEAM, NEXT, *theirs)
    assert (found.kind, found.pend and found.pend.reason) == (OutcomeKind.RECLAIMS, Reason.NO_DOMAIN)
