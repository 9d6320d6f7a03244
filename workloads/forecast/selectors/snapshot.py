"""The observed cluster as a `scheduling.Snapshot`.

KAI: queues per project and department in every pool, a pod group per workload. kube-scheduler: one queue per namespace
for its ResourceQuota, every pod for itself; where it knows gangs, those of a gang together. Pods of others
count too; waiting workloads that are about to have pods are added from their specs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Max, QuerySet
from django.utils import timezone

from clusters.connection.services.scheduler_config import eviction_exemptions, fair_sharing
from clusters.flavours import objects as flavours_objects
from clusters.flavours.objects import HOSTNAME, RANK_TO_PRIORITY, levels_with_hostname
from clusters.flavours.pod_status import ADMITTED, LEFT_OUT
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.ports.flavour import DesiredState, QueueSpec, Traits
from clusters.ports.pods import devices_of_node
from clusters.sync.models import OrphanedObject
from clusters.sync.selectors import desired_state, unversioned_state
from clusters.watch.models import ClusterEvent, ObservedPod, ObserverLease
from clusters.watch.services.observations import POOLS
from portal.kit.db.read_cache import SETTINGS_VERSION
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import PodGroup, Queue, Snapshot, SnapshotNode, Strategy, Taint
from scheduling.state.workspace import successor
from tenants.quotas.selectors.desired_state import queue_weights
from workloads.dictionary.models import Priority
from workloads.forecast.selectors.observed_groups import (
    ANY_POOL,
    MINUTE,
    GroupSettings,
    group_settings,
    groups_of_pods,
    live_pods,
    live_pods_of,
    namespace_queue,
    single_workloads,
    single_workloads_of,
    workload_of,
)
from workloads.forecast.selectors.pod_groups import WaitingWorkload, waiting_without_pods
from workloads.state.models import Workload


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """A cluster as it was last observed.

    snapshot: with waiting workloads that are about to have pods. later: those it lacks, since their controllers pause.
    state: what its queues are made from.
    """

    snapshot: Snapshot
    state: DesiredState
    later: Mapping[str, WaitingWorkload]


def observed_cluster(cluster: Cluster) -> ObservedCluster:
    """All of it. On PostgreSQL only what has changed since the last question is read."""
    if connection.vendor != "postgresql":
        return _with_waiting(cluster, _read(cluster, _left_behind(cluster)), None)
    with _locks.setdefault(cluster.pk, Lock()):
        known = _current(cluster)
        return _with_waiting(cluster, known, known.waiting)


def snapshot_of(cluster: Cluster, pool: str | None = None) -> tuple[Snapshot, datetime | None]:
    """The cluster (or one of its pools) as it was last observed, and when that was."""
    snapshot = observed_cluster(cluster).snapshot
    by_pool = flavour_for(cluster.flavour).traits.queues_by_pool
    return (snapshot.shard(pool) if pool and by_pool else snapshot), cluster.observed_at


def with_present_queues(cluster: Cluster, snapshot: Snapshot) -> Snapshot:
    """The same pods under the quotas of now, as in a savepoint where others are set."""
    traits = flavour_for(cluster.flavour).traits
    return replace(snapshot, queues=tuple(_queues(desired_state(cluster, domains=False), traits)))


def snapshot_after(target: Cluster, staying: Collection[str]) -> Snapshot:
    """Right after a switch: the row with its new scheduler, and the ids of workloads that go on with the old one."""
    known = _read(target, staying, recreated=True)
    waiting = waiting_without_pods(target, known.names, known.staying, None)
    coming = (each for owner, each in waiting.known.items() if owner in waiting.soon or owner in waiting.later)
    return known.snapshot.changed((), (group for each in coming for group in each.groups), now=_now())


def _left_behind(cluster: Cluster) -> frozenset[str]:
    """Ids of workloads that another scheduler started."""
    orphans = OrphanedObject.objects.filter(cluster=cluster).exclude(flavour=cluster.flavour)
    return frozenset(orphans.values_list("workload_id", flat=True))


def _now() -> int:
    return int(timezone.now().timestamp() * 1_000_000)


@dataclass(slots=True)
class _KnownCluster:
    """What is observed, as a snapshot without workloads that have no pods. names: groups by owner (`_by_owner`).

    staying: owners with a pod that is not ending.
    stamp, settings: by which it is known whether it still holds. changed_at, pods, events: what has been seen of late.
    waiting: those without pods, as they were read last.
    """

    snapshot: Snapshot
    state: DesiredState
    group_settings: GroupSettings
    names: dict[str, tuple[str, ...]]
    staying: set[str]
    stamp: "_Stamp | None" = None
    settings: object = None
    changed_at: datetime | None = None
    pods: frozenset[tuple[str, str, datetime]] = frozenset()
    events: frozenset[tuple[int, str, datetime]] = frozenset()
    waiting: Mapping[str, WaitingWorkload] = field(default_factory=dict)

    def note(self, groups: Iterable[PodGroup]) -> None:
        """Which groups their owners have by now."""
        for owner, found in _by_owner(groups).items():
            self.names[owner] = tuple(group.name for group in found)
            if any(not pod.terminating for group in found for pod in group.pods):
                self.staying.add(owner)


def _by_owner(groups: Iterable[PodGroup]) -> dict[str, list[PodGroup]]:
    found: dict[str, list[PodGroup]] = {}
    for group in groups:
        found.setdefault(workload_of(group.name) or group.name, []).append(group)
    return found


def _read(cluster: Cluster, behind: Collection[str], *, recreated: bool = False) -> _KnownCluster:
    """All rows. `behind`: ids of workloads that another scheduler started. recreated: only those have pods yet."""
    traits = flavour_for(cluster.flavour).traits
    state = desired_state(cluster, domains=False)
    pools = list(cluster.node_pools.all())
    settings, single = group_settings(cluster, state, behind), single_workloads(cluster)
    pods = list(live_pods(cluster, single if traits.queues_jobs else ()))
    if recreated:
        pods = [pod for pod in pods if not pod.owner_id or pod.owner_id in behind]
    snapshot = Snapshot(
        nodes=tuple(_nodes(_node_rows(cluster), by_pool=traits.queues_by_pool)),
        queues=tuple(_queues(state, traits)),
        groups=tuple(groups_of_pods(cluster, pods, settings, single)),
        now=_now(),
        strategies={each.name: Strategy(each.gpu_placement) for each in pools} if traits.places_by_pool else {},
        exempt=eviction_exemptions(cluster),
        fair_sharing=fair_sharing(cluster),
        levels=_levels(pools) if traits.goes_by_levels else {},
    )
    found = _KnownCluster(snapshot, state, settings, {}, set())
    found.note(snapshot.groups)
    return found


def _with_waiting(
    cluster: Cluster, known: _KnownCluster, waiting: Mapping[str, WaitingWorkload] | None
) -> ObservedCluster:
    """Beside the pods waiting workloads that nothing has been observed of yet; their controllers do not pause."""
    found = waiting_without_pods(cluster, known.names, known.staying, waiting)
    known.waiting = found.known
    coming = (group for each in found.soon.values() for group in each.groups)
    return ObservedCluster(known.snapshot.changed((), coming, now=_now()), known.state, found.later)


_LATE: Final = timedelta(seconds=2)
_LATE_EVENTS: Final = timedelta(minutes=1)
"""What is stored may be of a moment so long before."""
_observed: Final[dict[UUID, _KnownCluster]] = {}
_locks: Final[dict[UUID, Lock]] = {}


def _current(cluster: Cluster) -> _KnownCluster:
    """What this process has read before, and the rows of pods that were stored since.

    All is read again once anything else has changed: settings, nodes, what another scheduler left behind.
    """
    stamp, known = _stamp(cluster), _observed.pop(cluster.pk, None)
    if known is None or not _holds(cluster, known, stamp):
        settings, changed_at = _settings(cluster), _pod_rows(cluster).aggregate(at=Max("observed_at"))["at"]
        known = _read(cluster, stamp.behind)
        known.settings, known.changed_at = settings, changed_at
    else:
        _catch_up(cluster, known)
    known.stamp = stamp
    _observed[cluster.pk] = known  # not before: who fails half-way has noted rows that it has not read
    return known


def _pod_rows(cluster: Cluster) -> QuerySet[ObservedPod]:
    return ObservedPod.objects.filter(cluster=cluster)


@dataclass(frozen=True, slots=True)
class _Stamp:
    """Changes with whatever a snapshot is made from, but pods and workloads: desired state is counted up.

    settings: the version of `read_cache`, and retired priorities in use. nodes: how many, and the newest observation.
    """

    cluster: tuple[object, ...]
    behind: frozenset[str]
    settings: tuple[object, ...]
    nodes: tuple[int, datetime | None]


_STAMP: Final = f"""
SELECT generation, flavour, backend, configured::text,
(SELECT versions ->> %(pools)s FROM {ObserverLease._meta.db_table} WHERE cluster_id = clusters.id),
ARRAY(SELECT workload_id FROM {OrphanedObject._meta.db_table}
WHERE cluster_id = clusters.id AND flavour <> %(flavour)s),
(SELECT version::text FROM ({SETTINGS_VERSION}) AS version),
ARRAY(SELECT id FROM {Priority._meta.db_table} AS priorities WHERE retired_at IS NOT NULL AND EXISTS (
SELECT FROM {Workload._meta.db_table} WHERE priority_id = priorities.id AND deleted_at IS NULL) ORDER BY id),
nodes.number, nodes.newest
FROM {Cluster._meta.db_table} AS clusters CROSS JOIN LATERAL (SELECT count(*) AS number, max(observed_at) AS newest
FROM {Node._meta.db_table} WHERE cluster_id = clusters.id) AS nodes
WHERE id = %(cluster)s
"""  # noqa: S608  # names of tables


def _stamp(cluster: Cluster) -> _Stamp:
    """In one statement: it is asked for every question."""
    with connection.cursor() as cursor:
        cursor.execute(_STAMP, {"cluster": cluster.pk, "flavour": cluster.flavour, "pools": POOLS})
        row = cursor.fetchone()
    if row is None:
        raise Cluster.DoesNotExist
    *own, behind, version, retired, number, newest = row
    return _Stamp(
        (*own, cluster.flavour, cluster.configured), frozenset(behind), (version, tuple(retired)), (number, newest)
    )


def _holds(cluster: Cluster, known: _KnownCluster, stamp: _Stamp) -> bool:
    """Is it made from what there is, but for pods? Most changes of settings are of other things."""
    before = known.stamp
    if before is None or (before.cluster, before.behind) != (stamp.cluster, stamp.behind):
        return False
    if before.settings != stamp.settings:
        known.waiting = {}
        if known.settings != _settings(cluster):
            return False
    return before.nodes == stamp.nodes or _same_nodes(cluster, known, before.nodes, stamp.nodes)


def _settings(cluster: Cluster) -> object:
    pools = cluster.node_pools.order_by("pk").values_list(*(field.attname for field in NodePool._meta.concrete_fields))
    return list(pools), unversioned_state(cluster)


def _same_nodes(
    cluster: Cluster, known: _KnownCluster, before: tuple[int, datetime | None], now: tuple[int, datetime | None]
) -> bool:
    """Do the nodes that were seen since say of themselves what they said before? Most of what they say is when."""
    (number, newest) = before
    if number != now[0] or newest is None:
        return False
    nodes = {node.name: node for node in known.snapshot.nodes}
    rows = _node_rows(cluster).filter(observed_at__gte=newest - _LATE)
    later = _nodes(rows, by_pool=flavour_for(cluster.flavour).traits.queues_by_pool)
    return all(each.name in nodes and replace(each, order=nodes[each.name].order) == nodes[each.name] for each in later)


def _catch_up(cluster: Cluster, known: _KnownCluster) -> None:
    """Rebuild the pod groups whose pods were stored since."""
    queues_jobs = flavour_for(cluster.flavour).traits.queues_jobs
    let_in = _let_in(cluster, known) if queues_jobs else set()
    changed = _changed_pods(cluster, known)
    owners = {owner for owner, _uid, _at in changed if owner} | let_in
    alone = [uid for owner, uid, _at in changed if not owner]
    if not (owners or alone):
        return
    single = single_workloads_of(cluster, owners)
    pods = live_pods_of(cluster, single if queues_jobs else (), owners, alone)
    groups = list(groups_of_pods(cluster, pods, known.group_settings, single))
    touched = [*owners, *(f":{uid}" for uid in alone)]
    before = {name for owner in touched for name in known.names.pop(owner, ())}
    known.staying.difference_update(touched)
    known.note(groups)
    come = [group for group in groups if known.snapshot.group(group.name) != group]
    gone = before - {group.name for group in groups}
    if come or gone:
        known.snapshot = successor(known.snapshot, gone, come, now=_now())


def _changed_pods(cluster: Cluster, known: _KnownCluster) -> Collection[tuple[str, str, datetime]]:
    """Owner, uid and moment of the rows that were stored since the last time."""
    since = known.changed_at
    before, known.pods = known.pods, _rows(_STORED, cluster.pk, since - _LATE if since else _EVER)
    known.changed_at = max((at for _owner, _uid, at in known.pods), default=since)
    return known.pods - before


def _let_in(cluster: Cluster, known: _KnownCluster) -> set[str]:
    """Owners of jobs of which their queue has said something since the last time."""
    since = known.changed_at
    before, known.events = known.events, _rows(_SAID, cluster.pk, since - _LATE_EVENTS if since else _EVER)
    return {owner for _pk, owner, _at in known.events - before}


_EVER: Final = datetime.min.replace(tzinfo=UTC)
_STORED: Final = f"""
SELECT owner_id, uid, observed_at FROM {ObservedPod._meta.db_table} WHERE cluster_id = %s AND observed_at >= %s
"""  # noqa: S608  # the table's own name
_SAID: Final = f"""
SELECT id, owner_id, at FROM {ClusterEvent._meta.db_table} WHERE cluster_id = %s AND at >= %s
AND owner_id <> '' AND reason IN ('{ADMITTED}', '{LEFT_OUT}')
"""  # noqa: S608  # names of the table and of reasons
"""As text: Django takes longer to write them than PostgreSQL to answer, and they are asked for every question."""


def _rows(statement: str, cluster: UUID, since: datetime) -> frozenset[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [cluster, since])
        return frozenset(cursor.fetchall())


def _node_rows(cluster: Cluster) -> QuerySet[Node]:
    return cluster.nodes.select_related("pool").order_by("name")


def _nodes(rows: Iterable[Node], *, by_pool: bool) -> Iterator[SnapshotNode]:
    for order, node in enumerate(rows):
        yield SnapshotNode(
            name=node.name,
            pool=(node.pool.name if node.pool else "") if by_pool else ANY_POOL,
            capacity=Resources(node.gpu_milli, node.cpu_milli, node.memory_bytes),
            labels={HOSTNAME: node.name, **node.labels},
            ready=node.ready and not node.unschedulable,
            order=order,
            max_pods=node.max_pods,
            taints=tuple(Taint(**taint) for taint in node.taints),
            more=devices_of_node(node.gpu_milli, node.more_amounts),
        )


def _levels(pools: Iterable[NodePool]) -> dict[str, tuple[str, ...]]:
    return {pool.name: levels_with_hostname(pool.topology_levels) for pool in pools if pool.topology_levels}


def _queues(state: DesiredState, traits: Traits) -> Iterator[Queue]:
    if not traits.queues_by_pool:
        yield from _namespace_queues(state)
        return
    leaves = (queue for project in state.projects for queue in project.queues)
    for order, spec in enumerate((*state.departments, *leaves)):
        above = f"all departments in {spec.pool.name}" if traits.root_above else None
        yield _queue(spec, order, spec.parent or above, traits)


def _queue(spec: QueueSpec, order: int, parent: str | None, traits: Traits) -> Queue:
    least = None if spec.min_runtime_minutes is None else spec.min_runtime_minutes * MINUTE
    gpu, cpu, memory = queue_weights(spec, traits)
    return Queue(
        name=spec.name,
        parent=parent,
        pool=spec.pool.name,
        deserved=spec.deserved,
        limit=spec.limit,
        weight=gpu,
        cpu_weight=cpu,
        memory_weight=memory,
        rank=RANK_TO_PRIORITY[spec.rank],
        created=order,
        owner=spec.owner,
        preempt_min_runtime=least,
        reclaim_min_runtime=least,
    )


def _namespace_queues(state: DesiredState) -> Iterator[Queue]:
    """A ResourceQuota counts all pools together."""
    for project in state.projects:
        yield Queue(
            namespace_queue(project.namespace),
            pool=ANY_POOL,
            deserved=_sum(queue.deserved for queue in project.queues),
            limit=_sum(queue.limit for queue in project.queues),
        )


def _sum(limits: Iterable[Limit]) -> Limit:
    parts = list(limits)
    return Limit(
        flavours_objects.sum_or_unlimited(each.gpu for each in parts),
        flavours_objects.sum_or_unlimited(each.cpu for each in parts),
        flavours_objects.sum_or_unlimited(each.memory for each in parts),
    )
