"""Organisations of the demo, as data and the services that write them: the example, and that of the lab's real
cluster.
"""

from dataclasses import dataclass
from typing import Final

from django.db import transaction

from clusters.connection.models import ClusterCredential
from clusters.connection.services.registration import change_connection, create_cluster, register_cluster
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import create_node_pool, pause, unpause
from clusters.sandbox.services.simulation import create_sandbox_nodes
from portal.kit.security.actors import SYSTEM, Actor, ActorKind, Channel
from scheduling.model.resources import Limit
from tenants.access.models import Role, ServiceAccount, User
from tenants.access.services import access_rules, subjects
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Department, Project
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services import quotas

CLUSTER: Final = "atlas"
AUTOMATION: Final = "demo-automation"
ACTOR: Final = Actor(SYSTEM.kind, SYSTEM.id, SYSTEM.name, Channel.COMMAND)


@dataclass(frozen=True, slots=True)
class DemoPool:
    """Nodes of one kind: count x 8 GPUs."""

    name: str
    nodes: int
    gpu_type: str
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class DemoQuota:
    """A quota in whole GPUs; no limit: None."""

    deserved: int
    limit: int | None = None
    weight: int = 2


POOLS: Final = (
    DemoPool("h100", 10, "NVIDIA-H100-80GB-HBM3", is_default=True),
    DemoPool("a100", 6, "NVIDIA-A100-SXM4-80GB"),
)
DEPARTMENTS: Final = {
    "research": {"h100": DemoQuota(56), "a100": DemoQuota(24)},
    "perception": {"h100": DemoQuota(24, 40), "a100": DemoQuota(24)},
}
PROJECTS: Final = {
    "llm-team": ("research", {"h100": DemoQuota(32, 40), "a100": DemoQuota(8, 16)}),
    "nlp-lab": ("research", {"h100": DemoQuota(16), "a100": DemoQuota(8)}),
    "speech": ("research", {"h100": DemoQuota(8, 32), "a100": DemoQuota(8)}),
    "vision-team": ("perception", {"h100": DemoQuota(16), "a100": DemoQuota(16)}),
    "robotics": ("perception", {"h100": DemoQuota(8, 16), "a100": DemoQuota(8)}),
}
PEOPLE: Final = {
    "alice": [(Role.OWNER, "llm-team")],
    "bob": [(Role.MEMBER, "llm-team")],
    "charlie": [(Role.OWNER, "vision-team"), (Role.MEMBER, "robotics")],
}


@transaction.atomic
def found_organisation(password: str) -> Cluster:
    """The cluster with its nodes, the organisation with its quotas, and the people who may sign in."""
    cluster = create_cluster(name=CLUSTER, flavour="kai", backend="sandbox", actor=ACTOR)
    pools = {pool.name: _pool(cluster, pool) for pool in POOLS}
    departments = {name: _department(cluster, name, pools) for name in DEPARTMENTS}
    projects = {name: _project(departments, name, pools) for name in PROJECTS}
    _people(projects, password)
    return cluster


def actor_named(name: str) -> Actor:
    """A person of the demo, acting in the browser, or its service account."""
    if name == AUTOMATION:
        account = ServiceAccount.objects.get(name=name)
        return Actor(ActorKind.SERVICE_ACCOUNT, str(account.pk), name, Channel.API)
    return Actor(ActorKind.USER, str(User.objects.get(username=name).pk), name, Channel.UI)


def _pool(cluster: Cluster, pool: DemoPool) -> NodePool:
    row = create_node_pool(
        cluster=cluster, name=pool.name, label_value=pool.name, is_default=pool.is_default, actor=ACTOR
    )
    create_sandbox_nodes(
        cluster=cluster, pool=row, count=pool.nodes, gpus=8, gpu_type=pool.gpu_type, cpu=128, memory="2Ti", actor=ACTOR
    )
    return row


def _department(cluster: Cluster, name: str, pools: dict[str, NodePool]) -> Department:
    department = organisation_services.create_department(cluster=cluster, name=name, actor=ACTOR)
    for pool, share in DEPARTMENTS[name].items():
        quotas.set_department_quota(
            department=department, node_pool=pools[pool], values=_values(share), actor=ACTOR, reason="Initial quota"
        )
    return department


def _project(departments: dict[str, Department], name: str, pools: dict[str, NodePool]) -> Project:
    department, shares = PROJECTS[name]
    project = organisation_services.create_project(department=departments[department], name=name, actor=ACTOR)
    for pool, share in shares.items():
        quotas.set_project_quota(
            project=project, node_pool=pools[pool], values=_values(share), actor=ACTOR, reason="Initial quota"
        )
    return project


def _people(projects: dict[str, Project], password: str) -> None:
    admin = User(username="admin", is_staff=True, is_superuser=True, email="admin@rung.example")
    for user in (admin, *(User(username=name, email=f"{name}@rung.example") for name in PEOPLE)):
        user.set_password(password)
        subjects.save_user(user=user, actor=ACTOR)
        for role, project in PEOPLE.get(user.username, []):
            access_rules.grant(subject=user, role=role, project=projects[project], actor=ACTOR)
    subjects.create_service_account(name=AUTOMATION, role=Role.PLATFORM_ADMIN, secret=password, actor=ACTOR)


def _values(share: DemoQuota) -> QuotaValues:
    limit = None if share.limit is None else share.limit * 1000
    return QuotaValues(
        deserved=Limit(gpu=share.deserved * 1000, cpu=None, memory=None),
        limit=Limit(gpu=limit, cpu=None, memory=None),
        over_quota_weight=share.weight,
    )


LAB_CLUSTER: Final = "lab"
LAB_DEPARTMENT: Final = "lab"
LAB_PROJECT: Final = "lab-team"
LAB_POOLS: Final = {"h100": 16, "a100": 8}
"""GPUs that the project may hold in each pool."""
LAB_PEOPLE: Final = {"alice": Role.OWNER, "bob": Role.MEMBER}


def connect_lab(kubeconfig: bytes) -> Cluster:
    """Take the lab's cluster in, or adopt a new one under the name of the last. Raises Refused or Conflict.

    Every start of the lab brings an empty cluster with another identity.
    """
    known = Cluster.objects.filter(name=LAB_CLUSTER).first()
    if known is None:
        cluster, _report = register_cluster(name=LAB_CLUSTER, flavour="kube", source=kubeconfig, actor=ACTOR)
        found_lab(cluster)
        return cluster
    pause(cluster=known, reason="The lab is reset.", actor=ACTOR)
    unpause(cluster=known, actor=ACTOR, adopt=True)
    change_connection(cluster=known, source=kubeconfig, actor=ACTOR)
    return known


def pause_lab() -> None:
    """Without a lab its cluster is let alone."""
    for cluster in Cluster.objects.filter(name=LAB_CLUSTER, pk__in=ClusterCredential.objects.values("cluster")):
        pause(cluster=cluster, reason="The lab is not running. Start it with RUNG_LAB=1.", actor=ACTOR)


@transaction.atomic
def found_lab(cluster: Cluster) -> Project:
    """Two pools, a department and a project whose people are those of the demo."""
    pools = {name: create_node_pool(cluster=cluster, name=name, actor=ACTOR) for name in LAB_POOLS}
    department = organisation_services.create_department(cluster=cluster, name=LAB_DEPARTMENT, actor=ACTOR)
    project = organisation_services.create_project(department=department, name=LAB_PROJECT, actor=ACTOR)
    for name, pool in pools.items():
        given = Limit(gpu=LAB_POOLS[name] * 1000, cpu=None, memory=None)
        values = QuotaValues(deserved=given, limit=given, over_quota_weight=1)
        quotas.set_department_quota(
            department=department, node_pool=pool, values=values, actor=ACTOR, reason="Initial quota"
        )
        quotas.set_project_quota(project=project, node_pool=pool, values=values, actor=ACTOR, reason="Initial quota")
    for name, role in LAB_PEOPLE.items():
        user = User.objects.filter(username=name).first()
        if user is not None:
            access_rules.grant(subject=user, role=role, project=project, actor=ACTOR)
    return project
