"""Work younger than the min guaranteed runtime of its queue, or of its department's, is not taken."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.forecast.cycle import preview
from scheduling.model.decisions import Evict, OutcomeKind
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode
from scheduling.state.min_runtime import protected_until
from tests.builders import gang, node, queue, running, snapshot
from tests.scheduling.test_invariants import clusters, life

NOW = 100
RESEARCH, SALES = queue("research", deserved=4), queue("sales", deserved=4)
TEAM, SIBLING = queue("team", "research", deserved=0), queue("sibling", "research", deserved=4)
COUSIN = queue("cousin", "sales", deserved=4)


def guaranteed(own: Queue, time: int) -> Queue:
    """The queue with that min guaranteed runtime for both ways of losing."""
    return replace(own, preempt_min_runtime=time, reclaim_min_runtime=time)


def victims(candidate: PodGroup, *items: SnapshotNode | Queue | PodGroup, now: int | None = NOW) -> list[str]:
    found = preview(replace(snapshot(*items), now=now), candidate, flavour="kai")
    assert (found.kind is OutcomeKind.PENDING) is not bool(found.victims)
    return sorted(evict.victim.name for evict in found.victims)


@pytest.mark.parametrize(
    ("team", "research", "taken"),
    [
        pytest.param(50, None, False, id="its queue's"),
        pytest.param(None, 50, False, id="its department's"),
        pytest.param(20, 50, True, id="its queue goes before its department"),
        pytest.param(0, 50, True, id="its queue gives it up"),
        pytest.param(30, None, True, id="over to the very moment"),
        pytest.param(None, None, True, id="none"),
    ],
)
def test_a_stronger_workload_of_the_queue_waits_for_it(team: int | None, research: int | None, taken: bool) -> None:
    parent = replace(RESEARCH, preempt_min_runtime=research)
    own = replace(TEAM, deserved=SIBLING.deserved, preempt_min_runtime=team)
    young = running("young", "n", gpus=2, priority="low", start=70)
    assert victims(gang("new", gpus=2, priority="medium"), node("n", 2), parent, own, young) == ["young"] * taken


@pytest.mark.parametrize(("least", "until"), [(50, 120), (None, 0)])
def test_from_when_on_it_could_be_taken_is_its_start_and_that_time(least: int | None, until: int) -> None:
    items = node("n", 2), replace(TEAM, deserved=SIBLING.deserved, preempt_min_runtime=least), RESEARCH
    young, taker = running("young", "n", gpus=2, priority="low", start=70), gang("new", gpus=2, priority="medium")
    seen = replace(snapshot(*items, young), now=200)
    assert protected_until(seen, preview(seen, taker, flavour="kai").victims[0], taker) == until


@pytest.mark.parametrize(
    ("taker", "team", "research", "taken"),
    [
        pytest.param("sibling", 50, None, False, id="siblings wait for its queue's"),
        pytest.param("sibling", None, 50, False, id="siblings wait for the department's"),
        pytest.param("sibling", 20, 50, True, id="for siblings its queue goes before its department"),
        pytest.param("cousin", 50, None, True, id="other departments do not know its queue's"),
        pytest.param("cousin", 20, 50, False, id="other departments wait for the department's"),
    ],
)
def test_other_queues_wait_before_they_reclaim(taker: str, team: int | None, research: int | None, taken: bool) -> None:
    parent = queue("research", deserved=0 if taker == "cousin" else 4)
    queues = (
        replace(parent, reclaim_min_runtime=research),
        replace(TEAM, reclaim_min_runtime=team),
        SALES,
        SIBLING,
        COUSIN,
    )
    young = running("young", "n", gpus=4, start=70)
    assert victims(gang("new", gpus=4, queue=taker), node("n", 4), *queues, young) == ["young"] * taken


def test_an_older_one_goes_in_its_place() -> None:
    team = guaranteed(replace(TEAM, deserved=SIBLING.deserved), 50)
    work = [running("old", "a", priority="medium-low", start=1), running("young", "b", priority="low", start=70)]
    new = gang("new", priority="medium")
    nodes = (node("a", 1), node("b", 1))
    assert victims(new, *nodes, RESEARCH, team, *work) == ["old"]
    assert victims(new, *nodes, RESEARCH, TEAM, *work) == ["young"]


def test_pods_above_its_minimum_are_not_protected() -> None:
    team = guaranteed(replace(TEAM, deserved=SIBLING.deserved), 50)
    elastic = gang("elastic", pods=4, min_member=2, nodes=("n",) * 4, priority="low", started=70)
    new = gang("new", gpus=2, priority="medium")
    assert victims(new, node("n", 4), RESEARCH, team, elastic) == ["elastic"]
    larger = gang("new", gpus=3, priority="medium")
    assert victims(larger, node("n", 4), RESEARCH, team, elastic) == []


@pytest.mark.parametrize(("now", "started"), [(None, 70), (NOW, None)])
def test_without_a_moment_or_a_start_nobody_is_protected(now: int | None, started: int | None) -> None:
    team = guaranteed(replace(TEAM, deserved=SIBLING.deserved), 50)
    young = replace(running("young", "n", priority="low"), started=started)
    assert victims(gang("new", priority="medium"), node("n", 1), RESEARCH, team, young, now=now) == ["young"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.lists(st.sampled_from([None, 0, 1, 2, 4]), min_size=5, max_size=5))
def test_whatever_waits_protected_work_keeps_its_minimum(cluster: Snapshot, times: list[int | None]) -> None:
    """Whole lives of small clusters: whoever loses more than pods above its minimum has had its time."""
    queues = [
        replace(each, preempt_min_runtime=time, reclaim_min_runtime=time)
        for each, time in zip(cluster.queues, times, strict=False)
    ]
    for before, decisions, _following in life(replace(cluster, queues=tuple(queues)), "kai"):
        assert before.now is not None
        evicts = [each for each in decisions if isinstance(each, Evict)]
        for evict in evicts:
            taken = sum(len(each.pods) for each in evicts if each.victim is evict.victim)
            age = before.now - (evict.victim.started or 0)
            keeps_minimum = len(evict.victim.holding) - taken >= evict.victim.min_member
            assert keeps_minimum or age >= least_age(before, evict)


def least_age(before: Snapshot, evict: Evict) -> int:
    """What the rules say to this one: a queue's own, else its department's; to strangers the department's alone."""
    own = before.queue_by_name[evict.victim.queue]
    above = before.queue_by_name[own.parent or ""]
    taker = before.queue_by_name[before.group_by_name[evict.for_group].queue]
    said = [own.reclaim_min_runtime, above.reclaim_min_runtime] if taker.parent == own.parent else []
    return next((time for time in (*said, above.reclaim_min_runtime) if time is not None), 0)
