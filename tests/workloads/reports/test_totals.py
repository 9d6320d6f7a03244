"""What samples say of a stretch of time: what they cover, what they add up to, and what nobody knows."""

import csv
import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from clusters.watch.selectors import ALL, SampleOwner
from tests.support.repository import ROOT
from workloads.reports.rules import COLUMNS, ReportLine, ReportPlace, Sampled, Stretch, Total, file_of, total_of

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PROJECT = ReportPlace(SampleOwner("project", "7"), "lab", "research", "llm-team")


def stretch(*, before: timedelta = HOUR, ago: timedelta = timedelta(), grain: int = 0) -> Stretch:
    """So long, until noon, told so long after."""
    return Stretch(NOON - before, NOON, NOON + ago, grain)


def held(at: datetime, gpus: float, deserved: float = 0, **pools: float) -> Sampled:
    named = {pool: {"gpu_held": 1000.0 * each, "gpu_deserved": 0.0} for pool, each in pools.items()}
    return at, {ALL: {"gpu_held": 1000 * gpus, "gpu_deserved": 1000 * deserved}, **named}


def hours(total: Total, name: str = "gpu_held", pool: str = ALL) -> float:
    return round(total.of(pool)[name] / 3_600_000, 6)


def row_of(total: Total, requested: Stretch, place: ReportPlace = PROJECT, pool: str = ALL) -> Mapping[str, str]:
    (found,) = csv.DictReader(io.StringIO(file_of([ReportLine(place, pool, total, requested)])))
    return found


def test_a_sample_of_every_minute_covers_the_hour() -> None:
    samples = [held(NOON - HOUR + number * MINUTE, 2) for number in range(60)]
    total = total_of(samples, stretch(), has_queues=False)
    assert (total.covered, total.samples, hours(total)) == (3600, 60, 2)


def test_a_minute_without_a_sample_counts_as_nothing_and_is_not_covered() -> None:
    samples = [held(NOON - HOUR + number * MINUTE, 2) for number in range(60) if number >= 15]
    requested = stretch()
    total = total_of(samples, requested, has_queues=False)
    assert (total.covered, hours(total)) == (2700, 1.5)
    assert row_of(total, requested)["coveredPercent"] == "75.000"


@pytest.mark.parametrize(
    ("ago", "covered"),
    [
        pytest.param(timedelta(hours=2), 60, id="a minute of hours ago"),
        pytest.param(timedelta(days=2), 600, id="ten minutes of days ago"),
        pytest.param(timedelta(days=20), 3600, id="an hour of weeks ago"),
        pytest.param(timedelta(days=100), 43_200, id="what is left of the day of months ago"),
    ],
)
def test_a_sample_stands_for_the_period_it_was_kept_for(ago: timedelta, covered: int) -> None:
    requested = Stretch(NOON - DAY, NOON + DAY, NOON + ago)
    assert total_of([held(NOON, 1)], requested, has_queues=False).covered == covered


def test_a_finer_sample_ends_what_a_coarse_one_says() -> None:
    requested = Stretch(NOON, NOON + DAY, NOON + timedelta(days=100))
    total = total_of([held(NOON, 1), held(NOON + HOUR, 3)], requested, has_queues=False)
    assert hours(total) == 1 + 3 * 11


def test_what_was_before_the_start_and_is_after_the_end_is_cut_off() -> None:
    requested = Stretch(NOON - 10 * MINUTE, NOON + 10 * MINUTE, NOON + timedelta(days=20))
    total = total_of([held(NOON - HOUR, 1), held(NOON, 6)], requested, has_queues=False)
    assert (total.covered, hours(total)) == (1200, round(1 / 6 + 1, 6))


def test_time_to_come_is_not_covered() -> None:
    requested = Stretch(NOON, NOON + 2 * MINUTE, NOON + MINUTE / 2)
    assert total_of([held(NOON, 1)], requested, has_queues=False).covered == 30


def test_many_places_are_read_from_coarser_samples_that_stand_for_longer() -> None:
    samples = [held(NOON - HOUR + number * 10 * MINUTE, 1) for number in range(6)]
    assert total_of(samples, stretch(grain=1), has_queues=False).covered == 3600


def test_each_node_pool_is_over_its_own_quota() -> None:
    pools = {"h100": {"gpu_held": 6000, "gpu_deserved": 4000}, "a100": {"gpu_held": 0, "gpu_deserved": 4000}}
    figures = {ALL: {"gpu_held": 6000, "gpu_deserved": 8000}, **pools}
    requested = stretch(before=MINUTE)
    total = total_of([(NOON - MINUTE, figures)], requested, has_queues=True)
    assert row_of(total, requested)["gpuOverQuotaHours"] == "0.033"
    assert row_of(total, requested, pool="h100")["gpuOverQuotaHours"] == "0.033"
    assert row_of(total, requested, pool="a100")["gpuOverQuotaHours"] == "0.000"


def test_where_nothing_was_measured_there_is_no_number() -> None:
    row = row_of(Total(), stretch())
    assert (row["coveredHours"], row["coveredPercent"], row["samples"]) == ("0.000", "0.000", "0")
    assert {row[name] for name in row if name.startswith(("gpu", "cpu", "memory", "workload"))} == {""}


def test_a_pool_that_no_sample_names_had_nothing() -> None:
    requested = stretch(before=MINUTE)
    total = total_of([held(NOON - MINUTE, 1, h100=1)], requested, has_queues=False)
    assert row_of(total, requested, pool="a100")["gpuAllocatedHours"] == "0.000"
    assert row_of(total, requested, pool="h100")["gpuAllocatedPeak"] == "1.000"
    assert row_of(total, requested, pool="")["nodePool"] == "(none)"


def test_t59_no_cell_is_a_formula() -> None:
    place = ReportPlace(SampleOwner("cluster", "x"), "=cmd|' /C calc'!A0", "@SUM(A1)", "-1", pool="+1")
    row = row_of(Total(), stretch(), place)
    assert [row[name] for name in ("cluster", "department", "project", "nodePool")] == [
        "'=cmd|' /C calc'!A0",
        "'@SUM(A1)",
        "'-1",
        "'+1",
    ]


def test_every_column_is_documented_and_no_other() -> None:
    rows = [line for line in (ROOT / "docs/usage.md").read_text().splitlines() if line.startswith("| `")]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])] == list(COLUMNS)
