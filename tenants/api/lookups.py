"""The cluster that an address names, and who may manage it."""

from typing import Final
from uuid import UUID

from rest_framework.request import Request

from clusters.models import Cluster
from portal.core.errors import Absent
from portal.core.http import actor_of
from portal.core.routes import Rule
from tenants.permissions import Verb, require

ADMIN: Final = Rule(Verb.MANAGE_CLUSTERS, "cluster")


def cluster_by_id(key: UUID) -> Cluster:
    """The cluster. Raises Absent."""
    found = Cluster.objects.filter(pk=key).first()
    if found is None:
        raise Absent
    return found


def managed_cluster(request: Request, key: UUID) -> Cluster:
    """The cluster, for who may manage it. Raises Absent or Denied."""
    cluster = cluster_by_id(key)
    require(actor_of(request), Verb.MANAGE_CLUSTERS, cluster=cluster)
    return cluster
