"""Two people change quotas of one department at once. On a real PostgreSQL, since only there they truly race."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from clusters.inventory.models import NodePool
from portal.audit.models import AuditRecord
from portal.kit.errors import RungError
from portal.kit.pages.formatting import gpus_text
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Limit
from tenants.access.models import Membership, Role
from tenants.access.services.access_rules import grant
from tenants.organisation.models import Project
from tenants.organisation.services import create_project
from tenants.quotas.models import ProjectQuota
from tenants.quotas.rules import QuotaValues
from tenants.quotas.services.quotas import set_project_quota
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import GPU, DepartmentQuotaFactory, ProjectFactory, UserFactory

pytestmark = pytest.mark.postgres
WRITERS = 8


def at_once(*calls: object) -> list[str]:
    """Run the calls at the same moment; "" for each that passed, else the code of its refusal."""
    start = Barrier(len(calls))

    def run(call: object) -> str:
        try:
            start.wait()
            call()
        except RungError as error:
            return error.code
        finally:
            connection.close()
        return ""

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.fixture
def pool(postgres_db: str) -> NodePool:
    """A node pool."""
    return NodePoolFactory()


@pytest.fixture
def siblings(pool: NodePool) -> list[Project]:
    """Projects of one department that enforces its 8 GPUs."""
    quota = DepartmentQuotaFactory(
        department__cluster=pool.cluster, department__enforce_deserved=True, node_pool=pool, gpu_deserved=8 * GPU
    )
    return ProjectFactory.create_batch(WRITERS, department=quota.department)


def setting(project: Project, pool: NodePool, gpus: int) -> object:
    """A call that sets a quota."""
    values = QuotaValues(Limit(gpu=gpus * GPU))
    return lambda: set_project_quota(project=project, node_pool=pool, values=values, actor=SYSTEM)


def test_an_enforced_sum_holds_whoever_writes_at_once(siblings: list[Project], pool: NodePool) -> None:
    answers = at_once(*(setting(project, pool, 3) for project in siblings))
    assert sorted(answers) == ["", "", *["sum_over_department"] * (WRITERS - 2)]
    assert sum(ProjectQuota.objects.values_list("gpu_deserved", flat=True)) == 6 * GPU


def test_first_quotas_of_one_project_become_one_row(siblings: list[Project], pool: NodePool) -> None:
    project = siblings[0]
    assert at_once(*(setting(project, pool, gpus) for gpus in range(1, WRITERS + 1))) == [""] * WRITERS
    quota = ProjectQuota.objects.get(project=project)
    last = AuditRecord.objects.filter(action="quota.set").order_by("-id").first()
    assert last is not None
    assert last.detail["after"]["gpu_deserved"] == gpus_text(quota.gpu_deserved)
    assert quota.history.count() == WRITERS
    project.refresh_from_db()
    assert project.generation == 1 + WRITERS


def test_one_of_many_gets_a_name(siblings: list[Project]) -> None:
    department = siblings[0].department
    calls = [lambda: create_project(department=department, name="wanted", actor=SYSTEM)] * WRITERS
    assert sorted(at_once(*calls)) == ["", *["taken"] * (WRITERS - 1)]


def test_one_of_many_roles_in_a_scope_is_given(siblings: list[Project]) -> None:
    user = UserFactory()
    calls = [lambda: grant(subject=user, role=Role.MEMBER, project=siblings[0], actor=SYSTEM)] * WRITERS
    assert sorted(at_once(*calls)) == ["", *["taken"] * (WRITERS - 1)]
    assert Membership.objects.filter(user=user).count() == 1
