"""The order in which KAI serves queues and pod groups. `victims` has the order of victims.

Source: KAI's queue and job order. Between queues: not over fair share first, then inside deserved quota with the job at
hand, higher rank, no use without a share, smaller dominant share with and without that job, smaller share, older.
Inside a queue: higher priority, gangs below their minimum first, older. Victims come in exactly the reverse order.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from scheduling.model.resources import MILLI, ZERO, Resources
from scheduling.model.snapshot import PodGroup, Queue, Snapshot
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.fair_share import Division, fair_shares
from scheduling.state.queue_usage import UNUSED
from scheduling.state.workspace import NODES

NO_SHARE_PENALTY: Final = 1000
ENDLESS: Final = float("inf")

Head = tuple[bool, bool, int, bool]
Tail = tuple[float, tuple[float, ...], int, str]
QueueKey = tuple[bool, bool, int, bool, float, float, tuple[float, ...], int, str]
JobKey = tuple[int, int, int, str]
Amounts: TypeAlias = npt.NDArray[np.float64]


class KaiQueueShares:
    """Queues, their fair shares in this cycle, and their present use."""

    def __init__(self, snapshot: Snapshot, state: SchedulingState) -> None:
        self.state = state
        self.queues: Mapping[str, Queue] = snapshot.queue_by_name
        self.total = state.capacities.capacity
        requested = {name: use.requested for name, use in state.usage.uses.items()}
        divisions = state.cached(NODES, "divisions among queues", dict[Division, dict[str, Resources]])
        self.fair = fair_shares(snapshot.queues, requested, self.total, divisions)
        self._keys: dict[tuple[str, int, int, int, int, int, int], QueueKey] = {}
        self._frames: dict[str, tuple[Resources, Head, Tail]] = {}
        self._allocatable = {queue.name: self._may_use(queue) for queue in snapshot.queues}
        self._shares = {name: _share(bounds) for name, bounds in self._allocatable.items()}
        self._wholes = {name: self._whole(bounds) for name, bounds in self._allocatable.items()}
        self._may_use_nothing = frozenset(name for name, bounds in self._allocatable.items() if 0 in bounds)

    def frame(self, queue: Queue) -> tuple[Head, Tail]:
        """The parts of a victim's key that are equal for all victims below a queue while its use does not change."""
        used = self.allocated(queue.name)
        known = self._frames.get(queue.name)
        if known is None or known[0] != used:
            known = self._frames[queue.name] = (used, self.head(queue, used, used), self.tail(queue, used))
        return known[1:]

    def allocated(self, name: str) -> Resources:
        return self.state.usage.uses.get(name, UNUSED).allocated

    def _may_use(self, queue: Queue) -> tuple[int | None, int | None, int | None]:
        """The larger of deserved quota and fair share, within the limit; None is unlimited."""
        fair = self.fair.get(queue.name, ZERO)
        return (
            _allocatable(queue.deserved.gpu, fair.gpu, queue.limit.gpu),
            _allocatable(queue.deserved.cpu, fair.cpu, queue.limit.cpu),
            _allocatable(queue.deserved.memory, fair.memory, queue.limit.memory),
        )

    def _whole(self, bounds: tuple[int | None, int | None, int | None]) -> tuple[int, int, int]:
        """The whole that a share is a part of; for an unbounded queue, all nodes together."""
        gpu, cpu, memory = bounds
        return (
            self.total.gpu if gpu is None else gpu,
            self.total.cpu if cpu is None else cpu,
            self.total.memory if memory is None else memory,
        )

    def over_allocatable(self, queue: Queue, amount: Resources) -> bool:
        """Whether `amount` exceeds both deserved quota and fair share."""
        used = (amount.gpu, amount.cpu, amount.memory)
        bounds = zip(used, self._allocatable[queue.name], strict=True)
        return any(bound is not None and part > bound for part, bound in bounds)

    def key(self, queue: Queue, *, job: Resources = ZERO) -> QueueKey:
        """Sort key: the smallest is served first. `job`: the amount that would start next.

        Kept, because trials try the same few amounts again and again.
        """
        used = self.allocated(queue.name)
        state = (queue.name, used.gpu, used.cpu, used.memory, job.gpu, job.cpu, job.memory)
        known = self._keys.get(state)
        if known is None:
            with_job = used + job
            head = self.head(queue, used, with_job)
            known = self._keys[state] = (*head, self.dominant(queue, with_job), *self.tail(queue, used))
        return known

    def head(self, queue: Queue, used: Resources, with_job: Resources) -> Head:
        """First part of the key."""
        fair = self.fair.get(queue.name, ZERO)
        return (
            fair.gpu < used.gpu and fair.cpu < used.cpu and fair.memory < used.memory,
            not with_job.within(queue.deserved),
            -queue.rank,
            self._without_share(queue, with_job),
        )

    def tail(self, queue: Queue, used: Resources) -> Tail:
        """Last part of the key, which does not depend on the job."""
        return (self.dominant(queue, used), self._shares[queue.name], queue.created, queue.name)

    def _without_share(self, queue: Queue, used: Resources) -> bool:
        if queue.name not in self._may_use_nothing:
            return False
        parts = zip((used.gpu, used.cpu, used.memory), self._allocatable[queue.name], strict=True)
        return any(bound == 0 and part > 0 for part, bound in parts)

    def dominant(self, queue: Queue, used: Resources) -> float:
        """The queue's dominant share: the largest used part of its share in any dimension."""
        gpu, cpu, memory = self._wholes[queue.name]
        if gpu and cpu and memory:
            return max(0.0, used.gpu / gpu, used.cpu / cpu, used.memory / memory)
        return max(
            0.0,
            _part(used.gpu, gpu, NO_SHARE_PENALTY / MILLI),
            _part(used.cpu, cpu, NO_SHARE_PENALTY),
            _part(used.memory, memory, NO_SHARE_PENALTY),
        )

    def basis(self, queue: Queue) -> tuple[Resources, tuple[int, int, int]]:
        """What the queue's dominant share depends on."""
        return (self.allocated(queue.name), self._wholes[queue.name])

    def negated_without(self, queue: Queue, losses: Amounts) -> Amounts:
        """Minus the dominant share without each of these amounts. losses: GPU, CPU, memory (rows)."""
        used, whole = self.basis(queue)
        if not all(whole):
            lost = (Resources(*map(int, amounts)) for amounts in losses.T)
            return np.array([-self.dominant(queue, used - amount) for amount in lost])
        columns = zip(losses, (used.gpu, used.cpu, used.memory), whole, strict=True)
        parts = [(lost - float(amount)) / float(entire) for lost, amount, entire in columns]
        least: Amounts = np.minimum(np.minimum(parts[0], parts[1]), np.minimum(parts[2], 0.0))
        return least

    def job_key(self, group: PodGroup) -> JobKey:
        """Sort key: the smallest is served first, the largest is the first victim."""
        return job_key(group, self.state.active[group.name])


def job_key(group: PodGroup, active: int) -> JobKey:
    """The same for a group with that many active pods."""
    above = active - group.min_member
    state = (above >= 0) + (above > 0)
    return (-group.priority, state, *group.age)


def _allocatable(deserved: int | None, fair: int, limit: int | None) -> int | None:
    if deserved is None:
        return limit
    share = max(deserved, fair)
    return share if limit is None else min(limit, share)


def _share(bounds: tuple[int | None, int | None, int | None]) -> tuple[float, ...]:
    return tuple(ENDLESS if bound is None else float(bound) for bound in bounds)


def _part(used: int, whole: int, penalty: float) -> float:
    return used / whole if whole else used * penalty


Payload = TypeVar("Payload")
Leaf = list[tuple[Payload, Resources]]


class ScheduleOrder(Generic[Payload]):
    """Walks the tree of queues. A leaf holds its waiting items with their amounts; the last item is the next."""

    def __init__(self, shares: KaiQueueShares, leaves: Mapping[str, Leaf[Payload]]) -> None:
        self._shares = shares
        self._paths = shares.state.usage.path
        self._leaves = {name: list(waiting) for name, waiting in leaves.items() if waiting}
        self._children: dict[str | None, set[str]] = {}
        self._keys: dict[str, tuple[QueueKey, str]] = {}
        for leaf in self._leaves:
            self._open(leaf)

    def __iter__(self) -> Iterator[tuple[Payload, Resources]]:
        while self._children.get(None):
            leaf = self._best(None)[1]
            item = self._leaves[leaf].pop()
            self._close(leaf)
            yield item

    def push(self, leaf: str, payload: Payload, amount: Resources) -> None:
        """Put an item back at the front of its queue."""
        self._leaves[leaf].append((payload, amount))
        self._open(leaf)

    def _open(self, leaf: str) -> None:
        for queue in self._paths(leaf):
            self._children.setdefault(queue.parent, set()).add(queue.name)
            self._keys.pop(queue.name, None)

    def _close(self, leaf: str) -> None:
        """Recompute the position of a queue and its ancestors; remove empty ones."""
        for queue in self._paths(leaf):
            self._keys.pop(queue.name, None)
            if not self._leaves.get(queue.name) and not self._children.get(queue.name):
                self._children[queue.parent].discard(queue.name)

    def _best(self, parent: str | None) -> tuple[QueueKey, str]:
        """The key of the child that is served next, and the leaf below it."""
        return min([self._keys.get(name) or self._key(name) for name in self._children[parent]])

    def _key(self, name: str) -> tuple[QueueKey, str]:
        """A queue's key, which depends on the next item below it."""
        leaf = name if self._leaves.get(name) else self._best(name)[1]
        self._keys[name] = (self._shares.key(self._shares.queues[name], job=self._leaves[leaf][-1][1]), leaf)
        return self._keys[name]


def groups_by_queue(shares: KaiQueueShares, waiting: Iterable[tuple[PodGroup, Resources]]) -> dict[str, Leaf[PodGroup]]:
    """Pod groups by queue, the next one last."""
    leaves: dict[str, Leaf[PodGroup]] = {}
    for item in sorted(waiting, key=lambda item: shares.job_key(item[0]), reverse=True):
        leaves.setdefault(item[0].queue, []).append(item)
    return leaves


class WaitingLeaf(NamedTuple):
    """The groups of one queue that wait, the next one last. distinct: without those that cannot matter if no group of
    the queue is placed: of several consecutive groups with the same amount one is enough.
    """

    every: Leaf[PodGroup]
    distinct: Leaf[PodGroup]

    @classmethod
    def of(cls, every: Leaf[PodGroup]) -> Self:
        return cls(every, _distinct(every, ()))


def _distinct(leaf: Leaf[PodGroup], placed: Collection[str]) -> Leaf[PodGroup]:
    """A queue's position depends on the next amount only."""
    return [
        each
        for each, before in zip(leaf, [None, *leaf], strict=False)
        if not before or each[0].name in placed or before[0].name in placed or each[1] != before[1]
    ]


def with_waiting(
    shares: KaiQueueShares, leaves: Mapping[str, Leaf[PodGroup]], waiting: Mapping[str, WaitingLeaf]
) -> Mapping[str, Leaf[PodGroup]]:
    """Add the other waiting groups that decide when the groups of `leaves` are served.

    They matter below the queues in which the paths of the leaves part.
    """
    paths = {name: shares.state.usage.path(name)[::-1] for name in leaves}
    parted = {found[0].name for found in _below_the_common(list(paths.values())) if found}
    if len(parted) < 2:
        return leaves
    result = dict(leaves)
    for name, others in waiting.items():
        if parted.isdisjoint([queue.name for queue in shares.state.usage.path(name)]):
            continue
        if name not in leaves:
            result[name] = others.distinct
            continue
        placed = {group.name for group, _amount in leaves[name]}
        every = [*leaves[name], *(each for each in others.every if each[0].name not in placed)]
        every.sort(key=lambda item: shares.job_key(item[0]), reverse=True)
        result[name] = _distinct(every, placed)
    return result


def _below_the_common(paths: list[Sequence[Queue]]) -> list[Sequence[Queue]]:
    """Each path from the top, without the part that all paths share."""
    depth = 0
    while all(len(path) > depth and path[depth] is paths[0][depth] for path in paths):
        depth += 1
    return [path[depth:] for path in paths]
