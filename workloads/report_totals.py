"""What samples say of a stretch of time, added up. Pure: times are arguments.

A sample speaks from its moment until the next one, and no further than the period it was kept for: a minute, ten, an
hour or a day, the older the longer (`clusters.samples.GRAINS`). Time of which no sample speaks is not covered: nothing
is added for it, and nothing is made up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from clusters.samples import ALL, GRAINS, Figures, Name
from portal.core.periods import period_start

OVER_QUOTA: Final = "gpu_over_quota"
"""GPU thousandths held above what is deserved, node pool by node pool: each has a queue of its own."""
Sampled = tuple[datetime, Figures]


@dataclass(frozen=True, slots=True)
class Stretch:
    """From start to end, as it is told at `now`, out of samples of this grain and coarser ones."""

    start: datetime
    end: datetime
    now: datetime
    grain: int = 0

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end - self.start).total_seconds()

    def spoken_for(self, at: datetime, following: datetime | None) -> float:
        """Seconds of the stretch that a sample of that moment speaks for."""
        every = int(self.every(at).total_seconds())
        until = min(period_start(at, every) + timedelta(seconds=every), self.end, self.now)
        until = until if following is None else min(until, following)
        return max((until - max(at, self.start)).total_seconds(), 0.0)

    def every(self, at: datetime) -> timedelta:
        """How far apart the samples of that moment lie by now."""
        age = self.now - at
        kept = next((number for number, grain in enumerate(GRAINS) if age <= grain.kept), len(GRAINS) - 1)
        return GRAINS[max(kept, self.grain)].every


@dataclass(slots=True)
class Total:
    """Figures times seconds of one owner, by node pool or `ALL`; and the most GPU thousandths held there at once."""

    covered: float = 0.0
    samples: int = 0
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)

    def add(self, figures: Figures, seconds: float) -> None:
        """What was so for so long."""
        self.covered += seconds
        self.samples += 1
        for pool, named in figures.items():
            sums = self.sums.setdefault(pool, {})
            for name, number in named.items():
                sums[name] = sums.get(name, 0.0) + number * seconds
            self.peaks[pool] = max(self.peaks.get(pool, 0.0), named.get(Name.GPU_HELD, 0.0))

    def of(self, pool: str) -> Mapping[str, float]:
        """Figures times seconds there. A pool that no sample names had nothing; without samples nothing is known."""
        return {**dict.fromkeys(self.sums.get(ALL, {}), 0.0), **self.sums.get(pool, {})}


def total_of(samples: Sequence[Sampled], stretch: Stretch, *, has_queues: bool) -> Total:
    """One owner's samples, oldest first. `has_queues`: a project or department, which can be over its quota."""
    total = Total()
    for (at, figures), following in _pairs(samples):
        if seconds := stretch.spoken_for(at, following):
            total.add(with_over_quota(figures) if has_queues else figures, seconds)
    return total


def with_over_quota(figures: Figures) -> Figures:
    """The figures with what is held above the deserved, of each pool and of all together."""
    over = {pool: max(_of(named, Name.GPU_HELD) - _of(named, Name.GPU_DESERVED), 0) for pool, named in figures.items()}
    over[ALL] = sum(number for pool, number in over.items() if pool != ALL)
    return {pool: {**named, OVER_QUOTA: over[pool]} for pool, named in figures.items()}


def _of(named: Mapping[str, float], name: str) -> float:
    return named.get(name, 0)


def _pairs(samples: Sequence[Sampled]) -> Iterator[tuple[Sampled, datetime | None]]:
    for number, sample in enumerate(samples, start=1):
        yield sample, samples[number][0] if number < len(samples) else None
