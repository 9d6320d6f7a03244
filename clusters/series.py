"""What was sampled, read back as evenly spaced points."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from clusters.models import Average, Sample
from clusters.samples import ALL, GRAINS, Figures, Name, Owner

MOST_ROWS: Final = 20_000
"""Samples that one question reads at most, as far as a coarser grain can serve it."""


@dataclass(frozen=True, slots=True)
class Window:
    """From start to end, cut into so many equal parts."""

    start: datetime
    end: datetime
    parts: int

    def part_of(self, at: datetime) -> int:
        """The part that a moment of the window lies in."""
        return min(int((at - self.start) / (self.end - self.start) * self.parts), self.parts - 1)


@dataclass(frozen=True, slots=True)
class Point:
    """Means over one part of the window, at its last sample."""

    at: datetime
    figures: Mapping[str, float]


def series_of(owners: Collection[Owner], window: Window, *, pool: str = ALL) -> Mapping[Owner, list[Point]]:
    """Points of each owner, oldest first; parts without a sample have none. One query."""
    if not window.parts or not owners:
        return {}
    kind = next(iter(owners)).kind
    rows = Sample.objects.filter(
        kind=kind,
        owner__in=[owner.id for owner in owners],
        grain__gte=grain_for(len(owners), window.end - window.start),
        at__gte=window.start,
        at__lte=window.end,
    )
    parts: defaultdict[Owner, defaultdict[int, list[tuple[datetime, Mapping[str, float]]]]]
    parts = defaultdict(lambda: defaultdict(list))
    for owner, at, figures in rows.order_by("at").values_list("owner", "at", "figures"):
        parts[Owner(kind, owner)][window.part_of(at)].append((at, _in_pool(figures, pool)))
    return {owner: [_point(found) for _number, found in sorted(each.items())] for owner, each in parts.items()}


def grain_for(owners: int, span: timedelta, *, most: int = MOST_ROWS) -> int:
    """The finest grain of which no more than `most` samples of so many owners are to be read."""
    for number, grain in enumerate(GRAINS):
        if owners * min(span, grain.kept) / grain.every <= most:
            return number
    return len(GRAINS) - 1


def _in_pool(figures: Figures, pool: str) -> Mapping[str, float]:
    """What a sample does not name of a pool was nothing."""
    return {**dict.fromkeys(figures.get(ALL, {}), 0), **figures.get(pool, {})}


def _point(found: Iterable[tuple[datetime, Mapping[str, float]]]) -> Point:
    rows = list(found)
    named: defaultdict[str, list[float]] = defaultdict(list)
    for _at, figures in rows:
        for name, number in figures.items():
            named[name].append(number)
    return Point(rows[-1][0], {name: sum(numbers) / len(numbers) for name, numbers in named.items()})


def averages_of(kind: str, owners: Collection[object], *, name: Name = Name.GPU_HELD) -> Mapping[str, Average]:
    """Averages by the owner's key as text. One query."""
    rows = Average.objects.filter(kind=kind, owner__in=[str(owner) for owner in owners], name=name)
    return {row.owner: row for row in rows}
