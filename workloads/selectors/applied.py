"""The objects of a workload as its cluster should hold them, and whether it was seen to hold them so."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from clusters.descriptions import described
from clusters.flavours import flavour_for
from clusters.kinds_core import kind_of
from clusters.models import ObservedObject
from clusters.ownership import hash_of, stamped
from clusters.ports import Manifest
from clusters.services.former import made_for
from workloads.lifecycle import ENDED
from workloads.models import Workload
from workloads.queues import job_spec

Held = Literal["same", "other", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Applied:
    """`former`: title of the scheduler that the cluster had before, for which they were made; empty: the present one.

    held: what was seen of its own object: written as it is here, written otherwise, not there; unknown where nothing
    was looked at since, or its kind is not compared (a bare Pod, which its cluster never lets change).
    """

    manifests: Sequence[Manifest]
    former: str
    held: Held
    seen_at: datetime | None


def applied_of(workload: Workload) -> Applied:
    """As they are rendered now, by the scheduler that they were made for."""
    cluster, job = workload.project.cluster, job_spec(workload)
    former = None if job.suspended else made_for(cluster, workload.pk)
    manifests = (former or flavour_for(cluster.flavour)).render(job)
    held = _held(workload, manifests[-1]) if manifests else "unknown"
    return Applied(manifests, former.title if former else "", held, cluster.observed_at)


def _held(workload: Workload, manifest: Manifest) -> Held:
    cluster, kind = workload.project.cluster, kind_of(manifest)
    if not workload.applied_generation or cluster.observed_at is None or workload.phase in ENDED or not kind.group:
        return "unknown"
    rows = ObservedObject.objects.filter(cluster=cluster, owner_id=str(workload.pk), kind=kind.key)
    written = rows.filter(name=manifest["metadata"]["name"]).values_list("applied_hash", flat=True).first()
    if written is None:
        return "missing"
    return "same" if written == hash_of(stamped(described(manifest))) else "other"
