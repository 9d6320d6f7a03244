"""A trace played on a real Kueue: each submission is a Job of a ClusterQueue, evicted and started again by Kueue."""

from collections.abc import Iterable, Iterator, Sequence
from secrets import token_hex
from typing import Any, Final

from clusters.ports.gateway import Manifest
from scheduling.model.preemptibility import QueuePreemptionPolicy
from scheduling.model.resources import Limit
from scheduling.model.snapshot import Queue, Snapshot
from tests.real.scenarios.objects import class_name
from tests.real.scenarios.traces import QUOTA, SPACE, Player, Submission, pod_metadata, pod_spec, shares_of
from tests.support.kube import KubeClient

VERSION: Final = "kueue.x-k8s.io/v1beta2"
WIDE: Final = "wide"
"""A pool of one node, larger than the quota: what Kueue admits never waits for a node."""


ROOT: Final = "root"


class KueuePlayer(Player):
    """Jobs in queues that preempt lower priorities, and reclaim what others of their cohorts borrow."""

    def __init__(self, admin: KubeClient, submissions: Sequence[Submission]) -> None:
        super().__init__(admin, submissions)
        self._namespace = f"{SPACE}-{token_hex(3)}"
        """Of this play alone: its Jobs stay."""
        self._workloads = f"/apis/{VERSION}/namespaces/{self._namespace}/workloads"

    def furnish(self) -> None:
        """The node, the queues, and the priorities."""
        if not self.admin.call("GET", f"/api/v1/nodes?labelSelector=rung.dev/node-pool={WIDE}")["items"]:
            self.admin.gpu_nodes(1, 2 * QUOTA, WIDE)
        self.admin.namespace(self._namespace)
        for manifest in _quota_objects(self.by_name.values(), self._namespace):
            self.admin.apply(manifest)
        for value in {each.priority for each in self.by_name.values()}:
            name = {"name": class_name(value, never=False)}
            kind = {"apiVersion": VERSION, "kind": "WorkloadPriorityClass"}
            self.admin.apply({**kind, "metadata": name, "value": value})

    def submit(self, submission: Submission) -> None:
        self.admin.call("POST", f"/apis/batch/v1/namespaces/{self._namespace}/jobs", _job(submission))

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


def quotas(submissions: Iterable[Submission]) -> Snapshot:
    """As the model sees them."""
    policies = {"preempts": QueuePreemptionPolicy.LOWER, "reclaims": QueuePreemptionPolicy.ANY}
    shares = shares_of(submissions)
    departments = {department for department, _gpus in shares.values()}
    return Snapshot(
        queues=tuple(
            Queue(name, ROOT, deserved=Limit.of(gpu=gpus))
            if name in departments
            else Queue(name, department or None, deserved=Limit.of(gpu=gpus), **policies)
            for name, (department, gpus) in shares.items()
        )
    )


def _quota_objects(submissions: Iterable[Submission], namespace: str) -> Iterator[Manifest]:
    """A ClusterQueue per queue, with a LocalQueue of the same name, and a Cohort per department below one for all.

    The latter is named after the namespace: plays do not borrow from each other.
    """
    yield _object("ResourceFlavor", SPACE, {})
    shares = shares_of(submissions)
    for department in sorted({department for department, _gpus in shares.values()} - {""}):
        yield _object("Cohort", department, {"parentName": namespace})
        del shares[department]
    for name, (department, gpus) in shares.items():
        amount = {"name": "nvidia.com/gpu", "nominalQuota": str(gpus)}
        flavors = [{"name": SPACE, "resources": [amount]}]
        spec = {
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}],
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            **({"cohortName": department} if department else {}),
        }
        yield _object("ClusterQueue", name, spec)
        yield _object("LocalQueue", name, {"clusterQueue": name}, namespace=namespace)


def _object(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> Manifest:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def _job(submission: Submission) -> Manifest:
    priority, pods = class_name(submission.priority, never=False), submission.workers
    labels = {"kueue.x-k8s.io/queue-name": submission.queue, "kueue.x-k8s.io/priority-class": priority}
    template = {"metadata": pod_metadata(submission), "spec": pod_spec(submission, WIDE)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": submission.name, "labels": labels},
        "spec": {"template": template, "suspend": True, "parallelism": pods, "completions": pods},
    }
