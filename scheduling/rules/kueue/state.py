"""The working state for Kueue: quotas in use, admitted and waiting work by queue, and capacity of nodes."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Final

from scheduling.model.decisions import Wait
from scheduling.model.reasons import PendingReason
from scheduling.model.resources import ZERO, Resources, sum_of
from scheduling.model.snapshot import PodGroup, Snapshot
from scheduling.rules.kueue.capacity import QuotaShare, TopologyCapacity, tree_of
from scheduling.rules.kueue.preemption import AdmittedWorkload, Claims, KueueCandidate, by_share, may_gain

MOST_REFUSED: Final = 1000
"""Searches of a tree to remember: more than there are workloads that wait in it at one time."""
_VICTIM_ORDER: Final = attrgetter("order")
Turn = tuple[bool, int, int, str, KueueCandidate]
"""`line_key` of a waiting workload, and itself."""
Search = tuple[str, int, int, int, int, int]
"""What a search for victims depends on beside the use of quotas. Plain numbers, because it is looked up very often."""


class WaitingLine:
    """What waits in one queue, in order of turn.

    by_gpus: the same by requested GPUs; under 0 also what its queue can never hold.
    """

    __slots__ = ("by_gpus", "turns")

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.by_gpus: dict[int, list[Turn]] = defaultdict(list)

    def add(self, case: KueueCandidate) -> None:
        for turns in (self.turns, self._alike(case)):
            insort(turns, (*line_key(case.group), case))

    def remove(self, case: KueueCandidate) -> None:
        for turns in (self.turns, self._alike(case)):
            del turns[bisect_left(turns, (*line_key(case.group), case))]

    def _alike(self, case: KueueCandidate) -> list[Turn]:
        return self.by_gpus[case.needed.gpu if case.needed.served_by(case.share.capacity) else 0]

    def copy(self) -> "WaitingLine":
        found = WaitingLine()
        found.turns = self.turns.copy()
        found.by_gpus.update((gpus, turns.copy()) for gpus, turns in self.by_gpus.items())
        return found

    def next_hope(self, begin: int, claims: Claims) -> int:
        """Index of the first workload from here on that may be admitted now; the length of the line if there is none.

        Of those that ask for as many GPUs, the first has the best chance, unless it goes first because it evicts.
        """
        first, found = self.turns[begin], list[Turn]()
        reach = first[-1].share.gpus_in_reach()
        for gpus, turns in self.by_gpus.items():
            place = bisect_left(turns, first)
            if place < len(turns) and (not (gpus and turns[place][0]) or may_gain(turns[place][-1], claims, reach)):
                found.append(turns[place])
        return bisect_left(self.turns, min(found)) if found else len(self.turns)


@dataclass(slots=True, eq=False)
class QuotaTree:
    """Queues that share cohorts, or all queues where others count as well (fair sharing, topology levels).

    version: another number after every change of their use, and the old one again once all is as it was then.
    lines: waiting work by queue. searches: those that found nothing, with the version then.
    waits: a version, and the refusals of all waiting work then, if all of it was refused; None: not listed.
    """

    version: int = 0
    lines: dict[str, WaitingLine] = field(default_factory=dict)
    searches: dict[Search, tuple[int, PendingReason]] = field(default_factory=dict)
    waits: tuple[int, Sequence[Wait] | None] | None = None

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present values."""
        version, waits, lines = self.version, self.waits, {name: line.copy() for name, line in self.lines.items()}

        def restore() -> None:
            self.version, self.waits = version, waits
            self.lines = {name: line.copy() for name, line in lines.items()}

        return restore


class KueueState:
    """Mutable. `charge` and `evict` change it until `restore`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.rows = {name: row for name, row in snapshot.queue_by_name.items() if name not in snapshot.parents}
        self.shares: Final = tree_of(snapshot.queues)
        self.places: Final = TopologyCapacity(snapshot)
        self.claims: Final[dict[tuple[str, bool], list[AdmittedWorkload]]] = defaultdict(list)
        self.counts_nodes: Final = bool(snapshot.levels)
        self.trees: Final = self._trees(is_one=self.counts_nodes or bool(snapshot.fair_sharing))
        """By queue."""
        self._known: Final[dict[str, AdmittedWorkload]] = {}
        self._waiting: Final[dict[str, KueueCandidate]] = {}
        self.homeless: dict[str, PodGroup] = {}
        """Waiting work without a queue; replaced when it changes."""
        self._journal: Final[list[Callable[[], object]]] = []
        self._clock = 0
        self._begin(snapshot.groups)

    def _trees(self, *, is_one: bool) -> dict[str, QuotaTree]:
        by_root: dict[str, QuotaTree] = defaultdict(QuotaTree)
        found = {name: by_root["" if is_one else self.shares[name].path[-1].name] for name in self.rows}
        for name, tree in found.items():
            tree.lines[name] = WaitingLine()
        return found

    def _begin(self, groups: Iterable[PodGroup]) -> None:
        self._exchange_homeless((), groups)
        for group in groups:
            if (claim := self._claim(group)) is not None:
                claim.share.charge(claim.amount)
                self._known[group.name] = claim
                self.claims[claim.line].append(claim)
            elif (case := self._candidate(group)) is not None:
                self._line_up(case)
        for claims in self.claims.values():
            claims.sort(key=_VICTIM_ORDER)

    def _claim(self, group: PodGroup) -> AdmittedWorkload | None:
        """The admitted workload; None if no queue of this tree admitted it."""
        return self._admitted(group) if group.queue in self.rows and admitted(group) else None

    def _admitted(self, group: PodGroup) -> AdmittedWorkload:
        order = (group.priority, -group.age_key, group.name)
        return AdmittedWorkload(group, group.total, self.shares[group.queue], _leaving(group), self.places, order)

    def _candidate(self, group: PodGroup) -> KueueCandidate | None:
        """The waiting workload; None if it is admitted, or has no pods or no queue."""
        if group.queue not in self.rows or not group.pods or admitted(group):
            return None
        return KueueCandidate(group, self.rows[group.queue], self.shares[group.queue], group.total)

    def _exchange_homeless(self, gone: Collection[str], come: Iterable[PodGroup]) -> None:
        more = {each.name: each for each in come if each.queue not in self.rows and each.pods and not admitted(each)}
        if more or not self.homeless.keys().isdisjoint(gone):
            self.homeless = {name: group for name, group in self.homeless.items() if name not in gone} | more

    def advance(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups permanently: `restore` returns to the new state."""
        names, groups = tuple(gone), tuple(come)
        self.places.advance(names, groups)
        self._exchange_homeless(names, groups)
        lost: dict[QuotaShare, list[Resources]] = defaultdict(list)
        for name in names:
            if (claim := self._known.pop(name, None)) is not None:
                self.claims[claim.line].remove(claim)
                lost[claim.share].append(claim.amount)
            elif (case := self._waiting.get(name)) is not None:
                self._drop(case)
        for share, amounts in lost.items():
            self._renew(share)
            share.charge(ZERO - sum_of(amounts))
        for group in groups:
            if (claim := self._claim(group)) is not None:
                self._renew(claim.share)
                self._know(claim)
            elif (case := self._candidate(group)) is not None:
                self._line_up(case)

    def restore_point(self) -> Callable[[], None]:
        """Return a function that restores the present state. Call it between cycles."""
        restores = [self.places.restore_point(), *(tree.restore_point() for tree in {*self.trees.values()})]
        known, waiting, homeless = self._known.copy(), self._waiting.copy(), self.homeless
        claims = {line: found.copy() for line, found in self.claims.items()}
        uses = [(share, share.used, share.leaving) for share in self.shares.values()]

        def restore() -> None:
            for each in restores:
                each()
            self._known.clear()
            self._known.update(known)
            self._waiting.clear()
            self._waiting.update(waiting)
            self.homeless = homeless
            self.claims.clear()
            self.claims.update((line, found.copy()) for line, found in claims.items())
            for share, used, leaving in uses:
                share.used, share.leaving = used, leaving

        return restore

    def exchange(self, gone: Iterable[str], come: Iterable[PodGroup]) -> None:
        """Remove and add pod groups until `restore`."""
        names, groups = tuple(gone), tuple(come)
        self.places.exchange(names, groups)
        self._journal.append(partial(setattr, self, "homeless", self.homeless))
        self._exchange_homeless(names, groups)
        for name in names:
            if (claim := self._known.get(name)) is not None:
                self._do(claim.share, partial(self._forget, claim), partial(self._know, claim))
            elif (case := self._waiting.get(name)) is not None:
                self._requeue(case, partial(self._drop, case), partial(self._line_up, case))
        for group in groups:
            if (claim := self._claim(group)) is not None:
                self._do(claim.share, partial(self._know, claim), partial(self._forget, claim))
            elif (case := self._candidate(group)) is not None:
                self._requeue(case, partial(self._line_up, case), partial(self._drop, case))

    def _know(self, claim: AdmittedWorkload) -> None:
        claim.share.charge(claim.amount)
        self._known[claim.group.name] = claim
        insort(self.claims[claim.line], claim, key=_VICTIM_ORDER)

    def _forget(self, claim: AdmittedWorkload) -> None:
        claim.share.charge(ZERO - claim.amount)
        del self._known[claim.group.name]
        self.claims[claim.line].remove(claim)

    def _line_up(self, case: KueueCandidate) -> None:
        tree = self.trees[case.queue.name]
        tree.waits = None
        self._waiting[case.group.name] = case
        tree.lines[case.queue.name].add(case)

    def _drop(self, case: KueueCandidate) -> None:
        tree = self.trees[case.queue.name]
        tree.waits = None
        del self._waiting[case.group.name]
        tree.lines[case.queue.name].remove(case)

    def admit(self, group: PodGroup, now: int) -> None:
        """Charge a waiting workload, which later rounds may evict again; undone by `restore`."""
        claim = self._admitted(replace(group, started=now))
        self._do(claim.share, partial(self._know, claim), partial(self._forget, claim))

    def charge(self, share: QuotaShare, amount: Resources, *, leaving: Resources) -> None:
        """Charge as `QuotaShare.charge` does; undone by `restore`."""
        back = partial(share.charge, ZERO - amount, leaving=ZERO - leaving if leaving else ZERO)
        self._do(share, partial(share.charge, amount, leaving=leaving), back)

    def evict(self, claims: Collection[AdmittedWorkload]) -> None:
        """Evict: their quota is free at once, their capacity once their pods are gone."""
        for share, amount in by_share(claims).items():
            self.charge(share, ZERO - amount, leaving=amount)
        lines: dict[tuple[str, bool], list[AdmittedWorkload]] = {}
        for claim in claims:
            self.places.leave(claim.group)
            lines.setdefault(claim.line, []).append(claim)
        for key, gone in lines.items():
            line = self.claims[key]
            self._do(gone[0].share, partial(_remove, line, gone), partial(line.__setitem__, slice(None), line.copy()))

    def _do(self, share: QuotaShare, act: Callable[[], object], back: Callable[[], object]) -> None:
        """Change the use of a queue, until `restore`."""
        tree = self.trees[share.name]
        self._journal.append(partial(setattr, tree, "version", tree.version))
        self._renew(share)
        act()
        self._journal.append(back)

    def _requeue(self, case: KueueCandidate, act: Callable[[], object], back: Callable[[], object]) -> None:
        """Change what waits, until `restore`."""
        tree = self.trees[case.queue.name]
        self._journal.append(partial(setattr, tree, "waits", tree.waits))
        act()
        self._journal.append(back)

    def _renew(self, share: QuotaShare) -> None:
        tree = self.trees[share.name]
        self._clock += 1
        tree.version = self._clock
        if len(tree.searches) > MOST_REFUSED:
            tree.searches.clear()

    def restore(self) -> None:
        """Undo everything since the state was created or advanced."""
        while self._journal:
            self._journal.pop()()
        self.places.restore()


def _remove(line: list[AdmittedWorkload], gone: Iterable[AdmittedWorkload]) -> None:
    for claim in gone:
        line.remove(claim)


def admitted(group: PodGroup) -> bool:
    """Whether it holds quota: it has started, or one of its pods has a node."""
    return group.started is not None or any(pod.node is not None for pod in group.pods)


def turn_key(group: PodGroup) -> tuple[int, int, str]:
    """Sort key of waiting work: by priority, then age."""
    return (-group.priority, *group.age)


def line_key(group: PodGroup) -> tuple[bool, int, int, str]:
    """Sort key of waiting work of one queue: first what waits for its victims to stop.

    Source: Kueue's `preemptorWorkload`, which is sticky at the head of a queue with the strategy BestEffortFIFO.
    """
    return (not any(pod.nominated for pod in group.pods), *turn_key(group))


def _leaving(group: PodGroup) -> bool:
    """Whether it is being evicted as a whole."""
    return any(pod.terminating for pod in group.pods) and not group.holding
