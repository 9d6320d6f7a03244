"""KAI's order of potential victims, computed lazily as far as a search gets.

Source: KAI's queue and job order. Victims come in the reverse order of service: the queue that is served last loses
first, counting what it has lost by then. A department is compared by its use without the losses of the one project
whose victim is next.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from scheduling.model.resources import Resources
from scheduling.model.snapshot import PodGroup
from scheduling.rules.kai.order import KaiQueueShares
from scheduling.state.cluster_state import Assignment, held
from scheduling.state.workspace import check_time

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

    @cached_property
    def gpus(self) -> Mapping[int, int]:
        """GPUs that all of them hold per node index."""
        held: dict[int, int] = {}
        for victim in self.victims:
            for index, gpu in victim.capacities:
                held[index] = held.get(index, 0) + gpu
        return held

    @cached_property
    def spread(self) -> frozenset[int]:
        """Indexes of the nodes of groups that have victims on several nodes; may contain more."""
        if self._among is not None:
            return self._among.spread
        homes: dict[str, set[int]] = defaultdict(set)
        for victim in self.victims:
            homes[victim.unit[0].group.name].update(index for index, _gpu in victim.capacities)
        return frozenset(index for capacities in homes.values() if len(capacities) > 1 for index in capacities)

    def only(self, goes: Callable[[Assignment], bool]) -> "VictimQueue":
        """The victims whose first pod passes the filter."""
        return VictimQueue([victim for victim in self.victims if goes(victim.unit[0])], self)


def by_unit(
    groups: Iterable[Sequence[Assignment]], *, spares: Callable[[PodGroup], bool] = lambda _group: False
) -> VictimQueue:
    """Build the victims of one queue from the pods of its groups. Of groups that `spares` protects: extra pods only.

    Lowest priority first; extra pods one by one before whole gangs; then the latest.
    """
    keyed: list[tuple[tuple[int, int, int, str, int], Unit]] = []
    for assignments in filter(None, groups):
        group = assignments[0].group
        core = min(group.min_member, len(assignments))
        pieces: list[Unit] = [tuple(assignments[:core])] if core else []
        pieces += [(assignment,) for assignment in assignments[core:]]
        for index, piece in enumerate(pieces):
            if not index and spares(group):
                continue
            keyed.append(((-group.priority, min(index, 1), group.created, group.name, index), piece))
    keyed.sort(key=lambda item: item[0], reverse=True)
    return VictimQueue([Victim(piece, held(piece), _gpus_by_room(piece)) for _key, piece in keyed])


def _gpus_by_room(unit: Unit) -> tuple[tuple[int, int], ...]:
    gpus: dict[int, int] = {}
    for assignment in unit:
        if assignment.capacity is not None:
            gpus[assignment.capacity.index] = gpus.get(assignment.capacity.index, 0) + assignment.pod.requests.gpu
    return tuple(gpus.items())


_Loss = tuple[int, int, int, Victim]
"""The next victim of a queue, and the GPU, CPU and memory that the queue has lost including it."""


class VictimOrder:
    """The victims of all queues in order. The use of queues must not change during the iteration."""

    def __init__(self, shares: KaiQueueShares, queues: Mapping[str, VictimQueue]) -> None:
        self._shares = shares
        self._queues = {name: queue.victims for name, queue in queues.items() if queue.victims}
        self._children: dict[str | None, set[str]] = {}
        for name in self._queues:
            for queue in shares.state.usage.path(name):
                self._children.setdefault(queue.parent, set()).add(queue.name)

    def __iter__(self) -> Iterator[Victim]:
        return map(itemgetter(3), self._below(None))

    def _below(self, parent: str | None) -> Iterator[_Loss]:
        """The victims below a queue, merged from its children."""
        names = self._children.get(parent, ())
        streams = {name: chain(_losses(self._queues.get(name, ())), self._below(name)) for name in names}
        return self._merged(streams) if len(streams) > 1 else chain.from_iterable(streams.values())

    def _merged(self, streams: Mapping[str, Iterator[_Loss]]) -> Iterator[_Loss]:
        """Yield, again and again, the next victim of the child that would then be served last."""
        queues = [self._shares.queues[name] for name in streams]
        frames = [self._shares.frame(queue) for queue in queues]
        heads, tails = sorted({head for head, _tail in frames}), sorted(tail for _head, tail in frames)
        coming: list[_Turn] = []
        for queue, (head, tail) in zip(queues, frames, strict=True):
            stream, share = streams[queue.name], self._shares.dominant_without(queue)
            loss = next(stream)  # a queue that has nothing to lose is not among them
            coming.append((-heads.index(head), -share(*loss[:3]), -tails.index(tail), loss, stream, share))
        heapify(coming)
        while coming:
            head_place, _share, tail_place, loss, stream, share = coming[0]
            yield loss
            if following := next(stream, None):
                gpu, cpu, memory, _victim = following
                heapreplace(coming, (head_place, -share(gpu, cpu, memory), tail_place, following, stream, share))
            else:
                heappop(coming)


_Turn = tuple[int, float, int, _Loss, Iterator[_Loss], Callable[[int, int, int], float]]
"""Negated key parts of a queue, its next loss, the following losses, and its dominant share by what it lost."""


def _losses(victims: Sequence[Victim]) -> Iterator[_Loss]:
    gpu = cpu = memory = 0
    for victim in victims:
        amount = victim.amount
        gpu, cpu, memory = gpu + amount.gpu, cpu + amount.cpu, memory + amount.memory
        yield gpu, cpu, memory, victim


class VictimLine:
    """The victims in order, computed once for all searches for one candidate; every search starts at the first.

    on: places of the victims on a node, by node index; of: the same by pod group.
    spread: the nodes of groups that have victims on several nodes.
    least: GPUs of the candidate's smallest pod.
    """

    def __init__(self, shares: KaiQueueShares, queues: Mapping[str, VictimQueue], least: int) -> None:
        self._queues = queues.values()
        self._coming = iter(VictimOrder(shares, queues))
        self.capacities = shares.state.capacities.all
        self.free = tuple(shares.state.capacities.gpus)
        self.known: list[Victim] = []
        self.on: dict[int, list[int]] = defaultdict(list)
        self.of: dict[str, list[int]] = defaultdict(list)
        self.spread = frozenset[int]().union(*(queue.spread for queue in self._queues))
        self._helpful: list[int] = []
        self._large = {index for index, gpu in self.most.items() if gpu >= least} | self.spread

    @cached_property
    def most(self) -> Mapping[int, int]:
        """GPUs free per node index once all potential victims are gone."""
        held = [0] * len(self.free)
        for queue in self._queues:
            for index, gpu in queue.gpus.items():
                held[index] += gpu
        touched = set[int]().union(*(queue.gpus for queue in self._queues))
        return {index: max(self.free[index], 0) + held[index] for index in touched}

    def places(self, after: int = -1, *, every: bool) -> Iterator[int]:
        """Places in order; unless `every`, from the first and without those on nodes that can never fit a pod."""
        yield from range(after + 1, len(self.known)) if every else self._helpful
        for victim in self._coming:
            check_time()
            helps = self._append(victim)
            if every or helps:
                yield len(self.known) - 1

    def _append(self, victim: Victim) -> bool:
        """Add a victim; return whether it is on a node that may fit a pod."""
        place, (unit, _amount, capacities) = len(self.known), victim
        self.known.append(victim)
        self.of[unit[0].group.name].append(place)
        for index, _gpu in capacities:
            self.on[index].append(place)
        helps = bool(capacities) and capacities[0][0] in self._large  # of several nodes all are
        if helps:
            self._helpful.append(place)
        return helps
