"""A preview is the next cycle with one more workload in it."""

import pytest

from scheduling.cycle import FLAVOURS, Flavour, cycle, preview
from scheduling.decisions import Kind, Wait
from scheduling.reasons import Reason
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
    assert preview(before, gang("mine", created=2), flavour=flavour).kind is Kind.PENDING
    assert preview(before, gang("mine", created=2, priority="medium-high"), flavour=flavour).kind is Kind.PLACED


@pytest.mark.parametrize("flavour", list(Flavour))
def test_it_is_said_again_for_a_workload_that_is_known(flavour: str) -> None:
    team = (queue("dep", deserved=None), queue("team", "dep", deserved=9))
    before = snapshot(node("n", 4), *team, gang("mine", gpus=8))
    found = preview(before, gang("mine", gpus=2), flavour=flavour)
    assert found.kind is Kind.PLACED
    assert found.placements in ({"mine-0": "n"}, {})


def test_a_group_that_starts_in_part_still_pends() -> None:
    found = preview(snapshot(node("n", 1)), gang("job", pods=2), flavour="kube")
    assert (found.kind, found.placements, found.pend and found.pend.reason) == (
        Kind.PENDING,
        {"job-0": "n"},
        Reason.NO_ROOM,
    )


def test_only_its_own_victims_are_shown() -> None:
    others = (running("low", "a", priority="low"), gang("strong", priority="very-high"))
    found = preview(snapshot(node("a", 1), *others), gang("mine", priority="high"), flavour="kube")
    assert (found.kind, found.victims) == (Kind.PENDING, ())


@pytest.mark.parametrize("flavour", list(Flavour))
def test_the_snapshot_is_not_touched(flavour: str) -> None:
    team = (queue("dep", deserved=None), queue("team", "dep", deserved=2))
    items = (node("n", 2), *team, running("low", "n", gpus=2, priority="low"))
    before = snapshot(*items)
    preview(before, gang("new", priority="medium"), flavour=flavour)
    assert before == snapshot(*items)
    assert not [decision for decision in cycle(before, flavour=flavour) if isinstance(decision, Wait)]
