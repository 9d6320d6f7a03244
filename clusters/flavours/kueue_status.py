"""What Kueue reports about jobs: conditions, events and the visibility API. Pure.

Source: Kueue 0.19, `visibility.kueue.x-k8s.io/v1beta2`, which its own process serves; positions there begin with 0.

Kueue speaks through an object of its own beside the job, its Workload. That object's conditions are
read here as events about the job, so that they are stored, found and read like every other event of a
job. Source: Kueue 0.19, conditions QuotaReserved, Admitted, Preempted and Finished, and its messages as they were
seen.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from clusters.flavours import pod_status
from clusters.flavours.pod_status import ADMITTED, LEFT_OUT, QUEUED
from clusters.ports.flavour import PodStatusReason, VisibilityApi
from clusters.ports.gateway import Kind, Manifest
from clusters.ports.objects import POD, owned

QUEUE_POSITION: Final = "QueuePosition"
"""Reason of an event with a job's place among all that wait in its queue."""
SHOWN_QUEUE: Final = Kind("visibility.kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues")
WEBHOOK: Final = re.compile(r"failed calling webhook \"(?P<webhook>[^\"]{1,253})\"")
POSITION_IN_QUEUE: Final = re.compile(r"(?P<place>[0-9]{1,7}) of (?P<among>[0-9]{1,7}) in queue ")


def queue_position_events(summary: Manifest) -> Iterator[Manifest]:
    """The answer about one queue as an event about each job that waits in it."""
    waiting = [each for each in _rows(summary.get("items")) if _job_of(each)]
    for number, each in enumerate(waiting, start=1):
        about, metadata = _job_of(each), each["metadata"]
        space, queue = str(metadata.get("namespace", "")), str(each.get("localQueueName", ""))
        yield {
            "metadata": {"name": str(about["name"]), "namespace": space, "uid": f"{str(about['uid'])[:36]}.place"},
            "involvedObject": {**{key: about.get(key, "") for key in ("kind", "name", "uid")}, "namespace": space},
            "type": "Normal",
            "reason": QUEUE_POSITION,
            "message": f"{number} of {len(waiting)} in queue {queue}",
            "reportingComponent": "kueue",
        }


def _rows(items: Any) -> list[dict[str, Any]]:
    """The answer is a cluster's: whatever has another shape is not there."""
    found = items if isinstance(items, list) else []
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("metadata"), dict)]


def _job_of(waiting: dict[str, Any]) -> dict[str, Any]:
    """Empty where no preemptor is named."""
    owners = waiting["metadata"].get("ownerReferences")
    named = [each for each in owners or () if isinstance(each, dict) and each.get("uid") and each.get("name")]
    return next((each for each in named if each.get("controller")), named[0] if named else {})


def probe_job(namespace: str, queue: str) -> Manifest:
    """A job as people submit it, in one of their queues: made on trial only, so no pod of it ever runs."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    metadata = owned("rung-trial", owner="trial", generation=0, namespace=namespace)
    metadata["labels"]["kueue.x-k8s.io/queue-name"] = queue
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


def failing_webhook(message: str) -> str:
    """The webhook that does not respond, in the API server's words; empty: something else is wrong, or nothing."""
    found = WEBHOOK.search(message)
    return found["webhook"] if found else ""


VISIBILITY_API: Final = VisibilityApi(
    queue=SHOWN_QUEUE,
    part="pendingworkloads",
    why="a workload's place in its queue",
    tell=queue_position_events,
    example=probe_job,
    closed_by=failing_webhook,
)


PREEMPTED: Final = "Preempted"
CONTROLLER: Final = "kueue"

BY: Final = re.compile(r"\(UID: (?P<uid>[\w.-]{1,64})(?:, JobUID: (?P<job>[\w.-]{1,64}))?\)")
RECLAIMED: Final = re.compile(r"reclamation within the cohort|fair sharing within the cohort|while borrowing")
NEEDED: Final = re.compile(
    r"insufficient unused quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), (?P<missing>\S+) more needed"
)
TOO_LARGE: Final = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), .*?"
    r"current podset request \((?P<requested>[^)]+)\) > maximum capacity \((?P<limit>[^)]+)\)"
)
NO_DOMAIN: Final = re.compile(
    r"topology \"[^\"]*\" (?:doesn't allow to fit|allows to fit only (?P<fitting>\d{1,7}) out of (?P<pods>\d{1,7}))"
)
NOT_AGAIN: Final = "Not queued again"
PENDING: Final = (
    (LEFT_OUT, re.compile(f"^{NOT_AGAIN}")),
    ("PreemptionPending", re.compile(r"[Pp]ending the preemption of (?P<workloads>\d{1,9}) workload")),
    ("WaitingForQuota", NEEDED),
    ("OverLimit", TOO_LARGE),
    ("NoDomain", NO_DOMAIN),
    ("Misconfigured", re.compile(r"(?P<queue>LocalQueue|ClusterQueue) \S+ (?:doesn't exist|is inactive|is stopped)")),
    ("NoMatchingFlavor", re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")),
    ("NoMatchingFlavor", re.compile(r"doesn't match (?:node affinity|topology)|untolerated taint")),
)


def interpret(pod: Manifest, events: Sequence[Manifest]) -> PodStatusReason:
    """Evicted, queued, or a pod that waits for a node."""
    if texts := list(pod_status.disruption_texts(pod, events, PREEMPTED, "Evicted")):
        return next((each for each in map(_evicted, texts) if each.preemptor), _evicted(texts[0]))
    for text in pod_status.messages(events, QUEUED):
        return _pending(text)
    return pod_status.waiting_reason(pod)


def workload_events(workload: Manifest) -> Iterator[Manifest]:
    """A Workload of Kueue, as events about its job: how it is queued, and each preemption."""
    conditions = {each.get("type"): each for each in (workload.get("status") or {}).get("conditions") or ()}
    about = pod_status.controller_of(workload)
    if about is None:
        return
    if condition := _left_out(conditions, about) or _conditions_of(conditions):
        reason, found = condition
        yield _event(workload, about, "queue", reason, found)
    preempted = conditions.get(PREEMPTED, {})
    if preempted.get("status") == "True":
        yield _event(workload, about, f"evicted.{_second(preempted)}", PREEMPTED, preempted)


def _left_out(
    conditions: Mapping[Any, Mapping[str, Any]], about: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]] | None:
    """A pod whose admission was taken back before its gate was opened is neither deleted nor queued again."""
    again, reserved = conditions.get("Requeued", {}), conditions.get("QuotaReserved", {})
    if about.get("kind") != POD.kind or again.get("reason") != PREEMPTED:
        return None
    if (again.get("status"), reserved.get("status")) != ("False", "False"):
        return None
    return LEFT_OUT, {**again, "message": f"{NOT_AGAIN}: {again.get('message', '')}"}


def _conditions_of(conditions: Mapping[Any, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]] | None:
    """None: nothing has been decided yet."""
    if conditions.get("Finished", {}).get("status") == "True":
        return ADMITTED, conditions["Finished"]
    admitted, reserved = conditions.get(ADMITTED, {}), conditions.get("QuotaReserved")
    if admitted.get("status") == "True":
        return ADMITTED, admitted
    return (QUEUED, reserved) if reserved else None


def _event(
    workload: Manifest, about: Mapping[str, Any], mark: str, reason: str, condition: Mapping[str, Any]
) -> Manifest:
    message, at = str(condition.get("message", "")), condition.get("lastTransitionTime")
    return pod_status.event_of(workload, about, mark, source=CONTROLLER, reason=reason, message=message, at=at)


def _second(condition: Mapping[str, Any]) -> int:
    """When, as a number that distinguishes preemptions of a job."""
    try:
        return int(datetime.fromisoformat(str(condition.get("lastTransitionTime"))).timestamp())
    except ValueError:
        return 0


def _pending(text: str) -> PodStatusReason:
    for reason, pattern in PENDING:
        if match := pattern.search(text):
            return PodStatusReason(reason, text, match.groupdict())
    return PodStatusReason(QUEUED, text)


def _evicted(text: str) -> PodStatusReason:
    """By a job's uid where Kueue says it, or a pod's where kube-scheduler did it."""
    if match := BY.search(text):
        by = match["job"] or match["uid"]
        if RECLAIMED.search(text):
            return PodStatusReason("Reclaimed", text, preemptor=f"uid:{by}", cause="reclaim")
        return PodStatusReason("Preempted", text, preemptor=f"uid:{by}", cause="preempt")
    pod = pod_status.BY_POD.search(text)
    return PodStatusReason("Preempted", text, preemptor=f"uid:{pod[1]}" if pod else "", cause="preempt")
