"""A forecast as values and sentences, also for schedulers that admit by quota alone. Pure.

Run:ai's order: the pools of a workload are tried in the order it names them, until one lets it start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from clusters.flavours.registry import KEEPS_NON_PREEMPTIBLE
from clusters.ports.flavour import Guarantee
from portal.kit.errors import Problem
from portal.kit.pages.formatting import gpus_text
from scheduling.forecast.headroom import COUNTS_FIXED_APART
from scheduling.forecast.quota_only import UnplacedPods, unplaced_pods
from scheduling.model.decisions import Outcome
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.state.shortage import PODS
from workloads.dictionary.rules.resolution import Effective
from workloads.forecast.rules.estimates import WAIT_IN_POOL, CheaperVictim, EvictionOdds
from workloads.forecast.rules.messages import Doubt, DoubtCode, amount_text, doubt, gpu_time_text
from workloads.forecast.rules.reasons import short_of_department_quota, short_of_quota

if TYPE_CHECKING:
    from workloads.state.models import Workload

NAMED: Final = 3
"""So many workloads are named in one sentence."""


class Verdict(StrEnum):
    """What the model says in one word."""

    STARTS = "starts"
    EVICTS = "evicts"
    RECLAIMS = "reclaims"
    WAITS = "waits"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ForecastBasis:
    """What a forecast was computed from: snapshot, pod groups of the workload, outcome."""

    snapshot: Snapshot
    candidates: tuple[PodGroup, ...]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ForecastVictim:
    """A victim. `workload` is None for a pod that is no workload's, then named in `label`, and for what is
    not the reader's to see: "another project", "another tenant's pod". moved: all of it finds its place elsewhere."""

    workload: "Workload | None"
    label: str
    project: str
    priority: str
    value: int
    gpu_milli: int
    gpu_hours_at_risk: float
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change that the model tried and that would start at once: in words, and as what a form fills in."""

    words: str
    priority: str = ""
    preemptibility: str = ""
    gpus_per_pod: int | None = None
    cpus_per_pod: int | None = None
    gib_per_pod: int | None = None
    pool: str = ""

    def __str__(self) -> str:
        return self.words

    @property
    def changes(self) -> bool:
        """False for a sentence that offers nothing."""
        return self.resizes or any((self.priority, self.preemptibility, self.pool))

    @property
    def resizes(self) -> bool:
        """Does it change what a pod asks for?"""
        return any((self.gpus_per_pod, self.cpus_per_pod, self.gib_per_pod))


@dataclass(frozen=True, slots=True)
class Forecast:
    """An estimate: of which scheduler, on a snapshot how old (seconds; None when nothing was observed yet).

    starting: how many of its pods start now; coming: how many once the evicted have left; waiting: how many others.
    """

    effective: Effective
    verdict: Verdict
    sentence: str
    pool: str
    flavour: str
    simulated: bool
    snapshot_age: float | None
    reason: str = ""
    numbers: Mapping[str, str] = field(default_factory=dict)
    victims: tuple[ForecastVictim, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    problems: tuple[Problem, ...] = ()
    over_quota: bool = False
    starting: int = 0
    coming: int = 0
    waiting: int = 0
    nodes: tuple[str, ...] = ()
    warnings: Sequence[str] = ()
    doubts: Sequence[Doubt] = ()
    assurances: Sequence[str] = ()
    guarantees: Sequence[Guarantee] = ()
    odds: EvictionOdds | None = None
    cheaper: CheaperVictim | None = None
    basis: ForecastBasis | None = field(default=None, repr=False, compare=False)
    project: str = ""

    @property
    def short_of_quota(self) -> bool:
        """Is quota what it lacks: to start at all, or to stay when others reclaim theirs?"""
        return self.over_quota or short_of_quota(self.reason, self.numbers)

    @property
    def short_of_department_quota(self) -> bool:
        return short_of_department_quota(self.reason, self.numbers)

    @property
    def cautions(self) -> Sequence[str]:
        """What is known to go otherwise than people expect, and what is not known."""
        return (*self.warnings, *(each.sentence for each in self.doubts))

    @property
    def broken(self) -> list[Guarantee]:
        """What this scheduler does not keep at all."""
        return [each for each in self.guarantees if each.enforced == "no"]

    @property
    def partial(self) -> bool:
        """Do some of its pods get their place, while others wait?"""
        return self.waiting > 0 and self.placed > 0

    @property
    def placed(self) -> int:
        """Pods that get their place, now or later."""
        return self.starting + self.coming

    @property
    def gpu_hours_at_risk(self) -> float:
        """What all victims together would lose."""
        return sum(victim.gpu_hours_at_risk for victim in self.victims)


AT_ONCE: Final = "now"
LATER_POOL: Final = f"after {WAIT_IN_POOL.seconds} s"
"""When it starts in a pool that is not its first choice."""


def turn_sentence(sentence: str, *, pool: str, why: str) -> str:
    """It has several pools, and not the first one lets it start. why: with the name of that one."""
    return f"{sentence.rstrip('.')}. In its first choice, it {why}. Rung tries {pool} {LATER_POOL}."


@dataclass(frozen=True, slots=True)
class PartialStart:
    """Some of a workload's pods get their place, now or once the evicted have left. why: why others wait.

    when: the first of them start.
    """

    starting: int
    coming: int
    waiting: int
    why: str
    when: str = AT_ONCE

    @property
    def pods(self) -> str:
        """How many start now, of how many: "2 of 3 pods"."""
        return f"{self.starting} of {self._all} pods"

    @property
    def starts(self) -> str:
        """How many start, and how many of them now."""
        if not self.coming:
            return f"{self.pods} {self.when}"
        return f"{self.pods} {self.when} and {self.coming}" if self.starting else f"{self.coming} of {self._all} pods"

    @property
    def _all(self) -> int:
        return self.starting + self.coming + self.waiting

    @property
    def rest(self) -> str:
        """What the others do."""
        return f"{self.waiting} {'pod waits' if self.waiting == 1 else 'pods wait'}: {self.why}"


@dataclass(frozen=True, slots=True)
class QuotaEffect:
    """A start beside the quota of its project. over: the workload runs over quota. at_risk: it may be reclaimed then.

    others_at_risk: other preemptible workloads of the project may be.
    """

    over: bool = False
    at_risk: bool = False
    others_at_risk: bool = False


def quota_effect(flavour: str, *, project_over: bool, preemptible: bool, reclaims: bool) -> QuotaEffect:
    """project_over: the project is over quota, once it runs. reclaims: its scheduler takes such GPUs back.

    Where non-preemptible work is counted apart, it starts within quota or not at all.
    """
    over = project_over and (preemptible or flavour not in COUNTS_FIXED_APART)
    at_risk = over and reclaims and (preemptible or flavour not in KEEPS_NON_PREEMPTIBLE)
    return QuotaEffect(over, at_risk, project_over and reclaims and not at_risk)


def start_sentence(pool: str, effect: QuotaEffect, part: PartialStart | None = None, *, when: str = AT_ONCE) -> str:
    """It fits."""
    starts = f"Starts {part.starts if part else when} in {pool}, {'over' if effect.over else 'within'} quota"
    rest = f" {part.rest}." if part else ""
    if effect.at_risk:
        return f"{starts}: it may be evicted when others reclaim their share.{rest}"
    if effect.others_at_risk:
        others = "Other preemptible workloads of the project may be evicted when others reclaim their share."
        return f"{starts}. {others}{rest}"
    return f"{starts}.{rest}"


def holding_sentence(pool: str, part: PartialStart) -> str:
    """Too few of its pods start for it to run: those hold what they have meanwhile."""
    verbs = ("gets", "holds") if part.starting == 1 else ("get", "hold")
    return f"Waits: {part.pods} {verbs[0]} a node in {pool} now and {verbs[1]} it. {part.rest}."


def absent_sentence(names: Sequence[str], pool: str) -> str:
    """Workloads of a higher priority that have no pod at the moment."""
    if len(names) == 1:
        return f"{names[0]} (higher priority) has no pods now: its controller waits before it retries."
    return f"{_listed(names)} (higher priorities) have no pods now: their controllers wait before they retry."


def turning_sentence(names: Sequence[str], pool: str) -> str:
    """Workloads that wait in another pool and have this one among theirs."""
    waits = "waits in another node pool" if len(names) == 1 else "wait in other node pools"
    return f"{_listed(names)} {waits} and may be tried in {pool} next."


def instead_sentence(others: int, *, starting: int, coming: int, evicted: int) -> str:
    """The forecast with the pods of those others in the queue."""
    pods = "1 pod" if starting + coming == 1 else f"{starting + coming} pods"
    does = f"{pods} of this workload would start" if starting + coming else "this workload would wait"
    evicting = f", evicting {evicted} workload{'' if evicted == 1 else 's'}" if evicted else ""
    return f"If {'that' if others == 1 else 'one of them'} starts first, {does}{evicting}."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def admission_sentence(pool: str, victims: Sequence[ForecastVictim]) -> str:
    """It makes quota for itself, whatever the nodes have."""
    return f"Admitted in {pool} after evicting {_taken(victims)} at risk."


def _taken(victims: Sequence[ForecastVictim]) -> str:
    gpus = gpus_text(sum(victim.gpu_milli for victim in victims))
    lost = gpu_time_text(sum(victim.gpu_hours_at_risk for victim in victims) * 3600)
    return f"{len(victims)} workload{'' if len(victims) == 1 else 's'} ({gpus}), {lost}"


def eviction_sentence(
    verdict: Verdict, pool: str, victims: Sequence[ForecastVictim], *, part: PartialStart | None = None
) -> str:
    """It makes room for itself."""
    starts = f"Starts {part.starts}" if part else "Starts"
    rest = f" {part.rest}." if part else ""
    if all(victim.moved for victim in victims):
        again = "It restarts" if len(victims) == 1 else "They restart"
        return f"{starts} in {pool} after moving {_taken(victims)} at risk. {again} on other nodes.{rest}"
    if verdict is Verdict.RECLAIMS:
        share = f"its queue's share in {pool}" + (f" for {part.starts}" if part else "")
        return f"Reclaims {share}: evicts {_taken(victims)} at risk.{rest}"
    return f"{starts} in {pool} after evicting {_taken(victims)} at risk.{rest}"


def vain_sentence(pool: str, victims: Sequence[ForecastVictim]) -> str:
    """Whether workloads are evicted for it and it still waits."""
    return f"Waits in {pool}, although it evicts {_taken(victims)} at risk: other workloads take the free GPUs first."


def overtaken_sentence(names: Sequence[str]) -> str:
    """Other workloads that take the capacity freed for it."""
    who = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    verb = "take" if len(names) > 1 else "takes"
    return f"{who} {verb} the GPUs that are freed for it: the scheduler serves the first workload in its order."


BLIND: Final = "Admitted {when}: its quota is free."
LATER: Final = "It has its place in {pool} and starts when terminating pods there have stopped."
HOLDS: Final = (
    "An admitted workload keeps its quota while it waits for nodes. The kube-scheduler does not evict for it."
)

BIT_BY_BIT: Final = (
    "Other admitted pods already wait for nodes. They may take the freed GPUs before there are enough for this "
    "workload."
)


def with_node_capacity(
    found: Forecast, snapshot: Snapshot, group: PodGroup, outcome: Outcome, *, when: str = AT_ONCE
) -> Forecast:
    """The same where its pods find nodes. Otherwise it waits for them, or will once its victims are gone."""
    admitted = BLIND.format(when="immediately" if when == AT_ONCE else when)
    if found.verdict not in {Verdict.STARTS, Verdict.EVICTS, Verdict.RECLAIMS}:
        return found
    missing = unplaced_pods(snapshot, group, outcome.victims)
    if missing is None:
        rivals = outcome.victims and unplaced_pods(snapshot, group, outcome.victims, last=True)
        more = doubt(DoubtCode.ADMITTED_PODS_WAIT, BIT_BY_BIT)
        return replace(found, doubts=(*found.doubts, more)) if rivals else found
    if missing.later:
        return _after_others(found, missing, admitted)
    placed, sentence = missing.of - missing.pods, _sentence(missing, found)
    starting = min(found.starting, placed)
    found = replace(
        found,
        starting=starting,
        coming=placed - starting,
        waiting=found.waiting + missing.pods,
        warnings=(*found.warnings, HOLDS),
    )
    if found.verdict is not Verdict.STARTS:
        return replace(found, sentence=f"{admission_sentence(found.pool, found.victims)} {sentence}")
    return replace(
        found,
        verdict=Verdict.STARTS if placed >= group.min_member else Verdict.WAITS,
        sentence=f"{admitted} {sentence}",
        reason=str(Reason.NO_ROOM),
        numbers=_numbers(missing, found),
    )


def _after_others(found: Forecast, missing: UnplacedPods, admitted: str) -> Forecast:
    """What evicts waits for its victims anyway."""
    if found.verdict is not Verdict.STARTS:
        return found
    return replace(
        found,
        verdict=Verdict.WAITS,
        starting=0,
        coming=found.placed,
        sentence=f"{admitted} {LATER.format(pool=found.pool)}",
        reason=str(Reason.EVICTING),
        numbers=_numbers(missing, found),
    )


def _numbers(missing: UnplacedPods, found: Forecast) -> dict[str, str]:
    return {
        "needed": str(missing.requested),
        "pool": found.pool,
        "free": str(missing.free),
        "largest_free": str(missing.short.largest),
        **({"short": ", ".join(missing.short.names)} if missing.short.names else {}),
    }


def _sentence(missing: UnplacedPods, found: Forecast) -> str:
    who = f"{missing.pods} of its {missing.of} pods" if missing.of > 1 else "Its pod"
    names = [name for name in missing.short.names if name != PODS]
    if not names:
        return f"{who} may find no node: the nodes of {found.pool} are at their pod limit or not allowed for it."
    needed, free, largest = (
        amount_text(each, names, up=up)
        for each, up in ((missing.requested, True), (missing.free, False), (missing.short.largest, False))
    )
    one = "a node that fits its other requests" if missing.short.beside else "one node"
    numbers = f"each needs {needed} on one node of {found.pool}; {free} free, at most {largest} on {one}"
    return f"{who} may find no node: {numbers}."
