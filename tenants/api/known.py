"""Which names and ids a filter may compare with: of what is there and the caller may know of."""

from typing import Final

from django.db.models import Q, QuerySet

from clusters.models import Cluster, NodePool
from portal.core.actors import Actor
from portal.core.filtering import Known
from tenants.models import Department
from tenants.permissions import visible_departments, visible_projects


def _clusters(_actor: Actor) -> QuerySet[Cluster]:
    return Cluster.objects.all()


def _pools(_actor: Actor) -> QuerySet[NodePool]:
    return NodePool.objects.all()


def _departments(actor: Actor) -> QuerySet[Department]:
    """A member of a project knows the name of its department."""
    own = visible_projects(actor).values("department")
    return Department.objects.filter(Q(pk__in=visible_departments(actor).values("pk")) | Q(pk__in=own))


CLUSTER_ID: Final = Known(_clusters, "pk")
POOL_ID: Final = Known(_pools, "pk")
POOL_NAME: Final = Known(_pools)
DEPARTMENT_ID: Final = Known(_departments, "pk")
DEPARTMENT_NAME: Final = Known(_departments)
PROJECT_ID: Final = Known(visible_projects, "pk")
PROJECT_NAME: Final = Known(visible_projects)
