"""The simulated cluster as a whole: an API server whose objects are rows of Rung's own database, its clock, its nodes.

The gateway answers like a real one: resourceVersions, conflicts, tombstones, admission, deletion with grace.

A process that is killed in a tick leaves nothing of it. Two tickers never do the same step twice: the first one
moves the clock's `ticked_at` forward under its lock, the other one finds nothing to do.
"""

import copy
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from clusters.flavours import kueue_capabilities
from clusters.flavours.kueue_status import SHOWN_QUEUE, VISIBILITY_API
from clusters.flavours.objects import POOL
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.gateway import ClusterRefused, Kind, ListPage, Manifest, ObjectRef, VersionExpired, WatchEvent
from clusters.ports.objects import KUEUE_WORKLOAD, NODE
from clusters.ports.pods import GPU_PRODUCT, GPU_RESOURCE
from clusters.sandbox.models import SandboxClock, SandboxObject
from clusters.sandbox.services import admission, controllers, kubelet, kueue_controller, scheduler
from clusters.sandbox.services.kubelet import lines
from clusters.sandbox.services.kueue_webhooks import pending_in
from clusters.sandbox.services.snapshot import SnapshotPool
from clusters.sandbox.services.store import KEPT_VERSIONS, ObjectStore
from portal.audit.services import record
from portal.kit.errors import ValidationFailed
from portal.kit.security.actors import Actor
from scheduling.model.snapshot import Strategy

VERSION = "v1.36.3-sandbox"
BUILT_IN: Final = {kueue_capabilities.CONF: kueue_capabilities.of_everything()}
"""Objects that exist without having been created: the sandbox's Kueue manages every kind."""


class SandboxGateway:
    """`ClusterGateway` over the rows of one sandbox cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        managed_only: bool = True,
        metadata_only: bool = False,
        stale: bool = False,
    ) -> tuple[list[Manifest], str]:
        """Read the version first: objects written meanwhile are merely seen again by the watch."""
        version = self._version()
        rows = self._rows(kind).filter(deleted=False)
        if namespace:
            rows = rows.filter(namespace=namespace)
        if managed_only:
            rows = rows.filter(managed=True)
        return [row.manifest for row in rows.order_by("namespace", "name")], str(version)

    def pages(self, kind: Kind) -> Iterator[ListPage]:
        yield ListPage(*self.list(kind))

    def get(self, ref: ObjectRef) -> Manifest | None:
        row = self._rows(ref.kind).filter(deleted=False, namespace=ref.namespace, name=ref.name).first()
        return copy.deepcopy(BUILT_IN.get(ref)) if row is None else row.manifest

    def create(self, manifest: Manifest) -> Manifest:
        with transaction.atomic():
            store = self._open()
            created = admission.create(store, copy.deepcopy(manifest))
            store.flush()
        return copy.deepcopy(created)

    def update(self, manifest: Manifest, *, observed: Manifest) -> Manifest:
        with transaction.atomic():
            store = self._open()
            version = observed["metadata"]["resourceVersion"]
            updated = admission.update(store, copy.deepcopy(manifest), version=version)
            store.flush()
        return copy.deepcopy(updated)

    def delete(self, ref: ObjectRef, *, uid: str | None = None) -> None:
        with transaction.atomic():
            store = self._open()
            found = store.find(ref.kind.key, ref.name, ref.namespace)
            if found is not None and uid in {None, found["metadata"]["uid"]}:
                admission.delete(store, found)
                store.flush()

    def watch(self, kind: Kind, *, since: str, wait: float = 0.0, metadata_only: bool = False) -> Iterator[WatchEvent]:
        """Changes are compacted: an object changed twice since then comes once, in its current state."""
        start = self._start(since)
        rows = self._rows(kind).filter(version__gt=start).exclude(Q(deleted=True) & Q(created_version__gt=start))
        for row in rows.order_by("version"):
            yield WatchEvent(_event_type(row, start), row.manifest)

    def newest(self) -> str:
        """The version of the last write of any kind."""
        return str(self._version())

    def changed_kinds(self, *, since: str) -> frozenset[str]:
        rows = SandboxObject.objects.filter(cluster=self._cluster, version__gt=self._start(since))
        return frozenset(rows.values_list("kind", flat=True).distinct())

    def logs(self, ref: ObjectRef, *, container: str = "", tail: int = 200) -> Sequence[str]:
        pod = self.get(ref)
        if pod is None:
            raise ClusterRefused(f'pods "{ref.name}" not found')
        names = [each.get("name") for each in pod["spec"].get("containers") or []]
        if container and container not in names:
            raise ClusterRefused(f"container {container} is not valid for pod {ref.name}")
        clock = SandboxClock.objects.filter(cluster=self._cluster).first() or SandboxClock()
        return lines(pod, now=timezone.now(), clock=clock, tail=tail)

    def part(self, ref: ObjectRef, name: str) -> Manifest | None:
        """A subresource: what waits in a queue of whole jobs. None: it serves no such part."""
        if (ref.kind, name) != (SHOWN_QUEUE, VISIBILITY_API.part):
            return None
        return pending_in(self.list(KUEUE_WORKLOAD, namespace=ref.namespace, managed_only=False)[0], ref.name)

    def try_create(self, manifest: Manifest) -> None:
        """Its webhooks always answer; what has no kind that it knows is refused."""
        admission.known_kind(manifest)

    def identity(self) -> tuple[str, str]:
        return str(uuid.uuid5(self._cluster.pk, "kube-system")), VERSION

    def serves(self, kind: Kind) -> bool:
        return True

    def _open(self) -> ObjectStore:
        return ObjectStore.open(self._cluster, now=timezone.now())

    def _rows(self, kind: Kind) -> QuerySet[SandboxObject]:
        return SandboxObject.objects.filter(cluster=self._cluster, kind=kind.key)

    def _version(self) -> int:
        return SandboxClock.objects.filter(cluster=self._cluster).values_list("version", flat=True).first() or 1

    def _start(self, since: str) -> int:
        """The version to watch from. Older than the tombstones that are kept, or from another store: list again."""
        newest = self._version()
        if not since.isdecimal() or not newest - KEPT_VERSIONS <= int(since) <= newest:
            raise VersionExpired(f"too old resource version: {since[:32]} ({newest})")
        return int(since)


def _event_type(row: SandboxObject, start: int) -> str:
    if row.deleted:
        return "DELETED"
    return "ADDED" if row.created_version > start else "MODIFIED"


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
