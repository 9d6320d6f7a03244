"""What holds in every cluster with gangs, whatever waits in it. Whole lives of small clusters, cycle after cycle."""

from dataclasses import replace

from hypothesis import given

from scheduling.model.decisions import Evict, Start, Wait
from scheduling.model.snapshot import PodGroup, Snapshot
from tests.scheduling.test_invariants import clusters, free_on, life, modest, uses

FLAVOUR = "kube-gangs"


def with_gangs(cluster: Snapshot) -> Snapshot:
    """Two of three workloads are gangs, half of them evicted whole or not at all."""
    return replace(cluster, groups=tuple(_some_gang(group, index) for index, group in enumerate(cluster.groups)))


def _some_gang(group: PodGroup, index: int) -> PodGroup:
    return replace(group, gang=index % 3 > 0, whole=index % 3 == 1)


gangs = clusters().map(with_gangs)


@modest
@given(gangs)
def test_no_node_and_no_quota_is_ever_overdrawn(cluster: Snapshot) -> None:
    for _before, _decisions, following in life(cluster, FLAVOUR):
        assert all(free_on(following, found.name) >= 0 for found in following.nodes)
        for name, use in uses(following).items():
            assert use.allocated.within(cluster.queue_by_name[name].limit)


@modest
@given(gangs)
def test_a_gang_never_starts_below_its_minimum(cluster: Snapshot) -> None:
    for before, decisions, _following in life(cluster, FLAVOUR):
        for start in (decision for decision in decisions if isinstance(decision, Start)):
            group = before.group_by_name[start.group.name]
            assert not group.gang or len(group.holding) + len(start.placements) >= group.min_member


@modest
@given(gangs)
def test_victims_are_weaker_and_for_a_gang_whole_gangs_go_whole(cluster: Snapshot) -> None:
    for before, decisions, _following in life(cluster, FLAVOUR):
        evictions = [decision for decision in decisions if isinstance(decision, Evict)]
        taken: dict[str, set[str]] = {}
        for evict in evictions:
            taken.setdefault(evict.victim.name, set()).update(evict.pods)
        for evict in evictions:
            winner, victim = before.group_by_name[evict.for_group], before.group_by_name[evict.victim.name]
            assert victim.priority < winner.priority
            if winner.gang and victim.gang and victim.whole:
                assert {pod.name for pod in victim.holding} == taken[victim.name]


@modest
@given(gangs)
def test_every_waiting_group_is_answered_once(cluster: Snapshot) -> None:
    for before, decisions, _following in life(cluster, FLAVOUR):
        answered = [decision.group.name for decision in decisions if isinstance(decision, Wait)]
        placed = {
            decision.group.name: set(decision.placements) for decision in decisions if isinstance(decision, Start)
        }
        for group in before.groups:
            left = {pod.name for pod in group.waiting} - placed.get(group.name, set())
            assert answered.count(group.name) == bool(left)
