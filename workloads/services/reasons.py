"""Why a workload waits, as its cluster said last: kept on the row, with a line where the reason is another one."""

from datetime import datetime

from clusters.errors import ClusterError, QuotaExceeded
from clusters.flavours import flavour_for
from clusters.ports import Reading
from workloads.models import EventType, Workload
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


def reading_of_refusal(workload: Workload, message: str) -> Reading:
    """Why no pod could be created: the quota in Rung's words with its numbers, else what its controller says."""
    found = flavour_for(workload.project.cluster.flavour).interpret({}, [{"reason": FAILED_CREATE, "message": message}])
    return found if found.reason else Reading(FAILED_CREATE, message)


def room_is_missing(workload: Workload, error: ClusterError) -> Reading | None:
    """The reading of a quota that has no room for a bare pod now; None for every other refusal."""
    found = reading_of_refusal(workload, error.message)
    return found if isinstance(error, QuotaExceeded) or found.reason != FAILED_CREATE else None
