"""The decisions of a scheduling cycle, as values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from scheduling.model.preemptibility import Cause
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.snapshot import Pod, PodGroup


@dataclass(slots=True, unsafe_hash=True)
class Start:
    """Bind these pods now. placements: node by pod name. over_quota: the queue then exceeds its deserved quota."""

    group: Final[PodGroup]
    placements: Final[Mapping[str, str]]
    over_quota: Final[bool] = False

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Pods that start; all waiting pods if the scheduler names no nodes."""
        waiting = self.group.waiting
        return tuple(pod for pod in waiting if pod.name in self.placements) if self.placements else waiting


@dataclass(slots=True, unsafe_hash=True)
class Evict:
    """Evict these pods of `victim` so that the pod group named `for_group` can start.

    nodes: node by pod name. moves_to: new node by name of a pod that moves.
    """

    victim: Final[PodGroup]
    pods: Final[tuple[str, ...]]
    cause: Final[Cause]
    for_group: Final[str]
    nodes: Final[Mapping[str, str]] = field(default_factory=dict)
    moves_to: Final[Mapping[str, str]] = field(default_factory=dict)


QUOTA: Final = "quota"
"""Nomination of a workload that waits for its victims where the scheduler names no nodes (Kueue)."""


@dataclass(slots=True, unsafe_hash=True)
class Wait:
    """Wait, with the reason. nominated: node by pod name whose capacity is being freed (reason Evicting).

    reserved: node by pod name, for those pods of a waiting gang that fit while others do not (kube-scheduler).
    assured: the next cycle is known to give the groups that were asked about capacity again, whatever else waits (KAI).
    """

    group: Final[PodGroup]
    pend: Final[PendingReason]
    nominated: Final[Mapping[str, str]] = field(default_factory=dict)
    reserved: Final[Mapping[str, str]] = field(default_factory=dict)
    assured: Final[bool] = field(default=False, repr=False, compare=False)

    @property
    def coming(self) -> tuple[Pod, ...]:
        """Pods whose capacity is being freed; all waiting pods if the scheduler names no nodes."""
        waiting = self.group.waiting
        if self.nominated:
            return tuple(pod for pod in waiting if pod.name in self.nominated)
        return waiting if self.pend.reason is Reason.EVICTING else ()


Decision = Start | Evict | Wait


def up_to(turns: Iterable[Iterable[Decision]], about: Collection[str] | None, until: "Until") -> list[Decision]:
    """The decisions of these turns of groups, none after the last that `until` asks for."""
    found: list[Decision] = []
    mine: dict[str, list[Start | Wait]] = {}
    for turn in turns:
        decisions = list(turn)
        found += decisions
        if until is Until.DECIDED and about:
            for each in decisions:
                if not isinstance(each, Evict) and each.group.name in about:
                    mine.setdefault(each.group.name, []).append(each)
            if len(mine) == len(about) and not _is_partial(mine.values()):
                break
    return found


def _is_partial(decided: Collection[Sequence[Start | Wait]]) -> bool:
    """Whether some pods of these groups have nodes and others not."""
    pods = [len(each.pods if isinstance(each, Start) else each.coming) for found in decided for each in found]
    return 0 < sum(pods) < sum(len(found[0].group.waiting) for found in decided)


class Until(StrEnum):
    """How far a cycle goes. Volcano's rules always decide about all groups.

    CHANGES: cycles of Kueue and Volcano leave out refusals that later events may end, without a look at what certainly
    waits. Volcano's then do not always say why nominated pods wait. Kueue's leave a queue as it is while one of its
    workloads waits for victims.
    PLACED: KAI's cycle ends early once the groups that are asked about have nodes without evictions. DECIDED: any cycle
    ends once those are decided; if only some of their pods have nodes, all other groups that start are decided as well.
    """

    ALL = "all"
    CHANGES = "changes"
    PLACED = "placed"
    DECIDED = "decided"


class OutcomeKind(StrEnum):
    """What happens to a candidate, in one word. Each victim carries its own cause."""

    PLACED = "placed"
    PREEMPTS = "preempts"
    RECLAIMS = "reclaims"
    CONSOLIDATES = "consolidates"
    PREEMPTS_AND_RECLAIMS = "preempts+reclaims"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a preview. placements: node by pod name, including pods that wait for their victims to end.

    starting: number of pods that start now; coming: once the victims are gone; waiting: all others.
    first: other groups that take the freed capacity first. If it then still waits, the kind is PENDING with victims.
    pend: why pods wait, of the first waiting group; if others start, with the numbers of the whole candidate.
    """

    kind: OutcomeKind
    victims: tuple[Evict, ...] = ()
    placements: Mapping[str, str] = field(default_factory=dict)
    pend: PendingReason | None = None
    over_quota: bool = False
    starting: int = 0
    coming: int = 0
    waiting: int = 0
    first: tuple[PodGroup, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether some of its pods are placed and others not."""
        return self.waiting > 0 and self.starting + self.coming > 0
