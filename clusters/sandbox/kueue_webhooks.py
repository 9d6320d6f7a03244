"""What Kueue's webhooks do to objects on their way in: whatever stands in a queue is held back until it is admitted.

A job waits suspended; pods of a kind that cannot be suspended, and bare pods, wait with a gate. Pods of what was
admitted to places on nodes are sent there.
"""

from typing import Any

from clusters.flavours import flavour_for
from clusters.flavours.kueue import QUEUE_LABEL
from clusters.pods import controller_of, labels
from clusters.ports import Manifest
from clusters.sandbox.conditions import set_condition
from clusters.sandbox.kueue_topology import send
from clusters.sandbox.kueue_workloads import GATE, is_admitted, queue_of, suspend_of, workload_of
from clusters.sandbox.store import Store

GATED = "Scheduling is blocked due to non-empty scheduling gates"


def hold_back(store: Store, manifest: Manifest, *, before: Manifest | None = None) -> None:
    """Change a new object in place; `before`: what is there already stays suspended or let go as it is."""
    if not flavour_for(store.cluster.flavour).traits.queues_jobs:
        return
    if manifest["kind"] == "Pod":
        if before is None:
            _receive(store, manifest)
    elif queue_of(manifest) and (pointer := suspend_of(manifest)):
        write(manifest, pointer, held=before is None or read(before, pointer))


def _receive(store: Store, pod: Manifest) -> None:
    """A pod of a job that can be suspended exists only once that was let go."""
    if not labels(pod).get(QUEUE_LABEL):
        return
    owner = controller_of(pod)
    workload = workload_of(store, owner, pod["metadata"].get("namespace", "")) if owner else None
    if workload is not None and is_admitted(workload):
        send(store, pod, workload)
    elif owner is None or suspend_of(owner) is None:
        _gate(store, pod)


def _gate(store: Store, pod: Manifest) -> None:
    pod["spec"]["schedulingGates"] = [dict(GATE)]
    set_condition(pod, "PodScheduled", "False", at=store.now, reason="SchedulingGated", message=GATED)


def read(manifest: Manifest, pointer: str) -> bool:
    """Is it held back?"""
    node: Any = manifest
    for step in pointer.split("/")[1:]:
        node = node.get(step) or {}
    return node is True


def write(manifest: Manifest, pointer: str, *, held: bool) -> None:
    """Hold it back, or let it go."""
    *above, last = pointer.split("/")[1:]
    node: Any = manifest
    for step in above:
        node = node.setdefault(step, {})
    node[last] = held
