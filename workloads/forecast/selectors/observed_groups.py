"""Observed pods as pod groups, and when queued jobs were let in."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Min, Q, QuerySet

from clusters.flavours import objects as flavours_objects
from clusters.flavours.pod_status import ADMITTED, LEFT_OUT
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster
from clusters.ports.flavour import DesiredState, Traits
from clusters.ports.objects import POD
from clusters.ports.pods import TERMINAL, needs_of_pods
from clusters.watch.models import ClusterEvent, ObservedPod
from scheduling.model.preemptibility import THRESHOLD
from scheduling.model.resources import Resources
from scheduling.model.snapshot import Pod, PodGroup, Strategy, Toleration
from workloads.state.models import Workload
from workloads.state.rules import LIVE
from workloads.state.selectors.workloads import workload_ids

ANY_POOL: Final = "default"
MINUTE: Final = 60_000_000  # microseconds, the unit of every time stamp here
GATED: Final = "SchedulingGated"  # held back from the scheduler by its maker


def pods_scheduled_singly(cluster: Cluster) -> Collection[str]:
    """Types of workloads. The simulated Kueue takes every object whole."""
    traits = flavour_for(cluster.flavour).traits
    return () if traits.queues_jobs and cluster.backend == "sandbox" else traits.singly


def single_workloads(cluster: Cluster) -> frozenset[str]:
    """Ids of the live ones of these types."""
    if not (types := pods_scheduled_singly(cluster)):
        return frozenset()
    return frozenset(str(pk) for (pk,) in _live_workloads(cluster, types))


def single_workloads_of(cluster: Cluster, owners: Collection[str]) -> frozenset[str]:
    """Those of these owners. PostgreSQL only."""
    if not (types := pods_scheduled_singly(cluster)):
        return frozenset()
    live, values = _live_workloads_statement(cluster, frozenset(types))
    with connection.cursor() as cursor:
        found = f"SELECT pk FROM ({live}) AS live WHERE pk = ANY(%s)"  # noqa: S608  # Django's own text, with parameters
        cursor.execute(found, (*values, workload_ids(owners)))
        return frozenset(str(pk) for (pk,) in cursor.fetchall())


def _live_workloads(cluster: Cluster, types: Collection[str]) -> QuerySet[Workload, tuple[UUID]]:
    rows = Workload.objects.filter(project__cluster=cluster, type__name__in=types, phase__in=LIVE)
    return rows.values_list("pk")


SECOND: Final = 1_000_000  # microseconds, the unit of time stamps in a snapshot


def admission_times(cluster: Cluster, pods: Collection[ObservedPod]) -> dict[str, int]:
    """When each pod group was let in, by its name, and those of earlier pods. It may wait for a node long after."""
    owners = {pod.owner_id for pod in pods if pod.owner_id}
    events = ClusterEvent.objects.filter(cluster=cluster, owner_id__in=owners, reason=ADMITTED).order_by("at")
    return {
        f"{owner}:{uid}" if kind == POD.kind else owner: int(at.timestamp() * SECOND)
        for owner, kind, uid, at in events.values_list("owner_id", "kind", "object_uid", "at")
    }


def never_requeued(cluster: Cluster) -> QuerySet[ClusterEvent, str]:
    """Uids of pods that stay gated until they are deleted: only another pod in their place is queued."""
    events = ClusterEvent.objects.filter(cluster=cluster, kind=POD.kind, reason=LEFT_OUT)
    return events.values_list("object_uid", flat=True)


def namespace_queue(namespace: str) -> str:
    """Name of the queue that represents a namespace's quota."""
    return f"namespace {namespace}"


def _of_another(group: PodGroup, behind: Collection[str]) -> PodGroup:
    """A scheduler with queues neither counts nor evicts what another one has placed: it only finds the room taken."""
    placed = group.holding and workload_of(group.name) in behind
    return replace(group, queue="", preemptible=False) if placed else group


def live_pods(cluster: Cluster, queued: Collection[str]) -> QuerySet[ObservedPod]:
    """All groups that hold or wait for capacity, including foreign ones; of these workloads also queued pods."""
    held = Q(reason=GATED) & ~Q(owner_id__in=queued) if queued else Q(reason=GATED)
    apart = Q(phase__in=TERMINAL) | Q(node_name="") & (held | Q(uid__in=never_requeued(cluster)))
    return ObservedPod.objects.filter(~apart, cluster=cluster, gone_at__isnull=True).order_by("created_at", "uid")


def live_pods_of(
    cluster: Cluster, queued: Collection[str], owners: Collection[str], alone: Collection[str]
) -> list[ObservedPod]:
    """Those of these owners, and those without an owner that have these uids. PostgreSQL only."""
    live, values = _live_pods_statement(cluster, frozenset(queued))
    found = f"SELECT * FROM ({live}) AS live WHERE {_OF_OWNERS} ORDER BY created_at, uid"  # noqa: S608  # likewise
    return list(ObservedPod.objects.raw(found, (*values, [*owners], [*alone])))


_OF_OWNERS: Final = "owner_id = ANY(%s) OR owner_id = '' AND uid = ANY(%s)"


@lru_cache(maxsize=128)
def _live_workloads_statement(cluster: Cluster, types: frozenset[str]) -> tuple[str, tuple[Any, ...]]:
    """Kept: Django takes longer to write it than PostgreSQL to answer."""
    return sql_of(_live_workloads(cluster, types))


@lru_cache(maxsize=128)
def _live_pods_statement(cluster: Cluster, queued: frozenset[str]) -> tuple[str, tuple[Any, ...]]:
    """Kept: Django takes longer to write it than PostgreSQL to answer."""
    return sql_of(live_pods(cluster, queued).order_by())


def sql_of(rows: QuerySet[Any, Any]) -> tuple[str, tuple[Any, ...]]:
    """The statement and its values."""
    statement, values = rows.query.sql_with_params()
    return statement, tuple(values)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What else pod groups are made from. homes: queues by (namespace, pool), for pods that name none; numbers: of
    priority classes, where their scheduler counts those; behind: ids of workloads that another scheduler started.
    """

    homes: Mapping[tuple[str, str], str]
    numbers: Mapping[str, int]
    behind: Collection[str]


def group_settings(cluster: Cluster, state: DesiredState, behind: Collection[str]) -> GroupSettings:
    """Of a cluster with this desired state."""
    counts = flavour_for(cluster.flavour).traits.counts_classes
    return GroupSettings(
        homes={(each.namespace, queue.pool.name): queue.name for each in state.projects for queue in each.queues},
        numbers={each.name: each.value for each in state.priorities} if counts else {},
        behind=behind,
    )


def groups_of_pods(
    cluster: Cluster, pods: Sequence[ObservedPod], known: GroupSettings, single: Collection[str]
) -> Iterator[PodGroup]:
    """Of all live pods, or of all that some owners have."""
    by_pool = flavour_for(cluster.flavour).traits.queues_by_pool
    groups = _groups(cluster, pods, known, single)
    return (_of_another(group, known.behind) for group in groups) if by_pool else groups


def _groups(
    cluster: Cluster, pods: Sequence[ObservedPod], known: GroupSettings, single: Collection[str]
) -> Iterator[PodGroup]:
    traits = flavour_for(cluster.flavour).traits
    by_pool, gangs = traits.queues_by_pool, traits.whole_gangs
    of_owners = _owner_settings(traits, pods)
    homes, numbers = known.homes, known.numbers
    entries = admission_times(cluster, pods) if traits.queues_jobs else {}
    parted, first = _parted(pods, single), _first_of(pods)
    drafts: dict[str, list[ObservedPod]] = {}
    for pod in pods:
        minimum = of_owners.get(pod.owner_id, _NO_SETTINGS).minimum
        together = pod.owner_id not in single and (by_pool or (gangs and minimum > 1))
        drafts.setdefault(_group_name(pod, together=together, parted=pod.owner_id in parted), []).append(pod)
    for name, members in drafts.items():
        owner = members[0].owner_id
        own = of_owners.get(owner, _NO_SETTINGS)
        group = _group(name, members, own.minimum, homes if by_pool else None)
        group = replace(group, created=min(group.created, first.get(members[0].pod_group, group.created)))
        if traits.queues_jobs and (members[0].node_name or members[0].reason != GATED):
            group = _admitted(group, entries.get(name))
        group = replace(with_placement(group, own.placement, owner), topology=own.topology)
        group = replace(
            group, priority=numbers.get(members[0].priority_class, group.priority), min_runtime=own.min_runtime
        )
        yield as_gang(group, own.minimum) if gangs else group


@dataclass(frozen=True, slots=True)
class _OwnerSettings:
    """What a workload says of its pods, as far as its scheduler goes by it. placement: only of such that wait."""

    minimum: int = 1
    topology: str | None = None
    placement: str = ""
    min_runtime: int = 0


_NO_SETTINGS: Final = _OwnerSettings()


def _owner_settings(traits: Traits, pods: Iterable[ObservedPod]) -> Mapping[str, _OwnerSettings]:
    """By workload id, in one query. Where every pod is on its own, only of those whose pods wait."""
    grouped, carried = traits.queues_by_pool or traits.whole_gangs, traits.protects_minimum_runtime == "pods"
    waiting = {pod.owner_id for pod in pods if pod.owner_id and not pod.node_name}
    owners = {pod.owner_id for pod in pods if pod.owner_id} if grouped else waiting
    if not owners:
        return {}
    rows = Workload.objects.filter(pk__in=workload_ids(owners)).order_by()
    found = rows.values_list("pk", "spec__min_member", "spec__annotations", "min_runtime_minutes")
    return {
        str(pk): _OwnerSettings(
            minimum=(minimum or 1) if grouped else 1,
            topology=(notes or {}).get(flavours_objects.TOPOLOGY_KEY) if traits.knows_domains else None,
            placement=(notes or {}).get(flavours_objects.PLACEMENT, "") if str(pk) in waiting else "",
            min_runtime=minutes * MINUTE if carried else 0,
        )
        for pk, minimum, notes, minutes in found
    }


def _admitted(group: PodGroup, let_in: int | None) -> PodGroup:
    """Where whole jobs are queued, pods are of admitted ones; pods of others are in none of its queues."""
    group = replace(group, let_in=let_in)
    return replace(group, started=group.started or group.age_key, queue=group.queue if workload_of(group.name) else "")


def as_gang(group: PodGroup, minimum: int) -> PodGroup:
    """As a scheduler of gangs sees it: what starts together goes together. The minimum holds when fewer are there."""
    return replace(group, min_member=minimum, gang=True, whole=True) if minimum > 1 else replace(group, topology=None)


def with_placement(group: PodGroup, placement: str, kin: str) -> PodGroup:
    """With the wish for its own pods, where it has one; their workload is who they all belong to."""
    return replace(group, placement=Strategy(placement), kin=kin) if placement else group


def _first_of(pods: Iterable[ObservedPod]) -> dict[str, int]:
    """When the first pod of each group was made that has lost some: its scheduler made the group for that one."""
    named = {pod.owner_id for pod in pods if pod.owner_id and pod.pod_group}
    if not named:
        return {}
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
    """The workload's id, and what distinguishes its groups where there are several."""
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
        more=needs_of_pods((pod.gpu_milli, pod.more_requests) for pod in pods),
        sort_name=f"{first.namespace}/{min(pod.name for pod in pods)} {name}",
    )


def _pod(pod: ObservedPod) -> Pod:
    amounts = Resources(pod.gpu_milli, pod.cpu_milli, pod.memory_bytes)
    leaving = pod.deletion_at is not None
    started = int(pod.started_at.timestamp() * 1_000_000) if pod.started_at else None
    return Pod(pod.uid, amounts, pod.node_name or None, leaving, pod.nominated_node or None, started, pod.device)
