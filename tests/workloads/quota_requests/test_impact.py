"""What a request would change: sums, who becomes reclaimable, which waiting workloads could start. Nothing stays."""

import pytest

from clusters.inventory.models import Cluster, DirtyOwner, NodePool
from portal.audit.models import AuditRecord
from portal.kit.security.actors import Actor
from scheduling.model.resources import Resources
from tenants.organisation.models import Project
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory
from tests.workloads.sandbox_lab import Lab
from workloads.quota_requests.selectors import impact_of, reclaimed_from, values_of


def preemptible(gpus: int, *, fixed: int = 0) -> Usage:
    return Usage(Resources(gpu=gpus * GPU), Resources(gpu=fixed * GPU))


def test_the_sums_of_department_and_pool_stand_against_what_they_have(
    llm_team: Project, vision_team: Project, h100: NodePool
) -> None:
    found = impact_of(llm_team, h100, 2 * GPU)
    assert (found["deserved"], found["limit"]) == ({"before": 4, "after": 6}, {"before": 12, "after": 14})
    assert found["department"] == {"name": "research", "deserved": 8, "before": 4, "after": 6}
    assert found["pool"] == {"name": "h100", "gpus": 16, "before": 8, "after": 10}
    assert (found["warnings"], found["refusals"]) == ([], [])


def test_what_the_service_would_warn_of_is_said(llm_team: Project, vision_team: Project, h100: NodePool) -> None:
    found = impact_of(llm_team, h100, 9 * GPU)
    assert [each["code"] for each in found["warnings"]] == ["sum_over_department", "over_physical"]
    assert (
        "the projects of research deserve 13 GPUs in total, but the department 8 GPUs"
        in found["warnings"][0]["message"]
    )


def test_nothing_of_the_trial_stays(llm_team: Project, h100: NodePool) -> None:
    impact_of(llm_team, h100, 2 * GPU)
    llm_team.refresh_from_db()
    llm_team.cluster.refresh_from_db()
    assert values_of(llm_team, h100).deserved.gpu == 4 * GPU
    assert (llm_team.generation, llm_team.cluster.generation) == (1, 1)
    assert not AuditRecord.objects.exists()
    assert not DirtyOwner.objects.exists()


def test_only_preemptible_work_over_quota_beyond_the_free_gpus_becomes_reclaimable(
    llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger, as_charlie: Actor, as_bob: Actor
) -> None:
    ledger.holds(llm_team, h100, preemptible(4))
    ledger.holds(vision_team, h100, preemptible(12, fixed=2))
    h100.nodes.update(unschedulable=True)
    found = impact_of(llm_team, h100, 3 * GPU)
    assert found["reclaim"] == {
        "enforced": "yes",
        "gpus": 3,
        "overQuota": 8,
        "free": 0,
        "projects": [{"id": str(vision_team.pk), "gpus": 8}],
    }
    assert reclaimed_from(found, as_charlie) == [{"name": "vision-team", "gpus": 8}]
    assert reclaimed_from(found, as_bob) == [{"name": "other projects", "gpus": 8}], "a name that bob may not see"
    h100.nodes.update(unschedulable=False)
    free = impact_of(llm_team, h100, 3 * GPU)["reclaim"]
    assert (free["gpus"], free["free"], free["projects"]) == (0, 16, []), "free GPUs come first"


@pytest.mark.parametrize(("flavour", "over"), [("kai", 2), ("kueue", 8)])
def test_non_preemptible_work_is_reclaimed_where_the_scheduler_does_not_know_it(
    llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger, flavour: str, over: int
) -> None:
    Cluster.objects.update(flavour=flavour)
    pool = NodePool.objects.get(pk=h100.pk)
    ledger.holds(vision_team, pool, preemptible(12, fixed=10))
    assert impact_of(llm_team, pool, 3 * GPU)["reclaim"]["overQuota"] == over


@pytest.fixture
def lab(db: None) -> Lab:
    return Lab()


def test_waiting_workloads_that_would_start_because_of_it_are_named(lab: Lab) -> None:
    project = lab.project("llm-team", deserved=3)
    lab.settle(1)
    asked = {"priority": "high", "preemptibility": "non-preemptible"}
    lab.submit(project, "first", gpus=2, **asked)
    lab.settle(3)
    small = lab.submit(project, "small", gpus=2, **asked)
    lab.submit(project, "large", gpus=3, **asked)
    lab.settle(4)
    pool = NodePool.objects.select_related("cluster").get(pk=lab.pool.pk)
    assert impact_of(project, pool, GPU)["starts"] == {
        "estimated": True,
        "tried": 2,
        "more": False,
        "workloads": [{"id": str(small.pk), "name": "small", "gpus": 2, "evicts": False}],
    }
    assert impact_of(project, pool, 500)["starts"]["workloads"] == []


def test_without_a_recent_observation_there_is_no_estimate(llm_team: Project, h100: NodePool) -> None:
    assert impact_of(llm_team, h100, GPU)["starts"] == {"estimated": False, "tried": 0, "more": False, "workloads": []}


def test_a_project_without_a_quota_there_starts_from_nothing(llm_team: Project, a100: NodePool) -> None:
    found = impact_of(llm_team, a100, GPU)
    assert (found["deserved"], found["limit"]) == ({"before": 0, "after": 1}, {"before": None, "after": None})
    assert found["department"]["deserved"] == 0
    assert [each["code"] for each in found["warnings"]] == ["sum_over_department"]


def test_half_gpus_are_kept_exact(llm_team: Project, h100: NodePool) -> None:
    other = ProjectFactory(department=llm_team.department)
    ProjectQuotaFactory(project=other, node_pool=h100, gpu_deserved=500)
    assert impact_of(llm_team, h100, 1500)["department"] == {
        "name": "research", "deserved": 8, "before": 4.5, "after": 6,
    }  # fmt: skip
