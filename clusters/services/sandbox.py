"""Furnishing a sandbox: nodes of a pool, and how fast its time passes. Refused for any other cluster."""

from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from clusters.flavours.common import POOL
from clusters.gateways import gateway_for
from clusters.kinds_core import NODE
from clusters.models import Cluster, NodePool, SandboxClock
from clusters.pods import GPU_RESOURCE
from clusters.ports import Manifest
from clusters.services.observed_nodes import GPU_PRODUCT
from portal.audit.services import record
from portal.core.actors import Actor
from portal.core.errors import Refused

SANDBOX: Final = "sandbox"
FASTEST: Final = 3600
MOST_NODES: Final = 1000


@transaction.atomic
def create_sandbox_nodes(
    *,
    cluster: Cluster,
    pool: NodePool,
    count: int,
    actor: Actor,
    gpus: int = 8,
    gpu_type: str = "NVIDIA-H100-80GB-HBM3",
    cpu: int = 128,
    memory: str = "1Ti",
) -> list[str]:
    """Add nodes to a pool of a sandbox; the names of the new ones. `cpu` in cores, `memory` as a quantity."""
    _refuse_others(cluster)
    if not 0 < count <= MOST_NODES:
        raise Refused.at("/count", "out_of_range", f"Create 1 to {MOST_NODES} nodes at a time.")
    gateway = gateway_for(cluster)
    taken = {node["metadata"]["name"] for node in gateway.list(NODE, managed_only=False)[0]}
    free = (name for number in range(1, len(taken) + count + 1) if (name := f"{pool.name}-{number:02}") not in taken)
    names = [next(free) for _ in range(count)]
    amounts = {GPU_RESOURCE: str(gpus), "cpu": str(cpu), "memory": memory, "pods": "110"}
    for name in names:
        gateway.create(_node(name, pool, gpu_type, amounts))
    record(actor, "sandbox.create_nodes", cluster, detail={"pool": pool.name, "count": count, "gpus": gpus})
    return names


@transaction.atomic
def set_speed(*, cluster: Cluster, speed: int, actor: Actor) -> None:
    """Let run times and grace periods pass `speed` times faster, 1 to 3600; timestamps stay real.

    What ran before keeps its age: only from now on does time pass faster.
    """
    _refuse_others(cluster)
    if not 1 <= speed <= FASTEST:
        raise Refused.at("/speed", "out_of_range", f"Choose a speed from 1 to {FASTEST}.")
    clock, _ = SandboxClock.objects.get_or_create(cluster=cluster)
    if clock.speed == speed:
        return
    clock.speed, clock.speed_since = speed, timezone.now()
    clock.save(update_fields=["speed", "speed_since"])
    record(actor, "sandbox.set_speed", cluster, detail={"speed": speed})


def _refuse_others(cluster: Cluster) -> None:
    if cluster.backend != SANDBOX:
        raise Refused.at("/cluster", "not_a_sandbox", f"{cluster.name} is a real cluster.")


def _node(name: str, pool: NodePool, gpu_type: str, amounts: dict[str, str]) -> Manifest:
    marks = {"kubernetes.io/hostname": name, POOL: pool.name, GPU_PRODUCT: gpu_type, pool.label_key: pool.label_value}
    status: dict[str, Any] = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": marks}, "status": status}
