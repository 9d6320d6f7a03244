"""In which order KAI looks at queues and pod groups: whose turn it is, and whose victims go first.

Source: KAI's queue and job order. Between queues: not over fair share first, then inside deserved quota with the job at
hand, higher rank, no use without a share, smaller dominant share with and without that job, smaller share, older. Inside a
queue: higher priority, gangs below their minimum first, older. Victims come in exactly the reverse order.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from scheduling.board import Board
from scheduling.capacity import UNUSED
from scheduling.fairshare import fair_shares
from scheduling.model import PodGroup, Queue, Snapshot
from scheduling.resources import MILLI, ZERO, Resources

NO_SHARE_PENALTY: Final = 1000
ENDLESS: Final = float("inf")

QueueKey = tuple[bool, bool, int, bool, float, float, tuple[float, ...], int, str]
JobKey = tuple[int, int, int, str]


class Standing:
    """Queues, their fair shares of this cycle and their use of this moment."""

    def __init__(self, snapshot: Snapshot, board: Board) -> None:
        self.board = board
        self.queues: Mapping[str, Queue] = snapshot.queue_by_name
        self.total = board.rooms.capacity()
        requested = {name: use.requested for name, use in board.ledger.uses.items()}
        self.fair = fair_shares(snapshot.queues, requested, self.total)
        self._allocatable = {queue.name: self._may_use(queue) for queue in snapshot.queues}

    def allocated(self, name: str) -> Resources:
        return self.board.ledger.uses.get(name, UNUSED).allocated

    def _may_use(self, queue: Queue) -> tuple[int | None, int | None, int | None]:
        """The larger of deserved quota and fair share, inside the limit; None is unlimited."""
        fair = self.fair.get(queue.name, ZERO)
        return (
            _allocatable(queue.deserved.gpu, fair.gpu, queue.limit.gpu),
            _allocatable(queue.deserved.cpu, fair.cpu, queue.limit.cpu),
            _allocatable(queue.deserved.memory, fair.memory, queue.limit.memory),
        )

    def over_allocatable(self, queue: Queue, amount: Resources) -> bool:
        """Is `amount` more than deserved quota and fair share allow?"""
        used = (amount.gpu, amount.cpu, amount.memory)
        bounds = zip(used, self._allocatable[queue.name], strict=True)
        return any(bound is not None and part > bound for part, bound in bounds)

    def key(self, queue: Queue, *, job: Resources = ZERO, victims: Resources = ZERO) -> QueueKey:
        """Smaller is served first. `job`: what would start next; `victims`: what would go next, and has gone."""
        used = self.allocated(queue.name)
        fair = self.fair.get(queue.name, ZERO)
        with_job = used + job
        return (
            fair.gpu < used.gpu and fair.cpu < used.cpu and fair.memory < used.memory,
            not with_job.within(queue.deserved),
            -queue.rank,
            self._without_share(queue, with_job),
            self._dominant(queue, with_job - victims),
            self._dominant(queue, used),
            tuple(ENDLESS if bound is None else float(bound) for bound in self._allocatable[queue.name]),
            queue.created,
            queue.name,
        )

    def _without_share(self, queue: Queue, used: Resources) -> bool:
        parts = zip((used.gpu, used.cpu, used.memory), self._allocatable[queue.name], strict=True)
        return any(bound == 0 and part > 0 for part, bound in parts)

    def _dominant(self, queue: Queue, used: Resources) -> float:
        """The largest part of its share that the queue uses in any dimension."""
        gpu, cpu, memory = self._allocatable[queue.name]
        return max(
            0.0,
            _part(used.gpu, self.total.gpu if gpu is None else gpu, NO_SHARE_PENALTY / MILLI),
            _part(used.cpu, self.total.cpu if cpu is None else cpu, NO_SHARE_PENALTY),
            _part(used.memory, self.total.memory if memory is None else memory, NO_SHARE_PENALTY),
        )

    def job_key(self, group: PodGroup) -> JobKey:
        """Smaller is served first; the largest is the first victim."""
        above = self.board.active[group.name] - group.min_member
        state = (above >= 0) + (above > 0)
        return (-group.priority, state, group.created, group.name)


def _allocatable(deserved: int | None, fair: int, limit: int | None) -> int | None:
    if deserved is None:
        return limit
    share = max(deserved, fair)
    return share if limit is None else min(limit, share)


def _part(used: int, share: int, penalty: float) -> float:
    return used / share if share else used * penalty


class Turns:
    """Pops pod groups over the tree of queues. With `victims`, the other way round."""

    def __init__(self, standing: Standing, groups: Iterable[tuple[PodGroup, Resources]], *, victims: bool) -> None:
        self._standing = standing
        self._victims = victims
        self._sign = -1 if victims else 1
        self._leaves: dict[str, list[tuple[PodGroup, Resources]]] = {}
        self._taken: dict[str, Resources] = {}
        self._keys: dict[str, tuple[QueueKey, str]] = {}
        self._children: dict[str | None, set[str]] = {}
        for group, amount in groups:
            self._leaves.setdefault(group.queue, []).append((group, amount))
        for leaf, waiting in self._leaves.items():
            waiting.sort(key=lambda item: standing.job_key(item[0]), reverse=not victims)
            for queue in standing.board.ledger.path(leaf):
                self._children.setdefault(queue.parent, set()).add(queue.name)

    def __iter__(self) -> Iterator[tuple[PodGroup, Resources]]:
        while self._children.get(None):
            yield self._pop()

    def _pop(self) -> tuple[PodGroup, Resources]:
        leaf = self._best(None)[1]
        group, amount = self._leaves[leaf].pop()
        self._taken[leaf] = self._taken.get(leaf, ZERO) + amount
        for queue in self._standing.board.ledger.path(leaf):
            self._keys.pop(queue.name, None)
            if not self._leaves.get(queue.name) and not self._children.get(queue.name):
                self._children[queue.parent].discard(queue.name)
        return group, amount

    def push(self, group: PodGroup, amount: Resources) -> None:
        """Put a group back in front of its queue: it has more pods to offer."""
        self._leaves[group.queue].append((group, amount))
        for queue in self._standing.board.ledger.path(group.queue):
            self._children[queue.parent].add(queue.name)
            self._keys.pop(queue.name, None)

    def _best(self, parent: str | None) -> tuple[QueueKey, str]:
        """The next child queue's key, and the leaf below it whose turn it is."""
        keys = ((self._key(name), name) for name in self._children[parent])
        best = max(keys) if self._victims else min(keys)
        return best[0]

    def _key(self, name: str) -> tuple[QueueKey, str]:
        """A queue is compared by the next pod group below it."""
        if name not in self._keys:
            leaf = name if self._leaves.get(name) else self._best(name)[1]
            amount = self._leaves[leaf][-1][1]
            queue = self._standing.queues[name]
            if self._victims:
                gone = self._taken.get(leaf, ZERO) + amount
                self._keys[name] = (self._standing.key(queue, victims=gone), leaf)
            else:
                self._keys[name] = (self._standing.key(queue, job=amount), leaf)
        return self._keys[name]
