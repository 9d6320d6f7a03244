"""Two admins act on one plan at once. On a real PostgreSQL, since only there they truly race."""

import pytest

from clusters.inventory.models import NodePool
from portal.kit.security.actors import SYSTEM
from tenants.organisation.models import Project
from tenants.quotas.models import MinRuntime
from tests.factories.clusters import NodePoolFactory
from tests.factories.tenants import DepartmentFactory, ProjectFactory
from tests.tenants.quotas.test_quota_races import at_once
from workloads.plans.models import Plan
from workloads.plans.services.plans import apply_plan, approve_plan, plan_change, set_approval

pytestmark = pytest.mark.postgres


@pytest.fixture
def plan(postgres_db: str) -> Plan:
    """A minimum runtime of a project."""
    pool: NodePool = NodePoolFactory()
    project: Project = ProjectFactory(department=DepartmentFactory(cluster=pool.cluster))
    change = {"project": project.name, "minutes": 5, "reason": ""}
    return plan_change(kind="min_runtime", change=change, actor=SYSTEM)


def test_of_several_who_apply_a_plan_one_does(plan: Plan) -> None:
    answers = at_once(*[lambda: apply_plan(plan=plan, actor=SYSTEM)] * 4)
    assert sorted(answers) == ["", *["plan_closed"] * 3]
    assert MinRuntime.history.count() == 1


def test_of_several_who_approve_a_plan_one_does(plan: Plan) -> None:
    set_approval(department=None, required=True, actor=SYSTEM)
    Plan.objects.update(author="user:0")
    answers = at_once(*[lambda: approve_plan(plan=plan, actor=SYSTEM)] * 4)
    assert sorted(answers) == ["", *["plan_approved"] * 3]
