"""How long a run is left alone by its min guaranteed runtime, and what its cluster's scheduler makes of that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from clusters.flavours import flavour_for
from scheduling.cycle import preview
from scheduling.min_runtime import is_guaranteed, protected_until
from scheduling.model import PodGroup, Snapshot
from scheduling.priority import Preemptibility
from tenants.min_runtimes import Guarantee, guarantee_of
from tenants.models import Project
from workloads.holding_back import rung_spares
from workloads.lifecycle import HOLDING
from workloads.models import Workload


@dataclass(frozen=True, slots=True)
class Protection:
    """Until when a run is left alone inside its department and by other departments, and by whose rule.

    core: how many of its pods that holds for; None: for all. by_rung: its scheduler knows of no such time, so it holds
    as far as Rung can hold back who would evict it.
    """

    inside: datetime
    across: datetime
    rule_of: str
    core: int | None
    by_rung: bool = False

    @property
    def differs(self) -> bool:
        """Other departments may take it at another moment than its own."""
        return self.inside != self.across


def protection_of(workload: Workload) -> Protection | None:
    """What protects this run now. None: nothing does, or nothing has to, since it is not preemptible."""
    if workload.phase not in HOLDING or workload.started_at is None:
        return None
    if workload.preemptibility != Preemptibility.PREEMPTIBLE:
        return None
    found = _guarantee(workload)
    if found is None or timezone.now() >= workload.started_at + max(found.inside, found.across):
        return None
    minimum = workload.spec.get("min_member") or 1
    core = minimum if minimum < workload.pod_count and _queues_say(workload.project) else None
    return Protection(
        inside=workload.started_at + found.inside,
        across=workload.started_at + found.across,
        rule_of=found.rule_of,
        core=core,
        by_rung=rung_spares(workload.project.cluster),
    )


def protection_sentences(project: Project, *, preemptibility: str, pods: int, minimum: int) -> Sequence[str]:
    """What is to be known of it before something preemptible is submitted."""
    found = guarantee_of(project) if preemptibility == Preemptibility.PREEMPTIBLE else None
    if found is None:
        return ()
    whom = f"{minimum} of its pods are" if minimum < pods and _queues_say(project) else "it is"
    limited = ", as far as Rung can hold back who would evict it" if rung_spares(project.cluster) else ""
    return (f"From its start {whom} left alone {found}{limited}: the min guaranteed runtime of {found.rule_of}.",)


def held_off(snapshot: Snapshot, candidates: Sequence[PodGroup], flavour: str) -> Sequence[str]:
    """For something that waits: whom it would evict were nobody protected, and from when on it may."""
    if not is_guaranteed(snapshot):
        return ()
    found = preview(replace(snapshot, now=None), *candidates, flavour=flavour).victims
    if not found:
        return ()
    last = max(protected_until(snapshot, each, candidates[0]) for each in found)
    number = len({each.victim.name for each in found})
    whom = f"{number} workload{'' if number == 1 else 's'}"
    when = datetime.fromtimestamp(last / 1_000_000, tz=UTC)
    return (f"It may evict {whom} once their min guaranteed runtime is over, at {when:%Y-%m-%d %H:%M} UTC.",)


def _queues_say(project: Project) -> bool:
    """Its scheduler asks the queue, and then only about as many pods as the group needs."""
    return flavour_for(project.cluster.flavour).traits.spares_young == "queues"


def _pods_say(project: Project) -> bool:
    """Its pods carry it, each for itself, as they were made."""
    return flavour_for(project.cluster.flavour).traits.spares_young == "pods"


def _guarantee(workload: Workload) -> Guarantee | None:
    """What holds for this run: the rules as they are, or what its pods were made with."""
    found = guarantee_of(workload.project)
    if not _pods_say(workload.project):
        return found
    time = timedelta(minutes=workload.min_runtime_minutes)
    if found and found.inside == time:
        return found
    return Guarantee(time, time, f"project {workload.project.name} when its pods were made")
