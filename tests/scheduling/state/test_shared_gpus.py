"""Parts of a GPU: each is one device's, and what a shared device has left is for parts alone."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import cycle, preview
from scheduling.model.decisions import Evict, OutcomeKind, Start
from scheduling.model.resources import Resources, SharedGpus
from scheduling.model.snapshot import Pod, PodGroup, Strategy
from scheduling.state.cluster_state import SchedulingState
from tests.builders import gang, node, queue, snapshot

DEP, TEAM = queue("dep", deserved=None), queue("team", "dep", deserved=16)


def part(name: str, share: str, *, on: str = "", device: str = "", priority: int = 80) -> PodGroup:
    """A group of one pod with a part of a GPU, waiting or on a node."""
    base = gang(name, nodes=(on,) if on else (), priority=priority)
    pods = tuple(replace(pod, requests=Resources.of(gpu=share), device=device) for pod in base.pods)
    return replace(base, pods=pods)


def outcome(candidate: PodGroup, *there: PodGroup, gpus: int = 2) -> OutcomeKind:
    return preview(snapshot(DEP, TEAM, node("n", gpus), *there), candidate, flavour="kai").kind


@pytest.mark.parametrize(
    ("share", "kind"),
    [("0.2", OutcomeKind.PLACED), ("0.3", OutcomeKind.PENDING)],
    ids=["as much as is left", "more than is left"],
)
def test_a_part_comes_out_of_one_device(share: str, kind: OutcomeKind) -> None:
    """Of both 0.4 is left in sum."""
    one, other = part("one", "0.8", on="n", device="a"), part("other", "0.8", on="n", device="b")
    assert outcome(part("asked", share), one, other) is kind


def test_what_shared_gpus_have_left_makes_no_entire_one() -> None:
    halves = [part(name, "0.5", on="n", device=name) for name in ("a", "b")]
    assert outcome(gang("asked"), *halves) is OutcomeKind.PENDING
    assert outcome(gang("asked"), *halves, gpus=3) is OutcomeKind.PLACED


def test_a_refusal_counts_entire_gpus_for_who_wants_entire_ones() -> None:
    there = snapshot(DEP, TEAM, node("n", 2), *(part(name, "0.4", on="n", device=name) for name in ("a", "b")))
    whole = preview(there, gang("asked"), flavour="kai").pend
    share = preview(there, part("asked", "0.7"), flavour="kai").pend
    assert whole is not None
    assert share is not None
    assert (whole.free.gpu, share.free.gpu, share.largest_free.gpu) == (0, 600, 600)


def test_parts_of_unknown_devices_are_taken_to_fill_one_before_the_next() -> None:
    halves = [part(name, "0.5", on="n") for name in ("a", "b")]
    assert outcome(gang("asked"), *halves) is OutcomeKind.PLACED
    assert outcome(part("asked", "0.5"), *halves, gpus=1) is OutcomeKind.PENDING


def test_a_node_with_a_fitting_shared_gpu_goes_before_a_fuller_one() -> None:
    there = snapshot(
        DEP, TEAM, node("full", 2), node("shared", 4), gang("x", nodes=("full",)), part("a", "0.5", on="shared")
    )
    [start] = [
        each for each in cycle(there.with_groups([part("asked", "0.5")]), flavour="kai") if isinstance(each, Start)
    ]
    assert set(start.placements.values()) == {"shared"}


def test_parts_that_start_together_fill_a_device_before_the_next() -> None:
    requested = part("asked", "0.5")
    four = replace(
        requested, pods=tuple(Pod(str(number), requested.pods[0].requests) for number in range(4)), min_member=4
    )
    assert outcome(four) is OutcomeKind.PLACED
    assert outcome(four, gang("x", nodes=("n",))) is OutcomeKind.PENDING


def test_who_needs_an_entire_gpu_evicts_all_that_share_one() -> None:
    weak = [part(name, "0.5", on="n", device="a", priority=10) for name in ("one", "other")]
    there = snapshot(DEP, TEAM, node("n", 1), *weak)
    found = preview(there, gang("asked"), flavour="kai")
    assert found.kind is OutcomeKind.PREEMPTS
    assert {each.victim.name for each in found.victims} == {"one", "other"}


def test_a_part_waits_for_one_that_ends_and_takes_its_device() -> None:
    there = snapshot(
        DEP, TEAM, node("n", 1), part("one", "0.6", on="n", device="a"), part("other", "0.4", on="n", device="a")
    )
    ends = replace(there.group_by_name["one"].pods[0], terminating=True)
    there = there.with_groups([replace(there.group_by_name["one"], pods=(ends,))])
    decisions = cycle(there.with_groups([part("asked", "0.6")]), flavour="kai")
    assert not [each for each in decisions if isinstance(each, Evict | Start)]
    assert preview(there, part("asked", "0.6"), flavour="kai").placements == {"asked-0": "n"}


def test_undoing_gives_the_part_back() -> None:
    requested = part("asked", "0.5")
    state = SchedulingState(snapshot(DEP, TEAM, node("n", 1), requested), default=Strategy.BINPACK)
    mark, capacity = state.mark(), state.capacities.get("n")
    assert capacity is not None
    state.place(requested, requested.pods[0], capacity, now=True)
    assert (capacity.entire(now=True), bool(capacity.shared)) == (0, True)
    state.undo(mark)
    assert (capacity.entire(now=True), bool(capacity.shared)) == (1000, False)


def test_a_new_device_has_a_name_that_no_other_one_has() -> None:
    shared = SharedGpus()
    shared.change("0", now=500)
    shared.change("1", later=500)
    assert shared.new() == "2"
