"""The observed cluster as a `scheduling.Snapshot`, and a workload as the pod group it would be in it.

KAI: queues per project and department in every pool, a pod group per workload. kube-scheduler: one queue per namespace
that stands for its ResourceQuota, every pod for itself; where it knows gangs, those of a gang together. Pods of others
count too; waiting workloads that are about to have pods are added from their specs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from threading import Lock
from typing import Final
from uuid import UUID

from django.db import connection
from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from clusters.connection.services.scheduler_config import missing_causes
from clusters.flavours import objects as flavours_objects
from clusters.flavours.kube import with_defaults
from clusters.flavours.objects import HOSTNAME, RANK_TO_PRIORITY, levels_with_hostname
from clusters.flavours.pod_status import ADMITTED, LEFT_OUT
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, Node, NodePool
from clusters.ports.flavour import DesiredState, QueueSpec, Traits
from clusters.ports.pods import devices_of_node, needs_of_pods
from clusters.sync.models import OrphanedObject
from clusters.sync.selectors import desired_state, unversioned_state
from clusters.watch.models import ClusterEvent, ObservedPod, ObserverLease
from clusters.watch.services.observations import POOLS
from scheduling.model.preemptibility import THRESHOLD, Preemptibility
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode, Strategy, Taint
from scheduling.state.workspace import successor
from tenants.organisation.models import Project
from workloads.forecast.selectors.observed_groups import (
    ANY_POOL,
    MINUTE,
    GroupSettings,
    as_gang,
    group_settings,
    groups_of_pods,
    live_pods,
    namespace_queue,
    pods_scheduled_singly,
    single_workloads,
    waiting_without_pods,
    with_placement,
    workload_of,
)
from workloads.intake import WorkloadSpec
from workloads.intake.rules.spec import (
    borne_taints,
    named_requests,
    needed_placement,
    selected_labels,
    shared_topology,
)
from workloads.state.models import Workload


@dataclass(frozen=True, slots=True)
class PodGroupRequest:
    """What a pod group is made from, be it a stored workload or one that somebody thinks of."""

    name: str
    spec: WorkloadSpec
    project: Project
    pool: NodePool
    value: int
    preemption_policy: str
    preemptibility: str
    created: datetime


def snapshot_of(cluster: Cluster, pool: str | None = None) -> tuple[Snapshot, datetime | None]:
    """The cluster (or one of its pools) as it was last observed, and when that was."""
    snapshot = _with_unborn(cluster, _observation(cluster))
    by_pool = flavour_for(cluster.flavour).traits.queues_by_pool
    return (snapshot.shard(pool) if pool and by_pool else snapshot), cluster.observed_at


def _observation(cluster: Cluster) -> "_ObservedCluster":
    orphans = OrphanedObject.objects.filter(cluster=cluster).exclude(flavour=cluster.flavour)
    behind = frozenset(orphans.values_list("workload_id", flat=True))
    return _kept(cluster, behind) if _keeps() else _read(cluster, behind)


def snapshot_after(target: Cluster, staying: Collection[str]) -> Snapshot:
    """Right after a switch: the row with its new scheduler, and the ids of workloads that go on with the old one."""
    return _with_unborn(target, _read(target, staying, made_anew=True), made_anew=True)


def _now() -> int:
    return int(timezone.now().timestamp() * 1_000_000)


@dataclass(slots=True)
class _ObservedCluster:
    """What is observed, as a snapshot without workloads that have no pods. names: groups by owner (`_owner`).

    staying: owners with a pod that is not ending.
    basis, nodes, changed_at: by which it is known whether it still holds.
    """

    snapshot: Snapshot
    known: GroupSettings
    names: dict[str, tuple[str, ...]]
    staying: set[str]
    basis: object = None
    nodes: tuple[int, datetime | None] = (0, None)
    changed_at: datetime | None = None

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


def _read(cluster: Cluster, behind: Collection[str], *, made_anew: bool = False) -> _ObservedCluster:
    """All rows. `behind`: ids of workloads that another scheduler started. made_anew: only those have pods yet."""
    traits = flavour_for(cluster.flavour).traits
    state = desired_state(cluster, domains=False)
    pools = list(cluster.node_pools.all())
    known, single = group_settings(cluster, state, behind), single_workloads(cluster)
    pods = list(live_pods(cluster, single if traits.queues_jobs else ()))
    if made_anew:
        pods = [pod for pod in pods if not pod.owner_id or pod.owner_id in behind]
    snapshot = Snapshot(
        nodes=tuple(_nodes(_node_rows(cluster), by_pool=traits.queues_by_pool)),
        queues=tuple(_queues(state, traits) if traits.queues_by_pool else _namespace_queues(state)),
        groups=tuple(groups_of_pods(cluster, pods, known, single)),
        now=_now(),
        strategies={each.name: Strategy(each.gpu_placement) for each in pools} if traits.places_by_pool else {},
        leaves_out=missing_causes(cluster),
        levels=_levels(pools) if traits.goes_by_levels else {},
    )
    found = _ObservedCluster(snapshot, known, {}, set())
    found.note(snapshot.groups)
    return found


def _with_unborn(cluster: Cluster, observed: _ObservedCluster, *, made_anew: bool = False) -> Snapshot:
    """Beside the pods waiting workloads that nothing has been observed of yet; their controllers do not pause."""
    found = (
        groups_of(pod_group_request(each.workload, each.pool), cluster.flavour)
        for each in waiting_without_pods(cluster, cluster.node_pools.all(), observed.names, observed.staying)
        if made_anew or not each.later
    )
    return observed.snapshot.changed((), chain.from_iterable(found), now=_now())


_LATE: Final = timedelta(seconds=2)
_LATE_EVENTS: Final = timedelta(minutes=1)
"""What is stored may be of a moment so long before."""
_observed: Final[dict[UUID, _ObservedCluster]] = {}
_locks: Final[dict[UUID, Lock]] = {}


def _keeps() -> bool:
    """Pods of ten thousands are read once a process. SQLite, of demos and tests, holds few and has one process."""
    return connection.vendor == "postgresql"


def _kept(cluster: Cluster, behind: frozenset[str]) -> _ObservedCluster:
    """What this process has read before, and the rows of pods that were stored since.

    All is read again once anything else has changed: settings, nodes, what another scheduler left behind.
    """
    with _locks.setdefault(cluster.pk, Lock()):
        basis, nodes = _basis(cluster, behind), _node_stamp(cluster)
        found = _observed.get(cluster.pk)
        if found is None or found.basis != basis or not _same_nodes(cluster, found, nodes):
            changed_at = _pod_rows(cluster).aggregate(at=Max("observed_at"))["at"]
            found = _observed[cluster.pk] = _read(cluster, behind)
            found.basis, found.changed_at = basis, changed_at
        else:
            _catch_up(cluster, found)
        found.nodes = nodes
        return copy(found)


def _pod_rows(cluster: Cluster) -> QuerySet[ObservedPod]:
    return ObservedPod.objects.filter(cluster=cluster)


def _basis(cluster: Cluster, behind: frozenset[str]) -> object:
    """Changes with whatever a snapshot is made from, but pods, nodes and workloads: desired state is counted up."""
    row = Cluster.objects.values_list("generation", "flavour", "backend", "configured").get(pk=cluster.pk)
    pools = cluster.node_pools.order_by("pk").values_list(*(field.attname for field in NodePool._meta.concrete_fields))
    sorted_in = ObserverLease.objects.filter(cluster=cluster).values_list(f"versions__{POOLS}", flat=True)
    return (row, cluster.flavour, cluster.configured, list(pools), list(sorted_in), unversioned_state(cluster), behind)


def _node_stamp(cluster: Cluster) -> tuple[int, datetime | None]:
    found = cluster.nodes.aggregate(count=Count("pk"), at=Max("observed_at"))
    return found["count"], found["at"]


def _same_nodes(cluster: Cluster, found: _ObservedCluster, stamp: tuple[int, datetime | None]) -> bool:
    """Do the nodes that were seen since say of themselves what they said before? Most of what they say is when."""
    if stamp == found.nodes:
        return True
    if stamp[0] != found.nodes[0] or found.nodes[1] is None:
        return False
    before = {node.name: node for node in found.snapshot.nodes}
    rows = _node_rows(cluster).filter(observed_at__gte=found.nodes[1] - _LATE)
    later = _nodes(rows, by_pool=flavour_for(cluster.flavour).traits.queues_by_pool)
    return all(
        each.name in before and replace(each, order=before[each.name].order) == before[each.name] for each in later
    )


def _catch_up(cluster: Cluster, found: _ObservedCluster) -> None:
    """Make the pod groups anew whose pods were stored since."""
    since, rows = found.changed_at, _pod_rows(cluster)
    if since is not None:
        rows = rows.filter(observed_at__gte=since - _LATE)
    changed = list(rows.values_list("owner_id", "uid", "observed_at"))
    queues_jobs = flavour_for(cluster.flavour).traits.queues_jobs
    owners = {owner for owner, _uid, _at in changed if owner} | (_let_in(cluster, since) if queues_jobs else set())
    alone = [uid for owner, uid, _at in changed if not owner]
    found.changed_at = max((at for _owner, _uid, at in changed), default=since)
    single = single_workloads(cluster, owners)
    theirs = Q(owner_id__in=owners) | Q(owner_id="", uid__in=alone)
    pods = live_pods(cluster, single if queues_jobs else ()).filter(theirs)
    groups = list(groups_of_pods(cluster, list(pods), found.known, single))
    touched = [*owners, *(f":{uid}" for uid in alone)]
    before = {name for owner in touched for name in found.names.pop(owner, ())}
    found.staying.difference_update(touched)
    found.note(groups)
    come = [group for group in groups if found.snapshot.group(group.name) != group]
    gone = before - {group.name for group in groups}
    if come or gone:
        found.snapshot = successor(found.snapshot, gone, come, now=_now())


def _let_in(cluster: Cluster, since: datetime | None) -> set[str]:
    """Owners of jobs of which their queue said something lately."""
    said = ClusterEvent.objects.filter(cluster=cluster, reason__in=(ADMITTED, LEFT_OUT))
    recent = said.filter(at__gte=since - _LATE_EVENTS) if since else said
    return set(recent.exclude(owner_id="").values_list("owner_id", flat=True))


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
    """As the scheduler is told them."""
    return {pool.name: levels_with_hostname(pool.topology_levels) for pool in pools if pool.topology_levels}


def _queues(state: DesiredState, traits: Traits) -> Iterator[Queue]:
    leaves = (queue for project in state.projects for queue in project.queues)
    for order, spec in enumerate((*state.departments, *leaves)):
        above = f"all departments in {spec.pool.name}" if traits.root_above else None
        yield _queue(spec, order, spec.parent or above)


def _queue(spec: QueueSpec, order: int, parent: str | None) -> Queue:
    least = None if spec.min_runtime_minutes is None else spec.min_runtime_minutes * MINUTE
    return Queue(
        name=spec.name,
        parent=parent,
        pool=spec.pool.name,
        deserved=spec.deserved,
        limit=spec.limit,
        weight=spec.over_quota_weight,
        rank=RANK_TO_PRIORITY[spec.rank],
        created=order,
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


def coming_later(cluster: Cluster) -> Mapping[Workload, tuple[PodGroup, ...]]:
    """Waiting workloads that no snapshot has, since their controllers pause: what a scheduler will see of them."""
    observed = _observation(cluster)
    found = waiting_without_pods(cluster, cluster.node_pools.all(), observed.names, observed.staying)
    return {
        each.workload: groups_of(pod_group_request(each.workload, each.pool), cluster.flavour)
        for each in found
        if each.later
    }


def pod_group_request(workload: Workload, pool: NodePool) -> PodGroupRequest:
    """A stored workload as what a pod group is made from."""
    return PodGroupRequest(
        name=str(workload.pk),
        spec=WorkloadSpec.from_json(workload.spec),
        project=workload.project,
        pool=pool,
        value=_value_of(workload),
        preemption_policy=workload.priority.preemption_policy,
        preemptibility=workload.preemptibility,
        created=workload.created_at,
    )


def _value_of(workload: Workload) -> int:
    """As its scheduler counts it: a class may have got another number since the workload was submitted."""
    by_class = flavour_for(workload.project.cluster.flavour).traits.counts_classes
    return workload.priority.value if by_class else workload.priority_value


def groups_of(wanted: PodGroupRequest, flavour_name: str) -> tuple[PodGroup, ...]:
    """What a scheduler of this flavour would see, all of it waiting: one pod group, or one for each pod."""
    whole = _whole(wanted, flavour_name)
    if wanted.spec.type_name not in pods_scheduled_singly(wanted.project.cluster):
        return (whole,)
    size = wanted.spec.min_member if flavour_for(flavour_name).traits.minimum == "own" else 1
    number = max(len(whole.pods) // size, 1)
    parts = [whole.pods[index::number] for index in range(number)]  # of each role as many
    return tuple(
        replace(whole, name=f"{wanted.name}:{index:04}", pods=part, min_member=size) for index, part in enumerate(parts)
    )


def _whole(wanted: PodGroupRequest, flavour_name: str) -> PodGroup:
    flavour = flavour_for(flavour_name)
    by_pool = flavour.traits.queues_by_pool
    queue = flavour.queue_name(wanted.project.owner, wanted.pool.name)
    preemptible = wanted.preemptibility != Preemptibility.NON_PREEMPTIBLE
    pool = {wanted.pool.label_key: wanted.pool.label_value}
    group = PodGroup(
        name=wanted.name,
        queue=queue if by_pool else namespace_queue(wanted.project.namespace),
        namespace=wanted.project.namespace,
        priority=wanted.value,
        preemptible=preemptible if by_pool else wanted.value < THRESHOLD,
        pods=tuple(_wanted_pods(wanted, filled_in=not by_pool)),
        min_member=wanted.spec.min_member if by_pool else 1,
        created=int(wanted.created.timestamp() * 1_000_000),
        pool=wanted.pool.name if by_pool else ANY_POOL,
        never_preempts=wanted.preemption_policy == "Never",
        node_selector={**selected_labels(wanted.spec), **({} if by_pool else pool)},
        tolerations=borne_taints(wanted.spec),
        more=needs_of_pods(each for each in named_requests(wanted.spec).values()),
    )
    group = with_placement(group, needed_placement(wanted.spec), wanted.name)
    if flavour.traits.knows_domains:
        group = replace(group, topology=shared_topology(wanted.spec))
    return as_gang(group, wanted.spec.min_member) if flavour.traits.whole_gangs else group


def _wanted_pods(wanted: PodGroupRequest, *, filled_in: bool) -> Iterator[Pod]:
    for role in wanted.spec.roles:
        asked = with_defaults(role.requests, containers=len(role.containers)) if filled_in else role.requests
        for number in range(role.replicas):
            yield Pod(f"{wanted.name}/{role.pointer}/{number}", asked)
