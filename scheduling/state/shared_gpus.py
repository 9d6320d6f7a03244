"""Fractions of GPUs: which devices of a node are shared, and how much of each is in use."""

from typing import Final

from scheduling.model.resources import MILLI

ENTIRE: Final = MILLI  # one GPU


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
