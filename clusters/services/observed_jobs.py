"""Job objects: how each workload's object stands. Which object belongs to whom is kept, so that a loss is noticed."""

from collections.abc import Iterable

from django.db.models import QuerySet

from clusters.flavours import BESIDE_KEYS
from clusters.job_status import MISSING, JobStatus, job_status
from clusters.models import Cluster, ObservedObject, ObservedPod
from clusters.pods import controller_of, phase
from clusters.ports import Manifest
from clusters.services.looks import Look
from clusters.services.observed_objects import keep_objects
from clusters.services.observed_pods import workload_id

BY_PHASE = {"Succeeded": "succeeded", "Failed": "failed"}


def job_changes(cluster: Cluster, looks: Iterable[Look]) -> tuple[dict[str, JobStatus], list[ObservedObject]]:
    """Status by workload id of every job object that changed, and the objects seen for the first time.

    What a controller makes below it (a ReplicaSet of a Deployment, a Job of a CronJob) carries the same labels: it is
    kept, for its events, but says nothing of the workload as a whole, and is no loss while the workload's own is there.
    """
    changes: dict[str, JobStatus] = {}
    lost: set[str] = set()
    fresh: list[ObservedObject] = []
    for look in looks:
        ours = [each for each in look.present if workload_id(each)]
        kept = keep_objects(cluster, look, ours)
        lost |= {row.owner_id for row in kept.lost if row.owner_id}
        changes |= {workload_id(each): job_status(each) for each in ours if controller_of(each) is None}
        fresh += kept.fresh
    if lost:
        lost -= set(_own_objects(cluster, lost).values_list("owner_id", flat=True))
    return {**changes, **dict.fromkeys(lost, JobStatus(MISSING))}, fresh


def bare_pod_changes(cluster: Cluster, look: Look, rows: Iterable[ObservedPod]) -> dict[str, JobStatus]:
    """A bare Pod is its own object: it stands as its phase, and gone it is missing."""
    changes = {owner: _by_phase(pod) for pod in look.present if (owner := _bare_owner(pod))}
    gone = {row.owner_id for row in rows if row.gone_at and row.owner_id} - set(changes)
    if gone:
        objects = _own_objects(cluster, gone)
        alive = ObservedPod.objects.filter(cluster=cluster, owner_id__in=gone, gone_at__isnull=True)
        gone -= {*objects.values_list("owner_id", flat=True), *alive.values_list("owner_id", flat=True)}
    return changes | {owner: JobStatus(MISSING) for owner in gone}


def beside_changes(cluster: Cluster, looks: Iterable[Look]) -> dict[str, JobStatus]:
    """Keep what stands beside the objects of workloads. Who lost such an object is as good as missing: made anew."""
    lost: set[str] = set()
    for look in looks:
        kept = keep_objects(cluster, look, [each for each in look.present if workload_id(each)])
        owners = {row.owner_id for row in kept.lost if row.owner_id}
        there = ObservedObject.objects.filter(cluster=cluster, kind=look.kind.key, owner_id__in=owners)
        lost |= owners - set(there.values_list("owner_id", flat=True))
    return dict.fromkeys(lost, JobStatus(MISSING))


def _own_objects(cluster: Cluster, owners: Iterable[str]) -> QuerySet[ObservedObject]:
    """A gang's group is no sign that its job is there."""
    return ObservedObject.objects.filter(cluster=cluster, owner_id__in=owners).exclude(kind__in=BESIDE_KEYS)


def _bare_owner(pod: Manifest) -> str:
    return "" if controller_of(pod) else workload_id(pod)


def _by_phase(pod: Manifest) -> JobStatus:
    return JobStatus(BY_PHASE.get(phase(pod), "active"), str((pod.get("status") or {}).get("reason", "")))
