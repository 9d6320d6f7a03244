"""GPUs of a node that pods share: a part of one GPU is given out of one device, never out of what several have left."""

from scheduling.model.resources import MILLI

ENTIRE = MILLI  # one GPU


def is_gpu_fraction(gpu: int) -> bool:
    """Is this a part of one GPU, in thousandths?"""
    return 0 < gpu < ENTIRE


class SharedGpus:
    """The shared GPUs of one node, by device: how much of each is in use now, and in the future."""

    __slots__ = ("_later", "_now")

    def __init__(self) -> None:
        self._now: dict[str, int] = {}
        self._later: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._now or self._later)

    def change(self, device: str, *, now: int = 0, later: int = 0) -> None:
        """Add to what is in use; a device of which nothing is in use is an ordinary GPU again."""
        for used, more in ((self._now, now), (self._later, later)):
            used[device] = used.get(device, 0) + more
            if not used[device]:
                del used[device]

    def left(self, *, now: bool) -> int:
        """What the shared ones have left: room for parts of a GPU alone."""
        used = self._now if now else self._later
        return sum(ENTIRE - each for each in used.values())

    def most(self, *, now: bool) -> int:
        """The largest part that one of them has left."""
        used = self._now if now else self._later
        return max((ENTIRE - each for each in used.values()), default=0)

    def device_for(self, part: int, *, now: bool) -> str | None:
        """The fullest that has room for the part, now or in the future; None: it takes a GPU of its own."""
        fitting = [
            (-used, device)
            for device, used in self._later.items()
            if used + part <= ENTIRE and (not now or self._now.get(device, 0) + part <= ENTIRE)
        ]
        return min(fitting)[1] if fitting else None

    def new(self) -> str:
        """A name for one more."""
        return next(name for name in map(str, range(len(self._later) + len(self._now) + 1)) if self._is_free(name))

    def _is_free(self, device: str) -> bool:
        return device not in self._later and device not in self._now
