"""Small traces whose waits, evictions and losses were worked out by hand, under the rules of each scheduler."""

from dataclasses import replace

import pytest

from scheduling.forecast.cycle import Flavour
from scheduling.forecast.replay import ClusterReplay, RecordedSubmission, ReplayedSubmission
from scheduling.model.reasons import Reason
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Queue, Snapshot
from tests.builders import node, queue, snapshot

QUEUED = ("kai", "kueue", "volcano")


def sent(name: str, at: int, lasts: int, gpus: int = 1, **more: object) -> RecordedSubmission:
    """A preemptible single pod of `team` with priority 80."""
    given = {"queue": "team", "priority": 80, "preemptible": True, "requests": Resources.of(gpu=gpus), **more}
    return RecordedSubmission(name, at, lasts, **given)  # type: ignore[arg-type]  # one keyword per property


def team(*, nodes: int = 1, gpus: int = 8, **quotas: Queue) -> Snapshot:
    """A project that deserves everything, unless the test brings its own queues."""
    found = quotas.values() or (queue("team", deserved=nodes * gpus),)
    return snapshot(*(node(f"n{number}", gpus, order=number) for number in range(nodes)), *found)


def replayed(base: Snapshot, *trace: RecordedSubmission, flavour: str, **times: int) -> dict[str, ReplayedSubmission]:
    replay = ClusterReplay(base, trace, flavour=flavour, **times)
    while replay.advance(3):
        pass
    return replay.runs


def times(found: dict[str, ReplayedSubmission]) -> dict[str, tuple[int | None, int | None]]:
    return {name: (run.started, run.finished) for name, run in found.items()}


@pytest.mark.parametrize("flavour", list(Flavour))
def test_who_finds_no_room_starts_when_another_has_finished(flavour: str) -> None:
    found = replayed(team(), sent("first", 0, 100, 8), sent("second", 10, 50, 8), flavour=flavour)
    assert times(found) == {"first": (0, 100), "second": (100, 150)}


@pytest.mark.parametrize("flavour", list(Flavour))
def test_a_stronger_one_evicts_and_the_victim_starts_over_when_it_has_finished(flavour: str) -> None:
    trace = (sent("weak", 0, 100, 8), sent("strong", 40, 50, 8, priority=90))
    found = replayed(team(), *trace, flavour=flavour, grace=30)
    assert times(found) == {"weak": (0, 220), "strong": (70, 120)}
    assert (found["weak"].evictions, found["weak"].lost, found["strong"].evictions) == (1, 40 * 8000, 0)


@pytest.mark.parametrize(
    ("flavour", "order"),
    [("kube", ["equal", "victim"]), ("kube-gangs", ["equal", "victim"]), ("kueue", ["victim", "equal"])],
)
def test_a_victim_is_a_new_pod_to_kube_scheduler_and_keeps_its_place_with_kueue(flavour: str, order: list[str]) -> None:
    strong = sent("strong", 20, 50, 8, priority=90)
    found = replayed(team(), sent("victim", 0, 100, 8), sent("equal", 10, 100, 8), strong, flavour=flavour, grace=5)
    ended = {name: run.finished or 0 for name, run in found.items() if name != "strong"}
    assert found["victim"].evictions == 1
    assert sorted(ended, key=ended.__getitem__) == order


@pytest.mark.parametrize("flavour", list(Flavour))
def test_without_grace_it_starts_at_once(flavour: str) -> None:
    trace = (sent("weak", 0, 100, 8), sent("strong", 40, 50, 8, priority=90))
    assert times(replayed(team(), *trace, flavour=flavour)) == {"weak": (0, 190), "strong": (40, 90)}


@pytest.mark.parametrize("flavour", list(Flavour))
def test_what_can_never_start_is_dropped_with_its_reason(flavour: str) -> None:
    if flavour == Flavour.KUEUE:  # looks at quotas, not at nodes
        large, reason = sent("large", 0, 10, 9), Reason.EXCEEDS_MAX_QUOTA
        base = team(alone=queue("team", deserved=8, limit=8))
    else:
        large, reason = sent("large", 0, 10, 9), Reason.NEVER_FITS
        base = team(dep=queue("dep", deserved=None), leaf=queue("team", "dep", deserved=None))
    replay = ClusterReplay(base, (large, sent("small", 0, 10)), flavour=flavour)
    while replay.advance(1):
        pass
    assert (replay.runs["large"].never, replay.runs["small"].finished, replay.ended) == (reason, 10, 2)
    assert replay.use[-1] == (10, 0, 0)


@pytest.mark.parametrize(("flavour", "late"), [("kube-gangs", 150), ("kai", 20), ("volcano", 20)])
def test_a_gang_starts_whole_or_not_at_all(flavour: str, late: int) -> None:
    """With kube-scheduler it keeps the free node, to which one of its pods is nominated."""
    trace = (sent("one", 0, 100, 8), sent("gang", 10, 50, 8, workers=2), sent("late", 20, 10, 8))
    found = replayed(team(nodes=2), *trace, flavour=flavour)
    assert found["gang"].started == 100
    assert found["late"].started == late


def test_plain_kube_starts_pods_one_by_one_and_the_work_begins_with_the_last() -> None:
    trace = (sent("one", 0, 100, 8), sent("gang", 10, 50, 8, workers=2), sent("late", 20, 10, 8))
    found = replayed(team(nodes=2), *trace, flavour="kube")
    assert times(found) == {"one": (0, 100), "gang": (100, 150), "late": (150, 160)}


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs"])
def test_a_workload_that_loses_one_pod_starts_over_with_all(flavour: str) -> None:
    trace = (sent("gang", 0, 100, 8, workers=2), sent("strong", 30, 10, 8, priority=90))
    found = replayed(team(nodes=2), *trace, flavour=flavour)
    assert times(found) == {"gang": (0, 140), "strong": (30, 40)}
    assert (found["gang"].evictions, found["gang"].lost) == (1, 30 * 16_000)


@pytest.mark.parametrize("flavour", list(Flavour))
def test_a_queue_at_its_limit_waits_for_its_own_work_only(flavour: str) -> None:
    bounds = {"deserved": 4, "limit": 4}
    base = team(dep=queue("dep", deserved=8), a=queue("team", "dep", **bounds), b=queue("other", "dep", **bounds))
    trace = (
        sent("full", 0, 100, 4),
        sent("next", 10, 10, 4),
        sent("else", 20, 10, 4, queue="other"),
    )
    assert times(replayed(base, *trace, flavour=flavour)) == {"full": (0, 100), "next": (100, 110), "else": (20, 30)}


@pytest.mark.parametrize("flavour", QUEUED)
def test_a_queue_takes_back_what_it_deserves(flavour: str) -> None:
    base = team(dep=queue("dep", deserved=8), a=queue("team", "dep", deserved=4), b=queue("other", "dep", deserved=4))
    trace = (sent("a1", 0, 100, 4), sent("a2", 5, 100, 4), sent("mine", 50, 30, 4, queue="other", priority=40))
    found = replayed(base, *trace, flavour=flavour)
    assert {name: run.evictions for name, run in found.items()} == {"a1": 0, "a2": 1, "mine": 0}
    assert times(found) == {"a1": (0, 100), "a2": (5, 180), "mine": (50, 80)}
    assert found["a2"].lost == 45 * 4000


def test_with_an_interval_schedulers_with_queues_decide_no_more_often() -> None:
    found = replayed(team(), sent("a", 0, 5), sent("b", 10, 5), sent("c", 70, 5), flavour="kai", interval=60)
    assert [found[name].started for name in "abc"] == [0, 60, 120]


def test_who_is_inside_its_minimum_runtime_is_evicted_after_it() -> None:
    protected = Queue("team", "dep", deserved=team().queues[0].deserved, preempt_min_runtime=100)
    base = team(dep=queue("dep", deserved=8), leaf=protected)
    trace = (sent("weak", 0, 1000, 8), sent("strong", 30, 50, 8, priority=90))
    found = replayed(base, *trace, flavour="kai", interval=60)
    assert (found["strong"].started, found["weak"].evictions) == (120, 1)


def test_a_promise_that_a_stronger_one_breaks_is_kept_elsewhere_or_waits() -> None:
    trace = (
        sent("low", 0, 100, 8, priority=40),
        sent("mid", 10, 20, 8),
        sent("top", 20, 20, 8, priority=125),
    )
    found = replayed(team(), *trace, flavour="kube", grace=30)
    assert times(found) == {"low": (0, 180), "mid": (60, 80), "top": (40, 60)}


def test_of_two_pods_that_go_for_one_the_workload_is_evicted_once() -> None:
    trace = (sent("pair", 0, 100, 4, workers=2), sent("strong", 30, 10, 8, priority=90))
    found = replayed(team(), *trace, flavour="kube")
    assert (times(found), found["pair"].evictions) == ({"pair": (0, 140), "strong": (30, 40)}, 1)


def test_a_gang_that_evicts_is_tried_again_when_its_victims_are_gone() -> None:
    trace = (
        sent("a", 0, 100, 8),
        sent("b", 0, 100, 8),
        sent("gang", 20, 30, 8, workers=2, priority=90),
    )
    found = replayed(team(nodes=2), *trace, flavour="kube-gangs", grace=10)
    assert times(found) == {"a": (0, 160), "b": (0, 160), "gang": (30, 60)}


@pytest.mark.parametrize("flavour", ["kube", "kube-gangs"])
def test_a_nominated_pod_starts_on_another_node_that_is_free_before_its_own(flavour: str) -> None:
    trace = (
        sent("low", 0, 100, 8, priority=40),
        sent("top", 0, 35, 8, priority=125),
        sent("mid", 10, 20, 8, priority=65),
    )
    found = replayed(team(nodes=2), *trace, flavour=flavour, grace=30)
    assert times(found) == {"low": (0, 140), "top": (0, 35), "mid": (35, 55)}


def test_a_nominated_pod_keeps_its_node_when_one_of_lower_priority_comes() -> None:
    trace = (
        sent("low", 0, 100, 8, priority=40),
        sent("mid", 10, 20, 8, priority=65),
        sent("late", 20, 5, 8, priority=25),
    )
    found = replayed(team(), *trace, flavour="kube", grace=30)
    assert times(found) == {"low": (0, 160), "mid": (40, 60), "late": (160, 165)}


def test_a_gang_gets_freed_capacity_before_a_nominated_pod_of_lower_priority() -> None:
    trace = (
        sent("low", 0, 1000, 8, priority=40),
        sent("mid", 10, 20, 8, priority=65),
        sent("gang", 20, 50, 4, workers=2, priority=90),
    )
    found = replayed(team(), *trace, flavour="kube-gangs", grace=30)
    assert (times(found)["gang"], times(found)["mid"], found["mid"].evictions) == ((40, 90), (90, 110), 0)


def with_pause(*trace: RecordedSubmission) -> dict[str, tuple[int | None, int | None]]:
    """On a Kueue with 8 GPUs that tries again what it refused 10 after quota was freed."""
    return times(replayed(team(), *trace, flavour="kueue", grace=30, pause=10))


def test_kueue_tries_what_it_refused_a_pause_after_quota_was_freed_and_what_comes_meanwhile_at_once() -> None:
    found = with_pause(sent("busy", 0, 100, 8), sent("refused", 10, 50, 8), sent("late", 103, 5, 4))
    assert found == {"busy": (0, 100), "late": (103, 108), "refused": (110, 160)}


def test_the_pause_begins_with_the_first_that_frees_quota() -> None:
    found = with_pause(sent("one", 0, 100, 4), sent("other", 0, 105, 4), sent("refused", 10, 50, 8))
    assert found["refused"] == (110, 160)


def test_what_comes_during_the_pause_waits_if_its_equal_was_refused() -> None:
    found = with_pause(sent("busy", 0, 100, 8), sent("refused", 10, 50, 8), sent("equal", 103, 50, 8))
    assert (found["refused"], found["equal"]) == ((110, 160), (170, 220))


def test_there_is_no_pause_for_what_waits_for_its_victims_nor_for_what_is_behind_it() -> None:
    weak, strong = sent("weak", 0, 100, 8, priority=10), sent("strong", 40, 50, 4, priority=90)
    found = with_pause(weak, strong, sent("behind", 50, 50, 4))
    assert found == {"strong": (70, 120), "behind": (70, 120), "weak": (0, 230)}


def test_a_class_that_never_preempts_waits() -> None:
    trace = (sent("weak", 0, 100, 8), sent("polite", 40, 50, 8, priority=90, never_preempts=True))
    assert times(replayed(team(), *trace, flavour="kube")) == {"weak": (0, 100), "polite": (100, 150)}


def test_use_is_kept_as_steps() -> None:
    replay = ClusterReplay(team(), (sent("a", 0, 10, 8), sent("b", 5, 10, 4)), flavour="kube")
    while replay.advance(1):
        pass
    assert replay.use == [(0, 8000, 0), (5, 8000, 4000), (10, 4000, 0), (20, 0, 0)]
    assert not replay.advance(1)


def reclaimed_for_ever(*more: RecordedSubmission) -> ClusterReplay:
    """A gang exceeds the deserved quota of its queue. Reclaimed and started over, its queue is served first again."""
    queues = queue("gangs", deserved=8), queue("other", deserved=8), queue("team", deserved=8)
    small = replace(node("small", 1, order=9), labels={"size": "small"})
    base = snapshot(node("a", 8, order=1), node("b", 8, order=2), small, *queues)
    gang, single = sent("gang", 0, 900, 8, queue="gangs", workers=2), sent("single", 50, 900, 8, queue="other")
    replay = ClusterReplay(base, (gang, single, *more), flavour="volcano", grace=30, interval=10)
    while replay.advance(3):
        pass
    return replay


def test_a_replay_ends_when_submissions_are_only_evicted_again_and_again() -> None:
    """Seen on a real Volcano, too. What has just started is evicted by the next cycle, though nothing else happens."""
    replay = reclaimed_for_ever()
    assert (replay.endless, replay.ended) == (["gang"], 0)
    assert (replay.runs["gang"].evictions, replay.runs["single"].started) == (20, None)


def test_it_goes_on_while_another_runs() -> None:
    replay = reclaimed_for_ever(sent("calm", 0, 2000, node_selector={"size": "small"}))
    assert (replay.endless, replay.runs["calm"].finished, replay.ended) == (["gang"], 2000, 1)


def test_it_goes_on_while_others_are_still_to_come() -> None:
    replay = reclaimed_for_ever(sent("late", 5000, 10, node_selector={"size": "small"}))
    assert (replay.endless, replay.runs["late"].finished) == (["gang"], 5010)


def test_nothing_to_replay_is_over_at_once() -> None:
    replay = ClusterReplay(team(), (), flavour="kai")
    assert (replay.advance(1), replay.use) == (False, [])


@pytest.mark.parametrize(("names", "flavour"), [(("a", "a"), "kube"), (("a", "b"), "slurm")])
def test_two_of_one_name_or_an_unknown_scheduler_are_refused(names: tuple[str, str], flavour: str) -> None:
    with pytest.raises(ValueError, match=r"share a name|no model"):
        ClusterReplay(team(), [sent(name, 0, 1) for name in names], flavour=flavour)
