"""One scheduling cycle, and a preview of one workload by the very same cycle.

`cycle` decides for everything that waits; `preview` adds a candidate and reads its part. Which schedulers
are modelled: `FLAVOURS`.
"""

from enum import StrEnum
from typing import Final

from scheduling.decisions import Cause, Decision, Evict, Kind, Outcome, Start, Wait
from scheduling.model import PodGroup, Snapshot
from scheduling.reasons import Pend
from scheduling.rules import Rules
from scheduling.rules.kai import KaiRules
from scheduling.rules.kube import KubeRules
from scheduling.rules.kube_gangs import KubeGangsRules
from scheduling.rules.kueue import KueueRules
from scheduling.rules.volcano import VolcanoRules


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


def cycle(snapshot: Snapshot, *, flavour: str) -> list[Decision]:
    """Decide once for all waiting pod groups. Raises ValueError for a flavour without a model."""
    rules = FLAVOURS.get(flavour)
    if rules is None:
        raise ValueError(f"no model of the scheduler {flavour!r}; there is one of {', '.join(FLAVOURS)}")
    return rules.decide(snapshot)


def preview(snapshot: Snapshot, candidate: PodGroup, *, flavour: str) -> Outcome:
    """What the next cycle would do with `candidate`, waiting beside everything else. Raises ValueError as `cycle`."""
    decisions = cycle(snapshot.with_group(candidate), flavour=flavour)
    victims = tuple(d for d in decisions if isinstance(d, Evict) and d.for_group == candidate.name)
    start = next((d for d in decisions if isinstance(d, Start) and d.group is candidate), None)
    wait = next((d for d in decisions if isinstance(d, Wait) and d.group is candidate), None)
    placements = {**(start.placements if start else {}), **(wait.nominated if wait else {})}
    pend = wait.pend if wait else None
    over_quota = start is not None and start.over_quota
    return Outcome(_kind(victims, start, pend), victims, placements, pend, over_quota)


def _kind(victims: tuple[Evict, ...], start: Start | None, pend: Pend | None) -> Kind:
    causes = {evict.cause for evict in victims}
    if causes:
        return _BY_CAUSE[causes.pop()] if len(causes) == 1 else Kind.PREEMPTS_AND_RECLAIMS
    placed = start is not None and (pend is None or start.group.gang)  # a gang that starts has its minimum
    return Kind.PLACED if placed else Kind.PENDING


_BY_CAUSE: Final = {
    Cause.PREEMPT: Kind.PREEMPTS,
    Cause.RECLAIM: Kind.RECLAIMS,
    Cause.CONSOLIDATE: Kind.CONSOLIDATES,
}
