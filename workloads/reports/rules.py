"""What a report may cover, its totals from samples, and its file. Pure: times are arguments.

A sample speaks from its moment until the next one, and no further than the period it was kept for: a minute, ten, an
hour or a day, the older the longer (`clusters.watch.selectors.RESOLUTIONS`). Time of which no sample speaks is not
covered: nothing is added for it, and nothing is made up.

Hours are of covered time only. A cell without a number: it is not known there, which is not the same as 0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from clusters.watch.selectors import ALL, RESOLUTIONS, Figures, Metric, SampleOwner
from portal.kit.api.parsers import csv_text, rfc3339
from portal.kit.errors import Problem, ValidationFailed
from portal.kit.messaging.tasks import period_start

PROJECT_NAME: Final = "projectName"
DEPARTMENT_NAME: Final = "departmentName"
CLUSTER_ID: Final = "clusterId"
FIELDS: Final = (PROJECT_NAME, DEPARTMENT_NAME, CLUSTER_ID)
LONGEST: Final = RESOLUTIONS[-1].retention
"""Nothing older is kept."""
YEARS: Final = range(2000, 3000)
EQUALS: Final = "=="


def validate_report(*, name: str, start: datetime, end: datetime, now: datetime) -> None:
    """Raises ValidationFailed with every problem."""
    problems = [*_of_name(name), *_of_time(start, end, now)]
    if problems:
        raise ValidationFailed(problems[0].message, code="invalid", problems=problems)


def named_places(filter_by: Sequence[str]) -> Mapping[str, str]:
    """`["projectName==llm"]` as names by field. Raises ValidationFailed at an invalid or repeated part."""
    found: dict[str, str] = {}
    for number, clause in enumerate(filter_by):
        field, _, value = clause.partition(EQUALS)
        if field not in FIELDS or field in found or not _is_value(field, value):
            message = "Use each of projectName==, departmentName== and clusterId== at most once, with a value."
            raise ValidationFailed.at(f"/filterBy/{number}", "bad_filter", message, allowed=FIELDS)
        found[field] = value
    return found


def _is_value(field: str, value: str) -> bool:
    if field != CLUSTER_ID:
        return 0 < len(value) <= 63 and value.isprintable()
    try:
        return bool(UUID(value))
    except ValueError:
        return False


def _of_name(name: str) -> Iterator[Problem]:
    if not name.strip() or not name.isprintable():
        yield Problem("/name", "bad_name", "A name must be one line of printable characters.")


def _of_time(start: datetime, end: datetime, now: datetime) -> Iterator[Problem]:
    if start.year not in YEARS or end.year not in YEARS:
        yield Problem("/start", "out_of_range", "The year must be between 2000 and 2999.")
    elif not start < end:
        yield Problem("/end", "out_of_range", "The end must be after the start.")
    elif end - start > LONGEST:
        yield Problem("/start", "out_of_range", f"The period must be at most {LONGEST.days} days.")
    elif start > now + timedelta(seconds=1):
        yield Problem("/start", "out_of_range", "The period must start in the past.")


OVER_QUOTA: Final = "gpu_over_quota"
"""GPU thousandths held above what is deserved, node pool by node pool: each has a queue of its own."""
Sampled = tuple[datetime, Figures]


@dataclass(frozen=True, slots=True)
class Stretch:
    """From start to end, as known at `now`, from samples of this grain and coarser ones."""

    start: datetime
    end: datetime
    now: datetime
    grain: int = 0

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    def spoken_for(self, at: datetime, following: datetime | None) -> float:
        """Seconds of the stretch that a sample of that moment speaks for."""
        every = int(self.every(at).total_seconds())
        until = min(period_start(at, every) + timedelta(seconds=every), self.end, self.now)
        until = until if following is None else min(until, following)
        return max((until - max(at, self.start)).total_seconds(), 0.0)

    def every(self, at: datetime) -> timedelta:
        """How far apart the samples of that moment lie by now."""
        age = self.now - at
        stored = (number for number, grain in enumerate(RESOLUTIONS) if age <= grain.retention)
        return RESOLUTIONS[max(next(stored, len(RESOLUTIONS) - 1), self.grain)].every


@dataclass(slots=True)
class Total:
    """Figures times seconds of one owner, by node pool or `ALL`; and the most GPU thousandths held there at once."""

    covered: float = 0.0
    samples: int = 0
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)

    def add(self, figures: Figures, seconds: float) -> None:
        """What was so for so long."""
        self.covered += seconds
        self.samples += 1
        for pool, named in figures.items():
            sums = self.sums.setdefault(pool, {})
            for name, number in named.items():
                sums[name] = sums.get(name, 0.0) + number * seconds
            self.peaks[pool] = max(self.peaks.get(pool, 0.0), named.get(Metric.GPU_HELD, 0.0))

    def of(self, pool: str) -> Mapping[str, float]:
        """Figures times seconds there. A pool that no sample names had nothing; without samples nothing is known."""
        return {**dict.fromkeys(self.sums.get(ALL, {}), 0.0), **self.sums.get(pool, {})}


def total_of(samples: Sequence[Sampled], stretch: Stretch, *, has_queues: bool) -> Total:
    """One owner's samples, oldest first. `has_queues`: a project or department, which can be over its quota."""
    total = Total()
    for (at, figures), following in _pairs(samples):
        if seconds := stretch.spoken_for(at, following):
            total.add(with_over_quota(figures) if has_queues else figures, seconds)
    return total


def with_over_quota(figures: Figures) -> Figures:
    """The figures with what is held above the deserved, of each pool and of all together."""
    over = {
        pool: max(_of(named, Metric.GPU_HELD) - _of(named, Metric.GPU_DESERVED), 0) for pool, named in figures.items()
    }
    over[ALL] = sum(number for pool, number in over.items() if pool != ALL)
    return {pool: {**named, OVER_QUOTA: over[pool]} for pool, named in figures.items()}


def _of(named: Mapping[str, float], name: str) -> float:
    return named.get(name, 0)


def _pairs(samples: Sequence[Sampled]) -> Iterator[tuple[Sampled, datetime | None]]:
    for number, sample in enumerate(samples, start=1):
        yield sample, samples[number][0] if number < len(samples) else None


HOUR: Final = 3600
GIB: Final = 2**30
NO_POOL: Final = "(none)"
"""What runs on nodes of no pool."""
LEAST: Final = 0.001
"""A smaller share would be shown as none."""


@dataclass(frozen=True, slots=True)
class ReportPlace:
    """What a line, or one line per node pool, is of. `pools`: those to split it by; `pool`: the one that it is."""

    owner: SampleOwner
    cluster: str
    department: str = ""
    project: str = ""
    pool: str = ""
    pools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportLine:
    """A place, a node pool or all of them, and what the samples say there."""

    place: ReportPlace
    pool: str
    total: Total
    stretch: Stretch


Read = Callable[[ReportLine], str]


def _hours(name: str, size: float = 1) -> Read:
    def read(line: ReportLine) -> str:
        found = line.total.of(line.pool).get(name)
        return "" if found is None else number_text(found / size / HOUR)

    return read


def _peak(line: ReportLine) -> str:
    return number_text(line.total.peaks.get(line.pool, 0) / 1000) if line.total.samples else ""


def _percent(line: ReportLine) -> str:
    return number_text(100 * line.total.covered / line.stretch.seconds)


def _moment(name: str) -> Read:
    def read(line: ReportLine) -> str:
        moment: datetime = getattr(line.stretch, name)
        return rfc3339(moment) or ""

    return read


def number_text(number: float) -> str:
    """Three places, always."""
    return f"{number:.3f}"


COLUMNS: Final[Mapping[str, Read]] = {
    "cluster": lambda line: line.place.cluster,
    "department": lambda line: line.place.department,
    "project": lambda line: line.place.project,
    "nodePool": lambda line: line.place.pool or ("" if line.pool == ALL else line.pool or NO_POOL),
    "start": _moment("start"),
    "end": _moment("end"),
    "coveredHours": lambda line: number_text(line.total.covered / HOUR),
    "coveredPercent": _percent,
    "samples": lambda line: str(line.total.samples),
    "gpuTotalHours": _hours(Metric.GPU_TOTAL, 1000),
    "gpuDeservedHours": _hours(Metric.GPU_DESERVED, 1000),
    "gpuAllocatedHours": _hours(Metric.GPU_HELD, 1000),
    "gpuOverQuotaHours": _hours(OVER_QUOTA, 1000),
    "gpuAllocatedPeak": _peak,
    "cpuTotalCoreHours": _hours(Metric.CPU_TOTAL, 1000),
    "cpuDeservedCoreHours": _hours(Metric.CPU_DESERVED, 1000),
    "cpuAllocatedCoreHours": _hours(Metric.CPU_HELD, 1000),
    "memoryTotalGibHours": _hours(Metric.MEMORY_TOTAL, GIB),
    "memoryDeservedGibHours": _hours(Metric.MEMORY_DESERVED, GIB),
    "memoryAllocatedGibHours": _hours(Metric.MEMORY_HELD, GIB),
    "workloadHours": _hours(Metric.WORKLOADS),
    "workloadWaitingHours": _hours(Metric.WAITING),
}
"""In the order of the file; `docs/usage.md` says what each of them means."""


def file_of(lines: Iterable[ReportLine]) -> str:
    return csv_text(tuple(COLUMNS), ([read(line) for read in COLUMNS.values()] for line in lines))


def words_of_cover(lines: Sequence[ReportLine]) -> str:
    """How much of the time was measured, in a sentence: the mean of the lines."""
    if not any(line.total.samples for line in lines):
        return "No data for this period."
    share = sum(line.total.covered / line.stretch.seconds for line in lines) / len(lines)
    if share < LEAST:
        return "Coverage below 0.1 % of the period."
    return f"Coverage: {100 * share:.1f} % of the period."
