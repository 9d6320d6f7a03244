"""Store what was observed of a cluster, call the observation handlers, and prune rows that no app needs.

A handler runs in the transaction that stores the observation and must be idempotent: when one fails, everything is
rolled back and the same observation comes again.

Versions move forward in the same transaction as rows and handlers, so a failure anywhere brings the same changes
again, and of two observers at once one finds that the other was faster. Times are the database's: a worker's clock
may be wrong. Nodes are stored with their node pool; a changed topology domain requests a reconcile.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from clusters.flavours.registry import COMPANION_KEYS, EVENT_SOURCE_KEYS, flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.inventory.selectors import domains_by_node
from clusters.inventory.services import dirty_owners
from clusters.inventory.services.dirty_owners import notify_sync
from clusters.ports.flavour import PodStatusReason
from clusters.ports.gateway import Manifest
from clusters.ports.objects import EVENT, NODE, POD, WORKLOAD_KINDS
from clusters.ports.pods import GPU_PRODUCT, amounts, condition, labels, max_pods, moment_of, more_amounts, taints_of
from clusters.watch.models import ClusterEvent, ObservedObject, ObservedPod, ObserverLease
from clusters.watch.rules import JobStatus
from clusters.watch.services.events import adopt_events, store_events, store_scheduler_events
from clusters.watch.services.objects import (
    bare_pod_changes,
    companion_changes,
    detect_foreign_changes,
    drop_foreign_owners,
    job_changes,
)
from clusters.watch.services.pods import PodChanges, PodStore
from clusters.watch.services.watch_buffer import CHUNK, WatchBatch, newer

FIELDS = [
    "uid",
    "pool",
    "labels",
    "gpu_type",
    "gpu_milli",
    "cpu_milli",
    "memory_bytes",
    "max_pods",
    "more_amounts",
    "taints",
    "ready",
    "unschedulable",
    "resource_version",
    "joined_at",
    "observed_at",
]


def store_nodes(cluster: Cluster, look: WatchBatch, pools: list[NodePool], *, at: datetime) -> None:
    """Upsert what is there, drop what is gone, and move nodes whose pool's label has changed."""
    rows = list({each["metadata"]["name"]: _row(cluster, each, pools, at) for each in look.present}.values())
    nodes = Node.objects.filter(cluster=cluster)
    if look.whole:
        nodes.exclude(name__in=[row.name for row in rows]).delete()
    if look.gone:
        nodes.filter(uid__in=[manifest["metadata"]["uid"] for manifest in look.gone]).delete()
    Node.objects.bulk_create(rows, update_conflicts=True, unique_fields=["cluster", "name"], update_fields=FIELDS)


def move_nodes(cluster: Cluster, pools: list[NodePool]) -> None:
    """Pools may be defined after their nodes were seen."""
    moved = []
    for node in Node.objects.filter(cluster=cluster):
        pool = pool_of(node.labels, pools)
        if node.pool_id != (pool.pk if pool else None):
            node.pool = pool
            moved.append(node)
    Node.objects.bulk_update(moved, ["pool"])


def pool_of(marks: dict[str, str], pools: list[NodePool]) -> NodePool | None:
    """The pool whose label these labels carry; without any, the default pool."""
    for pool in pools:
        if marks.get(pool.label_key) == pool.label_value:
            return pool
    return next((pool for pool in pools if pool.is_default), None)


def _row(cluster: Cluster, manifest: Manifest, pools: list[NodePool], at: datetime) -> Node:
    allocatable = (manifest.get("status") or {}).get("allocatable") or {}
    free = amounts(allocatable)
    ready = condition(manifest, "Ready")
    marks = labels(manifest)
    return Node(
        cluster=cluster,
        pool=pool_of(marks, pools),
        uid=manifest["metadata"]["uid"],
        name=manifest["metadata"]["name"],
        labels=marks,
        gpu_type=marks.get(GPU_PRODUCT, "")[:100],
        gpu_milli=free.gpu,
        cpu_milli=free.cpu,
        memory_bytes=free.memory,
        max_pods=max_pods(manifest),
        more_amounts=more_amounts(allocatable),
        taints=[asdict(taint) for taint in taints_of(manifest)],
        ready=ready is not None and ready.get("status") == "True",
        unschedulable=bool((manifest.get("spec") or {}).get("unschedulable")),
        resource_version=manifest["metadata"].get("resourceVersion", ""),
        joined_at=moment_of(manifest["metadata"].get("creationTimestamp")),
        observed_at=at,
    )


@contextmanager
def track_domain_changes(
    cluster: Cluster, pools: Sequence[NodePool], look: WatchBatch | None, *, moved: bool
) -> Iterator[None]:
    """While what was seen of nodes is stored, in its transaction. `moved`: pools have changed, so any node may move.

    Everything is looked at then, since domains may go; a node that says something else of itself costs nothing.
    """
    named = [pool for pool in pools if pool.topology_levels]
    names = _whose(look, moved=moved)
    if not named or not (names is None or names) or not flavour_for(cluster.flavour).traits.names_domains:
        yield
        return
    before = domains_by_node(named, names)
    yield
    if domains_by_node(named, names) != before:
        dirty_owners.enqueue(cluster.pk, [dirty_owners.ALL_OWNERS])
        notify_sync(cluster.pk)


def _whose(look: WatchBatch | None, *, moved: bool) -> Collection[str] | None:
    """Nodes of which something was seen; None: it may be any."""
    if moved or (look and look.whole):
        return None
    return {str(each["metadata"]["name"]) for each in look.every} if look else ()


@dataclass(frozen=True, slots=True)
class Observation:
    """Changes since the last look. `pods` holds new, changed and gone ones; `readings` their status by pod uid.

    `jobs` is by owner id (the workload's id), for every job object that changed; `events` are new ones, oldest first.
    """

    at: datetime
    pods: tuple[ObservedPod, ...] = ()
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)
    events: tuple[ClusterEvent, ...] = ()
    readings: Mapping[str, PodStatusReason] = field(default_factory=dict)


Handler: TypeAlias = Callable[[Cluster, Observation], None]

_handlers: Final[list[Handler]] = []


def register_handler(handler: Handler) -> None:
    """Add a handler; once is enough, again changes nothing."""
    if handler not in _handlers:
        _handlers.append(handler)


def handlers() -> tuple[Handler, ...]:
    """In order of registration."""
    return tuple(_handlers)


JOB_KEYS: Final = frozenset(kind.key for kind in WORKLOAD_KINDS if kind.key != POD.key)
CORE_KEYS: Final = frozenset({NODE.key, POD.key, EVENT.key})
NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
NEWEST: Final = "newest"  # beside the versions: that of all kinds together, where the cluster counts so
POOLS: Final = "pools"  # and what the pools were when nodes were last put into them


@dataclass(frozen=True, slots=True)
class ObservedChanges:
    """What lists and watches brought, before anything is written.

    `before`: the versions it builds on. `age`: how long ago every kind that is always watched had shown life; None:
    one of them has not.
    """

    before: Mapping[str, Any]
    looks: Mapping[str, WatchBatch] = field(default_factory=dict)
    newest: str = ""
    age: timedelta | None = timedelta()

    @property
    def news(self) -> dict[str, WatchBatch]:
        """What there is to store; of other kinds only the version moves."""
        return {key: each for key, each in self.looks.items() if not each.is_empty}

    def versions(self) -> dict[str, Any]:
        begins = {key: newer(each.version, self.newest) for key, each in self.looks.items()}
        return {**self.before, **begins, NEWEST: self.newest}


@dataclass(frozen=True, slots=True)
class StoreResult:
    """What became of it. `versions`: what is kept now; None if another observer was faster and nothing was written."""

    observation: Observation
    versions: dict[str, Any] | None


def lease_of(cluster: Cluster) -> ObserverLease:
    """The cluster's lease row, with the versions that were seen last."""
    return ObserverLease.objects.get_or_create(cluster=cluster, defaults={"holder": "", "expires_at": NEVER})[0]


@transaction.atomic
def store_changes(cluster: Cluster, seen: ObservedChanges) -> StoreResult:
    """Rows of nodes, pods, objects and events; handlers in order; versions.

    Raises whatever a handler raises, after everything was rolled back.
    """
    locked = ObserverLease.objects.select_for_update().annotate(now=Now()).get(cluster=cluster)
    at: datetime = locked.now
    if locked.versions != seen.before:
        return StoreResult(Observation(at=at), None)
    pools = list(cluster.node_pools.all())
    versions = seen.versions() if seen.looks else dict(seen.before)
    sorted_in = _fingerprint(pools)
    moved = seen.before.get(POOLS) != sorted_in
    with track_domain_changes(cluster, pools, seen.looks.get(NODE.key), moved=moved):
        observation = _store(cluster, news, pools, at) if (news := seen.news) else Observation(at=at)
        if moved:
            move_nodes(cluster, pools)
            versions[POOLS] = sorted_in
    if versions != seen.before:
        locked.versions = versions
        locked.save(update_fields=["versions"])
    if seen.age is not None:
        record_observed_at(cluster, at - seen.age)
    return StoreResult(observation, versions)


def record_observed_at(cluster: Cluster, at: datetime) -> None:
    """What is on screen is of this moment. It never goes back."""
    rows = Cluster.objects.filter(Q(observed_at=None) | Q(observed_at__lt=at), pk=cluster.pk)
    rows.update(observed_at=at)


def _fingerprint(pools: list[NodePool]) -> list[list[Any]]:
    return [[pool.pk, pool.label_key, pool.label_value, pool.is_default] for pool in pools]


def _store(cluster: Cluster, looks: Mapping[str, WatchBatch], pools: list[NodePool], at: datetime) -> Observation:
    """Objects before events, so that an event that is seen together with its object finds it."""
    drop_foreign_owners(cluster, looks)
    if NODE.key in looks:
        store_nodes(cluster, looks[NODE.key], pools, at=at)
    pods = _pods(cluster, looks, pools, at)
    jobs, fresh = _jobs(cluster, looks, pods)
    for key, look in looks.items():
        if key not in CORE_KEYS | JOB_KEYS | COMPANION_KEYS | EVENT_SOURCE_KEYS:
            detect_foreign_changes(cluster, look)
    events = adopt_events(cluster, [*pods.fresh, *fresh])
    if EVENT.key in looks:
        events += store_events(cluster, looks[EVENT.key], at=at)
    events += store_scheduler_events(cluster, looks, at=at)
    observation = Observation(at, tuple(pods.rows), jobs, tuple(events), pods.readings)
    for handler in handlers():
        handler(cluster, observation)
    return observation


def _pods(cluster: Cluster, looks: Mapping[str, WatchBatch], pools: list[NodePool], at: datetime) -> PodChanges:
    if POD.key not in looks:
        return PodChanges()
    return PodStore(cluster, flavour_for(cluster.flavour), pools, at).store(looks[POD.key])


def _jobs(
    cluster: Cluster, looks: Mapping[str, WatchBatch], pods: PodChanges
) -> tuple[dict[str, JobStatus], list[ObservedObject]]:
    jobs, fresh = job_changes(cluster, [look for key, look in looks.items() if key in JOB_KEYS])
    if POD.key in looks:
        jobs |= bare_pod_changes(cluster, looks[POD.key], pods.rows)
    return {**companion_changes(cluster, [look for key, look in looks.items() if key in COMPANION_KEYS]), **jobs}, fresh


NeededPods: TypeAlias = Callable[[Sequence[ObservedPod]], set[int]]
"""Given rows that are old enough to go, the primary keys of those that must stay."""

_keepers: Final[list[NeededPods]] = []


def register_keeper(keeper: NeededPods) -> None:
    """Add a keeper; once is enough, again changes nothing."""
    if keeper not in _keepers:
        _keepers.append(keeper)


def needed_pods(pods: Sequence[ObservedPod]) -> set[int]:
    """The rows that are still needed."""
    return set().union(*(keeper(pods) for keeper in _keepers))


UNOWNED: Final = timedelta(hours=1)
"""How long an event waits for the object it is about; API servers keep events as long."""
PATIENCE: Final = 60.0
"""Seconds after which the rest is left to the next time."""


def prune() -> tuple[int, int]:
    """Drop what is past its time by the database's clock; how many pods and events."""
    deadline = time.monotonic() + PATIENCE
    return _prune_pods(deadline), _prune_events(deadline)


def _prune_pods(deadline: float) -> int:
    """Prune rows that are gone for long and not needed. Walks by key, so that kept rows are checked once."""
    old = ObservedPod.objects.filter(gone_at__lt=Now() - timedelta(days=settings.RUNG_KEEP_PODS_DAYS)).order_by("pk")
    last, dropped = 0, 0
    while time.monotonic() < deadline and (rows := list(old.filter(pk__gt=last)[:CHUNK])):
        last = rows[-1].pk
        dropped += _delete_pods({row.pk for row in rows} - needed_pods(rows))
    return dropped


def _delete_pods(keys: set[int]) -> int:
    return ObservedPod.objects.filter(pk__in=keys, gone_at__isnull=False).delete()[0]


def _prune_events(deadline: float) -> int:
    past = Q(at__lt=Now() - timedelta(days=settings.RUNG_KEEP_EVENTS_DAYS)) | Q(owner_id="", at__lt=Now() - UNOWNED)
    keys_past = ClusterEvent.objects.filter(past).values_list("pk", flat=True)
    dropped = 0
    while time.monotonic() < deadline and (keys := list(keys_past[:CHUNK])):
        dropped += ClusterEvent.objects.filter(pk__in=keys).delete()[0]
    return dropped
