"""Plain kube-scheduler around pods on their way out, room promised to others, overfull nodes and limits of pods."""

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Evict, Outcome, OutcomeKind, Start, Wait
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, SnapshotNode
from tests.builders import gang, node, running, snapshot


def outcome(candidate: PodGroup, *items: SnapshotNode | PodGroup) -> Outcome:
    return preview(snapshot(*items), candidate, flavour="kube")


def victims(found: Outcome) -> list[str]:
    return sorted(evict.victim.name for evict in found.victims)


def reason(found: Outcome) -> Reason | None:
    return found.pend.reason if found.pend else None


def ending(name: str, on: str, *, gpus: int = 1, priority: str | int = "low", start: int = 0) -> PodGroup:
    return gang(name, gpus=gpus, priority=priority, nodes=(on,), terminating=True, started=start, created=start)


def cpu_only(name: str, on: str | None, *, priority: int, cpu: int = 1) -> PodGroup:
    return PodGroup(name, "team", "team", priority, True, (Pod(name, Resources.of(cpu=cpu), on),), started=0)


def test_a_weaker_pod_that_is_ending_makes_room_for_nothing() -> None:
    found = outcome(gang("new", priority="high"), node("n", 1), ending("weak", "n"))
    assert (found.kind, reason(found), found.placements) == (OutcomeKind.PENDING, Reason.EVICTING, {"new-0": "n"})


def test_an_ending_pod_is_given_back_before_a_less_important_one_that_runs() -> None:
    work = (ending("old", "n", start=1), running("young", "n", priority="low", start=5))
    assert victims(outcome(gang("new", priority="high"), node("n", 2), *work)) == ["young"]


def test_the_cheaper_node_is_taken_though_somebody_is_ending_on_another() -> None:
    work = (ending("dear", "a", priority="medium"), running("cheap", "b", priority="low"))
    found = outcome(gang("new", priority="high"), node("a", 1), node("b", 1, order=1), *work)
    assert (victims(found), found.placements) == (["cheap"], {"new-0": "b"})


def test_nobody_waits_for_the_room_of_an_equal_that_is_ending() -> None:
    found = outcome(gang("new", priority="low"), node("n", 1), ending("equal", "n"))
    assert (reason(found), found.placements) == (Reason.NO_ROOM, {})


def test_a_pod_that_has_not_started_is_the_youngest() -> None:
    bound = gang("bound", priority="low", nodes=("n",), created=1)
    found = outcome(gang("new", priority="high"), node("n", 2), bound, running("older", "n", priority="low", start=9))
    assert victims(found) == ["bound"]


@pytest.mark.parametrize(("priority", "expected"), [("medium", []), ("high", []), ("very-high", ["new"])])
def test_promised_room_is_kept_from_all_but_stronger_pods(priority: str, expected: list[str]) -> None:
    first = gang("first", gpus=2, priority="high", nominated="n", created=1)
    decisions = cycle(
        snapshot(node("n", 2), ending("gone", "n"), first, gang("new", priority=priority, created=2)), flavour="kube"
    )
    assert [d.group.name for d in decisions if isinstance(d, Start)] == expected


def test_who_was_promised_room_starts_there_once_it_is_free() -> None:
    first = gang("first", gpus=2, priority="high", nominated="small")
    (start,) = cycle(snapshot(node("big", 8), node("small", 2, order=1), first), flavour="kube")
    assert isinstance(start, Start)
    assert start.placements == {"first-0": "small"}


def test_who_waits_for_its_victims_evicts_nobody_else_meanwhile() -> None:
    work = (ending("dear", "a", priority="medium"), running("cheap", "b", priority="very-low"))
    first = gang("first", priority="high", nominated="a")
    (wait,) = cycle(snapshot(node("a", 1), node("b", 1, order=1), *work, first), flavour="kube")
    assert isinstance(wait, Wait)
    assert (wait.pend.reason, wait.nominated) == (Reason.EVICTING, {"first-0": "a"})


def test_who_has_nobody_to_wait_for_any_more_evicts_again() -> None:
    first = gang("first", gpus=2, priority="high", nominated="a")
    stolen = running("thief", "a", gpus=2, priority="very-high")
    weak = running("weak", "b", gpus=2, priority="low")
    evict, wait = cycle(snapshot(node("a", 2), node("b", 2, order=1), stolen, weak, first), flavour="kube")
    assert isinstance(evict, Evict)
    assert isinstance(wait, Wait)
    assert (evict.victim.name, wait.nominated) == ("weak", {"first-0": "b"})


def test_a_nominated_pod_does_not_wait_for_a_terminating_pod_of_equal_priority() -> None:
    work = (ending("equal", "a", priority="high"), running("weak", "b", priority="low"))
    first = gang("first", priority="high", nominated="a")
    evict, wait = cycle(snapshot(node("a", 1), node("b", 1, order=1), *work, first), flavour="kube")
    assert isinstance(evict, Evict)
    assert isinstance(wait, Wait)
    assert (evict.victim.name, wait.nominated) == ("weak", {"first-0": "b"})


def test_never_keeps_no_promise() -> None:
    first = gang("first", priority="high", nominated="n", never=True)
    (wait,) = cycle(snapshot(node("n", 1), ending("weak", "n"), first), flavour="kube")
    assert isinstance(wait, Wait)
    assert (wait.pend.reason, wait.nominated) == (Reason.PREEMPTION_NEVER, {})


def test_a_stronger_pod_that_evicts_on_the_node_ends_the_promise() -> None:
    nodes = (node("a", 2), node("b", 2, order=1))
    work = (ending("gone", "a", gpus=1, priority="very-low"), running("stays", "a", priority="very-low", start=1))
    other = running("other", "b", gpus=2, priority="low")
    first = gang("first", gpus=1, priority="medium", nominated="a")
    found = cycle(snapshot(*nodes, *work, other, first, gang("new", gpus=2, priority="high")), flavour="kube")
    evicted = [(d.for_group, d.victim.name) for d in found if isinstance(d, Evict)]
    assert evicted == [("new", "stays"), ("first", "other")]


def test_a_promise_on_a_node_that_is_gone_is_none() -> None:
    first = gang("first", priority="high", nominated="gone")
    (start,) = cycle(snapshot(node("n", 1), first), flavour="kube")
    assert isinstance(start, Start)


def test_what_is_not_asked_for_may_be_overdrawn() -> None:
    crowd = (running("a", "n", gpus=2, priority="high"), running("b", "n", gpus=2, priority="high"))
    found = outcome(cpu_only("new", None, priority=25), node("n", 2), *crowd)
    assert (found.kind, found.placements) == (OutcomeKind.PLACED, {"new": "n"})


def test_a_full_kubelet_takes_no_pod_but_an_eviction_makes_a_place() -> None:
    full = node("n", 8, max_pods=2)
    work = (running("old", "n", priority="low", start=1), running("young", "n", priority="low", start=2))
    assert reason(outcome(gang("new", priority="low"), full, *work)) is Reason.NO_ROOM
    assert victims(outcome(gang("new", priority="high"), full, *work)) == ["young"]


def test_a_pod_that_starts_takes_a_place_on_its_node() -> None:
    decisions = cycle(snapshot(node("n", 8, max_pods=1), gang("job", pods=2)), flavour="kube")
    started = [d.placements for d in decisions if isinstance(d, Start)]
    assert started == [{"job-0": "n"}]
