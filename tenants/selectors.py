"""What is used, borrowed and left per project and node pool, in a fixed number of queries for any list of projects."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Sum
from django.utils.translation import gettext as _

from clusters.models import Cluster, Node, NodePool, ObservedPod
from portal.core.display import gpu_text, gpus_text
from portal.core.marks import Kept
from scheduling.resources import Limit, Resources
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota, Quota
from tenants.usage import Usage, UsageByQueue, usage_by_queue

_projects: Final = Kept[Project | None]("rules")


def project_by_id(project_id: int) -> Project | None:
    """The project with its department and cluster, for whoever asks. Shared where it is kept: not to be changed."""
    rows = Project.objects.select_related("cluster", "department").order_by()
    return _projects.of(project_id, lambda: next(iter(rows.filter(pk=project_id)), None))


def with_current_cluster(project: Project) -> Project:
    """The project with its cluster's row read now: of a shared one that row may be as old as the project's."""
    current = copy(project)
    current.cluster = Cluster.objects.get(pk=project.cluster_id)
    return current


@dataclass(frozen=True, slots=True)
class Room:
    """Free GPUs of a pool when it was last observed; None while no node of it was."""

    free_gpu: int | None
    physical_gpu: int | None


@dataclass(frozen=True, slots=True)
class PoolQuota:
    """A project in one node pool: what it was promised, what it uses, and what it could start now."""

    project: Project
    pool: NodePool
    quota: ProjectQuota
    usage: Usage
    department_left: Limit
    room: Room

    @property
    def deserved(self) -> Limit:
        return self.quota.deserved

    @property
    def limit(self) -> Limit:
        return self.quota.limit

    @property
    def used(self) -> Resources:
        return self.usage.allocated

    @property
    def non_preemptible(self) -> Resources:
        return self.usage.non_preemptible

    @property
    def preemptible(self) -> Resources:
        return self.usage.allocated - self.usage.non_preemptible

    @property
    def over_quota_gpu(self) -> int:
        """GPU thousandths used above deserved: what may be reclaimed."""
        return max(self.used.gpu - self.quota.gpu_deserved, 0)

    @property
    def limit_left_gpu(self) -> int | None:
        """GPU thousandths below the limits of project and department, None when neither is limited."""
        bounds = [self.department_left.gpu]
        bounds += [] if self.quota.gpu_limit is None else [self.quota.gpu_limit - self.used.gpu]
        known = [max(bound, 0) for bound in bounds if bound is not None]
        return min(known, default=None)

    @property
    def in_quota_left_gpu(self) -> int:
        """GPU thousandths it may still start within quota; guaranteed, by reclaim if need be."""
        left = max(self.quota.gpu_deserved - self.used.gpu, 0)
        return left if self.limit_left_gpu is None else min(left, self.limit_left_gpu)

    @property
    def over_quota_left_gpu(self) -> int | None:
        """GPU thousandths it could start beyond that, preemptible only; None: unlimited and nothing observed yet."""
        bounds = [self.limit_left_gpu, self.room.free_gpu]
        known = [max(bound - self.in_quota_left_gpu, 0) for bound in bounds if bound is not None]
        return min(known, default=None)

    @property
    def observed_at(self) -> datetime | None:
        return self.pool.cluster.observed_at

    @property
    def simulated(self) -> bool:
        return self.pool.cluster.is_simulated

    @property
    def sentence(self) -> str:
        """The text twin of the quota bar: what one could start now."""
        inside, over = self.in_quota_left_gpu, self.over_quota_left_gpu
        words = {"inside": gpus_text(inside), "pool": self.pool.name, "over": gpu_text(over or 0)}
        if over is None:
            text = _("You can start %(inside)s now in %(pool)s within quota; over quota as far as GPUs are free.")
        elif over == 0 and inside == 0:
            text = _("You can start nothing now in %(pool)s: quota and surplus are used up.")
        elif over == 0:
            text = _("You can start %(inside)s now in %(pool)s within quota; nothing over quota.")
        else:
            text = _(
                "You can start %(inside)s now in %(pool)s within quota; %(over)s more over quota, preemptible only."
            )
        return text % words


def _by_owner_and_pool(quotas: Iterable[ProjectQuota | DepartmentQuota]) -> Mapping[tuple[int, int], Quota]:
    """Index rows by (owner id, pool id)."""
    return {(_owner_id(quota), quota.node_pool_id): quota for quota in quotas}


def _owner_id(quota: ProjectQuota | DepartmentQuota) -> int:
    return quota.project_id if isinstance(quota, ProjectQuota) else quota.department_id


def quota_rows(project: Project) -> list[PoolQuota]:
    """One row per node pool of the project's cluster, the default pool first."""
    return quota_rows_of([project])[project.pk]


def quota_rows_of(projects: Iterable[Project]) -> Mapping[int, list[PoolQuota]]:
    """Rows per project id. The number of queries does not grow with the projects."""
    chosen = list(projects)
    pools = list(NodePool.objects.filter(cluster__in={row.cluster_id for row in chosen}).select_related("cluster"))
    quotas = _by_owner_and_pool(ProjectQuota.objects.filter(project__in=chosen))
    siblings = dict(
        Project.objects.filter(department__in={row.department_id for row in chosen}).values_list("pk", "department_id")
    )
    used = usage_by_queue(list(siblings))
    left = _department_left({row.department_id for row in chosen}, siblings, pools, used)
    rooms = free_room(pools)
    return {
        project.pk: [
            PoolQuota(
                project=project,
                pool=pool,
                quota=_project_quota(quotas.get((project.pk, pool.pk)), project, pool),
                usage=used.get((project.pk, pool.name), Usage()),
                department_left=left[project.department_id, pool.pk],
                room=rooms[pool.pk],
            )
            for pool in pools
            if pool.cluster_id == project.cluster_id
        ]
        for project in chosen
    }


def _project_quota(row: object, project: Project, pool: NodePool) -> ProjectQuota:
    return row if isinstance(row, ProjectQuota) else ProjectQuota(project=project, node_pool=pool)


def _department_left(
    departments: Collection[int], siblings: Mapping[int, int], pools: Iterable[NodePool], used: UsageByQueue
) -> Mapping[tuple[int, int], Limit]:
    """What is left below each department's limit, per (department id, pool id)."""
    held: defaultdict[tuple[int, str], Usage] = defaultdict(Usage)
    for (project_id, pool_name), use in used.items():
        held[siblings[project_id], pool_name] += use
    limits = {
        (quota.department_id, quota.node_pool_id): quota.gpu_limit
        for quota in DepartmentQuota.objects.filter(department__in=departments)
    }
    return {
        (department, pool.pk): Limit(gpu=_left(limits.get((department, pool.pk)), held[department, pool.name]))
        for department in departments
        for pool in pools
    }


def _left(limit: int | None, use: Usage) -> int | None:
    return None if limit is None else max(limit - use.allocated.gpu, 0)


def free_room(pools: Iterable[NodePool]) -> Mapping[int, Room]:
    """Free and physical GPUs per pool id, as last observed: ready nodes without what their living pods hold."""
    chosen = list(pools)
    nodes = Node.objects.filter(pool__in=chosen, ready=True, unschedulable=False)
    physical = dict(nodes.values_list("pool").annotate(sum=Sum("gpu_milli")).order_by())
    pods = ObservedPod.objects.filter(cluster__in={pool.cluster_id for pool in chosen}, gone_at=None)
    running = pods.exclude(node_name="").exclude(phase__in=["Succeeded", "Failed"])
    held = {
        (cluster_id, pool_name): gpu
        for cluster_id, pool_name, gpu in running.values_list("cluster_id", "pool_name").annotate(sum=Sum("gpu_milli"))
    }
    return {
        pool.pk: Room(
            None if pool.pk not in physical else max(physical[pool.pk] - held.get((pool.cluster_id, pool.name), 0), 0),
            physical.get(pool.pk),
        )
        for pool in chosen
    }


@dataclass(frozen=True, slots=True)
class DepartmentPool:
    """A department in one node pool, beside what its projects deserve and use together."""

    department: Department
    pool: NodePool
    quota: DepartmentQuota
    projects_deserved: Resources
    usage: Usage

    @property
    def overrun_gpu(self) -> int:
        """GPU thousandths that its projects deserve beyond it."""
        return max(self.projects_deserved.gpu - self.quota.gpu_deserved, 0)


def department_rows(department: Department) -> list[DepartmentPool]:
    """One row per node pool of the department's cluster."""
    return department_rows_of([department])[department.pk]


def department_rows_of(departments: Iterable[Department]) -> Mapping[int, list[DepartmentPool]]:
    """Rows per department id. The number of queries does not grow with the departments."""
    chosen = list(departments)
    parents = dict(Project.objects.filter(department__in=chosen).values_list("pk", "department_id"))
    own = _by_owner_and_pool(DepartmentQuota.objects.filter(department__in=chosen))
    sums: defaultdict[tuple[int, int], Resources] = defaultdict(Resources)
    for quota in ProjectQuota.objects.filter(project__in=list(parents)):
        amounts = Resources(quota.gpu_deserved, quota.cpu_deserved or 0, quota.memory_deserved or 0)
        sums[parents[quota.project_id], quota.node_pool_id] += amounts
    used: defaultdict[tuple[int, str], Usage] = defaultdict(Usage)
    for (project_id, pool_name), use in usage_by_queue(list(parents)).items():
        used[parents[project_id], pool_name] += use
    pools = list(NodePool.objects.filter(cluster__in={row.cluster_id for row in chosen}).select_related("cluster"))
    return {
        department.pk: [
            DepartmentPool(
                department=department,
                pool=pool,
                quota=_department_quota(own.get((department.pk, pool.pk)), department, pool),
                projects_deserved=sums[department.pk, pool.pk],
                usage=used[department.pk, pool.name],
            )
            for pool in pools
            if pool.cluster_id == department.cluster_id
        ]
        for department in chosen
    }


def _department_quota(row: object, department: Department, pool: NodePool) -> DepartmentQuota:
    return row if isinstance(row, DepartmentQuota) else DepartmentQuota(department=department, node_pool=pool)
