"""What evictions cost and how often they happen, as values and sentences. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from workloads.forecast.rules.messages import gpu_time_text

PERIOD: Final = timedelta(days=7)
WITHIN: Final = timedelta(hours=4)


ENOUGH: Final = 20
"""Of fewer runs no share is stated."""


@dataclass(frozen=True, slots=True)
class RunOdds:
    """How many of the preemptible runs that began in the period were evicted within the hours.

    reclaimed: of those, by another queue that took its quota back.
    """

    runs: int = 0
    evicted: int = 0
    reclaimed: int = 0

    @property
    def percent(self) -> int | None:
        """None: not enough data."""
        return round(100 * self.evicted / self.runs) if self.runs >= ENOUGH else None

    @property
    def words(self) -> str:
        """ "12 % (6 of 50 runs) were evicted within 4 h of their start in the last 7 days"."""
        if self.percent is None:
            runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
            return f"not enough data ({runs} in the last {PERIOD.days} days, {ENOUGH} are needed)"
        hours = WITHIN // timedelta(hours=1)
        said = f"were evicted within {hours} h of their start in the last {PERIOD.days} days"
        return f"{self.percent} % ({self.evicted} of {self.runs} runs) {said}"


@dataclass(frozen=True, slots=True)
class EvictionOdds:
    """Odds of eviction in a node pool: of runs that started over the quota of their project, within it, and of all.

    Of runs that were recorded without their quota only `every` counts.
    """

    pool: str
    over: RunOdds
    within: RunOdds
    every: RunOdds

    @property
    def sentence(self) -> str:
        """ "Over quota in h100: 12 % (6 of 50 runs) were evicted within 4 h … Within quota: not enough data …".

        Where only all runs together are enough, their share, as REST states it.
        """
        if self.over.percent is None and self.within.percent is None and self.every.percent is not None:
            apart = f"{self.over.runs} that started over quota, {self.within.runs} within"
            return f"All runs in {self.pool}: {self.every.words}. Too few to compare by quota ({apart})."
        return f"Over quota in {self.pool}: {self.over.words}. Within quota: {self.within.words}."


VICTIM_ORDER: Final[Mapping[str, str]] = {
    "kube": "the node whose victims have the lowest priority, then the fewest victims, then the latest start",
    "kube-gangs": "the lowest priority, then single pods before gangs, then the latest start",
    "kai": "the lowest priority in a queue, then the latest creation",
    "kueue": "the lowest priority, then the latest admission",
    "volcano": "the first suitable node, and on it the lowest priority, then the latest creation",
}
"""How each scheduler chooses victims, as its model in `scheduling.rules` does. None knows checkpoints."""


@dataclass(frozen=True, slots=True)
class CheaperVictim:
    """A workload of the same queue and priority whose eviction would make room as well and lose less, in GPU-hours."""

    label: str
    workload_id: str
    gpu_hours: float
    instead_of: str
    instead_gpu_hours: float
    flavour: str
    scheduler: str

    @property
    def sentence(self) -> str:
        """ "Evicting eval would lose 0.4 GPU-hours instead of 6.0 (train has the same priority). KAI chooses by …"."""
        less, more = gpu_time_text(self.gpu_hours * 3600), gpu_time_text(self.instead_gpu_hours * 3600)
        order = VICTIM_ORDER.get(self.flavour, "rules that do not know checkpoints")
        return (
            f"Evicting {self.label} instead of {self.instead_of} (same priority) would lose {less} instead of {more}. "
            f"{self.scheduler} does not know checkpoints; it chooses by {order}."
        )
