"""Kinds of which no controller runs in a cluster: objects that have neither a status nor pods after a minute.

An API server takes whatever its definitions allow; that somebody makes pods of it shows only in the answer. What a
scheduler holds in its queue now, or whose pods were refused, is not silent.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from clusters.kinds import KINDS
from clusters.kinds_core import kind_of_workload
from clusters.models import Cluster, ClusterState, ObservedObject, ObservedPod
from clusters.ports import Reading
from workloads.lifecycle import NO_CONTROLLER, REFUSED_PODS
from workloads.models import DesiredPhase, Phase, Workload
from workloads.owners import workload_ids
from workloads.services.apply import HANDED_OVER
from workloads.services.queued import queued_among
from workloads.services.reasons import keep_reason

PATIENCE: Final = timedelta(seconds=60)
UNWATCHED: Final = timedelta(seconds=60)
"""Of a cluster that was not observed for so long nothing is concluded."""
OPERATED: Final = tuple(kind_of_workload(kind).key for kind in KINDS if not kind.core)
"""Every other kind has its controller in every cluster."""
ANSWERED: Final = "HandedOver"


def check_controllers(now: datetime | None = None) -> None:
    """Name workloads that nothing answers, take it back where something did, and keep both with the cluster."""
    now = now or timezone.now()
    for cluster in Cluster.objects.filter(state=ClusterState.ACTIVE, observed_at__gte=now - UNWATCHED):
        _check(cluster, now)


def _check(cluster: Cluster, now: datetime) -> None:
    rows = _objects(cluster).exclude(_answered(cluster)).filter(created_at__lte=now - PATIENCE)
    silent = {row.owner_id: row for row in rows}
    waiting = _waiting(cluster)
    held = queued_among(cluster, silent)
    named = waiting.filter(pk__in=workload_ids(silent.keys() - held.keys())).exclude(phase_reason__in=REFUSED_PODS)
    found = {str(each.pk): each for each in named}
    for owner, workload in found.items():
        keep_reason(workload, Reading(NO_CONTROLLER, _sentence(silent[owner].kind, cluster)), now)
    for workload in waiting.filter(phase_reason=NO_CONTROLLER).exclude(pk__in=found):
        keep_reason(workload, Reading(ANSWERED, HANDED_OVER), now)
    _keep_kinds(cluster, [silent[owner] for owner in found])


def _objects(cluster: Cluster) -> QuerySet[ObservedObject]:
    """Workloads' own objects of kinds that need an operator."""
    return ObservedObject.objects.filter(cluster=cluster, kind__in=OPERATED).exclude(owner_id="")


def _answered(cluster: Cluster) -> Q:
    """It has a status, or ever had a pod."""
    pods = ObservedPod.objects.filter(cluster=cluster, owner_id=OuterRef("owner_id"))
    return Q(answered=True) | Q(Exists(pods))


def _waiting(cluster: Cluster) -> QuerySet[Workload]:
    rows = Workload.objects.filter(project__cluster=cluster, phase=Phase.PENDING, deleted_at__isnull=True)
    return rows.filter(desired_phase=DesiredPhase.RUNNING)


def _sentence(kind: str, cluster: Cluster) -> str:
    name = kind.partition(".")[0]
    return (
        f"Nothing has answered it within a minute: no controller of {name} seems to run in {cluster.name}, so it gets "
        "no pods. An admin of the cluster can install its operator."
    )


def _keep_kinds(cluster: Cluster, silent: Iterable[ObservedObject]) -> None:
    """Since when each kind is silent, until an object of it that is no older was answered."""
    known: dict[str, str] = dict(cluster.silent_kinds)
    for kind, created in sorted((row.kind, row.created_at) for row in silent if row.created_at):
        known.setdefault(kind, created.isoformat())
    kept = {kind: since for kind, since in known.items() if not _was_answered(cluster, kind, since)}
    if kept != cluster.silent_kinds:
        Cluster.objects.filter(pk=cluster.pk).update(silent_kinds=kept)


def _was_answered(cluster: Cluster, kind: str, since: str) -> bool:
    later = _objects(cluster).filter(kind=kind, created_at__gte=datetime.fromisoformat(since))
    return later.filter(_answered(cluster)).exists()
