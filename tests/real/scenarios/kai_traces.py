"""A trace played on a real KAI: its submissions are pod groups of its queues, and start over when evicted."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clusters.ports.gateway import Manifest
from clusters.ports.objects import KAI_POD_GROUP, KAI_QUEUE
from scheduling.model.resources import Limit
from scheduling.model.snapshot import Queue, Snapshot
from tests.real.scenarios.objects import class_name
from tests.real.scenarios.traces import SPACE, KubePlayer, Submission, plain_nodes, shares_of


class KaiPlayer(KubePlayer):
    """Every submission has a pod group of its own, so that no pod grouper delays it."""

    def queue(self, name: str, share: tuple[str, int]) -> Manifest:
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        gpu = {**free, "quota": share[1]}
        spec = {"priority": 100, "resources": {"gpu": gpu, "cpu": free, "memory": free}}
        spec |= {"parentQueue": share[0]} if share[0] else {}
        return {"apiVersion": KAI_QUEUE.api_version, "kind": KAI_QUEUE.kind, "metadata": {"name": name}, "spec": spec}

    def group(self, submission: Submission) -> Sequence[Manifest]:
        spec = {
            "minMember": submission.workers,
            "queue": submission.queue,
            "priorityClassName": class_name(submission.priority, never=False),
            "preemptibility": "preemptible",
        }
        metadata = {"name": submission.name, "namespace": SPACE}
        kind = KAI_POD_GROUP
        return [{"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}]

    def pod(self, submission: Submission, name: str) -> Manifest:
        found = super().pod(submission, name)
        found["metadata"]["annotations"] |= {"pod-group-name": submission.name}
        found["spec"]["schedulerName"] = "kai-scheduler"
        return found


def nodes_and_queues(submissions: Iterable[Submission]) -> Snapshot:
    """As the model sees them."""
    shares = shares_of(submissions).items()
    queues = [Queue(name, parent or None, deserved=Limit.of(gpu=gpus)) for name, (parent, gpus) in shares]
    return replace(plain_nodes(), queues=tuple(queues))
