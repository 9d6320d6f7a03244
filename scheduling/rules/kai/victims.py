"""In which order KAI looks at potential victims, found as far as a search gets.

Source: KAI's queue and job order. Victims come in exactly the reverse order of service: the queue served last loses
first, counting what it would have lost by then. A department is compared by what it would have left without the losses
of the one project whose victim is next.
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
    """Pods of one group that go together. rooms: index of each of their nodes, and the GPUs that they hold there."""

    unit: Unit
    amount: Resources
    rooms: tuple[tuple[int, int], ...]


class VictimQueue:
    """What one queue may lose, the first victim first; maybe some of what another one holds."""

    def __init__(self, victims: Sequence[Victim], among: "VictimQueue | None" = None) -> None:
        self.victims = victims
        self._among = among

    @cached_property
    def gpus(self) -> Mapping[int, int]:
        """What all of them hold on each node, by its index."""
        held: dict[int, int] = {}
        for victim in self.victims:
            for index, gpu in victim.rooms:
                held[index] = held.get(index, 0) + gpu
        return held

    @cached_property
    def spread(self) -> frozenset[int]:
        """The nodes of groups that have victims on several nodes, by index; maybe more."""
        if self._among is not None:
            return self._among.spread
        homes: dict[str, set[int]] = defaultdict(set)
        for victim in self.victims:
            homes[victim.unit[0].group.name].update(index for index, _gpu in victim.rooms)
        return frozenset(index for rooms in homes.values() if len(rooms) > 1 for index in rooms)

    def only(self, goes: Callable[[Assignment], bool]) -> "VictimQueue":
        """Of these those of whom the first pod goes."""
        return VictimQueue([victim for victim in self.victims if goes(victim.unit[0])], self)


def by_unit(
    groups: Iterable[Sequence[Assignment]], *, spares: Callable[[PodGroup], bool] = lambda _group: False
) -> VictimQueue:
    """What groups of one queue lose at a time, given by their pods. Of those that are spared: extra pods only.

    Lowest priority first; extra pods one by one before whole gangs; then the youngest.
    """
    keyed: list[tuple[tuple[int, int, int, str, int], Unit]] = []
    for seats in filter(None, groups):
        group = seats[0].group
        core = min(group.min_member, len(seats))
        pieces: list[Unit] = [tuple(seats[:core])] if core else []
        pieces += [(seat,) for seat in seats[core:]]
        for index, piece in enumerate(pieces):
            if not index and spares(group):
                continue
            keyed.append(((-group.priority, min(index, 1), group.created, group.name, index), piece))
    keyed.sort(key=lambda item: item[0], reverse=True)
    return VictimQueue([Victim(piece, held(piece), _gpus_by_room(piece)) for _key, piece in keyed])


def _gpus_by_room(unit: Unit) -> tuple[tuple[int, int], ...]:
    gpus: dict[int, int] = {}
    for seat in unit:
        if seat.room is not None:
            gpus[seat.room.index] = gpus.get(seat.room.index, 0) + seat.pod.requests.gpu
    return tuple(gpus.items())


_Loss = tuple[int, int, int, Victim]
"""The next victim of a queue, and the GPU, CPU and memory that its queue has lost once it is gone, it included."""


class VictimOrder:
    """The victims of all queues. The use of the queues must not change between one and the next."""

    def __init__(self, standing: KaiQueueShares, queues: Mapping[str, VictimQueue]) -> None:
        self._standing = standing
        self._queues = {name: queue.victims for name, queue in queues.items() if queue.victims}
        self._children: dict[str | None, set[str]] = {}
        for name in self._queues:
            for queue in standing.board.ledger.path(name):
                self._children.setdefault(queue.parent, set()).add(queue.name)

    def __iter__(self) -> Iterator[Victim]:
        return map(itemgetter(3), self._below(None))

    def _below(self, parent: str | None) -> Iterator[_Loss]:
        """Those of the children, merged."""
        names = self._children.get(parent, ())
        streams = {name: chain(_losses(self._queues.get(name, ())), self._below(name)) for name in names}
        return self._merged(streams) if len(streams) > 1 else chain.from_iterable(streams.values())

    def _merged(self, streams: Mapping[str, Iterator[_Loss]]) -> Iterator[_Loss]:
        """Again and again the first one of the child that would be served last by then."""
        queues = [self._standing.queues[name] for name in streams]
        frames = [self._standing.frame(queue) for queue in queues]
        heads, tails = sorted({head for head, _tail in frames}), sorted(tail for _head, tail in frames)
        coming: list[_Turn] = []
        for queue, (head, tail) in zip(queues, frames, strict=True):
            stream, share = streams[queue.name], self._standing.dominant_without(queue)
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
"""Of a queue: the parts of its key, negative; its next loss, those after it, and its share by what is lost."""


def _losses(victims: Sequence[Victim]) -> Iterator[_Loss]:
    gpu = cpu = memory = 0
    for victim in victims:
        amount = victim.amount
        gpu, cpu, memory = gpu + amount.gpu, cpu + amount.cpu, memory + amount.memory
        yield gpu, cpu, memory, victim


class VictimLine:
    """The victims in order, found once for all searches for one candidate: each of them starts from the first.

    on: the places in line of those on a node, by the node's index; of: the same by pod group.
    spread: the nodes of groups that have victims on several nodes.
    least: the GPUs of the candidate's smallest pod.
    """

    def __init__(self, standing: KaiQueueShares, queues: Mapping[str, VictimQueue], least: int) -> None:
        self._queues = queues.values()
        self._coming = iter(VictimOrder(standing, queues))
        self.rooms = standing.board.rooms.all
        self.free = tuple(standing.board.rooms.gpus)
        self.known: list[Victim] = []
        self.on: dict[int, list[int]] = defaultdict(list)
        self.of: dict[str, list[int]] = defaultdict(list)
        self.spread = frozenset[int]().union(*(queue.spread for queue in self._queues))
        self._helpful: list[int] = []
        self._large = {index for index, gpu in self.most.items() if gpu >= least} | self.spread

    @cached_property
    def most(self) -> Mapping[int, int]:
        """The GPUs that are free on each node of potential victims once all of them are gone, by its index."""
        held = [0] * len(self.free)
        for queue in self._queues:
            for index, gpu in queue.gpus.items():
                held[index] += gpu
        touched = set[int]().union(*(queue.gpus for queue in self._queues))
        return {index: max(self.free[index], 0) + held[index] for index in touched}

    def places(self, after: int = -1, *, every: bool) -> Iterator[int]:
        """In order; not every, and from the first: without those on nodes that never have room for a pod."""
        yield from range(after + 1, len(self.known)) if every else self._helpful
        for victim in self._coming:
            check_time()
            helps = self._append(victim)
            if every or helps:
                yield len(self.known) - 1

    def _append(self, victim: Victim) -> bool:
        """Is it on a node that may have room for a pod?"""
        place, (unit, _amount, rooms) = len(self.known), victim
        self.known.append(victim)
        self.of[unit[0].group.name].append(place)
        for index, _gpu in rooms:
            self.on[index].append(place)
        helps = bool(rooms) and rooms[0][0] in self._large  # of several nodes all are
        if helps:
            self._helpful.append(place)
        return helps
