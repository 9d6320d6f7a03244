"""Exact amounts of GPU, CPU and memory.

Integers only: GPU in thousandths of a device, CPU in millicores, memory in bytes. Nothing is rounded: an amount that
these units cannot express raises ValueError.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Self, TypeAlias, TypeVar

MILLI: Final = 1000
ENTIRE: Final = MILLI  # one GPU
LARGEST: Final = 2**63 - 1
DIMENSIONS: Final = ("gpu", "cpu", "memory")
RANGES: Final = {
    "gpu": f"0 to {LARGEST // MILLI} GPUs",
    "cpu": f"0 to {LARGEST // MILLI} cores",
    "memory": f"0 to {LARGEST >> 50}Pi",
}
"""Accepted amounts per dimension, in words."""

_QUANTITY: Final = re.compile(r"(?a)([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))([a-zA-Z]{0,2}|[eE][+-]?\d{1,2})")
_SUFFIXES: Final = {
    "": Fraction(1),
    **{letters: Fraction(10) ** power for letters, power in (("n", -9), ("u", -6), ("m", -3))},
    **{letters: Fraction(1000) ** power for power, letters in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}

Amount: TypeAlias = int | str | Decimal | Fraction


def parse_quantity(text: str) -> Fraction:
    """Read a Kubernetes quantity ("500m", "2", "1.5Gi", "1e3") exactly. Raises ValueError."""
    return _parsed(text.strip())


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Fraction:
    """Cached, because the same few amounts are parsed again and again. The length of the input is bounded."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a quantity")
    number, suffix = match.groups()
    if suffix in _SUFFIXES:
        return Fraction(number) * _SUFFIXES[suffix]
    if not suffix[1:].lstrip("+-").isdigit():
        raise ValueError(f"{text[:40]!r} has an unknown suffix {suffix!r}")
    return Fraction(number) * Fraction(10) ** int(suffix[1:])


def _exactly(amount: Amount, *, unit: int, what: str) -> int:
    """`amount` times `unit` as a whole number from 0 to 2^63 - 1."""
    if isinstance(amount, float) or (isinstance(amount, Decimal) and not amount.is_finite()):
        raise ValueError(f"{what} {amount} is not an exact number")
    value = (parse_quantity(amount) if isinstance(amount, str) else Fraction(amount)) * unit
    if value.denominator != 1:
        raise ValueError(f"{what} {amount} is finer than 1/{unit}")
    if not 0 <= value <= LARGEST:
        raise ValueError(f"{what} {amount} is out of range: {RANGES[what.lower()]}")
    return value.numerator


def decimal_text(amount: int, unit: int = MILLI) -> str:
    """Print an amount in its unit without trailing zeros: 1500 -> "1.5"."""
    return format((Decimal(amount) / unit).normalize(), "f")


@dataclass(slots=True, unsafe_hash=True)
class Resources:
    """An amount per dimension; may be negative as the result of a subtraction.

    Final instead of frozen: a frozen dataclass takes twice as long to create, and a search creates millions.
    """

    gpu: Final[int] = 0
    cpu: Final[int] = 0
    memory: Final[int] = 0

    @classmethod
    def of(cls, gpu: Amount = 0, cpu: Amount = 0, memory: Amount = 0) -> Self:
        """Build from GPUs, CPU cores ("500m" too) and memory bytes ("16Gi" too). Raises ValueError when inexact."""
        return cls(
            gpu=_exactly(gpu, unit=MILLI, what="GPU"),
            cpu=_exactly(cpu, unit=MILLI, what="CPU"),
            memory=_exactly(memory, unit=1, what="memory"),
        )

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(self.gpu + other.gpu, self.cpu + other.cpu, self.memory + other.memory)

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(self.gpu - other.gpu, self.cpu - other.cpu, self.memory - other.memory)

    def __mul__(self, times: int) -> "Resources":
        return Resources(self.gpu * times, self.cpu * times, self.memory * times)

    def __bool__(self) -> bool:
        return bool(self.gpu or self.cpu or self.memory)

    def fits_in(self, free: "Resources") -> bool:
        """Whether no dimension exceeds that of `free`."""
        return self.gpu <= free.gpu and self.cpu <= free.cpu and self.memory <= free.memory

    def served_by(self, free: "Resources") -> bool:
        """Whether every requested dimension is free; others may be negative."""
        return (
            (not self.gpu or self.gpu <= free.gpu)
            and (not self.cpu or self.cpu <= free.cpu)
            and (not self.memory or self.memory <= free.memory)
        )

    def within(self, limit: "Limit") -> bool:
        """Whether no dimension exceeds its limit."""
        return (
            (limit.gpu is None or self.gpu <= limit.gpu)
            and (limit.cpu is None or self.cpu <= limit.cpu)
            and (limit.memory is None or self.memory <= limit.memory)
        )

    def beyond(self, limit: "Limit") -> "Resources | None":
        """The part over the limit; None if there is none."""
        over = Resources(
            _over(self.gpu, limit.gpu),
            _over(self.cpu, limit.cpu),
            _over(self.memory, limit.memory),
        )
        return over if over else None

    def clamp(self, limit: "Limit") -> "Resources":
        """The amounts, at most the limit."""
        return self - (self.beyond(limit) or ZERO)

    def floor(self) -> "Resources":
        """The amounts, negative ones as zero."""
        return Resources(max(self.gpu, 0), max(self.cpu, 0), max(self.memory, 0))

    def has_any(self, names: Collection[str]) -> bool:
        """Whether there is some of one of these dimensions."""
        gpu, cpu, memory = self.gpu, self.cpu, self.memory
        return bool((gpu and "gpu" in names) or (cpu and "cpu" in names) or (memory and "memory" in names))

    def only(self, names: Collection[str]) -> "Resources":
        """The amounts of these dimensions, the others as zero."""
        return Resources(**{name: getattr(self, name) for name in DIMENSIONS if name in names})

    def without(self, names: Collection[str]) -> "Resources":
        """The amounts of all dimensions but these."""
        return self.only([name for name in DIMENSIONS if name not in names])

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Dimensions with an amount other than zero."""
        return tuple(name for name in DIMENSIONS if getattr(self, name))

    def __str__(self) -> str:
        parts = [f"{decimal_text(self.gpu)} GPU"] if self.gpu or not (self.cpu or self.memory) else []
        parts += [f"{decimal_text(self.cpu)} CPU"] if self.cpu else []
        parts += [_memory_text(self.memory)] if self.memory else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound per dimension; None is unlimited."""

    gpu: int | None = None
    cpu: int | None = None
    memory: int | None = None

    @classmethod
    def of(cls, gpu: Amount | None = None, cpu: Amount | None = None, memory: Amount | None = None) -> Self:
        """Like `Resources.of`; None and -1 mean unlimited. Raises ValueError when inexact."""
        return cls(
            gpu=_bound(gpu, unit=MILLI, what="GPU"),
            cpu=_bound(cpu, unit=MILLI, what="CPU"),
            memory=_bound(memory, unit=1, what="memory"),
        )

    def __str__(self) -> str:
        parts = [f"{decimal_text(self.gpu)} GPU"] if self.gpu is not None else []
        parts += [f"{decimal_text(self.cpu)} CPU"] if self.cpu is not None else []
        parts += [_memory_text(self.memory)] if self.memory is not None else []
        return ", ".join(parts) or "unlimited"


def _bound(amount: Amount | None, *, unit: int, what: str) -> int | None:
    return None if amount is None or amount in (-1, "-1") else _exactly(amount, unit=unit, what=what)


def _over(amount: int, bound: int | None) -> int:
    return 0 if bound is None or amount <= bound else amount - bound


def _memory_text(amount: int) -> str:
    """Print bytes in the largest binary unit that needs no fraction."""
    for power, suffix in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if amount and amount % 2**power == 0:
            return f"{amount >> power}{suffix} memory"
    return f"{amount} bytes memory"


def sum_of(amounts: Iterable[Resources]) -> Resources:
    """Their sum. Faster than `sum` where there are many."""
    gpu = cpu = memory = 0
    for amount in amounts:
        gpu, cpu, memory = gpu + amount.gpu, cpu + amount.cpu, memory + amount.memory
    return Resources(gpu, cpu, memory)


PerDimension = TypeVar("PerDimension", Resources, Limit)


def per_dimension(rule: Callable[[Any, Any], Any], one: PerDimension, other: PerDimension) -> PerDimension:
    """What a rule of two amounts (`min`, `max`) makes of each dimension."""
    return type(one)(rule(one.gpu, other.gpu), rule(one.cpu, other.cpu), rule(one.memory, other.memory))


ZERO: Final = Resources()
UNLIMITED: Final = Limit()


def is_gpu_fraction(gpu: int) -> bool:
    """Whether this amount (in thousandths) is a fraction of one GPU."""
    return 0 < gpu < ENTIRE


class SharedGpus:
    """The shared GPUs of one node: the amount of each device in use now and in the future.

    A fraction is allocated on one device, never across several.
    """

    __slots__ = ("_later", "_now")

    def __init__(self) -> None:
        self._now: dict[str, int] = {}
        self._later: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._now or self._later)

    def copy(self) -> "SharedGpus":
        found = SharedGpus()
        found._now, found._later = self._now.copy(), self._later.copy()
        return found

    def change(self, device: str, *, now: int = 0, later: int = 0) -> None:
        """Add to the amounts in use. An unused device becomes an ordinary GPU again."""
        for used, more in ((self._now, now), (self._later, later)):
            used[device] = used.get(device, 0) + more
            if not used[device]:
                del used[device]

    def left(self, *, now: bool) -> int:
        """Unused rest of the shared GPUs, which only fractions can use."""
        used = self._now if now else self._later
        return sum(ENTIRE - each for each in used.values())

    def most(self, *, now: bool) -> int:
        """Largest unused rest of one shared GPU."""
        used = self._now if now else self._later
        return max((ENTIRE - each for each in used.values()), default=0)

    def device_for(self, part: int, *, now: bool) -> str | None:
        """The fullest device on which the fraction fits; None: it needs an unshared GPU."""
        fitting = [
            (-used, device)
            for device, used in self._later.items()
            if used + part <= ENTIRE and (not now or self._now.get(device, 0) + part <= ENTIRE)
        ]
        return min(fitting)[1] if fitting else None

    def new(self) -> str:
        """A name for another device."""
        return next(name for name in map(str, range(len(self._later) + len(self._now) + 1)) if self._is_free(name))

    def _is_free(self, device: str) -> bool:
        return device not in self._later and device not in self._now
