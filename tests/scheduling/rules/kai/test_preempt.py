"""KAI inside one queue: preempt, quotas and limits, gangs; what surprises even its admins is on purpose."""

import pytest

from scheduling.model.decisions import OutcomeKind, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup
from tests.builders import gang, node, queue, running
from tests.scheduling.rules.kai.decisions import DEP, decide, outcome, reason, victims

# Preempt: inside one queue


def test_preempts_strictly_lower_preemptible_work_of_its_own_queue() -> None:
    team = (DEP, queue("team", "dep", deserved=2))
    low = running("low", "n", gpus=2, priority="low")
    found = outcome(gang("new", priority="medium"), node("n", 2), *team, low)
    assert (found.kind, victims(found), reason(found)) == (OutcomeKind.PREEMPTS, ["low"], Reason.EVICTING)
    assert found.victims[0].cause is Cause.PREEMPT


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(running("other", "n", priority="medium"), id="equal priority"),
        pytest.param(running("other", "n", priority="low", preemptible=False), id="non-preemptible"),
        pytest.param(running("other", "n", priority="low", queue="next"), id="another queue inside its quota"),
    ],
)
def test_spares(other: PodGroup) -> None:
    queues = (DEP, queue("team", "dep", deserved=1), queue("next", "dep", deserved=1))
    found = outcome(gang("new", priority="medium"), node("n", 1), *queues, other)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_the_lowest_then_youngest_goes_first_and_size_plays_no_part() -> None:
    team = (DEP, queue("team", "dep", deserved=6))
    work = [
        running("old", "a", gpus=1, priority="low", start=1),
        running("young", "b", gpus=4, priority="low", start=2),
        running("stronger", "c", gpus=1, priority="medium-low", start=3),
    ]
    nodes = [node("a", 1), node("b", 4), node("c", 1)]
    assert victims(outcome(gang("new", priority="medium"), *nodes, *team, *work)) == ["young"]


def test_who_is_not_needed_on_the_node_is_given_back() -> None:
    team = (DEP, queue("team", "dep", deserved=4))
    work = [
        running("weak", "n", gpus=1, priority="very-low", start=1),
        running("strong", "n", gpus=3, priority="low", start=2),
    ]
    assert victims(outcome(gang("new", gpus=3, priority="medium"), node("n", 4), *team, *work)) == ["strong"]


def test_never_is_ignored() -> None:
    low = running("low", "n", priority="low")
    found = outcome(gang("new", never=True), node("n", 1), DEP, queue("team", "dep", deserved=1), low)
    assert found.kind is OutcomeKind.PREEMPTS


def test_a_queue_at_its_limit_evicts_though_a_node_has_room() -> None:
    queues = (queue("dep", limit=4), queue("team", "dep", deserved=4))
    low = running("low", "a", gpus=4, priority="low")
    found = outcome(gang("new", priority="medium"), node("a", 4), node("b", 8, order=1), *queues, low)
    assert (found.kind, victims(found), found.placements) == (OutcomeKind.PREEMPTS, ["low"], {"new-0": "b"})


def test_a_limit_that_eviction_cannot_cure_is_the_reason() -> None:
    queues = (queue("dep", limit=1), queue("team", "dep", deserved=4))
    found = outcome(gang("new", gpus=2), node("n", 8), *queues)
    assert (reason(found), found.pend and found.pend.queue) == (Reason.OVER_LIMIT, "dep")


# Quotas


def test_non_preemptible_work_over_quota_is_refused_on_an_empty_cluster() -> None:
    queues = (queue("dep", deserved=1), queue("team", "dep", deserved=4))
    found = outcome(gang("new", gpus=2, priority="high"), node("n", 8), *queues)
    assert (reason(found), found.pend and found.pend.queue) == (Reason.NON_PREEMPTIBLE_OVER_QUOTA, "dep")


def test_preemptible_work_goes_over_quota_freely_and_says_so() -> None:
    found = outcome(gang("new", gpus=2), node("n", 8), DEP, queue("team", "dep"))
    assert (found.kind, found.over_quota) == (OutcomeKind.PLACED, True)


def test_two_reasons_are_both_told() -> None:
    found = outcome(gang("new", gpus=9, priority="high"), node("n", 8), DEP, queue("team", "dep", deserved=1))
    assert found.pend is not None
    assert (found.pend.reason, found.pend.also) == (Reason.NEVER_FITS, (Reason.NON_PREEMPTIBLE_OVER_QUOTA,))


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        pytest.param(gang("new", queue="nowhere"), Reason.QUEUE_MISSING, id="no such queue"),
        pytest.param(gang("new", queue="dep"), Reason.QUEUE_MISSING, id="a department holds no work"),
        pytest.param(gang("new", queue="orphan"), Reason.QUEUE_MISSING, id="its department is missing"),
        pytest.param(gang("new", pool="h100"), Reason.NO_SUCH_POOL, id="no such pool"),
        pytest.param(gang("new", gpus=9), Reason.NEVER_FITS, id="larger than any node"),
        pytest.param(gang("new", gpus=5, pods=2), Reason.NEVER_FITS, id="larger than the pool"),
    ],
)
def test_what_can_never_run_says_so(candidate: PodGroup, expected: Reason) -> None:
    queues = (DEP, queue("team", "dep"), queue("orphan", "gone"))
    assert reason(outcome(candidate, node("n", 8), *queues)) is expected


# Gangs


def test_a_gang_evicts_for_all_its_pods_or_for_none() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    work = [running(f"low{index}", f"n{index}", gpus=2, priority="low", start=index) for index in range(2)]
    nodes = [node(f"n{index}", 2, order=index) for index in range(2)]
    both = outcome(gang("new", gpus=2, pods=2), *nodes, *team, *work)
    kept = running("kept", "n1", gpus=2, priority="medium", start=7)
    neither = outcome(gang("new", gpus=2, pods=2), *nodes, *team, work[0], kept)
    assert (victims(both), sorted(both.placements.values())) == (["low0", "low1"], ["n0", "n1"])
    assert (neither.kind, reason(neither)) == (OutcomeKind.PENDING, Reason.NO_ROOM)


def test_a_gang_waits_until_all_its_pods_exist() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    found = outcome(gang("new", pods=2, min_member=3), node("n", 8), *team)
    assert (found.kind, reason(found)) == (OutcomeKind.PENDING, Reason.GANG_INCOMPLETE)


def test_one_victims_room_may_serve_the_whole_gang() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    work = [running("big", "a", gpus=2, priority="low", start=2), running("old", "b", gpus=2, priority="low", start=1)]
    found = outcome(gang("new", pods=2), node("a", 2), node("b", 2), *team, *work)
    assert (victims(found), set(found.placements.values())) == (["big"], {"a"})


def test_a_victim_gang_goes_whole() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    low = gang("low", pods=2, priority="low", nodes=("a", "b"))
    (evict,) = outcome(gang("new"), node("a", 1), node("b", 1), *team, low).victims
    assert sorted(evict.pods) == ["low-0", "low-1"]


def test_pods_beyond_the_minimum_go_one_by_one_youngest_first() -> None:
    team = (DEP, queue("team", "dep", deserved=9))
    low = gang("low", pods=3, min_member=1, priority="low", nodes=("n", "n", "n"))
    (evict,) = outcome(gang("new"), node("n", 3), *team, low).victims
    assert evict.pods == ("low-2",)


def test_reclaiming_counts_extra_pods_one_by_one() -> None:
    queues = (DEP, queue("mine", "dep", deserved=2), queue("theirs", "dep", deserved=2))
    elastic = gang("elastic", pods=4, min_member=2, queue="theirs", priority="low", nodes=("n",) * 4)
    (evict,) = outcome(gang("new", gpus=2, queue="mine"), node("n", 4), *queues, elastic).victims
    assert sorted(evict.pods) == ["elastic-2", "elastic-3"]


def test_a_started_gang_takes_more_pods_when_there_is_room() -> None:
    team = (DEP, queue("team", "dep"))
    group = gang("job", gpus=1, pods=4, min_member=2)
    start, wait = decide(node("n", 3), *team, group)
    assert isinstance(start, Start)
    assert isinstance(wait, Wait)
    assert list(start.placements) == ["job-0", "job-1", "job-2"]
    assert (wait.pend.reason, wait.pend.needed) == (Reason.NO_ROOM, Resources.of(gpu=1))
