"""Job objects: how each workload's object stands. Which object belongs to whom is kept, so that a loss is noticed."""

from collections.abc import Iterable

from clusters.job_status import MISSING, JobStatus, job_status
from clusters.models import Cluster, ObservedPod
from clusters.pods import controller_of, phase
from clusters.ports import Manifest
from clusters.services.looks import Look
from clusters.services.observed_pods import workload_id

Owners = dict[str, dict[str, str]]  # kind key: {uid of the object: workload id}

BY_PHASE = {"Succeeded": "succeeded", "Failed": "failed"}


def job_changes(looks: Iterable[Look], owners: Owners) -> dict[str, JobStatus]:
    """Status by workload id of every job object that changed; `owners` is brought up to date in place."""
    changes: dict[str, JobStatus] = {}
    for look in looks:
        known = owners.setdefault(look.kind.key, {})
        here = {each["metadata"]["uid"]: owner for each in look.present if (owner := workload_id(each))}
        lost = set(known) - set(here) if look.whole else {each["metadata"]["uid"] for each in look.gone}
        for uid in lost:
            if owner := known.pop(uid, ""):
                changes[owner] = JobStatus(MISSING)
        known |= here
        for manifest in look.present:
            if owner := workload_id(manifest):
                changes[owner] = job_status(manifest)
        if not known:
            del owners[look.kind.key]
    return changes


def bare_pod_changes(cluster: Cluster, look: Look, rows: Iterable[ObservedPod], owners: Owners) -> dict[str, JobStatus]:
    """A bare Pod is its own object: it stands as its phase, and gone it is missing."""
    changes = {owner: _by_phase(pod) for pod in look.present if (owner := _bare_owner(pod))}
    gone = {row.owner_id for row in rows if row.gone_at and row.owner_id} - set(changes)
    gone -= {owner for kept in owners.values() for owner in kept.values()}
    if gone:
        alive = ObservedPod.objects.filter(cluster=cluster, owner_id__in=gone, gone_at__isnull=True)
        gone -= set(alive.values_list("owner_id", flat=True))
    return changes | {owner: JobStatus(MISSING) for owner in gone}


def _bare_owner(pod: Manifest) -> str:
    return "" if controller_of(pod) else workload_id(pod)


def _by_phase(pod: Manifest) -> JobStatus:
    return JobStatus(BY_PHASE.get(phase(pod), "active"), str((pod.get("status") or {}).get("reason", "")))
