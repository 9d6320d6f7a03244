"""Durations as Go writes them."""

import pytest

from clusters.flavours.objects import duration_micros, go_duration

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1h30m0s", 5400), ("1.5s", 1.5), ("250ms", 0.25), ("0", 0), ("0s", 0), (go_duration(7), 420)],
)
def test_is_read(text: str, seconds: float) -> None:
    assert duration_micros(text) == seconds * SECOND


@pytest.mark.parametrize("text", [None, "", "5", "-5m", "5 m", "m", "1d", 5, "1m" * 64])
def test_anything_else_is_none(text: object) -> None:
    assert duration_micros(text) is None
