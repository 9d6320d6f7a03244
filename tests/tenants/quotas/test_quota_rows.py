"""Used, borrowed and left, in numbers and in a sentence."""

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from clusters.inventory.models import Cluster, Node, NodePool
from clusters.watch.models import ObservedPod
from scheduling.model.resources import Resources
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota
from tenants.quotas.selectors.quota_rows import PoolQuota, department_rows_of, startable_rows, startable_rows_of
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from tests.factories.clusters import ObservedPodFactory
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory


def using(total: int, non_preemptible: int = 0) -> Usage:
    return Usage(Resources.of(gpu=total), Resources.of(gpu=non_preemptible), Resources.of(gpu=total))


def row(project: Project, pool: NodePool) -> PoolQuota:
    return next(row for row in startable_rows(Project.objects.get(pk=project.pk)) if row.pool == pool)


def runs(project: Project, pool: NodePool, gpus: float, **fields: object) -> None:
    """A pod of the project on the first nodes of the pool that have room, one pod a node."""
    left = int(gpus * GPU)
    for node in pool.nodes.order_by("name"):
        there = ObservedPod.objects.filter(node_name=node.name).aggregate(sum=Sum("gpu_milli"))["sum"] or 0
        amount = min(left, node.gpu_milli - there)
        if amount:
            where = {"cluster": pool.cluster, "pool_name": pool.name, "node_name": node.name}
            ObservedPodFactory(**where, namespace=project.namespace, gpu_milli=amount, **fields)
            left -= amount
    assert not left


def test_there_is_a_row_per_pool_even_without_a_quota(llm_team: Project) -> None:
    assert [(row.pool.name, row.quota.gpu_deserved) for row in startable_rows(llm_team)] == [
        ("h100", 4000),
        ("a100", 0),
    ]


def test_use_is_split_by_what_may_be_evicted(llm_team: Project, h100: NodePool, ledger: Ledger) -> None:
    ledger.holds(llm_team, h100, using(6, non_preemptible=3))
    answer = row(llm_team, h100)
    assert (answer.used.gpu, answer.non_preemptible.gpu, answer.preemptible.gpu) == (6 * GPU, 3 * GPU, 3 * GPU)


class TestWhatCanStartNow:
    """As the cluster's scheduler has it, with the bound that binds."""

    def test_nothing_is_used_yet(self, llm_team: Project, h100: NodePool) -> None:
        assert row(llm_team, h100).sentence == (
            "4 GPUs can start in h100 within quota, 8 more over quota (preemptible only). Largest pod: 8 GPUs. "
            "Project limit: 12 GPUs (0 in use)."
        )

    def test_free_gpus_bind(self, llm_team: Project, vision_team: Project, h100: NodePool) -> None:
        runs(vision_team, h100, 10)
        assert row(llm_team, h100).sentence == (
            "4 GPUs can start in h100 within quota, 2 more over quota (preemptible only). No other GPU in the "
            "pool is free."
        )

    def test_the_largest_free_node_bounds_one_pod(
        self, llm_team: Project, vision_team: Project, h100: NodePool
    ) -> None:
        for node in h100.nodes.all():
            where = {"cluster": h100.cluster, "pool_name": "h100", "node_name": node.name}
            ObservedPodFactory(**where, namespace=vision_team.namespace, gpu_milli=6 * GPU)
        assert "Largest pod: 2 GPUs." in row(llm_team, h100).sentence

    def test_a_projects_limit_binds_while_gpus_are_free(self, llm_team: Project, h100: NodePool) -> None:
        ProjectQuota.objects.update(gpu_limit=6 * GPU)
        runs(llm_team, h100, 6)
        assert row(llm_team, h100).sentence == (
            "Nothing can start in h100 without evictions. Project limit: 6 GPUs (6 in use)."
        )

    def test_a_departments_limit_counts_what_siblings_use(self, llm_team: Project, h100: NodePool) -> None:
        DepartmentQuota.objects.update(gpu_limit=8 * GPU)
        runs(ProjectFactory(department=llm_team.department), h100, 5)
        assert row(llm_team, h100).sentence == (
            "3 GPUs can start in h100 within quota. Limit of department research: 8 GPUs (5 in use). Up to 1 GPU "
            "more can be reclaimed from projects over their quota."
        )

    def test_a_full_pool_says_what_may_be_taken_back(
        self, llm_team: Project, vision_team: Project, h100: NodePool
    ) -> None:
        runs(vision_team, h100, 16)
        assert row(llm_team, h100).sentence == (
            "Nothing can start in h100 without evictions. No free GPU in the pool. Up to 4 GPUs more can be "
            "reclaimed from projects over their quota."
        )

    def test_what_is_never_evicted_stays(self, llm_team: Project, vision_team: Project, h100: NodePool) -> None:
        runs(vision_team, h100, 16, preemptible=False)
        assert row(llm_team, h100).sentence.endswith("No free GPU in the pool.")

    def test_kube_scheduler_takes_nothing_back(self, llm_team: Project, vision_team: Project, h100: NodePool) -> None:
        Cluster.objects.update(flavour="kube")
        runs(vision_team, h100, 16)
        assert row(llm_team, h100).sentence == ("Nothing can start in h100 without evictions. No free GPU in the pool.")

    def test_volcano_without_the_action_reclaim_takes_nothing_back(
        self, llm_team: Project, vision_team: Project, h100: NodePool
    ) -> None:
        Cluster.objects.update(flavour="volcano", configured={"actions": ["allocate", "preempt"], "plugins": {}})
        runs(vision_team, h100, 16)
        assert row(llm_team, h100).sentence.endswith("No free GPU in the pool.")

    def test_kube_counts_limits_over_all_pools_and_pods_that_wait(
        self, llm_team: Project, h100: NodePool, a100: NodePool
    ) -> None:
        Cluster.objects.update(flavour="kube")
        ProjectQuotaFactory(project=llm_team, node_pool=a100, gpu_deserved=0, gpu_limit=2 * GPU)
        runs(llm_team, a100, 8)
        waits = {"cluster": h100.cluster, "phase": "Pending", "node_name": "", "pool_name": "", "started_at": None}
        ObservedPodFactory(**waits, namespace=llm_team.namespace, gpu_milli=4 * GPU)
        answer = row(llm_team, h100)
        limit = "Project limit over all node pools: 14 GPUs (8 in use, 4 reserved for waiting pods)."
        assert limit in answer.sentence
        assert answer.headroom
        assert answer.headroom.now == 2 * GPU

    def test_kueue_lends_quotas_not_nodes(
        self, llm_team: Project, vision_team: Project, research: Department, h100: NodePool
    ) -> None:
        Cluster.objects.update(flavour="kueue")
        DepartmentQuota.objects.update(gpu_deserved=4 * GPU)
        runs(vision_team, h100, 3)
        assert row(llm_team, h100).sentence == (
            "4 GPUs can start in h100 within quota, 1 more over quota (non-preemptible: at most 4 GPUs per "
            "workload). No more quota to borrow."
        )

    def test_kueue_lends_the_quota_of_projects_without_pods(
        self, llm_team: Project, vision_team: Project, h100: NodePool
    ) -> None:
        Cluster.objects.update(flavour="kueue")
        DepartmentQuota.objects.update(gpu_deserved=0)
        ProjectQuota.objects.update(gpu_limit=None)
        ProjectQuota.objects.filter(project=vision_team).update(gpu_deserved=3 * GPU)
        assert row(llm_team, h100).sentence == (
            "4 GPUs can start in h100 within quota, 3 more over quota (preemptible only). No more quota to borrow. "
            "Non-preemptible: at most 0 GPUs per workload; department research deserves 0 GPUs."
        )

    def test_room_that_others_are_evicted_for_is_not_free(
        self, llm_team: Project, vision_team: Project, h100: NodePool
    ) -> None:
        runs(vision_team, h100, 8)
        nominated = h100.nodes.order_by("name")[1].name
        waits = {"phase": "Pending", "node_name": "", "started_at": None, "nominated_node": nominated}
        ObservedPodFactory(cluster=h100.cluster, **waits, gpu_milli=7 * GPU)
        assert row(llm_team, h100).sentence.startswith("1 GPU can start")

    def test_gpus_reserved_for_pods_that_wait_for_evictions_are_named_apart_from_use(
        self, llm_team: Project, vision_team: Project, h100: NodePool
    ) -> None:
        runs(llm_team, h100, 4, preemptible=False)
        runs(vision_team, h100, 8, deletion_at=timezone.now())
        place = h100.nodes.order_by("name")[1].name
        waits = {"phase": "Pending", "node_name": "", "started_at": None, "nominated_node": place}
        where = {"cluster": h100.cluster, "pool_name": h100.name, "namespace": llm_team.namespace}
        ObservedPodFactory(**where, **waits, gpu_milli=8 * GPU, preemptible=False)
        found = row(llm_team, h100)
        assert "Project limit: 12 GPUs (4 in use, 8 reserved for waiting pods)." in found.sentence
        assert found.used.gpu == 4 * GPU
        assert found.headroom is not None
        assert found.headroom.fixed.bound.used == 12 * GPU

    @pytest.mark.parametrize(
        ("nominated", "left"),
        [
            pytest.param(0, 2, id="a pod terminates"),
            pytest.param(4, 2, id="for a smaller one that waits"),
            pytest.param(7, 1, id="for a larger one that waits"),
        ],
    )
    def test_quota_in_use_by_terminating_pods_is_not_free_before_they_are_gone(
        self, llm_team: Project, h100: NodePool, nominated: int, left: int
    ) -> None:
        """Of a limit of 12 GPUs 10 are in use; what the waiting pod takes more than they free is not left either."""
        runs(llm_team, h100, 4)
        runs(llm_team, h100, 6, deletion_at=timezone.now())
        if nominated:
            place = ObservedPod.objects.filter(deletion_at__isnull=False).values_list("node_name", flat=True)[0]
            waits = {"phase": "Pending", "node_name": "", "started_at": None, "nominated_node": place}
            where = {"cluster": h100.cluster, "pool_name": h100.name, "namespace": llm_team.namespace}
            ObservedPodFactory(**where, **waits, gpu_milli=nominated * GPU)
        found = row(llm_team, h100)
        assert found.headroom is not None
        assert (found.headroom.now, found.headroom.inside) == (left * GPU, 0)

    @pytest.mark.parametrize(
        "fields",
        [
            pytest.param({"unschedulable": True}, id="cordoned"),
            pytest.param({"ready": False}, id="not ready"),
            pytest.param({"taints": [{"key": "a", "value": "", "effect": "NoSchedule"}]}, id="tainted"),
            pytest.param({"max_pods": 0}, id="full of pods"),
        ],
    )
    def test_nodes_that_take_no_pod_are_not_free(
        self, llm_team: Project, h100: NodePool, fields: dict[str, object]
    ) -> None:
        Node.objects.filter(pool=h100).update(**fields)
        assert row(llm_team, h100).sentence.endswith("No free GPU in the pool.")

    @pytest.mark.parametrize(
        ("flavour", "fields", "said"),
        [
            pytest.param(
                "kai",
                {},
                "At most 2 CPUs in total for these pods: no more free on the nodes of these GPUs.",
                id="nodes",
            ),
            pytest.param(
                "kai",
                {"cpu_limit": 1000},
                "At most 1 CPU in total for these pods: project limit: 1 CPU (0 CPUs in use).",
                id="project",
            ),
            pytest.param(
                "kueue",
                {"cpu_deserved": 0, "cpu_limit": 0},
                "Only pods without CPU requests can start: project limit: 0 CPUs (0 CPUs in use).",
                id="kueue",
            ),
        ],
    )
    def test_cpu_that_is_short_beside_free_gpus_is_named(
        self, llm_team: Project, vision_team: Project, h100: NodePool, flavour: str, fields: dict[str, int], said: str
    ) -> None:
        Cluster.objects.update(flavour=flavour)
        DepartmentQuota.objects.update(gpu_deserved=64 * GPU)
        ProjectQuota.objects.filter(project=llm_team).update(**fields)
        for node in h100.nodes.all():
            where = {"cluster": h100.cluster, "pool_name": "h100", "node_name": node.name}
            ObservedPodFactory(**where, namespace=vision_team.namespace, gpu_milli=0, cpu_milli=node.cpu_milli - 1000)
        sentence = row(llm_team, h100).sentence
        assert sentence.startswith("4 GPUs can start in h100 within quota")
        assert said in sentence

    def test_on_kube_an_exhausted_memory_limit_stops_every_pod(
        self, llm_team: Project, h100: NodePool, a100: NodePool
    ) -> None:
        Cluster.objects.update(flavour="kube")
        ProjectQuota.objects.filter(project=llm_team).update(memory_limit=2**30)
        ProjectQuotaFactory(project=llm_team, node_pool=a100, memory_limit=0)
        runs(llm_team, h100, 1, memory_bytes=2**30)
        assert row(llm_team, h100).sentence == (
            "Nothing can start in h100 without evictions. Project limit over all node pools: 1 GiB (1 GiB in use)."
        )

    def test_without_a_node_nothing_is_claimed(self, vision_team: Project, h100: NodePool) -> None:
        Node.objects.all().delete()
        assert row(vision_team, h100).sentence == ("Unknown what can start in h100: no nodes observed yet.")

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            pytest.param({"state": "paused"}, "lab is paused.", id="paused"),
            pytest.param({"breaker_reason": "401"}, "lab does not accept work now.", id="its work is stopped"),
        ],
    )
    def test_nothing_starts_where_no_work_goes(
        self, llm_team: Project, h100: NodePool, fields: dict[str, object], why: str
    ) -> None:
        Cluster.objects.update(**fields)
        assert row(llm_team, h100).sentence == f"Nothing can start in h100: {why}"


def test_a_fraction_is_said_exactly(llm_team: Project, h100: NodePool) -> None:
    runs(llm_team, h100, 3.5)
    assert row(llm_team, h100).sentence.startswith("8.5 GPUs can start in h100: 0.5 GPUs within quota")


@pytest.mark.parametrize("projects", [1, 12])
@pytest.mark.parametrize("flavour", ["kai", "kube", "kueue"])
def test_queries_do_not_grow_with_the_projects(
    projects: int, flavour: str, research: Department, h100: NodePool, ledger: Ledger
) -> None:
    Cluster.objects.update(flavour=flavour)
    for project in ProjectFactory.create_batch(projects, department=research):
        ProjectQuotaFactory(project=project, node_pool=h100)
    chosen = list(Project.objects.select_related("department"))
    with CaptureQueriesContext(connection) as queries:
        rows = startable_rows_of(chosen)
        assert [row.sentence for pools in rows.values() for row in pools]
    assert len(rows) == projects
    assert len(queries) == 7


def test_a_department_is_shown_beside_its_projects_sum(
    research: Department, llm_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    ProjectQuotaFactory(project__department=research, node_pool=h100, gpu_deserved=6 * GPU)
    ledger.holds(llm_team, h100, using(3))
    answer = next(row for row in department_rows_of([research])[research.pk] if row.pool == h100)
    assert (answer.projects_deserved.gpu, answer.quota.gpu_deserved, answer.usage.allocated.gpu) == (10000, 8000, 3000)
