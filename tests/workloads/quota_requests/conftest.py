"""Someone who may decide, and requests of bob, a member of llm-team."""

from collections.abc import Callable
from datetime import date

import pytest

from clusters.inventory.models import NodePool
from portal.kit.security.actors import Actor
from tenants.access.models import Role, User
from tenants.organisation.models import Department, Project
from tests.factories.cast import acting
from tests.factories.tenants import MembershipFactory
from workloads.quota_requests.models import QuotaRequest
from workloads.quota_requests.services import create_request

Asks = Callable[..., QuotaRequest]


@pytest.fixture
def dora(research: Department) -> User:
    """Department admin of research."""
    return MembershipFactory(user__username="dora", project=None, department=research, role=Role.DEPARTMENT_ADMIN).user


@pytest.fixture
def as_dora(dora: User) -> Actor:
    """She may set the quota of llm-team."""
    return acting(dora)


@pytest.fixture
def asks(llm_team: Project, h100: NodePool, bob: User) -> Asks:
    """bob asks for GPUs of h100 for llm-team."""

    def ask(gpus: float = 2, until: date | None = None, actor: Actor | None = None) -> QuotaRequest:
        return create_request(
            project=llm_team,
            node_pool=h100,
            gpus=gpus,
            until=until,
            reason="Paper deadline",
            actor=actor or acting(bob),
        )

    return ask
