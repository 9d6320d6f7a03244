"""Where pods fit: rooms on nodes, searched by bin-pack or spread.

A room knows two amounts: `idle`, free this moment, and `future`, free once everything on its way out is gone and every
newcomer that waits for it has moved in. A pod starts now where both suffice; where only the future does, it waits.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from scheduling.model import Node, PodGroup, Strategy
from scheduling.resources import ZERO, Resources


class Room:
    """The free part of one node. Changed through `Rooms` only."""

    __slots__ = ("future", "idle", "index", "node", "version")

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index
        self.idle = node.capacity
        self.future = node.capacity
        self.version = 0

    def fits(self, asked: Resources, *, now: bool) -> bool:
        return asked.fits_in(self.future) and (not now or asked.fits_in(self.idle))


class Rooms:
    """The ready nodes, indexed by free GPUs so that a full cluster is not searched node by node."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        ready = sorted((node for node in nodes if node.ready), key=lambda node: node.order)
        self._rooms = [Room(node, index) for index, node in enumerate(ready)]
        self._by_name = {room.node.name: room for room in self._rooms}
        self._by_gpu = sorted((room.future.gpu, room.index) for room in self._rooms)

    def get(self, name: str | None) -> Room | None:
        return None if name is None else self._by_name.get(name)

    def change(self, room: Room, *, idle: Resources = ZERO, future: Resources = ZERO) -> None:
        """Add to what is free; negative amounts take."""
        if future.gpu:
            del self._by_gpu[bisect_left(self._by_gpu, (room.future.gpu, room.index))]
            insort(self._by_gpu, (room.future.gpu + future.gpu, room.index))
        room.idle += idle
        room.future += future
        room.version += 1

    def matching(self, group: PodGroup) -> Iterator[Room]:
        """Ready nodes of the group's pool that carry every label it selects."""
        return (room for room in self._rooms if matches(room.node, group))

    def find(self, asked: Resources, group: PodGroup, strategy: Strategy, *, now: bool) -> Room | None:
        """The best node that fits. Bin-pack: the fullest; spread: the emptiest; ties by node order."""
        fitting = (room for room in self.with_gpus(asked.gpu) if room.fits(asked, now=now))
        matching = (room for room in fitting if matches(room.node, group))
        if strategy is Strategy.SPREAD:
            return max(matching, key=lambda room: (_free(room, asked), -room.index), default=None)
        if asked.gpu:
            return next(matching, None)
        return min(matching, key=lambda room: (_free(room, asked), room.index), default=None)

    def with_gpus(self, gpu: int) -> Iterator[Room]:
        """Rooms whose future has that many GPUs, fullest first."""
        start = bisect_left(self._by_gpu, (gpu, -1))
        return (self._rooms[index] for _gpu, index in self._by_gpu[start:])

    def free(self, group: PodGroup) -> tuple[Resources, Resources]:
        """What is idle now in sum, and on the emptiest node."""
        idle = [room.idle for room in self.matching(group)]
        free = Resources(
            sum(max(amount.gpu, 0) for amount in idle),
            sum(max(amount.cpu, 0) for amount in idle),
            sum(max(amount.memory, 0) for amount in idle),
        )
        emptiest = max(idle, key=lambda amount: (amount.gpu, amount.cpu, amount.memory), default=ZERO)
        return free, emptiest.floor()

    def capacity(self) -> Resources:
        """Everything the ready nodes have."""
        return sum((room.node.capacity for room in self._rooms), ZERO)


def matches(node: Node, group: PodGroup) -> bool:
    """True when the node is in the group's pool and carries every label the group selects."""
    return node.pool == group.pool and all(node.labels.get(key) == value for key, value in group.node_selector.items())


def slots(free: Resources, asked: Resources) -> int:
    """How many times `asked` fits; asking for nothing fits once."""
    parts = ((free.gpu, asked.gpu), (free.cpu, asked.cpu), (free.memory, asked.memory))
    return max(0, min((left // part for left, part in parts if part), default=1))


def _free(room: Room, asked: Resources) -> int:
    """GPU work compares free GPUs, other work free CPU."""
    return room.future.gpu if asked.gpu else room.future.cpu
