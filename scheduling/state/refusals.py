"""Refusals that all schedulers share: no such pool, larger than any node, no capacity now."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from scheduling.model.decisions import Start
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import Pod, PodGroup, Strategy, total
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity, by_size, empty
from scheduling.state.shortage import Shortage, measured, shortage

OF_ROOM: Final = frozenset({Reason.NO_ROOM, Reason.PREEMPTION_NEVER})
OF_QUOTA: Final = frozenset({Reason.OVER_LIMIT, Reason.NON_PREEMPTIBLE_OVER_QUOTA, Reason.WAITING_FOR_QUOTA})


def impossible(state: SchedulingState, group: PodGroup, pods: tuple[Pod, ...]) -> PendingReason | None:
    """The refusal if these pods could not run on the empty node pool; None if each fits a node and all fit the pool."""
    needed = total(pods)
    if not state.nodes.get(group.pool):
        return PendingReason(Reason.NO_SUCH_POOL, needed, pool=group.pool)
    capacities, whole = state.sizes(group)
    if needed.fits_in(whole) and _each_fits(pods, capacities):
        return None
    return never_fits(state, group, pods)


def _each_fits(pods: Iterable[Pod], capacities: Iterable[Resources]) -> bool:
    """Whether each pod fits alone into one of these capacities."""
    fitting: Resources | None = None
    for pod in pods:
        if pod.requests != fitting:
            fitting = pod.requests
            if not any(map(fitting.fits_in, capacities)):
                return False
    return True


def never_fits(state: SchedulingState, group: PodGroup, pods: tuple[Pod, ...]) -> PendingReason:
    """Too large even for empty nodes, with the sum of the nodes and the largest of them."""
    if not _is_explained(state, group):
        return PendingReason(Reason.NEVER_FITS, total(pods), pool=group.pool)
    found = shortage([[empty(node) for node in state.usable(group)]], [pod.requests for pod in pods])
    whole = state.sizes(group)[1]
    return replace(_lacking(found, Reason.NEVER_FITS, pods), pool=group.pool, free=whole)


def no_room(
    state: SchedulingState, group: PodGroup, pods: tuple[Pod, ...], reason: Reason = Reason.NO_ROOM
) -> PendingReason:
    """The pods do not fit and nothing is evicted for them: what is short, and how much of it is free.

    With reason `Evicting` they have their nodes, and nothing is short.
    """
    if not _is_explained(state, group):
        return PendingReason(reason, total(pods), pool=group.pool)
    free, largest = state.capacities.free(group)
    found = Shortage(largest=largest) if reason is Reason.EVICTING else state.shortage(group, pods)
    pend = replace(_lacking(found, reason, pods), pool=group.pool, free=free)
    return pend if group.topology is None else _in_no_domain(state, group, pend)


def _is_explained(state: SchedulingState, group: PodGroup) -> bool:
    """Whether its refusal needs numbers, which cost a look at every node."""
    return state.about is None or group.name in state.about


def _lacking(found: Shortage, reason: Reason, pods: tuple[Pod, ...]) -> PendingReason:
    return PendingReason(reason, total(pods), largest_free=found.largest, lacking=found.names, beside=found.beside)


def _in_no_domain(state: SchedulingState, group: PodGroup, pend: PendingReason) -> PendingReason:
    """The same for a gang of one topology domain: the domain with most capacity, and whether any could ever fit it."""
    domains = state.domains(group)
    capacities = {state.domain_of(each): state.capacities.free(each)[0] for each in domains}
    best = max(
        capacities, key=lambda name: (by_size(capacities[name].only(pend.short)), by_size(capacities[name])), default=""
    )
    never = not any(pend.needed.fits_in(state.sizes(each)[1]) for each in domains)
    return replace(
        pend,
        reason=Reason.NO_DOMAIN if pend.reason is Reason.NO_ROOM else pend.reason,
        topology=group.topology,
        domain=best,
        largest_domain=capacities.get(best, ZERO),
        also=(Reason.NEVER_FITS,) if never else (),
    )


def let_start(state: SchedulingState, starts: Iterable[Start]) -> None:
    """Place these pods as started."""
    for start in starts:
        for pod in start.pods:
            if capacity := state.capacities.get(start.placements.get(pod.name)):
                state.place(start.group, pod, capacity, now=True)


def of_whole(
    pend: PendingReason, candidates: Sequence[PodGroup], placed: Sequence[Pod], state: SchedulingState
) -> PendingReason:
    """The refusal of some pods with the numbers of the whole group, as before the others were placed."""
    wanted, given = total(tuple(pod for each in candidates for pod in each.waiting)), total(tuple(placed))
    if pend.reason in OF_ROOM:
        whole, pods = candidates[0], [pod.requests for each in candidates for pod in each.waiting]
        found = measured(state.spaces(whole), pods, pend.lacking)
        free, largest = state.capacities.free(whole)[0], found.largest
        return replace(pend, needed=wanted, free=free, largest_free=largest, beside=found.beside)
    if pend.reason in OF_QUOTA:
        missing = _more(pend.missing, wanted - given - pend.needed)
        second = pend.second and of_whole(pend.second, candidates, placed, state)
        return replace(pend, needed=wanted, used=pend.used - given, missing=missing, second=second)
    return pend


def _more(missing: Resources, more: Resources) -> Resources:
    """Add to the missing amounts."""
    return Resources(
        missing.gpu and missing.gpu + more.gpu,
        missing.cpu and missing.cpu + more.cpu,
        missing.memory and missing.memory + more.memory,
    )


def pods_without_node(state: SchedulingState, group: PodGroup, *, now: bool = False) -> list[Pod]:
    """Pods that fit on no node when placed largest first. The state is not changed."""
    without: list[Pod] = []
    taken: list[tuple[NodeCapacity, Resources]] = []
    for pod in sorted(group.waiting, key=lambda pod: by_size(pod.requests), reverse=True):
        capacity = state.capacities.find(pod.requests, group, Strategy.BINPACK, now=now)
        if capacity is None:
            without.append(pod)
        else:
            taken.append((capacity, pod.requests))
            state.capacities.change(capacity, idle=ZERO - pod.requests, future=ZERO - pod.requests, pods=-1)
    for capacity, requested in taken:
        state.capacities.change(capacity, idle=requested, future=requested, pods=1)
    return without
