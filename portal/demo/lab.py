"""The demo's real cluster: reconnected at every start, with its own organisation."""

from typing import Final

from django.db import transaction

from clusters.connection.models import ClusterCredential
from clusters.connection.services.registration import change_connection, register_cluster
from clusters.inventory.models import Cluster
from clusters.inventory.services.inventory import create_node_pool, pause, unpause
from portal.demo.organisation import ACTOR
from scheduling.model.resources import Limit
from tenants.access.models import Role, User
from tenants.access.services import access_rules
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Project
from tenants.quotas.services import quotas
from tenants.quotas.services.quota_values import QuotaValues

CLUSTER: Final = "lab"
DEPARTMENT: Final = "lab"
PROJECT: Final = "lab-team"
POOLS: Final = {"h100": 16, "a100": 8}
"""GPUs that the project may hold in each pool."""
PEOPLE: Final = {"alice": Role.OWNER, "bob": Role.MEMBER}


def connect(kubeconfig: bytes) -> Cluster:
    """Take the lab's cluster in, or adopt a new one under the name of the last. Raises Refused or Conflict.

    Every start of the lab brings an empty cluster with another identity.
    """
    known = Cluster.objects.filter(name=CLUSTER).first()
    if known is None:
        cluster, _report = register_cluster(name=CLUSTER, flavour="kube", source=kubeconfig, actor=ACTOR)
        found(cluster)
        return cluster
    pause(cluster=known, reason="The lab is reset.", actor=ACTOR)
    unpause(cluster=known, actor=ACTOR, adopt=True)
    change_connection(cluster=known, source=kubeconfig, actor=ACTOR)
    return known


def leave() -> None:
    """Without a lab its cluster is let alone."""
    for cluster in Cluster.objects.filter(name=CLUSTER, pk__in=ClusterCredential.objects.values("cluster")):
        pause(cluster=cluster, reason="The lab is not running. Start it with RUNG_LAB=1.", actor=ACTOR)


@transaction.atomic
def found(cluster: Cluster) -> Project:
    """Two pools, a department and a project whose people are those of the demo."""
    pools = {name: create_node_pool(cluster=cluster, name=name, actor=ACTOR) for name in POOLS}
    department = organisation_services.create_department(cluster=cluster, name=DEPARTMENT, actor=ACTOR)
    project = organisation_services.create_project(department=department, name=PROJECT, actor=ACTOR)
    for name, pool in pools.items():
        given = Limit(gpu=POOLS[name] * 1000, cpu=None, memory=None)
        values = QuotaValues(deserved=given, limit=given, over_quota_weight=1)
        quotas.set_department_quota(
            department=department, node_pool=pool, values=values, actor=ACTOR, reason="Initial quota"
        )
        quotas.set_project_quota(project=project, node_pool=pool, values=values, actor=ACTOR, reason="Initial quota")
    for name, role in PEOPLE.items():
        user = User.objects.filter(username=name).first()
        if user is not None:
            access_rules.grant(subject=user, role=role, project=project, actor=ACTOR)
    return project
