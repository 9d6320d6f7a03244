"""When work was last saved, and what an eviction costs."""

from datetime import UTC, datetime, timedelta

import pytest

from workloads.state.rules import INTERVAL, LAST, last_checkpoint, lost_gpu_seconds

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
