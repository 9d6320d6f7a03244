"""KAI's order of potential victims.

Source: KAI's queue and job order. Victims come in the reverse order of service: the queue that is served last loses
first, counting what it has lost by then. A department is compared by its use without the losses of the one project
whose victim is next.

With numpy: a search orders thousands of victims, and a forecast does so for some twenty states of the queues (ADR 34).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue
from scheduling.rules.kai.order import Amounts, KaiQueueShares
from scheduling.state.assignments import ONE_LINE, Assignment, Ranking, held
from scheduling.state.workspace import ALL_PODS, check_time

Unit = tuple[Assignment, ...]
Number = TypeVar("Number", bound=np.generic)
Key = TypeVar("Key")
Value = TypeVar("Value")
Integers: TypeAlias = npt.NDArray[np.int64]
MOST_ORDERS: Final = 128
"""Orders that are kept for one set of pods. A forecast beside 60 waiting groups searches some 30 times."""
UNKNOWN: Final = ((-1, 0),)
"""Where victims on unknown nodes are noted."""


class Victim(NamedTuple):
    """Pods of one group that are evicted together. capacities: (node index, GPUs held there) of each node."""

    unit: Unit
    amount: Resources
    capacities: tuple[tuple[int, int], ...]


class NodeHoldings(NamedTuple):
    """What victims hold on nodes: an entry for each node of each victim, by victim.

    victims: their numbers. nodes: indexes, -1 if unknown. gpus: held there.
    """

    victims: Integers
    nodes: Integers
    gpus: Integers

    def only(self, chosen: npt.NDArray[np.bool_]) -> "NodeHoldings":
        """Those of some victims, by number, which are numbered again."""
        numbers, kept = np.cumsum(chosen) - 1, chosen[self.victims]
        return NodeHoldings(numbers[self.victims[kept]], self.nodes[kept], self.gpus[kept])


NOTHING_HELD: Final = NodeHoldings(*(np.empty(0, np.int64),) * 3)


class VictimQueue:
    """Potential victims of one queue, the first victim first, optionally filtered."""

    def __init__(self, victims: Sequence[Victim], among: "VictimQueue | None" = None) -> None:
        self.victims = victims
        self._among = among
        self._below: dict[int, VictimQueue] = {}
        self._shares: dict[str, tuple[object, Amounts]] = {}

    @cached_property
    def holdings(self) -> NodeHoldings:
        """What they hold; a victim's number is its place here."""
        entries = [
            (number, node, gpu)
            for number, victim in enumerate(self.victims)
            for node, gpu in victim.capacities or UNKNOWN
        ]
        return NodeHoldings(*np.array(entries, np.int64).reshape(-1, 3).T)

    @cached_property
    def _amounts(self) -> Amounts:
        """GPU, CPU and memory (rows) of each victim. As floats, which do not overflow."""
        amounts = (victim.amount for victim in self.victims)
        return np.array([(it.gpu, it.cpu, it.memory) for it in amounts], np.float64).reshape(-1, 3).T

    @cached_property
    def _losses(self) -> Amounts:
        """What the queue has lost with each victim and those before it."""
        return self._amounts.cumsum(axis=1)

    def shares(self, shares: KaiQueueShares, queue: Queue) -> Amounts:
        """Negated dominant share of the queue, or of one above, without these losses. Kept while its use stays."""
        basis = shares.basis(queue)
        known = self._shares.get(queue.name)
        if known is None or known[0] != basis:
            known = self._shares[queue.name] = (basis, shares.negated_without(queue, self._losses))
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
        victims, stays = list(self.victims), np.ones(len(self.victims), np.bool_)
        for place in gone:
            del victims[place]
        stays[gone] = False
        left = VictimQueue(victims, self)
        left._amounts, left.holdings = self._amounts[:, stays], self.holdings.only(stays)
        return left


def by_unit(
    groups: Iterable[Sequence[Assignment]], *, spares: Callable[[PodGroup], bool] = lambda _group: False
) -> VictimQueue:
    """Build the victims of one queue from the pods of its groups. Of groups that `spares` protects: extra pods only.

    Lowest priority first; extra pods one by one before whole gangs; then the latest.
    """
    pieces = (pieces_of(found)[spares(found[0].group) :] for found in groups if found)
    return of_pieces(sorted(chain.from_iterable(pieces), key=itemgetter(0)))


def of_pieces(pieces: Sequence["Piece"]) -> VictimQueue:
    """The same of these, which are in order, the last victim first."""
    return VictimQueue([victim for _rank, victim in reversed(pieces)])


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
    return [((-group.priority, min(index, 1), *group.age, index), _victim(piece)) for index, piece in enumerate(pieces)]


def _lasting_pieces(assignments: Sequence[Assignment]) -> list[Piece]:
    """The same without pods that were terminating before the cycle."""
    return pieces_of([assignment for assignment in assignments if not assignment.pod.terminating])


def _rank(pods: Sequence[Assignment]) -> list[tuple[tuple[int, int, str], PodGroup]]:
    group = pods[0].group
    return [((group.priority, -group.created, group.name), group)]


LAST_VICTIMS_FIRST: Final = Ranking(lambda group: group.queue if group.preemptible else None, _lasting_pieces)
"""By queue, what each of its preemptible groups loses at once, before this cycle."""

WEAKEST_FIRST: Final = Ranking(lambda group: ONE_LINE if group.preemptible else None, _rank)
"""Preemptible groups of all queues in the order in which consolidation moves them: the weakest, then the latest."""


def _victim(piece: Unit) -> Victim:
    capacity, requested = piece[0].capacity, piece[0].pod.requests
    if len(piece) == 1 and capacity is not None:
        return Victim(piece, requested, ((capacity.index, requested.gpu),))
    return Victim(piece, held(piece), _gpus_by_room(piece))


def _gpus_by_room(unit: Unit) -> tuple[tuple[int, int], ...]:
    gpus: dict[int, int] = {}
    for assignment in unit:
        if assignment.capacity is not None:
            gpus[assignment.capacity.index] = gpus.get(assignment.capacity.index, 0) + assignment.pod.requests.gpu
    return tuple(gpus.items())


class _Places(NamedTuple):
    """Where victims are in their order, by node.

    by_node: places by node index and order; starts: where those of each index start in it, from -1 (unknown) on.
    homes, filled: by place, the victim's first node and the GPUs that victims hold there, up to and including it.
    """

    by_node: Integers
    starts: Integers
    homes: Integers
    filled: Integers


class VictimOrder:
    """The victims of all queues in order. A place is an index in it.

    Each part is computed once a search asks for it: most searches end before. ordered: returns the numbers of the
    victims in order; they are numbered queue by queue. nodes: how many there are.
    """

    def __init__(self, ordered: Callable[[], Integers], queues: Sequence[VictimQueue], nodes: int) -> None:
        self._ordered = ordered
        self._queues = queues
        self._nodes = nodes
        self._victims = [victim for queue in queues for victim in queue.victims]
        self.spread = frozenset[int]().union(*(queue.spread for queue in queues))

    def __len__(self) -> int:
        return len(self._victims)

    def victim(self, place: int) -> Victim:
        found: Victim = self._victims[self._numbers[place]]
        return found

    @cached_property
    def _numbers(self) -> Integers:
        check_time()
        return self._ordered() if self._victims else np.empty(0, np.int64)

    def _holdings(self) -> NodeHoldings:
        """What all of them hold, by number."""
        found = [queue.holdings for queue in self._queues] or [NOTHING_HELD]
        victims = [each.victims + start for each, start in zip(found, _starts(self._queues), strict=False)]
        return NodeHoldings(*map(_joined, (victims, [each.nodes for each in found], [each.gpus for each in found])))

    @cached_property
    def held(self) -> Integers:
        """GPUs that all victims hold per node index."""
        held, found = np.zeros(self._nodes + 1, np.int64), self._holdings()
        np.add.at(held, found.nodes, found.gpus)
        return held[:-1]  # the last: on unknown nodes

    @cached_property
    def _places(self) -> _Places:
        victims, nodes, gpus = self._holdings()
        places = np.empty(len(self), np.int64)
        places[self._numbers] = np.arange(len(self))
        by_node = np.argsort(nodes * len(self) + places[victims])
        starts = np.searchsorted(nodes[by_node], np.arange(-1, self._nodes + 1))
        sums = np.concatenate(([0], gpus[by_node].cumsum()))
        reached = np.empty(len(nodes), np.int64)
        reached[by_node] = sums[1:] - sums[starts[nodes[by_node] + 1]]
        homes = np.flatnonzero(np.diff(victims, prepend=-1))[self._numbers]
        return _Places(places[victims][by_node], starts, nodes[homes], reached[homes])

    @cached_property
    def nodes(self) -> Integers:
        """Indexes of the nodes that have victims."""
        return np.flatnonzero(np.bincount(self._holdings().nodes + 1, minlength=self._nodes + 1)[1:])

    def on(self, index: int) -> list[int]:
        """Places of the victims on a node, in order; index -1: on unknown nodes."""
        start, end = self._places.starts[index + 1 : index + 3]
        places: list[int] = self._places.by_node[start:end].tolist()
        return places

    def first_places(self) -> tuple[Integers, Integers]:
        """Each node that has victims, and the place of the first of them, by place."""
        nodes = self.nodes
        places = self._places.by_node[self._places.starts[nodes + 1]]
        sorting = np.argsort(places, kind="stable")
        return nodes[sorting], places[sorting]

    @property
    def homes(self) -> Integers:
        """By place: index of the victim's first node, -1 if unknown."""
        return self._places.homes

    @property
    def filled(self) -> Integers:
        """By place: GPUs that victims hold on its first node, up to and including it."""
        return self._places.filled


def victim_order(shares: KaiQueueShares, queues: Mapping[str, VictimQueue]) -> VictimOrder:
    """The order by the present use of queues. Kept from search to search, and from cycle to cycle, for equal input."""
    paths = {name: shares.state.usage.path(name)[::-1] for name, queue in queues.items() if queue.victims}
    leaves = {name: queues[name] for name, path in paths.items() if path[0].parent is None}
    names = dict.fromkeys(queue.name for name in leaves for queue in paths[name])
    key = (*leaves.values(), *(amount for name in names for amount in _amounts(shares, name)))
    orders = shares.state.cached(ALL_PODS, "victim orders", dict[object, VictimOrder])
    if key not in orders:
        merge = _Merge(shares, leaves, {name: paths[name] for name in leaves})
        keep(orders, key, VictimOrder(merge.numbers, list(leaves.values()), len(shares.state.capacities.all)))
    return orders[key]


def keep(values: dict[Key, Value], key: Key, value: Value) -> Value:
    """Keep a value with an order, or what is made from one. The oldest is dropped for it where there are many."""
    if key not in values and len(values) >= MOST_ORDERS:
        del values[next(iter(values))]
    values[key] = value
    return value


def _amounts(shares: KaiQueueShares, name: str) -> tuple[int, ...]:
    """Use and fair share of a queue: with its settings, all that its position depends on."""
    used, fair = shares.allocated(name), shares.fair[name]
    return (used.gpu, used.cpu, used.memory, fair.gpu, fair.cpu, fair.memory)


class _Stream(NamedTuple):
    """Victims in order. levels: from the top queue down, its negated dominant share without the victim and those
    before it in its queue.
    """

    numbers: Integers
    levels: Sequence[Amounts]


class _Merge:
    """Merges the victims of queues, level by level. paths: each queue with those above it, the top first."""

    def __init__(
        self, shares: KaiQueueShares, leaves: Mapping[str, VictimQueue], paths: Mapping[str, Sequence[Queue]]
    ) -> None:
        self._shares = shares
        self._leaves = leaves
        self._paths = paths
        self._starts = dict(zip(leaves, _starts(leaves.values()), strict=False))
        self._children: dict[str | None, dict[str, Queue]] = defaultdict(dict)
        for path in paths.values():
            for queue in path:
                self._children[queue.parent][queue.name] = queue

    def numbers(self) -> Integers:
        """The numbers of all victims in order."""
        return self._merged(None, 0).numbers

    def _merged(self, parent: str | None, depth: int) -> _Stream:
        """The victims below a queue: again and again the next one of the child that would then be served last.

        A child keeps its turn while its share falls, hence the running maximum. depth: levels above the children.
        """
        ranked = sorted(
            ((*self._shares.frame(queue), name) for name, queue in self._children[parent].items()), reverse=True
        )
        streams = [self._below(name, depth) for _head, _tail, name in ranked]
        if len(streams) == 1:
            return _Stream(streams[0].numbers, streams[0].levels[:depth])
        turns = _joined([np.maximum.accumulate(stream.levels[depth]) for stream in streams])
        heads = [head for head, _tail, _name in ranked]
        if heads[0] == heads[-1]:
            places = turns.argsort(kind="stable")
        else:
            groups = np.cumsum([head != before for head, before in zip(heads, [heads[0], *heads], strict=False)])
            places = np.lexsort((turns, np.repeat(groups, [len(stream.numbers) for stream in streams])))
        levels = [_joined([stream.levels[level] for stream in streams])[places] for level in range(depth)]
        return _Stream(_joined([stream.numbers for stream in streams])[places], levels)

    def _below(self, name: str, depth: int) -> _Stream:
        """The victims of a queue itself, or of those below it. depth: levels above the queue."""
        if name not in self._leaves:
            return self._merged(name, depth + 1)
        leaf, start = self._leaves[name], self._starts[name]
        levels = [leaf.shares(self._shares, queue) for queue in self._paths[name]]
        own = _Stream(np.arange(start, start + len(leaf.victims)), levels)
        if name not in self._children:
            return own
        below = self._merged(name, depth + 1)
        pairs = zip(own.levels, below.levels, strict=True)
        return _Stream(_joined([own.numbers, below.numbers]), [_joined(pair) for pair in pairs])


def _starts(queues: Iterable[VictimQueue]) -> Iterator[int]:
    """The number of the first victim of each queue; one more at the end."""
    return accumulate((len(queue.victims) for queue in queues), initial=0)


def _joined(arrays: Sequence[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    return np.concatenate(arrays) if len(arrays) != 1 else arrays[0]
