"""Each detector on made histories: what it must report, and what its stated rules keep it from reporting."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduling.state.shortage import HeldGpus, NodeGpus
from workloads.detectors import rules
from workloads.detectors.rules import Detection, EvictionFacts, JobFacts, PinnedQueue, PoolGpus

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def job(name: str, **facts: Any) -> JobFacts:
    """A training of 8 GPUs at low that waits for 20 min."""
    values: dict[str, Any] = {
        "id": name,
        "name": name,
        "project": 1,
        "queue": "1",
        "pool": "h100",
        "priority": "low",
        "value": 40,
        "gpu_milli": 8000,
        "pods": 1,
        "phase": "Pending",
        "reason": "NoRoom",
        "phase_at": ago(minutes=20),
        "created_at": ago(minutes=20),
        "started_at": None,
        "completed_at": None,
    }
    return JobFacts(**(values | facts))


def high(name: str, **facts: Any) -> JobFacts:
    return job(name, **({"priority": "high", "value": 125} | facts))


def running(name: str, **facts: Any) -> JobFacts:
    started = facts.pop("started_at", ago(minutes=5))
    return job(name, **({"phase": "Running", "reason": "", "phase_at": started, "started_at": started} | facts))


def served(seconds: int, **facts: Any) -> JobFacts:
    """A job of higher priority that completed after so many seconds."""
    times = {"started_at": ago(minutes=30), "completed_at": ago(minutes=30) + timedelta(seconds=seconds)}
    return high("infer", **({"phase": "Completed", **times} | facts))


def eviction(**facts: Any) -> EvictionFacts:
    """A training of 8 GPUs that had run 6 h and lost all of it to a request of 30 s."""
    values: dict[str, Any] = {
        "id": 7,
        "at": ago(minutes=31),
        "reclaim": False,
        "moved": False,
        "victim": job("train"),
        "preemptor": served(30),
        "ran": timedelta(hours=6),
        "gpu_milli": 8000,
        "lost_gpu_seconds": 8 * 6 * 3600,
    }
    return EvictionFacts(**(values | facts))


def only(found: Iterable[Detection]) -> Detection:
    (detection,) = found
    return detection


def test_a_request_of_30_seconds_that_evicted_a_training_of_6_hours_is_found_with_its_cost() -> None:
    found = only(rules.short_evicts_long([eviction()]))
    assert found.evidence == (
        "{1} (high 125) evicted {0} (low 40) at 2026-06-01 11:29 UTC and completed after 30 s.",
        "{0} had run 6 h on 8 GPUs: about 48.0 GPU-hours lost.",
    )
    assert "with a priority of at most low" in found.advice
    assert (found.cost, found.ended, [each.name for each in found.jobs]) == (172800, None, ["train", "infer"])


def test_a_reclaim_is_explained_by_quota_and_not_by_priority() -> None:
    found = only(rules.short_evicts_long([eviction(reclaim=True)]))
    assert "reclaimed its project's quota from {0}" in found.evidence[0]
    assert found.advice.startswith("Priority does not protect from reclaim.")


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"preemptor": served(30, phase="Running", completed_at=None)}, id="the preemptor still runs"),
        pytest.param({"preemptor": served(30, phase="Failed")}, id="the preemptor failed"),
        pytest.param({"preemptor": served(3600)}, id="the preemptor ran an hour"),
        pytest.param({"ran": timedelta(minutes=50)}, id="the victim had run less than an hour"),
        pytest.param({"preemptor": served(600), "ran": timedelta(minutes=61)}, id="not ten times as long"),
        pytest.param({"lost_gpu_seconds": 1200}, id="a recent checkpoint"),
        pytest.param({"moved": True}, id="moved by the scheduler"),
        pytest.param({"preemptor": None}, id="no known preemptor"),
    ],
)
def test_an_eviction_is_not_unintended_when(facts: dict[str, Any]) -> None:
    assert not list(rules.short_evicts_long([eviction(**facts)]))


def test_an_eviction_is_over_once_its_victim_runs_again() -> None:
    again = running("train", started_at=ago(minutes=10))
    assert only(rules.short_evicts_long([eviction(victim=again)])).ended == ago(minutes=10)


def test_a_victim_inside_its_minimum_runtime_is_found() -> None:
    young = eviction(ran=timedelta(minutes=12), minimum=timedelta(hours=1), lost_gpu_seconds=5760)
    found = only(rules.inside_min_runtime([young], deferring=False))
    assert found.evidence[0] == "{0} had run 12 min of its minimum runtime of 1 h."
    assert found.advice.endswith("Let Rung defer preemptors on this cluster.")
    assert "other tools" in only(rules.inside_min_runtime([young], deferring=True)).advice


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"ran": timedelta(hours=1)}, id="it had run for all of it"),
        pytest.param({"ran": timedelta()}, id="its pods had not started"),
        pytest.param({"minimum": timedelta()}, id="nothing is guaranteed"),
        pytest.param({"moved": True}, id="moved by the scheduler"),
    ],
)
def test_a_minimum_runtime_is_kept_when(facts: dict[str, Any]) -> None:
    young = eviction(**({"ran": timedelta(minutes=12), "minimum": timedelta(hours=1)} | facts))
    assert not list(rules.inside_min_runtime([young], deferring=False))


def thrashed(*minutes: int, **facts: Any) -> list[EvictionFacts]:
    short = {"ran": timedelta(minutes=9), "lost_gpu_seconds": 4320}
    return [eviction(id=n, at=ago(minutes=at), **(short | facts)) for n, at in enumerate(minutes)]


def test_three_evictions_in_two_hours_are_thrashing() -> None:
    found = only(rules.thrashing(thrashed(90, 60, 30)))
    assert found.evidence == (
        "{0} was evicted 3 times from 2026-06-01 10:30 UTC to 2026-06-01 11:30 UTC, 0 of them by reclaim.",
        "It ran 27 min in total before these; 3.6 GPU-hours lost.",
    )
    assert (found.cost, found.since) == (12960, ago(minutes=90))
    assert "over its project's quota" in only(rules.thrashing(thrashed(90, 60, 30, reclaim=True))).advice


@pytest.mark.parametrize(
    "evictions",
    [
        pytest.param(thrashed(60, 30), id="two evictions"),
        pytest.param(thrashed(90, 60, 30, moved=True), id="moved by the scheduler"),
        pytest.param(thrashed(90, 60, 30, victim=job("train", phase="Completed")), id="it has ended"),
        pytest.param([*thrashed(60, 30), *thrashed(20, victim=job("other"))], id="different victims"),
    ],
)
def test_it_is_not_thrashing_when(evictions: list[EvictionFacts]) -> None:
    assert not list(rules.thrashing(evictions))


def test_a_higher_priority_that_waits_while_lower_peers_start_is_an_inversion() -> None:
    found = only(rules.priority_inversion([high("urgent")], [running("batch")], NOW))
    assert found.evidence == (
        "{0} (high 125) waits since 2026-06-01 11:40 UTC for 8 GPUs in h100.",
        "{1} (low 40) started at 2026-06-01 11:55 UTC. All that started later with a lower priority (1) have 8 GPUs.",
    )
    assert (found.since, found.rate, found.jobs[1].name) == (ago(minutes=5), 8000, "batch")


@pytest.mark.parametrize(
    ("waiting", "peer"),
    [
        pytest.param({}, {"started_at": ago(minutes=30)}, id="the peer started earlier"),
        pytest.param({}, {"queue": "2"}, id="the peer is of another queue"),
        pytest.param({}, {"pool": "a100"}, id="the peer is in another pool"),
        pytest.param({}, {"gpu_milli": 1000}, id="a small peer filled a gap"),
        pytest.param({}, {"pods": 8}, id="the peer has small pods"),
        pytest.param({}, {"value": 125}, id="the peer has the same priority"),
        pytest.param({"reason": "NonPreemptibleOverQuota"}, {}, id="its own quota is in use"),
        pytest.param({"reason": "ErrImagePull"}, {}, id="its image is missing"),
        pytest.param({"phase_at": ago(minutes=6)}, {}, id="it waits for 6 min"),
    ],
)
def test_it_is_no_inversion_when(waiting: dict[str, Any], peer: dict[str, Any]) -> None:
    assert not list(rules.priority_inversion([high("urgent", **waiting)], [running("batch", **peer)], NOW))


def passed_by(count: int = 3, **facts: Any) -> list[JobFacts]:
    later = {"created_at": ago(hours=2), "started_at": ago(hours=1), "priority": "high", "value": 125}
    return [running(f"later-{number}", **(later | facts)) for number in range(count)]


def hungry(**facts: Any) -> JobFacts:
    return job("serve", **({"phase_at": ago(hours=5), "created_at": ago(hours=5)} | facts))


def test_a_workload_that_is_passed_by_for_hours_starves() -> None:
    found = only(rules.starvation([hungry()], passed_by(), NOW))
    assert "3 workloads that were submitted later run on 24 GPUs: 3 of higher and 0 of the same" in found.evidence[1]
    assert (found.rate, found.since) == (8000, ago(hours=5))
    assert found.advice.startswith("Raise its priority")
    assert "reduce its size" in only(rules.starvation([hungry()], passed_by(value=40), NOW)).advice


@pytest.mark.parametrize(
    ("waiting", "later"),
    [
        pytest.param({}, passed_by(2), id="two passed by"),
        pytest.param({}, passed_by(created_at=ago(hours=9)), id="they were submitted earlier"),
        pytest.param({}, passed_by(gpu_milli=1000), id="they are small"),
        pytest.param({}, passed_by(value=25), id="an inversion, which is another finding"),
        pytest.param({"phase_at": ago(hours=3)}, passed_by(), id="it waits for 3 h"),
        pytest.param({"reason": "OverLimit"}, passed_by(), id="its project is at its limit"),
    ],
)
def test_it_does_not_starve_when(waiting: dict[str, Any], later: list[JobFacts]) -> None:
    assert not list(rules.starvation([hungry(**waiting)], later, NOW))


def node(name: str, *held: HeldGpus, pool: str = "h100", gpus: int = 8) -> NodeGpus:
    return NodeGpus(name, pool, gpus * 1000, held)


def pod(workload: str, gpus: int, at_risk: int = 0, *, movable: bool = True) -> HeldGpus:
    return HeldGpus(workload, gpus * 1000, at_risk, movable)


NAMED = {name: running(name) for name in ("a", "b", "c", "d")}
SCATTERED = [node("n1", pod("a", 2, 7200)), node("n2", pod("b", 4, 3600)), node("n3", pod("c", 6, 99999))]


def test_scattered_free_gpus_are_fragmentation_and_the_cheapest_move_is_named() -> None:
    found = only(rules.fragmentation([job("big")], SCATTERED, NAMED, NOW))
    assert found.evidence[0] == "12 GPUs are free in h100 (nodes: 3), at most 6 GPUs on one."
    assert found.advice.startswith("Move {1} (4 GPUs) from n2 to n1: then n2 has room for {0}.")
    assert "about 1.0 GPU-hours lost" in found.advice
    assert ([each.name for each in found.jobs], found.key, found.rate) == (["big", "b"], "1 h100", 8000)


def test_several_small_pods_are_moved_where_one_does_not_do() -> None:
    nodes = [node("n1", pod("a", 2), pod("b", 2)), node("n2", pod("c", 5, 10**6))]
    nodes += [node("n3", pod("d", 6, movable=False))]
    found = only(rules.fragmentation([job("big")], nodes, NAMED, NOW))
    assert found.advice.startswith("Move {1} (2 GPUs) from n1 to n3, {2} (2 GPUs) from n1 to n2: then n1 has room")


def test_no_move_is_named_where_none_helps() -> None:
    nodes = [replace(each, held=tuple(replace(pod, movable=False) for pod in each.held)) for each in SCATTERED]
    assert only(rules.fragmentation([job("big")], nodes, NAMED, NOW)).advice.startswith("No move of up to three")


def test_one_finding_per_project_names_the_longest_wait_and_counts_the_others() -> None:
    waiting = [job("big"), job("older", phase_at=ago(hours=1)), job("theirs", project=2)]
    ours, theirs = rules.fragmentation(waiting, SCATTERED, NAMED, NOW)
    assert (ours.jobs[0].name, theirs.jobs[0].name) == ("older", "theirs")
    assert "Others of its project that cannot start: 1." in ours.evidence[1]


@pytest.mark.parametrize(
    ("waiting", "nodes"),
    [
        pytest.param([], SCATTERED, id="nothing waits"),
        pytest.param([job("big", gpu_milli=13000)], SCATTERED, id="too little is free in total"),
        pytest.param([job("small", gpu_milli=6000)], SCATTERED, id="it fits on one node"),
        pytest.param([job("gang", pods=2)], SCATTERED, id="several pods"),
        pytest.param([job("big", reason="OverLimit")], SCATTERED, id="its project is at its limit"),
        pytest.param([job("big", phase_at=ago(minutes=3))], SCATTERED, id="it waits for 3 min"),
        pytest.param([job("big", pool="a100")], SCATTERED, id="another pool"),
    ],
)
def test_it_is_not_fragmentation_when(waiting: list[JobFacts], nodes: list[NodeGpus]) -> None:
    assert not list(rules.fragmentation(waiting, nodes, NAMED, NOW))


def test_more_quota_than_gpus_is_found_for_projects_and_for_departments() -> None:
    found = only(rules.quota_above_physical([PoolGpus("h100", 64000, 72000, 64000)]))
    assert found.evidence == ("Projects deserve 72 GPUs in h100; its nodes have 64 GPUs.",)
    assert (found.rate, found.jobs) == (8000, ())
    assert "Departments deserve" in only(rules.quota_above_physical([PoolGpus("h100", 8000, 0, 9000)])).evidence[0]


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(PoolGpus("h100", 64000, 64000, 64000), id="exactly as much"),
        pytest.param(PoolGpus("h100", 0, 72000, 72000), id="no node was seen"),
    ],
)
def test_quota_is_covered_when(pool: PoolGpus) -> None:
    assert not list(rules.quota_above_physical([pool]))


def test_idle_gpus_are_found_after_an_hour_while_others_wait_and_else_after_eight() -> None:
    notebook = running("notebook", gpu_milli=2000)
    found = only(rules.idle_gpus([(notebook, ago(hours=2))], [job("big")], NOW))
    assert found.evidence[1] == "Other workloads wait in this pool."
    assert (found.rate, found.since) == (2000, ago(hours=2))
    assert only(rules.idle_gpus([(notebook, ago(hours=9))], [], NOW)).evidence[1].startswith("Nothing waits")


@pytest.mark.parametrize(
    ("hours", "waiting"),
    [
        pytest.param(0.5, [job("big")], id="half an hour"),
        pytest.param(2, [], id="two hours while nothing waits"),
        pytest.param(2, [job("big", pool="a100")], id="two hours while others wait in another pool"),
        pytest.param(2, [job("big", reason="OverLimit")], id="two hours while the others wait for their own quota"),
    ],
)
def test_idleness_is_tolerated_for(hours: float, waiting: list[JobFacts]) -> None:
    assert not list(rules.idle_gpus([(running("notebook"), ago(hours=hours))], waiting, NOW))


def test_non_preemptible_work_above_its_quota_is_found_with_the_cut() -> None:
    jobs = (running("serve"), running("older", gpu_milli=4000))
    found = only(rules.pinned_quota([PinnedQueue("llm-team", "h100", 8000, jobs, 16000, ago(hours=3))]))
    assert found.evidence == (
        "Non-preemptible workloads of llm-team hold 12 GPUs in h100; its deserved quota there is 8 GPUs. It was 16 "
        "GPUs until 2026-06-01 09:00 UTC.",
        "The newest of these 2 is {0} with 8 GPUs.",
    )
    assert (found.rate, found.since, found.advice[:38]) == (
        4000,
        ago(hours=3),
        "Raise the deserved quota to 12 GPUs, o",
    )


def test_non_preemptible_work_within_its_quota_pins_nothing() -> None:
    assert not list(rules.pinned_quota([PinnedQueue("llm-team", "h100", 8000, (running("serve"),))]))
