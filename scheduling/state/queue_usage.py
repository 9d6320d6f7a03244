"""Whether a queue may use more: the limit for all work, the deserved quota for non-preemptible work.

Source: Run:ai over-quota rules, KAI capacity policy: a workload must pass at its project and at every department above
it; limits are checked before quotas; a dimension that is not requested never refuses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import ZERO, Limit, Resources, sum_of
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
    """The first refusal on the path from the project's queue to its department, else None."""
    for queue in path:
        if pend := over_limit(queue, uses.get(queue.name, UNUSED), needed):
            return pend
    if preemptible:
        return None
    for queue in path:
        if pend := over_guarantee(queue, uses.get(queue.name, UNUSED), needed):
            return pend
    return None


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
        self._queues = {queue.name: queue for queue in queues}
        self.uses: dict[str, QueueUsage] = dict.fromkeys(self._queues, UNUSED)
        self.path: Callable[[str], tuple[Queue, ...]] = QueuePaths(self._queues).__getitem__
        """The queue and its ancestors, leaf first; empty if unknown."""

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
