"""What the tenants' side wants of a cluster: namespaces, queues with their quotas, GPU caps."""

from clusters.flavours import flavour_for
from clusters.models import Cluster
from clusters.ports import DesiredState
from tenants.models import Department, DepartmentQuota, Project, ProjectQuota
from tenants.queues import by_owner_and_pool, department_queues, project_spec


def desired_state(cluster: Cluster) -> DesiredState:
    """Departments and projects of the cluster, with a queue in each of its node pools, in a fixed number of queries."""
    flavour = flavour_for(cluster.flavour)
    pools = list(cluster.node_pools.all())
    parents = by_owner_and_pool(DepartmentQuota.objects.filter(department__cluster=cluster))
    leaves = by_owner_and_pool(ProjectQuota.objects.filter(project__cluster=cluster))
    projects = Project.objects.filter(cluster=cluster).select_related("department")
    return DesiredState(
        departments=tuple(
            queue
            for department in Department.objects.filter(cluster=cluster)
            for queue in department_queues(department, pools, parents, flavour)
        ),
        projects=tuple(
            project_spec(project, pools, leaves, flavour) for project in projects.prefetch_related("priority_caps")
        ),
    )
