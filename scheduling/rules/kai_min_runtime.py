"""Who may not be taken yet: the min guaranteed runtime of KAI's queues.

Source: KAI 0.17, its plugin `minruntime` as shipped (no defaults, reclaim resolved at the lowest common ancestor).
Preempt asks the victim's queue, or the nearest above that says something. Reclaim asks the queue just below the one
that both have in common, or the nearest above; between two departments that is the victim's department alone, so what
a project guarantees itself never holds against other departments. Pods above a group's minimum are not protected, and
nobody is from being moved.
"""

from collections.abc import Callable, Iterable, Sequence

from scheduling.capacity import Ledger
from scheduling.decisions import Cause, Evict
from scheduling.model import PodGroup, Queue, Snapshot

Path = Callable[[str], Sequence[Queue]]


class Protection:
    """Asked at the moment of a snapshot; without one nobody is too young. `path`: a queue and those above it."""

    def __init__(self, snapshot: Snapshot, path: Path) -> None:
        said = any(queue.preempt_min_runtime or queue.reclaim_min_runtime for queue in snapshot.queues)
        self._path = path
        self._now = snapshot.now if said else None

    def least(self, victims: str, taker: str, cause: Cause) -> int:
        """How long work of the queue `victims` must have run before the queue `taker` may take it."""
        if self._now is None or cause is Cause.CONSOLIDATE:
            return 0
        path = self._path(victims)
        if cause is Cause.PREEMPT:
            return _first(queue.preempt_min_runtime for queue in path)
        shared = {queue.name for queue in self._path(taker)}
        below = sum(queue.name not in shared for queue in path)
        return _first(queue.reclaim_min_runtime for queue in path[max(below - 1, 0) :])

    def spares(self, group: PodGroup, least: int) -> bool:
        """Has it run for less than that? What has no known start is not protected, as in KAI."""
        return self._now is not None and group.started is not None and self._now < group.started + least


def protected_until(snapshot: Snapshot, evict: Evict, taker: PodGroup) -> int:
    """From when on the taker may do what it would do were nobody protected; 0: at any time."""
    least = Protection(snapshot, Ledger(snapshot.queues).path).least(evict.victim.queue, taker.queue, evict.cause)
    return (evict.victim.started or 0) + least if least else 0


def _first(said: Iterable[int | None]) -> int:
    return next((each for each in said if each is not None), 0)
