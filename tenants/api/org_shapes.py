"""Departments and projects to Run:ai's JSON. What Rung does not know is null or left out, never made up."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clusters.models import Average, Cluster, NodePool
from clusters.series import averages_of
from portal.core.wire import stamp
from scheduling.resources import Resources
from tenants.limits import allowances
from tenants.models import Department, IdleLimit, Limit, Project, Quota, TimeLimit
from tenants.resources import entry_of
from tenants.sampling import DEPARTMENT, PROJECT
from tenants.selectors import DepartmentPool, PoolQuota, department_rows_of, startable_rows_of
from tenants.services.scheduling_rules import Named, rules_json
from tenants.usage import Usage

MEGABYTE: Final = 10**6
KINDS: Final[tuple[type[Limit], ...]] = (TimeLimit, IdleLimit)


def projects_json(projects: Sequence[Project]) -> list[dict[str, Any]]:
    """Projects with their quotas, what holds after inheritance, and their use now, in a constant number of queries.

    Needs cluster and department selected.
    """
    rows, own = startable_rows_of(projects), _own_limits(project__in=projects)
    averages = averages_of(PROJECT, [each.pk for each in projects])
    minutes: defaultdict[int, dict[Named, int]] = defaultdict(dict)
    for kind in KINDS:
        for (project_id, category), found in allowances(projects, kind).items():
            minutes[project_id][kind, category] = int(found.lasts.total_seconds()) // 60
    return [
        _project(each, rows[each.pk], own[each.pk], minutes[each.pk]) | _overtime(averages.get(str(each.pk)))
        for each in projects
    ]


def _project(
    project: Project, pools: Sequence[PoolQuota], own: Mapping[Named, int], effective: Mapping[Named, int]
) -> dict[str, Any]:
    return {
        **_described(project),
        "parentId": str(project.department_id),
        "parent": {"id": str(project.department_id), "name": project.department.name, "parent": None},
        "requestedNamespace": project.namespace,
        "enforceRunaiScheduler": True,
        "defaultNodePools": project.default_node_pools or None,
        "schedulingRules": rules_json(own),
        "resources": [entry_of(row.quota, row.pool) for row in pools],
        "totalResources": _totals(row.quota for row in pools),
        "effective": {
            "schedulingRules": rules_json(effective),
            "defaultNodePools": project.default_node_pools or [row.pool.name for row in pools],
            "nodeTypes": None,
        },
        "status": {
            "namespace": project.namespace,
            "phase": _phase(project.cluster),
            "phaseMessage": "",
            "lastUpdatedTime": stamp(project.cluster.synced_at),
            "quotaStatus": use_json(sum((row.usage for row in pools), Usage())),
            "nodePoolQuotaStatuses": [_pool_use(row.pool, row.usage) | startable_json(row) for row in pools],
        },
    }


STARTABLE: Final = ("gpus", "withinQuota", "overQuota", "largestPod", "takeBack", "bound")


def startable_json(row: PoolQuota) -> dict[str, Any]:
    """What could start now, in GPUs; beyond Run:ai. The sentence says it all, the rest is null while it is unknown."""
    found = row.headroom
    numbers = found and {
        "gpus": found.now / 1000,
        "withinQuota": found.inside / 1000,
        "overQuota": found.over / 1000,
        "largestPod": found.largest / 1000,
        "takeBack": found.back / 1000,
        "bound": str(found.bound),
    }
    return {"startable": {"sentence": row.sentence, **(numbers or dict.fromkeys(STARTABLE))}}


def departments_json(departments: Sequence[Department]) -> list[dict[str, Any]]:
    """Departments with quotas, projects, and what these deserve and use, in a constant number of queries."""
    rows, own = department_rows_of(departments), _own_limits(department__in=departments)
    children: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for pk, name, parent in Project.objects.filter(department__in=departments).values_list(
        "pk", "name", "department_id"
    ):
        children[parent].append({"id": str(pk), "name": name, "children": []})
    averages = averages_of(DEPARTMENT, [each.pk for each in departments])
    return [
        _department(each, rows[each.pk], own[each.pk], children[each.pk]) | _overtime(averages.get(str(each.pk)))
        for each in departments
    ]


def _department(
    department: Department,
    pools: Sequence[DepartmentPool],
    own: Mapping[Named, int],
    children: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        **_described(department),
        "children": children,
        "defaultNodePools": None,
        "schedulingRules": rules_json(own),
        "resources": [entry_of(row.quota, row.pool) for row in pools],
        "totalResources": _totals(row.quota for row in pools),
        "projectsAggregatedResources": [_aggregated(row) for row in pools],
        "status": {"quotaStatus": use_json(sum((row.usage for row in pools), Usage()))},
    }


def _aggregated(row: DepartmentPool) -> dict[str, Any]:
    together = row.projects_deserved
    return {
        "nodePool": {"id": str(row.pool.pk), "name": row.pool.name},
        "gpu": {"deserved": together.gpu / 1000},
        "cpu": {"deserved": together.cpu},
        "memory": {"deserved": together.memory / MEGABYTE, "units": "MB"},
    }


def _overtime(average: Average | None) -> dict[str, Any]:
    """What was held on average, as far as it was sampled. Nothing measures utilization."""
    if average is None:
        return {"overtimeData": None}
    spans = {"range24hData": average.day, "range7dData": average.week, "range30dData": average.month}
    return {"overtimeData": {name: _range(held, average) for name, held in spans.items()}}


def _range(held: float | None, average: Average) -> dict[str, Any] | None:
    if held is None:
        return None
    return {
        "averageGpuAllocation": held / 1000,
        "averageGpuUtilization": None,
        "averageGpuMemoryUtilization": None,
        "updatedAt": stamp(average.at),
    }


def _own_limits(**owners: object) -> defaultdict[int, dict[Named, int]]:
    """Minutes of each limit by the owner's id."""
    found: defaultdict[int, dict[Named, int]] = defaultdict(dict)
    for kind in KINDS:
        for rule in kind._default_manager.filter(**owners):
            found[rule.project_id or rule.department_id or 0][kind, rule.category] = rule.minutes
    return found


def _described(owner: Department | Project) -> dict[str, Any]:
    return {
        "id": str(owner.pk),
        "name": owner.name,
        "clusterId": str(owner.cluster_id),
        "description": owner.description,
        "nodeTypes": None,
        "createdAt": stamp(owner.created_at),
        "createdBy": owner.created_by,
        "updatedAt": stamp(owner.updated_at),
    }


def _phase(cluster: Cluster) -> str:
    """Updating until the cluster holds what was decided last."""
    return "Ready" if cluster.synced_generation >= cluster.generation else "Updating"


def _totals(quotas: Iterable[Quota]) -> Mapping[str, float]:
    rows = list(quotas)
    return {
        "gpuQuota": sum(row.gpu_deserved for row in rows) / 1000,
        "cpuQuota": sum(row.cpu_deserved or 0 for row in rows),
        "memoryQuota": sum(row.memory_deserved or 0 for row in rows) / MEGABYTE,
    }


def use_json(usage: Usage) -> dict[str, Any]:
    """QuotaStatus."""
    return {
        "allocated": _amounts(usage.allocated),
        "allocatedNonPreemptible": _amounts(usage.non_preemptible),
        "requested": _amounts(usage.requested),
    }


def _pool_use(pool: NodePool, usage: Usage) -> dict[str, Any]:
    return {"nodePoolName": pool.name, "nodePoolId": str(pool.pk), **use_json(usage)}


def _amounts(amounts: Resources) -> dict[str, float]:
    """Devices, millicores and megabytes."""
    return {"gpu": amounts.gpu / 1000, "cpu": amounts.cpu, "memory": amounts.memory / MEGABYTE}
