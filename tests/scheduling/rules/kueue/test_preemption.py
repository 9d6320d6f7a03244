"""Kueue: whom it evicts for a workload, and for whom it evicts nobody. Quotas in GPUs; nodes play no part."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Outcome, OutcomeKind, Wait
from scheduling.model.preemptibility import Cause, QueuePreemptionPolicy
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import PodGroup, Queue, SnapshotNode
from tests.builders import gang, node, queue, running, snapshot

TEAM = queue("team", "cohort", deserved=4)
OTHER = queue("other", "cohort", deserved=4)


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kueue")


def held(name: str, gpus: int, *, by: str = "team", priority: str | int = "medium", start: int = 0) -> PodGroup:
    return running(name, "somewhere", gpus=gpus, queue=by, priority=priority, start=start)


def victims(found: Outcome) -> list[str]:
    return [evict.victim.name for evict in found.victims]


def pend(found: Outcome) -> PendingReason:
    assert found.pend is not None
    return found.pend


def test_quota_counts_and_nodes_do_not() -> None:
    found = outcome(gang("new", gpus=2, pods=2), TEAM, node("small", 1))
    assert (found.kind, found.placements, found.over_quota) == (OutcomeKind.PLACED, {}, False)


def test_unused_quota_of_others_is_lent() -> None:
    found = outcome(gang("new", gpus=6), TEAM, OTHER)
    assert (found.kind, found.over_quota) == (OutcomeKind.PLACED, True)


def test_all_pods_are_admitted_or_none() -> None:
    alone = queue("team", deserved=3)
    assert outcome(gang("new", gpus=1, pods=4, min_member=1), alone).kind is OutcomeKind.PENDING


@pytest.mark.parametrize(
    ("limit", "most"), [pytest.param(6, 6, id="its own limit"), pytest.param(None, 8, id="all that the cohort has")]
)
def test_more_than_it_could_ever_have_waits_for_good(limit: int | None, most: int) -> None:
    found = outcome(gang("new", gpus=9, priority="high"), queue("team", "cohort", deserved=4, limit=limit), OTHER)
    assert (pend(found).reason, pend(found).allowed.gpu) == (Reason.EXCEEDS_MAX_QUOTA, most * 1000)
    assert pend(found).missing == Resources.of(gpu=9 - most)


def test_a_request_above_its_whole_quota_evicts_nobody_not_even_in_its_own_queue() -> None:
    items = (TEAM, OTHER, held("weak", 4, priority="low"), held("borrower", 4, by="other", priority="low"))
    above = outcome(gang("new", gpus=5, priority="very-high"), *items)
    assert (above.kind, pend(above).reason) == (OutcomeKind.PENDING, Reason.WAITING_FOR_QUOTA)
    assert pend(above).also == (Reason.LARGER_THAN_DESERVED,)
    within = outcome(gang("new", gpus=4, priority="very-high"), *items)
    assert (within.kind, victims(within)) == (OutcomeKind.PREEMPTS, ["weak"])


def test_who_would_borrow_in_the_end_takes_from_its_own_queue_only() -> None:
    """Its other work stays, so the queue is above its quota with it: whoever else borrows is safe from it."""
    work = (held("strong", 3), held("weak", 2, priority="low"), held("borrower", 5, by="other", priority="very-low"))
    found = outcome(gang("new", gpus=2, priority="high"), TEAM, OTHER, queue("spare", "cohort", deserved=2), *work)
    assert (found.kind, victims(found)) == (OutcomeKind.PREEMPTS, ["weak"])


def test_what_a_queue_deserves_is_taken_back_from_borrowers_of_any_priority() -> None:
    found = outcome(gang("new", gpus=2, priority="very-low"), TEAM, OTHER, held("lent", 8, by="other", priority="high"))
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["lent"])
    assert pend(found).reason is Reason.EVICTING


def test_a_queue_that_does_not_borrow_loses_nothing() -> None:
    found = outcome(gang("new", gpus=4, priority="high"), TEAM, OTHER, held("mine", 4, by="team", priority="very-high"))
    assert found.kind is OutcomeKind.PLACED
    busy = (held("theirs", 4, by="other", priority="low"), held("mine", 4, priority="very-high"))
    found = outcome(gang("new", gpus=4, priority="high"), TEAM, OTHER, *busy)
    assert (found.kind, pend(found).reason, pend(found).also) == (OutcomeKind.PENDING, Reason.WAITING_FOR_QUOTA, ())


def test_a_borrower_is_safe_as_soon_as_it_borrows_no_more() -> None:
    jobs = [held(f"j{number}", 2, by="other", start=number) for number in range(3)]
    items = (TEAM, queue("other", "cohort", deserved=4), held("mine", 2, priority="high"), *jobs)
    found = outcome(gang("new", gpus=2), *items)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["j2"])


def test_a_queue_of_quota_nothing_lives_on_loans() -> None:
    guest = queue("guest", "cohort", deserved=0)
    assert outcome(gang("new", gpus=4, queue="guest"), TEAM, guest).kind is OutcomeKind.PLACED
    full = (TEAM, guest, held("lent", 4, by="guest", priority="very-high"))
    assert victims(outcome(gang("new", gpus=1, priority="very-low"), *full)) == ["lent"]
    stronger = outcome(gang("new", gpus=1, queue="guest", priority=1000), *full)
    assert (stronger.kind, pend(stronger).also) == (OutcomeKind.PENDING, (Reason.LARGER_THAN_DESERVED,))


def test_one_decision_may_take_from_borrowers_and_from_its_own_queue() -> None:
    items = (TEAM, OTHER, held("weak", 3, priority="low"), held("lent", 5, by="other", priority="high"))
    found = outcome(gang("new", gpus=4), *items)
    assert (found.kind, victims(found)) == (OutcomeKind.PREEMPTS_AND_RECLAIMS, ["lent", "weak"])
    assert [evict.cause for evict in found.victims] == [Cause.RECLAIM, Cause.PREEMPT]


def test_borrowers_go_before_the_own_queue_though_it_has_weaker_work() -> None:
    items = (TEAM, OTHER, held("weak", 2, priority="very-low"), held("lent", 6, by="other", priority="high"))
    assert victims(outcome(gang("new", gpus=2), *items)) == ["lent"]


def test_the_lowest_priority_goes_first_then_the_latest_and_size_plays_no_part() -> None:
    big = held("big", 4, priority="low", start=1)
    items = (queue("team", deserved=6), big, held("old", 1, priority="low"), held("fine", 1, start=9))
    assert victims(outcome(gang("new", gpus=1, priority="high"), *items)) == ["big"]


def test_who_turns_out_not_to_be_needed_stays() -> None:
    items = (queue("team", deserved=5), held("small", 1, priority="low", start=2), held("big", 4, priority="low"))
    assert victims(outcome(gang("new", gpus=4, priority="high"), *items)) == ["big"]


def test_only_as_many_go_as_are_needed_the_last_taken_last() -> None:
    jobs = [held(f"j{number}", 1, priority="low", start=number) for number in range(4)]
    assert victims(outcome(gang("new", gpus=2, priority="high"), queue("team", deserved=4), *jobs)) == ["j3", "j2"]


def test_equal_priority_is_no_victim_in_the_own_queue() -> None:
    assert outcome(gang("new", gpus=1), queue("team", deserved=1), held("same", 1)).kind is OutcomeKind.PENDING


def test_preemptibility_and_the_policy_never_mean_nothing() -> None:
    fixed = running("fixed", "n", gpus=1, priority="medium", preemptible=False)
    found = outcome(gang("new", priority="high", never=True), queue("team", deserved=1), fixed)
    assert victims(found) == ["fixed"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (QueuePreemptionPolicy.NEVER, []),
        (QueuePreemptionPolicy.LOWER, ["weak"]),
        (QueuePreemptionPolicy.LOWER_OR_NEWER, ["weak"]),
    ],
)
def test_the_policy_inside_the_queue(policy: QueuePreemptionPolicy, expected: list[str]) -> None:
    own = replace(queue("team", deserved=2), preempts=policy)
    found = outcome(gang("new", created=5), own, held("weak", 1, priority="low"), held("same", 1, start=1))
    assert victims(found) == expected


def test_newer_work_of_equal_priority_may_be_a_victim_too() -> None:
    own = replace(queue("team", deserved=2), preempts=QueuePreemptionPolicy.LOWER_OR_NEWER)
    items = (own, held("older", 1, start=1), held("newer", 1, start=9))
    assert victims(outcome(gang("new", created=5), *items)) == ["newer"]
    assert victims(outcome(gang("new", created=0, gpus=2), *items)) == ["newer", "older"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(QueuePreemptionPolicy.NEVER, []), (QueuePreemptionPolicy.LOWER, ["low"]), (QueuePreemptionPolicy.ANY, ["low"])],
)
def test_the_policy_towards_borrowers(policy: QueuePreemptionPolicy, expected: list[str]) -> None:
    lent = (held("high", 4, by="other", priority="high"), held("low", 4, by="other", priority="low"))
    assert victims(outcome(gang("new"), replace(TEAM, reclaims=policy), OTHER, *lent)) == expected


def test_where_it_may_reclaim_while_borrowing_weaker_borrowers_go_for_it() -> None:
    items = (OTHER, queue("third", "cohort", deserved=2), held("weak", 6, by="third", priority="low"))
    mine = held("mine", 4, priority="very-high")
    bold = replace(TEAM, reclaims_over_quota=QueuePreemptionPolicy.LOWER)
    assert outcome(gang("new", gpus=2), TEAM, mine, *items).kind is OutcomeKind.PENDING
    assert victims(outcome(gang("new", gpus=2), bold, mine, *items)) == ["weak"]
    assert outcome(gang("new", gpus=2, priority="very-low"), bold, mine, *items).kind is OutcomeKind.PENDING
    assert victims(outcome(gang("new", gpus=5), bold, *items)) == ["weak"]


def test_work_that_uses_nothing_of_what_is_short_is_no_victim() -> None:
    own = Queue("team", deserved=Limit.of(gpu=2, cpu=4), limit=Limit.of(gpu=2, cpu=4))
    cpu_only = held("cpu", 0, priority="very-low")
    cpu_only = replace(cpu_only, pods=(replace(cpu_only.pods[0], requests=Resources.of(cpu=4)),))
    found = outcome(gang("new", gpus=2, priority="high"), own, cpu_only, held("gpu", 2, priority="low"))
    assert victims(found) == ["gpu"]


def test_who_is_leaving_already_goes_first_and_is_not_evicted_again() -> None:
    going = gang("going", gpus=2, nodes=("n",), terminating=True, started=0, priority="medium")
    items = (queue("team", deserved=4), going, held("low", 2, priority="low"))
    found = outcome(gang("new", gpus=2, priority="high"), *items)
    assert (found.kind, victims(found), pend(found).reason) == (OutcomeKind.PENDING, [], Reason.EVICTING)
    assert victims(outcome(gang("new", gpus=4, priority="high"), *items)) == ["low"]


def test_only_the_pods_that_stay_are_evicted_and_from_their_nodes() -> None:
    half = gang("half", gpus=1, pods=3, nodes=("n", "m"), started=0, priority="low")
    half = replace(half, pods=(replace(half.pods[0], terminating=True), *half.pods[1:]))
    (evict,) = outcome(gang("new", gpus=3, priority="high"), queue("team", deserved=3), half).victims
    assert (evict.pods, evict.nodes) == (("half-1", "half-2"), {"half-1": "m"})


def test_a_queue_nobody_has_made_yet_or_that_holds_others_takes_no_workload() -> None:
    unknown = outcome(gang("new", queue="nobody"), TEAM, held("foreign", 8, by="nobody"))
    assert pend(unknown).reason is Reason.QUEUE_MISSING
    department = queue("cohort", deserved=8)
    assert pend(outcome(gang("new", queue="cohort"), TEAM, department)).reason is Reason.QUEUE_MISSING


def test_what_asks_for_nothing_is_always_admitted() -> None:
    found = outcome(gang("new", gpus=0), queue("team", deserved=1), held("too much", 4))
    assert (found.kind, found.over_quota) == (OutcomeKind.PLACED, False)


def test_a_refused_workload_is_tried_again_once_another_has_freed_quota() -> None:
    guest, host = queue("guest", "cohort", deserved=0), queue("host", "cohort", deserved=8)
    waiting = [gang(name, gpus=2, queue="guest", created=index) for index, name in enumerate(("first", "second"))]
    urgent = gang("urgent", gpus=1, queue="host", priority="high")
    big = held("big", 8, by="host", priority="low")
    found = cycle(snapshot(guest, host, big, *waiting, urgent), flavour="kueue")
    reasons = {each.group.name: each.pend.reason for each in found if isinstance(each, Wait)}
    assert reasons == {
        "first": Reason.WAITING_FOR_QUOTA,
        "urgent": Reason.EVICTING,
        "second": Reason.EVICTING,
    }
