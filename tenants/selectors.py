"""What is used, borrowed and left per project and node pool, in a fixed number of queries for any list of projects."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.utils.translation import gettext as _

from clusters.flavours import flavour_for
from clusters.models import Cluster, ClusterState, NodePool
from portal.core.marks import Kept
from scheduling.headroom import Headroom
from scheduling.resources import Limit, Resources
from tenants.headroom_words import Place, sentence_of
from tenants.headrooms import headrooms_of
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota, Quota
from tenants.usage import Usage, usage_by_queue

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
class PoolQuota:
    """A project in one node pool: what it was promised and what it uses.

    headroom: what it could start now, of `startable_rows_of`; None while no node of the pool was seen.
    """

    project: Project
    pool: NodePool
    quota: ProjectQuota
    usage: Usage
    headroom: Headroom | None = None

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
    def observed_at(self) -> datetime | None:
        return self.pool.cluster.observed_at

    @property
    def simulated(self) -> bool:
        return self.pool.cluster.is_simulated

    @property
    def sentence(self) -> str:
        """The text twin of the quota bar: what one could start now, and what binds it."""
        by_pool = flavour_for(self.pool.cluster.flavour).traits.queues_by_pool
        place = Place(self.pool.name, self.project.department.name, not by_pool, _stopped(self.pool.cluster))
        return sentence_of(self.headroom, place)


def _stopped(cluster: Cluster) -> str:
    """Why the cluster is handed no work now."""
    if cluster.state == ClusterState.PAUSED:
        return _("%(cluster)s is paused.") % {"cluster": cluster.name}
    return _("%(cluster)s takes no work now.") % {"cluster": cluster.name} if cluster.breaker_reason else ""


def _by_owner_and_pool(quotas: Iterable[ProjectQuota | DepartmentQuota]) -> Mapping[tuple[int, int], Quota]:
    """Index rows by (owner id, pool id)."""
    return {(_owner_id(quota), quota.node_pool_id): quota for quota in quotas}


def _owner_id(quota: ProjectQuota | DepartmentQuota) -> int:
    return quota.project_id if isinstance(quota, ProjectQuota) else quota.department_id


def startable_rows(project: Project) -> list[PoolQuota]:
    """One row per node pool of the project's cluster, the default pool first."""
    return startable_rows_of([project])[project.pk]


def startable_rows_of(projects: Iterable[Project]) -> Mapping[int, list[PoolQuota]]:
    """`quota_rows_of` with what each could start now."""
    chosen = list(projects)
    found = quota_rows_of(chosen)
    headrooms = headrooms_of(chosen, list({row.pool.pk: row.pool for rows in found.values() for row in rows}.values()))
    return {
        project: [replace(row, headroom=headrooms.get((project, row.pool.pk))) for row in rows]
        for project, rows in found.items()
    }


def quota_rows_of(projects: Iterable[Project]) -> Mapping[int, list[PoolQuota]]:
    """Rows per project id. The number of queries does not grow with the projects."""
    chosen = list(projects)
    pools = list(NodePool.objects.filter(cluster__in={row.cluster_id for row in chosen}).select_related("cluster"))
    quotas = _by_owner_and_pool(ProjectQuota.objects.filter(project__in=chosen))
    used = usage_by_queue([row.pk for row in chosen])
    return {
        project.pk: [
            PoolQuota(
                project=project,
                pool=pool,
                quota=_project_quota(quotas.get((project.pk, pool.pk)), project, pool),
                usage=used.get((project.pk, pool.name), Usage()),
            )
            for pool in pools
            if pool.cluster_id == project.cluster_id
        ]
        for project in chosen
    }


def _project_quota(row: object, project: Project, pool: NodePool) -> ProjectQuota:
    return row if isinstance(row, ProjectQuota) else ProjectQuota(project=project, node_pool=pool)


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
