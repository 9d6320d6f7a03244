"""What a scheduler admits by quota alone, and the nodes have no room for: free quota in pieces that are too small.

Kueue lets a job go without a look at nodes where their pool has no topology; its pods then look for some, each for
itself, and hold the quota meanwhile.
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
    """`pods` of `of` that wait find no node. asked: what the largest of those needs; free: of the pool, in sum; short:
    what there is too little of.

    later: each finds one once pods that are ending have left.
    """

    pods: int
    of: int
    asked: Resources
    free: Resources
    short: Shortage
    later: bool = False


def unplaced_pods(
    snapshot: Snapshot, group: PodGroup, evicted: Sequence[Evict] = (), *, last: bool = False
) -> UnplacedPods | None:
    """None: each of its pods finds a node once the evicted are gone, or no node of its pool has been seen.

    Admitted pods that wait for a node and come before its own take theirs first: by priority, then by age. last: all
    of them do, since room that comes free bit by bit is enough for smaller pods sooner.
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
    """Each of its waiting pods where it fits; now, or on room that is on its way."""
    for pod in group.waiting:
        now = state.capacities.find(pod.requests, group, Strategy.BINPACK, now=True)
        if capacity := now or state.capacities.find(pod.requests, group, Strategy.BINPACK, now=False):
            state.place(group, pod, capacity, now=now is not None)


def _without(snapshot: Snapshot, evicted: Sequence[Evict]) -> Snapshot:
    going = {name for evict in evicted for name in evict.pods}
    victims = filter(None, (snapshot.group(name) for name in {evict.victim.name: None for evict in evicted}))
    left = [replace(each, pods=tuple(pod for pod in each.pods if pod.name not in going)) for each in victims]
    return snapshot.changed((each.name for each in left), (each for each in left if each.pods), now=snapshot.now)
