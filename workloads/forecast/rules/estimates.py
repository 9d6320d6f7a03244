"""Estimates from what happened: when a waiting workload starts, and how likely a running one is evicted. Pure."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from portal.kit.pages.formatting import duration_text
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
        history = f"were evicted within {hours} h of their start in the last {PERIOD.days} days"
        return f"{self.percent} % ({self.evicted} of {self.runs} runs) {history}"


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
    """What runs are compared by. category: of the type; empty: it has none."""

    project_id: int
    type_name: str
    size: str
    category: str = ""

    def classes(self) -> tuple["RunClass", ...]:
        """From its own kind to every run of its category: a service does not end as a training does."""
        of_type = (
            RunClass(self.project_id, self.type_name, self.size),
            RunClass(self.project_id, self.type_name),
            RunClass(None, self.type_name, self.size),
            RunClass(None, self.type_name),
        )
        return (*of_type, RunClass(category=self.category)) if self.category else of_type


@dataclass(frozen=True, slots=True)
class RunClass:
    """Runs of one project, type and size, or of one category of types; None or empty: of any."""

    project_id: int | None = None
    type_name: str = ""
    size: str = ""
    category: str = ""

    def text(self, projects: Mapping[int, str]) -> str:
        """ "Training in llm-team with up to 8 GPUs". A project that is not among these is not named."""
        if self.category:
            return f"all types of category {self.category} in all projects"
        where = "all projects" if self.project_id is None else projects.get(self.project_id, "another project")
        return f"{self.type_name} in {where}" + (f" with {self.size}" if self.size else "")


class RunLengths:
    """How long runs of a class last, by the estimator of Kaplan and Meier.

    A run that has not ended, or that an eviction ended, counts as one that lasts longer than it had by then. Without
    those, a class whose long runs still go on would seem to end early.
    """

    def __init__(self, ended: Iterable[int], unended: Iterable[int] = ()) -> None:
        """Seconds of each run."""
        self._ended, lasting = sorted(ended), sorted(unended)
        self._over: list[float] = []  # by then, the share of the runs that is over
        going = 1.0
        for place, seconds in enumerate(self._ended):
            at_risk = len(self._ended) - place + len(lasting) - bisect_left(lasting, seconds)
            going *= 1 - 1 / at_risk
            self._over.append(1 - going)

    def longer(self, ran: int) -> int:
        """How many of the ended runs lasted longer than so many seconds."""
        return len(self._ended) - bisect_right(self._ended, ran)

    def drawn(self, ran: int, chance: float) -> int | None:
        """Seconds in all of a run that has lasted `ran`. None: longer than any that ended. chance: from [0, 1)."""
        first = bisect_right(self._ended, ran)
        going = 1 - self._over[first - 1] if first else 1.0
        place = bisect_left(self._over, 1 - going * chance, lo=first)
        return self._ended[place] if place < len(self._ended) else None


class RunHistory:
    """Runs of one cluster by their kinds, each with the seconds that it lasted, or has lasted so far."""

    def __init__(self, ended: Iterable[tuple[RunKind, int]], unended: Iterable[tuple[RunKind, int]] = ()) -> None:
        over, going = _by_class(ended), _by_class(unended)
        self._lengths = {each: RunLengths(lasted, going.get(each, ())) for each, lasted in over.items()}

    def longer(self, kind: RunKind, ran: int) -> tuple[RunClass, RunLengths] | None:
        """The narrowest class in which enough runs have ended after more than `ran` seconds; None: there is none."""
        for each in kind.classes():
            lengths = self._lengths.get(each)
            if lengths and lengths.longer(ran) >= ENOUGH_RUNS:
                return each, lengths
        return None


def _by_class(runs: Iterable[tuple[RunKind, int]]) -> dict[RunClass, list[int]]:
    found: dict[RunClass, list[int]] = defaultdict(list)
    for kind, seconds in runs:
        for each in kind.classes():
            found[each].append(seconds)
    return found


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
        classes = [[*astuple(one), *counts] for one, counts in self.classes.items()]
        return {"classes": classes, "limits": self.limits, "unknown": self.unknown}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> "EstimateBasis":
        """As `as_json` has written it; empty: nothing."""
        classes = {RunClass(*row[:-2]): (row[-2], row[-1]) for row in stored.get("classes", ())}
        return cls(classes, stored.get("limits", 0), stored.get("unknown", 0))

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


LEAST_SECONDS: Final = 60
"""No estimate is shown as sooner: what a scheduler, a node and the end of pods take is known no better."""


WAIT_IN_POOL: Final = timedelta(seconds=30)
"""How long a workload stays in a pool that, by the model, does not let it start."""
WAIT_FOR_START: Final = timedelta(minutes=5)
"""How long it stays where, by the model, it starts: longer than victims usually take to end."""


def time_in_pool(*, starts_here: bool) -> timedelta:
    """How long it waits in its present pool before Rung tries another one."""
    return WAIT_FOR_START if starts_here else WAIT_IN_POOL


def waited_in_pool(*, now: datetime, waits_since: datetime, pool_since: datetime | None) -> timedelta:
    """Since the later of: it came to this pool, it began to wait."""
    return now - max(waits_since, pool_since or waits_since)


@dataclass(frozen=True, slots=True)
class ExpectedMove:
    """Rung tries the other node pools of a workload by itself.

    here: where it waits; others: its other pools. pool: the one that, by the model, lets it start now; empty: none
    does, or the model took too long. how: in words, how it starts there. at: when Rung tries it. starts_here: by the
    model, its present pool lets it start as well, and gets more time.
    """

    here: str
    others: tuple[str, ...]
    now: datetime
    pool: str = ""
    how: str = ""
    at: datetime | None = None
    starts_here: bool = False

    @property
    def seconds(self) -> int | None:
        """Until Rung tries it; 0: at its next check."""
        return None if self.at is None else max(int((self.at - self.now).total_seconds()), 0)

    @property
    def sentence(self) -> str:
        """ "Rung tries a100 in 20 s: by the model, it starts there now."."""
        if self.seconds is None:
            others = " or ".join(self.others)
            return f"Rung also tries {others} and moves it when it can start there."
        when = f"in {duration_text(timedelta(seconds=self.seconds))}" if self.seconds else "at its next check"
        unless = f", unless it starts in {self.here} before" if self.starts_here else ""
        return f"Rung tries {self.pool} {when}{unless}: by the model, {self.how}."

    def comes_before(self, start: datetime | None) -> bool:
        """Whether Rung tries another pool before it starts here. start: as estimated for this pool, where it was."""
        return self.at is not None and (not self.starts_here or (start is not None and self.at < start))


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a waiting workload starts: half of the model's runs by `median`, nine of ten by `p90`.

    None of both: there is no estimate, and `why` says so. data_at: when the cluster had been observed.
    move: it has other node pools that Rung tries by itself.
    """

    at: datetime
    data_at: datetime | None = None
    median: datetime | None = None
    p90: datetime | None = None
    why: str = ""
    code: str = ""
    basis: EstimateBasis = field(default_factory=EstimateBasis)
    move: ExpectedMove | None = None

    @property
    def median_in(self) -> float:
        """Seconds from the estimate until the median, at least a minute."""
        return max((self.median - self.at).total_seconds(), LEAST_SECONDS) if self.median else 0

    @property
    def p90_in(self) -> float:
        """Seconds from the estimate until the p90, at least a minute."""
        return max((self.p90 - self.at).total_seconds(), LEAST_SECONDS) if self.p90 else 0

    @property
    def is_known(self) -> bool:
        return self.median is not None


def quantile(moments: Sequence[int], share: float) -> int:
    """The smallest of these by which at least that share of them has come. moments: in order, not empty."""
    return moments[min(int(share * len(moments) + 0.999999), len(moments)) - 1]
