"""The eviction matrix, decided by the rules of each scheduler on a minimal cluster.

One node with one GPU, one victim that holds it, one candidate that needs it and is within its deserved quota. Every
answer is a `preview`, so it cannot differ from a forecast for the same case.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from scheduling.forecast.cycle import Flavour, preview
from scheduling.model.preemptibility import NO_EXEMPTIONS, Cause, EvictionExemptions, FairSharingStrategy
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode

LONG: Final = 10**12
"""A minimum runtime that is not over, in microseconds."""
GPU: Final = Resources.of(gpu=1)


class VictimPlace(StrEnum):
    """The victim's project relative to the candidate's, which is within its deserved quota."""

    OWN = "own"
    OVER = "over"
    WITHIN = "within"


class Blocker(StrEnum):
    """A condition that alone prevents the eviction."""

    ORDER = "order"
    NEVER = "never"
    NON_PREEMPTIBLE = "non-preemptible"
    WITHIN_QUOTA = "within-quota"
    CONFIGURATION = "configuration"


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """A scheduler and the parts of its configuration that evictions depend on, as in `Snapshot`.

    assumed: its configuration is unknown, and they are its defaults.
    """

    flavour: Flavour
    exempt: EvictionExemptions = NO_EXEMPTIONS
    fair_sharing: tuple[FairSharingStrategy, ...] = ()
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class EvictionCase:
    """One question. order: sign of the candidate's priority minus the victim's. never: the candidate's policy.

    preemptible: the victim is. inside_minimum: it is inside its minimum runtime.
    """

    settings: EvictionSettings
    place: VictimPlace
    order: int
    never: bool = False
    preemptible: bool = True
    inside_minimum: bool = False

    @property
    def snapshot(self) -> Snapshot:
        """The cluster with the victim."""
        return Snapshot(
            nodes=(SnapshotNode("node", "default", Resources.of(gpu=1, cpu=8, memory="64Gi")),),
            queues=tuple(self._queues()),
            groups=(self._group("victim", "own" if self.place is VictimPlace.OWN else "other", node="node"),),
            now=LONG // 2 if self.inside_minimum else 2 * LONG,
            exempt=self.settings.exempt,
            fair_sharing=self.settings.fair_sharing,
        )

    @property
    def candidate(self) -> PodGroup:
        return self._group("candidate", "own")

    def _queues(self) -> Iterator[Queue]:
        """Two projects of one department; kube-scheduler has no departments."""
        above = None if self.settings.flavour in {Flavour.KUBE, Flavour.KUBE_GANGS} else "department"
        given = 1 if self.place is VictimPlace.WITHIN else 0
        if above:
            yield Queue(above, deserved=Limit.of(gpu=1 + given))
        for order, (name, deserved) in enumerate((("own", 1), ("other", given))):
            yield Queue(
                name,
                above,
                deserved=Limit.of(gpu=deserved),
                created=order,
                preempt_min_runtime=LONG,
                reclaim_min_runtime=LONG,
            )

    def _group(self, name: str, queue: str, *, node: str | None = None) -> PodGroup:
        holds = node is not None
        return PodGroup(
            name,
            queue,
            queue,
            priority=0 if holds else self.order,
            preemptible=self.preemptible if holds else True,
            pods=(Pod(name, GPU, node),),
            started=0 if holds else None,
            let_in=0 if holds else None,
            created=0 if holds else 1,
            never_preempts=self.never and not holds,
            min_runtime=LONG,
            made=holds,
        )


@lru_cache(maxsize=1024)
def cause_of_eviction(case: EvictionCase) -> Cause | None:
    """The cause of the eviction; None if the victim stays."""
    victims = preview(case.snapshot, case.candidate, flavour=case.settings.flavour).victims
    return victims[0].cause if victims else None


def blockers_of(case: EvictionCase) -> tuple[Blocker, ...]:
    """The conditions, except the minimum runtime, each of which alone protects the victim. Empty if it is evicted."""
    if cause_of_eviction(case):
        return ()
    place = VictimPlace.OVER if case.place is VictimPlace.WITHIN else case.place
    best = EvictionCase(EvictionSettings(case.settings.flavour), place, order=1)
    alone = {blocker: replace(best, **{name: getattr(case, name)}) for blocker, name in _FIELDS.items()}
    return tuple(blocker for blocker, each in alone.items() if each != best and cause_of_eviction(each) is None)


_FIELDS: Final = {
    Blocker.CONFIGURATION: "settings",
    Blocker.NEVER: "never",
    Blocker.WITHIN_QUOTA: "place",
    Blocker.NON_PREEMPTIBLE: "preemptible",
    Blocker.ORDER: "order",
}
"""The field of a case that holds each condition."""
