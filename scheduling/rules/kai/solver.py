"""KAI's search for victims: one more at a time, tried with others on its nodes; victims not needed are put back.

Source: KAI's job solver. Potential victims are added in order. After each, some scenarios of them are tried
(`scenarios`): their pods are removed, and all groups are placed again in the usual order. The candidate must fit.
Victims that fit stay on their nodes, or move to nodes with free capacity. The first scenario that the action accepts is
the solution, so victims are not always those of lowest priority.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, total
from scheduling.rules.kai.order import KaiQueueShares, ScheduleOrder, WaitingLeaf, groups_by_queue, with_waiting
from scheduling.rules.kai.scenarios import MOST_TRIES, Generator, PotentialVictims, VictimLine
from scheduling.rules.kai.victims import Unit, VictimQueue
from scheduling.state.assignments import Assignment, held
from scheduling.state.cluster_state import SchedulingState
from scheduling.state.node_capacity import NodeCapacity

GENERATORS: Final[tuple[tuple[Generator, int | None], ...]] = (
    (PotentialVictims.around, None),
    (PotentialVictims.across, MOST_TRIES),
)
"""In order, each with the maximum number of its scenarios."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Victims, nodes by name of the candidate's pods, and the new nodes of victims that move.

    units: those removed together with the victims, including pods that stay in the end. exact: no others were removed.
    """

    victims: tuple[Assignment, ...]
    nominated: dict[str, str]
    moves: dict[Assignment, str]
    units: tuple[Unit, ...]
    exact: bool


class Solver:
    """Searches by changing the state. A solution stays applied; a failed search is undone.

    only_moves: all victims must be placed again.
    """

    def __init__(
        self,
        shares: KaiQueueShares,
        group: PodGroup,
        victims: Mapping[str, VictimQueue],
        accepts: Callable[[Resources, Sequence[Assignment]], bool],
        waiting: Mapping[str, WaitingLeaf],
        *,
        only_moves: bool,
    ) -> None:
        self._shares = shares
        self._state = shares.state
        self._group = group
        self._only_moves = only_moves
        self._victims = victims.values()
        self._line = VictimLine.of_queues(shares, victims, min(pod.requests.gpu for pod in group.waiting))
        self._accepts = accepts
        self._waiting = waiting
        self._failed: set[tuple[int, int, frozenset[Assignment]]] = set()
        self._hopeful = False

    def solve(self, pods: tuple[Pod, ...]) -> Solution | None:
        """Search victims so that all these pods fit, first those of one node at a time, then of several."""
        least = min(pod.requests.gpu for pod in pods)
        if least and not self._line.has_room(least, len(pods), self._state.capacities.by_gpus.slots(least)):
            return None
        if least and self._only_moves and not self._moves_may_help(least, pods):
            return None
        for generator, most in GENERATORS:
            found = self._search(pods, generator, most)
            if found or not self._hopeful:
                return found
        return None

    def _moves_may_help(self, least: int, pods: Sequence[Pod]) -> bool:
        """Whether these pods, of at least that many GPUs, may fit once all victims have moved."""
        units = (victim.unit for queue in self._victims for victim in queue.victims)
        slots = sum(pod.requests.gpu // least for pod in pods)
        return self._line.slots_after_moves(least, chain.from_iterable(units)) >= slots

    def _search(self, pods: tuple[Pod, ...], generator: Generator, most: int | None) -> Solution | None:
        """Find the largest number of pods that fits by doubling and bisecting; keep its victims for all pods.

        The last search, for all pods, is left out where it would repeat an earlier one.
        """
        recorded: tuple[Unit, ...] = ()
        solved, failed, count = 0, len(pods) + 1, 1
        has_failed = False  # for all pods, with the present recorded victims
        while failed - solved > 1:
            start = self._state.mark()
            found = self._solve(pods[:count], recorded, generator, most)
            if found and found.exact and count == len(pods):
                return found
            self._state.undo(start)
            if found:
                recorded, solved, has_failed = found.units, count, False
            else:
                failed, has_failed = count, has_failed or count == len(pods)
            doubled = min(2 * count, len(pods))
            count = doubled if failed > len(pods) else (solved + failed) // 2
        return self._solve(pods, recorded, generator, most) if solved and not has_failed else None

    def _solve(
        self,
        pods: tuple[Pod, ...],
        recorded: tuple[Unit, ...],
        generator: Generator,
        most: int | None,
    ) -> Solution | None:
        gone = [assignment for unit in recorded for assignment in unit]
        potential = PotentialVictims(self._state, self._group, pods, gone, self._line, only_moves=self._only_moves)
        if recorded and potential.fits_already and (solution := self._attempt(pods, recorded)):
            return solution
        tried = set[tuple[Unit, ...]]()
        for scenario in map(tuple, islice(self._scenarios(potential, generator), most)):
            if scenario in tried:
                continue
            tried.add(scenario)
            if potential.may_fit(scenario) and (solution := self._attempt(pods, (*recorded, *scenario))):
                return solution
        return None

    def _scenarios(self, potential: PotentialVictims, generator: Generator) -> Iterator[list[Unit]]:
        for _step in potential.steps(local=generator is PotentialVictims.around):
            self._hopeful = True
            yield from generator(potential)

    def _attempt(self, pods: tuple[Pod, ...], units: tuple[Unit, ...]) -> Solution | None:
        """Remove these units and place all groups again."""
        counted = [assignment for unit in units for assignment in unit]
        removed = list(dict.fromkeys(counted))
        scenario = (len(pods), len(counted), frozenset(removed))
        if scenario in self._failed:
            return None
        start = self._state.mark()
        self._state.evict(*removed)
        trial = _Trial(self._shares, self._group, pods, removed, self._waiting, only_moves=self._only_moves)
        if trial.run() and self._accepts(total(pods), [s for s in counted if s.leaving and s not in trial.moves]):
            gone = dict.fromkeys(trial.gone())
            needed = tuple(unit for unit in units if not gone.keys().isdisjoint(unit))
            return Solution(tuple(gone), trial.nominated, trial.moves, needed, exact=needed == units)
        self._failed.add(scenario)
        self._state.undo(start)
        return None


class _Trial:
    """Places the candidate and the removed groups again, in KAI's order.

    Other waiting groups are not placed, but they count for the position of their queues.
    """

    def __init__(
        self,
        shares: KaiQueueShares,
        group: PodGroup,
        pods: tuple[Pod, ...],
        removed: Sequence[Assignment],
        waiting: Mapping[str, WaitingLeaf],
        *,
        only_moves: bool,
    ) -> None:
        self._shares = shares
        self._state = shares.state
        self._group = group
        self._only_moves = only_moves
        self._pods = pods
        self._removed = removed
        self._waiting = waiting
        self._among = frozenset[str]()
        self.nominated: dict[str, str] = {}
        self.moves: dict[Assignment, str] = {}
        self._least = min(pod.requests.gpu for pod in pods)
        self._allowed = self._state.capacities.allowed(group)
        self._slots = 0
        if any(each.topology for each in (group, *(assignment.group for assignment in removed))):
            self._among = frozenset(capacity.node.name for capacity in self._state.capacities.with_gpus(group, 1))

    def gone(self) -> list[Assignment]:
        """Assignments that stay removed, including those that move."""
        return [assignment for assignment in self._removed if assignment.leaving]

    def run(self) -> bool:
        """Return whether all pods of the candidate were placed, and with `only_moves` all others."""
        gone = set(self._removed)
        names = dict.fromkeys(assignment.group.name for assignment in self._removed)
        returning = {
            name: [assignment for assignment in self._state.assignments_of[name] if assignment in gone]
            for name in names
        }
        offers = {name: _offer(self._state, assignments) for name, assignments in returning.items()}
        entries = [(assignments[0].group, held(offers[name])) for name, assignments in returning.items()]
        leaves = groups_by_queue(self._shares, [(self._group, total(self._pods)), *entries])
        left = {self._group.name, *offers}
        self._slots = self._slots_now()
        turns = iter(ScheduleOrder(self._shares, with_waiting(self._shares, leaves, self._waiting)))
        while left:
            group, _amount = next(turns)
            if group is self._group:
                if not self._place_candidate():
                    return False
            elif group.name in left:
                is_back = self._put_back(group, offers[group.name])
                if (self._only_moves and not is_back) or (self._group.name in left and self._slots < len(self._pods)):
                    return False  # others only take
            left.discard(group.name)
        return True

    def _slots_now(self) -> int:
        """How many pods of the candidate its nodes may have GPUs for, until others take some."""
        if not self._least:
            return len(self._pods)
        capacities = self._state.capacities.with_gpus(self._group, self._least)
        return sum(capacity.future.gpu // self._least for capacity in capacities)

    def _place_candidate(self) -> bool:
        if self._state.refusal(self._group, total(self._pods)):
            return False
        return any(self._place_in(domain) for domain in self._domains(self._group, total(self._pods)))

    def _domains(self, group: PodGroup, requested: Resources) -> list[PodGroup]:
        """Topology domains among the nodes that had free GPUs after the removal."""
        return self._state.domains(group, requested, among=self._among)

    def _place_in(self, domain: PodGroup) -> bool:
        """Place all of the candidate's pods in one topology domain, or none."""
        start = self._state.mark()
        found: dict[str, str] = {}
        for pod in self._pods:
            capacity = self._capacity(domain, pod.requests)
            if capacity is None:
                self._state.undo(start)
                return False
            self._state.place(domain, pod, capacity, now=False)
            found[pod.name] = capacity.node.name
        self.nominated = found
        return True

    def _put_back(self, group: PodGroup, assignments: Sequence[Assignment]) -> bool:
        """Put all of them back or none: on their own nodes or on others, in one topology domain if required."""
        if self._state.refusal(group, held(assignments)):
            return False
        return any(self._put_into(domain, assignments) for domain in self._domains(group, held(assignments)))

    def _put_into(self, domain: PodGroup, assignments: Sequence[Assignment]) -> bool:
        start, slots = self._state.mark(), self._slots
        moves: dict[Assignment, str] = {}
        for assignment in assignments:
            capacity = self._capacity(domain, assignment.pod.requests)
            if capacity is None:
                self._state.undo(start)
                self._slots = slots
                return False
            if self._least and capacity.index in self._allowed:
                gpu, requested = max(capacity.future.gpu, 0), assignment.pod.requests.gpu
                self._slots -= gpu // self._least - max(gpu - requested, 0) // self._least
            if capacity is assignment.capacity:
                self._state.keep(assignment)
            else:
                self._state.place(domain, assignment.pod, capacity, now=False)
                moves[assignment] = capacity.node.name
        self.moves |= moves
        return True

    def _capacity(self, group: PodGroup, requested: Resources) -> NodeCapacity | None:
        """Return a node with free capacity, else one whose capacity is being freed."""
        return self._state.find(group, requested, now=True) or self._state.find(group, requested, now=False)


def _offer(state: SchedulingState, assignments: Sequence[Assignment]) -> Sequence[Assignment]:
    """The pods of a group that KAI places again: up to its minimum, or one more pod."""
    group = assignments[0].group
    return assignments[: max(group.min_member - state.active[group.name], 1)]


_Key = tuple[object, ...]
"""Signature of equivalent requests."""


class VictimSearchMemo:
    """Failed searches for victims: an equal or larger request of the same queue need not be searched."""

    def __init__(self) -> None:
        self._failed: dict[_Key, list[tuple[int, Resources]]] = {}

    @staticmethod
    def _key(group: PodGroup) -> _Key:
        return (group.queue, group.preemptible, group.tolerations)

    def add(self, group: PodGroup, chunk: tuple[Pod, ...]) -> None:
        """Remember that the search for these pods failed."""
        if not group.node_selector and not group.topology and len({pod.requests for pod in chunk}) == 1:
            self._failed.setdefault(self._key(group), []).append((len(chunk), chunk[0].requests))

    def covers(self, group: PodGroup, chunk: tuple[Pod, ...]) -> bool:
        """Whether a smaller request of the same queue failed. (Later groups have no higher priority.)"""
        return any(
            count <= len(chunk) and all(requested.fits_in(pod.requests) for pod in chunk)
            for count, requested in self._failed.get(self._key(group), ())
        )


class FailureMemo:
    """The smallest failed request per signature. Requests that are no smaller are skipped, even if they could succeed.

    Source: KAI's `MinimalJobRepresentatives` and its signature of scheduling constraints, which holds the priority and
    the number of pods, but neither preemptibility nor size.
    across_queues: a failure counts for all queues.
    """

    def __init__(self, *, across_queues: bool) -> None:
        self._across_queues = across_queues
        self._easiest: dict[_Key, list[Resources]] = {}

    def add(self, group: PodGroup, pods: Sequence[Pod]) -> None:
        """Remember that all waiting pods of the group failed."""
        known, sizes = self._easiest.get(self._key(group, pods)), _sizes(pods)
        if known is None or all(mine.fits_in(theirs) for mine, theirs in zip(sizes, known, strict=True)):
            self._easiest[self._key(group, pods)] = sizes

    def covers(self, group: PodGroup, pods: Sequence[Pod]) -> bool:
        """Whether a request no larger than this one failed."""
        known = self._easiest.get(self._key(group, pods))
        return known is not None and not any(
            mine.fits_in(theirs) and mine != theirs for mine, theirs in zip(_sizes(pods), known, strict=True)
        )

    def _key(self, group: PodGroup, pods: Sequence[Pod]) -> _Key:
        where = frozenset(group.node_selector.items())
        alike = (group.priority, group.tolerations, where, group.topology, len(pods))
        return alike if self._across_queues else (group.queue, *alike)


def _sizes(pods: Sequence[Pod]) -> list[Resources]:
    return sorted(
        (pod.requests for pod in pods), key=lambda requested: (requested.gpu, requested.cpu, requested.memory)
    )
