"""Who may not be taken yet: the min guaranteed runtime, as KAI reads it of queues and Volcano of pods.

Source of the one: KAI 0.17, its plugin `minruntime` as shipped (no defaults, reclaim resolved at the lowest common
ancestor). Preempt asks the victim's queue, or the nearest above that says something. Reclaim asks the queue just below
the one that both have in common, or the nearest above; between two departments that is the victim's department alone,
so what a project guarantees itself never holds against other departments. Pods above a group's minimum are not
protected, and nobody is from being moved.

Source of the other: Volcano 1.15, its plugin cdp. Every pod says for itself how long it is left alone, whoever wants
its room; a configuration decides from which action (`INSIDE_MIN_RUNTIME`).
"""

from collections.abc import Callable, Iterable, Sequence

from scheduling.model.decisions import INSIDE_MIN_RUNTIME, Cause, Evict
from scheduling.model.snapshot import PodGroup, Queue, Snapshot
from scheduling.state.queue_usage import QueueUsageTracker

Path = Callable[[str], Sequence[Queue]]


class MinRuntimeProtection:
    """Asked at the moment of a snapshot; without one nobody is too young. `path`: a queue and those above it.

    asks_pods: the causes for which it counts what pods carry.
    """

    def __init__(self, snapshot: Snapshot, path: Path) -> None:
        self._path = path
        self._now = snapshot.now if is_guaranteed(snapshot) else None
        asked = {cause for cause, young in INSIDE_MIN_RUNTIME.items() if young in snapshot.leaves_out}
        self.asks_pods = frozenset(asked if self._now is not None else ())

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

    def carried(self, group: PodGroup, cause: Cause) -> int:
        """How long its pods must have run by what they carry themselves."""
        return group.min_runtime if cause in self.asks_pods else 0

    def spares_work(self, least: int) -> bool:
        """Could anything be too young for that?"""
        return self._now is not None and least > 0

    def spares(self, started: int | None, least: int) -> bool:
        """Has it run for less than that? What has no known start is not protected, neither in KAI nor in Volcano."""
        return self._now is not None and started is not None and self._now < started + least


def is_guaranteed(snapshot: Snapshot) -> bool:
    """Does any queue or any work say how long work is left alone?"""
    queues = (queue.preempt_min_runtime or queue.reclaim_min_runtime for queue in snapshot.queues)
    return any(queues) or snapshot.has_min_runtimes


def protected_until(snapshot: Snapshot, evict: Evict, taker: PodGroup) -> int:
    """From when on the taker may do what it would do were nobody protected; 0: at any time."""
    found, victim = MinRuntimeProtection(snapshot, QueueUsageTracker(snapshot.queues).path), evict.victim
    if least := found.carried(victim, evict.cause):
        return max((pod.started or victim.started or 0) for pod in victim.pods if pod.name in evict.pods) + least
    least = found.least(victim.queue, taker.queue, evict.cause)
    return (victim.started or 0) + least if least else 0


def _first(said: Iterable[int | None]) -> int:
    return next((each for each in said if each is not None), 0)
