"""The cycles after an eviction, for schedulers that do not reserve the freed capacity, until the candidate is placed.

KAI decides again in every cycle. While the victims terminate, the group that is first by then gets the freed capacity;
the candidate evicts again, or waits although others were evicted for it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduling.model.decisions import Decision, Evict, Start, Wait
from scheduling.model.reasons import PendingReason
from scheduling.model.snapshot import Pod, PodGroup, Snapshot

MOST: Final = 8
"""Cycles after the first; what is not settled by then is reported as it is."""


@dataclass(frozen=True, slots=True)
class EvictionSequel:
    """victims: all evictions for the candidate, including the first. waiting: number of its pods without a node.

    pend: why those wait. first: other groups that take the freed capacity.
    """

    victims: tuple[Evict, ...]
    waiting: int
    pend: PendingReason | None
    first: tuple[PodGroup, ...]


def sequel(
    snapshot: Snapshot,
    own: Collection[str],
    first: Sequence[Decision],
    decide: Callable[[Snapshot], Sequence[Decision]],
) -> EvictionSequel:
    """Follow this first cycle of the snapshot, which evicts for the groups of these names."""
    hoped = _placeless(snapshot, own, first)
    evicts = [each for each in first if isinstance(each, Evict)]
    state, decided = _after(snapshot, first), first
    takers: dict[str, PodGroup] = {}
    for _ in range(MOST):
        decided = decide(state)
        more = [each for each in decided if isinstance(each, Evict)]
        if _placeless(state, own, decided) <= hoped and not any(each.for_group in own for each in more):
            break
        takers |= {each.name: each for each in _taking(decided, _made(evicts, own)) if each.name not in own}
        evicts += more
        following = _following(state, decided)
        if following is None:
            break
        state = following
    helped = {each.for_group for each in evicts}
    return EvictionSequel(
        victims=tuple(each for each in evicts if each.for_group in own),
        waiting=_placeless(state, own, decided),
        pend=next((each.pend for each in decided if isinstance(each, Wait) and each.group.name in own), None),
        first=tuple(group for name, group in takers.items() if name not in helped),
    )


def _made(evicts: Sequence[Evict], own: Collection[str]) -> frozenset[str]:
    """Nodes on which capacity is freed for the candidate."""
    return frozenset(node for each in evicts if each.for_group in own for node in each.nodes.values())


def _taking(decided: Sequence[Decision], nodes: Collection[str]) -> Iterator[PodGroup]:
    for each in decided:
        places = each.placements if isinstance(each, Start) else each.nominated if isinstance(each, Wait) else {}
        if not isinstance(each, Evict) and not set(nodes).isdisjoint(places.values()):
            yield each.group


def _placeless(state: Snapshot, own: Collection[str], decided: Sequence[Decision]) -> int:
    """Number of its pods that neither have nor are nominated to a node."""
    groups = filter(None, map(state.group, own))
    waiting = {pod.name for group in groups for pod in group.waiting}
    for each in decided:
        if not isinstance(each, Evict):
            waiting -= (each.placements if isinstance(each, Start) else each.nominated).keys()
    return len(waiting)


def _following(state: Snapshot, decided: Sequence[Decision]) -> Snapshot | None:
    """The snapshot of the next cycle in which anything changes; None if nothing changes any more."""
    if not all(isinstance(each, Wait) for each in decided):
        return _after(state, decided)
    if not state.ending:
        return None
    left = [replace(each, pods=tuple(pod for pod in each.pods if not pod.terminating)) for each in state.ending]
    return state.changed((each.name for each in left), (each for each in left if each.pods), now=state.now)


def _after(state: Snapshot, decided: Sequence[Decision]) -> Snapshot:
    """The snapshot after these decisions: started pods run, victims terminate; controllers replace them later."""
    nodes: dict[str, str] = {}
    going: set[str] = set()
    touched: dict[str, None] = {}
    for each in decided:
        if isinstance(each, Start):
            nodes |= each.placements
            touched[each.group.name] = None
        elif isinstance(each, Evict):
            going.update(each.pods)
            touched[each.victim.name] = None

    def moved(pod: Pod) -> Pod:
        return replace(pod, node=nodes.get(pod.name, pod.node), terminating=pod.terminating or pod.name in going)

    def stepped(group: PodGroup) -> PodGroup:
        starts = group.started is None and any(pod.name in nodes for pod in group.pods)
        started = state.now if starts else group.started
        return replace(group, pods=tuple(map(moved, group.pods)), started=started)

    return state.with_groups(stepped(group) for group in filter(None, map(state.group, touched)))
