"""A scenario as objects of a cluster. Many stand side by side: each has nodes of its own, and its pods select them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from clusters.ports.gateway import Manifest
from scheduling.model.resources import Resources
from tests.real.scenarios.generator import VALUES
from tests.real.scenarios.plain import NAMESPACES, NodePlan, PodPlan, Scenario

MARK: Final = "agree.example.com/scenario"
CHOICE: Final = "agree.example.com/choice"
RACK: Final = "agree.example.com/rack"
GRACE: Final = 7200  # victims stay to be read
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


def shared_objects() -> Iterable[Manifest]:
    """Namespaces and a PriorityClass per value and preemptionPolicy."""
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for value in VALUES:
        for policy in ("PreemptLowerPriority", "Never"):
            yield {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": class_name(value, never=policy == "Never")},
                "value": value,
                "preemptionPolicy": policy,
            }


def class_name(value: int, *, never: bool) -> str:
    """agree-25, agree-below-10, agree-25-never."""
    return f"agree-{'below-' if value < 0 else ''}{abs(value)}{'-never' if never else ''}"


def node_name(scenario: Scenario, name: str) -> str:
    """The same in every run of a seed."""
    return f"agree-{scenario.seed}-{name}"


def node_object(scenario: Scenario, plan: NodePlan) -> Manifest:
    """A fake node that is ready from the start."""
    labels = {MARK: str(scenario.seed)} | ({} if plan.closed == "elsewhere" else {CHOICE: "yes"})
    labels |= {RACK: f"{scenario.seed}-{plan.rack}"} if plan.rack else {}
    size = {**_quantities(plan.capacity), "pods": str(plan.max_pods)}
    spec: Manifest = {}
    if plan.closed == "cordoned":
        spec = {"unschedulable": True}
    elif plan.closed == "tainted":
        spec = {"taints": [{"key": "agree.example.com/closed", "effect": "NoSchedule"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_name(scenario, plan.name),
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": spec,
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod_object(scenario: Scenario, plan: PodPlan) -> Manifest:
    """A pod: bound past the scheduler where it has a node, else one that selects the scenario's nodes."""
    spec: Manifest = {
        "nodeSelector": {MARK: str(scenario.seed), CHOICE: "yes"} if plan.node is None else {},
        "terminationGracePeriodSeconds": GRACE,
        "automountServiceAccountToken": False,
        "containers": [{"name": "work", "image": "work", "resources": _resources(plan.requests)}],
    }
    if plan.node is not None:
        spec["nodeName"] = node_name(scenario, plan.node)
    if plan.gang:
        spec["schedulingGroup"] = {"podGroupName": f"agree-{scenario.seed}-{plan.gang}"}
    if plan.value is not None:
        spec["priorityClassName"] = class_name(plan.value, never=plan.never)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"agree-{scenario.seed}-{plan.name}",
            "namespace": plan.namespace,
            "labels": {MARK: str(scenario.seed)},
        },
        "spec": spec,
    }


def start_time(plan: PodPlan) -> str:
    """When a running pod is to have started."""
    return (EPOCH + timedelta(seconds=plan.start)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _resources(requests: Resources) -> Manifest:
    requested = _quantities(requests)
    return {"requests": requested, "limits": requested} if requested else {}


def _quantities(amount: Resources) -> dict[str, str]:
    found = {
        "nvidia.com/gpu": str(amount.gpu // 1000) if amount.gpu else "",
        "cpu": f"{amount.cpu}m" if amount.cpu else "",
        "memory": str(amount.memory) if amount.memory else "",
    }
    return {name: text for name, text in found.items() if text}
