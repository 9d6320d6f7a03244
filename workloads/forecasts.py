"""The answer to "what will happen if I press this?": values and their sentences. Pure but for the rows it names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from clusters.ports import Promise
from portal.core.errors import Problem
from scheduling.priority import Effective
from workloads.models import Workload
from workloads.sentences import gpu_time_text, gpus_text

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
class ForecastVictim:
    """Who would be evicted. `workload` is None for a pod that is no workload's, then named in `label`, and for what is
    not the reader's to see: "another project", "another tenant's pod". moved: all of it finds its place elsewhere."""

    workload: Workload | None
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
    cautions: Sequence[str] = ()
    assurances: Sequence[str] = ()
    promises: Sequence[Promise] = ()

    @property
    def broken(self) -> list[Promise]:
        """What this scheduler does not keep at all."""
        return [each for each in self.promises if each.enforced == "no"]

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


def turn_sentence(sentence: str, *, first: str, why: str, patience: int) -> str:
    """It has several pools, and not the first one lets it start."""
    said = f"{first}, its first choice, does not let it start: there it {why}"
    return f"{sentence.rstrip('.')}; {said}. The next pool has its turn {patience} s later."


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a workload's pods get their place, now or once the evicted have left. why: why others wait."""

    starting: int
    coming: int
    waiting: int
    why: str

    @property
    def pods(self) -> str:
        """How many start now, of how many: "2 of 3 pods"."""
        return f"{self.starting} of {self._all} pods"

    @property
    def starts(self) -> str:
        """How many start, and how many of them now."""
        if not self.coming:
            return f"{self.pods} now"
        return f"{self.pods} now and {self.coming}" if self.starting else f"{self.coming} of {self._all} pods"

    @property
    def _all(self) -> int:
        return self.starting + self.coming + self.waiting

    @property
    def rest(self) -> str:
        """What the others do."""
        return f"{self.waiting} {'pod waits' if self.waiting == 1 else 'pods wait'}: {self.why}"


def start_sentence(pool: str, *, over_quota: bool, preemptible: bool, part: Part | None = None) -> str:
    """It fits. `over_quota`: the project is, once it runs; what others take back is taken from what is preemptible."""
    starts = f"Starts {part.starts if part else 'now'} in {pool}"
    rest = f" {part.rest}." if part else ""
    if over_quota and preemptible:
        return f"{starts}, over quota: it may be evicted when others want their share.{rest}"
    if over_quota:
        return f"{starts}, within quota; preemptible workloads beside it may be evicted for others' share.{rest}"
    return f"{starts}, within quota.{rest}"


def holding_sentence(pool: str, part: Part) -> str:
    """Too few of its pods start for it to run: those hold what they have meanwhile."""
    verbs = ("gets", "holds") if part.starting == 1 else ("get", "hold")
    return f"Waits: {part.pods} {verbs[0]} a node in {pool} now and {verbs[1]} it. {part.rest}."


def absent_sentence(names: Sequence[str], pool: str) -> str:
    """Workloads of a higher priority that have no pod at the moment."""
    if len(names) == 1:
        return f"{names[0]} (a higher priority) has no pod now: its controller pauses before the next try."
    return f"{_listed(names)} (of higher priorities) have no pod now: their controllers pause before the next try."


def turning_sentence(names: Sequence[str], pool: str) -> str:
    """Workloads that wait in another pool and have this one among theirs."""
    waits = "waits in another node pool" if len(names) == 1 else "wait in other node pools"
    return f"{_listed(names)} {waits} and may be tried in {pool} next."


def instead_sentence(others: int, *, starting: int, coming: int, evicted: int) -> str:
    """What would be foretold with the pods of those others in the queue."""
    pods = "1 pod" if starting + coming == 1 else f"{starting + coming} pods"
    does = f"{pods} of this workload would start" if starting + coming else "this workload would wait"
    whom = f", evicting {evicted} workload{'' if evicted == 1 else 's'}" if evicted else ""
    return f"Should {'that' if others == 1 else 'one'} come first, {does}{whom}."


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
    verdict: Verdict, pool: str, victims: Sequence[ForecastVictim], *, part: Part | None = None
) -> str:
    """It makes room for itself."""
    starts = f"Starts {part.starts}" if part else "Starts"
    rest = f" {part.rest}." if part else ""
    if all(victim.moved for victim in victims):
        again = "It ends and starts" if len(victims) == 1 else "They end and start"
        return f"{starts} in {pool} after moving {_taken(victims)} at risk. {again} again on other nodes.{rest}"
    if verdict is Verdict.RECLAIMS:
        share = f"its queue's share in {pool}" + (f" for {part.starts}" if part else "")
        return f"Takes back {share}: evicts {_taken(victims)} at risk.{rest}"
    return f"{starts} in {pool} after evicting {_taken(victims)} at risk.{rest}"


def vain_sentence(pool: str, victims: Sequence[ForecastVictim]) -> str:
    """Somebody goes for it, and it waits nevertheless."""
    return f"Waits in {pool}, though it evicts {_taken(victims)} at risk: others take the room first."


def overtaken_sentence(names: Sequence[str]) -> str:
    """Who else takes room that is made for it."""
    who = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    verb = "take" if len(names) > 1 else "takes"
    return f"{who} {verb} room that is made for it: the workload whose turn is first gets what the evicted leave."
