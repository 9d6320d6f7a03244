"""The observed cluster as a `scheduling.Snapshot`, and a workload as the pod group it would be in it.

KAI: queues per project and department in every pool, a pod group per workload. kube-scheduler: one queue per namespace
that stands for its ResourceQuota, every pod for itself; where it knows gangs, those of a gang together. Pods of others
count too; waiting workloads that are about to have pods are added from their specs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.db.models import Min, Q
from django.utils import timezone

from clusters.connection.services.scheduler_config import missing_causes
from clusters.flavours import objects as flavours_objects
from clusters.flavours.kube import with_defaults
from clusters.flavours.objects import HOSTNAME, RANK_TO_PRIORITY, levels_with_hostname
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.flavour import DesiredState, ProjectSpec, QueueSpec, Traits
from clusters.ports.pods import TERMINAL
from clusters.sync.models import OrphanedObject
from clusters.sync.selectors import desired_state
from clusters.watch.models import ObservedPod
from scheduling.model.preemptibility import THRESHOLD, Preemptibility
from scheduling.model.resources import Limit, Resources
from scheduling.model.snapshot import Pod, PodGroup, Queue, Snapshot, SnapshotNode, Strategy
from scheduling.model.taints import Taint, Toleration
from tenants.organisation.models import Project
from workloads.forecast.selectors.pending_pods import (
    admission_times,
    never_requeued,
    pods_scheduled_singly,
    single_workloads,
    waiting_without_pods,
)
from workloads.intake import WorkloadSpec
from workloads.intake.rules.spec import borne_taints, selected_labels, shared_topology, wanted_placement
from workloads.state.models import Workload
from workloads.state.selectors.workloads import workload_ids

ANY_POOL: Final = "default"
MINUTE: Final = 60_000_000  # microseconds, the unit of every time stamp here
GATED: Final = "SchedulingGated"  # held back from the scheduler by its maker


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
    behind = OrphanedObject.objects.filter(cluster=cluster).exclude(flavour=cluster.flavour)
    snapshot = _snapshot(cluster, frozenset(behind.values_list("workload_id", flat=True)))
    by_pool = flavour_for(cluster.flavour).traits.queues_by_pool
    return (snapshot.shard(pool) if pool and by_pool else snapshot), cluster.observed_at


def snapshot_after(target: Cluster, staying: Collection[str]) -> Snapshot:
    """Right after a switch: the row with its new scheduler, and the ids of workloads that go on with the old one."""
    return _snapshot(target, staying, made_anew=True)


def _snapshot(cluster: Cluster, behind: Collection[str], *, made_anew: bool = False) -> Snapshot:
    """`behind`: ids of workloads that another scheduler started. made_anew: all other workloads have no pods yet."""
    traits = flavour_for(cluster.flavour).traits
    by_pool = traits.queues_by_pool
    state = desired_state(cluster, domains=False)
    pools = list(cluster.node_pools.all())
    single = single_workloads(cluster)
    pods = list(_pods(cluster, single if traits.queues_jobs else ()))
    if made_anew:
        pods = [pod for pod in pods if not pod.owner_id or pod.owner_id in behind]
    groups = (_of_another(group, behind) if by_pool else group for group in _groups(cluster, pods, state, single))
    return Snapshot(
        nodes=tuple(_nodes(cluster, by_pool=by_pool)),
        queues=tuple(_queues(state, traits) if by_pool else _namespace_queues(state)),
        groups=(*groups, *_unborn(cluster, pods, pools, made_anew=made_anew)),
        now=int(timezone.now().timestamp() * 1_000_000),
        strategies={each.name: Strategy(each.gpu_placement) for each in pools} if traits.places_by_pool else {},
        leaves_out=missing_causes(cluster),
        levels=_levels(pools) if traits.goes_by_levels else {},
    )


def _of_another(group: PodGroup, behind: Collection[str]) -> PodGroup:
    """A scheduler with queues neither counts nor evicts what another one has placed: it only finds the room taken."""
    placed = group.holding and workload_of(group.name) in behind
    return replace(group, queue="", preemptible=False) if placed else group


def _nodes(cluster: Cluster, *, by_pool: bool) -> Iterator[SnapshotNode]:
    for order, node in enumerate(cluster.nodes.select_related("pool").order_by("name")):
        yield SnapshotNode(
            name=node.name,
            pool=(node.pool.name if node.pool else "") if by_pool else ANY_POOL,
            capacity=Resources(node.gpu_milli, node.cpu_milli, node.memory_bytes),
            labels={HOSTNAME: node.name, **node.labels},
            ready=node.ready and not node.unschedulable,
            order=order,
            max_pods=node.max_pods,
            taints=tuple(Taint(**taint) for taint in node.taints),
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


def namespace_queue(namespace: str) -> str:
    """Name of the queue that stands for a namespace's quota."""
    return f"namespace {namespace}"


def _sum(limits: Iterable[Limit]) -> Limit:
    parts = list(limits)
    return Limit(
        flavours_objects.sum_or_unlimited(each.gpu for each in parts),
        flavours_objects.sum_or_unlimited(each.cpu for each in parts),
        flavours_objects.sum_or_unlimited(each.memory for each in parts),
    )


def _pods(cluster: Cluster, queued: Collection[str]) -> Iterable[ObservedPod]:
    """Whatever holds room or waits for some, whoever made it; of these workloads also pods that stand in a queue."""
    rows = ObservedPod.objects.filter(cluster=cluster, gone_at__isnull=True).exclude(phase__in=TERMINAL)
    held = Q(node_name="", reason=GATED) & ~Q(owner_id__in=queued)
    return rows.exclude(held).exclude(node_name="", uid__in=never_requeued(cluster)).order_by("created_at", "uid")


def _groups(
    cluster: Cluster, pods: Sequence[ObservedPod], state: DesiredState, single: Collection[str]
) -> Iterator[PodGroup]:
    traits = flavour_for(cluster.flavour).traits
    by_pool, gangs = traits.queues_by_pool, traits.whole_gangs
    minimum = _minimums({pod.owner_id for pod in pods if pod.owner_id}) if by_pool or gangs else {}
    topologies = _noted(flavours_objects.TOPOLOGY_KEY, minimum) if traits.knows_domains else {}
    carried = _carried(minimum) if traits.spares_young == "pods" else {}
    placements = _noted(
        flavours_objects.PLACEMENT, {pod.owner_id for pod in pods if pod.owner_id and not pod.node_name}
    )
    homes = _leaves(state.projects)
    numbers = {level.name: level.value for level in state.levels} if traits.counts_classes else {}
    entries = admission_times(cluster, pods) if traits.queues_jobs else {}
    parted, first = _parted(pods, single), _first_of(pods)
    drafts: dict[str, list[ObservedPod]] = {}
    for pod in pods:
        together = pod.owner_id not in single and (by_pool or (gangs and minimum.get(pod.owner_id, 1) > 1))
        drafts.setdefault(_group_name(pod, together=together, parted=pod.owner_id in parted), []).append(pod)
    for name, members in drafts.items():
        group = _group(name, members, minimum.get(members[0].owner_id, 1), homes if by_pool else None)
        group = replace(group, created=min(group.created, first.get(members[0].pod_group, group.created)))
        if traits.queues_jobs and (members[0].node_name or members[0].reason != GATED):
            group = _admitted(group, entries.get(name))
        owner = members[0].owner_id
        group = replace(_placed(group, placements.get(owner, ""), owner), topology=topologies.get(owner))
        group = replace(group, priority=numbers.get(members[0].priority_class, group.priority))
        if least := carried.get(owner):
            group = replace(group, min_runtime=least * MINUTE)
        yield as_gang(group, minimum.get(owner, 1)) if gangs else group


def _admitted(group: PodGroup, let_in: int | None) -> PodGroup:
    """Where whole jobs are queued, pods are of admitted ones; pods of others are in none of its queues."""
    group = replace(group, let_in=let_in)
    return replace(group, started=group.started or group.age_key, queue=group.queue if workload_of(group.name) else "")


def as_gang(group: PodGroup, minimum: int) -> PodGroup:
    """As a scheduler of gangs sees it: what starts together goes together. The minimum stands, though few are there."""
    return replace(group, min_member=minimum, gang=True, whole=True) if minimum > 1 else replace(group, topology=None)


def _placed(group: PodGroup, placement: str, kin: str) -> PodGroup:
    """With the wish for its own pods, where it has one; their workload is who they all belong to."""
    return replace(group, placement=Strategy(placement), kin=kin) if placement else group


def _leaves(projects: Iterable[ProjectSpec]) -> dict[tuple[str, str], str]:
    """(namespace, pool) to queue, for pods that name none."""
    return {(project.namespace, queue.pool.name): queue.name for project in projects for queue in project.queues}


def _minimums(owners: set[str]) -> dict[str, int]:
    rows = Workload.objects.filter(pk__in=workload_ids(owners))
    return {str(pk): minimum or 1 for pk, minimum in rows.values_list("pk", "spec__min_member")}


def _carried(owners: Iterable[str]) -> dict[str, int]:
    """How many minutes their pods say that they are left alone, by workload id, of those whose pods do."""
    rows = Workload.objects.filter(pk__in=workload_ids(owners), min_runtime_minutes__gt=0)
    return {str(pk): minutes for pk, minutes in rows.values_list("pk", "min_runtime_minutes")}


def _noted(key: str, owners: Iterable[str]) -> dict[str, str]:
    """What an annotation says, by workload id, of those that have it."""
    rows = Workload.objects.filter(pk__in=workload_ids(owners)).values_list("pk", "spec__annotations")
    return {str(pk): notes[key] for pk, notes in rows if key in (notes or {})}


def _first_of(pods: Iterable[ObservedPod]) -> dict[str, int]:
    """When the first pod of each group was made that has lost some: its scheduler made the group for that one."""
    named = {pod.owner_id for pod in pods if pod.owner_id and pod.pod_group}
    gone = ObservedPod.objects.filter(owner_id__in=named, gone_at__isnull=False).exclude(pod_group="")
    rows = gone.values_list("pod_group").annotate(Min("created_at"))
    return {group: int(at.timestamp() * 1_000_000) for group, at in rows.order_by()}


def _parted(pods: Iterable[ObservedPod], single: Collection[str]) -> frozenset[str]:
    """Ids of the workloads whose pods name several groups of their scheduler, or might."""
    named: dict[str, set[str]] = {}
    for pod in pods:
        if pod.owner_id and pod.pod_group:
            named.setdefault(pod.owner_id, set()).add(pod.pod_group)
    return frozenset(owner for owner, groups in named.items() if owner in single or len(groups) > 1)


def _group_name(pod: ObservedPod, *, together: bool, parted: bool) -> str:
    """The workload's id, and what tells its groups apart where there are several."""
    if parted and pod.pod_group:
        return f"{pod.owner_id}:{pod.pod_group}"
    return pod.owner_id if together and pod.owner_id else f"{pod.owner_id}:{pod.uid}"


def workload_of(group: str) -> str:
    """The id of the workload that a group of a snapshot belongs to; empty for foreign pods."""
    return group.partition(":")[0]


def _group(
    name: str,
    pods: Sequence[ObservedPod],
    minimum: int,
    homes: Mapping[tuple[str, str], str] | None,
) -> PodGroup:
    first = pods[0]
    members = tuple(_pod(pod) for pod in pods)
    starts = [pod.started for pod in members if pod.started is not None]
    home = namespace_queue(first.namespace) if homes is None else first.queue
    return PodGroup(
        name=name,
        queue=home or (homes or {}).get((first.namespace, first.pool_name), ""),
        namespace=first.namespace,
        priority=first.priority,
        preemptible=first.preemptible if homes is not None else first.priority < THRESHOLD,
        pods=members,
        min_member=min(minimum, len(pods)),
        started=min(starts, default=None),
        created=int(first.created_at.timestamp() * 1_000_000),
        pool=ANY_POOL if homes is None else first.pool_name,
        never_preempts=first.never_preempts,
        node_selector=first.node_selector,
        tolerations=tuple(Toleration(**each) for each in first.tolerations),
        made=homes is None,
    )


def _pod(pod: ObservedPod) -> Pod:
    amounts = Resources(pod.gpu_milli, pod.cpu_milli, pod.memory_bytes)
    leaving = pod.deletion_at is not None
    started = int(pod.started_at.timestamp() * 1_000_000) if pod.started_at else None
    return Pod(pod.uid, amounts, pod.node_name or None, leaving, pod.nominated_node or None, started, pod.device)


def _unborn(
    cluster: Cluster, pods: Sequence[ObservedPod], pools: Sequence[NodePool], *, made_anew: bool
) -> Iterator[PodGroup]:
    """Waiting workloads that nothing has been observed of yet. The controller of a new object does not pause."""
    for each in waiting_without_pods(cluster, pools, pods):
        if made_anew or not each.later:
            yield from groups_of(pod_group_request(each.workload, each.pool), cluster.flavour)


def coming_later(cluster: Cluster) -> Mapping[Workload, tuple[PodGroup, ...]]:
    """Waiting workloads that no snapshot has, since their controllers pause: what a scheduler will see of them."""
    found = waiting_without_pods(cluster, cluster.node_pools.all(), list(_pods(cluster, ())))
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
    )
    group = _placed(group, wanted_placement(wanted.spec), wanted.name)
    if flavour.traits.knows_domains:
        group = replace(group, topology=shared_topology(wanted.spec))
    return as_gang(group, wanted.spec.min_member) if flavour.traits.whole_gangs else group


def _wanted_pods(wanted: PodGroupRequest, *, filled_in: bool) -> Iterator[Pod]:
    for role in wanted.spec.roles:
        asked = with_defaults(role.requests, containers=len(role.containers)) if filled_in else role.requests
        for number in range(role.replicas):
            yield Pod(f"{wanted.name}/{role.pointer}/{number}", asked)
