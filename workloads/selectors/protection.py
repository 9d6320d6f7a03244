"""How long a run is left alone by its min guaranteed runtime, and what its cluster's scheduler makes of that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from clusters.flavours import flavour_for
from clusters.promises import MIN_RUNTIME
from clusters.services.configured import promise_on
from scheduling.cycle import preview
from scheduling.min_runtime import is_guaranteed, protected_until
from scheduling.model import PodGroup, Snapshot
from scheduling.priority import Preemptibility
from tenants.min_runtimes import Guarantee, guarantee_of
from tenants.models import Project
from workloads.lifecycle import HOLDING
from workloads.models import Workload


@dataclass(frozen=True, slots=True)
class Protection:
    """Until when a run is left alone inside its department and by other departments, and by whose rule.

    core: how many of its pods that holds for; None: for all.
    """

    inside: datetime
    across: datetime
    rule_of: str
    core: int | None

    @property
    def differs(self) -> bool:
        """Other departments may take it at another moment than its own."""
        return self.inside != self.across


def protection_of(workload: Workload) -> Protection | None:
    """What protects this run now. None: nothing does, or nothing has to, since it is not preemptible."""
    if workload.phase not in HOLDING or workload.started_at is None or not _kept(workload.project):
        return None
    if workload.preemptibility != Preemptibility.PREEMPTIBLE:
        return None
    found = _guarantee(workload)
    if found is None or timezone.now() >= workload.started_at + max(found.inside, found.across):
        return None
    minimum = workload.spec.get("min_member") or 1
    core = minimum if minimum < workload.pod_count and not _pods_say(workload.project) else None
    return Protection(workload.started_at + found.inside, workload.started_at + found.across, found.rule_of, core)


def protection_sentences(
    project: Project, *, preemptibility: str, pods: int, minimum: int
) -> tuple[Sequence[str], Sequence[str]]:
    """What is to be known of it before something preemptible is submitted: good news, and what will not be kept."""
    found = guarantee_of(project) if preemptibility == Preemptibility.PREEMPTIBLE else None
    if found is None:
        return (), ()
    if not _kept(project):
        promise = promise_on(project.cluster, MIN_RUNTIME)
        return (), (f"The min guaranteed runtime of {found.rule_of} is not kept here: {promise.explanation}",)
    whom = f"{minimum} of its pods are" if minimum < pods and not _pods_say(project) else "it is"
    return (f"From its start {whom} left alone {found}: the min guaranteed runtime of {found.rule_of}.",), ()


def held_off(snapshot: Snapshot, candidate: PodGroup, flavour: str) -> Sequence[str]:
    """For something that waits: whom it would evict were nobody protected, and from when on it may."""
    if not is_guaranteed(snapshot):
        return ()
    found = preview(replace(snapshot, now=None), candidate, flavour=flavour).victims
    if not found:
        return ()
    last = max(protected_until(snapshot, each, candidate) for each in found)
    number = len({each.victim.name for each in found})
    whom = f"{number} workload{'' if number == 1 else 's'}"
    when = datetime.fromtimestamp(last / 1_000_000, tz=UTC)
    return (f"It may evict {whom} once their min guaranteed runtime is over, at {when:%Y-%m-%d %H:%M} UTC.",)


def _kept(project: Project) -> bool:
    return promise_on(project.cluster, MIN_RUNTIME).enforced != "no"


def _pods_say(project: Project) -> bool:
    """Its pods carry it, each for itself, as they were made."""
    return flavour_for(project.cluster.flavour).traits.pods_say_min_runtime


def _guarantee(workload: Workload) -> Guarantee | None:
    """What holds for this run: the rules as they are, or what its pods were made with."""
    found = guarantee_of(workload.project)
    if not _pods_say(workload.project):
        return found
    time = timedelta(minutes=workload.min_runtime_minutes)
    if found and found.inside == time:
        return found
    return Guarantee(time, time, f"project {workload.project.name} when its pods were made")
