"""Topology domains: those of a group, and the order in which a scheduler tries them.

Without levels a domain is a value of a label. With levels it is a path of values, from the widest level to the
requested one, of nodes that carry all labels.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from scheduling.model.resources import ZERO, Resources
from scheduling.model.snapshot import PodGroup, Snapshot, SnapshotNode
from scheduling.state.node_capacity import NodeCapacity, by_size, slots

NO_ROOM: Final = 1000.0
"""What KAI takes for the part of nothing that is asked for."""

Path = tuple[str, ...]


class TopologyDomains(ABC):
    """The nodes of a snapshot, each with an additional label per level: the path of its domain."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._levels = snapshot.levels
        self._paths = {node.name: self._path(node) for node in snapshot.nodes}
        self.nodes = tuple(map(self._marked, snapshot.nodes))

    def _path(self, node: SnapshotNode) -> Path:
        levels = self._levels.get(node.pool, ())
        return tuple(node.labels[level] for level in levels) if all(map(node.labels.get, levels)) else ()

    def _marked(self, node: SnapshotNode) -> SnapshotNode:
        path, levels = self._paths[node.name], self._levels.get(node.pool, ())
        if not path:
            return node
        marks = {_mark(level): _name(path[:depth]) for depth, level in enumerate(levels, start=1)}
        return replace(node, labels={**node.labels, **marks})

    def key(self, group: PodGroup) -> str:
        """The label whose value names the domain for this group."""
        level = str(group.topology)
        return _mark(level) if level in self._levels.get(group.pool, ()) else level

    @abstractmethod
    def ordered(
        self, group: PodGroup, requested: Resources, capacities: Iterable[NodeCapacity], among: Collection[str] | None
    ) -> list[str]:
        """Names of the domains, as the key's values, in the order in which they are tried. among: names of nodes."""


class KaiDomains(TopologyDomains):
    """Level by level the domain that the new group fills most, then by name.

    Source: KAI's plugin `topology`. As in KAI, there is no domain if all considered nodes are in one domain *below* the
    requested level, because KAI then counts the capacity of that one only.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._pool = {node.name: node.pool for node in snapshot.nodes}

    def ordered(
        self, group: PodGroup, requested: Resources, capacities: Iterable[NodeCapacity], among: Collection[str] | None
    ) -> list[str]:
        key, levels = self.key(group), self._levels.get(group.pool, ())
        free: dict[str, Resources] = {}
        for capacity in capacities:
            if (name := capacity.node.labels.get(key)) is not None:
                free[name] = free.get(name, ZERO) + capacity.future
        if key == group.topology:
            return sorted(free, key=lambda name: (by_size(free[name]), name))
        depth = levels.index(str(group.topology)) + 1
        if self._common(group.pool, among) > depth:
            return []
        return self._by_level(free, requested, depth)

    def _common(self, pool: str, among: Collection[str] | None) -> int:
        """Number of levels at which all these nodes share a domain."""
        names = (name for name, its in self._pool.items() if its == pool and (among is None or name in among))
        paths = [self._paths[name] for name in names if self._paths[name]]
        depth = 0
        for values in zip(*paths, strict=True):
            if len(set(values)) > 1:
                break
            depth += 1
        return depth

    @staticmethod
    def _by_level(free: Mapping[str, Resources], requested: Resources, depth: int) -> list[str]:
        """The fullest first on each level, from the widest."""
        paths = {name: tuple(name.split(SEPARATOR)) for name in free}
        sums: dict[Path, Resources] = {}
        for name, path in paths.items():
            for end in range(1, depth + 1):
                sums[path[:end]] = sums.get(path[:end], ZERO) + free[name]
        keys = {path: (-_part(requested, amount), ".".join(path)) for path, amount in sums.items()}
        return sorted(free, key=lambda name: [keys[paths[name][:end]] for end in range(1, depth + 1)])


class KueueDomains(TopologyDomains):
    """First the domain that fits fewest of the pods, so that the first sufficient one is the tightest; then by name."""

    def ordered(
        self, group: PodGroup, requested: Resources, capacities: Iterable[NodeCapacity], among: Collection[str] | None
    ) -> list[str]:
        key, fitting = self.key(group), Counter[str]()
        largest = max((pod.requests for pod in group.waiting), key=by_size, default=requested)
        named = [(each.node.labels[key], each) for each in capacities if key in each.node.labels]
        for name, capacity in named:
            fitting[name] += min(slots(capacity.future, largest), max(capacity.pods_left, 0))
        return sorted(fitting, key=lambda name: (fitting[name], name.split(SEPARATOR)))


SEPARATOR: Final = "/"


def _mark(level: str) -> str:
    """A label key that no node can have: it contains a space."""
    return f"domain of {level}"


def _name(path: Path) -> str:
    return SEPARATOR.join(path)


def _part(requested: Resources, free: Resources) -> float:
    """Largest requested part of the free amounts, over all resources."""
    pairs = ((requested.gpu, free.gpu), (requested.cpu, free.cpu), (requested.memory, free.memory))
    return max((part / left if left > 0 else NO_ROOM for part, left in pairs if part), default=0.0)
