"""A trace played on a real Volcano: each submission is a pod of its queue, and comes again when it is evicted."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from clusters.flavours.volcano import PREEMPTABLE, QUEUE, SCHEDULER
from clusters.ports.gateway import Manifest
from clusters.ports.objects import VOLCANO_QUEUE
from scheduling.model.resources import Limit
from scheduling.model.snapshot import Queue, Snapshot
from tests.real.scenarios.traces import KubePlayer, Submission, plain_nodes
from tests.support.lab import GPUS, NODES

QUOTA: Final = NODES * GPUS
CYCLE: Final = 200
"""Milliseconds from one decision of the lab's Volcano to the next."""


class VolcanoPlayer(KubePlayer):
    """Pods for Volcano, which makes a group of each."""

    def furnish(self) -> None:
        """The queues as well, each of which deserves as much and may use all."""
        super().furnish()
        queues = queues_of(self.by_name.values())
        limit, deserved = ({"nvidia.com/gpu": str(gpus)} for gpus in (QUOTA, QUOTA // len(queues)))
        kind = {"apiVersion": VOLCANO_QUEUE.api_version, "kind": VOLCANO_QUEUE.kind}
        for name in queues:
            spec = {"weight": 1, "capability": limit, "deserved": deserved}
            self.admin.apply({**kind, "metadata": {"name": name}, "spec": spec})

    def pod(self, submission: Submission, number: int) -> Manifest:
        found = super().pod(submission, number)
        found["metadata"]["annotations"] |= {QUEUE: submission.queue, PREEMPTABLE: "true"}
        found["spec"]["schedulerName"] = SCHEDULER
        return found

    def is_evicted(self, found: Manifest) -> bool:
        """Nobody else deletes one that has not finished."""
        return "deletionTimestamp" in found["metadata"]


def queues_of(submissions: Iterable[Submission]) -> list[str]:
    """Their names."""
    return sorted({each.queue for each in submissions})


def nodes_and_queues(submissions: Iterable[Submission]) -> Snapshot:
    """As the model sees them."""
    names, limit = queues_of(submissions), Limit.of(gpu=QUOTA)
    deserved = Limit.of(gpu=QUOTA // len(names))
    return replace(plain_nodes(), queues=tuple(Queue(name, deserved=deserved, limit=limit) for name in names))
