"""Where the rungs of the dictionary stand on its value axis. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scheduling.priority import THRESHOLD

STEP: Final = 30
TOP: Final = 20


@dataclass(frozen=True, slots=True)
class Rung:
    """One entry with a note beside it, and its place from the top in SVG units."""

    name: str
    value: int
    note: str
    y: int


@dataclass(frozen=True, slots=True)
class Axis:
    """The drawing: rungs from the highest value down, and the line between non-preemptible and preemptible."""

    rungs: tuple[Rung, ...]
    line: int | None
    height: int


def draw_axis(entries: Sequence[tuple[str, int, str]]) -> Axis:
    """Rungs are evenly spaced, as values may be far apart; the line at 100 lies where it divides them."""
    ordered = sorted(entries, key=lambda entry: -entry[1])
    above = sum(1 for _name, value, _note in ordered if value >= THRESHOLD)
    gap = STEP if ordered else 0
    rungs = tuple(Rung(*entry, TOP + at * STEP + (gap if at >= above else 0)) for at, entry in enumerate(ordered))
    return Axis(rungs, TOP + above * STEP if ordered else None, TOP + len(ordered) * STEP + gap)
