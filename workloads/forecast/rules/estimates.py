"""Estimates from what happened: when a waiting workload starts, and how likely a running one is evicted. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from workloads.forecast.rules.messages import gpu_time_text

PERIOD: Final = timedelta(days=7)
WITHIN: Final = timedelta(hours=4)


ENOUGH: Final = 20
"""Of fewer runs no share is stated."""


@dataclass(frozen=True, slots=True)
class RunOdds:
    """How many of the runs that began in the period, of one preemptibility, were evicted within the hours.

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

    Of runs that were recorded without their quota only `every` counts. preemptible: what all these runs are.
    """

    pool: str
    over: RunOdds
    within: RunOdds
    every: RunOdds
    preemptible: bool = True

    @property
    def sentence(self) -> str:
        """ "Over quota in h100: 12 % (6 of 50 runs) were evicted within 4 h … Within quota: not enough data …".

        Where only all runs together are enough, their share, as REST states it; likewise of
        non-preemptible runs, which have to stay within quota.
        """
        if not self.preemptible:
            return f"Non-preemptible runs in {self.pool}: {self.every.words}."
        if self.over.percent is None and self.within.percent is None and self.every.percent is not None:
            apart = f"{self.over.runs} that started over quota, {self.within.runs} within"
            return f"All preemptible runs in {self.pool}: {self.every.words}. Too few to compare by quota ({apart})."
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


ENOUGH_RUNS: Final = 10
"""Of fewer ended runs nothing is concluded."""
SAMPLES: Final = 20
ENOUGH_SAMPLES: Final = 10
"""Where the time budget is over after so many of the samples, those are the estimate."""
HORIZON: Final = timedelta(days=7)
SIZES: Final = ((1_000, "up to 1 GPU"), (8_000, "up to 8 GPUs"))
LARGE: Final = "more than 8 GPUs"


def size_class(gpu_milli: int) -> str:
    """Of a workload that requests so many thousandths of a GPU in all."""
    return next((name for most, name in SIZES if gpu_milli <= most), LARGE)


@dataclass(frozen=True, slots=True)
class RunKind:
    """What runs are compared by."""

    project_id: int
    type_name: str
    size: str

    def classes(self) -> tuple["RunClass", ...]:
        """From its own kind to every run of the cluster."""
        return (
            RunClass(self.project_id, self.type_name, self.size),
            RunClass(self.project_id, self.type_name),
            RunClass(None, self.type_name, self.size),
            RunClass(None, self.type_name),
            RunClass(),
        )


@dataclass(frozen=True, slots=True)
class RunClass:
    """Runs of one project, type and size; None or empty: of any."""

    project_id: int | None = None
    type_name: str = ""
    size: str = ""

    def text(self, projects: Mapping[int, str]) -> str:
        """ "Training in llm-team with up to 8 GPUs". A project that is not among these is not named."""
        if not self.type_name:
            return "all types and projects"
        where = "all projects" if self.project_id is None else projects.get(self.project_id, "another project")
        return f"{self.type_name} in {where}" + (f" with {self.size}" if self.size else "")


class RunHistory:
    """Ended runs of one cluster: their kinds and how long they lasted, in seconds."""

    def __init__(self, runs: Iterable[tuple[RunKind, int]]) -> None:
        found: dict[RunClass, list[int]] = defaultdict(list)
        for kind, seconds in runs:
            for each in kind.classes():
                found[each].append(seconds)
        self._seconds = {each: sorted(lasted) for each, lasted in found.items()}

    def longer(self, kind: RunKind, ran: int) -> tuple[RunClass, Sequence[int]] | None:
        """The runs that lasted longer than `ran` seconds, of the narrowest class with enough of them; None: of none."""
        for each in kind.classes():
            longer = [seconds for seconds in self._seconds.get(each, ()) if seconds > ran]
            if len(longer) >= ENOUGH_RUNS:
                return each, longer
        return None


@dataclass(frozen=True, slots=True)
class EstimateBasis:
    """What the ends of runs were taken from, each counted in running workloads.

    classes: with the number of ended runs. limits: by time limit alone, as the latest end. unknown: taken to go on.
    """

    classes: Mapping[RunClass, tuple[int, int]] = field(default_factory=dict)
    limits: int = 0
    unknown: int = 0

    def as_json(self) -> dict[str, Any]:
        """What `of_json` reads."""
        classes = [[one.project_id, one.type_name, one.size, *counts] for one, counts in self.classes.items()]
        return {"classes": classes, "limits": self.limits, "unknown": self.unknown}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> "EstimateBasis":
        """As `as_json` has written it; empty: nothing."""
        classes = {RunClass(*row[:3]): (row[3], row[4]) for row in said.get("classes", ())}
        return cls(classes, said.get("limits", 0), said.get("unknown", 0))

    def text(self, projects: Mapping[int, str]) -> str:
        """ "34 ended runs of Training in llm-team (2 running workloads); time limits (1)"; empty: nothing runs."""
        ordered = sorted(self.classes.items(), key=lambda each: (-each[1][1], each[0].text(projects)))
        parts = [f"{runs} ended runs of {each.text(projects)} ({_running(n)})" for each, (runs, n) in ordered]
        if self.limits:
            parts.append(f"time limits as the latest end ({_running(self.limits)})")
        if self.unknown:
            parts.append(f"no end known ({_running(self.unknown)}, assumed to go on)")
        return "; ".join(parts)


def _running(number: int) -> str:
    return "1 running workload" if number == 1 else f"{number} running workloads"


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a waiting workload starts: half of the model's runs by `median`, nine of ten by `p90`.

    None of both: there is no estimate, and `why` says so. data_at: when the cluster had been observed.
    """

    at: datetime
    data_at: datetime | None = None
    median: datetime | None = None
    p90: datetime | None = None
    why: str = ""
    code: str = ""
    basis: EstimateBasis = field(default_factory=EstimateBasis)

    @property
    def median_in(self) -> float:
        """Seconds from the estimate until the median."""
        return max((self.median - self.at).total_seconds(), 0) if self.median else 0

    @property
    def p90_in(self) -> float:
        """Seconds from the estimate until the p90."""
        return max((self.p90 - self.at).total_seconds(), 0) if self.p90 else 0

    @property
    def is_known(self) -> bool:
        return self.median is not None


def quantile(moments: Sequence[int], share: float) -> int:
    """The smallest of these by which at least that share of them has come. moments: in order, not empty."""
    return moments[min(int(share * len(moments) + 0.999999), len(moments)) - 1]
