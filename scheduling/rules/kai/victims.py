"""KAI's order of potential victims, computed lazily as far as a search gets.

Source: KAI's queue and job order. Victims come in the reverse order of service: the queue that is served last loses
first, counting what it has lost by then. A department is compared by its use without the losses of the one project
whose victim is next.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from itertools import accumulate, chain, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue
from scheduling.rules.kai.order import KaiQueueShares
from scheduling.state.assignments import Assignment, held
from scheduling.state.workspace import ALL_PODS, check_time

Value = TypeVar("Value")
Unit = tuple[Assignment, ...]
MOST_ORDERS: Final = 256
"""Orders that are kept for one set of pods. A forecast beside 60 waiting groups searches some 30 times."""
AT_ONCE: Final = 32
"""Victims by which an order grows."""
UNKNOWN: Final = ((-1, 0),)
"""Where victims on unknown nodes are noted."""


class Victim(NamedTuple):
    """Pods of one group that are evicted together. capacities: (node index, GPUs held there) of each node."""

    unit: Unit
    amount: Resources
    capacities: tuple[tuple[int, int], ...]


class VictimQueue:
    """Potential victims of one queue, the first victim first, optionally filtered."""

    def __init__(self, victims: Sequence[Victim], among: "VictimQueue | None" = None) -> None:
        self.victims = victims
        self._among = among
        self._below: dict[int, VictimQueue] = {}
        self._shares: dict[str, tuple[object, Sequence[float]]] = {}

    @cached_property
    def gpus(self) -> dict[int, int]:
        """GPUs that all of them hold per node index."""
        held: dict[int, int] = {}
        for victim in self.victims:
            for index, gpu in victim.capacities:
                held[index] = held.get(index, 0) + gpu
        return held

    @cached_property
    def _amounts(self) -> tuple[list[int], ...]:
        """GPU, CPU and memory of each victim."""
        amounts = [victim.amount for victim in self.victims]
        return ([it.gpu for it in amounts], [it.cpu for it in amounts], [it.memory for it in amounts])

    @cached_property
    def _losses(self) -> tuple[Sequence[int], ...]:
        """GPU, CPU and memory that the queue has lost with each victim and those before it."""
        return tuple(list(accumulate(column)) for column in self._amounts)

    def shares(self, shares: KaiQueueShares, queue: Queue) -> Sequence[float]:
        """Negated dominant share of the queue, or of one above, without these losses. Kept while its use stays."""
        basis = shares.basis(queue)
        known = self._shares.get(queue.name)
        if known is None or known[0] != basis:
            known = self._shares[queue.name] = (basis, shares.negated_without(queue, *self._losses))
        return known[1]

    @cached_property
    def spread(self) -> frozenset[int]:
        """Indexes of the nodes of groups that have victims on several nodes; may contain more."""
        if self._among is not None:
            return self._among.spread
        homes: dict[str, set[int]] = defaultdict(set)
        for victim in self.victims:
            group = victim.unit[0].group
            if len(group.pods) > 1:
                homes[group.name].update(index for index, _gpu in victim.capacities)
        return frozenset(index for capacities in homes.values() if len(capacities) > 1 for index in capacities)

    def below(self, priority: int) -> "VictimQueue":
        """The victims of lower priority, which come first."""
        if priority not in self._below:
            end = bisect_left(self.victims, priority, key=lambda victim: victim.unit[0].group.priority)
            self._below[priority] = VictimQueue(self.victims[:end], self)
        return self._below[priority]

    @cached_property
    def _places(self) -> Mapping[str, Sequence[int]]:
        """Places of the victims of each group."""
        places: dict[str, list[int]] = defaultdict(list)
        for place, victim in enumerate(self.victims):
            places[victim.unit[0].group.name].append(place)
        return places

    def without(self, groups: Iterable[str]) -> "VictimQueue":
        """The victims that are not of these groups. A search takes few of hundreds: copy what is known of the rest."""
        gone = sorted((place for name in groups for place in self._places.get(name, ())), reverse=True)
        left = VictimQueue(_without(self.victims, gone), self)
        left._amounts = tuple(_without(column, gone) for column in self._amounts)
        left.gpus = self.gpus.copy()
        for place in gone:
            for index, gpu in self.victims[place].capacities:
                left.gpus[index] -= gpu
        return left


def _without(values: Sequence[Value], places: Iterable[int]) -> list[Value]:
    """The values without those at some places, given from the last to the first."""
    left = list(values)
    for place in places:
        del left[place]
    return left


def by_unit(
    groups: Iterable[Sequence[Assignment]], *, spares: Callable[[PodGroup], bool] = lambda _group: False
) -> VictimQueue:
    """Build the victims of one queue from the pods of its groups. Of groups that `spares` protects: extra pods only.

    Lowest priority first; extra pods one by one before whole gangs; then the latest.
    """
    return of_pieces(pieces_of(found)[spares(found[0].group) :] for found in groups if found)


def of_pieces(pieces: Iterable[Sequence["Piece"]]) -> VictimQueue:
    """The same from what `pieces_of` says of each group."""
    return VictimQueue(
        [victim for _key, victim in sorted(chain.from_iterable(pieces), key=itemgetter(0), reverse=True)]
    )


Piece = tuple[tuple[int, int, int, str, int], Victim]
"""A victim and its sort key."""


def pieces_of(assignments: Sequence[Assignment]) -> list[Piece]:
    """The minimum of a group as one victim, then each extra pod."""
    if not assignments:
        return []
    group = assignments[0].group
    core = min(group.min_member, len(assignments))
    pieces: list[Unit] = [tuple(assignments[:core])] if core else []
    pieces += [(assignment,) for assignment in assignments[core:]]
    return [
        ((-group.priority, min(index, 1), group.created, group.name, index), _victim(piece))
        for index, piece in enumerate(pieces)
    ]


def _victim(piece: Unit) -> Victim:
    return Victim(piece, held(piece), _gpus_by_room(piece))


def _gpus_by_room(unit: Unit) -> tuple[tuple[int, int], ...]:
    gpus: dict[int, int] = {}
    for assignment in unit:
        if assignment.capacity is not None:
            gpus[assignment.capacity.index] = gpus.get(assignment.capacity.index, 0) + assignment.pod.requests.gpu
    return tuple(gpus.items())


_Row = tuple[Any, ...]
"""A victim, and from the top queue to its own the negated dominant share without it and those before it there."""


class VictimOrder:
    """The victims of all queues in order, as far as any search has got. A place is an index in it.

    Kept in arrays of numbers: with an object per node, a few hundred orders would start the garbage collector.

    homes: each victim's first node; -1 if unknown. filled: GPUs that the victims hold there, up to and including it.
    spread: the nodes of groups that have victims on several nodes. first_nodes, first_places: each node that has
    victims, and the place of the first of them, in order. line: what `scenarios` has counted on the nodes.
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
        self.line: object = None
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
