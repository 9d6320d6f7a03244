"""A trace played on a real Volcano: its submissions are pods or gangs of its queues, and start over when evicted."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clusters.flavours.volcano import GROUP, PREEMPTABLE, QUEUE, SCHEDULER
from clusters.ports.gateway import Manifest
from clusters.ports.objects import VOLCANO_POD_GROUP, VOLCANO_QUEUE
from scheduling.model.resources import Limit
from scheduling.model.snapshot import Queue, Snapshot
from tests.real.scenarios.objects import class_name
from tests.real.scenarios.traces import QUOTA, SPACE, KubePlayer, Submission, plain_nodes, shares_of


class VolcanoPlayer(KubePlayer):
    """Pods for Volcano, which makes a group of each that is alone."""

    def queue(self, name: str, share: tuple[str, int]) -> Manifest:
        """It may use all."""
        limit, deserved = ({"nvidia.com/gpu": str(amount)} for amount in (QUOTA, share[1]))
        spec = {"weight": 1, "capability": limit, "deserved": deserved, "parent": share[0] or "root"}
        kind = VOLCANO_QUEUE
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}

    def group(self, submission: Submission) -> Sequence[Manifest]:
        if submission.workers == 1:
            return ()
        priority = class_name(submission.priority, never=False)
        spec = {"minMember": submission.workers, "queue": submission.queue, "priorityClassName": priority}
        kind, metadata = VOLCANO_POD_GROUP, {"name": submission.name, "namespace": SPACE}
        return [{"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}]

    def pod(self, submission: Submission, name: str) -> Manifest:
        found = super().pod(submission, name)
        found["metadata"]["annotations"] |= {QUEUE: submission.queue, PREEMPTABLE: "true"}
        found["metadata"]["annotations"] |= {GROUP: submission.name} if submission.workers > 1 else {}
        found["spec"]["schedulerName"] = SCHEDULER
        return found


def nodes_and_queues(submissions: Iterable[Submission]) -> Snapshot:
    """As the model sees them."""
    queues = [
        Queue(name, parent or None, deserved=Limit.of(gpu=gpus), limit=Limit.of(gpu=QUOTA))
        for name, (parent, gpus) in shares_of(submissions).items()
    ]
    return replace(plain_nodes(), queues=tuple(queues))
