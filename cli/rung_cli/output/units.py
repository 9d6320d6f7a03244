"""Figures and moments as people read them, and the colour of a phase."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

PHASES: Final[Mapping[str, str]] = {
    "Running": "green",
    "Completed": "blue",
    "Pending": "yellow",
    "Creating": "yellow",
    "Initializing": "yellow",
    "Resuming": "yellow",
    "Degraded": "magenta",
    "Failed": "red",
    "Stopping": "dim",
    "Stopped": "dim",
    "Deleting": "dim",
    "Updating": "yellow",
    "Terminating": "dim",
    "Unknown": "",
}
_STEPS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def phase_word(phase: str) -> str:
    """A phase in the words of the pages; JSON and REST say Pending."""
    return "Waiting" if phase == "Pending" else phase


def phase_named(text: str) -> str | None:
    """The phase by either word, in any case; None where there is none."""
    wanted = text.lower()
    return next((each for each in PHASES if wanted in {each.lower(), phase_word(each).lower()}), None)


PHASE_WORDS: Final = tuple(map(phase_word, PHASES))


def phase_style(row: Mapping[str, Any]) -> str:
    """Colour of a row's phase."""
    return PHASES.get(str(row.get("phase")), "")


def amount(value: float | None) -> str:
    """`8`, `0.5`; empty for what is not known."""
    return "" if value is None else f"{value:g}"


def limit(value: float | None) -> str:
    """An amount; null and negative ones are no limit."""
    return "none" if value is None or value < 0 else f"{value:g}"


def gpus(value: float | None) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{value or 0:g} GPU{'' if value == 1 else 's'}"


def gpu_time(hours: float) -> str:
    """`1.6 GPU-hours`; below a tenth of one in minutes, `1.6 GPU-minutes`."""
    return f"{hours:.1f} GPU-hours" if hours >= 0.1 else f"{hours * 60:.1f} GPU-minutes"


def moment(text: str | None) -> datetime | None:
    """An RFC 3339 time."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def age(text: str | None) -> str:
    """`12s`, `5m`, `3h`, `2d` since then."""
    then = moment(text)
    return duration((datetime.now(UTC) - then).total_seconds()) if then else ""


def duration(seconds: float) -> str:
    """The largest unit that fits."""
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def span(seconds: float) -> str:
    """How long something took, as on the pages: `45 s`, `38 min`, `6 h 28 m`, `1 d 3 h`."""
    left = max(0, int(seconds))
    if left < 3600:
        return f"{left // 60} min" if left >= 60 else f"{left} s"
    size, unit, part, rest = (86_400, "d", 3600, "h") if left >= 86_400 else (3600, "h", 60, "m")
    more = left % size // part
    return f"{left // size} {unit}" + (f" {more} {rest}" if more else "")


def clock(text: str | None) -> str:
    """Local date and time to the second."""
    then = moment(text)
    return then.astimezone().strftime("%Y-%m-%d %H:%M:%S") if then else ""
