"""Workloads that their scheduler holds back in a queue, most of them before there is any pod: its last words."""

from collections.abc import Collection, Iterable
from typing import Final

from clusters.flavours import flavour_for
from clusters.flavours.reading import ADMITTED, LEFT_OUT, NOT_BOUND, NOT_READY, PIPELINED
from clusters.flavours.reading import QUEUED as SAID
from clusters.job_status import ACTIVE, SUSPENDED
from clusters.models import Cluster, ClusterEvent, ObservedObject, ObservedPod
from clusters.observation import JobStatus
from clusters.ports import Reading
from workloads.models import Workload

QUEUED: Final = "queued"
TURNS: Final = frozenset({SAID, ADMITTED, LEFT_OUT, NOT_READY, NOT_BOUND, PIPELINED})
"""Reasons of events that tell of a place in a queue."""


def queued_among(cluster: Cluster, owners: Collection[str]) -> dict[str, str]:
    """The scheduler's words by workload id, of those whose present object waits in a queue now."""
    if not owners or not flavour_for(cluster.flavour).traits.tells:
        return {}
    rows = ClusterEvent.objects.filter(cluster=cluster, owner_id__in=owners, reason__in=TURNS).order_by("at", "pk")
    said = rows.values_list("at", "object_uid", "reason", "owner_id", "message")
    # Times are of whole seconds: what got its place and started within one started last.
    words = _words(each[1:] for each in sorted(said, key=lambda each: (each[0], each[2] == ADMITTED)))
    objects = ObservedObject.objects.filter(cluster=cluster, uid__in=words)
    pods = ObservedPod.objects.filter(cluster=cluster, uid__in=words, gone_at__isnull=True)
    there = {*objects.values_list("uid", flat=True), *pods.values_list("uid", flat=True)}
    return {owner: message for uid, (owner, message) in words.items() if uid in there}


def _words(said: Iterable[tuple[str, str, str, str]]) -> dict[str, tuple[str, str]]:
    """Owner and last words by object. That pods are missing counts only until its scheduler says anything else of it.

    Some schedulers never take it back, and say nothing new where what held it back before does so again. Who has a
    place for a pod, though it could not be bound there, is held back no more: the pod says what went wrong.
    """
    held: dict[str, tuple[str, str]] = {}
    missing: dict[str, tuple[str, str]] = {}
    for uid, reason, owner, message in said:
        if reason in {NOT_BOUND, PIPELINED}:
            held = {each: words for each, words in held.items() if words[0] != owner}
            held |= {uid: (owner, message)} if reason == PIPELINED else {}
        elif reason == ADMITTED:
            missing.pop(uid, None)
            held.pop(uid, None)
        else:
            (missing if reason == NOT_READY else held)[uid] = (owner, message)
    return missing | held


def as_queued(cluster: Cluster, job: JobStatus, message: str | None) -> JobStatus:
    """A job that its scheduler holds back is queued. Where that suspends it, it is about to be let go otherwise."""
    held = {SUSPENDED} if flavour_for(cluster.flavour).traits.queues_jobs else set()
    if job.phase not in {"", ACTIVE} | held:
        return job
    if message is None:
        return JobStatus(ACTIVE) if job.phase in held else job
    return JobStatus(QUEUED, SAID, message)


def reading_of_queue(workload: Workload, message: str) -> Reading:
    """Why it waits, in Rung's words."""
    return flavour_for(workload.project.cluster.flavour).interpret({}, [{"reason": SAID, "message": message}])
