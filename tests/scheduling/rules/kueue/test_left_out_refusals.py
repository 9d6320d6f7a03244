"""A cycle that is asked for changes decides as one that tells every refusal, until a queue is held. Quotas in GPUs."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Decision, Evict, Start, Until, Wait
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.workspace import successor
from tests.builders import gang, queue, running, snapshot
from tests.scheduling.rules.kueue.test_invariants import clusters

FOREVER = {Reason.EXCEEDS_MAX_QUOTA, Reason.QUEUE_MISSING}
policies = st.sampled_from(QueuePreemptionPolicy)


def changes(cluster: Snapshot) -> list[Decision]:
    return cycle(cluster, flavour="kueue", about=(), until=Until.CHANGES)


def comparable(decisions: list[Decision]) -> list[Decision]:
    """All but the refusals that others may end, without nominations."""
    lasting = {*FOREVER, Reason.EVICTING}
    found = [each for each in decisions if not isinstance(each, Wait) or each.pend.reason in lasting]
    return [replace(each, nominated={}) if isinstance(each, Wait) else each for each in found]


def until_held(decisions: list[Decision]) -> Iterator[Decision]:
    """Those before an eviction that follows a start, and up to the first workload that waits for its victims.

    Then its queue is held, and an eviction may hit what has just started.
    """
    starts = False
    for each in decisions:
        if starts and isinstance(each, Evict):
            return
        yield each
        starts = starts or isinstance(each, Start)
        if isinstance(each, Wait) and each.pend.reason is Reason.EVICTING:
            return


def names(decisions: list[Decision]) -> list[str]:
    return [each.victim.name if isinstance(each, Evict) else each.group.name for each in decisions]


@settings(max_examples=200, deadline=None)
@given(clusters(), policies, policies, policies)
def test_it_decides_as_a_cycle_that_tells_all_refusals(
    cluster: Snapshot, own: QueuePreemptionPolicy, within: QueuePreemptionPolicy, over: QueuePreemptionPolicy
) -> None:
    queues = [replace(each, preempts=own, reclaims=within, reclaims_over_quota=over) for each in cluster.queues]
    there = replace(cluster, queues=tuple(queues))
    found, expected = comparable(changes(there)), comparable(cycle(there, flavour="kueue"))
    mine, theirs = [*until_held(found)], [*until_held(expected)]
    number = min(len(mine), len(theirs))
    assert mine[:number] == theirs[:number]
    assert len(mine) == number or len(theirs) < len(expected), "the other was cut"
    assert len(theirs) == number or len(mine) < len(found), "this one was cut"


def test_a_queue_is_held_while_one_of_its_workloads_waits_for_its_victims() -> None:
    """The other queue is not."""
    waiting = (gang("high", gpus=3, priority=100), gang("small", gpus=1, priority=80), gang("there", queue="other"))
    queues = (queue("team", deserved=4), queue("other", deserved=4))
    cluster = snapshot(*queues, running("low", "a", gpus=3, priority=25), *waiting)
    assert names(changes(cluster)) == ["low", "high", "there"]
    assert names(cycle(cluster, flavour="kueue")) == ["low", "high", "there", "small"]
    leaving = gang("low", gpus=3, priority=25, nodes=("a",), terminating=True)
    cluster = successor(cluster, ["low"], [leaving], now=1)
    assert names(changes(cluster)) == ["high", "there"]
    cluster = successor(cluster, ["low"], (), now=2)
    assert names(changes(cluster)) == ["high", "there", "small"]


def test_refusals_that_others_may_end_are_left_out_and_others_are_not() -> None:
    waiting = (gang("waits", gpus=2), gang("huge", gpus=9), gang("stray", gpus=1, queue="none"))
    cluster = snapshot(queue("team", deserved=4), running("old", "a", gpus=3), *waiting)
    assert names(changes(cluster)) == ["stray", "huge"]
    assert names(cycle(cluster, flavour="kueue")) == ["stray", "huge", "waits"]


def test_each_round_still_takes_one_head_of_every_queue() -> None:
    """Of two that want the last GPU, the one that is earlier in its own queue gets it."""
    first = [gang(f"first-{number}", gpus=4, created=number) for number in range(3)]
    other = [gang("other-0", gpus=4, queue="other"), gang("other-1", gpus=1, queue="other", priority=25)]
    late = gang("late", gpus=1, created=9)
    parts = [queue(name, "root", deserved=0, limit=8) for name in ("team", "other")]
    cluster = snapshot(queue("root", deserved=5), *parts, running("old", "a", gpus=4), *first, *other, late)
    assert names(changes(cluster)) == ["other-1"]
    assert names(comparable(cycle(cluster, flavour="kueue"))) == ["other-1"]


def test_what_starts_elsewhere_does_not_change_whose_turn_it_is() -> None:
    separate = [gang(f"there-{number}", queue="apart", created=number) for number in range(4)]
    refused = [gang(f"large-{number}", gpus=4, created=number) for number in range(2)]
    queues = (queue("team", deserved=4), queue("apart", deserved=4))
    cluster = snapshot(*queues, running("old", "a", gpus=3), *refused, gang("small", created=5), *separate)
    assert names(changes(cluster)) == ["there-0", "there-1", "there-2", "small", "there-3"]


@pytest.mark.parametrize("first", [changes, lambda cluster: cycle(cluster, flavour="kueue")])
def test_what_came_and_what_ended_since_is_decided_about(first: Callable[[Snapshot], object]) -> None:
    cluster = snapshot(queue("team", deserved=4), running("old", "a", gpus=3), gang("large", gpus=4))
    first(cluster)
    cluster = successor(cluster, (), [gang("small", created=5)], now=1)
    assert (names(changes(cluster)), names(changes(cluster))) == (["small"], ["small"])
    cluster = successor(cluster, ["old"], (), now=2)
    assert names(changes(cluster)) == ["large"]


def test_after_a_cycle_that_left_refusals_out_another_tells_them() -> None:
    cluster = snapshot(queue("team", deserved=4), running("old", "a", gpus=3), gang("large", gpus=4))
    assert (changes(cluster), changes(cluster)) == ([], [])
    assert names(cycle(cluster, flavour="kueue")) == ["large"]
    assert names(cycle(cluster, flavour="kueue")) == ["large"]


def test_work_without_a_queue_comes_and_goes() -> None:
    def stray(name: str) -> PodGroup:
        return gang(name, queue="none")

    cluster = snapshot(queue("team", deserved=4), stray("one"))
    assert names(changes(cluster.changed(["one"], [stray("two")], now=None))) == ["two"]
    assert names(changes(cluster)) == ["one"]
    assert names(changes(successor(cluster, ["one"], [stray("three")], now=1))) == ["three"]
