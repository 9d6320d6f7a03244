"""Minimum runtimes: which work may not be evicted yet. KAI reads them from queues, Volcano from pods.

Source for KAI: 0.17, its plugin `minruntime` as shipped (no defaults, reclaim resolved at the lowest common ancestor).
For preempt, the victim's queue counts, or the nearest parent with a value. For reclaim, the queue just below the common
ancestor counts, or the nearest parent with a value. Between departments that is the victim's department, so the value
of a project does not protect it against other departments. Pods above a group's minimum are not protected, and no pod
is protected from being moved.

Source for Volcano: 1.15, its plugin cdp. Each pod carries its own minimum runtime, which holds against every
preemptor; the configuration decides for which actions (`EvictionExemptions.inside_min_runtime`).
"""

from collections.abc import Callable, Iterable, Sequence

from scheduling.model.decisions import Evict
from scheduling.model.preemptibility import Cause
from scheduling.model.snapshot import PodGroup, Queue, Snapshot
from scheduling.state.queue_usage import QueueUsageTracker

Path = Callable[[str], Sequence[Queue]]


class MinRuntimeProtection:
    """Minimum runtimes at the time of a snapshot; none without a time. `path`: a queue and its parents.

    asks_pods: causes for which the values of pods count.
    """

    def __init__(self, snapshot: Snapshot, path: Path) -> None:
        self._path = path
        self._now = snapshot.now if any_min_runtime(snapshot) else None
        self.asks_pods = snapshot.exempt.inside_min_runtime if self._now is not None else frozenset[Cause]()

    def min_runtime_against(self, victims: str, taker: str, cause: Cause) -> int:
        """How long work of the queue `victims` must have run before the queue `taker` may evict it."""
        if self._now is None or cause is Cause.CONSOLIDATE:
            return 0
        path = self._path(victims)
        if cause is Cause.PREEMPT:
            return _first(queue.preempt_min_runtime for queue in path)
        shared = {queue.name for queue in self._path(taker)}
        below = sum(queue.name not in shared for queue in path)
        return _first(queue.reclaim_min_runtime for queue in path[max(below - 1, 0) :])

    def min_runtime_of_pods(self, group: PodGroup, cause: Cause) -> int:
        """Minimum runtime that its pods carry."""
        return group.min_runtime if cause in self.asks_pods else 0

    def may_protect(self, least: int) -> bool:
        """Whether any work could be protected by that minimum."""
        return self._now is not None and least > 0

    def protects(self, started: int | None, least: int) -> bool:
        """Whether it has run for less than that. Neither KAI nor Volcano protects work without a known start."""
        return self._now is not None and started is not None and self._now < started + least


def any_min_runtime(snapshot: Snapshot) -> bool:
    """Whether any queue or pod group has a minimum runtime."""
    queues = (queue.preempt_min_runtime or queue.reclaim_min_runtime for queue in snapshot.queues)
    return any(queues) or snapshot.has_min_runtimes


def protected_until(snapshot: Snapshot, evict: Evict, taker: PodGroup) -> int:
    """Time from which no minimum runtime stops the preemptor; 0: now."""
    found, victim = MinRuntimeProtection(snapshot, QueueUsageTracker(snapshot.queues).path), evict.victim
    if least := found.min_runtime_of_pods(victim, evict.cause):
        return max((pod.started or victim.started or 0) for pod in victim.pods if pod.name in evict.pods) + least
    least = found.min_runtime_against(victim.queue, taker.queue, evict.cause)
    return (victim.started or 0) + least if least else 0


def _first(values: Iterable[int | None]) -> int:
    return next((each for each in values if each is not None), 0)
