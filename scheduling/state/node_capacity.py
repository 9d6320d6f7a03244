"""Free capacity of nodes, searched by bin-pack or spread.

A node has two amounts: `idle`, free now, and `future`, free once terminating pods are gone and pods nominated to it
have started. A pod starts now if both suffice; if only `future` does, it waits. A resource that a pod does not request
never stops it, however overcommitted the node is.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

from scheduling.model.resources import ENTIRE, ZERO, Resources, SharedGpus, is_gpu_fraction, sum_of
from scheduling.model.snapshot import PodGroup, SnapshotNode, Strategy, Toleration, welcome

NO_LIMIT: Final = 2**31
MOST_LOGGED: Final = 10_000

Selection = tuple[str, tuple[tuple[str, str], ...], tuple[Toleration, ...], tuple[tuple[str, int], ...]]


class NodeCapacity:
    """Free capacity of one node. Only `NodeCapacities` changes it. pods_left: how many more pods the kubelet accepts.

    shared: GPUs of which pods hold fractions. The rest of these is free for fractions only.
    """

    __slots__ = ("future", "idle", "index", "node", "pods_left", "shared", "version")

    def __init__(self, node: SnapshotNode, index: int) -> None:
        self.node = node
        self.index = index
        self.idle = node.capacity
        self.future, self.pods_left = empty(node)
        self.shared = SharedGpus()
        self.version = 0

    @property
    def open(self) -> Resources:
        """Free now and not reserved for a nominated pod."""
        one, other = self.idle, self.future
        if one is other or (one.gpu <= other.gpu and one.cpu <= other.cpu and one.memory <= other.memory):
            return one
        return Resources(min(one.gpu, other.gpu), min(one.cpu, other.cpu), min(one.memory, other.memory))

    def fits(self, needed: Resources, *, now: bool) -> bool:
        if not (self.pods_left > 0 and needed.served_by(self.future)) or (now and not needed.served_by(self.idle)):
            return False
        part = is_gpu_fraction(needed.gpu)
        if not part and not self.shared:
            return True
        if part and self.shared.device_for(needed.gpu, now=now) is not None:
            return True
        entire = ENTIRE if part else needed.gpu
        return entire <= self.entire(now=False) and (not now or entire <= self.entire(now=True))

    def entire(self, *, now: bool) -> int:
        """Free GPUs in thousandths, without the rest of shared GPUs."""
        return (self.idle.gpu if now else self.future.gpu) - self.shared.left(now=now)

    def free(self, *, now: bool = True, part: bool = False) -> Resources:
        """Free resources, now or in the future; with `part`, one pod's share of shared GPUs included."""
        amount = self.open if now else self.future
        if not self.shared:
            return amount
        entire = min(self.entire(now=True), self.entire(now=False)) if now else self.entire(now=False)
        if part:
            return amount if entire >= ENTIRE else replace(amount, gpu=self.shared.most(now=now))
        return replace(amount, gpu=entire)

    def device_for(self, gpu: int, *, now: bool) -> str:
        """The device on which a fraction is placed, maybe one that becomes shared; empty for whole GPUs."""
        return (self.shared.device_for(gpu, now=now) or self.shared.new()) if is_gpu_fraction(gpu) else ""


class NodesByGpus:
    """Indexes of nodes by their free GPUs, which the owner changes.

    changed: nodes that may have other GPUs than before. They are moved at the next search: most changes of an attempt
    are undone by then.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = gpus
        self._sorted_by: list[int] = []
        self._amounts: list[int] = []
        self._indexes: dict[int, list[int]] = {}
        self.changed = set(range(len(gpus)))

    def having(self, gpu: int, *, spread: bool = False) -> Iterator[int]:
        """Nodes that have as much, the fullest first; with `spread`, the emptiest first. Ties by index."""
        self._sort()
        amounts = self._amounts[bisect_left(self._amounts, gpu) :]
        return self._in_order(amounts[::-1] if spread else amounts)

    def _in_order(self, amounts: Sequence[int]) -> Iterator[int]:
        for amount in amounts:
            yield from [*self._indexes.get(amount, ())]

    def most(self) -> int:
        """The most GPUs that a node has."""
        self._sort()
        return self._amounts[-1] if self._amounts else 0

    def slots(self, gpu: int) -> int:
        """How many times that much fits on the nodes."""
        self._sort()
        return sum([n // gpu * len(self._indexes[n]) for n in self._amounts[bisect_left(self._amounts, gpu) :]])

    def total(self) -> int:
        """Sum of free GPUs; overcommitted nodes count as zero."""
        self._sort()
        return sum(amount * len(self._indexes[amount]) for amount in self._amounts if amount > 0)

    def _sort(self) -> None:
        if len(self.changed) > len(self._gpus) // 4:
            self._sorted_by, self._indexes = [*self._gpus], {}
            for index, gpu in enumerate(self._gpus):
                self._indexes.setdefault(gpu, []).append(index)
            self._amounts = sorted(self._indexes)
        else:
            for index in self.changed:
                if self._sorted_by[index] != self._gpus[index]:
                    self._move(index, self._sorted_by[index], self._gpus[index])
        self.changed.clear()

    def _move(self, index: int, before: int, gpu: int) -> None:
        left = self._indexes[before]
        del left[bisect_left(left, index)]
        if not left:
            del self._indexes[before]
            self._amounts.remove(before)
        if gpu not in self._indexes:
            self._indexes[gpu] = []
            insort(self._amounts, gpu)
        insort(self._indexes[gpu], index)
        self._sorted_by[index] = gpu


class NodeCapacities:
    """The ready nodes, indexed by free GPUs, so that a search does not visit nodes without free GPUs."""

    def __init__(self, nodes: Iterable[SnapshotNode]) -> None:
        ready = sorted((node for node in nodes if node.ready), key=lambda node: node.order)
        self._capacities = [NodeCapacity(node, index) for index, node in enumerate(ready)]
        self._by_name = {capacity.node.name: capacity for capacity in self._capacities}
        self.gpus = [capacity.future.gpu for capacity in self._capacities]
        """What the future of each room has, by its index."""
        self.by_gpus = NodesByGpus(self.gpus)
        self._matching: dict[Selection, tuple[list[NodeCapacity], frozenset[int]]] = {}
        self._free: dict[tuple[Selection, bool], FreeTotals] = {}
        self._future_gpus = (-1, 0)
        """An age, and their sum then."""
        self._clock = self._settled = 0
        self._before: dict[int, int] = {}
        self.age = 0
        """Another number after every change, and the old one again when all is as it was then."""
        self.changes: list[NodeCapacity] = []
        """Rooms that have changed since all was settled, in order."""
        self._log: list[int] = []
        """Indexes of nodes whose amounts changed, in order; the oldest are forgotten."""
        self._forgotten = 0
        self.moved: list[NodeCapacity] = []
        """Indexes of nodes that changed, in order."""

    @property
    def all(self) -> Sequence[NodeCapacity]:
        """All nodes by index."""
        return self._capacities

    def get(self, name: str | None) -> NodeCapacity | None:
        return None if name is None else self._by_name.get(name)

    def change(
        self, capacity: NodeCapacity, *, idle: Resources = ZERO, future: Resources = ZERO, pods: int = 0
    ) -> None:
        """Add to the free amounts and pod slots; negative amounts take."""
        if future.gpu:
            self.gpus[capacity.index] += future.gpu
            self.by_gpus.changed.add(capacity.index)
        if idle is future and capacity.idle is capacity.future:
            capacity.idle = capacity.future = capacity.idle + idle
        else:
            if idle is not ZERO:
                capacity.idle += idle
            if future is not ZERO:
                capacity.future += future
        capacity.pods_left += pods
        self._before.setdefault(capacity.index, capacity.version)
        self._clock += 1
        capacity.version = self.age = self._clock
        self.changes.append(capacity)
        self._log.append(capacity.index)

    def undo_step(self, capacity: NodeCapacity) -> Callable[[], None]:
        """Return a function that gives a node its present amounts again, once all later changes are undone."""
        known = (capacity.idle, capacity.future, capacity.pods_left, capacity.version)
        return partial(self._put_back, capacity, known, self.age)

    def _put_back(self, capacity: NodeCapacity, known: tuple[Resources, Resources, int, int], age: int) -> None:
        capacity.idle, capacity.future, capacity.pods_left, capacity.version = known
        self.age, self.gpus[capacity.index] = age, capacity.future.gpu
        self.by_gpus.changed.add(capacity.index)
        self.changes.append(capacity)
        self._log.append(capacity.index)

    @property
    def point(self) -> int:
        """A point for `changed_since`."""
        return self._forgotten + len(self._log)

    def changed_since(self, point: int) -> set[int] | None:
        """Indexes of nodes whose amounts changed since then, even if they are as before again; None: not known."""
        return None if point < self._forgotten else {*self._log[point - self._forgotten :]}

    def restored(self) -> None:
        """Note that all changes since `settle` were undone."""
        for index, version in self._before.items():
            self._capacities[index].version = version
        self._before.clear()
        self.changes.clear()
        self.age = self._settled

    def settle(self) -> None:
        """Make the present amounts the ones that undo returns to."""
        self.moved += [self._capacities[index] for index in self._before]
        self._before.clear()
        self.changes.clear()
        self._settled = self.age
        if len(self._log) > MOST_LOGGED:
            self._forgotten += len(self._log)
            self._log.clear()

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present amounts. Call it between cycles."""
        gpus, age = self.gpus.copy(), self.age
        known = [(it.idle, it.future, it.pods_left, it.version, it.shared.copy()) for it in self._capacities]

        def restore() -> None:
            self.gpus[:] = gpus
            self.by_gpus.changed.update(range(len(gpus)))
            for capacity, (idle, future, pods_left, version, shared) in zip(self._capacities, known, strict=True):
                if capacity.version != version:
                    capacity.idle, capacity.future, capacity.pods_left = idle, future, pods_left
                    capacity.version, capacity.shared = version, shared.copy()
                    self.moved.append(capacity)
                    self._log.append(capacity.index)
            self.age = self._settled = age

        return restore

    def share(self, capacity: NodeCapacity, device: str, *, now: int = 0, later: int = 0) -> None:
        """Record the fraction of a device that such a change takes. No device: no fraction."""
        if device:
            capacity.shared.change(device, now=now, later=later)

    def matching(self, group: PodGroup) -> list[NodeCapacity]:
        """Ready nodes that the group may use."""
        return self._match(group)[0]

    def allowed(self, group: PodGroup) -> frozenset[int]:
        """The indexes of these nodes."""
        return self._match(group)[1]

    def _match(self, group: PodGroup) -> tuple[list[NodeCapacity], frozenset[int]]:
        key = selection(group)
        if key not in self._matching:
            found = [capacity for capacity in self._capacities if matches(capacity.node, group)]
            self._matching[key] = (found, frozenset(capacity.index for capacity in found))
        return self._matching[key]

    def find(self, needed: Resources, group: PodGroup, strategy: Strategy, *, now: bool) -> NodeCapacity | None:
        """The best node that fits. Bin-pack: the fullest; spread: the emptiest; ties by node order."""
        if strategy is Strategy.SPREAD or needed.gpu < ENTIRE:
            return next(self.fitting(needed, group, strategy, now=now), None)
        allowed, capacities = self._match(group)[1], self._capacities
        for index in self.by_gpus.having(needed.gpu):  # mostly the first ones fit
            if index in allowed and capacities[index].fits(needed, now=now):
                return capacities[index]
        return None

    def fitting(self, needed: Resources, group: PodGroup, strategy: Strategy, *, now: bool) -> Iterator[NodeCapacity]:
        """Nodes that fit, the best first."""
        spread = strategy is Strategy.SPREAD
        capacities = self.with_gpus(group, needed.gpu, spread=spread) if needed.gpu else self.matching(group)
        found = (capacity for capacity in capacities if capacity.fits(needed, now=now))
        if is_gpu_fraction(needed.gpu):
            return iter(sorted(found, key=lambda capacity: capacity.shared.device_for(needed.gpu, now=now) is None))
        if needed.gpu:
            return found
        sign = -1 if spread else 1
        return iter(sorted(found, key=lambda capacity: (sign * capacity.future.cpu, capacity.index)))

    def with_gpus(self, group: PodGroup, gpu: int, *, spread: bool = False) -> Iterator[NodeCapacity]:
        """Matching nodes with that many future GPUs, the fullest first; with `spread`, the emptiest first."""
        allowed = self._match(group)[1]
        return (self._capacities[index] for index in self.by_gpus.having(gpu, spread=spread) if index in allowed)

    def free(self, group: PodGroup) -> tuple[Resources, Resources]:
        """Free resources now: the sum, and those of the emptiest node."""
        part = wants_part(group)
        key = (selection(group), part)
        if key not in self._free:
            self._free[key] = FreeTotals(self, self.matching(group), part=part)
        return self._free[key].now()

    def future_gpus(self) -> int:
        """Sum of free GPUs, now or in the future; overcommitted nodes count as zero."""
        if self._future_gpus[0] != self.age:
            self._future_gpus = (self.age, self.by_gpus.total())
        return self._future_gpus[1]

    @cached_property
    def capacity(self) -> Resources:
        """Sum of the resources of the ready nodes."""
        return sum_of(capacity.node.capacity for capacity in self._capacities)


class FreeTotals:
    """Sum and largest of what is free now on some nodes; negative amounts count as zero.

    Kept from question to question: only nodes that have changed since are looked at again.
    """

    def __init__(self, capacities: NodeCapacities, matching: Iterable[NodeCapacity], *, part: bool) -> None:
        self._capacities = capacities
        self._part = part
        self._seen = capacities.point
        self._sizes = {capacity.index: self._size(capacity) for capacity in matching}
        self._versions = [capacity.version for capacity in capacities.all]
        self._largest: tuple[int, int, int] | None = None
        self._sum = sum_of(Resources(*size) for size in self._sizes.values())

    def now(self) -> tuple[Resources, Resources]:
        changed = self._capacities.changed_since(self._seen)
        if changed is None:  # too long ago
            changed = {*self._sizes}
        for index in changed & self._sizes.keys():
            capacity = self._capacities.all[index]
            if capacity.version != self._versions[index]:
                self._versions[index] = capacity.version
                self._replace(index, self._size(capacity))
        self._seen = self._capacities.point
        if self._largest is None:
            self._largest = max(self._sizes.values(), default=(0, 0, 0))
        return self._sum, Resources(*self._largest)

    def _replace(self, index: int, size: tuple[int, int, int]) -> None:
        before = self._sizes[index]
        if size != before:
            self._sizes[index] = size
            if self._largest is not None and (size > self._largest or before == self._largest):
                self._largest = size if size > self._largest else None  # None: to be found again
            self._sum += Resources(*size) - Resources(*before)

    def _size(self, capacity: NodeCapacity) -> tuple[int, int, int]:
        free = capacity.free(part=self._part)
        return by_size(free if free.gpu >= 0 and free.cpu >= 0 and free.memory >= 0 else free.floor())


def matches(node: SnapshotNode, group: PodGroup) -> bool:
    """Whether the group may use the node: its pool, node selector, tolerations, and resources that are not tracked."""
    if any(node.more.get(name, 0) < amount for name, amount in group.more.items()):
        return False
    if node.pool != group.pool or not welcome(node.taints, group.tolerations):
        return False
    return all(node.labels.get(key) == value for key, value in group.node_selector.items())


def wants_part(group: PodGroup) -> bool:
    """Whether one of its pods requests a GPU fraction, which can use the rest of shared GPUs."""
    return any(is_gpu_fraction(pod.requests.gpu) for pod in group.pods)


def empty(node: SnapshotNode) -> tuple[Resources, int]:
    """Resources and pod slots of the empty node."""
    return node.capacity, NO_LIMIT if node.max_pods is None else node.max_pods


def slots(free: Resources, requested: Resources) -> int:
    """How many times `requested` fits; an empty request fits once."""
    found = free.gpu // requested.gpu if requested.gpu else NO_LIMIT
    if requested.cpu:
        found = min(found, free.cpu // requested.cpu)
    if requested.memory:
        found = min(found, free.memory // requested.memory)
    return max(found, 0) if requested else 1


def by_size(amount: Resources) -> tuple[int, int, int]:
    """Sort key: GPUs, then CPU, then memory."""
    return (amount.gpu, amount.cpu, amount.memory)


def selection(group: PodGroup) -> Selection:
    """The attributes that decide which nodes a group may use."""
    more = tuple(sorted(group.more.items())) if group.more else ()
    selector = tuple(sorted(group.node_selector.items())) if group.node_selector else ()
    return (group.pool, selector, group.tolerations, more)
