"""A workload as the pod groups that its scheduler sees; of those that wait, which have no pods.

A Job whose pod has failed or was evicted gets the next one after a pause, ten seconds at first and up to ten minutes;
whom a quota refused is tried again with growing pauses. Until then no scheduler sees any of them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from clusters.flavours.kube import with_defaults
from clusters.flavours.pod_status import LEFT_OUT
from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, NodePool
from clusters.ports.pods import needs_of_pods
from clusters.watch.models import ObservedPod
from scheduling.model.preemptibility import THRESHOLD, Preemptibility, as_scheduled
from scheduling.model.reasons import Reason
from scheduling.model.snapshot import Pod, PodGroup
from tenants.organisation.models import Project
from workloads.dictionary.rules.resolution import Effective
from workloads.forecast.rules.forecast import Forecast
from workloads.forecast.selectors.observed_groups import (
    ANY_POOL,
    as_gang,
    namespace_queue,
    pods_scheduled_singly,
    sql_of,
    with_placement,
)
from workloads.intake import WorkloadSpec
from workloads.intake.rules.spec import (
    borne_taints,
    named_requests,
    needed_placement,
    selected_labels,
    shared_topology,
)
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import HELD, NO_CONTROLLER, REFUSED_PODS, WAITING
from workloads.state.selectors.workloads import object_name


@dataclass(frozen=True, slots=True)
class PodGroupRequest:
    """What a pod group is made from: a stored workload, or a submission that is only previewed."""

    name: str
    spec: WorkloadSpec
    project: Project
    pool: NodePool
    value: int
    preemption_policy: str
    preemptibility: str
    created: datetime
    object_name: str = ""


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
        object_name=object_name(workload),
    )


def candidate_request(
    spec: WorkloadSpec,
    effective: Effective,
    project: Project,
    pool: NodePool,
    at: datetime,
    *,
    name: str = "candidate",
) -> PodGroupRequest:
    """A submission that is only previewed as what a pod group is made from."""
    return PodGroupRequest(
        name=name,
        spec=spec,
        project=project,
        pool=pool,
        value=effective.priority.value,
        preemption_policy=effective.priority.preemption_policy,
        preemptibility=effective.preemptibility,
        created=at,
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
        replace(
            whole,
            name=f"{wanted.name}:{index:04}",
            pods=part,
            min_member=size,
            sort_name=f"{whole.sort_name}:{index:04}",
        )
        for index, part in enumerate(parts)
    )


def _whole(wanted: PodGroupRequest, flavour_name: str) -> PodGroup:
    flavour = flavour_for(flavour_name)
    by_pool = flavour.traits.queues_by_pool
    queue = flavour.queue_name(wanted.project.owner, wanted.pool.name)
    preemptible = as_scheduled(wanted.preemptibility, wanted.value) != Preemptibility.NON_PREEMPTIBLE
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
        sort_name=f"{wanted.project.namespace}/{wanted.object_name} {wanted.name}",
    )
    group = with_placement(group, needed_placement(wanted.spec), wanted.name)
    if flavour.traits.knows_domains:
        group = replace(group, topology=shared_topology(wanted.spec))
    return as_gang(group, wanted.spec.min_member) if flavour.traits.whole_gangs else group


def _wanted_pods(wanted: PodGroupRequest, *, filled_in: bool) -> Iterator[Pod]:
    for role in wanted.spec.roles:
        requested = with_defaults(role.requests, containers=len(role.containers)) if filled_in else role.requests
        for number in range(role.replicas):
            yield Pod(f"{wanted.name}/{role.pointer}/{number}", requested)


OUT_OF_TURN: Final = (*HELD, NO_CONTROLLER, LEFT_OUT)
"""Why a workload waits that no scheduler has before it."""


ABOVE: Final = "above."
"""Names of pod groups start so whose workloads are previewed together with a later one of the same file."""
ABOVE_IN_FILE: Final = "a workload above it in the file"


Above = Sequence[tuple[WorkloadSpec, Forecast]]
"""Previewed workloads of one file, each with its forecast, in the order of submission."""


def counts_above(cluster: Cluster) -> bool:
    """Can a preview count what is above it in a file? Only where the model alone decides about quota and nodes."""
    traits = flavour_for(cluster.flavour).traits
    return traits.queues_by_pool and not traits.queues_jobs


def groups_above(above: Above, project: Project, now: datetime) -> Iterator[PodGroup]:
    """What the scheduler would have before it of previewed workloads, were they submitted in this order until now."""
    pools = {pool.name: pool for pool in project.cluster.node_pools.all()} if above else {}
    for place, (spec, found) in enumerate(above):
        if found.basis and found.reason not in {*OUT_OF_TURN, Reason.NO_SUCH_POOL} and counts_above(project.cluster):
            at, name = now - timedelta(microseconds=len(above) - place), f"{ABOVE}{place}"
            wanted = candidate_request(spec, found.effective, project, pools[found.pool], at, name=name)
            yield from groups_of(wanted, project.cluster.flavour)


@dataclass(frozen=True, slots=True)
class WaitingWorkload:
    """One that waits and the pod groups that a scheduler will see of it, none where its node pool is gone.

    version: of its row. handed_over: its cluster has it as it is. refused: a quota refuses its pods.
    """

    name: str
    project_id: int
    groups: tuple[PodGroup, ...]
    handed_over: bool
    refused: bool
    version: str


@dataclass(frozen=True, slots=True)
class WithoutPods:
    """Waiting workloads without pods, by id. later: those whose controllers pause before they make pods.

    known: all of them as they were read, for the next time.
    """

    soon: Mapping[str, WaitingWorkload]
    later: Mapping[str, WaitingWorkload]
    known: Mapping[str, WaitingWorkload]


def waiting_without_pods(
    cluster: Cluster,
    seen: Collection[str],
    staying: Collection[str],
    known: Mapping[str, WaitingWorkload] | None,
) -> WithoutPods:
    """Those that Rung does not hold back, and whose kind has a controller.

    seen, staying: owners of live pods, and of such that are not ending. known: read before under the same settings,
    whose rows are read again only where they have changed; None: all rows are read.
    """
    found = _known_or_read(cluster, staying, known)
    tried = _tried(cluster, found)
    placed = {owner: each for owner, each in found.items() if each.groups}
    later = {owner: each for owner, each in placed.items() if owner in tried or each.refused}
    soon = {owner: each for owner, each in placed.items() if owner not in later and owner not in seen}
    return WithoutPods(soon, later, found)


def _known_or_read(
    cluster: Cluster, staying: Collection[str], known: Mapping[str, WaitingWorkload] | None
) -> Mapping[str, WaitingWorkload]:
    if known is None:
        return _read(cluster, _waiting(cluster), staying, {})
    with connection.cursor() as cursor:
        cursor.execute(*_versions_statement(cluster))
        versions = {str(pk): version for pk, version in cursor.fetchall()}
    wanted = [owner for owner in versions if owner not in staying]
    found = {owner: known[owner] for owner in wanted if owner in known and known[owner].version == versions[owner]}
    if changed := [owner for owner in wanted if owner not in found]:
        found |= _read(cluster, _waiting(cluster).filter(pk__in=changed), staying, versions)
    return {owner: found[owner] for owner in wanted if owner in found}


def _waiting(cluster: Cluster) -> QuerySet[Workload]:
    return Workload.objects.filter(
        project__cluster=cluster, phase__in=WAITING, desired_phase=DesiredPhase.RUNNING, deleted_at__isnull=True
    ).exclude(phase_reason__in=OUT_OF_TURN)


@cache
def _versions_statement(cluster: Cluster) -> tuple[str, tuple[Any, ...]]:
    """Ids and versions of these rows. Kept: Django takes longer to write it than PostgreSQL to answer."""
    return sql_of(_waiting(cluster).annotate(version=_VERSION).values_list("pk", "version"))


_TABLE: Final = Workload._meta.db_table
_VERSION: Final = RawSQL(f"{_TABLE}.xmin::text || {_TABLE}.ctid::text", ())  # noqa: S611  # the table's own name
"""PostgreSQL's own version of a row: every update makes another one, whichever program it is."""


def _read(
    cluster: Cluster, rows: QuerySet[Workload], staying: Collection[str], versions: Mapping[str, str]
) -> dict[str, WaitingWorkload]:
    pools = {pool.name: pool for pool in cluster.node_pools.all()}
    return {
        str(row.pk): waiting_workload(row, pools.get(row.pool_name), cluster.flavour, versions.get(str(row.pk), ""))
        for row in rows.defer("raw").select_related("project__cluster", "priority")
        if str(row.pk) not in staying
    }


def waiting_workload(row: Workload, pool: NodePool | None, flavour: str, version: str = "") -> WaitingWorkload:
    """A stored workload as it waits in this node pool."""
    return WaitingWorkload(
        name=row.name,
        project_id=row.project_id,
        groups=groups_of(pod_group_request(row, pool), flavour) if pool else (),
        handed_over=row.applied_generation == row.generation,
        refused=row.phase == Phase.PENDING and row.phase_reason in REFUSED_PODS,
        version=version,
    )


def _tried(cluster: Cluster, workloads: Mapping[str, WaitingWorkload]) -> set[str]:
    """Those that had pods before, under a controller that pauses; a scheduler of whole jobs has them in its queue."""
    handed = [owner for owner, each in workloads.items() if each.handed_over]
    if not handed or flavour_for(cluster.flavour).traits.queues_jobs:
        return set()
    rows = ObservedPod.objects.filter(cluster=cluster, owner_id__in=handed)
    return set(rows.values_list("owner_id", flat=True))
