"""Kueue with fair sharing: whose turn it is, and who gives back what was lent. Quotas in GPUs."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Outcome, OutcomeKind, Start
from scheduling.model.preemptibility import Cause, FairSharingStrategy, QueuePreemptionPolicy
from scheduling.model.snapshot import PodGroup, Queue, Snapshot
from tests.builders import gang, queue, snapshot
from tests.scheduling.rules.kueue.test_preemption import held, victims

FINAL, INITIAL = FairSharingStrategy
BOTH = (FINAL, INITIAL)
LENDER = queue("lender", "cohort", deserved=8)


def cluster(*items: Queue | PodGroup, strategies: tuple[FairSharingStrategy, ...] = BOTH) -> Snapshot:
    return replace(snapshot(*items), fair_sharing=strategies)


def outcome(
    candidate: PodGroup, *items: Queue | PodGroup, strategies: tuple[FairSharingStrategy, ...] = BOTH
) -> Outcome:
    return preview(cluster(*items, strategies=strategies), candidate, flavour="kueue")


def borrower(name: str, *, weight: int = 1, deserved: int = 0, parent: str = "cohort") -> Queue:
    return queue(name, parent, deserved=deserved, weight=weight)


def lent(*gpus: int, by: str = "rich") -> tuple[PodGroup, ...]:
    """So many workloads, the last admitted last."""
    return tuple(held(f"{by}-{number}", amount, by=by, start=number) for number, amount in enumerate(gpus))


def test_who_borrows_less_takes_from_who_borrows_more() -> None:
    """Without fair sharing quota that is lent stays lent until its owner wants it."""
    items = (LENDER, borrower("team"), borrower("rich"), *lent(2, 2, 2, 2))
    found = outcome(gang("new", gpus=2), *items)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["rich-3"])
    assert outcome(gang("new", gpus=2), *items, strategies=()).kind is OutcomeKind.PENDING


def test_it_takes_until_shares_are_even_and_no_further() -> None:
    items = (LENDER, borrower("team"), borrower("rich"), *lent(2, 2, 2, 2))
    assert victims(outcome(gang("new", gpus=4), *items)) == ["rich-3", "rich-2"]
    assert outcome(gang("new", gpus=6), *items).kind is OutcomeKind.PENDING


@pytest.mark.parametrize(
    ("weight", "kind"), [(1, OutcomeKind.RECLAIMS), (3, OutcomeKind.RECLAIMS), (4, OutcomeKind.PENDING)]
)
def test_shares_are_divided_by_weights(weight: int, kind: OutcomeKind) -> None:
    items = (LENDER, borrower("team"), borrower("rich", weight=weight), *lent(1, 1, 6))
    assert outcome(gang("new", gpus=2), *items, strategies=(INITIAL,)).kind is kind


@pytest.mark.parametrize(
    ("team", "rich", "kind"), [(1, 0, OutcomeKind.RECLAIMS), (0, 1, OutcomeKind.PENDING), (0, 0, OutcomeKind.RECLAIMS)]
)
def test_who_has_no_weight_gives_to_all_and_takes_from_its_like_only(team: int, rich: int, kind: OutcomeKind) -> None:
    items = (LENDER, borrower("team", weight=team), borrower("rich", weight=rich), *lent(2, 2, 2, 2))
    assert outcome(gang("new", gpus=2), *items).kind is kind


@pytest.mark.parametrize(
    ("strategies", "kind"),
    [(BOTH, OutcomeKind.RECLAIMS), ((FINAL,), OutcomeKind.PENDING), ((INITIAL,), OutcomeKind.RECLAIMS)],
)
def test_a_victim_larger_than_the_difference_needs_the_second_strategy(
    strategies: tuple[FairSharingStrategy, ...], kind: OutcomeKind
) -> None:
    """Once it is gone its queue borrows nothing, and the newcomer's does."""
    items = (LENDER, borrower("team"), borrower("rich"), *lent(8))
    assert outcome(gang("new", gpus=2), *items, strategies=strategies).kind is kind


def test_the_second_strategy_takes_one_workload_of_a_queue_at_most() -> None:
    items = (LENDER, borrower("team"), borrower("rich"), *lent(4, 4))
    assert victims(outcome(gang("new", gpus=3), *items)) == ["rich-1"]
    assert outcome(gang("new", gpus=5), *items).kind is OutcomeKind.PENDING


def test_within_its_quota_a_queue_takes_from_every_borrower_whatever_the_shares() -> None:
    items = (
        queue("lender", "cohort", deserved=4),
        queue("team", "cohort", deserved=4, weight=0),
        *(borrower("rich", weight=9), *lent(2, 4)),
        *(borrower("poor"), *lent(2, by="poor")),
    )
    found = outcome(gang("new", gpus=4), *items)
    assert (victims(found), found.victims[0].cause) == (["rich-1"], Cause.RECLAIM)


def test_the_largest_share_gives_first_and_then_the_weakest_and_latest_of_it() -> None:
    weak = held("weak", 1, by="rich", priority="low")
    items = (LENDER, borrower("team"), borrower("poor"), borrower("rich"), *lent(1, 1, by="poor"), weak, *lent(2, 3))
    assert victims(outcome(gang("new"), *items)) == ["weak"]
    assert victims(outcome(gang("new", gpus=2), *items)) == ["rich-1"]


def test_of_equal_shares_who_leaves_already_gives_first() -> None:
    leaving = gang("leaving", gpus=4, queue="poor", nodes=("n",), terminating=True, started=0, priority="very-high")
    items = (LENDER, borrower("team"), borrower("poor"), borrower("rich"), leaving, *lent(4))
    assert outcome(gang("new", gpus=2), *items).victims == ()
    staying = replace(leaving, pods=tuple(replace(pod, terminating=False) for pod in leaving.pods))
    assert victims(outcome(gang("new", gpus=2), *items[:4], staying, *lent(4))) == ["rich-0"]


def test_its_own_lower_work_goes_where_its_own_share_is_the_largest() -> None:
    items = (LENDER, borrower("team"), borrower("rich"), *lent(2), *lent(3, 3, by="team"))
    found = outcome(gang("new", gpus=2, priority="high"), *items)
    assert (found.kind, victims(found)) == (OutcomeKind.PREEMPTS, ["team-1"])
    assert outcome(gang("new", gpus=2), *items).kind is OutcomeKind.PENDING


def test_a_queue_without_cohort_has_only_its_own_work_to_evict() -> None:
    items = (queue("team", deserved=4), *lent(1, 1, 2, by="team"))
    assert victims(outcome(gang("new", gpus=3, priority="high"), *items)) == ["team-2", "team-1"]
    assert outcome(gang("new", gpus=3), *items).kind is OutcomeKind.PENDING


def test_who_may_take_from_nobody_waits() -> None:
    team = replace(borrower("team"), reclaims=QueuePreemptionPolicy.NEVER)
    assert outcome(gang("new"), LENDER, team, borrower("rich"), *lent(4, 4)).kind is OutcomeKind.PENDING


def test_departments_share_first_and_their_projects_then() -> None:
    """The small project of the large department gives, not the large one of the other."""
    items = (
        queue("lender", "everything", deserved=12),
        queue("one", "everything"),
        queue("other", "everything"),
        *(borrower("team", parent="one"), borrower("mate", parent="one"), *lent(4, by="mate")),
        *(borrower("a", parent="other"), borrower("b", parent="other"), *lent(1, 3, by="a"), *lent(2, 2, by="b")),
    )
    found = outcome(gang("new"), *items)
    assert victims(found) == ["a-1"] or victims(found) == ["b-1"]
    larger = replace(items[2], weight=4)
    assert victims(outcome(gang("new"), *items[:2], larger, *items[3:])) == ["mate-0"]


def test_a_department_that_borrows_nothing_gives_nothing_to_others() -> None:
    items = (
        queue("lender", "everything", deserved=1),
        queue("one", "everything", deserved=1),
        queue("other", "everything", deserved=4),
        borrower("team", parent="one"),
        *(borrower("a", parent="other"), *lent(4, by="a")),
        *(queue("b", "other", deserved=2), borrower("c", parent="one"), *lent(2, by="c")),
    )
    assert victims(outcome(gang("new"), *items)) == ["c-0"]


def test_what_is_borrowed_in_all_pools_counts_together() -> None:
    """In this pool both borrow the same."""
    other = (
        replace(queue("lender.2", "cohort.2", deserved=8, pool="other"), owner="lender"),
        replace(queue("team.2", "cohort.2", pool="other"), owner="team"),
        held("elsewhere", 4, by="team.2"),
    )
    here = (replace(LENDER, owner="lender"), replace(borrower("team"), owner="team"), borrower("rich"))
    work = (*lent(3, by="team"), *lent(2, 3))
    assert victims(outcome(gang("new"), *here, *work)) == ["rich-1"]
    assert outcome(gang("new"), *here, *other, *work).kind is OutcomeKind.PENDING


def test_whose_share_would_be_least_has_its_turn_first() -> None:
    """By age it would be the other's: only one of them has room."""
    waiting = (gang("old", gpus=2, queue="rich", created=1), gang("young", gpus=2, created=2))
    items = (LENDER, borrower("team"), borrower("rich"), *lent(6), *waiting)
    starts = [each.group.name for each in cycle(cluster(*items), flavour="kueue") if isinstance(each, Start)]
    assert starts == ["young"]
    classical = cycle(cluster(*items, strategies=()), flavour="kueue")
    assert [each.group.name for each in classical if isinstance(each, Start)] == ["old"]


def test_who_needs_not_borrow_has_its_turn_before_all_shares() -> None:
    """Its share is the larger one, for what it borrows in another pool."""
    far = replace(queue("team.2", "cohort.2", pool="other"), owner="team")
    lender = queue("lender.2", "cohort.2", deserved=8, pool="other")
    near = replace(queue("team", "cohort", deserved=2), owner="team")
    waiting = (gang("old", gpus=2, queue="rich", created=1), gang("young", gpus=2, created=2))
    items = (lender, far, held("elsewhere", 8, by="team.2"), near, borrower("rich"), *waiting)
    starts = [each.group.name for each in cycle(cluster(*items), flavour="kueue") if isinstance(each, Start)]
    assert starts == ["young"]
