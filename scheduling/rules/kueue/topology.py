"""Kueue's topology-aware scheduling: in a pool with topology levels it admits only workloads that fit on nodes.

Source: Kueue 0.19, topology-aware scheduling (its flavor assigner and its snapshot of a flavor's topology).

- Nodes that lack the label of a level are not used; pods of others count for the capacity they hold.
- A domain in which all pods can start now precedes one whose capacity is being freed; of several, the one that fits
  fewest pods. In pools without levels everything fits.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from scheduling.model.reasons import PendingReason
from scheduling.model.resources import ZERO
from scheduling.model.snapshot import PodGroup, Snapshot, SnapshotNode, Strategy, total
from scheduling.state.cluster_state import PlacedPods, SchedulingState
from scheduling.state.node_capacity import NodeCapacity, slots
from scheduling.state.refusals import impossible, no_room, pods_without_node
from scheduling.state.topology_domains import TightDomains

ANYWHERE: Final = PlacedPods({}, now=True)
"""For pools in which nodes do not count."""


class DomainTally:
    """How many identical pods fit in each domain. Only nodes that have changed are counted again."""

    def __init__(self, state: SchedulingState, group: PodGroup) -> None:
        self._capacities = state.capacities
        self._each = group.waiting[0].requests
        self._homes: dict[int, int] = {}
        self._slots = Counter[int]()
        self._sums = Counter[int]()
        self._seen = len(state.capacities.changes)
        for number, domain in enumerate(state.domains(group)):
            for capacity in state.capacities.matching(domain):
                self._homes[capacity.index] = number
                self._count(capacity)

    def _count(self, capacity: NodeCapacity) -> None:
        if (home := self._homes.get(capacity.index)) is not None:
            found = min(slots(capacity.future, self._each), max(capacity.pods_left, 0))
            self._sums[home] += found - self._slots[capacity.index]
            self._slots[capacity.index] = found

    def most(self) -> int:
        """The number in the domain that fits most."""
        for capacity in {capacity.index: capacity for capacity in self._capacities.changes[self._seen :]}.values():
            self._count(capacity)
        self._seen = len(self._capacities.changes)
        return max(self._sums.values(), default=0)


class TopologyCapacity:
    """Capacity of nodes. Changed by `take`, `leave` and `come_back` only, until `restore`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._levels = snapshot.levels
        nodes = tuple(node if self._usable(node) else replace(node, ready=False) for node in snapshot.nodes)
        known = replace(snapshot, nodes=nodes, groups=snapshot.groups if self._levels else ())
        self._state = SchedulingState(known, default=Strategy.BINPACK, domains=TightDomains)
        self._tallies: dict[str, DomainTally | None] = {}

    def _usable(self, node: SnapshotNode) -> bool:
        return node.pool in self._levels and all(map(node.labels.get, self._levels[node.pool]))

    def advance(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups permanently: `restore` returns to the new state."""
        if self._levels:
            self._state.advance(gone, come)

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        return self._state.restore_point()

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups until `restore`."""
        if self._levels:
            self._state.exchange(gone, come)

    def about(self, names: Collection[str] | None) -> None:
        """Names of the groups whose refusals need numbers; None: all."""
        self._state.about = names

    def restore(self) -> None:
        """Undo everything since the state was created or advanced."""
        self._state.restore()
        self._tallies.clear()

    def matter(self, group: PodGroup) -> bool:
        """Whether it needs places on nodes."""
        return group.pool in self._levels

    def suffice(self, group: PodGroup) -> bool:
        """Whether all its pods fit, now or once capacity is freed."""
        if not self.matter(group):
            return True
        if group.name not in self._tallies:
            self._tallies[group.name] = DomainTally(self._state, group) if _alike(group) else None
        tally = self._tallies[group.name]
        return self.find(group) is not None if tally is None else tally.most() >= len(group.waiting)

    def find(self, group: PodGroup) -> PlacedPods | None:
        """The nodes for all its pods; None if they do not fit."""
        mark = self._state.mark()
        placed = self.take(group)
        self._state.undo(mark)
        return placed

    def take(self, group: PodGroup) -> PlacedPods | None:
        """Take these places."""
        if not self.matter(group):
            return ANYWHERE
        domains, later = self._state.domains(group, total(group.pods)), list[PodGroup]()
        for domain in domains:
            mark = self._state.mark()
            placed = self._state.place_together(domain, group.waiting)
            if placed and placed.now:
                return placed
            if placed:
                later.append(domain)
            self._state.undo(mark)
        return self._state.place_together(later[0], group.waiting) if later else None

    def leave(self, group: PodGroup) -> None:
        """Evict: its capacity is free once its pods have ended. Terminating pods count so already."""
        for assignment in self._state.assignments_of.get(group.name, ()):
            if not assignment.pod.terminating:
                self._state.evict(assignment)

    def come_back(self, group: PodGroup) -> None:
        """Undo `leave`."""
        for assignment in self._state.assignments_of.get(group.name, ()):
            if not assignment.pod.terminating:
                self._state.keep(assignment)

    def refusal(self, group: PodGroup) -> PendingReason:
        """Why it does not fit now, with how many of its pods would."""
        pods, domains = group.waiting, self._state.domains(group)
        left_out = min((len(pods_without_node(self._state, each, now=True)) for each in domains), default=len(pods))
        pend = impossible(self._state, group, pods) or no_room(self._state, group, pods)
        return replace(pend, fitting=len(pods) - left_out)


def _alike(group: PodGroup) -> bool:
    """Whether its pods have equal, non-empty requests."""
    asked = {pod.requests for pod in group.waiting}
    return len(asked) == 1 and ZERO not in asked
