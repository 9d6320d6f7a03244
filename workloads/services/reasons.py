"""Why a workload waits, as its cluster said last: kept on the row, with a line where the reason is another one."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from clusters.errors import ClusterError, QuotaExceeded
from clusters.flavours import flavour_for
from clusters.ports import Reading
from tenants.models import Department
from workloads.models import EventType, Workload
from workloads.reason_words import SAID, sentence
from workloads.services.moves import note

FAILED_CREATE = "FailedCreate"


def keep_reason(workload: Workload, reading: Reading, at: datetime) -> None:
    """Still waiting, for another reason or with other numbers; only another reason is worth a line."""
    if (workload.phase_reason, workload.phase_message) == (reading.reason[:64], reading.message):
        return
    changed = workload.phase_reason != reading.reason[:64]
    values = {"phase_reason": reading.reason[:64], "phase_message": reading.message}
    if Workload.objects.filter(pk=workload.pk, phase=workload.phase).update(**values) == 1 and changed:
        note(
            workload=workload,
            at=at,
            type_=EventType.SCHEDULING,
            reason=reading.reason,
            message=reading.message,
            detail=reading.numbers,
        )


def in_words(workload: Workload, reading: Reading) -> Reading:
    """The reading with its sentence as the message; the scheduler's own words go among its numbers."""
    if not (reading.reason or reading.message):
        return reading
    words = sentence(reading, pool=workload.pool_name, names=_queues(workload))
    return replace(reading, message=f"{words}.", numbers={**reading.numbers, SAID: reading.message})


def _queues(workload: Workload) -> Mapping[str, str]:
    """Whose the queues are that may say no to it, by their names on the cluster."""
    project = workload.project
    name = flavour_for(project.cluster.flavour).queue_name
    owners = {project.owner: f"project {project.name}", Department.owner_of(project.department_id): "its department"}
    pools = {workload.pool_name, *workload.node_pools}
    shown = {f"{project.name} in {pool}": owners[project.owner] for pool in pools}
    return owners | shown | {name(owner, pool): words for owner, words in owners.items() for pool in pools}


def reading_of_refusal(workload: Workload, message: str) -> Reading:
    """Why no pod could be created: the quota in Rung's words with its numbers, else what its controller says."""
    found = flavour_for(workload.project.cluster.flavour).interpret({}, [{"reason": FAILED_CREATE, "message": message}])
    return found if found.reason else Reading(FAILED_CREATE, message)


def room_is_missing(workload: Workload, error: ClusterError) -> Reading | None:
    """The reading of a quota that has no room for a bare pod now; None for every other refusal."""
    found = reading_of_refusal(workload, error.message)
    missing = isinstance(error, QuotaExceeded) or found.reason != FAILED_CREATE
    return in_words(workload, found) if missing else None
