"""Kueue's places on nodes: in a pool with topology levels it admits only what has some, in one domain where it asks so.

Source: Kueue 0.19, topology-aware scheduling (its flavor assigner and its snapshot of a flavor's topology).

- Nodes that lack the label of a level take nothing of its queues; pods of others count for the room they hold.
- A domain in which all pods may start now goes before one whose room is on its way; of several, the one that has room
  for fewest of them. In pools without levels everything has its place.
"""

from dataclasses import replace
from typing import Final

from scheduling.board import Board, Placed
from scheduling.domains import TightDomains
from scheduling.explain import impossible, no_room
from scheduling.model import Node, PodGroup, Snapshot, Strategy, total
from scheduling.nodeless import without_node
from scheduling.reasons import Pend

ANYWHERE: Final = Placed({}, now=True)
"""Where nobody looks at nodes."""


class Places:
    """Room on the nodes of one cycle. Changed by `take`, `leave` and `come_back` only."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._levels = snapshot.levels
        nodes = tuple(node if self._usable(node) else replace(node, ready=False) for node in snapshot.nodes)
        known = replace(snapshot, nodes=nodes, groups=snapshot.groups if self._levels else ())
        self._board = Board(known, default=Strategy.BINPACK, domains=TightDomains)

    def _usable(self, node: Node) -> bool:
        return node.pool in self._levels and all(map(node.labels.get, self._levels[node.pool]))

    def matter(self, group: PodGroup) -> bool:
        """Does it need places at all?"""
        return group.pool in self._levels

    def find(self, group: PodGroup) -> Placed | None:
        """Where all its pods would go; None: there is no room for them."""
        mark = self._board.mark()
        placed = self.take(group)
        self._board.undo(mark)
        return placed

    def take(self, group: PodGroup) -> Placed | None:
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

    def refusal(self, group: PodGroup) -> Pend:
        """Why it finds no places now, with how many of its pods would find some."""
        pods, domains = group.waiting, self._board.domains(group)
        left_out = min((len(without_node(self._board, each, now=True)) for each in domains), default=len(pods))
        pend = impossible(self._board, group, pods) or no_room(self._board, group, pods)
        return replace(pend, fitting=len(pods) - left_out)
