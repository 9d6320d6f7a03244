"""The clock of a sandbox, its speed, and the nodes added to it.

Killed in the middle, nothing of the step is left. Two tickers never do the same step twice: the first one moves the
clock's `ticked_at` forward under its lock, the other one finds nothing to do.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from clusters.flavours.objects import POOL
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import Manifest
from clusters.ports.objects import NODE
from clusters.ports.pods import GPU_PRODUCT, GPU_RESOURCE
from clusters.sandbox.models import SandboxClock
from clusters.sandbox.services import controllers, kubelet, kueue_controller, scheduler
from clusters.sandbox.services.gateway import SandboxGateway
from clusters.sandbox.services.snapshot import SnapshotPool
from clusters.sandbox.services.store import ObjectStore
from portal.audit.services import record
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.snapshot import Strategy

CLOCK_JUMPED_BACK: Final = timedelta(seconds=60)  # a `ticked_at` this far ahead was written by a wrong clock


@dataclass(frozen=True, slots=True)
class TickResult:
    """What one tick did. `claimed` is False when another ticker had already done it."""

    claimed: bool = False
    started: int = 0
    evicted: int = 0
    waiting: int = 0
    written: int = 0


def tick(cluster: Cluster, *, now: datetime) -> TickResult:
    """Move the sandbox to `now`."""
    with transaction.atomic():
        SandboxClock.objects.get_or_create(cluster=cluster)
        if not _claim(cluster, now):
            return TickResult()
        store = ObjectStore.open(cluster, now=now)
        store.load()
        kubelet.run(store)
        queued = kueue_controller.run(store, flavour=cluster.flavour)
        controllers.run(store)
        counts = queued + scheduler.run(store, flavour=cluster.flavour, pools=_pools(cluster))
        written = store.flush()
        if written:
            store.prune()
    return TickResult(
        claimed=True, started=counts.started, evicted=counts.evicted, waiting=counts.waiting, written=written
    )


def _pools(cluster: Cluster) -> list[SnapshotPool]:
    return [
        SnapshotPool(pool.name, pool.label_key, pool.label_value, Strategy(pool.gpu_placement))
        for pool in cluster.node_pools.all()
    ]


def _claim(cluster: Cluster, now: datetime) -> bool:
    due = Q(ticked_at__isnull=True) | Q(ticked_at__lt=now) | Q(ticked_at__gt=now + CLOCK_JUMPED_BACK)
    return SandboxClock.objects.filter(due, cluster=cluster).update(ticked_at=now) == 1


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
    _check_sandbox(cluster)
    if not 0 < count <= MOST_NODES:
        raise ValidationFailed.at("/count", "out_of_range", f"Create 1 to {MOST_NODES} nodes at a time.")
    gateway = SandboxGateway(cluster)
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
    _check_sandbox(cluster)
    if not 1 <= speed <= FASTEST:
        raise ValidationFailed.at("/speed", "out_of_range", f"Choose a speed from 1 to {FASTEST}.")
    clock, _ = SandboxClock.objects.get_or_create(cluster=cluster)
    if clock.speed == speed:
        return
    clock.speed, clock.speed_since = speed, timezone.now()
    clock.save(update_fields=["speed", "speed_since"])
    record(actor, "sandbox.set_speed", cluster, detail={"speed": speed})


def _check_sandbox(cluster: Cluster) -> None:
    if cluster.backend != SANDBOX:
        raise ValidationFailed.at("/cluster", "not_a_sandbox", f"{cluster.name} is a real cluster.")


def _node(name: str, pool: NodePool, gpu_type: str, amounts: dict[str, str]) -> Manifest:
    marks = {"kubernetes.io/hostname": name, POOL: pool.name, GPU_PRODUCT: gpu_type, pool.label_key: pool.label_value}
    status: dict[str, Any] = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": marks}, "status": status}
