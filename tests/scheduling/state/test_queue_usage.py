"""Limits bind every workload, deserved quota binds work that is never evicted; at the project and above it."""

import pytest

from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Limit, Resources
from scheduling.model.snapshot import Queue
from scheduling.state.queue_usage import QueueUsage, QueueUsageTracker, UsageEntry, fits_quota
from tests.builders import queue, usage

GPU = Resources.of(gpu=1)


def reason_of(pend: PendingReason | None) -> Reason | None:
    return pend.reason if pend else None


@pytest.mark.parametrize(
    ("used", "gpus", "reason"),
    [
        pytest.param(4, 4, None, id="exactly the deserved quota"),
        pytest.param(4, 5, Reason.NON_PREEMPTIBLE_OVER_QUOTA, id="one GPU beyond it"),
    ],
)
def test_non_preemptible_work_stays_within_the_deserved_quota(used: int, gpus: int, reason: Reason | None) -> None:
    team = queue("team", deserved=8, limit=16)
    answer = fits_quota([team], {"team": usage(non_preemptible=used)}, GPU * gpus, preemptible=False)
    assert reason_of(answer) is reason


def test_preemptible_work_in_the_same_queue_does_not_count_against_the_guarantee() -> None:
    team = queue("team", deserved=2)
    assert fits_quota([team], {"team": usage(used=9)}, GPU * 2, preemptible=False) is None


@pytest.mark.parametrize("preemptible", [True, False])
def test_nothing_passes_the_limit(preemptible: bool) -> None:
    team = queue("team", deserved=8, limit=4)
    answer = fits_quota([team], {"team": usage(used=3)}, GPU * 2, preemptible=preemptible)
    assert answer is not None
    assert (answer.reason, answer.queue, answer.missing) == (Reason.OVER_LIMIT, "team", GPU)
    assert answer.numbers() == {
        "needed": "2 GPU",
        "queue": "team",
        "used": "3 GPU",
        "allowed": "4 GPU",
        "missing": "1 GPU",
        "short": "gpu",
    }


def test_the_department_refuses_too() -> None:
    path = [queue("team", "dep", deserved=8), queue("dep", deserved=4, limit=6)]
    uses = {"team": usage(), "dep": usage(used=1, non_preemptible=4)}
    assert reason_of(fits_quota(path, uses, GPU, preemptible=False)) is Reason.NON_PREEMPTIBLE_OVER_QUOTA
    assert reason_of(fits_quota(path, uses, GPU * 2, preemptible=True)) is Reason.OVER_LIMIT
    assert fits_quota(path, uses, GPU, preemptible=True) is None


def test_limits_are_named_before_quotas() -> None:
    path = [queue("team", "dep", deserved=0), queue("dep", limit=0)]
    pend = fits_quota(path, {}, GPU, preemptible=False)
    assert pend is not None
    assert (pend.reason, pend.queue) == (Reason.OVER_LIMIT, "dep")
    assert (reason_of(pend.second), pend.second and pend.second.queue) == (Reason.NON_PREEMPTIBLE_OVER_QUOTA, "team")


def test_a_dimension_that_is_not_asked_for_never_refuses() -> None:
    team = Queue("team", deserved=Limit(0, 0, 0), limit=Limit(gpu=1000, cpu=1000, memory=1))
    crowded = {"team": QueueUsage(Resources(gpu=9000), Resources(gpu=9000))}
    assert fits_quota([team], crowded, Resources(cpu=1000), preemptible=True) is None
    assert reason_of(fits_quota([team], crowded, Resources(memory=2), preemptible=True)) is Reason.OVER_LIMIT


def test_use_counts_for_the_queue_and_all_above_it() -> None:
    usage = QueueUsageTracker([queue("dep"), queue("team", "dep"), queue("other", "dep")])
    usage.charge("team", GPU * 2, preemptible=True)
    usage.charge("team", GPU, preemptible=False)
    usage.enter([UsageEntry("other", True, ZERO, GPU)])
    assert usage.uses["team"] == QueueUsage(GPU * 3, GPU, ZERO)
    assert usage.uses["dep"] == QueueUsage(GPU * 3, GPU, GPU)
    usage.charge("team", GPU * -3, preemptible=True)
    assert usage.uses["other"].allocated == usage.uses["dep"].allocated == ZERO


def test_an_unknown_queue_has_no_path_and_no_limits() -> None:
    usage = QueueUsageTracker([])
    usage.charge("nowhere", GPU, preemptible=True)
    assert usage.path("nowhere") == ()
    assert usage.refusal("nowhere", GPU, preemptible=False) is None


def test_a_loop_of_parents_ends() -> None:
    usage = QueueUsageTracker([queue("a", "b"), queue("b", "a")])
    assert [found.name for found in usage.path("a")] == ["a", "b"]
