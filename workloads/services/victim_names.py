"""Whom a forecast evicts, as far as its reader may know them."""

from collections import defaultdict
from datetime import datetime
from typing import Final

from clusters.models import Cluster, ObservedPod
from portal.core.actors import Actor
from scheduling.decisions import Evict, Outcome
from scheduling.model import PodGroup
from tenants.permissions import standing_of
from workloads.checkpoints import last_checkpoint, lost_gpu_seconds
from workloads.forecasts import ForecastVictim
from workloads.models import Workload
from workloads.owners import workload_ids
from workloads.selectors.foreign import foreign_pods
from workloads.snapshots import workload_of

OTHERS: Final = "another project"
FOREIGN: Final = "another tenant's pod"
NO_CLASS: Final = "no class"


def named_victims(cluster: Cluster, actor: Actor, now: datetime, outcome: Outcome) -> tuple[ForecastVictim, ...]:
    """One per workload, however many of its pods go."""
    by_owner: dict[str, list[Evict]] = defaultdict(list)
    for evict in outcome.victims:
        by_owner[workload_of(evict.victim.name) or evict.victim.name].append(evict)
    rows = Workload.objects.filter(pk__in=workload_ids(by_owner)).select_related(
        "project__department", "priority", "type"
    )
    found = {str(row.pk): row for row in rows}
    standing = standing_of(actor)
    visible = set(standing.projects().values_list("pk", flat=True))
    foreign = [owner.removeprefix(":") for owner in by_owner if owner.startswith(":")]
    pods = {f":{pod.uid}": pod for pod in foreign_pods(cluster, foreign, standing)}
    return tuple(
        _foreign_victim(now, pods.get(owner), evicts)
        if owner.startswith(":")
        else _victim(now, found.get(owner), evicts, visible)
        for owner, evicts in by_owner.items()
    )


def _foreign_victim(now: datetime, pod: ObservedPod | None, evicts: list[Evict]) -> ForecastVictim:
    """A pod that Rung did not make; `pod` is None where the actor may not know it."""
    group = evicts[0].victim
    label = f"{pod.namespace}/{pod.name}" if pod else FOREIGN
    priority = (pod.priority_class or NO_CLASS) if pod else ""
    hours = _at_risk(now, None, group, group.total.gpu)
    return ForecastVictim(None, label, "", priority, group.priority, group.total.gpu, hours, _moved(evicts))


def _victim(now: datetime, row: Workload | None, evicts: list[Evict], visible: set[int]) -> ForecastVictim:
    gpus = sum(pod.requests.gpu for evict in evicts for pod in evict.victim.pods if pod.name in evict.pods)
    group = evicts[0].victim
    hours = _at_risk(now, row, group, gpus)
    moved = _moved(evicts)
    if row is None or row.project_id not in visible:
        return ForecastVictim(None, OTHERS, "", "", group.priority, gpus, hours, moved)
    return ForecastVictim(row, row.name, row.project.name, row.priority.name, row.priority_value, gpus, hours, moved)


def _moved(evicts: list[Evict]) -> bool:
    """Has the scheduler found another place for every pod?"""
    return all(pod in evict.moves_to for evict in evicts for pod in evict.pods)


def _at_risk(now: datetime, row: Workload | None, group: PodGroup, gpus: int) -> float:
    """GPU-hours since its start or last checkpoint."""
    if group.started is None:
        return 0.0
    started = datetime.fromtimestamp(group.started / 1_000_000, tz=now.tzinfo)
    saved = last_checkpoint(row.spec if row else {}, started=started, now=now)
    return lost_gpu_seconds(gpus, started=started, checkpoint=saved, at=now) / 3600
