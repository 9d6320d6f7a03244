"""Kueue's places on nodes: in a pool with topology levels it admits only what has some, in one domain where it asks so.

Source: Kueue 0.19, topology-aware scheduling (its flavor assigner and its snapshot of a flavor's topology).

- Nodes that lack the label of a level take nothing of its queues; pods of others count for the room they hold.
- A domain in which all pods may start now goes before one whose room is on its way; of several, the one that has room
  for fewest of them. In pools without levels everything has its place.
"""

from collections import Counter
from collections.abc import Collection, Iterable
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
"""Where nobody looks at nodes."""


class DomainTally:
    """How many pods that are all alike each domain has room for. Only nodes that have changed are counted again."""

    def __init__(self, board: SchedulingState, group: PodGroup) -> None:
        self._rooms = board.rooms
        self._each = group.waiting[0].requests
        self._homes: dict[int, int] = {}
        self._slots = Counter[int]()
        self._sums = Counter[int]()
        self._seen = len(board.rooms.changes)
        for number, domain in enumerate(board.domains(group)):
            for room in board.rooms.matching(domain):
                self._homes[room.index] = number
                self._count(room)

    def _count(self, room: NodeCapacity) -> None:
        if (home := self._homes.get(room.index)) is not None:
            found = min(slots(room.future, self._each), max(room.pods_left, 0))
            self._sums[home] += found - self._slots[room.index]
            self._slots[room.index] = found

    def most(self) -> int:
        """In the domain that has room for most."""
        for room in {room.index: room for room in self._rooms.changes[self._seen :]}.values():
            self._count(room)
        self._seen = len(self._rooms.changes)
        return max(self._sums.values(), default=0)


class TopologyCapacity:
    """Room on nodes. Changed by `take`, `leave` and `come_back` only, until it is restored."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._levels = snapshot.levels
        nodes = tuple(node if self._usable(node) else replace(node, ready=False) for node in snapshot.nodes)
        known = replace(snapshot, nodes=nodes, groups=snapshot.groups if self._levels else ())
        self._board = SchedulingState(known, default=Strategy.BINPACK, domains=TightDomains)
        self._tallies: dict[str, DomainTally | None] = {}

    def _usable(self, node: SnapshotNode) -> bool:
        return node.pool in self._levels and all(map(node.labels.get, self._levels[node.pool]))

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """These pod groups leave the cluster, those come into it."""
        if self._levels:
            self._board.exchange(gone, come)

    def about(self, names: Collection[str] | None) -> None:
        """Whose refusals are wanted with their numbers; None: all."""
        self._board.about = names

    def restore(self) -> None:
        """Take back everything since it was made or settled."""
        self._board.restore()
        self._tallies.clear()

    def settle(self) -> None:
        """What it is now is what it is brought back to."""
        self._board.settle()

    def matter(self, group: PodGroup) -> bool:
        """Does it need places at all?"""
        return group.pool in self._levels

    def suffice(self, group: PodGroup) -> bool:
        """Is there room for all its pods, now or on its way?"""
        if not self.matter(group):
            return True
        if group.name not in self._tallies:
            self._tallies[group.name] = DomainTally(self._board, group) if _alike(group) else None
        tally = self._tallies[group.name]
        return self.find(group) is not None if tally is None else tally.most() >= len(group.waiting)

    def find(self, group: PodGroup) -> PlacedPods | None:
        """Where all its pods would go; None: there is no room for them."""
        mark = self._board.mark()
        placed = self.take(group)
        self._board.undo(mark)
        return placed

    def take(self, group: PodGroup) -> PlacedPods | None:
        """They go there."""
        if not self.matter(group):
            return ANYWHERE
        domains, later = self._board.domains(group, total(group.pods)), list[PodGroup]()
        for domain in domains:
            mark = self._board.mark()
            placed = self._board.place_together(domain, group.waiting)
            if placed and placed.now:
                return placed
            if placed:
                later.append(domain)
            self._board.undo(mark)
        return self._board.place_together(later[0], group.waiting) if later else None

    def leave(self, group: PodGroup) -> None:
        """It is evicted: its room is free once its pods have ended. Who is on the way out already is counted so."""
        for seat in self._board.seats_of.get(group.name, ()):
            if not seat.pod.terminating:
                self._board.evict(seat)

    def come_back(self, group: PodGroup) -> None:
        """It is not evicted after all."""
        for seat in self._board.seats_of.get(group.name, ()):
            if not seat.pod.terminating:
                self._board.keep(seat)

    def refusal(self, group: PodGroup) -> PendingReason:
        """Why it finds no places now, with how many of its pods would find some."""
        pods, domains = group.waiting, self._board.domains(group)
        left_out = min((len(pods_without_node(self._board, each, now=True)) for each in domains), default=len(pods))
        pend = impossible(self._board, group, pods) or no_room(self._board, group, pods)
        return replace(pend, fitting=len(pods) - left_out)


def _alike(group: PodGroup) -> bool:
    """Its pods ask for the same, and for something."""
    asked = {pod.requests for pod in group.waiting}
    return len(asked) == 1 and ZERO not in asked
