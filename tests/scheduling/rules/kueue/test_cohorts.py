"""Kueue: quotas of departments, and who takes from whom across them. Quotas in GPUs."""

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Evict, Outcome, OutcomeKind, Start, Wait
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import PodGroup, Queue
from tests.builders import gang, queue, running, snapshot
from tests.scheduling.rules.kueue.test_preemption import held, pend, victims

ROOT = "everything"
TWO_DEPARTMENTS = (queue("department", ROOT, deserved=4), queue("neighbour", ROOT, deserved=4))


def cohort(**deserved: int) -> tuple[Queue, ...]:
    """Queues that lend to each other, by name."""
    return tuple(queue(name, "cohort", deserved=amount) for name, amount in deserved.items())


def outcome(candidate: PodGroup, *items: Queue | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kueue")


def said(*items: Queue | PodGroup) -> list[str]:
    words = []
    for decision in cycle(snapshot(*items), flavour="kueue"):
        match decision:
            case Start():
                words.append(f"start {decision.group.name}")
            case Evict():
                words.append(f"evict {decision.victim.name}")
            case Wait():
                words.append(f"wait {decision.group.name}: {decision.pend.reason}")
    return words


def test_a_departments_row_says_its_total_and_its_projects_share_what_they_do_not_deserve() -> None:
    items = (queue("department", deserved=6), queue("team", "department", deserved=2))
    assert outcome(gang("new", gpus=6), *items).kind is OutcomeKind.PLACED
    assert pend(outcome(gang("new", gpus=7), *items)).reason is Reason.EXCEEDS_MAX_QUOTA


def test_projects_that_deserve_more_than_their_department_count_all_the_same() -> None:
    items = (
        queue("department", deserved=2),
        queue("team", "department", deserved=2),
        queue("other", "department", deserved=2),
    )
    assert outcome(gang("new", gpus=4), *items).kind is OutcomeKind.PLACED


@pytest.mark.parametrize(
    ("limit", "kind"), [(None, OutcomeKind.PLACED), (6, OutcomeKind.PLACED), (5, OutcomeKind.PENDING)]
)
def test_a_departments_limit_bounds_what_it_borrows_from_other_departments(
    limit: int | None, kind: OutcomeKind
) -> None:
    items = (
        queue("department", ROOT, deserved=4, limit=limit),
        queue("neighbour", ROOT, deserved=4),
        queue("team", "department", deserved=2),
        queue("other", "neighbour", deserved=2),
    )
    assert outcome(gang("new", gpus=6), *items).kind is kind


def test_a_project_takes_back_for_its_department_what_another_department_has_borrowed() -> None:
    """More than the project deserves, but not more than its department does."""
    items = (
        *TWO_DEPARTMENTS,
        queue("team", "department", deserved=1),
        queue("other", "neighbour", deserved=4),
        held("lent", 2, by="other", priority="very-high", start=1),
        held("kept", 4, by="other", priority="very-high"),
    )
    found = outcome(gang("new", gpus=4, priority="low"), *items)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["lent"])


def test_a_department_that_does_not_borrow_is_safe_though_one_of_its_projects_does() -> None:
    items = (
        *TWO_DEPARTMENTS,
        queue("team", "department", deserved=4),
        queue("other", "neighbour", deserved=1),
        queue("third", ROOT, deserved=0),
        held("inside", 4, by="other", priority="very-low"),
        held("lent", 4, by="third", priority="very-high"),
    )
    assert victims(outcome(gang("new", gpus=2), *items)) == ["lent"]


def test_a_department_is_safe_once_it_borrows_no_more() -> None:
    items = (
        *TWO_DEPARTMENTS,
        queue("team", "department", deserved=4),
        queue("other", "neighbour", deserved=1),
        held("mine", 1, by="team", priority="very-high"),
        held("newest", 1, by="other", priority="very-low", start=5),
        held("older", 3, by="other", priority="very-low", start=1),
        held("oldest", 3, by="other", priority="very-low"),
    )
    found = outcome(gang("new", gpus=3), *items)
    assert (found.kind, victims(found)) == (OutcomeKind.RECLAIMS, ["older"])


def test_then_all_its_projects_are_safe_also_those_that_borrow_from_their_sisters() -> None:
    items = (
        *TWO_DEPARTMENTS,
        queue("team", "department", deserved=4),
        queue("other", "neighbour", deserved=0),
        queue("sister", "neighbour", deserved=1),
        queue("third", ROOT, deserved=0),
        held("first", 1, by="other", priority="very-low"),
        held("safe", 4, by="sister", priority="low"),
        held("lent", 3, by="third", priority="high"),
    )
    assert victims(outcome(gang("new", gpus=4), *items)) == ["first", "lent"]


def test_borrowers_of_the_own_department_are_looked_at_with_those_further_away() -> None:
    items = (
        queue("department", ROOT, deserved=5),
        queue("neighbour", ROOT, deserved=3),
        queue("team", "department", deserved=3),
        queue("sister", "department", deserved=2),
        queue("other", "neighbour", deserved=3),
        held("near", 4, by="sister", priority="medium"),
        held("far", 4, by="other", priority="low"),
    )
    assert victims(outcome(gang("new", gpus=1), *items)) == ["far"]


def test_parents_in_a_circle_are_cut_where_they_close() -> None:
    items = (queue("one", "two", deserved=1), queue("two", "one", deserved=2), queue("team", "one", deserved=1))
    assert outcome(gang("new", gpus=2), *items).kind is OutcomeKind.PLACED


def test_unlimited_quota_is_never_short_and_says_so() -> None:
    items = (queue("department", deserved=None), queue("team", "department", deserved=1, limit=3))
    assert outcome(gang("new", gpus=3), *items).kind is OutcomeKind.PLACED
    found = outcome(gang("new", gpus=4), *items)
    assert (pend(found).allowed.gpu, pend(found).allowed.cpu) == (3000, None)


def test_a_limit_below_what_it_deserves_is_what_it_deserves() -> None:
    items = (queue("team", "department", deserved=None, limit=2), queue("other", "department", deserved=9))
    assert outcome(gang("new", gpus=3), *items).kind is OutcomeKind.PENDING


def test_in_a_queue_the_stronger_comes_first_then_the_older() -> None:
    waiting = (gang("young", created=2), gang("old", created=1), gang("strong", created=3, priority="high"))
    assert said(queue("team", deserved=2), *waiting) == [
        "start strong",
        "start old",
        "wait young: WaitingForQuota",
    ]


def test_who_is_too_big_does_not_keep_the_next_one_waiting() -> None:
    items = (queue("team", deserved=2), gang("big", gpus=3, priority="high"), gang("small"))
    assert said(*items) == ["start small", "wait big: ExceedsMaxQuota"]


def test_between_queues_who_need_not_borrow_comes_first() -> None:
    items = (
        *cohort(team=2, guest=0),
        gang("loan", gpus=1, queue="guest", priority="very-high"),
        gang("own", gpus=2, priority="low"),
    )
    assert said(*items) == ["start own", "wait loan: WaitingForQuota"]


def test_two_that_fit_alone_do_not_both_get_the_same_room() -> None:
    items = (
        *cohort(spare=2, team=0, guest=0),
        gang("first", gpus=2, queue="guest", priority="high"),
        gang("second", gpus=2),
    )
    assert said(*items) == ["start first", "wait second: WaitingForQuota"]


def test_a_victim_is_evicted_once_and_the_next_looks_for_another() -> None:
    items = (
        *cohort(team=2, other=2, guest=0),
        held("new loan", 2, by="guest", start=2),
        held("old loan", 2, by="guest", start=1),
        gang("first", gpus=2, priority="high"),
        gang("second", gpus=2, queue="other"),
    )
    assert said(*items) == ["evict new loan", "wait first: Evicting", "evict old loan", "wait second: Evicting"]


def test_what_is_left_of_a_victims_room_is_waited_for() -> None:
    items = (
        *cohort(team=4, guest=0),
        running("loan", "n", gpus=4, queue="guest", start=1),
        gang("first", gpus=2, priority="high"),
        gang("second", gpus=2),
    )
    assert said(*items) == ["evict loan", "wait first: Evicting", "wait second: Evicting"]


def test_room_that_is_free_anyhow_is_given_out_while_victims_leave() -> None:
    items = (
        *cohort(team=4, guest=1),
        held("loan", 3, by="guest", start=1),
        gang("first", gpus=3, priority="high"),
        gang("second", gpus=1),
    )
    assert said(*items) == ["evict loan", "wait first: Evicting", "start second"]


def test_who_starts_now_is_nobodys_victim_in_the_same_cycle() -> None:
    items = (
        *cohort(team=2, guest=0),
        gang("loan", gpus=2, queue="guest", priority="high"),
        gang("big", gpus=3, priority="very-high"),
        gang("own", gpus=1, priority="low"),
    )
    assert said(*items) == ["start loan", "wait big: ExceedsMaxQuota", "wait own: WaitingForQuota"]
