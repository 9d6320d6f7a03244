"""What a request would change: sums, who becomes reclaimable, which waiting workloads could start. Nothing stays."""

from collections.abc import Callable

import pytest
from django.test import Client

from clusters.inventory.models import Cluster, DirtyOwner, NodePool
from clusters.watch.models import ObservedPod
from portal.audit.models import AuditRecord
from portal.kit.security.actors import Actor
from tenants.access.models import User
from tenants.organisation.models import Department, Project
from tenants.quotas.selectors.reclaims import reclaim_rows
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory
from tests.workloads.dictionary.test_eviction_matrix import PREEMPTING, runs
from tests.workloads.quota_requests.conftest import Asks
from tests.workloads.sandbox_lab import Lab
from workloads.quota_requests.selectors import impact_of, values_of


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


class TestReclaims:
    """What it changes of what projects and departments can reclaim from each other."""

    @pytest.fixture(autouse=True)
    def over(self, llm_team: Project, vision_team: Project, nlp_team: Project, h100: NodePool) -> None:
        """All above the 4 or 0 GPUs that they deserve; nlp-team is of the department of llm-team."""
        for project, gpus in ((llm_team, 4), (nlp_team, 3), (vision_team, 5)):
            runs(project, h100, gpus)

    @pytest.fixture
    def nlp_team(self, research: Department) -> Project:
        found: Project = ProjectFactory(department=research, name="nlp-team")
        return found

    @pytest.mark.parametrize("flavour", ["kai", "kueue"])
    def test_projects_of_other_departments_are_compared_by_their_departments(
        self, flavour: str, llm_team: Project, h100: NodePool, as_charlie: Actor, as_admin: Actor
    ) -> None:
        pool = on(flavour, h100)
        found = impact_of(llm_team, pool, 2 * GPU)["reclaim"]
        (row,) = reclaim_rows(found, as_admin)
        assert (row["taker"], row["giver"], row["before"], row["after"]) == ("llm-team", "nlp-team", 0, 2)
        assert (found["enforced"], found["free"]) == ("yes" if flavour == "kai" else "partly", 4)
        assert reclaim_rows(found, as_charlie) == [], "charlie sees neither of them"

    def test_where_departments_do_not_count_a_project_of_another_one_gives_back_as_well(
        self, llm_team: Project, h100: NodePool, as_bob: Actor
    ) -> None:
        Cluster.objects.update(configured=PREEMPTING)
        found = impact_of(llm_team, on("volcano", h100), 2 * GPU)["reclaim"]
        rows = [(row["taker"], row["giver"], row["after"]) for row in reclaim_rows(found, as_bob)]
        assert rows == [("llm-team", "another project", 2), ("llm-team", "another project", 1)], "no name that bob sees"

    def test_only_preemptible_work_is_reclaimed(
        self, llm_team: Project, h100: NodePool, as_admin: Actor, nlp_team: Project
    ) -> None:
        ObservedPod.objects.filter(namespace=nlp_team.namespace).update(preemptible=False)
        runs(nlp_team, h100, 1)
        (row,) = reclaim_rows(impact_of(llm_team, on("kai", h100), 2 * GPU)["reclaim"], as_admin)
        assert (row["before"], row["after"]) == (0, 1)

    def test_a_scheduler_that_does_not_reclaim_changes_nothing(self, llm_team: Project, h100: NodePool) -> None:
        found = impact_of(llm_team, on("kube", h100), 2 * GPU)["reclaim"]
        assert (found["enforced"], found["rows"]) == ("no", [])

    def test_the_page_names_them_with_their_gpus(
        self, asks: Asks, h100: NodePool, dora: User, client_of: Callable[[User], Client]
    ) -> None:
        on("kai", h100)
        page = client_of(dora).get(f"/quota-requests/{asks().pk}/").content.decode()
        assert "llm-team from nlp-team: 2 GPUs instead of 0" in " ".join(page.split())
        assert "Free GPUs of the pool: 4." in page


def on(flavour: str, pool: NodePool) -> NodePool:
    """The pool, on a cluster of this flavour."""
    Cluster.objects.update(flavour=flavour)
    return NodePool.objects.select_related("cluster").get(pk=pool.pk)


@pytest.fixture
def lab(db: None) -> Lab:
    return Lab()


def test_waiting_workloads_that_would_start_because_of_it_are_named(lab: Lab) -> None:
    project = lab.project("llm-team", deserved=3)
    lab.settle(1)
    requested = {"priority": "high", "preemptibility": "non-preemptible"}
    lab.submit(project, "first", gpus=2, **requested)
    lab.settle(3)
    small = lab.submit(project, "small", gpus=2, **requested)
    lab.submit(project, "large", gpus=3, **requested)
    lab.settle(4)
    pool = NodePool.objects.select_related("cluster").get(pk=lab.pool.pk)
    assert impact_of(project, pool, GPU)["starts"] == {
        "estimated": True,
        "tried": 2,
        "more": False,
        "workloads": [{"id": str(small.pk), "name": "small", "project": "llm-team", "gpus": 2, "evicts": False}],
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
