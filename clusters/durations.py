"""Durations as Kubernetes objects carry them: Go's text, such as 90m or 1h30m. Pure."""

import re
from typing import Any, Final

_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_MICROS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
LONGEST: Final = 64  # letters: longer texts are no duration


def minutes_text(minutes: int) -> str:
    """Whole minutes, as Go reads them."""
    return f"{minutes}m"


def micros_of(text: Any) -> int | None:
    """Microseconds; None when absent or not a duration of hours, minutes, seconds or milliseconds."""
    if not isinstance(text, str) or len(text) > LONGEST or _PARTS.sub("", text) or not text:
        return 0 if text == "0" else None
    return sum(round(float(amount) * _MICROS[unit]) for amount, unit in _PARTS.findall(text))
