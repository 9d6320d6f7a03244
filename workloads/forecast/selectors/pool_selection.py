"""Select the node pool whose quotas can hold a workload, or explain with numbers why none can.

Only what can never come true is refused: more than the limit, or non-preemptible work beyond what the deserved quotas
of project and department can give in any of its pools. What is merely in use now is accepted and waits.

kube-scheduler's only quota is a namespace's, for the priority classes of 100 and more: it knows neither node pools
nor preemptibility, nor departments. Where that would let more start than the deserved quota of project or department
in the pool, Rung hands over the oldest first and holds the others back. The order alone decides, so two workers that
look at the same moment cannot both hand over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import ClusterState, NodePool
from clusters.ports.flavour import DesiredState
from clusters.watch.models import ObservedPod
from portal.kit.db.read_cache import cached_read
from portal.kit.errors import Problem, ValidationFailed
from portal.kit.pages.formatting import gpus_text
from scheduling.forecast.cycle import FLAVOURS
from scheduling.model.preemptibility import THRESHOLD, Preemptibility, as_scheduled
from scheduling.model.reasons import PendingReason, Reason
from scheduling.model.resources import DIMENSIONS, ZERO, Limit, Resources, per_dimension
from scheduling.state.queue_usage import QueueUsage, fits_quota, over_guarantee
from tenants.organisation.models import Project
from tenants.quotas.models import PriorityCap, ProjectQuota
from workloads.dictionary.rules.resolution import Effective
from workloads.forecast.rules.estimates import waited_in_pool
from workloads.forecast.rules.messages import allowed_text, needed_text
from workloads.forecast.rules.reasons import DEPARTMENT
from workloads.forecast.selectors.observed_groups import namespace_queue, workload_of
from workloads.forecast.selectors.pod_groups import PodGroupRequest, pod_group_request
from workloads.intake import WorkloadSpec
from workloads.state.models import DesiredPhase, Phase, Workload
from workloads.state.rules import HELD_FOR_QUOTA
from workloads.state.selectors.usage import HANDED_OVER, fixed_work, queue_paths
from workloads.state.selectors.workloads import workload_ids


def pools_for(spec: WorkloadSpec, project: Project) -> list[NodePool]:
    """Its pools in order of preference: its own, else the project's, else the default. Refuses unknown names."""
    pools = _pools(project.cluster_id)
    wanted = spec.node_pools or tuple(project.default_node_pools) or _default(pools.values())
    problems = [
        Problem(f"/nodePools/{index}", "pool_unknown", f"Unknown node pool {name[:63]!r}.", tuple(pools))
        for index, name in enumerate(wanted)
        if name not in pools
    ]
    if not wanted:
        problems = [Problem("/nodePools", "no_pool", f"Cluster {project.cluster.name} has no node pool.")]
    if problems:
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)
    return [pools[name] for name in wanted]


@cached_read
def _pools(cluster_id: UUID) -> Mapping[str, NodePool]:
    return {pool.name: pool for pool in NodePool.objects.filter(cluster=cluster_id).order_by("pk")}


def _default(pools: Iterable[NodePool]) -> tuple[str, ...]:
    ordered = sorted(pools, key=lambda pool: (not pool.is_default, pool.name))
    return tuple(pool.name for pool in ordered[:1])


def pick_pool(spec: WorkloadSpec, effective: Effective, project: Project, pools: Sequence[NodePool]) -> NodePool:
    """The first pool whose quotas could ever hold it. ValidationFailed, with numbers, if there is none."""
    return pools_with_quota(spec, effective, project, pools)[0]


def pools_with_quota(
    spec: WorkloadSpec, effective: Effective, project: Project, pools: Sequence[NodePool]
) -> list[NodePool]:
    """The pools whose quotas could ever hold it, in their order. Refused as `pick_pool` when there is none."""
    counted = as_scheduled(effective.preemptibility, effective.priority.value)
    preemptible = counted is not Preemptibility.NON_PREEMPTIBLE
    return check_quota(spec, project, pools, preemptible=preemptible)


def check_quota(
    spec: WorkloadSpec, project: Project, pools: Sequence[NodePool], *, preemptible: bool
) -> list[NodePool]:
    """The same where only the preemptibility is known."""
    paths = queue_paths(project, pools)
    found, problems = [], []
    for pool in pools:
        pend = fits_quota(paths[pool.pk], {}, spec.total, preemptible=preemptible)
        if pend is None:
            found.append(pool)
        else:
            problems.append(_problem(spec, pool, pend))
    if not found:
        raise ValidationFailed(problems[0].message, code=problems[0].code, problems=problems)
    return found


def _problem(spec: WorkloadSpec, pool: NodePool, pend: PendingReason) -> Problem:
    pointer = spec.roles[0].pointer if spec.roles else ""
    numbers = {"pool": pool.name, **pend.numbers()}
    del numbers["used"]  # refused even in an empty queue; the present use was not read
    return Problem(pointer, str(pend.reason), _sentence(pool, pend), numbers=numbers)


def _sentence(pool: NodePool, pend: PendingReason) -> str:
    if pend.reason is Reason.OVER_LIMIT:
        return f"It needs {needed_text(pend)} in {pool.name}; the limit of {pend.queue} is {allowed_text(pend)}."
    return (
        f"It needs {needed_text(pend)} in {pool.name} and is non-preemptible, so it must fit the deserved quota; "
        f"{pend.queue} deserves {allowed_text(pend)}."
    )


def check_kind_served(spec: WorkloadSpec, project: Project) -> None:
    """A kind that the cluster does not serve, as far as it was asked yet: its operator is not installed there."""
    served, wanted = project.cluster.served_kinds, f"{spec.api_version} {spec.kind}"
    if not served or wanted in served:
        return
    versions = [each.rpartition(" ")[0] for each in served if each.rpartition(" ")[2] == spec.kind]
    known = f"; it serves {spec.kind} as {' and '.join(versions)}" if versions else ": its operator is not installed"
    raise ValidationFailed.at(
        "/apiVersion" if versions else "/kind",
        "kind_not_served",
        f"Cluster {project.cluster.name} does not serve {spec.api_version} {spec.kind}{known}.",
        allowed=versions or sorted({each.rpartition(" ")[2] for each in served}),
    )


def check_priority_cap(spec: WorkloadSpec, effective: Effective, project: Project) -> None:
    """The project's GPU cap on this priority, where there is one."""
    needed, most = spec.total.gpu, _caps(project.pk)
    for name in sorted({effective.priority.name, effective.priority.canonical} & most.keys()):
        if needed > most[name]:
            wanted, cap = str(Resources(gpu=needed)), str(Resources(gpu=most[name]))
            raise ValidationFailed.at(
                "/priority",
                "OverPriorityCap",
                f"It needs {wanted}; {project.name} is capped at {cap} with priority {name}.",
                needed=wanted,
                cap=cap,
                priority=name,
            )


_CAPS: Final = f"SELECT priority, gpu_limit FROM {PriorityCap._meta.db_table} WHERE project_id = %s"  # noqa: S608  # as above


@cached_read
def _caps(project_id: int) -> Mapping[str, int]:
    """GPU thousandths by the name of a priority."""
    with connection.cursor() as cursor:
        cursor.execute(_CAPS, [project_id])
        return dict(cursor.fetchall())


@dataclass(frozen=True, slots=True)
class QuotaHold:
    """Why it is held back: the pool, the refusal with its numbers, and how many workloads hold or come first."""

    pool: str
    pend: PendingReason
    count: int
    reason: ClassVar[str] = HELD_FOR_QUOTA

    def __str__(self) -> str:
        """As a sentence about what is held back."""
        return f"Rung defers it: {self.why}"

    @property
    def why(self) -> str:
        """As the rest of a sentence."""
        pend = self.pend
        return (
            f"it needs {pend.needed} in {self.pool} and is non-preemptible; of the {pend.allowed} that {pend.queue} "
            f"deserves there, workloads that run or are older ({self.count}) need {pend.used}"
        )

    def numbers(self) -> dict[str, str]:
        """The same for programs."""
        return {"pool": self.pool, **self.pend.numbers()}


def quota_hold_of(workload: Workload, pool: NodePool) -> QuotaHold | None:
    """Why a stored workload is not handed over now; None: the pool's deserved quotas have room for it."""
    older = Q(created_at__lt=workload.created_at) | Q(created_at=workload.created_at, pk__lt=workload.pk)
    return _quota_hold(pod_group_request(workload, pool), (older | HANDED_OVER) & ~Q(pk=workload.pk))


def quota_hold_for(wanted: PodGroupRequest, *, besides: Workload | None = None) -> QuotaHold | None:
    """The same for a workload that is only thought of, or for another size of one: what was accepted comes first."""
    return _quota_hold(wanted, Q() if besides is None else ~Q(pk=besides.pk))


def _quota_hold(wanted: PodGroupRequest, first: Q) -> QuotaHold | None:
    """By the project's deserved quota where the cluster does not count it, then by its department's, which it never
    does.
    """
    by_queue = flavour_for(wanted.project.cluster.flavour).traits.queues_by_pool
    if wanted.preemptibility != Preemptibility.NON_PREEMPTIBLE or by_queue:
        return None
    leaf, department = queue_paths(wanted.project, [wanted.pool])[wanted.pool.pk]
    claims = _claims(wanted, first)
    own = claims.get(wanted.project.pk, NO_CLAIM)
    pend = over_guarantee(leaf, QueueUsage(non_preemptible=own.all), wanted.spec.total)
    if pend and not _cluster_counts(wanted):
        return QuotaHold(wanted.pool.name, pend, own.count)
    deserved = _deserved_in(wanted)
    used = sum((each.at_most(deserved.get(key, NOTHING)) for key, each in claims.items()), ZERO)
    pend = over_guarantee(department, QueueUsage(non_preemptible=used), wanted.spec.total)
    return QuotaHold(wanted.pool.name, pend, sum(each.count for each in claims.values())) if pend else None


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a project's non-preemptible workloads that come first ask for in the pool; held: those handed over."""

    all: Resources
    held: Resources
    count: int

    def at_most(self, deserved: Limit) -> Resources:
        """What of it the department has to hold: what the project's own quota refuses does not delay other projects."""
        return per_dimension(max, self.all.clamp(deserved), self.held)


NO_CLAIM: Final = _Claim(ZERO, ZERO, 0)
NOTHING: Final = Limit(0, 0, 0)
COLUMNS: Final = dict(zip(DIMENSIONS, ("gpu_milli", "cpu_milli", "memory_bytes"), strict=True))


def _claims(wanted: PodGroupRequest, first: Q) -> Mapping[int, _Claim]:
    """By project of the department. One query."""
    rows = fixed_work().filter(first, project__department=wanted.project.department_id, pool_name=wanted.pool.name)
    sums = {name: Sum(column, default=0) for name, column in COLUMNS.items()}
    held = {f"held_{name}": Sum(column, filter=HANDED_OVER, default=0) for name, column in COLUMNS.items()}
    found = rows.order_by().values_list("project").annotate(Count("pk"), **sums, **held)
    return {
        project: _Claim(Resources(*amounts[: len(sums)]), Resources(*amounts[len(sums) :]), count)
        for project, count, *amounts in found
    }


def _deserved_in(wanted: PodGroupRequest) -> Mapping[int, Limit]:
    """By project of the department: what it deserves in the pool."""
    rows = ProjectQuota.objects.filter(project__department=wanted.project.department_id, node_pool=wanted.pool)
    return {row.project_id: row.deserved for row in rows}


def _cluster_counts(wanted: PodGroupRequest) -> bool:
    """Does kube-scheduler's cluster itself hold this workload inside what its project deserves in the pool?"""
    pools = list(wanted.project.cluster.node_pools.all())
    paths = queue_paths(wanted.project, pools)
    others = [paths[pool.pk][0].deserved for pool in pools if pool.pk != wanted.pool.pk]
    return wanted.value >= THRESHOLD and not any(deserved.gpu != 0 for deserved in others)


OBSERVED_LATELY: Final = timedelta(minutes=2)
"""Nothing is moved by older data."""


def movable(now: datetime) -> QuerySet[Workload]:
    """What Rung moves to another of its node pools by itself, unless it has a pod on a node."""
    return Workload.objects.filter(
        phase=Phase.PENDING,
        desired_phase=DesiredPhase.RUNNING,
        deleted_at=None,
        allocated_gpu_milli=0,
        running_pods=0,
        node_pools__1__isnull=False,
        project__cluster__state=ClusterState.ACTIVE,
        project__cluster__observed_at__gte=now - OBSERVED_LATELY,
        project__cluster__flavour__in=list(FLAVOURS),
    )


def has_a_node(workload: Workload) -> bool:
    """Whether a pod of it has a node, or one is promised to it: it is about to start, and is not moved."""
    pods = ObservedPod.objects.filter(owner_id=str(workload.pk), gone_at=None)
    return pods.exclude(node_name="", nominated_node="").exists()


def tried_pools(workload: Workload) -> tuple[str, ...]:
    """Its other node pools, where Rung tries them by itself."""
    if len(workload.node_pools) < 2 or not movable(timezone.now()).filter(pk=workload.pk).exists():
        return ()
    return () if has_a_node(workload) else tuple(name for name in workload.node_pools if name != workload.pool_name)


def waited_here(workload: Workload, now: datetime) -> timedelta:
    """How long it waits in its present node pool."""
    return waited_in_pool(now=now, waits_since=workload.phase_at, pool_since=workload.pool_since)


def queue_labels(state: DesiredState) -> dict[str, str]:
    """Queue names in people's words: "project llm-team"."""
    labels = {spec.name: f"{DEPARTMENT}{_owner(spec.display_name)}" for spec in state.departments}
    for project in state.projects:
        labels |= {queue.name: f"project {project.name}" for queue in project.queues}
        labels[namespace_queue(project.namespace)] = f"project {project.name}"
    return labels


def pend_labels(state: DesiredState, pend: PendingReason | None) -> dict[str, str]:
    """`queue_labels`, and the workload that waits ahead of it: of the same project, so its readers may see it."""
    labels = queue_labels(state)
    for name in pend.behind[:1] if pend else ():
        found = Workload.objects.filter(pk__in=workload_ids([workload_of(name)])).first()
        labels[name] = f"{found.name} ({gpus_text(found.gpu_milli)})" if found else "another workload"
    return labels


def _owner(display_name: str) -> str:
    return display_name.partition(" in ")[0]
