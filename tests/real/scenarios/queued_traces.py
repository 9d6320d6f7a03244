"""A trace played on a real Kueue: each submission is a Job of one ClusterQueue, evicted and started again by Kueue."""

from collections.abc import Sequence
from typing import Any, Final

from clusters.ports.gateway import Manifest
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.resources import Limit
from scheduling.model.snapshot import Queue, Snapshot
from tests.real.scenarios.objects import class_name
from tests.real.scenarios.traces import QUOTA, SPACE, Player, Submission, pod_metadata, pod_spec
from tests.support.kube import KubeClient

VERSION: Final = "kueue.x-k8s.io/v1beta2"
JOBS: Final = "replayed-jobs"
"""A namespace apart from that of plain pods."""
WIDE: Final = "wide"
"""A pool of one node, larger than the quota: what Kueue admits never waits for a node."""


class KueuePlayer(Player):
    """Jobs in one queue with preemption of lower priorities."""

    def __init__(self, admin: KubeClient, submissions: Sequence[Submission]) -> None:
        super().__init__(admin, submissions)
        self._workloads = f"/apis/{VERSION}/namespaces/{JOBS}/workloads"

    def furnish(self) -> None:
        """The node, the queue, and the priorities."""
        if not self.admin.call("GET", f"/api/v1/nodes?labelSelector=rung.dev/node-pool={WIDE}")["items"]:
            self.admin.gpu_nodes(1, 2 * QUOTA, WIDE)
        self.admin.namespace(JOBS)
        for manifest in _queue():
            self.admin.apply(manifest)
        for value in {each.priority for each in self.by_name.values()}:
            name = {"name": class_name(value, never=False)}
            kind = {"apiVersion": VERSION, "kind": "WorkloadPriorityClass"}
            self.admin.apply({**kind, "metadata": name, "value": value})

    def submit(self, submission: Submission) -> None:
        self.admin.call("POST", f"/apis/batch/v1/namespaces/{JOBS}/jobs", _job(submission))

    def look(self) -> None:
        for each in self.admin.call("GET", self._workloads)["items"]:
            name = each["metadata"]["ownerReferences"][0]["name"]
            if self.played[name].finished is None:
                self._take(name, each.get("status", {}))

    def _take(self, name: str, status: dict[str, Any]) -> None:
        """Kueue counts evictions itself: so those between two looks are seen."""
        known = self.played[name]
        true = {each["type"] for each in status.get("conditions", []) if each["status"] == "True"}
        evictions = status.get("schedulingStats", {}).get("evictions", [])
        count = sum(each["count"] for each in evictions if each["reason"] == "Preempted")
        if "QuotaReserved" in true and known.start is None and count == len(known.cut_short):
            self.started(name)
        if "Finished" in true:
            known.finished = self.now()
        elif count > len(known.cut_short) and known.leaving is None:
            self.evicted(name)
        if known.start is not None and not true & {"QuotaReserved", "Finished"}:
            self.gone(name)


def one_queue() -> Snapshot:
    """As the model sees it."""
    quota = Limit.of(gpu=QUOTA)
    return Snapshot(queues=(Queue(SPACE, deserved=quota, limit=quota, preempts=QueuePreemptionPolicy.LOWER),))


def _queue() -> list[Manifest]:
    group = {"coveredResources": ["nvidia.com/gpu"]}
    amount = {"name": "nvidia.com/gpu", "nominalQuota": str(QUOTA)}
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [{**group, "flavors": [{"name": SPACE, "resources": [amount]}]}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    local = {"metadata": {"name": SPACE, "namespace": JOBS}, "spec": {"clusterQueue": SPACE}}
    return [
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": SPACE}, "spec": {}},
        {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": SPACE}, "spec": spec},
        {"apiVersion": VERSION, "kind": "LocalQueue", **local},
    ]


def _job(submission: Submission) -> Manifest:
    priority = class_name(submission.priority, never=False)
    labels = {"kueue.x-k8s.io/queue-name": SPACE, "kueue.x-k8s.io/priority-class": priority}
    template = {"metadata": pod_metadata(submission), "spec": pod_spec(submission, WIDE)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": submission.name, "labels": labels},
        "spec": {"template": template, "suspend": True},
    }
