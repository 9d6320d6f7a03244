"""Whom Volcano turns to first: queues, jobs, victims, nodes; and what its queues may take from each other.

Source: the plugins priority, gang, conformance, capacity, nodeorder and binpack of Volcano 1.15 with the weights they
are shipped with, and recorded decisions of it (docs/model.md).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key, partial
from math import sqrt
from typing import Final

from scheduling.model.decisions import BELOW_MINIMUM, Cause
from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.rules.volcano.queues import QueueOrder
from scheduling.state.cluster_state import Assignment, SchedulingState
from scheduling.state.min_runtime import MinRuntimeProtection
from scheduling.state.node_capacity import NodeCapacity, matches

_Scores = dict[int, tuple[int, float]]
"""Of each node, by its index: its version, and how well it suited then."""

TOP_SCORE: Final = 100
CRITICAL_NAMESPACE: Final = "kube-system"


class VolcanoOrder:
    """How queues, jobs and nodes stand at this moment of a cycle: everything moves with the board."""

    def __init__(self, snapshot: Snapshot, board: SchedulingState) -> None:
        self._board = board
        self._queues = snapshot.queue_by_name
        self.order = QueueOrder(snapshot, board.ledger)
        self._deserved = self.order.deserved
        self._protection = MinRuntimeProtection(snapshot, board.ledger.path)
        self._keeps_minimum = BELOW_MINIMUM in snapshot.leaves_out

    def _seats(self, queue: str) -> list[tuple[Assignment, NodeCapacity]]:
        """Pods of the queue that may be preempted, with their nodes."""
        groups = self._board.holders[queue].values()
        found = (each for each in groups if each.preemptible and each.namespace != CRITICAL_NAMESPACE)
        return [(seat, seat.room) for each in found for seat in self._board.seats_of[each.name] if seat.room]

    def _ending(self, node: str) -> Resources:
        """What pods hold there that were on their way out before this cycle."""
        seats = self._board.seats_on[node]
        return sum((seat.pod.requests for seat in seats if seat.pod.terminating), ZERO)

    def ready(self, group: PodGroup) -> bool:
        """Has it the minimum of its pods?"""
        return self._board.active[group.name] >= group.min_member

    def job_turn(self, group: PodGroup) -> tuple[int, bool, int, str]:
        """Higher priority, below its minimum, older."""
        return (-group.priority, self.ready(group), group.created, group.name)

    def in_turn(self, victims: Iterable[Assignment], taker: str) -> Iterator[Assignment]:
        """By queue, then weakest, then of a gang that has its minimum, then youngest.

        The order moves as victims go, but who is next has been chosen just before.
        """
        left, turn = list(victims), cmp_to_key(partial(self._compare, taker=taker))
        coming = min(left, key=turn, default=None)
        while coming is not None:
            left.remove(coming)
            now, coming = coming, min(left, key=turn, default=None)
            yield now

    def _compare(self, left: Assignment, right: Assignment, *, taker: str) -> int:
        """Negative when the left one goes first."""
        mine, theirs = left.group, right.group
        if mine.queue != theirs.queue:
            return self.order.compare_victims(mine.queue, theirs.queue, taker)
        one, other = self._strength(mine), self._strength(theirs)
        return int(one > other) - int(one < other)

    def _strength(self, group: PodGroup) -> tuple[int, bool, int]:
        return (group.priority, not self.ready(group), -group.created)

    def may_reclaim(self, name: str, asked: Resources) -> bool:
        """Would the queue stay within its deserved in one of the dimensions asked for, and within limits?

        Of the departments above only the limits themselves count here, not what they have given out already.
        """
        if not self.order.holds(name, asked):
            return False
        after = self._board.ledger.uses[name].allocated + asked
        dimensions = zip(_parts(asked), _pairs(after, self._deserved[name]), strict=True)
        return any(part and used <= deserved for part, (used, deserved) in dimensions)

    def weaker(self, group: PodGroup) -> dict[NodeCapacity, list[Assignment]]:
        """Whom the group may preempt, by node: preemptible work of its queue with a lower priority.

        Where the plugin gang is asked too, only what is above its minimum: never a pod that stands alone. Where the
        plugin cdp is, nobody who is younger than it carries.
        """
        found: dict[NodeCapacity, list[Assignment]] = defaultdict(list)
        seats = self._board.kept_of_queue(group.queue, "seats", lambda: self._seats(group.queue))
        for seat, room in seats:
            if not seat.leaving and seat.group.priority < group.priority and matches(room.node, group):
                found[room].append(seat)
        gives = {room: self._above_minimum(seats) for room, seats in found.items()} if self._keeps_minimum else found
        return {room: self._grown(seats, Cause.PREEMPT) for room, seats in gives.items()}

    def reclaimable(self, room: NodeCapacity, group: PodGroup, asked: Resources) -> list[Assignment] | None:
        """Whom the group may reclaim on a node; None when no preemptible work of other queues is left on it.

        Where gangs have pods above their minimum, these are all there is to take, whatever their queue deserves. Whom
        the plugin cdp spares is left out last: what a queue has too much is counted with them.
        """
        others = [
            seat
            for seat in self._board.seats_on[room.node.name]
            if seat.group.preemptible
            and not seat.leaving
            and seat.group.queue != group.queue
            and self._gives(seat.group.queue)
        ]
        if not others:
            return None
        surplus = self._grown(self._above_minimum(others), Cause.RECLAIM)
        return surplus or self._grown(self._over_deserved(others, group.queue, asked), Cause.RECLAIM)

    def _grown(self, seats: list[Assignment], action: Cause) -> list[Assignment]:
        """Those of them that have run for as long as they carry."""
        if action not in self._protection.asks_pods:
            return seats
        return [seat for seat in seats if not self._spares(seat, action)]

    def _spares(self, seat: Assignment, action: Cause) -> bool:
        started = seat.group.started if seat.pod.started is None else seat.pod.started
        return self._protection.spares(started, self._protection.carried(seat.group, action))

    def _gives(self, name: str) -> bool:
        queue = self._queues.get(name)
        return queue is not None and queue.reclaimable

    def _above_minimum(self, seats: list[Assignment]) -> list[Assignment]:
        taken: Counter[str] = Counter()
        found = []
        for seat in seats:
            if self._board.active[seat.group.name] - taken[seat.group.name] > seat.group.min_member:
                taken[seat.group.name] += 1
                found.append(seat)
        return [seat for seat in found if seat.group.namespace != CRITICAL_NAMESPACE]

    def _over_deserved(self, seats: list[Assignment], taker: str, asked: Resources) -> list[Assignment]:
        """In turn, while the queue is over its deserved just before; it may fall below."""
        used = {seat.group.queue: self._board.ledger.uses[seat.group.queue].allocated for seat in seats}
        found = []
        for seat in self.in_turn(seats, taker):
            name, requests = seat.group.queue, seat.pod.requests
            helps = any(part and wanted for part, wanted in _pairs(requests, asked))
            if helps and _over(requests, used[name], self._deserved[name]):
                used[name] -= requests
                found.append(seat)
        return found

    def by_suitability(self, asked: Resources) -> Callable[[NodeCapacity], tuple[float, int]]:
        """A sort key: the best node has the smallest. It is kept until the node changes."""
        scores: _Scores = self._board.kept(("scores", asked), dict)

        def key(room: NodeCapacity) -> tuple[float, int]:
            known = scores.get(room.index)
            if known is None or known[0] != room.version:
                known = scores[room.index] = (room.version, self._suits(room, asked))
            return (-known[1], room.index)

        return key

    def _suits(self, room: NodeCapacity, asked: Resources) -> float:
        """Much free CPU and memory, dimensions evenly used, CPU and memory packed tight.

        GPUs count for evenness only: where nothing else is asked for, a smaller part in use is better.
        """
        size = room.node.capacity
        ending = self._board.kept_of_node(room.node.name, "ending", lambda: self._ending(room.node.name))
        after = size - room.future + ending + asked
        used = list(zip(_parts(after), _parts(size), strict=True))
        least = sum(_free_part(part, whole) for part, whole in used[1:]) // 2
        return least + _evenness(used if asked.gpu else used[1:]) + _packed(asked, size - room.idle, size)


def _over(requests: Resources, used: Resources, deserved: Resources) -> bool:
    """Is the queue over its deserved where the pod counts? Nothing deserved there: it is."""
    if requests.gpu and not deserved.gpu:
        return True
    dimensions = zip(_parts(requests), _pairs(used, deserved), strict=True)
    relevant = [taken > whole for part, (taken, whole) in dimensions if part and whole]
    return any(relevant) or not relevant


def _parts(amount: Resources) -> tuple[int, int, int]:
    return (amount.gpu, amount.cpu, amount.memory)


def _pairs(first: Resources, second: Resources) -> Iterator[tuple[int, int]]:
    return zip(_parts(first), _parts(second), strict=True)


def _free_part(used: int, size: int) -> int:
    return max(size - used, 0) * TOP_SCORE // size if size else TOP_SCORE


def _evenness(used: list[tuple[int, int]]) -> int:
    """100 less the standard deviation of the parts in use."""
    fractions = [min(part / whole, 1.0) if whole else 0.0 for part, whole in used]
    mean = sum(fractions) / len(fractions)
    return int((1 - sqrt(sum((part - mean) ** 2 for part in fractions) / len(fractions))) * TOP_SCORE)


def _packed(asked: Resources, used: Resources, size: Resources) -> float:
    """Part of CPU and memory in use afterwards, of those asked for; 0 when one does not fit."""
    dimensions = zip(_parts(asked)[1:], _parts(used)[1:], _parts(size)[1:], strict=True)
    parts = [(part + taken) / whole if whole else 0.0 for part, taken, whole in dimensions if part]
    return 0.0 if not parts or max(parts) > 1 else sum(parts) / len(parts) * TOP_SCORE
