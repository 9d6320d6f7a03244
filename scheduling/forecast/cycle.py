"""Run one scheduling cycle, preview one workload with the same cycle, and run the cycles after an eviction."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final, Protocol

from scheduling.model.decisions import Decision, Evict, Outcome, OutcomeKind, Start, Until, Wait
from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Limit, Resources, per_dimension, sum_of
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot
from scheduling.rules.kai.cycle import KaiRules
from scheduling.rules.kai.order import job_key
from scheduling.rules.kube.gangs import KubeGangsRules
from scheduling.rules.kube.preemption import KubeRules
from scheduling.rules.kueue.admission import KueueRules
from scheduling.rules.volcano.cycle import VolcanoRules
from scheduling.state.cluster_state import SchedulingState, packed_state
from scheduling.state.refusals import OF_QUOTA, impossible, let_start, of_whole
from scheduling.state.workspace import OutOfTime, requeued, workspace

# KAI decides again in every cycle. While the victims terminate, the group that is first by then gets the freed
# capacity; the candidate evicts again, or waits although others were evicted for it.

MAX_CYCLES: Final = 8
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
    for _ in range(MAX_CYCLES):
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
        if not isinstance(each, Evict):
            places = each.placements if isinstance(each, Start) else {**each.nominated, **each.reserved}
            if not set(nodes).isdisjoint(places.values()):
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


# `cycle` decides for all waiting groups; `preview` adds a candidate and returns its part. `FLAVOURS` lists the
# modelled schedulers.


class Rules(Protocol):
    """How one scheduler decides. Pure: the same snapshot always gives the same decisions."""

    def decide(self, snapshot: Snapshot, about: Collection[str] | None, _until: Until, /) -> list[Decision]:
        """Run one cycle over all waiting groups. about: names of groups whose refusals need numbers; None: all."""
        ...


class Flavour(StrEnum):
    """Scheduler flavours that have a model."""

    KUBE = "kube"
    KUBE_GANGS = "kube-gangs"
    KAI = "kai"
    KUEUE = "kueue"
    VOLCANO = "volcano"


FLAVOURS: Final[dict[str, Rules]] = {
    Flavour.KUBE: KubeRules(),
    Flavour.KUBE_GANGS: KubeGangsRules(),
    Flavour.KAI: KaiRules(),
    Flavour.KUEUE: KueueRules(),
    Flavour.VOLCANO: VolcanoRules(),
}


SHARDED: Final = frozenset({Flavour.KAI})
"""These never look beyond a node pool."""
LEAVES_OUT_REFUSALS: Final = frozenset({Flavour.KUEUE, Flavour.VOLCANO})
"""Only these know `Until.CHANGES`."""
OF_MORE_QUOTA: Final = OF_QUOTA | {Reason.EXCEEDS_MAX_QUOTA}
"""Reasons that more quota removes."""
WITHOUT_NOMINATION: Final = frozenset({Flavour.KAI})
"""These schedulers decide again in every cycle for which group they evict."""


def cycle(
    snapshot: Snapshot, *, flavour: str, about: Collection[str] | None = None, until: Until = Until.ALL
) -> list[Decision]:
    """Decide once for all waiting pod groups. about: names of groups whose refusals need numbers; None: all.

    Raises ValueError for a flavour without a model.
    """
    rules = FLAVOURS.get(flavour)
    if rules is None:
        raise ValueError(f"no model of the scheduler {flavour!r}; there is one of {', '.join(FLAVOURS)}")
    if until is Until.CHANGES and flavour not in LEAVES_OUT_REFUSALS:
        until = Until.ALL
    return rules.decide(snapshot, about, until)


def preview(snapshot: Snapshot, *candidates: PodGroup, flavour: str, explain: bool = False) -> Outcome:
    """What the next cycle would do with the pod groups of one workload, beside all other waiting groups.

    For schedulers that do not reserve freed capacity for the preemptor, the following cycles are included.
    explain: find `then` or `behind` of the reason, which may take another preview. Raises ValueError as `cycle` does.
    """
    own, pools = {each.name for each in candidates}, {each.pool for each in candidates}
    if flavour in SHARDED and len(pools) == 1:
        snapshot = snapshot.shard(*pools)
    there = snapshot.with_groups(candidates)
    decisions = cycle(there, flavour=flavour, about=own, until=Until.DECIDED)
    found = _outcome(snapshot, candidates, decisions, alone=flavour == Flavour.KUBE)
    if flavour in WITHOUT_NOMINATION and found.victims and _may_lose(there, own, pools, decisions):
        again = partial(cycle, flavour=flavour, about=own, until=Until.PLACED)
        found = _final_outcome(found, sequel(there, own, decisions, again))
    try:
        return _explained(snapshot, candidates, decisions, found, flavour) if explain else found
    except OutOfTime:
        return found  # the answer holds without its explanation


def _may_lose(there: Snapshot, own: Collection[str], pools: Collection[str], decisions: Sequence[Decision]) -> bool:
    """Whether another group may take the capacity that is freed for these."""
    if not any(each.pool in pools and each.name not in own for each in there.waiting):
        return False
    return not all(each.assured for each in decisions if isinstance(each, Wait) and each.group.name in own)


def _explained(
    snapshot: Snapshot, candidates: Sequence[PodGroup], decisions: Sequence[Decision], found: Outcome, flavour: str
) -> Outcome:
    """The same, its reason with what the decisions do not say."""
    pend = found.pend
    if pend is None or found.kind is not OutcomeKind.PENDING or found.starting or found.coming or pend.never_fits:
        return found
    if pend.reason in OF_MORE_QUOTA:
        return replace(found, pend=replace(pend, then=_with_more_quota(snapshot, candidates, pend, flavour)))
    if flavour == Flavour.KAI and pend.reason in {Reason.NO_ROOM, Reason.NO_DOMAIN}:
        return replace(found, pend=replace(pend, behind=_behind(snapshot, candidates, decisions)))
    return found


def _with_more_quota(
    snapshot: Snapshot, candidates: Sequence[PodGroup], pend: PendingReason, flavour: str
) -> PendingReason | None:
    """Why it would wait if the queues that refuse it had as much more deserved quota and limit as is missing for it
    and the other waiting groups of its queue. None: it would not, or others take the quota first.
    """
    mine = candidates[0].queue
    others = sum_of(pod.requests for each in snapshot.waiting if each.queue == mine for pod in each.waiting)
    more: dict[str | None, Resources] = {}
    for each in filter(None, (pend, pend.second)):
        more[each.queue] = per_dimension(max, more.get(each.queue, ZERO), each.missing + others)
    queues = tuple(_raised(each, more[each.name]) if each.name in more else each for each in snapshot.queues)
    there = replace(snapshot, queues=queues) if flavour == Flavour.KUEUE else requeued(snapshot, queues)
    then = preview(there, *candidates, flavour=flavour)
    if then.pend is None or then.kind is not OutcomeKind.PENDING or then.starting or then.coming:
        return None
    return None if then.pend.reason in OF_MORE_QUOTA and then.pend.queue in more else then.pend


def _raised(queue: Queue, more: Resources) -> Queue:
    """As a quota request raises it: the limit moves along."""

    def sum_up(bound: int | None, amount: int) -> int | None:
        return None if bound is None else bound + amount

    deserved, limit = (
        Limit(sum_up(each.gpu, more.gpu), sum_up(each.cpu, more.cpu), sum_up(each.memory, more.memory))
        for each in (queue.deserved, queue.limit)
    )
    return replace(queue, deserved=deserved, limit=limit)


def _behind(snapshot: Snapshot, candidates: Sequence[PodGroup], decisions: Sequence[Decision]) -> tuple[str, ...]:
    """KAI's waiting groups ahead of the candidate in its queue, if others would be evicted for it without them ahead.

    It is moved to the front, with the priority of the first if that is higher: what it then preempts does not count.
    """
    mine, ahead = candidates[0], _ahead(candidates, decisions)
    if not ahead:
        return ()
    priority, created = max(ahead[0].priority, mine.priority), ahead[0].created - 1
    at_front = (replace(each, priority=priority, created=created) for each in candidates)
    then = preview(snapshot, *at_front, flavour=Flavour.KAI)
    by_priority = ahead[0].priority > mine.priority and any(each.cause is Cause.PREEMPT for each in then.victims)
    helps = then.victims and then.kind is not OutcomeKind.PENDING and not by_priority
    return tuple(each.name for each in ahead) if helps else ()


def _ahead(candidates: Sequence[PodGroup], decisions: Sequence[Decision]) -> list[PodGroup]:
    """Groups of its queue that KAI serves before the candidate and gives nothing, the next one first."""
    mine, own = candidates[0], {each.name for each in candidates}
    waits = (each.group for each in decisions if isinstance(each, Wait) and not each.nominated)
    before = job_key(mine, len(mine.holding))
    rivals = {
        job_key(each, len(each.holding)): each for each in waits if each.queue == mine.queue and each.name not in own
    }
    return [rivals[key] for key in sorted(rivals) if key < before]


def _final_outcome(found: Outcome, later: EvictionSequel) -> Outcome:
    """The outcome once it has its capacity. PENDING: workloads are evicted for it, and it still waits."""
    placed = found.starting + found.coming + found.waiting - later.waiting
    if (later.waiting, later.victims) == (found.waiting, found.victims):
        return found
    return replace(
        found,
        kind=_kind(later.victims, {}, {}) if placed else OutcomeKind.PENDING,
        victims=later.victims,
        coming=placed - found.starting,
        waiting=later.waiting,
        pend=later.pend or found.pend,
        first=later.first,
    )


def _outcome(
    snapshot: Snapshot, candidates: Sequence[PodGroup], decisions: Sequence[Decision], *, alone: bool
) -> Outcome:
    """alone: the scheduler starts pods one by one, whatever the minimum of their group."""
    own = {candidate.name for candidate in candidates}
    victims = tuple(d for d in decisions if isinstance(d, Evict) and d.for_group in own)
    starts = {d.group.name: d for d in decisions if isinstance(d, Start) and d.group.name in own}
    waits = {d.group.name: d for d in decisions if isinstance(d, Wait) and d.group.name in own}
    places = [*(d.placements for d in starts.values()), *(d.nominated for d in waits.values())]
    starting, coming = sum(len(d.pods) for d in starts.values()), sum(len(d.coming) for d in waits.values())
    pend = next((_lasting(snapshot, d.group, d.pend, alone=alone) for d in waits.values()), None)
    found = Outcome(
        kind=_kind(victims, starts, waits),
        victims=victims,
        placements={pod: node for nodes in places for pod, node in nodes.items()},
        pend=pend,
        over_quota=any(d.over_quota for d in starts.values()),
        starting=starting,
        coming=coming,
        waiting=sum(len(each.waiting) for each in candidates) - starting - coming,
    )
    if found.pend is None or not found.partial:
        return found
    others = [d for d in decisions if isinstance(d, Start) and d.group.name not in own]
    placed = [*(pod for d in starts.values() for pod in d.pods), *(pod for d in waits.values() for pod in d.coming)]
    with workspace(snapshot, packed_state) as state:
        let_start(state, others)
        return replace(found, pend=of_whole(found.pend, candidates, placed, state))


def _lasting(snapshot: Snapshot, group: PodGroup, pend: PendingReason, *, alone: bool) -> PendingReason:
    """NeverFits instead of a refusal of quota where more quota would not help."""
    if pend.reason not in OF_MORE_QUOTA:
        return pend
    never = never_fits_empty(empty_pools(snapshot), replace(group, min_member=1) if alone else group)
    return replace(never, also=(pend.reason,)) if never else pend


def empty_pools(snapshot: Snapshot) -> SchedulingState:
    """The nodes of a snapshot without pods and queues."""
    return packed_state(Snapshot(nodes=snapshot.nodes, groups=(), levels=snapshot.levels))


def never_fits_empty(state: SchedulingState, group: PodGroup) -> PendingReason | None:
    """The refusal if the waiting part of the group's minimum does not fit its empty node pool. state: `empty_pools`."""
    pend = impossible(state, group, group.waiting[: max(group.min_member - len(group.holding), 1)])
    return pend if pend and pend.never_fits else None


def _kind(victims: tuple[Evict, ...], starts: Mapping[str, Start], waits: Mapping[str, Wait]) -> OutcomeKind:
    causes = {evict.cause for evict in victims}
    if causes:
        return _BY_CAUSE[causes.pop()] if len(causes) == 1 else OutcomeKind.PREEMPTS_AND_RECLAIMS
    pending = [name for name in waits if name not in starts or not starts[name].group.gang]
    return OutcomeKind.PLACED if starts and not pending else OutcomeKind.PENDING  # a gang that starts has its minimum


_BY_CAUSE: Final = {
    Cause.PREEMPT: OutcomeKind.PREEMPTS,
    Cause.RECLAIM: OutcomeKind.RECLAIMS,
    Cause.CONSOLIDATE: OutcomeKind.CONSOLIDATES,
}
