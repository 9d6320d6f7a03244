"""When KAI lets one queue take from another.

Source: KAI's proportion plugin. Everything is compared at the level where the two queues' paths part.
"""

from collections.abc import Mapping, Sequence

from scheduling.model.resources import ZERO, Limit, Resources
from scheduling.model.snapshot import PodGroup, Queue
from scheduling.rules.kai.order import KaiQueueShares
from scheduling.state.cluster_state import Assignment
from scheduling.state.queue_usage import UNUSED, QueueUsage


def may_reclaim(standing: KaiQueueShares, group: PodGroup, asked: Resources) -> bool:
    """A queue reclaims up to its fair share; for non-preemptible work up to its deserved quota."""
    queue = standing.queues[group.queue]
    use = standing.board.ledger.uses[group.queue]
    fair = standing.fair[group.queue]
    if not (use.allocated + asked).fits_in(fair):
        return False
    return group.preemptible or (use.non_preemptible + asked).within(queue.deserved)


class ReclaimCheck:
    """One candidate's right to take; remembers the use of every queue before anything was tried."""

    def __init__(self, standing: KaiQueueShares, group: PodGroup) -> None:
        self._standing = standing
        self._group = group
        self._path = standing.board.ledger.path(group.queue)
        self._before: Mapping[str, QueueUsage] = dict(standing.board.ledger.uses)
        self._losing: dict[str, bool] = {}
        """By the queue at which the paths part: all projects of another department are alike."""

    def may_lose(self, name: str, asked: Resources) -> bool:
        """Is this queue searched for victims at all? Others are not even moved out of the way."""
        mine, theirs = self._parting(name)
        if theirs.name not in self._losing:
            self._losing[theirs.name] = self._may_lose(mine, theirs, asked)
        return self._losing[theirs.name]

    def _may_lose(self, mine: Queue, theirs: Queue, asked: Resources) -> bool:
        used = self._used(theirs.name)
        if not (self._used(mine.name) + asked).within(mine.deserved):
            return self._standing.over_allocatable(theirs, used)
        return _beyond_deserved(asked, used, theirs.deserved)

    def comes_first(self, name: str, asked: Resources) -> bool:
        """Would this queue take its room back before the candidate's turn?"""
        mine, theirs = self._parting(name)
        return self._standing.key(theirs) < self._standing.key(mine, job=asked)

    def accepts(self, asked: Resources, gone: Sequence[Assignment]) -> bool:
        """Each victim is over its bounds before it is taken, and no sibling ends up worse off than the taker."""
        remaining: dict[str, Resources] = {}
        for leaf, amounts in _by_queue(gone).items():
            mine, theirs = self._parting(leaf)
            for amount in amounts:
                if not self._may_take(asked, mine, theirs, remaining.get(theirs.name, self._used(theirs.name))):
                    return False
                for queue in self._standing.board.ledger.path(leaf):
                    remaining[queue.name] = remaining.get(queue.name, self._used(queue.name)) - amount
        return self._stays_below_siblings(asked, remaining) and self._inside_guarantee(asked)

    def _used(self, name: str) -> Resources:
        return self._before.get(name, UNUSED).allocated

    def _parting(self, leaf: str) -> tuple[Queue, Queue]:
        """The two queues at the first level, from the top, where the paths differ."""
        mine, theirs = self._path[::-1], self._standing.board.ledger.path(leaf)[::-1]
        pairs = list(zip(mine, theirs, strict=False))
        return next((pair for pair in pairs if pair[0] is not pair[1]), pairs[-1])

    def _may_take(self, asked: Resources, mine: Queue, theirs: Queue, used: Resources) -> bool:
        """Over its fair share; or over its deserved quota while the taker stays inside its own."""
        if self._standing.over_allocatable(theirs, used):
            return True
        stays_inside = (self._used(mine.name) + asked).within(mine.deserved)
        return stays_inside and not used.within(theirs.deserved)

    def _stays_below_siblings(self, asked: Resources, remaining: Mapping[str, Resources]) -> bool:
        """Above its fair share the taker must be less saturated than each queue it took from, level by level."""
        for queue in self._path:
            used = remaining.get(queue.name, self._used(queue.name)) + asked
            for name, left in remaining.items():
                sibling = self._standing.queues[name]
                if sibling.parent != queue.parent or sibling is queue:
                    continue
                involved = asked + (self._used(name) - left)
                if self._more_saturated(queue, used, sibling, left, involved):
                    return False
        return True

    def _more_saturated(
        self, queue: Queue, used: Resources, sibling: Queue, left: Resources, involved: Resources
    ) -> bool:
        """In a dimension that is asked for or given up."""
        mine, theirs = self._standing.fair[queue.name], self._standing.fair[sibling.name]
        dimensions = (
            (involved.gpu, used.gpu, mine.gpu, left.gpu, theirs.gpu),
            (involved.cpu, used.cpu, mine.cpu, left.cpu, theirs.cpu),
            (involved.memory, used.memory, mine.memory, left.memory, theirs.memory),
        )
        return any(
            part and my_use > my_share and their_share > 0 and my_use * their_share >= their_use * my_share
            for part, my_use, my_share, their_use, their_share in dimensions
        )

    def _inside_guarantee(self, asked: Resources) -> bool:
        """Non-preemptible work stays inside every deserved quota above it."""
        return self._group.preemptible or all(
            (self._before[queue.name].non_preemptible + asked).within(queue.deserved) for queue in self._path
        )


def _beyond_deserved(asked: Resources, used: Resources, deserved: Limit) -> bool:
    """In one dimension that is asked for; or else below it in none of them."""
    dimensions = (
        (asked.gpu, used.gpu, deserved.gpu),
        (asked.cpu, used.cpu, deserved.cpu),
        (asked.memory, used.memory, deserved.memory),
    )
    counted = [(theirs, bound) for part, theirs, bound in dimensions if part and bound is not None]
    return any(theirs > bound for theirs, bound in counted) or all(theirs >= bound for theirs, bound in counted)


def _by_queue(gone: Sequence[Assignment]) -> dict[str, list[Resources]]:
    """What is taken from each queue, victim by victim: a gang's core as one, extra pods one by one."""
    groups: dict[str, list[Assignment]] = {}
    for seat in gone:
        groups.setdefault(seat.group.name, []).append(seat)
    amounts: dict[str, list[Resources]] = {}
    for seats in groups.values():
        core = seats[0].group.min_member if len(seats) > seats[0].group.min_member else len(seats)
        taken = amounts.setdefault(seats[0].group.queue, [])
        taken.extend(seat.pod.requests for seat in seats[core:])
        taken.append(sum((seat.pod.requests for seat in seats[:core]), ZERO))
    return amounts
