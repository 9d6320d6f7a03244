"""What a workload's observed pods amount to: the pure table's input, and what they hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from clusters.models import ObservedPod
from clusters.observation import JobStatus
from clusters.ports import FOR_OTHERS, FOR_VICTIMS, Reading
from workloads.lifecycle import Standing

NO_JOB = JobStatus("")


@dataclass(frozen=True, slots=True)
class Holding:
    """What its pods hold now, where, and since when."""

    gpu_milli: int
    running_pods: int
    pool: str
    started_at: datetime | None


def standing_of(pods: Iterable[ObservedPod], *, wanted: int, min_member: int, job: JobStatus = NO_JOB) -> Standing:
    """Count the pods by what they do."""
    counts = dict.fromkeys(("running", "starting", "waiting", "succeeded", "leaving"), 0)
    for pod in pods:
        if doing := _doing(pod):
            counts[doing] += 1
    return Standing(wanted=wanted, min_member=min_member, job=job.phase, **counts)


def _doing(pod: ObservedPod) -> str:
    if pod.gone_at is not None or pod.phase == "Failed":
        return ""
    if pod.phase == "Succeeded":
        return "succeeded"
    if pod.deletion_at is not None:
        return "leaving"
    if pod.phase == "Running":
        return "running"
    return "starting" if pod.node_name else "waiting"


def holding_of(pods: Sequence[ObservedPod]) -> Holding:
    """Pods on a node hold it until they are gone, also on their way out."""
    held = [pod for pod in pods if pod.gone_at is None and pod.node_name and pod.phase in {"Pending", "Running"}]
    running = [pod for pod in held if pod.phase == "Running" and pod.deletion_at is None]
    starts = [pod.started_at for pod in running if pod.started_at]
    return Holding(
        gpu_milli=sum(pod.gpu_milli for pod in held),
        running_pods=len(running),
        pool=held[0].pool_name if held else "",
        started_at=min(starts, default=None),
    )


def reading_of(pods: Sequence[ObservedPod], readings: Mapping[str, Reading]) -> Reading:
    """Why the first of its waiting pods waits, in the scheduler's words; else why a placed one does not start.

    Of a gang the first that does not just wait for the others.
    """
    for doing in ("waiting", "starting"):
        found = [readings.get(pod.uid) or Reading(pod.reason, pod.message) for pod in pods if _doing(pod) == doing]
        if found:
            return next((each for each in found if each.reason not in {FOR_OTHERS, FOR_VICTIMS}), found[0])
    return Reading()
