"""Which names and ids a filter may compare with: of what is there and the caller may know of."""

from typing import Final

from django.db.models import Q, QuerySet

from clusters.inventory.models import Cluster, NodePool
from portal.kit.api.lists import KnownRows
from portal.kit.security.actors import Actor
from tenants.access.selectors import visible_departments, visible_projects
from tenants.organisation.models import Department


def _clusters(_actor: Actor) -> QuerySet[Cluster]:
    return Cluster.objects.all()


def _pools(_actor: Actor) -> QuerySet[NodePool]:
    return NodePool.objects.all()


def _departments(actor: Actor) -> QuerySet[Department]:
    """A member of a project knows the name of its department."""
    own = visible_projects(actor).values("department")
    return Department.objects.filter(Q(pk__in=visible_departments(actor).values("pk")) | Q(pk__in=own))


CLUSTER_ID: Final = KnownRows(_clusters, "pk")
POOL_ID: Final = KnownRows(_pools, "pk")
POOL_NAME: Final = KnownRows(_pools)
DEPARTMENT_ID: Final = KnownRows(_departments, "pk")
DEPARTMENT_NAME: Final = KnownRows(_departments)
PROJECT_ID: Final = KnownRows(visible_projects, "pk")
PROJECT_NAME: Final = KnownRows(visible_projects)
