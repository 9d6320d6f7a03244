"""What departments and projects deserve and hold, as it is sampled; and what the cluster has promised in all."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from clusters.models import Cluster
from clusters.samples import ALL, CLUSTER, NODE_POOL, Figures, Name, Owner
from scheduling.resources import Resources
from tenants.models import DepartmentQuota, Project, ProjectQuota, Quota
from tenants.usage import usage_by_queue

DEPARTMENT: Final = "department"
PROJECT: Final = "project"
DESERVED: Final = (Name.GPU_DESERVED, Name.CPU_DESERVED, Name.MEMORY_DESERVED)
HELD: Final = (Name.GPU_HELD, Name.CPU_HELD, Name.MEMORY_HELD)

Sums = defaultdict[Owner, defaultdict[str, dict[str, float]]]


def sample(cluster: Cluster, /, *, at: datetime) -> Mapping[Owner, Figures]:
    """Per department and project, split by node pool. Of the cluster and its pools: what their projects deserve."""
    parents = dict(Project.objects.filter(cluster=cluster).values_list("pk", "department"))
    pools = dict(cluster.node_pools.values_list("name", "pk"))
    found: Sums = defaultdict(lambda: defaultdict(dict))
    for owner in _owners(cluster, parents):
        found[owner][ALL] = dict.fromkeys((*DESERVED, *HELD), 0)
    for each in (Owner(CLUSTER, str(cluster.pk)), *(Owner(NODE_POOL, str(pk)) for pk in pools.values())):
        found[each][ALL] = dict.fromkeys(DESERVED, 0)
    for quota in ProjectQuota.objects.filter(project__cluster=cluster).select_related("node_pool"):
        _add(found[Owner(PROJECT, str(quota.project_id))], quota.node_pool.name, DESERVED, _deserved(quota))
        _add(found[Owner(CLUSTER, str(cluster.pk))], ALL, DESERVED, _deserved(quota))
        _add(found[Owner(NODE_POOL, str(quota.node_pool_id))], ALL, DESERVED, _deserved(quota))
    for parent in DepartmentQuota.objects.filter(department__cluster=cluster).select_related("node_pool"):
        _add(found[Owner(DEPARTMENT, str(parent.department_id))], parent.node_pool.name, DESERVED, _deserved(parent))
    for (project, pool), use in usage_by_queue(list(parents)).items():
        for owner in (Owner(PROJECT, str(project)), Owner(DEPARTMENT, str(parents[project]))):
            _add(found[owner], pool, HELD, use.allocated)
    return found


def _owners(cluster: Cluster, parents: Mapping[int, int]) -> Iterable[Owner]:
    yield from (Owner(PROJECT, str(pk)) for pk in parents)
    yield from (Owner(DEPARTMENT, str(pk)) for pk in cluster.departments.values_list("pk", flat=True))


def _deserved(quota: Quota) -> Resources:
    return Resources(quota.gpu_deserved, quota.cpu_deserved or 0, quota.memory_deserved or 0)


def _add(figures: Mapping[str, dict[str, float]], pool: str, names: Iterable[Name], amounts: Resources) -> None:
    """To the pool and to all of them."""
    for name, number in zip(names, (amounts.gpu, amounts.cpu, amounts.memory), strict=True):
        for part in {pool, ALL}:
            figures[part][name] = figures[part].get(name, 0) + number
