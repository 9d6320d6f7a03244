"""What the tenants' side wants of a cluster, down to the objects of its flavour."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.flavours.registry import flavour_for
from clusters.inventory.models import Cluster, DirtyOwner, NodePool
from clusters.sync.selectors import desired_state as whole_state
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Limit
from tenants.organisation.models import Department, Project
from tenants.quotas.rules import QuotaValues
from tenants.quotas.selectors.desired_state import desired_state
from tenants.quotas.services.quotas import set_priority_cap, set_project_quota
from tests.factories.tenants import GPU, ProjectFactory, ProjectQuotaFactory


def test_a_project_has_a_queue_below_its_department_in_every_pool(cluster: Cluster, llm_team: Project) -> None:
    state = desired_state(cluster)
    parents = {queue.pool.name: queue for queue in state.departments}
    assert sorted(parents) == ["a100", "h100"]
    leaves = {queue.pool.name: queue for queue in state.projects[0].queues}
    assert {name: queue.parent for name, queue in leaves.items()} == {
        name: queue.name for name, queue in parents.items()
    }
    assert leaves["h100"].deserved == Limit(gpu=4 * GPU)
    assert leaves["h100"].limit == Limit(gpu=12 * GPU)
    assert (leaves["a100"].deserved.gpu, leaves["a100"].limit.gpu) == (0, None)
    assert leaves["h100"].owner == f"project.{llm_team.pk}"
    assert state.projects[0].namespace == "runai-llm-team"


def test_queue_names_are_the_flavours_own(cluster: Cluster, llm_team: Project) -> None:
    flavour = flavour_for(cluster.flavour)
    names = [queue.name for queue in desired_state(cluster).projects[0].queues]
    assert names == [flavour.queue_name(llm_team.owner, pool.name) for pool in cluster.node_pools.all()]


def test_another_clusters_tenants_stay_out(cluster: Cluster) -> None:
    ProjectFactory()
    assert desired_state(cluster).projects == ()
    assert desired_state(cluster).departments == ()


def test_it_is_part_of_what_the_cluster_should_hold(cluster: Cluster, llm_team: Project) -> None:
    assert "llm-team" in [project.name for project in whole_state(cluster).projects]


def test_a_changed_quota_reaches_the_object_with_a_newer_generation(
    cluster: Cluster, llm_team: Project, h100: NodePool
) -> None:
    values = QuotaValues(Limit(gpu=6 * GPU), Limit(gpu=8 * GPU), over_quota_weight=5, rank="high")
    set_project_quota(project=llm_team, node_pool=h100, values=values, actor=SYSTEM)
    queue = queue_object(cluster, llm_team, h100)
    gpu = queue["spec"]["resources"]["gpu"]
    assert (gpu["quota"], gpu["limit"], gpu["overQuotaWeight"]) == (6, 8, 5)
    assert queue["spec"]["priority"] == 130 or queue["spec"]["priority"] > 100
    assert queue["metadata"]["annotations"]["rung.dev/generation"] == "2"
    assert queue["metadata"]["labels"]["rung.dev/owner"] == f"project.{llm_team.pk}"


def test_the_weights_of_cpu_and_memory_reach_the_queue(cluster: Cluster, llm_team: Project, h100: NodePool) -> None:
    values = QuotaValues(Limit(gpu=6 * GPU), over_quota_weight=5, cpu_weight=0.5)
    set_project_quota(project=llm_team, node_pool=h100, values=values, actor=SYSTEM)
    queues = [queue for project in desired_state(cluster).projects for queue in project.queues]
    found = [
        (each.over_quota_weight, each.cpu_weight, each.memory_weight) for each in queues if each.pool.name == "h100"
    ]
    assert found == [(5, 0.5, None)]


def test_caps_reach_the_project(cluster: Cluster, llm_team: Project) -> None:
    set_priority_cap(project=llm_team, priority="high", gpu_limit=8 * GPU, actor=SYSTEM)
    assert desired_state(cluster).projects[0].priority_caps == {"high": 8 * GPU}


@pytest.mark.parametrize("flavour", ["kai", "kube", "kueue"])
def test_every_flavour_makes_objects_of_it(cluster: Cluster, llm_team: Project, flavour: str) -> None:
    Cluster.objects.update(flavour=flavour)
    cluster.refresh_from_db()
    manifests = list(flavour_for(flavour).objects_for(whole_state(cluster)))
    namespaces = [item["metadata"]["name"] for item in manifests if item["kind"] == "Namespace"]
    assert namespaces == ["runai-llm-team"]


def test_queries_do_not_grow_with_the_tenants(cluster: Cluster, research: Department, h100: NodePool) -> None:
    ProjectQuotaFactory(project__department=research, node_pool=h100)
    with CaptureQueriesContext(connection) as few:
        desired_state(cluster)
    for project in ProjectFactory.create_batch(10, department=research):
        ProjectQuotaFactory(project=project, node_pool=h100)
    with CaptureQueriesContext(connection) as many:
        assert len(desired_state(cluster).projects) == 11
    assert len(many) == len(few)


def queue_object(cluster: Cluster, project: Project, pool: NodePool) -> dict[str, object]:
    """The project's queue in a pool, as KAI reads it."""
    flavour = flavour_for("kai")
    name = flavour.queue_name(project.owner, pool.name)
    manifests = flavour.objects_for(desired_state(cluster))
    return next(item for item in manifests if item["kind"] == "Queue" and item["metadata"]["name"] == name)


class TestKueue:
    """A Cohort's quota is added to its projects'."""

    @pytest.fixture(autouse=True)
    def of_kueue(self, cluster: Cluster) -> None:
        Cluster.objects.update(flavour="kueue")
        cluster.refresh_from_db()

    def nominal(self, cluster: Cluster, owner: str) -> str:
        """Of GPUs in pool h100."""
        manifests = flavour_for("kueue").objects_for(whole_state(cluster, owner=owner))
        (found,) = (
            each for each in manifests if each["metadata"]["name"] == owner and "resourceGroups" in each["spec"]
        )
        flavors = {each["name"]: each["resources"] for each in found["spec"]["resourceGroups"][0]["flavors"]}
        return str(flavors["h100"][0]["nominalQuota"])

    def test_a_department_keeps_what_its_projects_do_not_deserve(
        self, cluster: Cluster, llm_team: Project, research: Department, h100: NodePool
    ) -> None:
        research.quotas.update(gpu_deserved=16 * GPU)
        assert (self.nominal(cluster, llm_team.owner), self.nominal(cluster, research.owner)) == ("4", "12")
        other = ProjectFactory(department=research)
        ProjectQuotaFactory(project=other, node_pool=h100, gpu_deserved=5 * GPU)
        assert self.nominal(cluster, research.owner) == "7"

    def test_a_projects_new_quota_is_a_reason_to_look_at_its_department_too(
        self, cluster: Cluster, llm_team: Project, h100: NodePool
    ) -> None:
        values = QuotaValues(Limit(gpu=6 * GPU), Limit(gpu=8 * GPU), over_quota_weight=1, rank="medium-low")
        set_project_quota(project=Project.objects.get(pk=llm_team.pk), node_pool=h100, values=values, actor=SYSTEM)
        owners = set(DirtyOwner.objects.filter(cluster=cluster).values_list("owner", flat=True))
        assert {llm_team.owner, llm_team.department.owner} <= owners
