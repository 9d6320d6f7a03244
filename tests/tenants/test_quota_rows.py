"""Used, borrowed and left, in numbers and in a sentence."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.models import Node, NodePool, ObservedPod
from scheduling.resources import Resources
from tenants.models import Department, DepartmentQuota, Project
from tenants.selectors import PoolQuota, department_rows, quota_rows, quota_rows_of
from tenants.usage import Usage
from tests.factories.cast import Ledger
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory


def using(total: int, non_preemptible: int = 0) -> Usage:
    return Usage(Resources.of(gpu=total), Resources.of(gpu=non_preemptible), Resources.of(gpu=total))


def row(project: Project, pool: NodePool) -> PoolQuota:
    return next(row for row in quota_rows(project) if row.pool == pool)


def occupy(pool: NodePool, gpus: int) -> None:
    """A running pod of somebody holds GPUs of the pool."""
    now = timezone.now()
    ObservedPod.objects.create(
        cluster=pool.cluster,
        uid=f"pod-{ObservedPod.objects.count()}",
        namespace="x",
        name="x",
        node_name="node",
        pool_name=pool.name,
        phase="Running",
        gpu_milli=gpus * GPU,
        created_at=now,
        observed_at=now,
    )


def test_there_is_a_row_per_pool_even_without_a_quota(llm_team: Project) -> None:
    assert [(row.pool.name, row.quota.gpu_deserved) for row in quota_rows(llm_team)] == [("h100", 4000), ("a100", 0)]


def test_use_is_split_by_what_may_be_evicted(llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
    ledger.holds(llm_team, h100, using(6, non_preemptible=3))
    answer = row(llm_team, h100)
    assert (answer.used.gpu, answer.non_preemptible.gpu, answer.preemptible.gpu) == (6 * GPU, 3 * GPU, 3 * GPU)
    assert answer.over_quota_gpu == 2 * GPU
    assert answer.in_quota_left_gpu == 0


class TestWhatIsLeft:
    """Within quota it is guaranteed; beyond it there must be room, below every limit."""

    def test_nothing_used_yet(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        answer = row(llm_team, h100)
        assert (answer.in_quota_left_gpu, answer.over_quota_left_gpu) == (4 * GPU, 8 * GPU)
        assert answer.sentence == "You can start 4 GPUs now in h100 within quota; 8 more over quota, preemptible only."

    def test_free_gpus_bound_what_is_over_quota(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        occupy(h100, 10)
        assert row(llm_team, h100).over_quota_left_gpu == 2 * GPU

    def test_a_full_pool_still_owes_the_quota(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        occupy(h100, 16)
        answer = row(llm_team, h100)
        assert answer.sentence == "You can start 4 GPUs now in h100 within quota; nothing over quota."

    def test_the_projects_limit(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        ledger.holds(llm_team, h100, using(12))
        answer = row(llm_team, h100)
        assert answer.sentence == "You can start nothing now in h100: quota and surplus are used up."

    def test_the_departments_limit_counts_what_siblings_use(
        self, llm_team: Project, h100: NodePool, ledger: Ledger
    ) -> None:
        DepartmentQuota.objects.update(gpu_limit=8 * GPU)
        sibling = ProjectFactory(department=llm_team.department)
        ledger.holds(sibling, h100, using(5))
        answer = row(llm_team, h100)
        assert (answer.in_quota_left_gpu, answer.over_quota_left_gpu) == (3 * GPU, 0)

    def test_unobserved_and_unlimited_claims_no_number(
        self, vision_team: Project, h100: NodePool, ledger: Ledger
    ) -> None:
        Node.objects.all().delete()
        answer = row(vision_team, h100)
        assert answer.over_quota_left_gpu is None
        assert "as far as GPUs are free" in answer.sentence

    def test_nodes_that_take_nothing_are_no_room(self, llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
        Node.objects.filter(pool=h100).update(unschedulable=True)
        assert row(llm_team, h100).room.free_gpu is None


def test_a_fraction_is_said_exactly(llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
    ledger.holds(llm_team, h100, Usage(Resources.of(gpu="3.5")))
    assert row(llm_team, h100).sentence.startswith("You can start 0.5 GPUs now")


@pytest.mark.parametrize("projects", [1, 12])
def test_queries_do_not_grow_with_the_projects(
    projects: int, research: Department, h100: NodePool, ledger: Ledger
) -> None:
    for project in ProjectFactory.create_batch(projects, department=research):
        ProjectQuotaFactory(project=project, node_pool=h100)
    chosen = list(Project.objects.all())
    with CaptureQueriesContext(connection) as queries:
        rows = quota_rows_of(chosen)
        assert [row.sentence for pools in rows.values() for row in pools]
    assert len(rows) == projects
    assert len(queries) == 6


def test_a_department_is_shown_beside_its_projects_sum(
    research: Department, llm_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    ProjectQuotaFactory(project__department=research, node_pool=h100, gpu_deserved=6 * GPU)
    ledger.holds(llm_team, h100, using(3))
    answer = next(row for row in department_rows(research) if row.pool == h100)
    assert (answer.projects_deserved.gpu, answer.overrun_gpu, answer.usage.allocated.gpu) == (10000, 2000, 3000)
