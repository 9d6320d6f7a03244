"""How many forecasts held, by week and scheduler, and those that did not, as far as their reader may know the names."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from django.db.models import QuerySet

from clusters.flavours.registry import FLAVOURS
from clusters.inventory.models import Cluster
from portal.kit.security.actors import Actor
from tenants.access.selectors import visible_among
from workloads.forecast.models import ForecastCount, ForecastQuestion, ForecastResult, StartResult, StoredForecast
from workloads.state.models import Workload
from workloads.state.selectors.workloads import workload_ids

MISSED: Final = (ForecastResult.OVERTAKEN, ForecastResult.DOUBTED, ForecastResult.UNEXPLAINED)
OVERTAKEN: Final[Mapping[str, str]] = {
    "submission": "another submission",
    "restart": "the restart of another workload",
    "action": "a change of another workload",
    "stop": "the stop of another workload",
    "deletion": "the deletion of another workload",
    "quotas": "a change of quotas",
    "nodes": "a change of nodes",
    "foreign_pod": "a pod that Rung did not create",
    "ended": "the end of another workload",
}
NOT_JUDGED: Final[Mapping[str, str]] = {
    "not_observed": "cluster not observed",
    "scheduler_changed": "scheduler changed",
    "not_sent": "not sent to the cluster",
    "stopped": "stopped or changed by users",
    "own_submissions": "submitted after other workloads of the same user",
    "unnamed_evictions": "evictions without a known preemptor",
}
CALIBRATION_WEEKS: Final = 12
LEAST_JUDGED: Final = 10
"""Shares of fewer start estimates say nothing about the next one."""
ANOTHER: Final = "another project's workload"
FOREIGN: Final = "a pod that Rung did not create"


@dataclass(frozen=True, slots=True)
class ForecastTally:
    """Forecasts of one week (its Monday, UTC; None: of all weeks) and scheduler, counted by result and why."""

    week: date | None
    flavour: str
    counts: Mapping[tuple[str, str], int]

    def of(self, *results: str) -> int:
        """How many came out so."""
        return sum(count for (result, _why), count in self.counts.items() if result in results)

    @property
    def held(self) -> int:
        return self.of(ForecastResult.HELD)

    @property
    def missed(self) -> int:
        return self.of(*MISSED)

    @property
    def judged(self) -> int:
        return self.held + self.missed

    @property
    def overtaken(self) -> int:
        return self.of(ForecastResult.OVERTAKEN)

    @property
    def doubted(self) -> int:
        return self.of(ForecastResult.DOUBTED)

    @property
    def unexplained(self) -> int:
        return self.of(ForecastResult.UNEXPLAINED)

    @property
    def not_judged(self) -> int:
        return self.of(ForecastResult.NOT_JUDGED)

    @property
    def share(self) -> float | None:
        """Percent that held, rounded down to tenths; None where none was judged."""
        return self.held * 1000 // self.judged / 10 if self.judged else None

    @property
    def sentence(self) -> str:
        """All of it in words; empty where there is nothing to count."""
        sentences = [self._held] if self.judged else []
        if rest := self._by_why(ForecastResult.NOT_JUDGED, NOT_JUDGED, "{count:,} {words}"):
            sentences.append(f"Not judged: {', '.join(rest)}.")
        return " ".join(sentences)

    @property
    def _held(self) -> str:
        forecasts = "1 forecast" if self.judged == 1 else f"{self.judged:,} forecasts"
        if not self.missed:
            return f"{forecasts}, 100 % held."
        parts = [
            *self._by_why(ForecastResult.DOUBTED, {}, "{count:,} had the doubt “{words}”"),
            *self._by_why(ForecastResult.OVERTAKEN, OVERTAKEN, "{count:,} {were} overtaken by {words}"),
            *([f"{self.unexplained:,} unexplained"] if self.unexplained else []),
        ]
        return f"{forecasts}, {self.share} % held; {self.missed:,} did not: {', '.join(parts)}."

    def _by_why(self, result: str, words: Mapping[str, str], form: str) -> list[str]:
        found = [(count, why) for (each, why), count in self.counts.items() if each == result]
        return [
            form.format(count=count, words=words.get(why, _plain(why)), were="was" if count == 1 else "were")
            for count, why in sorted(found, key=lambda each: (-each[0], each[1]))
        ]


def tallies(cluster: Cluster, *, weeks: int) -> list[ForecastTally]:
    """One per week and scheduler that has any, of the newest weeks, newest first."""
    rows = ForecastCount.objects.filter(cluster=cluster, question=ForecastQuestion.VERDICT)
    newest = rows.order_by("-week").values_list("week", flat=True).first()
    if newest is None:
        return []
    found: dict[tuple[date, str], dict[tuple[str, str], int]] = defaultdict(dict)
    for row in rows.filter(week__gt=newest - timedelta(weeks=weeks)).order_by("-week", "flavour"):
        found[row.week, row.flavour][row.result, row.why] = row.count
    return [ForecastTally(week, _title(flavour), counts) for (week, flavour), counts in found.items()]


def together(found: Iterable[ForecastTally]) -> ForecastTally:
    """All of these as one."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in found:
        counts.update(each.counts)
    return ForecastTally(None, "", counts)


@dataclass(frozen=True, slots=True)
class StartCalibration:
    """How many start estimates came out so: started by the median, between median and p90, later; not judged."""

    by_median: int = 0
    by_p90: int = 0
    late: int = 0
    not_judged: int = 0

    @property
    def judged(self) -> int:
        return self.by_median + self.by_p90 + self.late

    @property
    def median_percent(self) -> float | None:
        """Started by the median, of those judged; a good estimate has 50. None: none was judged."""
        return round(100 * self.by_median / self.judged, 1) if self.judged else None

    @property
    def p90_percent(self) -> float | None:
        """Started by the p90; a good estimate has 90."""
        return round(100 * (self.by_median + self.by_p90) / self.judged, 1) if self.judged else None

    @property
    def sentence(self) -> str:
        """Empty: no start estimate was shown whose time has come."""
        if not self.judged:
            return ""
        estimates = "1 start estimate" if self.judged == 1 else f"{self.judged:,} start estimates"
        if self.judged < LEAST_JUDGED:
            return f"{estimates}: too few to judge (fewer than {LEAST_JUDGED})."
        return (
            f"{estimates}: {self.median_percent} % started by the median (50 % expected), "
            f"{self.p90_percent} % by the p90 (90 % expected)."
        )


def start_calibration(cluster: Cluster, *, weeks: int) -> StartCalibration:
    """Of the start estimates that were shown first in each wait, in the newest weeks that have any."""
    rows = ForecastCount.objects.filter(cluster=cluster, question=ForecastQuestion.START)
    newest = rows.order_by("-week").values_list("week", flat=True).first()
    if newest is None:
        return StartCalibration()
    counts: Counter[str] = Counter()
    for row in rows.filter(week__gt=newest - timedelta(weeks=weeks)):
        counts[row.result] += row.count
    return StartCalibration(**{result.value: counts[result] for result in StartResult})


def _plain(code: str) -> str:
    return code.replace("_", " ")


def _title(flavour: str) -> str:
    return FLAVOURS[flavour].title if flavour in FLAVOURS else flavour


def missed_forecasts(cluster: Cluster) -> QuerySet[StoredForecast]:
    """Those that did not hold and are still kept."""
    rows = StoredForecast.objects.filter(cluster=cluster, result__in=MISSED).defer("input")
    return rows.select_related("workload", "overtaken_by")


@dataclass(frozen=True, slots=True)
class MissedForecast:
    """A forecast that did not hold, in words. The workloads are None where the reader may not know them."""

    id: int
    at: datetime
    data_age: float | None
    flavour: str
    verdict: str
    result: str
    why: str
    forecast: str
    happened: str
    workload: Workload | None
    overtaken_by: Workload | None

    @property
    def name(self) -> str:
        return self.workload.name if self.workload else ANOTHER

    @property
    def reason(self) -> str:
        """Why it did not hold, in words."""
        if self.result == ForecastResult.DOUBTED:
            return f"It had the doubt “{_plain(self.why)}”."
        if self.result == ForecastResult.OVERTAKEN:
            return f"Overtaken by {OVERTAKEN.get(self.why, self.why)}."
        return "Unexplained."


def in_words(rows: Sequence[StoredForecast], actor: Actor) -> list[MissedForecast]:
    """These for this reader."""
    ids = workload_ids(key for row in rows for key in (*row.victims, *row.evicted))
    named = Workload.objects.filter(pk__in=ids).values_list("pk", "name", "project")
    linked = [each for row in rows for each in (row.workload, row.overtaken_by) if each]
    visible = visible_among(actor, {project for _pk, _name, project in named} | {each.project_id for each in linked})
    names = {str(pk): name for pk, name, project in named if project in visible}
    return [_in_words(row, names, visible) for row in rows]


def _in_words(row: StoredForecast, names: Mapping[str, str], visible: set[int]) -> MissedForecast:
    return MissedForecast(
        id=row.pk,
        at=row.at,
        data_age=(row.at - row.data_at).total_seconds() if row.data_at else None,
        flavour=_title(row.flavour),
        verdict=row.verdict,
        result=row.result,
        why=row.why,
        forecast=_course(row.victims, names, "starts" if row.starts else "waits", "evicts"),
        happened=_course(row.evicted, names, "started" if row.started_at else "waited", "evicted"),
        workload=_known(row.workload, visible),
        overtaken_by=_known(row.overtaken_by, visible),
    )


def _known(workload: Workload | None, visible: set[int]) -> Workload | None:
    return workload if workload and workload.project_id in visible else None


def _course(victims: Sequence[str], names: Mapping[str, str], does: str, evicts: str) -> str:
    if not victims:
        return does
    counts = Counter(FOREIGN if key.startswith("pod:") else names.get(key, ANOTHER) for key in victims)
    listed = (name if count == 1 else f"{name} (× {count})" for name, count in sorted(counts.items()))
    return f"{does}, {evicts} {', '.join(listed)}"
