"""When something starts follows from when runs end, by the rules of the scheduler."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduling.forecast.cycle import FLAVOURS, Flavour
from scheduling.forecast.start_times import GRACE, AwaitedStart, RunSample, start_times
from scheduling.model.snapshot import PodGroup, Snapshot, SnapshotNode
from scheduling.state.workspace import OutOfTime, interrupted_when
from tests.builders import gang, node, queue, running, snapshot

MINUTE = 60_000_000
HOUR = 60 * MINUTE
QUEUES = (queue("dep", deserved=None), queue("team", "dep", deserved=8), queue("other", "dep", deserved=8))


def cluster(*items: SnapshotNode | PodGroup) -> Snapshot:
    return replace(snapshot(*QUEUES, *items), now=0)


def awaiting(*names: str, pods: int = 1) -> list[AwaitedStart]:
    return [AwaitedStart(frozenset({name}), pods) for name in names]


def moments(
    there: Snapshot,
    *names: str,
    ends: Mapping[str, int],
    lasts: Mapping[str, int] | None = None,
    flavour: str = "kai",
    until: int = 100 * HOUR,
) -> tuple[int | None, ...]:
    sample = RunSample(ends, lasts or {})
    (found, again) = start_times(there, awaiting(*names), [sample, sample], flavour=flavour, until=until)
    assert found == again, "a sample leaves nothing behind"
    return found


@pytest.mark.parametrize("flavour", list(Flavour))
def test_it_starts_when_the_run_that_holds_its_room_ends(flavour: str) -> None:
    there = cluster(node("n", 8), running("old", "n", gpus=8, start=-1), gang("mine", gpus=8, created=-1))
    assert moments(there, "mine", ends={"old": 3 * HOUR}, flavour=flavour) == (3 * HOUR,)
    assert there.group_by_name["mine"].waiting, "the snapshot is as it was"


@pytest.mark.parametrize("flavour", list(Flavour))
def test_who_is_first_in_the_queue_runs_first_and_the_next_one_after_it(flavour: str) -> None:
    there = cluster(
        node("n", 8),
        running("old", "n", gpus=8, start=-9, priority="high"),
        gang("second", gpus=8, created=-1, priority="high"),
        gang("first", gpus=8, created=-2, priority="high"),
    )
    found = moments(there, "first", "second", ends={"old": HOUR}, lasts={"first": 2 * HOUR}, flavour=flavour)
    assert found == (HOUR, 3 * HOUR)


@pytest.mark.parametrize("flavour", list(Flavour))
def test_the_answer_for_a_sample_does_not_depend_on_the_samples_before_it(flavour: str) -> None:
    names = [f"w{index}" for index in range(12)]
    there = cluster(
        *(node(f"n{index}", 8) for index in range(3)),
        *(
            running(f"r{index}", f"n{index // 4}", gpus=2, start=-9, queue=("team", "other")[index % 2])
            for index in range(12)
        ),
        *(
            gang(name, gpus=(1, 2, 4, 8)[index % 4], created=-1, queue=("team", "other")[index % 3 % 2])
            for index, name in enumerate(names)
        ),
    )
    samples = [
        RunSample(
            {f"r{index}": (index * step % 7 + 1) * HOUR for index in range(12)}, dict.fromkeys(names, step * HOUR)
        )
        for step in (1, 2, 3, 5)
    ]
    together = start_times(there, awaiting(*names), samples, flavour=flavour, until=100 * HOUR)
    alone = [next(start_times(there, awaiting(*names), [each], flavour=flavour, until=100 * HOUR)) for each in samples]
    assert list(together) == alone
    assert len(set(alone)) == len(samples), "the samples differ"


@pytest.mark.parametrize("flavour", list(FLAVOURS))
def test_what_never_ends_is_waited_for_until_the_horizon(flavour: str) -> None:
    there = cluster(node("n", 8), running("old", "n", gpus=8, start=-1), gang("mine", gpus=8, created=-1))
    assert moments(there, "mine", ends={}, flavour=flavour) == (None,)
    assert moments(there, "mine", ends={"old": 3 * HOUR}, until=2 * HOUR, flavour=flavour) == (None,)


@pytest.mark.parametrize("flavour", list(FLAVOURS))
def test_a_sample_in_which_nothing_ends_leaves_the_next_ones_as_they_are(flavour: str) -> None:
    there = cluster(node("n", 8), running("old", "n", gpus=8, start=-1), gang("mine", gpus=8, created=-1))
    samples = [RunSample({"old": end} if end else {}, {}) for end in (0, HOUR, 2 * HOUR, 0, 3 * HOUR)]
    found = start_times(there, awaiting("mine"), samples, flavour=flavour, until=100 * HOUR)
    assert [*found] == [(None,), (HOUR,), (2 * HOUR,), (None,), (3 * HOUR,)]


def test_what_fits_starts_at_once_and_what_is_overdue_ends_now() -> None:
    there = cluster(node("n", 8), running("old", "n", gpus=4, start=-9), gang("mine", gpus=4), gang("next", gpus=4))
    assert moments(there, "mine", "next", ends={"old": -5}) == (0, 0)


@pytest.mark.parametrize("flavour", list(FLAVOURS))
def test_what_starts_on_gpus_of_terminating_pods_starts_when_their_grace_is_over(flavour: str) -> None:
    leaving = gang("old", gpus=4, pods=2, nodes=("n", "n"), terminating=True, started=-1, created=-1)
    half = replace(leaving, name="half", pods=(replace(leaving.pods[0], terminating=False), leaving.pods[1]))
    there = cluster(node("n", 16), leaving, half, gang("small", gpus=0, created=-2), gang("mine", gpus=12, created=-1))
    there = replace(there, queues=(queue("dep", deserved=None), queue("team", "dep", deserved=16)))
    assert moments(there, "small", "mine", ends={}, flavour=flavour) == (0, GRACE)
    known = {pod.name: 7 for group in (leaving, half) for pod in group.pods}
    again = start_times(there, awaiting("mine"), [RunSample({}, {})], flavour=flavour, until=HOUR, leaves=known)
    assert [*again] == [(7,)]


@pytest.mark.parametrize("flavour", ["kai", "kube", "kube-gangs", "volcano"])
def test_what_evicts_starts_when_the_victims_own_grace_is_over(flavour: str) -> None:
    weak = running("weak", "n", gpus=8, start=-1, priority="low")
    there = cluster(node("n", 8), weak, gang("strong", gpus=8, created=-1, priority="high"))
    there = replace(there, queues=(queue("dep", deserved=None), queue("team", "dep", deserved=8)))
    graces = {weak.pods[0].name: 7 * GRACE}
    found = start_times(there, awaiting("strong"), [RunSample({}, {})], flavour=flavour, until=HOUR, graces=graces)
    assert [*found] == [(7 * GRACE,)]


def test_an_evicted_run_waits_again_and_then_has_its_whole_run_before_it() -> None:
    there = cluster(
        node("n", 8),
        running("weak", "n", gpus=8, start=-50 * HOUR, priority="low"),
        gang("strong", gpus=8, created=-1, priority="medium-high"),
        gang("mine", gpus=8, created=-1, priority="very-low"),
    )
    found = moments(there, "strong", "weak", "mine", ends={"weak": HOUR}, lasts={"strong": 2 * HOUR, "weak": 5 * HOUR})
    assert found == (GRACE, 2 * HOUR + GRACE, 7 * HOUR + GRACE)


def test_a_run_that_is_evicted_later_does_not_end_at_its_old_time() -> None:
    there = cluster(
        node("n", 8),
        running("short", "n", gpus=4, start=-1, priority="very-high"),
        running("weak", "n", gpus=4, start=-1, priority="low"),
        gang("strong", gpus=8, created=-1, priority="high"),
        gang("mine", gpus=8, created=-1, priority="very-low"),
    )
    lasts = {"strong": 9 * HOUR, "weak": 3 * HOUR}
    found = moments(there, "strong", "mine", ends={"short": HOUR, "weak": 3 * HOUR}, lasts=lasts)
    assert found == (HOUR + GRACE, 13 * HOUR + GRACE), "weak was evicted at 1 h and runs again from 10 h"


def test_kube_keeps_the_room_of_the_evicted_for_whom_they_were_evicted() -> None:
    there = cluster(
        node("n", 8),
        running("weak", "n", gpus=8, start=-1, priority="low"),
        gang("strong", gpus=8, created=-1, priority="high"),
        gang("mine", gpus=8, created=-1, priority="very-low"),
    )
    assert moments(there, "strong", "mine", ends={}, lasts={"strong": HOUR, "weak": HOUR}, flavour="kube") == (
        GRACE,
        2 * HOUR + GRACE,
    )


def test_what_can_never_start_is_left_out() -> None:
    there = cluster(node("n", 8), running("old", "n", gpus=8, start=-1), gang("huge", gpus=64), gang("mine", gpus=8))
    assert moments(there, "huge", "mine", ends={"old": HOUR}) == (None, HOUR)


def test_a_workload_of_several_groups_has_started_once_enough_of_their_pods_have() -> None:
    there = cluster(
        node("n", 8),
        running("old", "n", gpus=4, start=-1),
        gang("a", gpus=4, created=-2),
        gang("b", gpus=4, created=-1),
    )
    both = AwaitedStart(frozenset({"a", "b"}), 2)
    one = AwaitedStart(frozenset({"a", "b"}), 1)
    (found,) = start_times(there, [both, one], [RunSample({"old": HOUR}, {})], flavour="kube", until=9 * HOUR)
    assert found == (HOUR, 0)


def test_ends_that_come_soon_after_each_other_are_one_step() -> None:
    old = [running(f"old-{index}", "n", gpus=1, start=-9) for index in range(8)]
    there = cluster(node("n", 8), *old, gang("mine", gpus=1, created=-1))
    ends = {group.name: 10 * HOUR + index * MINUTE for index, group in enumerate(old)}
    assert moments(there, "mine", ends=ends) == (10 * HOUR + 7 * MINUTE,)


def test_kueue_admits_by_quota_and_its_pods_then_wait_for_a_node() -> None:
    there = cluster(
        node("n", 4),
        node("m", 4),
        running("foreign", "n", gpus=4, queue="", start=-1),
        running("old", "m", gpus=4, start=-1),
        gang("mine", gpus=4, created=-1),
        gang("small", gpus=1, created=0),
    )
    assert moments(there, "mine", ends={"old": HOUR}, flavour="kueue") == (HOUR,)


def test_kueue_waits_for_places_in_a_pool_with_topology_levels() -> None:
    """Quota is free from the start; nodes are not."""
    racks = (node("a", 8, rack="one"), node("b", 8, rack="two"))
    there = cluster(*racks, running("old", "a", gpus=4, start=-9), running("far", "b", gpus=8, start=-9, queue="other"))
    there = replace(there, groups=(*there.groups, gang("mine", gpus=8, queue="other")), levels={"default": ("rack",)})
    assert moments(there, "mine", ends={"old": 2 * HOUR, "far": 5 * HOUR}, flavour="kueue") == (2 * HOUR,)


def test_groups_that_evict_each_other_do_not_stop_the_course(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduling.forecast.start_times.MOST_CYCLES", 1)
    there = cluster(
        node("n", 8),
        running("weak", "n", gpus=8, start=-1, priority="low"),
        gang("mine", gpus=8, created=-1, priority="medium-high"),
        running("other", "m", gpus=1, start=-1),
    )
    assert moments(there, "mine", ends={"other": HOUR}) == (HOUR,), "it evicts in one step and starts in the next"


@pytest.mark.parametrize("flavour", [Flavour.KUBE, Flavour.KAI, Flavour.VOLCANO])
def test_weaker_work_is_evicted_in_every_sample_once_enough_is_free_beside_it(flavour: str) -> None:
    there = cluster(
        node("n", 8),
        running("weak", "n", gpus=4, start=-1, priority="low"),
        running("strong", "n", gpus=4, start=-1, priority="high"),
        gang("mine", gpus=8, created=-2, priority="medium-high"),
        gang("other", gpus=6, created=-1, priority="medium"),
    )
    found = moments(there, "mine", "other", ends={"strong": HOUR}, lasts={"mine": 2 * HOUR}, flavour=flavour)
    assert found == (HOUR + GRACE, 3 * HOUR + GRACE)


def test_a_snapshot_without_a_moment_and_an_unknown_scheduler_are_refused() -> None:
    there = cluster(node("n", 8), gang("mine"))
    with pytest.raises(ValueError, match="without a moment"):
        list(start_times(replace(there, now=None), [], [], flavour="kai", until=1))
    with pytest.raises(ValueError, match="no model"):
        list(start_times(there, [], [], flavour="slurm", until=1))


def test_it_stops_when_the_time_of_who_asks_is_over() -> None:
    there = cluster(node("n", 8), running("old", "n", gpus=8, start=-1), gang("mine", gpus=8))
    course = start_times(there, awaiting("mine"), [RunSample({}, {})], flavour="kai", until=1)
    with interrupted_when(lambda: True), pytest.raises(OutOfTime):
        next(course)


def test_where_nothing_waits_nothing_is_decided() -> None:
    there = cluster(node("n", 8), running("old", "n", gpus=8, start=-1))
    assert moments(there, "none", ends={"old": HOUR}) == (None,)


def test_who_loses_some_pods_goes_on_with_the_others_until_its_end() -> None:
    elastic = gang("weak", gpus=1, pods=8, min_member=1, nodes=("n",) * 8, started=-1, created=-1, priority="low")
    there = cluster(
        node("n", 8),
        elastic,
        gang("strong", gpus=4, created=-1, priority="medium-high"),
        gang("mine", gpus=4, created=-1, priority="very-low"),
    )
    found = moments(there, "strong", "mine", ends={"weak": HOUR}, lasts={"strong": 9 * HOUR}, flavour="kai")
    assert found == (GRACE, HOUR)
