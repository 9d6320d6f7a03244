"""Who would evict young work is held back by Rung, where the scheduler takes whoever is weaker, however young.

So is non-preemptible work beyond its pool's deserved quota where the cluster does not count that (`quota_hold`).

Only what is not in its cluster can be held; whom it would evict the model foresees on the last snapshot. Runs that
began after somebody was held back do not hold it any longer: else newcomers would for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import ClassVar, Final
from uuid import UUID

from django.utils import timezone

from clusters.flavours import flavour_for
from clusters.models import Cluster, NodePool
from clusters.ports import Reading
from clusters.services.configured import left_out
from scheduling.cycle import FLAVOURS, preview
from scheduling.decisions import TOO_YOUNG, Outcome
from scheduling.priority import Preemptibility
from tenants.min_runtimes import min_runtimes_of
from tenants.models import Project
from workloads.lifecycle import HELD, HELD_BACK, HOLDING
from workloads.models import Phase, Workload
from workloads.owners import workload_ids
from workloads.quota_hold import quota_hold_of
from workloads.snapshots import groups_of, snapshot_of, wanted_of, workload_of

STALE: Final = timedelta(seconds=120)
SOONEST: Final = timedelta(seconds=5)
QUOTA_PAUSE: Final = timedelta(seconds=30)
"""How long what waits for its pool's deserved quota is left alone at most."""
SHARE: Final = 4
"""All looks at whoever is held back in a cluster take at most one part in so many of a worker's time."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Until when at the latest, and for how many young workloads."""

    until: datetime
    count: int
    reason: ClassVar[str] = HELD_BACK

    def __str__(self) -> str:
        """As a sentence about whoever is held back."""
        whom = "1 workload inside its" if self.count == 1 else f"{self.count} workloads inside their"
        until = f"{self.until:%Y-%m-%d %H:%M} UTC at the latest"
        return f"Rung holds it back until {until}: it would evict {whom} min guaranteed runtime"

    def numbers(self) -> dict[str, str]:
        """The same for programs: `until` as a moment, `workloads` as a count."""
        return {"until": f"{self.until:%Y-%m-%dT%H:%M:%SZ}", "workloads": str(self.count)}


def rung_spares(cluster: Cluster) -> bool:
    """Is there an eviction from which its scheduler, as it is configured, does not keep young work? Then Rung does."""
    asks_queues = flavour_for(cluster.flavour).traits.spares_young == "queues"
    return not asks_queues and bool(set(TOO_YOUNG.values()) - left_out(cluster))


@dataclass(frozen=True, slots=True)
class Held:
    """What is said of a workload that is held back, and after which time it is looked at again."""

    reading: Reading
    pause: timedelta


def held_back(workload: Workload) -> Held | None:
    """Why it is not handed over now. None: it may be, or was before; or nobody knows whom it would evict."""
    cluster = workload.project.cluster
    if not _is_outside(workload):
        return None
    pool = NodePool.objects.filter(cluster=cluster, name=workload.pool_name).first()
    if pool and (over := quota_hold_of(workload, pool)):
        return Held(Reading(over.reason, f"{over}.", over.numbers()), min(SOONEST * (1 + over.count), QUOTA_PAUSE))
    if not rung_spares(cluster) or cluster.flavour not in FLAVOURS:
        return None
    if cluster.observed_at is None or timezone.now() - cluster.observed_at > STALE:
        return None
    began, since = monotonic(), _since(workload)
    if pool is None or not _young(workload.project, since):
        return None
    snapshot, _at = snapshot_of(cluster)
    own = str(workload.pk)
    others = replace(snapshot, groups=tuple(each for each in snapshot.groups if workload_of(each.name) != own))
    outcome = preview(others, *groups_of(wanted_of(workload, pool), cluster.flavour), flavour=cluster.flavour)
    found = hold_of(outcome, workload.project, since=since)
    if found is None:
        return None
    pause = _pause(found, cluster, took=monotonic() - began)
    return Held(Reading(HELD_BACK, f"{found}.", found.numbers()), pause)


def _pause(hold: Hold, cluster: Cluster, *, took: float) -> timedelta:
    """Soon, since room may come free; the later the more are held back, but at the end of its time at the latest."""
    held = Workload.objects.filter(project__cluster=cluster, phase=Phase.PENDING, phase_reason=HELD_BACK).count()
    pause = max(SOONEST, timedelta(seconds=SHARE * took * held))
    return min(pause, max(hold.until - timezone.now(), timedelta(seconds=1)))


def hold_of(outcome: Outcome, project: Project, *, since: datetime | None = None) -> Hold | None:
    """What holds back whoever of the project would evict these: of them young ones that began before `since`."""
    if not outcome.victims or not rung_spares(project.cluster):
        return None
    young = _young(project, since)
    ids = workload_ids({workload_of(each.victim.name) for each in outcome.victims})
    ends = [young[each] for each in ids if each in young]
    return Hold(max(ends), len(ends)) if ends else None


def _young(project: Project, since: datetime | None) -> Mapping[UUID, datetime]:
    """Runs inside their time that began before `since`, each with the moment from which the project may take it."""
    now, cluster = timezone.now(), project.cluster
    asks_pods, rules = flavour_for(cluster.flavour).traits.spares_young == "pods", min_runtimes_of(cluster)
    if not asks_pods and not rules:
        return {}
    rows = Workload.objects.filter(
        project__cluster=cluster,
        phase__in=HOLDING,
        preemptibility=Preemptibility.PREEMPTIBLE,
        started_at__isnull=False,
    )
    young = {}
    wanted = ("pk", "started_at", "min_runtime_minutes", "project", "project__department")
    for pk, started, carried, owner, department in rows.values_list(*wanted):
        minutes = carried if asks_pods else rules.against(project.department_id, owner, department)
        end = started + timedelta(minutes=minutes)
        if minutes and end > now and (since is None or started <= since):
            young[pk] = end
    return young


def _is_outside(workload: Workload) -> bool:
    """Its cluster does not have it, or has it suspended."""
    if workload.phase == Phase.PENDING:
        return is_held(workload) or workload.applied_generation == 0
    return workload.phase in {Phase.CREATING, Phase.RESUMING}


def _since(workload: Workload) -> datetime | None:
    """When it was first held back this time; None: it is not yet."""
    held = workload.timeline.filter(reason=HELD_BACK).order_by("-at").first() if is_held(workload) else None
    return held.at if held else None


def is_held(workload: Workload) -> bool:
    """Does Rung hold it back now?"""
    return workload.phase == Phase.PENDING and workload.phase_reason in HELD
