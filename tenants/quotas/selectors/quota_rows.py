"""Quota and use per project or department and node pool, and the history of quota changes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from django.utils.translation import gettext as _

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, ClusterState, NodePool
from portal.kit.pages.formatting import gpu_text, gpus_text
from scheduling.forecast.headroom import Bound, Headroom
from scheduling.model.resources import Limit, Resources
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, PriorityCap, ProjectQuota, Quota
from tenants.quotas.selectors.headroom import HeadroomContext, headroom_sentence, headrooms_of
from tenants.usage.selectors import Usage, usage_by_queue


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
    def observed_at(self) -> datetime | None:
        return self.pool.cluster.observed_at

    @property
    def simulated(self) -> bool:
        return self.pool.cluster.is_simulated

    @property
    def weights_text(self) -> str:
        """The over-quota weights that count on this cluster; empty where its scheduler has none."""
        match flavour_for(self.pool.cluster.flavour).traits.weights:
            case "resources":
                return self.quota.weights_text
            case "queue":
                return f"{self.quota.over_quota_weight:.7g}"
            case "whole":
                return str(max(round(self.quota.over_quota_weight), 1))
            case _:
                return ""

    @property
    def short_of_quota(self) -> bool:
        """Is it quota that keeps more from starting, or from staying when others reclaim theirs?"""
        found = self.headroom
        return found is not None and (not found.inside or found.bound in {Bound.PROJECT_LIMIT, Bound.DEPARTMENT_LIMIT})

    @property
    def short_of_department_quota(self) -> bool:
        """Is it the department's limit?"""
        return self.headroom is not None and self.headroom.bound is Bound.DEPARTMENT_LIMIT

    @property
    def sentence(self) -> str:
        """The text twin of the quota bar: what one could start now, and what binds it."""
        by_pool = flavour_for(self.pool.cluster.flavour).traits.queues_by_pool
        place = HeadroomContext(self.pool.name, self.project.department.name, not by_pool, _stopped(self.pool.cluster))
        return headroom_sentence(self.headroom, place)


def _stopped(cluster: Cluster) -> str:
    """Why the cluster is handed no work now."""
    if cluster.state == ClusterState.PAUSED:
        return _("%(cluster)s is paused.") % {"cluster": cluster.name}
    return _("%(cluster)s does not accept work now.") % {"cluster": cluster.name} if cluster.breaker_reason else ""


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
    keys, pools = [row.pk for row in chosen], _pools_by_cluster({row.cluster_id for row in chosen})
    quotas = _by_owner_and_pool(ProjectQuota.objects.filter(project__in=keys).order_by())
    used = usage_by_queue(keys)
    return {
        project.pk: [
            PoolQuota(
                project=project,
                pool=pool,
                quota=_project_quota(quotas.get((project.pk, pool.pk)), project, pool),
                usage=used.get((project.pk, pool.name), Usage()),
            )
            for pool in pools[project.cluster_id]
        ]
        for project in chosen
    }


def _pools_by_cluster(clusters: Collection[UUID]) -> Mapping[UUID, list[NodePool]]:
    found: defaultdict[UUID, list[NodePool]] = defaultdict(list)
    for pool in NodePool.objects.filter(cluster__in=clusters).select_related("cluster"):
        found[pool.cluster_id].append(pool)
    return found


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


def department_rows_of(departments: Iterable[Department]) -> Mapping[int, list[DepartmentPool]]:
    """Rows per department id. The number of queries does not grow with the departments."""
    chosen = list(departments)
    parents = dict(Project.objects.filter(department__in=chosen).values_list("pk", "department_id"))
    own = _by_owner_and_pool(DepartmentQuota.objects.filter(department__in=chosen).order_by())
    sums: defaultdict[tuple[int, int], Resources] = defaultdict(Resources)
    for quota in ProjectQuota.objects.filter(project__in=list(parents)):
        amounts = Resources(quota.gpu_deserved, quota.cpu_deserved or 0, quota.memory_deserved or 0)
        sums[parents[quota.project_id], quota.node_pool_id] += amounts
    used: defaultdict[tuple[int, str], Usage] = defaultdict(Usage)
    for (project_id, pool_name), use in usage_by_queue(list(parents)).items():
        used[parents[project_id], pool_name] += use
    pools = _pools_by_cluster({row.cluster_id for row in chosen})
    return {
        department.pk: [
            DepartmentPool(
                department=department,
                pool=pool,
                quota=_department_quota(own.get((department.pk, pool.pk)), department, pool),
                projects_deserved=sums[department.pk, pool.pk],
                usage=used[department.pk, pool.name],
            )
            for pool in pools[department.cluster_id]
        ]
        for department in chosen
    }


def _department_quota(row: object, department: Department, pool: NodePool) -> DepartmentQuota:
    return row if isinstance(row, DepartmentQuota) else DepartmentQuota(department=department, node_pool=pool)


MOST: Final = 50
GIB: Final = 2**30
_WEIGHTS: Final = ("over_quota_weight", "cpu_weight", "memory_weight")


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """One saved version of a quota, with what it changed as (field, from, to)."""

    at: datetime
    what: str
    who: str
    why: str
    changes: tuple[tuple[str, str, str], ...]


def quota_changes(project: Project) -> list[QuotaEntry]:
    """Newest first, at most fifty, of quotas and caps, deleted ones too."""
    quotas = ProjectQuota.history.filter(project_id=project.pk).select_related("history_user", "node_pool")
    caps = PriorityCap.history.filter(project_id=project.pk).select_related("history_user")
    entries = [
        *_entries(list(quotas[: 4 * MOST]), _QUOTA, "node_pool_id"),
        *_entries(list(caps[: 4 * MOST]), _CAP, "priority"),
    ]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:MOST]


def _entries(versions: list[Any], fields: tuple[str, ...], key: str) -> Iterator[QuotaEntry]:
    """Versions come newest first; each is compared with the one before it of the same row."""
    by_row: dict[object, list[Any]] = {}
    for version in versions:
        by_row.setdefault(getattr(version, key), []).append(version)
    for row in by_row.values():
        for now, before in pairwise([*row, None]):
            yield _entry(now, before, fields)


def _entry(now: Any, before: Any | None, fields: tuple[str, ...]) -> QuotaEntry:
    changes = tuple(
        (_LABELS[field], _text(before, field), _text(now, field))
        for field in fields
        if (getattr(before, field) != getattr(now, field) if before else _worth_saying(now, field))
    )
    pool = getattr(now, "node_pool", None)
    what = f"{_('Quota in')} {pool}" if pool else f"{_('Cap of')} {now.priority}"
    who = now.history_user.get_username() if now.history_user else _("demo setup")
    gone = ((_("row"), _("present"), _("removed")),) if now.history_type == "-" else ()
    return QuotaEntry(now.history_date, what, who, now.history_change_reason or "", gone or changes)


def _worth_saying(version: Any, field: str) -> bool:
    """A first version is shown without its defaults."""
    return bool(getattr(version, field) != getattr(ProjectQuota(), field))


def _text(version: Any | None, field: str) -> str:
    if version is None:
        return "–"
    value = getattr(version, field)
    if field in _WEIGHTS:
        return _("as for GPUs") if value is None else f"{value:.7g}"
    if value is None:
        return _("unlimited") if field.endswith("limit") else _("not counted")
    return str(value) if field == "rank" else _amount(field, value)


def _amount(field: str, value: int) -> str:
    if field.startswith("gpu"):
        return gpus_text(value)
    return f"{gpu_text(value)} CPU" if field.startswith("cpu") else f"{value / GIB:.4g} GiB"


_QUOTA: Final = (
    "gpu_deserved",
    "gpu_limit",
    "cpu_deserved",
    "cpu_limit",
    "memory_deserved",
    "memory_limit",
    *_WEIGHTS,
    "rank",
)
_CAP: Final = ("gpu_limit",)
_LABELS: Final = {
    "gpu_deserved": "GPU deserved",
    "gpu_limit": "GPU limit",
    "cpu_deserved": "CPU deserved",
    "cpu_limit": "CPU limit",
    "memory_deserved": "memory deserved",
    "memory_limit": "memory limit",
    "over_quota_weight": "over-quota weight",
    "cpu_weight": "over-quota weight of CPU",
    "memory_weight": "over-quota weight of memory",
    "rank": "rank",
}
