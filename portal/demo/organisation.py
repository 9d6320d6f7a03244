"""Departments, projects, people and quotas of the demo, as data and the services that write them."""

from dataclasses import dataclass
from typing import Final

from django.db import transaction

from clusters.connection.services.registration import create_cluster
from clusters.inventory.models import Cluster, NodePool
from clusters.inventory.services.inventory import create_node_pool
from clusters.sandbox.services.simulation import create_sandbox_nodes
from portal.kit.security.actors import SYSTEM, Actor, ActorKind, Channel
from scheduling.model.resources import Limit
from tenants.access.models import Role, ServiceAccount, User
from tenants.access.services import access_rules, subjects
from tenants.organisation import services as organisation_services
from tenants.organisation.models import Department, Project
from tenants.quotas.services import quotas
from tenants.quotas.services.quota_values import QuotaValues

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
