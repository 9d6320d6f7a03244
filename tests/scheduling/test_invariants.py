"""What holds in every cluster, whatever waits in it. Whole lives of small clusters, cycle after cycle."""

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.forecast.cycle import FLAVOURS, cycle, preview
from scheduling.model.decisions import Decision, Evict, OutcomeKind, Start, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import PodGroup, Snapshot, Strategy
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.queue_usage import QueueUsage
from tests.builders import gang, node, queue, snapshot

CYCLES = 6
LEAVES = ("qa", "qb", "qc")

gpus = st.sampled_from([0, 1, 2, 4, 8])
shared = st.sampled_from([None, None, 4, 8])
flavours = st.sampled_from(["kube", "kai"])
with_volcano = st.sampled_from(["kube", "kai", "volcano"])
"""For what holds without regard to quotas of non-preemptible work, and though Volcano gives nothing back."""
bounds = st.sampled_from([None, None, None, 4, 8])
groups = st.tuples(
    st.sampled_from(LEAVES),
    st.sampled_from([25, 40, 80, 100, 125]),
    st.sampled_from([True, True, False]),
    st.sampled_from([1, 1, 2, 4]),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.integers(1, 3),
)


def work(name: str, drawn: tuple[str, int, bool, int, int, int], created: int) -> PodGroup:
    leaf, priority, preemptible, size, pods, minimum = drawn
    return gang(
        name,
        queue=leaf,
        priority=priority,
        preemptible=preemptible,
        gpus=size,
        pods=pods,
        min_member=min(minimum, pods),
        created=created,
    )


newcomers = groups.map(lambda drawn: work("new", (*drawn[:5], drawn[4]), 99))


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Two departments, three projects, up to four nodes; everything waits."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3))
    nodes = [node(f"n{index}", size, order=index) for index, size in enumerate(sizes)]
    departments = [
        queue(name, deserved=draw(shared), limit=draw(bounds), created=index) for index, name in ((0, "d1"), (1, "d2"))
    ]
    projects = [
        queue(
            name,
            draw(st.sampled_from(["d1", "d2"])),
            deserved=draw(gpus),
            limit=draw(bounds),
            weight=draw(st.integers(0, 3)),
            rank=draw(st.sampled_from([90, 100, 110])),
            created=index,
        )
        for index, name in enumerate(LEAVES)
    ]
    used = {found.parent for found in projects}
    drawn = draw(st.lists(groups, min_size=4, max_size=10))
    waiting = [work(f"g{index}", row, index) for index, row in enumerate(drawn)]
    parents = [found for found in departments if found.name in used]
    return snapshot(*nodes, *parents, *projects, *waiting)


def after(before: Snapshot, decisions: list[Decision], now: int) -> Snapshot:
    """Apply decisions: what was ending is gone and waits again, victims begin to end, starters run."""
    found = {group.name: _ended(group) for group in before.groups}
    for decision in decisions:
        if isinstance(decision, Start):
            found[decision.group.name] = _started(found[decision.group.name], decision, now)
        elif isinstance(decision, Evict):
            found[decision.victim.name] = _ending(found[decision.victim.name], decision)
    return replace(before, groups=tuple(found.values()))


def _ended(group: PodGroup) -> PodGroup:
    return replace(
        group, pods=tuple(replace(pod, node=None, terminating=False) if pod.terminating else pod for pod in group.pods)
    )


def _started(group: PodGroup, start: Start, now: int) -> PodGroup:
    pods = tuple(replace(pod, node=start.placements.get(pod.name, pod.node)) for pod in group.pods)
    return replace(group, pods=pods, started=now)


def _ending(group: PodGroup, evict: Evict) -> PodGroup:
    return replace(
        group, pods=tuple(replace(pod, terminating=pod.name in evict.pods or pod.terminating) for pod in group.pods)
    )


def life(cluster: Snapshot, flavour: str) -> Iterator[tuple[Snapshot, list[Decision], Snapshot]]:
    """Cycle after cycle; the workloads come a few at a time."""
    present = replace(cluster, groups=())
    for now in range(CYCLES):
        arrived = {group.name for group in present.groups}
        newcomers = [group for group in cluster.groups[: 3 * (now + 1)] if group.name not in arrived]
        present = replace(present, groups=(*present.groups, *newcomers), now=now)
        decisions = cycle(present, flavour=flavour)
        following = after(present, decisions, now)
        yield present, decisions, following
        present = following


def uses(cluster: Snapshot) -> dict[str, QueueUsage]:
    return SchedulingState(cluster, default=Strategy.BINPACK).usage.uses


def free_on(cluster: Snapshot, name: str) -> int:
    """GPUs of the node that nobody holds, ending pods included."""
    capacity = next(found.capacity.gpu for found in cluster.nodes if found.name == name)
    return capacity - sum(pod.requests.gpu for group in cluster.groups for pod in group.pods if pod.node == name)


modest = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@modest
@given(clusters(), with_volcano)
def test_no_node_ever_holds_more_than_it_has(cluster: Snapshot, flavour: str) -> None:
    for _before, _decisions, following in life(cluster, flavour):
        assert all(free_on(following, found.name) >= 0 for found in following.nodes)


@modest
@given(clusters(), with_volcano)
def test_no_queue_ever_passes_its_limit(cluster: Snapshot, flavour: str) -> None:
    for _before, _decisions, following in life(cluster, flavour):
        for name, use in uses(following).items():
            assert use.allocated.within(cluster.queue_by_name[name].limit)


@modest
@given(clusters(), flavours)
def test_non_preemptible_work_never_passes_deserved_quota(cluster: Snapshot, flavour: str) -> None:
    for _before, _decisions, following in life(cluster, flavour):
        for name, use in uses(following).items():
            assert use.non_preemptible.within(cluster.queue_by_name[name].deserved)


@modest
@given(clusters())
def test_kais_victims_are_preemptible_and_weaker_or_of_another_queue_or_have_a_next_node(cluster: Snapshot) -> None:
    for before, decisions, _following in life(cluster, "kai"):
        for evict in (decision for decision in decisions if isinstance(decision, Evict)):
            winner = before.group_by_name[evict.for_group]
            assert evict.victim.preemptible
            if evict.cause is Cause.CONSOLIDATE:
                assert set(evict.moves_to) == set(evict.pods)
            else:
                assert evict.victim.queue != winner.queue or evict.victim.priority < winner.priority


@modest
@given(clusters())
def test_kubes_victims_are_weaker(cluster: Snapshot) -> None:
    for before, decisions, _following in life(cluster, "kube"):
        for evict in (decision for decision in decisions if isinstance(decision, Evict)):
            assert evict.victim.priority < before.group_by_name[evict.for_group].priority


def contest(cluster: Snapshot, newcomer: PodGroup, flavour: str) -> tuple[Snapshot, list[Decision]]:
    """The cluster after a while, with one newcomer as the only one that waits."""
    *_earlier, (_before, _decisions, settled) = life(cluster, flavour)
    running = tuple(group for group in after(settled, [], CYCLES).groups if group.holding and not group.waiting)
    before = replace(settled, groups=(*running, newcomer))
    return before, cycle(before, flavour=flavour)


def fits(cluster: Snapshot, winner: PodGroup, without: tuple[Evict, ...] = ()) -> bool:
    """Is there room and quota for all its pods once these victims are gone?"""
    state = SchedulingState(cluster, default=Strategy.BINPACK)
    for evict in without:
        for assignment in state.assignments_of[evict.victim.name]:
            if assignment.pod.name in evict.pods:
                state.evict(assignment)
    return state.refusal(winner, winner.total) is None and state.place_all(winner, winner.waiting) is not None


def evictions(decisions: list[Decision]) -> tuple[Evict, ...]:
    return tuple(decision for decision in decisions if isinstance(decision, Evict))


@modest
@given(clusters(), newcomers, with_volcano)
def test_nobody_is_evicted_for_a_workload_that_fits(cluster: Snapshot, newcomer: PodGroup, flavour: str) -> None:
    before, decisions = contest(cluster, newcomer, flavour)
    if fits(before, newcomer):
        assert [type(decision) for decision in decisions] == [Start]


@modest
@given(clusters(), newcomers, flavours)
def test_every_victim_of_a_single_pod_is_needed(cluster: Snapshot, newcomer: PodGroup, flavour: str) -> None:
    before, decisions = contest(cluster, newcomer, flavour)
    victims = evictions(decisions)
    if len(newcomer.pods) > 1 or any(evict.moves_to for evict in victims):
        return
    for spared in victims:
        if flavour == "kai" and len(spared.pods) < len(spared.victim.pods):
            continue  # KAI gives a victim's minimum back, not the pods above it
        assert not fits(before, newcomer, tuple(evict for evict in victims if evict is not spared))


def _reasons_of(group: PodGroup, decisions: list[Decision]) -> set[Reason]:
    return {each.pend.reason for each in decisions if isinstance(each, Wait) and each.group.name == group.name}


@modest
@given(clusters(), newcomers, with_volcano)
def test_room_that_is_being_made_is_not_made_twice_and_is_used(
    cluster: Snapshot, newcomer: PodGroup, flavour: str
) -> None:
    """While the victims end the winner waits or starts, and takes nobody else; once they are gone it runs."""
    before, decisions = contest(cluster, newcomer, flavour)
    if not evictions(decisions) or (flavour == "kube" and len(newcomer.pods) > 1):
        return
    ending = after(before, decisions, CYCLES)
    again = cycle(ending, flavour=flavour)
    assert not evictions(again)
    reasons = {decision.pend.reason for decision in again if isinstance(decision, Wait)}
    if flavour == "volcano" and Reason.OVER_LIMIT in _reasons_of(newcomer, decisions):
        # Its reclaim ignores what a department uses, so the limit of the department may refuse the winner afterwards.
        assert reasons <= {Reason.EVICTING, Reason.OVER_LIMIT}
        return
    assert reasons <= {Reason.EVICTING}
    emptied = after(ending, again, CYCLES + 1)
    victims = {evict.victim.name for evict in evictions(decisions)}
    done = replace(emptied, groups=tuple(group for group in emptied.groups if group.name not in victims))
    started = [decision.group.name for decision in cycle(done, flavour=flavour) if isinstance(decision, Start)]
    assert started == [newcomer.name] or done.group_by_name[newcomer.name].holding


@modest
@given(clusters(), with_volcano)
def test_every_waiting_group_is_answered_once_and_the_snapshot_is_unchanged(cluster: Snapshot, flavour: str) -> None:
    for before, _decisions, _following in life(cluster, flavour):
        copy = replace(before)
        decisions = cycle(before, flavour=flavour)
        assert before == copy
        assert decisions == cycle(before, flavour=flavour)
        answered = [d.group.name for d in decisions if isinstance(d, Wait)]
        placed = {d.group.name: set(d.placements) for d in decisions if isinstance(d, Start)}
        for group in before.groups:
            left = {pod.name for pod in group.waiting} - placed.get(group.name, set())
            assert answered.count(group.name) == bool(left)


@modest
@given(clusters(), newcomers, st.sampled_from([25, 40, 80]), st.sampled_from(sorted(FLAVOURS)))
def test_what_waits_for_room_or_evicts_does_not_start_with_a_weaker_priority(
    cluster: Snapshot, newcomer: PodGroup, weaker: int, flavour: str
) -> None:
    """So the alternatives of a forecast need not try weaker priorities.

    A limit is another matter: an eviction in the same cycle may free what the limit counts for those who come later.
    """
    for before, _decisions, _following in life(cluster, flavour):
        found = preview(before, newcomer, flavour=flavour)
        limited = found.pend is not None and found.pend.reason is Reason.OVER_LIMIT
        if found.kind is not OutcomeKind.PLACED and not limited:
            lowered = replace(newcomer, priority=min(weaker, newcomer.priority))
            assert preview(before, lowered, flavour=flavour).kind is not OutcomeKind.PLACED
