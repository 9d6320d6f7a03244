"""What a project held against what it deserved, as a line over time. The drawing is pure: points in, places out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils.translation import gettext_lazy

from clusters.samples import Name, Owner
from clusters.series import Point, Window, series_of
from tenants.models import Project
from tenants.sampling import PROJECT

SPANS: Final = {"24h": (timedelta(days=1), 48), "7d": (timedelta(days=7), 56)}
"""How far back, and in how many parts."""
TITLES: Final = {"24h": gettext_lazy("24 hours"), "7d": gettext_lazy("7 days")}
WIDTH: Final = 640
HEIGHT: Final = 100
GAP: Final = 1.5
"""Parts without a sample after which the line is broken."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One part: GPU thousandths, and its place in SVG units."""

    at: datetime
    held: int
    deserved: int
    x: float
    held_y: float
    deserved_y: float


@dataclass(frozen=True, slots=True)
class Trend:
    """Marks in runs without a gap. `top`: the GPU thousandths at the upper edge."""

    runs: tuple[tuple[Mark, ...], ...]
    top: int

    @property
    def marks(self) -> list[Mark]:
        """All of them, oldest first."""
        return [mark for run in self.runs for mark in run]

    @property
    def held_lines(self) -> list[str]:
        """Corners of the line of what was held, a text per run."""
        return [" ".join(f"{mark.x:.1f},{mark.held_y:.1f}" for mark in run) for run in self.runs]

    @property
    def deserved_lines(self) -> list[str]:
        """Corners of the line of what was deserved."""
        return [" ".join(f"{mark.x:.1f},{mark.deserved_y:.1f}" for mark in run) for run in self.runs]

    @property
    def mean(self) -> int:
        """GPU thousandths held on average, to a tenth of a GPU."""
        marks = self.marks
        return int(round(sum(mark.held for mark in marks) / len(marks), -2)) if marks else 0

    @property
    def most(self) -> int:
        """The most that a part held on average, to a tenth of a GPU."""
        return round(max((mark.held for mark in self.marks), default=0), -2)


def trend_of(project: Project, *, span: str, now: datetime) -> Trend:
    """The project's trend over all node pools. One query."""
    back, parts = SPANS[span]
    window, owner = Window(now - back, now, parts), Owner(PROJECT, str(project.pk))
    return draw(series_of([owner], window).get(owner, []), window)


def draw(points: Sequence[Point], window: Window) -> Trend:
    """Points as marks; where samples are missing the line is broken."""
    top = max((max(_of(point, Name.GPU_HELD), _of(point, Name.GPU_DESERVED)) for point in points), default=0)
    runs: list[list[Mark]] = []
    longest = (window.end - window.start) / max(window.parts, 1) * GAP
    for point in points:
        mark = _mark(point, window, top)
        if not runs or mark.at - runs[-1][-1].at > longest:
            runs.append([])
        runs[-1].append(mark)
    return Trend(tuple(tuple(run) for run in runs), top)


def _mark(point: Point, window: Window, top: int) -> Mark:
    held, deserved = _of(point, Name.GPU_HELD), _of(point, Name.GPU_DESERVED)
    x = (point.at - window.start) / (window.end - window.start) * WIDTH
    return Mark(point.at, held, deserved, x, _height(held, top), _height(deserved, top))


def _height(milli: int, top: int) -> float:
    return HEIGHT - (HEIGHT * milli / top if top else 0)


def _of(point: Point, name: Name) -> int:
    """To a hundredth of a GPU."""
    return int(round(point.figures.get(name, 0), -1))
