"""A report as a file: one line per place, columns as this table has them. Pure.

Hours are of covered time only. A cell without a number: it is not known there, which is not the same as 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from clusters.samples import ALL, Name, Owner
from portal.core.sheets import sheet
from portal.core.wire import stamp
from workloads.report_totals import OVER_QUOTA, Stretch, Total

HOUR: Final = 3600
GIB: Final = 2**30
NO_POOL: Final = "(none)"
"""What runs on nodes of no pool."""
LEAST: Final = 0.001
"""A smaller share would be shown as none."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a line, or one line per node pool, is of. `pools`: those to split it by; `pool`: the one that it is."""

    owner: Owner
    cluster: str
    department: str = ""
    project: str = ""
    pool: str = ""
    pools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A place, a node pool or all of them, and what the samples say there."""

    place: Place
    pool: str
    total: Total
    stretch: Stretch


Read = Callable[[Line], str]


def _hours(name: str, size: float = 1) -> Read:
    def read(line: Line) -> str:
        found = line.total.of(line.pool).get(name)
        return "" if found is None else number_text(found / size / HOUR)

    return read


def _peak(line: Line) -> str:
    return number_text(line.total.peaks.get(line.pool, 0) / 1000) if line.total.samples else ""


def _percent(line: Line) -> str:
    return number_text(100 * line.total.covered / line.stretch.seconds)


def _moment(name: str) -> Read:
    def read(line: Line) -> str:
        moment: datetime = getattr(line.stretch, name)
        return stamp(moment) or ""

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
    "gpuTotalHours": _hours(Name.GPU_TOTAL, 1000),
    "gpuDeservedHours": _hours(Name.GPU_DESERVED, 1000),
    "gpuAllocatedHours": _hours(Name.GPU_HELD, 1000),
    "gpuOverQuotaHours": _hours(OVER_QUOTA, 1000),
    "gpuAllocatedPeak": _peak,
    "cpuTotalCoreHours": _hours(Name.CPU_TOTAL, 1000),
    "cpuDeservedCoreHours": _hours(Name.CPU_DESERVED, 1000),
    "cpuAllocatedCoreHours": _hours(Name.CPU_HELD, 1000),
    "memoryTotalGibHours": _hours(Name.MEMORY_TOTAL, GIB),
    "memoryDeservedGibHours": _hours(Name.MEMORY_DESERVED, GIB),
    "memoryAllocatedGibHours": _hours(Name.MEMORY_HELD, GIB),
    "workloadHours": _hours(Name.WORKLOADS),
    "workloadWaitingHours": _hours(Name.WAITING),
}
"""In the order of the file; `docs/usage.md` says what each of them means."""


def file_of(lines: Iterable[Line]) -> str:
    """The whole file."""
    return sheet(tuple(COLUMNS), ([read(line) for read in COLUMNS.values()] for line in lines))


def words_of_cover(lines: Sequence[Line]) -> str:
    """How much of the time was measured, in a sentence: the mean of the lines."""
    if not any(line.total.samples for line in lines):
        return "Nothing was measured then."
    share = sum(line.total.covered / line.stretch.seconds for line in lines) / len(lines)
    if share < LEAST:
        return "Less than 0.1 % of that time was measured."
    return f"{100 * share:.1f} % of that time was measured."
