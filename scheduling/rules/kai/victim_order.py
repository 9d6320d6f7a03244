"""KAI's order of potential victims, computed lazily as far as a search gets.

Source: KAI's queue and job order. Victims come in the reverse order of service: the queue that is served last loses
first, counting what it has lost by then. A department is compared by its use without the losses of the one project
whose victim is next.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice
from typing import Any, Final

from scheduling.rules.kai.order import KaiQueueShares
from scheduling.rules.kai.victims import Victim, VictimQueue
from scheduling.state.assignments import Assignment
from scheduling.state.node_capacity import NodeCapacity
from scheduling.state.scoped_cache import ALL_PODS
from scheduling.state.workspace import check_time

MOST_ORDERS: Final = 256
"""Orders that are kept for one set of pods. A forecast beside 60 waiting groups searches some 30 times."""
AT_ONCE: Final = 32
"""Victims by which an order grows."""
UNKNOWN: Final = ((-1, 0),)
"""Where victims on unknown nodes are noted."""


_Row = tuple[Any, ...]
"""A victim, and from the top queue to its own the negated dominant share without it and those before it there."""


class VictimOrder:
    """The victims of all queues in order, as far as any search has got. A place is an index in it.

    Kept in arrays of numbers: with an object per node, a few hundred orders would start the garbage collector.

    homes: each victim's first node; -1 if unknown. filled: GPUs that the victims hold there, up to and including it.
    spread: the nodes of groups that have victims on several nodes. first_nodes, first_places: each node that has
    victims, and the place of the first of them, in order.
    """

    def __init__(self, rows: Iterator[_Row], queues: Mapping[str, VictimQueue], nodes: int) -> None:
        self._coming = rows
        self._queues = queues.values()
        self._reached = [0] * (nodes + 1)
        self._latest = array("q", [-1]) * (nodes + 1)  # by first node: the latest place; the last for unknown nodes
        self._earlier = array("q")  # by place: the one before with the same first node
        self._further: dict[int, list[int]] = {}  # by any other node of a victim: its places
        self.known: list[Victim] = []
        self.homes, self.filled = array("q"), array("q")
        self.first_nodes, self.first_places = array("q"), array("q")
        self._met = bytearray(nodes)
        self.line: VictimLine | None = None
        self.spread = frozenset[int]().union(*(queue.spread for queue in self._queues))

    @cached_property
    def held(self) -> Mapping[int, int]:
        """GPUs that all victims hold per node index."""
        held: dict[int, int] = {}
        for queue in self._queues:
            for index, gpu in queue.gpus.items():
                held[index] = held.get(index, 0) + gpu
        return held

    @cached_property
    def most_held(self) -> int:
        """The largest of these amounts."""
        return max(self.held.values(), default=0)

    def on(self, index: int) -> list[int]:
        """Places of the victims on a node, in order; index -1: on unknown nodes."""
        return sorted(self.found_on(index))

    def found_on(self, index: int) -> list[int]:
        """The same in any order."""
        found = [*self._further.get(index, ())]
        place = self._latest[index]
        while place >= 0:
            found.append(place)
            place = self._earlier[place]
        return found

    def reaches(self, place: int) -> bool:
        """Whether there are that many victims and one more."""
        while place >= len(self.known):
            check_time()
            more = [row[0] for row in islice(self._coming, AT_ONCE)]
            if not more:
                return False
            latest, earlier, reached = self._latest, self._earlier, self._reached
            for place_of, victim in enumerate(more, start=len(self.known)):
                capacities = victim.capacities or UNKNOWN
                home, gpu = capacities[0]
                if home >= 0 and not self._met[home]:
                    self._note_first(place_of, home)
                earlier.append(latest[home])
                latest[home] = place_of
                reached[home] += gpu
                self.homes.append(home)
                self.filled.append(reached[home])
                if len(capacities) > 1:
                    self._note_further(place_of, capacities[1:])
            self.known += more
        return True

    def _note_further(self, place: int, capacities: Sequence[tuple[int, int]]) -> None:
        """Note a victim on the other nodes on which it has pods."""
        for index, gpu in capacities:
            if not self._met[index]:
                self._note_first(place, index)
            self._further.setdefault(index, []).append(place)
            self._reached[index] += gpu

    def _note_first(self, place: int, index: int) -> None:
        """Note the first victim on a node."""
        self._met[index] = True
        self.first_nodes.append(index)
        self.first_places.append(place)


def victim_order(shares: KaiQueueShares, queues: Mapping[str, VictimQueue]) -> VictimOrder:
    """The order by the present use of queues. Kept from search to search, and from cycle to cycle, for equal input."""
    queues = {name: queue for name, queue in queues.items() if queue.victims}
    children: dict[str | None, dict[str, None]] = {}
    for name in queues:
        for each in shares.state.usage.path(name):
            children.setdefault(each.parent, {})[each.name] = None
    key = (
        *queues.values(),
        *(amount for level in children.values() for name in level for amount in _amounts(shares, name)),
    )
    orders = shares.state.cached(ALL_PODS, "victim orders", dict[object, VictimOrder])
    if key not in orders:
        if len(orders) >= MOST_ORDERS:
            del orders[next(iter(orders))]  # the oldest
        # merged once a search looks at the first victim: most end before
        rows = chain.from_iterable(_merged(shares, queues, children, top) for top in (None,))
        orders[key] = VictimOrder(rows, queues, len(shares.state.capacities.all))
    return orders[key]


def _amounts(shares: KaiQueueShares, name: str) -> tuple[int, ...]:
    """Use and fair share of a queue: with its settings, all that its position depends on."""
    used, fair = shares.allocated(name), shares.fair[name]
    return (used.gpu, used.cpu, used.memory, fair.gpu, fair.cpu, fair.memory)


def _merged(
    shares: KaiQueueShares,
    leaves: Mapping[str, VictimQueue],
    children: Mapping[str | None, Collection[str]],
    parent: str | None,
    column: int = 1,
) -> Iterator[_Row]:
    """The victims below a queue, merged from its children. column: where rows have the share of these."""
    streams = {
        name: chain(_rows(shares, leaves, name), _merged(shares, leaves, children, name, column + 1))
        for name in children.get(parent, ())
    }
    if len(streams) < 2:
        return chain.from_iterable(streams.values())
    frames = [shares.frame(shares.queues[name]) for name in streams]
    heads, tails = sorted({head for head, _tail in frames}), sorted(tail for _head, tail in frames)
    coming: list[_Turn] = []
    for stream, (head, tail) in zip(streams.values(), frames, strict=True):
        row = next(stream)  # a queue that has nothing to lose is not among them
        coming.append((-heads.index(head), row[column], -tails.index(tail), row, stream))
    heapify(coming)
    return _served_last(coming, column)


def _rows(shares: KaiQueueShares, leaves: Mapping[str, VictimQueue], name: str) -> Iterator[_Row]:
    """The victims of one queue."""
    if name not in leaves:
        return iter(())
    leaf, path = leaves[name], reversed(shares.state.usage.path(name))
    return zip(leaf.victims, *(leaf.shares(shares, queue) for queue in path), strict=True)


def _served_last(coming: "list[_Turn]", column: int) -> Iterator[_Row]:
    """Yield, again and again, the next victim of the queue that would then be served last."""
    while coming:
        head_place, _share, tail_place, row, stream = coming[0]
        yield row
        if following := next(stream, None):
            heapreplace(coming, (head_place, following[column], tail_place, following, stream))
        else:
            heappop(coming)


_Turn = tuple[int, float, int, _Row, Iterator[_Row]]
"""Parts of a queue's key, negated: the last is served last. Its next row, and the following ones."""


class VictimLine:
    """The victims in order, and the free GPUs at the start, for all searches for one candidate.

    least: GPUs of the candidate's smallest pod.
    """

    def __init__(self, order: VictimOrder, least: int, capacities: Sequence[NodeCapacity], free: list[int]) -> None:
        self._order = order
        self._least = least
        self.capacities = capacities
        self.free = free
        self.known, self.on, self.filled, self.spread = order.known, order.on, order.filled, order.spread
        self.first_nodes, self.first_places = order.first_nodes, order.first_places
        self._slots: dict[int, int] = {}
        self._helpful: list[int] = []
        self._seen = 0

    @classmethod
    def of_queues(cls, shares: KaiQueueShares, queues: Mapping[str, VictimQueue], least: int) -> "VictimLine":
        """The line for the present state. Kept with the order: other questions come to the same state."""
        order, capacities = victim_order(shares, queues), shares.state.capacities
        line = order.line
        if line is None or line._least != least or line.free != capacities.gpus:
            line = order.line = cls(order, least, capacities.all, capacities.gpus.copy())
        return line

    @cached_property
    def floor(self) -> list[int]:
        """Free GPUs by node index, not below zero; the last is for pods on unknown nodes."""
        return [gpu if gpu > 0 else 0 for gpu in self.free] + [-1]

    def has_slots(self, gpu: int, wanted: int) -> bool:
        """Whether so many pods with that many GPUs fit the nodes of victims once all potential victims are gone."""
        if gpu > self._bound:
            return False
        if gpu not in self._slots:
            self._slots[gpu] = sum([most // gpu for most in self._most])
        return self._slots[gpu] >= wanted

    @cached_property
    def _bound(self) -> int:
        """No node has more GPUs then."""
        return self._order.most_held + max(self.free, default=0)

    @cached_property
    def _most(self) -> Sequence[int]:
        """GPUs that each node of victims then has."""
        free = self.free
        return [free[index] + gpu if free[index] > 0 else gpu for index, gpu in self._order.held.items()]

    def places_of(self, gone: set[Assignment]) -> set[int]:
        """Places of the victims that have any of these pods."""
        indexes = {each.capacity.index if each.capacity else -1 for each in gone}
        known = self.known
        return {
            place
            for index in indexes
            for place in self._order.found_on(index)
            if not gone.isdisjoint(known[place].unit)
        }

    def of(self, assignments: Sequence[Assignment]) -> list[int]:
        """Places of the victims of the pod group that has these assignments."""
        indexes = {each.capacity.index if each.capacity else -1 for each in assignments}
        places = {place for index in indexes for place in self.on(index)}
        return sorted(place for place in places if self.known[place].unit[0].group is assignments[0].group)

    def places(self, after: int) -> Iterator[int]:
        """All further places, in order."""
        place = after + 1
        while self._order.reaches(place):
            end = len(self.known)
            yield from range(place, end)
            place = end

    def helpful(self, nodes: Collection[int]) -> Iterator[int]:
        """Places, in order, of victims by which their node may fit a pod, and of all victims on these nodes."""
        seen = count = 0
        while self._order.reaches(seen):
            self._find_helpful()
            found, also = self._helpful[count:], [place for index in nodes for place in self.on(index) if place >= seen]
            seen, count = len(self.known), len(self._helpful)
            yield from sorted({*found, *also}) if also else found

    def _find_helpful(self) -> None:
        """Look at the places that have become known. On nodes of spread groups, all help."""
        floor, least, spread = self.floor, self._least, self.spread
        coming = zip(self._order.homes[self._seen :], self.filled[self._seen :], strict=True)
        self._helpful += [
            place
            for place, (home, filled) in enumerate(coming, self._seen)
            if floor[home] + filled >= least or home in spread
        ]
        self._seen = len(self.known)
