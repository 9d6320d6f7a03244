"""On KAI others that wait already decide about a candidate, too, as a real one was seen to do (docs/model.md)."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import OutcomeKind
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Snapshot
from tests.builders import gang, node, queue, running, snapshot

LATER = 10


def predicted(found: Snapshot, candidate: PodGroup) -> tuple[OutcomeKind, list[str]]:
    outcome = preview(found, candidate, flavour="kai")
    return outcome.kind, sorted(each.victim.name for each in outcome.victims)


def department_at_its_limit(*waiting: PodGroup) -> Snapshot:
    """One project uses all of it, of which half is the other's."""
    return snapshot(
        node("large", 8),
        node("small", 4),
        queue("department", deserved=8, limit=4),
        queue("lender", "department", deserved=2, limit=6, created=1),
        queue("owner", "department", deserved=2, created=2),
        running("all", "large", gpus=4, queue="lender", priority=90),
        *waiting,
    )


def test_a_queues_turn_is_that_of_whoever_is_next_in_it() -> None:
    candidate = gang("x", gpus=2, queue="owner", priority=125, created=LATER)
    assert predicted(department_at_its_limit(), candidate) == (OutcomeKind.RECLAIMS, ["all"])
    before_it = gang("before", gpus=4, queue="owner", priority=125, created=1)
    assert predicted(department_at_its_limit(before_it), candidate) == (OutcomeKind.PENDING, [])


def lender_in_full_use(*waiting: PodGroup) -> Snapshot:
    """One project uses all 4 GPUs, of which 2 are the other's."""
    return snapshot(
        node("only", 4),
        queue("department", deserved=4),
        queue("lender", "department", deserved=2, created=1),
        queue("owner", "department", deserved=2, created=2),
        running("all", "only", gpus=4, queue="lender", priority=90),
        *waiting,
    )


def behind(found: Snapshot, candidate: PodGroup) -> tuple[str, ...]:
    pend = preview(found, candidate, flavour="kai", explain=True).pend
    return pend.behind if pend else ()


def test_the_reason_names_who_is_ahead_in_the_queue_where_evictions_would_help_the_first_of_it() -> None:
    candidate = gang("x", gpus=2, queue="owner", priority=125, created=LATER)
    larger = gang("larger", gpus=6, queue="owner", priority=125, created=2)
    large = gang("large", gpus=4, queue="owner", priority=125, created=1)
    weaker = gang("weaker", gpus=4, queue="owner", priority=90, created=0)
    elsewhere = gang("elsewhere", gpus=4, queue="lender", priority=125, created=0)
    assert behind(lender_in_full_use(larger, large, weaker, elsewhere), candidate) == ("large", "larger")
    assert predicted(lender_in_full_use(weaker, elsewhere), candidate) == (OutcomeKind.RECLAIMS, ["all"])


def test_no_group_ahead_is_named_where_the_first_of_the_queue_would_wait_as_well() -> None:
    large = gang("large", gpus=4, queue="owner", priority=125, created=1)
    candidate = gang("x", gpus=4, queue="owner", priority=125, created=LATER)
    assert predicted(lender_in_full_use(large), candidate) == (OutcomeKind.PENDING, [])
    assert behind(lender_in_full_use(large), candidate) == ()


def test_what_only_the_priority_of_those_ahead_would_preempt_does_not_count() -> None:
    weak = running("weak", "only", gpus=2, queue="full", priority=65)
    ahead = gang("ahead", gpus=8, queue="full", priority=90)
    found = snapshot(node("only", 2), queue("full", deserved=8), weak, ahead)
    assert behind(found, gang("x", gpus=2, queue="full", priority=65, created=LATER)) == ()


def test_whoever_waits_behind_the_candidate_is_no_hindrance() -> None:
    behind = gang("behind", gpus=4, queue="owner", priority=40, created=1)
    candidate = gang("x", gpus=2, queue="owner", priority=125, created=LATER)
    assert predicted(department_at_its_limit(behind), candidate) == (OutcomeKind.RECLAIMS, ["all"])


FIXED = gang("fixed", gpus=2, queue="full", priority=90, preemptible=False, created=1)


def queue_at_its_limit(*waiting: PodGroup) -> Snapshot:
    """Two that may be evicted fill it; of what is guaranteed to the department another queue has one for good."""
    return snapshot(
        node("only", 4),
        queue("department", deserved=2),
        queue("full", "department", deserved=2, limit=2, created=1),
        queue("other", "department", deserved=1, limit=2, created=2),
        running("fixture", "only", queue="other", priority=90, preemptible=False),
        running("old", "only", queue="full", priority=25),
        running("young", "only", queue="full", priority=65, start=1),
        *waiting,
    )


def test_what_is_no_easier_than_something_alike_that_failed_is_not_tried_though_it_might_succeed() -> None:
    candidate = gang("x", gpus=2, queue="full", priority=90, created=LATER)
    assert predicted(queue_at_its_limit(), candidate) == (OutcomeKind.PREEMPTS, ["old", "young"])
    assert predicted(queue_at_its_limit(FIXED), candidate) == (OutcomeKind.PENDING, [])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(FIXED, priority=91), id="another priority"),
        pytest.param(gang("fixed", gpus=2, pods=2, queue="full", priority=90, preemptible=False), id="more pods"),
        pytest.param(gang("fixed", gpus=3, queue="full", priority=90, preemptible=False), id="larger"),
        pytest.param(replace(FIXED, queue="other"), id="another queue"),
    ],
)
def test_it_is_tried_where_what_failed_is_not_alike_or_larger(other: PodGroup) -> None:
    candidate = gang("x", gpus=2, queue="full", priority=90, created=LATER)
    assert predicted(queue_at_its_limit(other), candidate) == (OutcomeKind.PREEMPTS, ["old", "young"])


def test_of_what_failed_the_easiest_is_remembered() -> None:
    larger = gang("larger", gpus=3, queue="full", priority=90, preemptible=False, created=0)
    candidate = gang("x", gpus=2, queue="full", priority=90, created=LATER)
    assert predicted(queue_at_its_limit(larger, FIXED), candidate) == (OutcomeKind.PENDING, [])


def test_a_gang_of_unequal_pods_is_easier_where_one_of_them_is() -> None:
    """It is tried, and where it fails, too, it is no measure for what comes after it."""
    pair = gang("fixed", gpus=2, pods=2, queue="full", priority=90, preemptible=False, created=1)
    small, large = pair.pods[0], pair.pods[1]
    sizes = (replace(small, requests=Resources.of(gpu=1)), replace(large, requests=Resources.of(gpu=3)))
    uneven = replace(pair, name="uneven", pods=sizes, created=2)
    candidate = gang("x", gpus=1, pods=2, queue="full", priority=90, created=LATER)
    assert predicted(queue_at_its_limit(pair, uneven), candidate) == (OutcomeKind.PREEMPTS, ["old", "young"])
    same = gang("x", gpus=2, pods=2, queue="full", priority=90, created=LATER)
    assert predicted(queue_at_its_limit(pair, uneven), same) == (OutcomeKind.PENDING, [])
