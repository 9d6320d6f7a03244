"""When work was last saved, and what an eviction costs."""

from datetime import UTC, datetime, timedelta

import pytest

from workloads.state.rules import (
    INTERVAL,
    LAST,
    CheckpointMedians,
    checkpoint_medians,
    cost_at_risk,
    last_checkpoint,
    lost_gpu_seconds,
)

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("notes", "saved"),
    [
        pytest.param({}, None, id="nothing said"),
        pytest.param({LAST: "2030-01-01T12:50:00Z"}, START + timedelta(minutes=50), id="a moment"),
        pytest.param({LAST: "2030-01-01T11:50:00Z"}, None, id="a moment before it started"),
        pytest.param({LAST: "2031-01-01T12:00:00Z"}, None, id="a moment that is still to come"),
        pytest.param({LAST: "yesterday"}, None, id="no moment at all"),
        pytest.param({INTERVAL: "25m"}, START + timedelta(minutes=50), id="a rhythm"),
        pytest.param({INTERVAL: "1h30m"}, None, id="a rhythm longer than it ran"),
        pytest.param({INTERVAL: "often"}, None, id="no rhythm at all"),
        pytest.param({INTERVAL: "0m"}, None, id="a rhythm of nothing"),
        pytest.param(
            {INTERVAL: "25m", LAST: "2030-01-01T12:55:00Z"}, START + timedelta(minutes=55), id="the later of both"
        ),
    ],
)
def test_the_last_checkpoint_is_the_latest_that_was_said(notes: dict[str, str], saved: datetime | None) -> None:
    assert last_checkpoint({"annotations": notes}, started=START, now=START + HOUR) == saved


@pytest.mark.parametrize(
    ("checkpoint", "lost"),
    [
        pytest.param(None, 8 * 3600, id="everything since the start"),
        pytest.param(START + timedelta(minutes=48), 8 * 720, id="twelve minutes on eight GPUs"),
    ],
)
def test_what_is_lost_counts_every_gpu(checkpoint: datetime | None, lost: int) -> None:
    assert lost_gpu_seconds(8000, started=START, checkpoint=checkpoint, at=START + HOUR) == lost


def test_half_a_gpu_loses_half() -> None:
    assert lost_gpu_seconds(500, started=START, checkpoint=None, at=START + HOUR) == 1800


MINUTE = timedelta(minutes=1)
MEDIANS = checkpoint_medians([("Train", MINUTE * part) for part in (1, 20, 30)] + [("Build", MINUTE * 50)])


@pytest.mark.parametrize(
    ("notes", "category", "medians", "minutes", "basis"),
    [
        pytest.param({INTERVAL: "25m"}, "Train", MEDIANS, 10, "checkpoint", id="it reports"),
        pytest.param({INTERVAL: "2h"}, "Train", MEDIANS, 60, "checkpoint", id="it reports and has not saved yet"),
        pytest.param({LAST: "2030-01-01T11:00:00Z"}, "Train", MEDIANS, 60, "checkpoint", id="it saved in an older run"),
        pytest.param({}, "Train", MEDIANS, 20, "median", id="the median of its category"),
        pytest.param(None, "Build", MEDIANS, 25, "median", id="too few of its category report: the median of all"),
        pytest.param({LAST: "2031-01-01T12:00:00Z"}, "Train", MEDIANS, 20, "median", id="a moment still to come"),
        pytest.param({INTERVAL: "0m"}, "Train", MEDIANS, 20, "median", id="an interval of nothing"),
        pytest.param({}, "Train", CheckpointMedians({}), 60, "start", id="too few report: all that it has done"),
        pytest.param({}, "Train", CheckpointMedians({"Train": HOUR * 9}), 60, "median", id="never more than it ran"),
    ],
)
def test_what_reports_nothing_counts_as_the_median_of_what_reports(
    notes: dict[str, str] | None, category: str, medians: CheckpointMedians, minutes: int, basis: str
) -> None:
    found = cost_at_risk(2000, notes, category, started=START, now=START + HOUR, medians=medians)
    assert (found.gpu_seconds, found.basis) == (2 * 60 * minutes, basis)


def test_two_reports_make_no_median() -> None:
    assert checkpoint_medians([("Train", HOUR), ("Build", HOUR)]).of("Train") is None
