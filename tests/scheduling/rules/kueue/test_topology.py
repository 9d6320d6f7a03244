"""Kueue in a pool with topology levels: what is admitted has places on nodes, of one domain where it asks for one."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Decision, Evict, Outcome, OutcomeKind, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode
from tests.builders import gang, node, queue, running, snapshot

TEAM = queue("team", "cohort", deserved=8)
NEXT = queue("next", "cohort", deserved=4)
LEVELS = {"default": ("block", "rack")}


def in_rack(name: str, gpus: int, rack: str, *, block: str = "x", order: int = 0) -> SnapshotNode:
    return replace(node(name, gpus, order=order), labels={"block": block, "rack": rack})


RACKS = (in_rack("a1", 1, "a"), in_rack("b1", 1, "b", order=1), in_rack("b2", 1, "b", order=2))


def near(name: str = "new", *, pods: int = 2, level: str | None = "rack", **requested: Any) -> PodGroup:
    return replace(gang(name, pods=pods, **requested), topology=level)


def world(*items: SnapshotNode | Queue | PodGroup) -> Snapshot:
    return replace(snapshot(*items), levels=LEVELS)


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(world(TEAM, NEXT, *items), candidate, flavour="kueue")


def decided(*items: SnapshotNode | Queue | PodGroup) -> list[Decision]:
    return cycle(world(TEAM, NEXT, *items), flavour="kueue")


def pend(found: Outcome) -> PendingReason:
    assert found.pend is not None
    return found.pend


def victims(found: Outcome) -> list[str]:
    return [evict.victim.name for evict in found.victims]


def starts(decisions: Iterable[Decision]) -> dict[str, set[str]]:
    return {each.group.name: set(each.placements.values()) for each in decisions if isinstance(each, Start)}


def test_a_gang_is_admitted_to_the_one_rack_that_holds_all_of_it() -> None:
    found = outcome(near(), *RACKS)
    assert (found.kind, set(found.placements.values())) == (OutcomeKind.PLACED, {"b1", "b2"})


def test_of_several_racks_it_takes_the_one_with_room_for_fewest_more() -> None:
    wide = (in_rack("0", 3, "0", order=3), in_rack("c1", 4, "c", order=4))
    assert set(outcome(near(), *wide, *RACKS).placements.values()) == {"b1", "b2"}


def test_one_that_no_rack_holds_waits_with_how_many_of_its_pods_would_fit() -> None:
    found = outcome(near(pods=3), *RACKS, in_rack("b3", 1, "b", order=3), running("other", "b1", priority="high"))
    assert (found.kind, pend(found).reason) == (OutcomeKind.PENDING, Reason.NO_DOMAIN)
    assert (pend(found).fitting, pend(found).domain, pend(found).largest_domain.gpu) == (2, "x/b", 2000)
    assert outcome(near(pods=3, level=None), *RACKS, running("other", "b1")).kind is OutcomeKind.PENDING


def test_one_that_no_rack_could_ever_hold_is_told_so() -> None:
    assert pend(outcome(near(pods=3), *RACKS)).also == (Reason.NEVER_FITS,)


def test_a_wider_level_takes_nodes_of_several_racks() -> None:
    assert set(outcome(near(pods=3, level="block"), *RACKS).placements.values()) == {"a1", "b1", "b2"}


def test_racks_of_one_name_in_two_blocks_are_two() -> None:
    same = (in_rack("y1", 1, "r", block="y"), in_rack("z1", 1, "r", block="z", order=1))
    assert pend(outcome(near(), *same)).reason is Reason.NO_DOMAIN


def test_a_pool_that_is_all_one_rack_has_a_block() -> None:
    """To KAI it has none."""
    found = outcome(near(level="block"), in_rack("b1", 1, "b"), in_rack("b2", 1, "b", order=1))
    assert found.kind is OutcomeKind.PLACED


@pytest.mark.parametrize("level", [pytest.param("rack", id="near"), pytest.param(None, id="anywhere")])
def test_a_node_that_lacks_the_label_of_a_level_takes_nothing(level: str | None) -> None:
    bare = replace(node("n1", 8), labels={"rack": "b"})
    found = outcome(near(level=level), bare, in_rack("a1", 1, "a", order=1))
    assert (found.kind, pend(found).fitting) == (OutcomeKind.PENDING, 1)
    assert pend(found).reason is (Reason.NO_DOMAIN if level else Reason.NO_ROOM)


def test_who_asks_for_no_domain_has_its_places_too_or_waits_for_them() -> None:
    found = outcome(near(pods=3, level=None), *RACKS)
    assert (found.kind, set(found.placements.values())) == (OutcomeKind.PLACED, {"a1", "b1", "b2"})
    large = outcome(gang("large", gpus=2), *RACKS)
    assert (large.kind, pend(large).reason) == (OutcomeKind.PENDING, Reason.NEVER_FITS)
    assert pend(outcome(gang("new"))).reason is Reason.NO_SUCH_POOL


def test_a_pool_without_levels_is_still_counted_by_quota_alone() -> None:
    elsewhere = replace(TEAM, name="there", pool="plain")
    found = outcome(near(pods=5, queue="there", pool="plain"), elsewhere, *RACKS)
    assert (found.kind, found.placements) == (OutcomeKind.PLACED, {})


def test_two_that_come_at_once_never_get_the_same_places() -> None:
    first, second = near("first", created=1), near("second", queue="next", created=2)
    decisions = decided(*RACKS, first, second)
    assert starts(decisions) == {"first": {"b1", "b2"}}
    assert [each.pend.reason for each in decisions if isinstance(each, Wait)] == [Reason.NO_DOMAIN]


def test_what_is_admitted_holds_its_places_and_so_does_who_is_in_no_queue() -> None:
    for holder in (running("mine", "b1", priority="high"), running("foreign", "b1", queue="none")):
        assert pend(outcome(near(), *RACKS, holder)).reason is Reason.NO_DOMAIN


def test_who_has_quota_and_no_domain_takes_one_from_weaker_work_and_from_no_other_rack() -> None:
    weak = [running(f"weak-{name}", name, priority="low") for name in ("a1", "b2")]
    found = outcome(near(priority="high"), *RACKS, *weak)
    assert (found.kind, victims(found)) == (OutcomeKind.PREEMPTS, ["weak-b2"])
    assert (pend(found).reason, pend(found).also, pend(found).fitting) == (Reason.EVICTING, (Reason.NO_DOMAIN,), 1)
    assert victims(outcome(near(priority="low"), *RACKS, *weak)) == []


def test_pods_that_differ_find_their_domain_as_well() -> None:
    mixed = near(priority="high")
    mixed = replace(mixed, pods=(mixed.pods[0], replace(mixed.pods[1], requests=mixed.pods[1].requests * 2)))
    racks = (in_rack("a1", 2, "a"), in_rack("b1", 1, "b", order=1), in_rack("b2", 2, "b", order=2))
    assert set(outcome(mixed, *racks).placements.values()) == {"b1", "b2"}
    weak = [running(f"weak-{name}", name, priority="low") for name in ("a1", "b2")]
    assert victims(outcome(mixed, *racks, *weak)) == ["weak-b2"]


def test_who_may_not_use_a_node_evicts_nobody_there() -> None:
    labelled = replace(RACKS[1], labels={**RACKS[1].labels, "gpu": "h100"})
    weak = [running(f"weak-{name}", name, priority="low", start=number) for number, name in enumerate(("b1", "b2"))]
    wants = near(pods=1, priority="high", node_selector={"gpu": "h100"})
    assert victims(outcome(wants, labelled, RACKS[2], *weak)) == ["weak-b1"]


@pytest.mark.parametrize("seed", range(40))
def test_whoever_it_evicts_is_needed_and_leaves_it_a_domain(seed: int) -> None:
    dice = random.Random(seed)
    racks = [in_rack(f"n{number}", 4, f"r{number % 3}", order=number) for number in range(6)]
    work = [
        running(
            f"w{number}",
            f"n{number % 6}",
            gpus=dice.choice([1, 2]),
            priority=dice.choice(["low", "high"]),
            start=number,
        )
        for number in range(12)
    ]
    wide = replace(TEAM, deserved=replace(TEAM.deserved, gpu=100_000))
    new = near(pods=dice.choice([1, 2, 3]), gpus=dice.choice([1, 2, 3]), priority="medium")
    found = preview(world(wide, *racks, *work), new, flavour="kueue")
    gone = set(victims(found))
    assert all(each.priority < new.priority for each in work if each.name in gone)

    def fits(without: set[str]) -> bool:
        stay = [each for each in work if each.name not in without]
        return preview(world(wide, *racks, *stay), replace(new, priority=0), flavour="kueue").kind is OutcomeKind.PLACED

    weaker = {each.name for each in work if each.priority < new.priority}
    assert (found.kind is not OutcomeKind.PENDING) is fits(weaker)
    assert fits(gone) is fits(weaker)
    assert not any(fits(gone - {name}) for name in gone)


def test_for_a_domain_borrowers_go_though_quota_is_free() -> None:
    lent = [running(f"lent-{name}", name, queue="next", priority="very-high") for name in ("b1", "b2")]
    far = running("far", "z", gpus=3, queue="next", priority="very-high")
    found = outcome(near(priority="very-low"), *RACKS, in_rack("z", 3, "z", order=3), *lent, far)
    assert found.kind is OutcomeKind.RECLAIMS
    assert {evict.cause for evict in found.victims} == {Cause.RECLAIM}


def test_nobody_goes_where_it_would_find_no_domain_even_then() -> None:
    """A pod of nobody's stays."""
    weak, stays = running("weak", "b2", priority="low"), running("foreign", "b1", queue="none")
    found = outcome(near(priority="high"), *RACKS, weak, stays)
    assert (victims(found), pend(found).reason) == ([], Reason.NO_DOMAIN)


def test_short_of_quota_it_evicts_only_where_that_leaves_it_a_domain() -> None:
    alone = replace(TEAM, deserved=replace(TEAM.deserved, gpu=2000), parent=None)
    weak = running("weak", "a1", priority="low")
    taken = preview(world(alone, *RACKS, weak), near(priority="high"), flavour="kueue")
    assert (taken.kind, victims(taken), pend(taken).also) == (OutcomeKind.PREEMPTS, ["weak"], ())
    stays = running("foreign", "b1", queue="none")
    found = preview(world(alone, *RACKS, weak, stays), near(priority="high"), flavour="kueue")
    assert (victims(found), pend(found).reason) == ([], Reason.WAITING_FOR_QUOTA)


def test_a_rack_with_room_now_goes_before_one_whose_room_is_on_its_way() -> None:
    leaving = running("other", "b1")
    leaving = replace(leaving, pods=tuple(replace(pod, terminating=True) for pod in leaving.pods))
    wide = (in_rack("c1", 4, "c", order=3), in_rack("c2", 4, "c", order=4))
    assert set(outcome(near(), *RACKS, *wide, leaving).placements.values()) == {"c1"}
    waits = outcome(near(), *RACKS, leaving)
    assert (pend(waits).reason, pend(waits).also, pend(waits).fitting) == (Reason.EVICTING, (Reason.NO_DOMAIN,), 1)
    assert not victims(waits)


def test_room_that_victims_leave_is_promised_to_one_only() -> None:
    weak = [running(f"weak-{name}", name, priority="low") for name in ("b1", "b2")]
    first, second = near("first", priority="high", created=1), near("second", priority="high", created=2)
    decisions = decided(*RACKS, *weak, first, second)
    assert {each.for_group for each in decisions if isinstance(each, Evict)} == {"first"}
    assert {each.group.name: each.pend.reason for each in decisions if isinstance(each, Wait)} == {
        "first": Reason.EVICTING,
        "second": Reason.NO_DOMAIN,
    }


def test_what_victims_leave_beyond_that_is_somebody_elses() -> None:
    weak = gang("weak", pods=2, nodes=("b1", "b2"), priority="low", started=0)
    first, second = near("first", pods=1, priority="high"), near("second", pods=1, priority="high", created=1)
    decisions = decided(*RACKS[1:], weak, first, second)
    assert [each.for_group for each in decisions if isinstance(each, Evict)] == ["first"]
    assert [each.pend.reason for each in decisions if isinstance(each, Wait)] == [Reason.EVICTING] * 2


def test_who_is_leaving_already_is_not_evicted_once_more() -> None:
    alone = replace(TEAM, deserved=replace(TEAM.deserved, gpu=1000), parent=None)
    weak = running("weak", "a1", priority="low")
    weak = replace(weak, pods=tuple(replace(pod, terminating=True) for pod in weak.pods))
    found = preview(world(alone, *RACKS[:1], weak), near(pods=1, priority="high"), flavour="kueue")
    assert (victims(found), pend(found).reason) == ([], Reason.EVICTING)
    wider = replace(alone, deserved=replace(TEAM.deserved, gpu=2000))
    found = preview(world(wider, *RACKS[:1], weak), near(pods=2, priority="high"), flavour="kueue")
    assert pend(found).also == (Reason.WAITING_FOR_QUOTA,), "its room counts once"


def test_who_finds_its_room_taken_is_looked_at_again_and_may_take_another() -> None:
    racks = (*RACKS, in_rack("c1", 1, "c", order=3), in_rack("c2", 1, "c", order=4))
    first, second = near("first", created=1), near("second", queue="next", created=2)
    assert starts(decided(*racks, first, second)) == {"first": {"b1", "b2"}, "second": {"c1", "c2"}}
