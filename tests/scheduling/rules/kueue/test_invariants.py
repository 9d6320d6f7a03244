"""Kueue: what holds whatever waits, in every tree of quotas."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.forecast.cycle import cycle
from scheduling.model.decisions import Decision, Evict, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import PodGroup, Snapshot
from tests.builders import gang, queue, snapshot

LEAVES = ("qa", "qb", "qc")
amounts = st.sampled_from([0, 1, 2, 4, 8])
bounds = st.sampled_from([None, None, 4, 8])
modest = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Two departments under one root, three projects; what ran was admitted by the model, the rest waits."""
    departments = [queue(name, "root", deserved=draw(amounts), limit=draw(bounds)) for name in ("d1", "d2")]
    homes = st.sampled_from(["d1", "d2", "root", None])
    projects = [queue(leaf, draw(homes), deserved=draw(amounts), limit=draw(bounds)) for leaf in LEAVES]
    empty = snapshot(*departments, *projects)
    first = empty
    for index in range(draw(st.integers(0, 6))):
        first = first.with_groups([_work(draw, f"first-{index}", index)])
    held = [replace(group, started=group.created) for group in _started(cycle_of(first))]
    waiting = [_work(draw, f"new-{index}", 50 + index) for index in range(draw(st.integers(1, 4)))]
    return snapshot(*departments, *projects, *held, *waiting)


def _work(draw: st.DrawFn, name: str, created: int) -> PodGroup:
    leaf, priority = draw(st.sampled_from(LEAVES)), draw(st.sampled_from([25, 40, 80, 125]))
    return gang(name, queue=leaf, priority=priority, gpus=draw(st.sampled_from([1, 1, 2, 3, 4])), created=created)


def _started(decisions: list[Decision]) -> list[PodGroup]:
    return [decision.group for decision in decisions if isinstance(decision, Start)]


def cycle_of(cluster: Snapshot) -> list[Decision]:
    return cycle(cluster, flavour="kueue")


def used(groups: list[PodGroup], name: str, cluster: Snapshot) -> int:
    """GPUs of a queue and everything below it."""
    below = {name} | {each.name for each in cluster.queues if each.parent == name}
    below |= {each.name for each in cluster.queues if each.parent in below}
    return sum(group.total.gpu for group in groups if group.queue in below)


def after(cluster: Snapshot, decisions: list[Decision]) -> list[PodGroup]:
    """Who holds quota once all victims are gone and all who wait for that have come."""
    gone = {decision.victim.name for decision in decisions if isinstance(decision, Evict)}
    stay = [group for group in cluster.groups if group.started is not None and group.name not in gone]
    coming = [d.group for d in decisions if isinstance(d, Wait) and d.pend.reason is Reason.EVICTING]
    return [*stay, *_started(decisions), *coming]


@modest
@given(clusters())
def test_no_queue_passes_its_limit_and_nobody_alone_its_quota(cluster: Snapshot) -> None:
    groups = after(cluster, cycle_of(cluster))
    for each in cluster.queues:
        most = max(each.limit.gpu or 10**9, each.deserved.gpu or 0)
        bound = (each.deserved.gpu or 0) if each.parent is None else most
        if each.name in LEAVES:
            assert used(groups, each.name, cluster) <= bound


@modest
@given(clusters())
def test_everybody_together_stays_inside_what_everybody_deserves(cluster: Snapshot) -> None:
    children = {name: [each for each in cluster.queues if each.parent == name] for name in ("d1", "d2", "root")}
    totals = {
        name: max(cluster.queue_by_name[name].deserved.gpu or 0, sum(each.deserved.gpu or 0 for each in children[name]))
        for name in ("d1", "d2")
    }
    whole = sum(totals.get(each.name, each.deserved.gpu or 0) for each in children["root"])
    assert used(after(cluster, cycle_of(cluster)), "root", cluster) <= whole


@modest
@given(clusters())
def test_victims_are_weaker_or_of_a_queue_that_borrows(cluster: Snapshot) -> None:
    let_go = [group for group in cluster.groups if group.started is not None]
    for evict in cycle_of(cluster):
        if not isinstance(evict, Evict):
            let_go += [evict.group] if _has_room(evict) else []
            continue
        taker = cluster.group_by_name[evict.for_group]
        if evict.cause is Cause.PREEMPT:
            assert evict.victim.queue == taker.queue
            assert evict.victim.priority < taker.priority
        else:
            deserved = cluster.queue_by_name[evict.victim.queue].deserved.gpu or 0
            assert used(let_go, evict.victim.queue, cluster) > deserved
            assert evict.victim.queue != taker.queue


def _has_room(decision: Start | Wait) -> bool:
    """Now, or as soon as its victims are gone: it counts against its queue from then on."""
    return isinstance(decision, Start) or decision.pend.reason is Reason.EVICTING


@modest
@given(clusters())
def test_everybody_who_waits_is_answered_once_and_nobody_is_evicted_twice(cluster: Snapshot) -> None:
    decisions = cycle_of(cluster)
    answered = [decision.group.name for decision in decisions if isinstance(decision, Start | Wait)]
    assert sorted(answered) == sorted(group.name for group in cluster.groups if group.started is None)
    victims = [decision.victim.name for decision in decisions if isinstance(decision, Evict)]
    assert len(set(victims)) == len(victims)
    assert decisions == cycle_of(cluster)
