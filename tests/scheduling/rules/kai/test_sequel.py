"""KAI forgets from cycle to cycle for whom it has evicted: who else gets the room, and what the candidate does then."""

from dataclasses import replace

from scheduling.forecast.cycle import MAX_CYCLES, preview, sequel
from scheduling.model.decisions import Evict, Outcome, OutcomeKind, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.snapshot import PodGroup, Snapshot
from tests.builders import gang, node, queue, running, snapshot
from tests.real.scenarios.kai_crowds import crowd
from tests.real.scenarios.kai_plans import outcome_of


def names(outcome: Outcome) -> tuple[list[str], list[str]]:
    return [each.victim.name for each in outcome.victims], [each.name for each in outcome.first]


def test_who_goes_for_a_workload_may_leave_the_room_to_others_so_that_it_waits() -> None:
    """Seen on the real KAI: the candidate takes back its share, and two others start in its place."""
    found = outcome_of(crowd(3009), consolidates=True)
    assert (found.kind, found.starting, found.coming, found.waiting) == (OutcomeKind.PENDING, 0, 0, 1)
    assert names(found) == (["w0"], ["w1", "w3"])


def test_one_that_is_overtaken_evicts_again_and_all_its_victims_are_named() -> None:
    found = outcome_of(crowd(3053), consolidates=True)
    assert (found.kind, found.coming, found.waiting) == (OutcomeKind.PREEMPTS, 1, 0)
    assert names(found) == (["w2", "w0"], ["w5"])


def test_who_waits_elsewhere_or_behind_the_candidate_changes_nothing() -> None:
    there = snapshot(
        queue("dep", deserved=None),
        queue("team", "dep", deserved=8),
        node("n", 1),
        running("weak", "n", priority=10),
        gang("behind", priority=20, created=1),
        gang("elsewhere", priority=150, pool="other"),
    )
    found = preview(there, gang("x", priority=80, created=2), flavour="kai")
    assert (found.kind, found.coming, found.first) == (OutcomeKind.PREEMPTS, 1, ())


def test_a_part_of_a_gpu_is_followed_through_the_next_cycle() -> None:
    """It may be on another device by then."""
    there = snapshot(
        queue("dep", deserved=None),
        queue("team", "dep", deserved=8),
        node("n", 1),
        running("weak", "n", gpus="0.5", priority=10),
        gang("behind", priority=20, created=1),
    )
    found = preview(there, gang("x", gpus="0.6", priority=80, created=2), flavour="kai")
    assert (found.kind, found.coming, names(found)) == (OutcomeKind.PREEMPTS, 1, (["weak"], []))


def two_that_wait() -> tuple[Snapshot, PodGroup, Evict]:
    """The candidate x has one evicted on the only node, where another waits, too."""
    mine, weak = gang("x"), running("weak", "n")
    there = replace(snapshot(node("n", 1), weak, gang("other"), mine), now=7)
    gone = Evict(weak, ("weak-0",), Cause.PREEMPT, "x", {"weak-0": "n"})
    return there, mine, gone


def test_it_is_told_as_it_stands_where_it_is_never_settled() -> None:
    there, mine, gone = two_that_wait()
    requested: list[Snapshot] = []

    def decide(state: Snapshot) -> list[Evict | Wait]:
        requested.append(state)
        return [gone, Wait(mine, PendingReason(Reason.NO_ROOM))]

    found = sequel(there, {"x"}, [gone, Wait(mine, PendingReason(Reason.EVICTING), {"x-0": "n"})], decide)
    assert (len(requested), len(found.victims), found.waiting, found.first) == (MAX_CYCLES, MAX_CYCLES + 1, 1, ())


def test_who_starts_in_its_place_has_its_node_and_its_time_in_the_next_cycle() -> None:
    there, mine, gone = two_that_wait()
    requested: list[Snapshot] = []

    def decide(state: Snapshot) -> list[Start | Wait]:
        requested.append(state)
        other = state.group_by_name["other"]
        starts = [Start(other, {"other-0": "n"})] if len(requested) == 2 else []
        return [*starts, Wait(mine, PendingReason(Reason.NO_ROOM))]

    found = sequel(there, {"x"}, [gone, Wait(mine, PendingReason(Reason.EVICTING), {"x-0": "n"})], decide)
    assert [sorted(state.group_by_name) for state in requested] == [
        ["other", "weak", "x"],
        ["other", "x"],
        ["other", "x"],
    ]
    assert (requested[2].group_by_name["other"].started, requested[2].group_by_name["other"].pods[0].node) == (7, "n")
    assert ([each.name for each in found.first], found.waiting) == (["other"], 1)
    assert found.pend == PendingReason(Reason.NO_ROOM)
