"""Run one scheduling cycle, and preview one workload with the same cycle.

`cycle` decides for all waiting groups; `preview` adds a candidate and returns its part. `FLAVOURS` lists the modelled
schedulers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Final, Protocol

from scheduling.forecast.sequel import EvictionSequel, sequel
from scheduling.model.decisions import Cause, Decision, Evict, Outcome, OutcomeKind, Start, Until, Wait
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.rules.kai.cycle import KaiRules
from scheduling.rules.kube.gangs import KubeGangsRules
from scheduling.rules.kube.preemption import KubeRules
from scheduling.rules.kueue.admission import KueueRules
from scheduling.rules.volcano.cycle import VolcanoRules
from scheduling.state.cluster_state import packed_state
from scheduling.state.refusals import let_start, of_whole
from scheduling.state.workspace import workspace


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
    return rules.decide(snapshot, about, until)


def preview(snapshot: Snapshot, *candidates: PodGroup, flavour: str) -> Outcome:
    """What the next cycle would do with the pod groups of one workload, beside all other waiting groups.

    For schedulers that do not reserve freed capacity for the preemptor, the following cycles are included. Raises
    ValueError as `cycle` does.
    """
    own, pools = {each.name for each in candidates}, {each.pool for each in candidates}
    if flavour in SHARDED and len(pools) == 1:
        snapshot = snapshot.shard(*pools)
    there = snapshot.with_groups(candidates)
    decisions = cycle(there, flavour=flavour, about=own, until=Until.DECIDED)
    found = _outcome(snapshot, candidates, decisions)
    if flavour not in WITHOUT_NOMINATION or not found.victims:
        return found
    if not any(each.pool in pools and each.name not in own for each in there.waiting):
        return found
    again = partial(cycle, flavour=flavour, about=own, until=Until.PLACED)
    return _final_outcome(found, sequel(there, own, decisions, again))


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


def _outcome(snapshot: Snapshot, candidates: Sequence[PodGroup], decisions: Sequence[Decision]) -> Outcome:
    own = {candidate.name for candidate in candidates}
    victims = tuple(d for d in decisions if isinstance(d, Evict) and d.for_group in own)
    starts = {d.group.name: d for d in decisions if isinstance(d, Start) and d.group.name in own}
    waits = {d.group.name: d for d in decisions if isinstance(d, Wait) and d.group.name in own}
    places = [*(d.placements for d in starts.values()), *(d.nominated for d in waits.values())]
    starting, coming = sum(len(d.pods) for d in starts.values()), sum(len(d.coming) for d in waits.values())
    found = Outcome(
        kind=_kind(victims, starts, waits),
        victims=victims,
        placements={pod: node for nodes in places for pod, node in nodes.items()},
        pend=next((d.pend for d in waits.values()), None),
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
