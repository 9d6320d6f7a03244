"""When a workload last saved its work, from what its people said in its annotations. Pure; the one place that knows.

`rung.dev/last-checkpoint-at` is a moment; `rung.dev/checkpoint-interval` a rhythm that begins with the pod.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

LAST: Final = "rung.dev/last-checkpoint-at"
INTERVAL: Final = "rung.dev/checkpoint-interval"
_PART = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def last_checkpoint(spec: Mapping[str, Any], *, started: datetime, now: datetime) -> datetime | None:
    """The latest moment between start and now at which it saved; None when it did not. `spec`: as it is stored."""
    annotations = spec.get("annotations") or {}
    moments = (_stated(annotations.get(LAST, "")), _by_interval(annotations.get(INTERVAL, ""), started, now))
    return max((moment for moment in moments if moment is not None and started < moment <= now), default=None)


def _stated(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _by_interval(text: str, started: datetime, now: datetime) -> datetime | None:
    every = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in _PART.findall(text)), timedelta())
    return started + every * ((now - started) // every) if every and now > started else None


def lost_gpu_seconds(gpu_milli: int, *, started: datetime, checkpoint: datetime | None, at: datetime) -> int:
    """GPU-seconds of work since the last checkpoint, or since the start."""
    seconds = (at - (checkpoint or started)).total_seconds()
    return max(0, round(gpu_milli * seconds / 1000))
