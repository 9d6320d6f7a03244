"""Potential victims of one queue in KAI's order. `victim_order` merges those of all queues.

Source: KAI's job order. Lowest priority first; extra pods one by one before whole gangs; then the latest.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from operator import itemgetter
from typing import NamedTuple, TypeVar

from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup, Queue
from scheduling.rules.kai.order import KaiQueueShares
from scheduling.state.assignments import Assignment, held

Value = TypeVar("Value")
Unit = tuple[Assignment, ...]


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
