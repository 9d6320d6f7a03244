"""When KAI lets one queue reclaim from another.

Source: KAI's proportion plugin. Queues are compared at the level where their paths part.
"""

from collections.abc import Iterable, Mapping, Sequence

from scheduling.model.resources import Limit, Resources, sum_of
from scheduling.model.snapshot import PodGroup, Queue
from scheduling.rules.kai.order import KaiQueueShares
from scheduling.state.assignments import Assignment
from scheduling.state.queue_usage import UNUSED, QueueUsage
from scheduling.state.workspace import NODES


def may_reclaim(shares: KaiQueueShares, group: PodGroup, requested: Resources) -> bool:
    """Whether the queue may reclaim: up to its fair share, for non-preemptible work up to its deserved quota."""
    queue = shares.queues[group.queue]
    use = shares.state.usage.uses[group.queue]
    fair = shares.fair[group.queue]
    if not (use.allocated + requested).fits_in(fair):
        return False
    return group.preemptible or (use.non_preemptible + requested).within(queue.deserved)


class ReclaimCheck:
    """What one candidate may reclaim, judged by the use of every queue before the search."""

    def __init__(self, shares: KaiQueueShares, group: PodGroup) -> None:
        self._shares = shares
        self._group = group
        self._path = shares.state.usage.path(group.queue)
        partings: dict[str, dict[str, tuple[Queue, Queue]]] = shares.state.cached(NODES, "partings of queues", dict)
        self._partings = partings.setdefault(group.queue, {})
        self._before: Mapping[str, QueueUsage] = dict(shares.state.usage.uses)
        self._losing: dict[str, bool] = {}
        """By the queue at which the paths part: all projects of another department are alike."""
        self._first: dict[str, bool] = {}

    def losing(self, names: Iterable[str], requested: Resources) -> list[str]:
        """The queues of these that are searched for victims. Work of other queues is not moved either."""
        found, known, inside = [], self._losing, dict[str, bool]()
        for name in names:
            mine, theirs = self._partings.get(name) or self._parting(name)
            if theirs.name not in known:
                if mine.name not in inside:
                    inside[mine.name] = self._stays_inside(mine, requested)
                known[theirs.name] = self._may_lose(theirs, requested, inside=inside[mine.name])
            if known[theirs.name]:
                found.append(name)
        return found

    def _may_lose(self, theirs: Queue, requested: Resources, *, inside: bool) -> bool:
        """inside: whether the reclaimer stays inside its deserved quota where the paths part."""
        used = self._used(theirs.name)
        return (
            _beyond_deserved(requested, used, theirs.deserved)
            if inside
            else self._shares.over_allocatable(theirs, used)
        )

    def _stays_inside(self, mine: Queue, requested: Resources) -> bool:
        """Whether this queue of the reclaimer's path stays inside its deserved quota."""
        return (self._used(mine.name) + requested).within(mine.deserved)

    def comes_first(self, name: str, requested: Resources) -> bool:
        """Whether this queue would be served again before the candidate."""
        mine, theirs = self._parting(name)
        if theirs.name not in self._first:
            self._first[theirs.name] = self._shares.key(theirs) < self._shares.key(mine, job=requested)
        return self._first[theirs.name]

    def accepts(self, requested: Resources, gone: Sequence[Assignment]) -> bool:
        """Whether each victim's queue is over its bounds, and no sibling ends below the reclaimer."""
        remaining: dict[str, Resources] = {}
        for leaf, amounts in _by_queue(gone).items():
            mine, theirs = self._parting(leaf)
            for amount in amounts:
                if not self._may_take(requested, mine, theirs, remaining.get(theirs.name, self._used(theirs.name))):
                    return False
                for queue in self._shares.state.usage.path(leaf):
                    remaining[queue.name] = remaining.get(queue.name, self._used(queue.name)) - amount
        return self._stays_below_siblings(requested, remaining) and self._inside_guarantee(requested)

    def _used(self, name: str) -> Resources:
        return self._before.get(name, UNUSED).allocated

    def _parting(self, leaf: str) -> tuple[Queue, Queue]:
        """The ancestors of the two queues at the first level, from the top, at which they differ."""
        found = self._partings.get(leaf)
        if found is None:
            mine, theirs = self._path[::-1], self._shares.state.usage.path(leaf)[::-1]
            pairs = list(zip(mine, theirs, strict=False))
            found = self._partings[leaf] = next((pair for pair in pairs if pair[0] is not pair[1]), pairs[-1])
        return found

    def _may_take(self, requested: Resources, mine: Queue, theirs: Queue, used: Resources) -> bool:
        """Whether it is over its fair share, or over its deserved quota while the reclaimer stays inside its own."""
        if self._shares.over_allocatable(theirs, used):
            return True
        return self._stays_inside(mine, requested) and not used.within(theirs.deserved)

    def _stays_below_siblings(self, requested: Resources, remaining: Mapping[str, Resources]) -> bool:
        """A reclaimer above its fair share must be less saturated than each queue it reclaims from, at every level."""
        for queue in self._path:
            used = remaining.get(queue.name, self._used(queue.name)) + requested
            for name, left in remaining.items():
                sibling = self._shares.queues[name]
                if sibling.parent != queue.parent or sibling is queue:
                    continue
                involved = requested + (self._used(name) - left)
                if self._more_saturated(queue, used, sibling, left, involved):
                    return False
        return True

    def _more_saturated(
        self, queue: Queue, used: Resources, sibling: Queue, left: Resources, involved: Resources
    ) -> bool:
        """Compares in dimensions that are requested or reclaimed."""
        mine, theirs = self._shares.fair[queue.name], self._shares.fair[sibling.name]
        dimensions = (
            (involved.gpu, used.gpu, mine.gpu, left.gpu, theirs.gpu),
            (involved.cpu, used.cpu, mine.cpu, left.cpu, theirs.cpu),
            (involved.memory, used.memory, mine.memory, left.memory, theirs.memory),
        )
        return any(
            part and my_use > my_share and their_share > 0 and my_use * their_share >= their_use * my_share
            for part, my_use, my_share, their_use, their_share in dimensions
        )

    def _inside_guarantee(self, requested: Resources) -> bool:
        """Whether non-preemptible work stays inside the deserved quota of its queue and all parents."""
        return self._group.preemptible or all(
            (self._before[queue.name].non_preemptible + requested).within(queue.deserved) for queue in self._path
        )


def _beyond_deserved(requested: Resources, used: Resources, deserved: Limit) -> bool:
    """Whether use is beyond deserved in a requested dimension, or below it in none of them."""
    dimensions = (
        (requested.gpu, used.gpu, deserved.gpu),
        (requested.cpu, used.cpu, deserved.cpu),
        (requested.memory, used.memory, deserved.memory),
    )
    below = False
    for part, theirs, bound in dimensions:
        if part and bound is not None:
            if theirs > bound:
                return True
            below = below or theirs < bound
    return not below


def _by_queue(gone: Sequence[Assignment]) -> dict[str, list[Resources]]:
    """Amounts reclaimed per queue, victim by victim: the minimum of a gang as one, extra pods one by one."""
    groups: dict[str, list[Assignment]] = {}
    for assignment in gone:
        groups.setdefault(assignment.group.name, []).append(assignment)
    amounts: dict[str, list[Resources]] = {}
    for assignments in groups.values():
        core = (
            assignments[0].group.min_member if len(assignments) > assignments[0].group.min_member else len(assignments)
        )
        taken = amounts.setdefault(assignments[0].group.queue, [])
        taken.extend(assignment.pod.requests for assignment in assignments[core:])
        taken.append(sum_of(assignment.pod.requests for assignment in assignments[:core]))
    return amounts
