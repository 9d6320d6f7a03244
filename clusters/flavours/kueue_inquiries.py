"""What Kueue says only when it is asked: who waits in a queue in which order, and whether it lets jobs be made. Pure.

Source: Kueue 0.19, `visibility.kueue.x-k8s.io/v1beta2`, which its own process serves; positions there begin with 0.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from clusters.ownership import owned
from clusters.ports import Inquiries, Kind, Manifest

PLACE: Final = "QueuePosition"
"""Reason of an event that tells of a job's place among all that wait in its queue."""
SHOWN_QUEUE: Final = Kind("visibility.kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues")
WEBHOOK: Final = re.compile(r"failed calling webhook \"(?P<webhook>[^\"]{1,253})\"")
PLACED: Final = re.compile(r"(?P<place>[0-9]{1,7}) of (?P<among>[0-9]{1,7}) in queue ")


def places(summary: Manifest) -> Iterator[Manifest]:
    """The answer about one queue as an event about each job that waits in it."""
    waiting = [each for each in _rows(summary.get("items")) if _job_of(each)]
    for number, each in enumerate(waiting, start=1):
        about, metadata = _job_of(each), each["metadata"]
        space, queue = str(metadata.get("namespace", "")), str(each.get("localQueueName", ""))
        yield {
            "metadata": {"name": str(about["name"]), "namespace": space, "uid": f"{str(about['uid'])[:36]}.place"},
            "involvedObject": {**{key: about.get(key, "") for key in ("kind", "name", "uid")}, "namespace": space},
            "type": "Normal",
            "reason": PLACE,
            "message": f"{number} of {len(waiting)} in queue {queue}",
            "reportingComponent": "kueue",
        }


def _rows(items: Any) -> list[dict[str, Any]]:
    """The answer is a cluster's: whatever has another shape is not there."""
    found = items if isinstance(items, list) else []
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("metadata"), dict)]


def _job_of(waiting: dict[str, Any]) -> dict[str, Any]:
    """Empty where nobody is named."""
    owners = waiting["metadata"].get("ownerReferences")
    named = [each for each in owners or () if isinstance(each, dict) and each.get("uid") and each.get("name")]
    return next((each for each in named if each.get("controller")), named[0] if named else {})


def example(namespace: str, queue: str) -> Manifest:
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


def closed_by(message: str) -> str:
    """The webhook that nobody answers for, in the API server's words; empty: something else is wrong, or nothing."""
    found = WEBHOOK.search(message)
    return found["webhook"] if found else ""


INQUIRIES: Final = Inquiries(
    queue=SHOWN_QUEUE,
    part="pendingworkloads",
    why="a workload's place in its queue",
    tell=places,
    example=example,
    closed_by=closed_by,
)
