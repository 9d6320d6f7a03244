"""On Volcano pods that are younger than they carry are taken by no action from which the plugin cdp keeps them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Evict, Outcome, OutcomeKind
from scheduling.model.preemptibility import MIN_RUNTIME_CAUSES, Cause, EvictionExemptions
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode
from scheduling.state.min_runtime import protected_until
from tests.builders import gang, node, queue, running, snapshot
from tests.scheduling.test_invariants import clusters, life

NOW = 100
BOTH = MIN_RUNTIME_CAUSES
TEAM, NEXT = queue("team", deserved=4), queue("next", deserved=0, created=1)


def carrying(group: PodGroup, time: int) -> PodGroup:
    return replace(group, min_runtime=time)


def seen(*items: SnapshotNode | Queue | PodGroup, spared: frozenset[Cause] = BOTH, now: int | None = NOW) -> Snapshot:
    """As a configuration sees it whose plugin cdp has the last word about these actions."""
    return replace(snapshot(*items), now=now, exempt=EvictionExemptions(inside_min_runtime=spared))


def outcome(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup, spared: frozenset[Cause] = BOTH) -> Outcome:
    return preview(seen(*items, spared=spared), candidate, flavour="volcano")


def victims(found: Outcome) -> list[str]:
    return sorted(pod for evict in found.victims for pod in evict.pods)


@pytest.mark.parametrize("cause", [Cause.PREEMPT, Cause.RECLAIM])
@pytest.mark.parametrize(
    ("time", "spared", "taken"),
    [
        pytest.param(50, BOTH, False, id="young"),
        pytest.param(30, BOTH, True, id="over to the very moment"),
        pytest.param(0, BOTH, True, id="it carries none"),
        pytest.param(50, frozenset(), True, id="nobody asks what it carries"),
    ],
)
def test_protected_work_stays_where_the_scheduler_asks(
    cause: Cause, time: int, spared: frozenset[Cause], taken: bool
) -> None:
    home = "team" if cause is Cause.PREEMPT else "next"
    young = carrying(running("young", "n", queue=home, priority="low", start=70), time)
    found = outcome(gang("new"), node("n", 1), TEAM, NEXT, young, spared=spared)
    assert victims(found) == ["young-0"] * taken
    assert all(each.cause is cause for each in found.victims)


@pytest.mark.parametrize(("kept", "taken"), [(Cause.PREEMPT, Cause.RECLAIM), (Cause.RECLAIM, Cause.PREEMPT)])
def test_kept_from_one_action_it_is_taken_by_the_other(kept: Cause, taken: Cause) -> None:
    mine = carrying(running("mine", "n", priority="low", start=70), 50)
    theirs = carrying(running("theirs", "n", queue="next", start=70), 50)
    found = outcome(gang("new"), node("n", 2), TEAM, NEXT, mine, theirs, spared=frozenset({kept}))
    assert [each.cause for each in found.victims] == [taken]


def test_an_older_one_goes_in_its_place() -> None:
    old = carrying(running("old", "n", priority="medium-low", start=1), 50)
    young = carrying(running("young", "n", priority="low", start=70), 50)
    assert victims(outcome(gang("new"), node("n", 2), TEAM, old, young)) == ["old-0"]
    assert victims(outcome(gang("new"), node("n", 2), TEAM, old, young, spared=frozenset())) == ["young-0"]


def test_every_pod_of_a_gang_has_its_own_age_those_above_its_minimum_too() -> None:
    elastic = carrying(gang("elastic", pods=3, min_member=1, nodes=("n",) * 3, priority="low", started=1), 50)
    pods = tuple(replace(pod, started=start) for pod, start in zip(elastic.pods, (1, 70, 80), strict=True))
    found = outcome(gang("new"), node("n", 3), TEAM, replace(elastic, pods=pods))
    assert victims(found) == ["elastic-0"]
    assert outcome(gang("new", gpus=2), node("n", 3), TEAM, replace(elastic, pods=pods)).kind is OutcomeKind.PENDING


def test_what_a_queue_has_too_much_is_counted_with_its_protected_work() -> None:
    """The young one would go first and leave the queue within its deserved: so nobody goes."""
    young = carrying(running("young", "n", queue="next", priority="low", start=70), 50)
    old = carrying(running("old", "n", queue="next", start=1), 50)
    items = node("n", 2), TEAM, queue("next", deserved=1, created=1)
    assert outcome(gang("new"), *items, young, old).kind is OutcomeKind.PENDING
    assert victims(outcome(gang("new"), *items, carrying(young, 0), old)) == ["young-0"]


@pytest.mark.parametrize(("now", "started"), [(None, 70), (NOW, None)])
def test_without_a_moment_or_a_start_none_is_protected(now: int | None, started: int | None) -> None:
    young = replace(carrying(running("young", "n", priority="low"), 50), started=started)
    found = preview(seen(node("n", 1), TEAM, young, now=now), gang("new"), flavour="volcano")
    assert victims(found) == ["young-0"]


@pytest.mark.parametrize(("spared", "until"), [(BOTH, 130), (frozenset(), 0)])
def test_from_when_on_it_could_be_taken_is_the_last_pods_start_and_that_time(
    spared: frozenset[Cause], until: int
) -> None:
    pair = carrying(gang("pair", pods=2, nodes=("n", "n"), priority="low", started=70), 50)
    pair = replace(pair, pods=(pair.pods[0], replace(pair.pods[1], started=80)))
    later = replace(seen(node("n", 2), TEAM, pair, spared=spared), now=200)
    taker = gang("new", gpus=2)
    assert protected_until(later, preview(later, taker, flavour="volcano").victims[0], taker) == until


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.lists(st.sampled_from([0, 1, 2, 4]), min_size=10, max_size=10))
def test_whatever_waits_no_protected_pod_is_ever_taken(cluster: Snapshot, times: list[int]) -> None:
    groups = [carrying(group, time) for group, time in zip(cluster.groups, times, strict=False)]
    for before, decisions, _after in life(
        replace(cluster, groups=tuple(groups), exempt=EvictionExemptions(inside_min_runtime=BOTH)), "volcano"
    ):
        assert before.now is not None
        for evict in (each for each in decisions if isinstance(each, Evict)):
            assert before.now - (evict.victim.started or 0) >= evict.victim.min_runtime
