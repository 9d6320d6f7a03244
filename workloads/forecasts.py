"""The answer to "what will happen if I press this?": values and their sentences. Pure but for the rows it names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from clusters.ports import Promise
from portal.core.errors import Problem
from scheduling.priority import Effective
from workloads.models import Workload
from workloads.sentences import gpus_text


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
    pool: str = ""

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class Forecast:
    """An estimate: of which scheduler, on a snapshot how old (seconds; None when nothing was observed yet)."""

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
    nodes: tuple[str, ...] = ()
    cautions: Sequence[str] = ()
    assurances: Sequence[str] = ()
    promises: Sequence[Promise] = ()

    @property
    def broken(self) -> list[Promise]:
        """What this scheduler does not keep at all."""
        return [each for each in self.promises if each.enforced == "no"]

    @property
    def gpu_hours_at_risk(self) -> float:
        """What all victims together would lose."""
        return sum(victim.gpu_hours_at_risk for victim in self.victims)


def turn_sentence(sentence: str, *, first: str, why: str, patience: int) -> str:
    """It has several pools, and not the first one lets it start."""
    said = f"{first}, its first choice, does not let it start: there it {why}"
    return f"{sentence.rstrip('.')}; {said}. The next pool has its turn {patience} s later."


def start_sentence(pool: str, *, over_quota: bool, preemptible: bool) -> str:
    """It fits. `over_quota`: the project is, once it runs; what others take back is taken from what is preemptible."""
    if over_quota and preemptible:
        return f"Starts now in {pool}, over quota: it may be evicted when others want their share."
    if over_quota:
        return f"Starts now in {pool}, within quota; preemptible workloads beside it may be evicted for others' share."
    return f"Starts now in {pool}, within quota."


def eviction_sentence(verdict: Verdict, pool: str, victims: Sequence[ForecastVictim]) -> str:
    """It makes room for itself."""
    gpus = gpus_text(sum(victim.gpu_milli for victim in victims))
    hours = sum(victim.gpu_hours_at_risk for victim in victims)
    number = f"{len(victims)} workload{'' if len(victims) == 1 else 's'}"
    if all(victim.moved for victim in victims):
        again = "ends and starts" if len(victims) == 1 else "end and start"
        moved = f"{number} ({gpus}), which {again} again on other nodes"
        return f"Starts in {pool} after moving {moved}: {hours:.1f} GPU-hours at risk."
    if verdict is Verdict.RECLAIMS:
        return f"Takes back its queue's share in {pool}: evicts {number} ({gpus}), {hours:.1f} GPU-hours at risk."
    return f"Starts in {pool} after evicting {number} ({gpus}), {hours:.1f} GPU-hours at risk."
