"""Use of queues: whether one may use more, and the order in which Volcano serves them.

A limit is for all work, deserved quota for non-preemptible work.

Source: Run:ai over-quota rules, KAI capacity policy: a workload must pass at its project and at every department above
it; limits are checked before quotas; a dimension that is not requested never refuses.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, Self

from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import LARGEST, ZERO, Limit, Resources, sum_of
from scheduling.model.snapshot import PodGroup, Queue, total
from scheduling.state.workspace import check_time


@dataclass(slots=True, unsafe_hash=True)
class QueueUsage:
    """Amounts of a queue: in use, in use by non-preemptible work, and in use plus waiting. Final as in `Resources`."""

    allocated: Final[Resources] = ZERO
    non_preemptible: Final[Resources] = ZERO
    requested: Final[Resources] = ZERO


UNUSED: Final = QueueUsage()


class UsageEntry(NamedTuple):
    """What a pod group adds to its queue: what its pods on nodes use, and what all of its pods request."""

    queue: str
    preemptible: bool
    used: Resources
    requested: Resources

    @classmethod
    def of(cls, group: PodGroup) -> Self:
        waiting, now = group.waiting, total(group.holding)
        used = group.total if group.made else now
        return cls(group.queue, group.preemptible, used, now + total(waiting) if waiting else now)


def over_limit(queue: Queue, use: QueueUsage, needed: Resources) -> PendingReason | None:
    """The refusal if `needed` more exceeds the queue's limit, else None."""
    if over := _over(use.allocated, needed, queue.limit):
        return PendingReason(Reason.OVER_LIMIT, needed, queue.name, queue.limit, use.allocated, over)
    return None


def over_guarantee(queue: Queue, use: QueueUsage, needed: Resources) -> PendingReason | None:
    """The refusal if `needed` more non-preemptible work exceeds the deserved quota, else None."""
    if over := _over(use.non_preemptible, needed, queue.deserved):
        reason = Reason.NON_PREEMPTIBLE_OVER_QUOTA
        return PendingReason(reason, needed, queue.name, queue.deserved, use.non_preemptible, over)
    return None


def fits_quota(
    path: Sequence[Queue], uses: Mapping[str, QueueUsage], needed: Resources, *, preemptible: bool
) -> PendingReason | None:
    """The first refusal on the path from the project's queue to its department, else None.

    The refusal of a limit names that of a deserved quota as its second.
    """
    for queue in path:
        if pend := over_limit(queue, uses.get(queue.name, UNUSED), needed):
            return pend if preemptible else replace(pend, second=_over_guarantees(path, uses, needed))
    return None if preemptible else _over_guarantees(path, uses, needed)


def _over_guarantees(path: Sequence[Queue], uses: Mapping[str, QueueUsage], needed: Resources) -> PendingReason | None:
    """The first refusal of `over_guarantee` on the path, else None."""
    found = (over_guarantee(queue, uses.get(queue.name, UNUSED), needed) for queue in path)
    return next(filter(None, found), None)


def _over(used: Resources, needed: Resources, bound: Limit) -> Resources | None:
    """The part over the bound once `needed` more is in use, in requested dimensions; None if there is none."""
    gpu, cpu, memory = bound.gpu, bound.cpu, bound.memory
    if (
        (gpu is None or not needed.gpu or used.gpu + needed.gpu <= gpu)
        and (cpu is None or not needed.cpu or used.cpu + needed.cpu <= cpu)
        and (memory is None or not needed.memory or used.memory + needed.memory <= memory)
    ):
        return None
    return Resources(
        _excess(used.gpu, needed.gpu, gpu),
        _excess(used.cpu, needed.cpu, cpu),
        _excess(used.memory, needed.memory, memory),
    )


def _excess(used: int, needed: int, bound: int | None) -> int:
    return max(used + needed - bound, 0) if needed and bound is not None else 0


class QueuePaths(dict[str, tuple[Queue, ...]]):
    """A queue and its ancestors by its name, leaf first; empty if unknown. A cycle of parents ends where it closes."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues

    def __missing__(self, name: str) -> tuple[Queue, ...]:
        found: dict[str, Queue] = {}
        step: str | None = name
        while step is not None and step not in found and (queue := self._queues.get(step)):
            found[step] = queue
            step = queue.parent
        self[name] = tuple(found.values())
        return self[name]


_Amounts = tuple[list[Resources], list[Resources], list[Resources]]
"""Amounts by which the three of a queue change."""


def _changed(before: Resources, amounts: list[Resources], sign: int) -> Resources:
    if not amounts:
        return before
    return before + sum_of(amounts) if sign > 0 else before - sum_of(amounts)


class QueueUsageTracker:
    """Use per queue. Every change counts for the queue and all its ancestors."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues = tuple(queues)
        self._queues = {queue.name: queue for queue in self.queues}
        self.uses: dict[str, QueueUsage] = dict.fromkeys(self._queues, UNUSED)
        self.path: Callable[[str], tuple[Queue, ...]] = QueuePaths(self._queues).__getitem__
        """The queue and its ancestors, leaf first; empty if unknown."""

    def requeue(self, queues: tuple[Queue, ...]) -> Callable[[], None]:
        """Give the queues, which have the same names and parents, other quotas; return how to undo it."""
        before = {"queues": self.queues, "_queues": self._queues, "path": self.path}
        named = {queue.name: queue for queue in queues}
        vars(self).update(queues=queues, _queues=named, path=QueuePaths(named).__getitem__)
        return partial(vars(self).update, before)

    def charge(self, name: str, amount: Resources, *, preemptible: bool) -> None:
        """Add `amount` to the use; negative amounts subtract."""
        for queue in self.path(name):
            use = self.uses[queue.name]
            fixed = use.non_preemptible if preemptible else use.non_preemptible + amount
            self.uses[queue.name] = QueueUsage(use.allocated + amount, fixed, use.requested)

    def undo_step(self, names: Iterable[str]) -> Callable[[], None]:
        """Return a function that gives these queues and their ancestors their present use again."""
        uses = self.uses
        return partial(uses.update, {queue.name: uses[queue.name] for name in names for queue in self.path(name)})

    def over_quota(self, name: str) -> bool:
        """Whether the queue uses more than its deserved quota."""
        return any(not self.uses[queue.name].allocated.within(queue.deserved) for queue in self.path(name)[:1])

    def forgo(self, name: str, amount: Resources) -> None:
        """Request less: these pods end. To be undone with their evictions."""
        for queue in self.path(name):
            use = self.uses[queue.name]
            self.uses[queue.name] = QueueUsage(use.allocated, use.non_preemptible, use.requested - amount)

    def enter(self, entries: Iterable[UsageEntry]) -> None:
        """Add what pod groups use and request."""
        self._add_up(entries, 1)

    def leave(self, entries: Iterable[UsageEntry]) -> None:
        """Subtract what pod groups use and request."""
        self._add_up(entries, -1)

    def _add_up(self, entries: Iterable[UsageEntry], sign: int) -> None:
        alike: dict[tuple[str, bool], _Amounts] = {}
        for name, preemptible, used, requested in entries if self._queues else ():
            amounts = alike.setdefault((name, preemptible), ([], [], []))
            amounts[0].append(used)
            amounts[2].append(requested)
        changes: dict[str, _Amounts] = {}
        for (name, preemptible), amounts in alike.items():
            used, requested = sum_of(amounts[0]), sum_of(amounts[2])
            for queue in self.path(name):
                change = changes.setdefault(queue.name, ([], [], []))
                change[0].append(used)
                change[2].append(requested)
                if not preemptible:
                    change[1].append(used)
        for name, change in changes.items():
            use = self.uses[name]
            self.uses[name] = QueueUsage(
                _changed(use.allocated, change[0], sign),
                _changed(use.non_preemptible, change[1], sign),
                _changed(use.requested, change[2], sign),
            )

    def refusal(self, name: str, needed: Resources, *, preemptible: bool) -> PendingReason | None:
        """`fits_quota` along the queue's path with its present use."""
        check_time()
        return fits_quota(self.path(name), self.uses, needed, preemptible=preemptible)


_UsedPart = tuple[float, bool]
"""Largest used part of a deserved quota, and whether there is none at all: such queues come last."""
_Tier = tuple[int, _UsedPart]
"""Of a queue: minus its rank, and the used part of the deserved quota at the root of its path."""


class _DeservedUse(NamedTuple):
    """What a use means beside the deserved quota.

    gives: whether a pod with GPUs of the queue may be reclaimed. takes: whether the queue may reclaim anything.
    """

    use: QueueUsage
    part: _UsedPart
    gives: bool
    takes: bool


class QueueOrder:
    """Volcano's order of queues by their present use.

    Two queues are compared where their paths from the root part: projects of one department directly, projects of
    different departments by their departments. Only the rank is that of the project.

    Source: the plugin capacity (with enableHierarchy) of Volcano 1.15, and recorded decisions (docs/model.md).
    """

    def __init__(self, queues: Collection[Queue], usage: QueueUsageTracker) -> None:
        self._usage = usage
        self._age = {queue.name: (queue.created, place) for place, queue in enumerate(queues)}
        self._rank = {queue.name: -queue.rank for queue in queues}
        self._root = {queue.name: usage.path(queue.name)[-1].name for queue in queues}
        self._parent = {queue.name: queue.parent for queue in queues}
        self._apart: dict[tuple[str, str], tuple[str, str]] = {}
        self._common_ancestors: dict[tuple[str, str], int] = {}
        self._deserved_uses: dict[str, _DeservedUse] = {}
        self.deserved: Mapping[str, Resources] = {queue.name: _deserved(queue) for queue in queues}

    def turns(self, names: Iterable[str]) -> Iterator[str]:
        """The queues in the order in which they are served while nothing changes.

        Where turns form a circle, the order of the names decides.
        """
        equals: dict[_Tier, list[str]] = {}
        parts: dict[str, _UsedPart] = {}
        for name in names:
            root = self._root[name]
            if root not in parts:
                parts[root] = self.deserved_use(root).part
            equals.setdefault((self._rank[name], parts[root]), []).append(name)
        yield from chain.from_iterable(map(self._equal_turns, map(equals.__getitem__, sorted(equals))))

    def _equal_turns(self, names: list[str]) -> Iterable[str]:
        """Those of one tier in order."""
        of_one = len({self._parent[name] for name in names}) == 1
        return sorted(names, key=self._own_turn) if of_one else self._in_circle(names)

    def _in_circle(self, names: list[str]) -> Iterator[str]:
        """Again and again the first queue of a tier that none after it precedes, as `compare` says.

        Of queues below different roots, which are used equally, the older one precedes.
        """
        root, age = self._root, self._age
        while names:
            first = names[0]
            for name in names[1:]:
                same_root = root[name] == root[first]
                if self.compare(name, first) < 0 if same_root else age[name] < age[first]:
                    first = name
            names.remove(first)
            yield first

    def _own_turn(self, name: str) -> tuple[_UsedPart, tuple[int, int]]:
        """Sort key of queues of one department: as in `compare`."""
        return (self.deserved_use(name).part, self._age[name])

    def tier(self, name: str) -> _Tier:
        """Sort key of queues at least: higher rank, then as in `compare` by the roots of their paths."""
        return (self._rank[name], self.deserved_use(self._root[name]).part)

    def compare(self, left: str, right: str) -> int:
        """Negative if the left one of a tier is served first.

        Where the paths part, the smaller used part of deserved quota, any deserved quota at all; older.
        """
        above, beside = self._apart.get((left, right)) or self._part(left, right)
        mine, other = self.deserved_use(above).part, self.deserved_use(beside).part
        return _sign(self._age[left], self._age[right]) if mine == other else _sign(mine, other)

    def holds(self, name: str, requested: Resources) -> bool:
        """Whether that much fits under the limits of the queue and its parents."""
        use = QueueUsage(self._usage.uses[name].allocated)
        return not any(over_limit(queue, use, requested) for queue in self._usage.path(name))

    def is_beyond(self, name: str) -> bool:
        """Whether the queue or a parent uses more than its limit."""
        return any(self._usage.uses[queue.name].allocated.beyond(queue.limit) for queue in self._usage.path(name))

    def nearness(self, name: str, other: str) -> int:
        """Number of common ancestors."""
        if (name, other) not in self._common_ancestors:
            above = {queue.name for queue in self._usage.path(name)[1:]}
            self._common_ancestors[name, other] = sum(queue.name in above for queue in self._usage.path(other)[1:])
        return self._common_ancestors[name, other]

    def _part(self, left: str, right: str) -> tuple[str, str]:
        """The first queues, from the root, at which both paths differ."""
        downs = [[queue.name for queue in reversed(self._usage.path(name))] for name in (left, right)]
        pairs = (pair for pair in zip(*downs, strict=False) if pair[0] != pair[1])
        self._apart[left, right] = next(pairs, (left, right))
        return self._apart[left, right]

    def deserved_use(self, name: str) -> _DeservedUse:
        """The present use of the queue beside its deserved quota."""
        use, known = self._usage.uses[name], self._deserved_uses.get(name)
        if known is None or known.use is not use:
            known = self._deserved_uses[name] = _deserved_use(use, self.deserved[name])
        return known


def _deserved_use(use: QueueUsage, deserved: Resources) -> _DeservedUse:
    gpu, cpu, memory = use.allocated.gpu, use.allocated.cpu, use.allocated.memory
    pairs = ((gpu, deserved.gpu), (cpu, deserved.cpu), (memory, deserved.memory))
    parts = [taken / whole for taken, whole in pairs if whole]
    beyond = gpu > deserved.gpu or 0 < deserved.cpu < cpu or 0 < deserved.memory < memory
    below = gpu < deserved.gpu or cpu < deserved.cpu or memory < deserved.memory
    return _DeservedUse(use, (max(parts, default=1.0), not parts), gives=beyond or not deserved.gpu, takes=below)


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _deserved(queue: Queue) -> Resources:
    """The deserved quota, at most the limit. Unset CPU and memory count as zero, as Rung writes them."""
    deserved = queue.deserved
    gpu = LARGEST if deserved.gpu is None else deserved.gpu
    return Resources(gpu, deserved.cpu or 0, deserved.memory or 0).clamp(queue.limit)
