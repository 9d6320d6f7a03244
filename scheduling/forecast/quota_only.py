"""Workloads that are admitted by quota alone and do not fit on the nodes.

Kueue admits a job without checking nodes if their pool has no topology. kube-scheduler then places its pods one by one,
and the job holds its quota until they are placed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scheduling.model.decisions import Evict
from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Snapshot, Strategy
from scheduling.state.cluster_state import SchedulingState, packed_state
from scheduling.state.refusals import pods_without_node
from scheduling.state.shortage import Shortage
from scheduling.state.workspace import workspace


@dataclass(frozen=True, slots=True)
class UnplacedPods:
    """`pods` of `of` waiting pods find no node. asked: request of the largest; free: sum of the pool; short: resources
    of which there is too little.

    later: whether each finds a node once terminating pods are gone.
    """

    pods: int
    of: int
    requested: Resources
    free: Resources
    short: Shortage
    later: bool = False


def unplaced_pods(
    snapshot: Snapshot, group: PodGroup, evicted: Sequence[Evict] = (), *, last: bool = False
) -> UnplacedPods | None:
    """Return its pods that find no node; None if each finds one once victims are gone, or no node of its pool is known.

    Admitted pods that wait for a node and come first by priority and age are placed first. last: all of them are,
    because capacity that is freed bit by bit fits smaller pods sooner.
    """
    known = _without(snapshot, evicted)
    with workspace(known, packed_state) as state:
        if not state.nodes[group.pool]:
            return None
        for earlier in sorted(_before(known, group, last=last), key=_turn):
            _seat(state, earlier)
        return _unplaced(state, group)


def _unplaced(state: SchedulingState, group: PodGroup) -> UnplacedPods | None:
    without = pods_without_node(state, group)
    later = not without
    if later and not (without := pods_without_node(state, group, now=True)):
        return None
    short = state.shortage(group, group.waiting, now=later)
    free, _largest = state.capacities.free(group)
    return UnplacedPods(len(without), len(group.waiting), without[0].requests, free, short, later)


def _turn(group: PodGroup) -> tuple[int, int]:
    return (-group.priority, group.created)


def _before(snapshot: Snapshot, group: PodGroup, *, last: bool) -> Iterator[PodGroup]:
    admitted = (each for each in snapshot.waiting if each.started is not None and each.pool == group.pool)
    return (each for each in admitted if last or _turn(each) < _turn(group))


def _seat(state: SchedulingState, group: PodGroup) -> None:
    """Place each of its waiting pods where it fits, now or once capacity is freed."""
    for pod in group.waiting:
        now = state.capacities.find(pod.requests, group, Strategy.BINPACK, now=True)
        if capacity := now or state.capacities.find(pod.requests, group, Strategy.BINPACK, now=False):
            state.place(group, pod, capacity, now=now is not None)


def _without(snapshot: Snapshot, evicted: Sequence[Evict]) -> Snapshot:
    going = {name for evict in evicted for name in evict.pods}
    victims = filter(None, (snapshot.group(name) for name in {evict.victim.name: None for evict in evicted}))
    left = [replace(each, pods=tuple(pod for pod in each.pods if pod.name not in going)) for each in victims]
    return snapshot.changed((each.name for each in left), (each for each in left if each.pods), now=snapshot.now)
