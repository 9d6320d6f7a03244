"""Whose turn it is among Volcano's queues, and whose victims go first, in a tree of queues.

Source: the plugin capacity of Volcano 1.15 with enableHierarchy, and its decisions on a live cluster (docs/model.md).
Two queues are compared where their paths from the root part: projects of one department by themselves, projects of two
departments by these. Only the rank is each project's own.
"""

from collections.abc import Callable, Mapping
from functools import cmp_to_key
from typing import Any

from scheduling.model.resources import LARGEST, Resources
from scheduling.model.snapshot import Queue, Snapshot
from scheduling.state.queue_usage import QueueUsage, QueueUsageTracker, over_limit


class QueueOrder:
    """Queues as they stand at this moment: everything moves with the ledger."""

    def __init__(self, snapshot: Snapshot, usage: QueueUsageTracker) -> None:
        self._usage = usage
        self._queues = snapshot.queue_by_name
        self._age = {queue.name: (queue.created, place) for place, queue in enumerate(snapshot.queues)}
        self._apart: dict[tuple[str, str], tuple[str, str]] = {}
        self.deserved: Mapping[str, Resources] = {queue.name: _deserved(queue) for queue in snapshot.queues}
        self.turn: Callable[[str], Any] = cmp_to_key(self.compare)
        """A key by which the queue that is served first is the smallest."""

    def compare(self, left: str, right: str) -> int:
        """Negative when the left one is served first.

        Higher rank; where the paths part the smaller part of the deserved in use, and any deserved at all; older.
        """
        mine, theirs = -self._queues[left].rank, -self._queues[right].rank
        if mine != theirs:
            return _sign(mine, theirs)
        above, beside = self._part(left, right)
        return _sign(self._use(above), self._use(beside)) or _sign(self._age[left], self._age[right])

    def compare_victims(self, left: str, right: str, taker: str) -> int:
        """Negative when victims of the left one go first: the nearer to who takes, then the one that is served last."""
        return _sign(self._nearness(right, taker), self._nearness(left, taker)) or self.compare(right, left)

    def holds(self, name: str, asked: Resources) -> bool:
        """Has the queue itself room for that much under its own limit and those of the queues above it?"""
        use = QueueUsage(self._usage.uses[name].allocated)
        return not any(over_limit(queue, use, asked) for queue in self._usage.path(name))

    def is_beyond(self, name: str) -> bool:
        """Has the queue, or one above it, more in use than its limit?"""
        return any(self._usage.uses[queue.name].allocated.beyond(queue.limit) for queue in self._usage.path(name))

    def _nearness(self, name: str, other: str) -> int:
        """How many queues above it are above the other one, too."""
        above = {queue.name for queue in self._usage.path(name)[1:]}
        return sum(queue.name in above for queue in self._usage.path(other)[1:])

    def _part(self, left: str, right: str) -> tuple[str, str]:
        """The first two queues of both paths that differ, from the root down."""
        if (left, right) not in self._apart:
            downs = [[queue.name for queue in reversed(self._usage.path(name))] for name in (left, right)]
            pairs = (pair for pair in zip(*downs, strict=False) if pair[0] != pair[1])
            self._apart[left, right] = next(pairs, (left, right))
        return self._apart[left, right]

    def _use(self, name: str) -> tuple[float, bool]:
        """The larger part of its deserved in use; who deserves nothing counts as served, behind who does."""
        used, whole = self._usage.uses[name].allocated, self.deserved[name]
        amounts = zip((used.gpu, used.cpu, used.memory), (whole.gpu, whole.cpu, whole.memory), strict=True)
        return max((part / of for part, of in amounts if of), default=1.0), not whole


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _deserved(queue: Queue) -> Resources:
    """Never above the limit; CPU and memory that are not counted are nothing deserved, as Rung writes them."""
    told = queue.deserved
    gpu = LARGEST if told.gpu is None else told.gpu
    return Resources(gpu, told.cpu or 0, told.memory or 0).clamp(queue.limit)
