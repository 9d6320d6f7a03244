"""The cast that tests share.

admin sees everything; alice owns the project llm-team; bob is a member of it; charlie is a member of vision-team in
another department. Both projects are on one cluster with the node pools h100 (default, 16 GPUs) and a100 (8 GPUs).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from clusters.inventory.models import Cluster, NodePool
from portal.kit.security.actors import Actor, ActorKind, Channel
from scheduling.model.resources import ZERO
from tenants.access.models import Role, User
from tenants.organisation.models import Department, Project
from tenants.usage import selectors as usage_selectors
from tenants.usage.rules import EvictableWork
from tenants.usage.selectors import Usage, UsageProvider
from tests.factories.clusters import ClusterFactory, NodeFactory, NodePoolFactory
from tests.factories.tenants import (
    GPU,
    DepartmentFactory,
    DepartmentQuotaFactory,
    MembershipFactory,
    ProjectFactory,
    ProjectQuotaFactory,
    UserFactory,
)


def acting(user: User, channel: Channel = Channel.UI) -> Actor:
    """The user as an actor."""
    return Actor(ActorKind.USER, str(user.pk), user.username, channel)


def applied(client: Client, answer: Any) -> None:
    """Apply the plan that a page opened."""
    assert answer.status_code == 302
    assert answer["Location"].startswith("/plans/")
    assert client.post(f"{answer['Location']}apply/").status_code == 302


def lab_cluster() -> Cluster:
    """A cluster with the pools h100 (two nodes of 8 GPUs) and a100 (one)."""
    cluster: Cluster = ClusterFactory(name="lab")
    h100 = NodePoolFactory(cluster=cluster, name="h100", is_default=True)
    a100 = NodePoolFactory(cluster=cluster, name="a100")
    NodeFactory.create_batch(2, cluster=cluster, pool=h100)
    NodeFactory(cluster=cluster, pool=a100)
    return cluster


def project_with_quota(department: Department, name: str, *, gpu_limit: int | None = None) -> Project:
    """A project with 4 GPUs of its cluster's default pool deserved."""
    project: Project = ProjectFactory(department=department, name=name)
    pool = NodePool.objects.get(cluster=department.cluster_id, is_default=True)
    ProjectQuotaFactory(project=project, node_pool=pool, gpu_deserved=4 * GPU, gpu_limit=gpu_limit)
    return project


def department_with_quota(cluster: Cluster, name: str) -> Department:
    """A department with 8 GPUs of its cluster's default pool deserved."""
    department: Department = DepartmentFactory(cluster=cluster, name=name)
    pool = NodePool.objects.get(cluster=cluster, is_default=True)
    DepartmentQuotaFactory(department=department, node_pool=pool, gpu_deserved=8 * GPU)
    return department


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A cluster with the pools h100 (two nodes of 8 GPUs) and a100 (one)."""
    return lab_cluster()


@pytest.fixture
def h100(cluster: Cluster) -> NodePool:
    """The default pool: 16 GPUs."""
    return cluster.node_pools.get(name="h100")


@pytest.fixture
def a100(cluster: Cluster) -> NodePool:
    """The other pool: 8 GPUs."""
    return cluster.node_pools.get(name="a100")


@pytest.fixture
def research(cluster: Cluster) -> Department:
    """8 GPUs of h100 deserved."""
    return department_with_quota(cluster, "research")


@pytest.fixture
def perception(cluster: Cluster) -> Department:
    """8 GPUs of h100 deserved."""
    return department_with_quota(cluster, "perception")


@pytest.fixture
def llm_team(research: Department) -> Project:
    """A project of research: 4 GPUs of h100 deserved, at most 12."""
    return project_with_quota(research, "llm-team", gpu_limit=12 * GPU)


@pytest.fixture
def vision_team(perception: Department) -> Project:
    """A project of perception: 4 GPUs of h100 deserved, no limit."""
    return project_with_quota(perception, "vision-team")


@pytest.fixture
def admin(db: None) -> User:
    """A platform admin."""
    return UserFactory(username="admin", is_superuser=True, is_staff=True)


@pytest.fixture
def alice(llm_team: Project) -> User:
    """Owner of llm-team."""
    return MembershipFactory(user__username="alice", project=llm_team, role=Role.OWNER).user


@pytest.fixture
def bob(llm_team: Project) -> User:
    """Member of llm-team."""
    return MembershipFactory(user__username="bob", project=llm_team).user


@pytest.fixture
def charlie(vision_team: Project) -> User:
    """Member of vision-team, in another department."""
    return MembershipFactory(user__username="charlie", project=vision_team).user


@pytest.fixture
def client_of() -> Callable[[User], Client]:
    """A browser session of somebody."""

    def signed_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return signed_in


class Ledger:
    """What projects use, as a test says it."""

    def __init__(self) -> None:
        self.queues: dict[tuple[int, str], Usage] = {}
        self.live: dict[int, int] = {}
        self.work: dict[tuple[int, str], list[EvictableWork]] = {}

    def holds(self, project: Project, pool: NodePool, use: Usage) -> None:
        """Say what a project uses in a pool, by one workload."""
        self.queues[project.pk, pool.name] = use
        self.live[project.pk] = 1

    def of_pools(self, clusters: Collection[UUID]) -> Mapping[tuple[UUID, str], Usage]:
        """What all projects of these clusters use together, by cluster and pool."""
        found: defaultdict[tuple[UUID, str], Usage] = defaultdict(Usage)
        for (pk, pool), use in self.queues.items():
            cluster = Project.objects.get(pk=pk).cluster_id
            if cluster in clusters:
                found[cluster, pool] += use
        return found


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Answers for the app above, which knows what is in use."""
    ledger = Ledger()
    previous = usage_selectors.register_provider(
        UsageProvider(
            usage=lambda ids: {key: use for key, use in ledger.queues.items() if key[0] in ids},
            live_workloads=lambda ids: {pk: count for pk, count in ledger.live.items() if pk in ids},
            allocated=lambda projects: {
                key: replace(use, requested=ZERO)
                for key, use in ledger.queues.items()
                if projects.filter(pk=key[0]).exists()
            },
            pool_usage=ledger.of_pools,
            priority_names=lambda: ("low", "high", "very-high"),
            evictable_work=lambda ids, pool: [row for pk in ids for row in ledger.work.get((pk, pool), [])],
        )
    )
    yield ledger
    usage_selectors.register_provider(previous)
