"""A sandbox to drive by hand: objects through the gateway, time through ticks, results through the observer."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clusters.inventory.models import Cluster
from clusters.ports.gateway import Manifest, ObjectRef
from clusters.ports.objects import EVENT, MANAGED_BY, MANAGER, NODE, OWNER, POD, ref_of
from clusters.ports.pod_templates import WorkloadKind
from clusters.ports.workload_kinds import kind_for
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services.simulation import SandboxGateway, TickResult, tick

TEAM: Final = "runai-team"
PRIORITIES: Final = {"very-low": 25, "low": 40, "medium": 80, "high": 125, "very-high": 150}
QUIET: Final = "3600"


class Sandbox:
    """One sandbox cluster and its time."""

    def __init__(self, flavour: str = "kai", *, speed: int = 1, name: str = "lab") -> None:
        self.cluster = Cluster.objects.create(name=name, flavour=flavour, backend="sandbox")
        SandboxClock.objects.create(cluster=self.cluster, speed=speed)
        self.gateway = SandboxGateway(self.cluster)
        # A little ahead of the gateway's own clock, so that ticks always move forward.
        self.now = datetime.now(tz=UTC) + timedelta(seconds=1)

    def tick(self, *, after: float = 1) -> TickResult:
        """One tick, that many real seconds later."""
        self.now += timedelta(seconds=after)
        return tick(self.cluster, now=self.now)

    def ticks(self, count: int, *, after: float = 1) -> None:
        for _ in range(count):
            self.tick(after=after)

    def create(self, manifest: Manifest) -> Manifest:
        return self.gateway.create(manifest)

    def delete(self, manifest: Manifest) -> None:
        self.gateway.delete(ref_of(manifest))

    def get(self, manifest: Manifest) -> Manifest | None:
        return self.gateway.get(ref_of(manifest))

    def pods(self, owner: str = "") -> list[Manifest]:
        """Live pods, oldest first; only those of one owner if it is named."""
        found = self.gateway.list(POD, managed_only=False)[0]
        mine = [pod for pod in found if not owner or owner_name(pod) == owner]
        return sorted(mine, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def phases(self, owner: str = "") -> list[str]:
        return [pod["status"]["phase"] for pod in self.pods(owner)]

    def events(self, reason: str) -> list[str]:
        found = self.gateway.list(EVENT, managed_only=False)[0]
        return [event["message"] for event in found if event["reason"] == reason]

    def node(self, name: str = "node-0", *, gpus: int = 8, pool: str = "", **labels: str) -> Manifest:
        marks = {"rung.dev/node-pool": pool} if pool else {}
        return self.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {**marks, **labels}},
                "status": {
                    "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "512Gi"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )

    def remove_node(self, name: str) -> None:
        self.gateway.delete(ObjectRef(NODE, name))

    def namespace(self, name: str = TEAM) -> Manifest:
        return self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def priority_classes(self, **more: int) -> None:
        for name, value in {**PRIORITIES, **more}.items():
            self.create(priority_class(name, value))

    def queue(
        self, name: str, *, deserved: int = 0, limit: int = -1, parent: str = "", weight: int = 1, **labels: str
    ) -> Manifest:
        share = {"quota": -1, "limit": -1, "overQuotaWeight": weight}
        spec: dict[str, Any] = {
            "displayName": name,
            "resources": {
                "gpu": {"quota": deserved, "limit": limit, "overQuotaWeight": weight},
                "cpu": share,
                "memory": share,
            },
        }
        if parent:
            spec["parentQueue"] = parent
        return self.create(
            {
                "apiVersion": "scheduling.run.ai/v2",
                "kind": "Queue",
                "metadata": {"name": name, "labels": labels},
                "spec": spec,
            }
        )

    def quota(self, name: str, namespace: str = TEAM, *, classes: tuple[str, ...] = (), **hard: str) -> Manifest:
        spec: dict[str, Any] = {"hard": {"requests.nvidia.com/gpu": hard["gpus"]}}
        if classes:
            scope = {"scopeName": "PriorityClass", "operator": "In", "values": list(classes)}
            spec["scopeSelector"] = {"matchExpressions": [scope]}
        metadata = {"name": name, "namespace": namespace}
        return self.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec})


def furnished(flavour: str = "kai", *, gpus: int = 8, deserved: int = 8, speed: int = 1) -> Sandbox:
    """A sandbox with a node, PriorityClasses, a namespace and (for KAI) a department with one project queue `team`."""
    sandbox = Sandbox(flavour, speed=speed)
    sandbox.node(gpus=gpus)
    sandbox.priority_classes()
    sandbox.namespace()
    if flavour == "kai":
        sandbox.queue("department", deserved=deserved)
        sandbox.queue("team", deserved=deserved, parent="department")
    return sandbox


def priority_class(name: str, value: int, policy: str = "PreemptLowerPriority", **more: object) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
        **more,
    }


def template(
    *,
    gpus: int = 1,
    priority: str = "low",
    seconds: str = QUIET,
    queue: str = "team",
    preemptibility: str = "",
    grace: int = 30,
    exit_code: str = "0",
) -> dict[str, Any]:
    """A pod template as a rendered job carries it."""
    labels = {"kai.scheduler/queue": queue}
    if preemptibility:
        labels["kai.scheduler/preemptibility"] = preemptibility
    return {
        "metadata": {
            "labels": labels,
            "annotations": {"rung.dev/run-seconds": seconds, "rung.dev/exit-code": exit_code},
        },
        "spec": {
            "restartPolicy": "Never",
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": grace,
            "containers": [container(gpus)],
        },
    }


def container(gpus: int = 1) -> dict[str, Any]:
    return {"name": "main", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


def job(name: str, *, parallelism: int = 1, namespace: str = TEAM, workload: str = "", **requested: Any) -> Manifest:
    """A batch/v1 Job of that many pods."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": owned_by(workload or name)},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "suspend": False,
            "template": dressed(workload or name, requested),
        },
    }


def dressed(workload: str, requested: dict[str, Any]) -> dict[str, Any]:
    body = template(**requested)
    body["metadata"]["labels"] |= owned_by(workload)
    return body


def owned_by(workload: str) -> dict[str, str]:
    return {MANAGED_BY: MANAGER, OWNER: f"workload.{workload}"}


def bare_pod(name: str, *, namespace: str = TEAM, **requested: Any) -> Manifest:
    body = template(**requested)
    metadata = {"name": name, "namespace": namespace, **body["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body["spec"]}


def owner_name(pod: Manifest) -> str:
    owners = pod["metadata"].get("ownerReferences") or [{"name": pod["metadata"]["name"]}]
    return str(owners[0]["name"])


def workload_kind(manifest: Manifest) -> WorkloadKind:
    kind = kind_for(manifest["apiVersion"], manifest["kind"])
    assert kind is not None
    return kind
