"""Projects by id, with their department and cluster."""

from copy import copy

from clusters.inventory.models import Cluster
from portal.kit.db.read_cache import cached_read
from tenants.organisation.models import Project


@cached_read
def project_by_id(project_id: int) -> Project | None:
    """The project with its department and cluster; access is not checked."""
    return Project.objects.select_related("cluster", "department").filter(pk=project_id).first()


def with_current_cluster(project: Project) -> Project:
    """The project with its cluster's row read now: a cached one is as old as the version of the settings."""
    current = copy(project)
    current.cluster = Cluster.objects.get(pk=project.cluster_id)
    return current
