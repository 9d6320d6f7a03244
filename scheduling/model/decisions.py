"""What a scheduling cycle decides. Values only: whoever applies them decides how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.snapshot import Pod, PodGroup


class Cause(StrEnum):
    """Why a victim goes: for a stronger workload of its queue (on kube: of any), for another queue's share, or only to
    another node, so that what is free is in one piece.
    """

    PREEMPT = "preempt"
    RECLAIM = "reclaim"
    CONSOLIDATE = "consolidate"


BELOW_MINIMUM: Final = "preempt below the minimum"
"""Beside the causes a configuration may leave this out: preemption that takes a pod of what then lacks its minimum."""
INSIDE_MIN_RUNTIME: Final = {Cause.PREEMPT: "preempt the young", Cause.RECLAIM: "reclaim the young"}
"""The same of what is younger than the min guaranteed runtime that its group carries, by the cause that is left out."""


@dataclass(frozen=True, slots=True)
class Start:
    """Bind these pods now. placements: pod name to node. over_quota: the queue is then above its deserved quota."""

    group: PodGroup
    placements: Mapping[str, str]
    over_quota: bool = False

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Those that start: all that wait, where the scheduler names no nodes."""
        waiting = self.group.waiting
        return tuple(pod for pod in waiting if pod.name in self.placements) if self.placements else waiting


@dataclass(frozen=True, slots=True)
class Evict:
    """End these pods of `victim` so that the pod group named `for_group` can start.

    nodes: pod name to the node it leaves. moves_to: pod name to the node the scheduler has found for it meanwhile.
    """

    victim: PodGroup
    pods: tuple[str, ...]
    cause: Cause
    for_group: str
    nodes: Mapping[str, str] = field(default_factory=dict)
    moves_to: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now, and why. nominated: pod name to the node whose room is on its way (reason Evicting)."""

    group: PodGroup
    pend: PendingReason
    nominated: Mapping[str, str] = field(default_factory=dict)

    @property
    def coming(self) -> tuple[Pod, ...]:
        """Those whose room is on its way: all, where the scheduler names no nodes."""
        waiting = self.group.waiting
        if self.nominated:
            return tuple(pod for pod in waiting if pod.name in self.nominated)
        return waiting if self.pend.reason is Reason.EVICTING else ()


Decision = Start | Evict | Wait


class OutcomeKind(StrEnum):
    """What happens to a candidate, in one word. Victims of one decision may differ in cause: each carries its own."""

    PLACED = "placed"
    PREEMPTS = "preempts"
    RECLAIMS = "reclaims"
    CONSOLIDATES = "consolidates"
    PREEMPTS_AND_RECLAIMS = "preempts+reclaims"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a preview. placements: pod name to node, also of pods that still wait for their victims to end.

    starting: how many of its pods start now; coming: how many once the evicted have left; waiting: how many others.
    first: who else takes room that was made for it. Where it waits nevertheless, its kind is PENDING with victims.
    pend: why pods wait, of the first group that does; where others start, with the numbers of the whole candidate.
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
        """Do some of its pods get their place, and others not?"""
        return self.waiting > 0 and self.starting + self.coming > 0
