"""Cycles that follow one another: who is the victim of what comes next, and who goes first once victims are gone."""

from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Decision, Evict, Until
from scheduling.model.snapshot import Snapshot
from tests.builders import gang, queue, running, snapshot
from tests.scheduling.forecast.test_replay import replayed, sent

SHARED = (queue("root", deserved=8), queue("a", "root", deserved=4), queue("b", "root", deserved=4))
BORROWS = gang("borrows", gpus=4, queue="a")
LARGE = gang("large", gpus=5, queue="b")
"""More than its queue deserves: it evicts nothing."""
SMALL = gang("small", gpus=3, queue="b", created=1)


def changes(cluster: Snapshot) -> list[Decision]:
    return cycle(cluster, flavour="kueue", about=(), until=Until.CHANGES)


def kinds_and_names(decisions: list[Decision]) -> list[tuple[str, str]]:
    return [
        (type(each).__name__, each.victim.name if isinstance(each, Evict) else each.group.name) for each in decisions
    ]


def test_what_has_just_been_admitted_is_the_first_victim_of_its_priority() -> None:
    cluster = snapshot(*SHARED, running("old", "n", gpus=4, queue="a"), BORROWS, LARGE, SMALL)
    assert kinds_and_names(changes(cluster)) == [("Start", "borrows"), ("Evict", "borrows"), ("Wait", "small")]
    again = kinds_and_names(changes(cluster))
    assert again[:1] == [("Start", "borrows")], "the state is as before the cycle"


def test_a_forecast_does_not_evict_what_has_not_run() -> None:
    cluster = snapshot(*SHARED, running("old", "n", gpus=4, queue="a"), BORROWS, LARGE, SMALL)
    assert kinds_and_names(cycle(cluster, flavour="kueue"))[:2] == [("Start", "borrows"), ("Evict", "old")]


def test_quota_is_reserved_for_a_preemptor_behind_what_borrows_less() -> None:
    """`strong` evicts in its own queue, and borrows; `small` is within its own quota, for which 2 GPUs are free."""
    there = (
        running("low", "n", gpus=2, queue="a", priority=25),
        running("high", "n", gpus=2, queue="a", priority=100),
        running("other", "n", gpus=2, queue="b", priority=100),
    )
    small = gang("small", gpus=2, queue="b", created=1)
    cluster = snapshot(*SHARED, *there, gang("strong", gpus=4, queue="a", priority=90), LARGE, small)
    assert kinds_and_names(changes(cluster)) == [("Evict", "low"), ("Wait", "strong"), ("Start", "small")]


def test_what_does_not_fit_beside_a_reservation_holds_its_queue() -> None:
    """`equal` needs what `strong` waits for, `later` of its queue would fit."""
    queues = (queue("root", deserved=8), queue("a", "root", deserved=8), queue("b", "root", deserved=0))
    there = (running("low", "n", gpus=4, queue="a", priority=25), running("high", "n", gpus=1, queue="a", priority=100))
    waiting = (
        gang("strong", gpus=6, queue="a", priority=90),
        gang("huge", gpus=8, queue="b", priority=90),
        gang("equal", gpus=2, queue="b", priority=80),
        gang("later", gpus=1, queue="b", priority=70),
    )
    cluster = snapshot(*queues, *there, *waiting)
    assert kinds_and_names(changes(cluster)) == [("Evict", "low"), ("Wait", "strong")]


def test_a_preemptor_goes_first_in_its_queue_once_its_victims_are_gone() -> None:
    """Else `large`, which is older, would be refused first, and `borrows` would take the GPUs again and again."""
    trace = (
        sent("old", 0, 1000, 4, queue="a"),
        sent("borrows", 1, 1000, 4, queue="a"),
        sent("large", 2, 1000, 5, queue="b"),
        sent("small", 3, 1000, 3, queue="b"),
        sent("late", 20, 1000, 1, queue="b"),
    )
    found = replayed(snapshot(*SHARED), *trace, flavour="kueue", grace=30)
    assert {name: run.evictions for name, run in found.items() if run.evictions} == {"borrows": 1}
    assert found["small"].started == 33
