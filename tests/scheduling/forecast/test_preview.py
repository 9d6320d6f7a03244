"""A preview is the next cycle with one more workload in it."""

from dataclasses import replace
from itertools import count

import pytest

from scheduling.forecast.cycle import FLAVOURS, Flavour, cycle, preview
from scheduling.model.decisions import OutcomeKind, Wait
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode
from scheduling.state.workspace import interrupted_when
from tests.builders import gang, node, queue, running, snapshot


@pytest.mark.parametrize("flavour", list(Flavour))
def test_every_flavour_has_rules(flavour: Flavour) -> None:
    assert flavour in FLAVOURS
    assert cycle(snapshot(), flavour=flavour) == []


@pytest.mark.parametrize("ask", ["slurm", "KAI", ""])
def test_a_flavour_without_a_model_is_refused(ask: str) -> None:
    with pytest.raises(ValueError, match="no model of the scheduler"):
        cycle(snapshot(), flavour=ask)


@pytest.mark.parametrize("flavour", list(Flavour))
def test_it_competes_with_what_already_waits(flavour: str) -> None:
    team = (queue("dep", deserved=None), queue("team", "dep", deserved=1, limit=1))
    before = snapshot(node("n", 1), *team, gang("older", created=1))
    assert preview(before, gang("mine", created=2), flavour=flavour).kind is OutcomeKind.PENDING
    assert preview(before, gang("mine", created=2, priority="medium-high"), flavour=flavour).kind is OutcomeKind.PLACED


@pytest.mark.parametrize("flavour", list(Flavour))
def test_it_is_said_again_for_a_workload_that_is_known(flavour: str) -> None:
    team = (queue("dep", deserved=None), queue("team", "dep", deserved=9))
    before = snapshot(node("n", 4), *team, gang("mine", gpus=8))
    found = preview(before, gang("mine", gpus=2), flavour=flavour)
    assert found.kind is OutcomeKind.PLACED
    assert found.placements in ({"mine-0": "n"}, {})


def test_a_group_that_starts_in_part_still_pends() -> None:
    found = preview(snapshot(node("n", 1)), gang("job", pods=2), flavour="kube")
    assert (found.kind, found.placements, found.pend and found.pend.reason) == (
        OutcomeKind.PENDING,
        {"job-0": "n"},
        Reason.NO_ROOM,
    )


def test_it_says_how_many_of_several_pods_start_and_what_was_free_before_the_first_did() -> None:
    found = preview(snapshot(node("n", 8), node("m", 8)), gang("serve", pods=3, gpus=8), flavour="kube")
    assert (found.starting, found.coming, found.waiting, found.partial) == (2, 0, 1, True)
    assert found.pend is not None
    assert (found.pend.needed.gpu, found.pend.free.gpu, found.pend.largest_free.gpu) == (24_000, 16_000, 8000)


def test_what_a_stronger_one_takes_in_front_of_it_was_not_free_for_it() -> None:
    strong = gang("strong", gpus=8, priority="very-high")
    found = preview(snapshot(node("n", 8), node("m", 8), strong), gang("serve", pods=3, gpus=4), flavour="kube")
    assert found.pend is not None
    assert (found.starting, found.waiting, found.pend.free.gpu) == (2, 1, 8000)


def test_it_says_how_many_start_once_the_evicted_have_left() -> None:
    low = running("low", "n", gpus=8, priority="low")
    strong = running("strong", "m", gpus=8, priority="very-high")
    found = preview(snapshot(node("n", 8), node("m", 8), low, strong), gang("mine", pods=2, gpus=8), flavour="kube")
    assert (found.kind, found.starting, found.coming, found.waiting) == (OutcomeKind.PREEMPTS, 0, 1, 1)


def test_the_numbers_of_a_quota_are_those_of_the_whole_where_a_part_of_it_starts() -> None:
    team = queue("team", limit=4)
    used = running("other", "n", gpus=1, priority="very-high")
    found = preview(snapshot(node("n", 8), team, used), gang("serve", pods=3, gpus=2), flavour="kube")
    assert found.pend is not None
    assert (found.starting, found.waiting, found.pend.reason) == (1, 2, Reason.OVER_LIMIT)
    assert (found.pend.needed.gpu, found.pend.used.gpu, found.pend.missing.gpu) == (6000, 1000, 3000)


def test_of_pods_that_differ_the_one_that_never_fits_has_its_own_numbers() -> None:
    small, large = gang("mine:0", gpus=1), gang("mine:1", gpus=9)
    found = preview(snapshot(node("n", 8)), small, large, flavour="kube")
    assert found.pend is not None
    assert (found.starting, found.pend.reason, found.pend.needed.gpu) == (1, Reason.NEVER_FITS, 9000)


@pytest.mark.parametrize("flavour", list(Flavour))
def test_a_pod_larger_than_any_node_never_fits_whatever_its_quota(flavour: Flavour) -> None:
    team = (queue("dep", deserved=12, limit=12), queue("team", "dep", deserved=12, limit=12))
    there = snapshot(node("n", 8), node("m", 8), *team, running("other", "n", gpus=7))
    found = preview(there, gang("mine", gpus=9), flavour=flavour)
    assert found.pend is not None
    assert (found.kind, found.pend.reason, found.pend.largest_free.gpu) == (
        OutcomeKind.PENDING,
        Reason.NEVER_FITS,
        8000,
    )
    two = preview(there, gang("mine", gpus=3, pods=2), flavour=flavour)
    assert two.pend is None or two.pend.reason is not Reason.NEVER_FITS


@pytest.mark.parametrize("flavour", ["kai", "kueue"])
def test_pods_that_are_groups_of_their_own_start_each_for_itself(flavour: str) -> None:
    team = (queue("dep", deserved=2, limit=2), queue("team", "dep", deserved=2, limit=2))
    pods = [gang(f"serve:{number}") for number in range(3)]
    found = preview(snapshot(node("n", 2), *team), *pods, flavour=flavour)
    assert (found.kind, found.starting, found.coming, found.waiting) == (OutcomeKind.PENDING, 2, 0, 1)


def test_others_that_start_without_a_node_leave_the_nodes_as_they_are() -> None:
    team = (queue("dep", deserved=2, limit=2), queue("team", "dep", deserved=2, limit=2))
    other = (queue("other", deserved=2, limit=2), gang("theirs", queue="other"))
    pods = [gang(f"serve:{number}") for number in range(3)]
    found = preview(snapshot(node("n", 2), *team, *other), *pods, flavour="kueue")
    assert (found.starting, found.waiting, found.pend and found.pend.needed.gpu) == (2, 1, 3000)


def test_all_of_what_is_admitted_without_a_look_at_nodes_comes_or_starts() -> None:
    team = (queue("dep", deserved=4), queue("team", "dep", deserved=4))
    two = preview(snapshot(*team), gang("mine", pods=2), flavour="kueue")
    assert (two.kind, two.starting, two.waiting) == (OutcomeKind.PLACED, 2, 0)
    low = running("low", "n", gpus=4, priority="low")
    evicts = preview(snapshot(node("n", 4), *team, low), gang("mine", pods=2, gpus=2), flavour="kueue")
    assert (evicts.kind, evicts.coming, evicts.waiting) == (OutcomeKind.PREEMPTS, 2, 0)


def test_only_its_own_victims_are_shown() -> None:
    others = (running("low", "a", priority="low"), gang("strong", priority="very-high"))
    found = preview(snapshot(node("a", 1), *others), gang("mine", priority="high"), flavour="kube")
    assert (found.kind, found.victims) == (OutcomeKind.PENDING, ())


@pytest.mark.parametrize("flavour", list(Flavour))
def test_the_snapshot_is_not_touched(flavour: str) -> None:
    team = (queue("dep", deserved=None), queue("team", "dep", deserved=2))
    items = (node("n", 2), *team, running("low", "n", gpus=2, priority="low"))
    before = snapshot(*items)
    preview(before, gang("new", priority="medium"), flavour=flavour)
    assert before == snapshot(*items)
    assert not [decision for decision in cycle(before, flavour=flavour) if isinstance(decision, Wait)]


def at_its_limit(*items: SnapshotNode | Queue | PodGroup, flavour: str = "kai") -> tuple[Reason | None, Reason | None]:
    """The refusal of 2 more GPUs for a project that uses its limit of 4, and what it would be with 2 more of that."""
    mine = (running("own", "n", gpus=4, queue="mine"), queue("mine", "dep", deserved=2, limit=4))
    other = queue("other", "dep", deserved=2, created=1)
    found = snapshot(queue("dep", deserved=6, limit=6), *mine, other, *items)
    pend = preview(found, gang("new", gpus=2, queue="mine"), flavour=flavour, explain=True).pend
    assert pend == replace(plain(found, flavour), then=pend and pend.then), "the quotas are as before"
    return pend and pend.reason, pend and pend.then and pend.then.reason


def plain(found: Snapshot, flavour: str) -> PendingReason:
    pend = preview(found, gang("new", gpus=2, queue="mine"), flavour=flavour).pend
    assert pend
    return pend


@pytest.mark.parametrize("flavour", ["kai", "volcano", "kube"])
def test_a_limit_is_the_only_reason_where_there_is_room(flavour: str) -> None:
    assert at_its_limit(node("n", 6), flavour=flavour) == (Reason.OVER_LIMIT, None)


@pytest.mark.parametrize("flavour", ["kai", "volcano", "kube"])
def test_with_a_limit_the_reason_names_that_there_is_no_room_either(flavour: str) -> None:
    assert at_its_limit(node("n", 5), flavour=flavour) == (Reason.OVER_LIMIT, Reason.NO_ROOM)


def test_a_reason_holds_alone_where_no_time_is_left_to_explain_it() -> None:
    quota = queue("mine", deserved=2, limit=4)
    found = snapshot(node("n", 5), quota, running("own", "n", gpus=4, queue="mine"))
    new = gang("new", gpus=2, queue="mine")
    in_time = preview(found, new, flavour="kube", explain=True).pend
    steps, again = count(), count()
    with interrupted_when(lambda: next(steps) < 0):
        preview(found, new, flavour="kube")
    enough = next(steps)
    with interrupted_when(lambda: next(again) >= enough):
        late = preview(found, new, flavour="kube", explain=True).pend
    assert in_time
    assert in_time.then
    assert late == replace(in_time, then=None)


def test_a_limit_is_the_only_reason_where_more_quota_would_evict() -> None:
    borrower = queue("borrower", deserved=0, created=2)
    work = running("theirs", "n", gpus=2, queue="borrower", priority="low")
    assert at_its_limit(node("n", 6), borrower, work) == (Reason.OVER_LIMIT, None)


def test_with_a_projects_limit_the_reason_names_that_of_its_department() -> None:
    work = running("theirs", "n", gpus=1, queue="other", preemptible=False)
    assert at_its_limit(node("n", 8), work) == (Reason.OVER_LIMIT, Reason.OVER_LIMIT)


def test_what_non_preemptible_work_lacks_of_limit_and_deserved_quota_is_lifted_together() -> None:
    fixed = gang("new", gpus=2, queue="mine", priority="high")
    work = running("own", "n", gpus=4, queue="mine", priority="high")
    quota = queue("mine", deserved=4, limit=4)
    for gpus, then in ((6, None), (5, Reason.NO_ROOM)):
        pend = preview(snapshot(node("n", gpus), quota, work), fixed, flavour="kai", explain=True).pend
        assert pend
        assert pend.second
        assert (pend.then and pend.then.reason) == then
