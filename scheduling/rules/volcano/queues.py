"""Volcano's order of queues in their tree: which is served first, and whose victims go first.

Source: the plugin capacity of Volcano 1.15 with enableHierarchy, and its decisions on a live cluster (docs/model.md).
Two queues are compared where their paths from the root part: projects of one department directly, projects of different
departments by their departments. Only the rank is that of the project.
"""

from collections.abc import Callable, Mapping
from functools import cmp_to_key
from typing import Any

from scheduling.model.resources import LARGEST, Resources
from scheduling.model.snapshot import Queue, Snapshot
from scheduling.state.queue_usage import QueueUsage, QueueUsageTracker, over_limit


class QueueOrder:
    """The order of queues by their present use."""

    def __init__(self, snapshot: Snapshot, usage: QueueUsageTracker) -> None:
        self._usage = usage
        self._queues = snapshot.queue_by_name
        self._age = {queue.name: (queue.created, place) for place, queue in enumerate(snapshot.queues)}
        self._apart: dict[tuple[str, str], tuple[str, str]] = {}
        self.deserved: Mapping[str, Resources] = {queue.name: _deserved(queue) for queue in snapshot.queues}
        self.turn: Callable[[str], Any] = cmp_to_key(self.compare)
        """A key by which the queue that is served first is the smallest."""

    def compare(self, left: str, right: str) -> int:
        """Negative if the left one is served first.

        Higher rank; where the paths part, the smaller used part of deserved quota, any deserved quota at all; older.
        """
        mine, theirs = -self._queues[left].rank, -self._queues[right].rank
        if mine != theirs:
            return _sign(mine, theirs)
        above, beside = self._part(left, right)
        return _sign(self._use(above), self._use(beside)) or _sign(self._age[left], self._age[right])

    def compare_victims(self, left: str, right: str, taker: str) -> int:
        """Negative if victims of the left one go first: the queue nearer to the preemptor, then the one served last."""
        return _sign(self._nearness(right, taker), self._nearness(left, taker)) or self.compare(right, left)

    def holds(self, name: str, asked: Resources) -> bool:
        """Whether that much fits under the limits of the queue and its parents."""
        use = QueueUsage(self._usage.uses[name].allocated)
        return not any(over_limit(queue, use, asked) for queue in self._usage.path(name))

    def is_beyond(self, name: str) -> bool:
        """Whether the queue or a parent uses more than its limit."""
        return any(self._usage.uses[queue.name].allocated.beyond(queue.limit) for queue in self._usage.path(name))

    def _nearness(self, name: str, other: str) -> int:
        """Number of common ancestors."""
        above = {queue.name for queue in self._usage.path(name)[1:]}
        return sum(queue.name in above for queue in self._usage.path(other)[1:])

    def _part(self, left: str, right: str) -> tuple[str, str]:
        """The first queues, from the root, at which both paths differ."""
        if (left, right) not in self._apart:
            downs = [[queue.name for queue in reversed(self._usage.path(name))] for name in (left, right)]
            pairs = (pair for pair in zip(*downs, strict=False) if pair[0] != pair[1])
            self._apart[left, right] = next(pairs, (left, right))
        return self._apart[left, right]

    def _use(self, name: str) -> tuple[float, bool]:
        """Largest used part of its deserved quota. Queues without deserved quota count as fully used and come last."""
        used, whole = self._usage.uses[name].allocated, self.deserved[name]
        amounts = zip((used.gpu, used.cpu, used.memory), (whole.gpu, whole.cpu, whole.memory), strict=True)
        return max((part / of for part, of in amounts if of), default=1.0), not whole


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _deserved(queue: Queue) -> Resources:
    """The deserved quota, at most the limit. Unset CPU and memory count as zero, as Rung writes them."""
    deserved = queue.deserved
    gpu = LARGEST if deserved.gpu is None else deserved.gpu
    return Resources(gpu, deserved.cpu or 0, deserved.memory or 0).clamp(queue.limit)
