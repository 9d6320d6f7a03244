"""The page and REST of who can evict whom: cells with rules, reclaims with the names that the reader may see."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.inventory.models import Cluster, NodePool
from clusters.watch.models import ObservedPod
from scheduling.forecast.cycle import preview
from scheduling.model.decisions import OutcomeKind
from tenants.access.models import AccessKey, Role, User
from tenants.access.services import credentials
from tenants.access.services.credentials import exchange
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota
from tests.builders import gang
from tests.clusters.flavours.test_volcano_cdp import FIRST, SECOND
from tests.clusters.flavours.test_volcano_cdp import facts as volcano_facts
from tests.factories.cast import acting
from tests.factories.clusters import ClusterFactory, ObservedPodFactory
from tests.factories.tenants import GPU, MembershipFactory, ProjectFactory, ProjectQuotaFactory
from tests.factories.workloads import WorkloadFactory
from workloads.dictionary.models import Priority
from workloads.forecast.selectors.snapshot import snapshot_of

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
URL = "/api/v1/eviction-matrix"
PREEMPTING: dict[str, Any] = dict(volcano_facts(FIRST, SECOND))


def rest(user: User) -> Client:
    """Somebody with an access key of theirs."""
    key, secret = credentials.create_access_key(name=f"asking-{AccessKey.objects.count()}", actor=acting(user))
    return Client(headers={"Authorization": f"Bearer {exchange(key.client_id, secret).text}"})


def matrix(user: User, **query: str) -> dict[str, Any]:
    answer = rest(user).get(URL, query)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def cell(found: dict[str, Any], candidate: str, victim: str, relation: str = "own") -> tuple[str, str]:
    """What is evicted, and the first rule."""
    (table,) = [table for table in found["tables"] if relation in table["relations"]]
    (each,) = [each for each in table["cells"] if (each["candidate"], each["victim"]) == (candidate, victim)]
    return each["evicts"], found["rules"][each["rules"][0] - 1]["text"]


def runs(project: Project, pool: NodePool, gpus: int, *, preemptible: bool = True) -> None:
    """A workload of one pod per GPU on the pool's nodes."""
    nodes = [node.name for node in pool.nodes.order_by("name") for _gpu in range(8)]
    taken = ObservedPod.objects.filter(pool_name=pool.name).count()
    for at in range(gpus):
        workload = WorkloadFactory(project=project, running_pods=1, pool_name=pool.name)
        ObservedPodFactory(
            cluster=pool.cluster,
            namespace=project.namespace,
            owner_id=str(workload.pk),
            node_name=nodes[taken + at],
            pool_name=pool.name,
            preemptible=preemptible,
        )


@pytest.fixture
def kai(cluster: Cluster) -> Cluster:
    Cluster.objects.update(flavour="kai")
    return cluster


@pytest.mark.parametrize(
    ("flavour", "evicts", "rule"),
    [
        pytest.param("kube", "all", "in any namespace", id="kube"),
        pytest.param("kai", "preemptible", "KAI preempts inside the project's queue", id="kai"),
        pytest.param("kueue", "all", "withinClusterQueue: LowerPriority", id="kueue"),
        pytest.param("volcano", "none", "Assumption: the scheduler lacks the action preempt", id="volcano, unread"),
    ],
)
def test_a_cell_names_the_rule_of_the_clusters_scheduler(
    flavour: str, evicts: str, rule: str, cluster: Cluster, alice: User, client_of: Clients
) -> None:
    Cluster.objects.update(flavour=flavour)
    found = matrix(alice, clusterId=str(cluster.pk))
    said, text = cell(found, "high", "low")
    assert (said, rule in text) == (evicts, True)
    assert cell(found, "low", "high")[0] == "none"


def test_what_the_configuration_was_read_to_lack_is_no_assumption(
    cluster: Cluster, alice: User, client_of: Clients
) -> None:
    Cluster.objects.update(flavour="volcano")
    assert "Assumption: Volcano neither" in matrix(alice, clusterId=str(cluster.pk))["reclaimRule"]
    Cluster.objects.update(configured={"actions": ["allocate"], "plugins": {}})
    found = matrix(alice, clusterId=str(cluster.pk))
    assert cell(found, "high", "low") == ("none", "The scheduler is not configured with the action preempt.")
    assert found["reclaimRule"].startswith("No quota is reclaimed on this cluster")


def test_on_kube_scheduler_the_same_holds_in_every_project(cluster: Cluster, alice: User, client_of: Clients) -> None:
    Cluster.objects.update(flavour="kube")
    found = matrix(alice, clusterId=str(cluster.pk))
    assert [table["relations"] for table in found["tables"]] == [["own", "over", "within"]]
    assert "stays with it" in found["reclaimRule"]


def test_between_queues_priority_plays_no_part(kai: Cluster, alice: User, client_of: Clients) -> None:
    found = matrix(alice, clusterId=str(kai.pk))
    uniform = {table["relations"][0]: table["uniform"] for table in found["tables"]}
    assert uniform == {"own": False, "over": True, "within": True}
    assert cell(found, "very-low", "very-high", "over")[0] == "preemptible"
    assert cell(found, "very-high", "very-low", "within")[0] == "none"


def test_a_policy_never_shows_where_it_is_obeyed(cluster: Cluster, alice: User, client_of: Clients) -> None:
    Priority.objects.filter(name="high").update(preemption_policy="Never")
    Cluster.objects.update(flavour="kube")
    assert cell(matrix(alice, clusterId=str(cluster.pk)), "high", "low") == (
        "none",
        "The preemption policy of the priority is Never.",
    )
    Cluster.objects.update(flavour="kai")
    assert cell(matrix(alice, clusterId=str(cluster.pk)), "high", "low")[0] == "preemptible"


class TestReclaims:
    """Who can take back from whom now."""

    @pytest.fixture
    def over(self, kai: Cluster, llm_team: Project, vision_team: Project, h100: NodePool) -> Cluster:
        """llm-team uses 10 GPUs, its department deserves 8; vision-team of another department uses none."""
        runs(llm_team, h100, 10)
        return kai

    def test_departments_are_compared_with_the_numbers_now(
        self, over: Cluster, admin: User, client_of: Clients
    ) -> None:
        (arrow,) = matrix(admin, clusterId=str(over.pk))["reclaims"]
        assert (arrow["nodePool"], arrow["gpus"]) == ("h100", 2)
        assert (arrow["taker"]["type"], arrow["taker"]["name"]) == ("department", "perception")
        giver = arrow["giver"]
        assert (giver["name"], giver["gpusDeserved"], giver["gpusUsed"], giver["gpusOver"]) == ("research", 8, 10, 2)

    def test_projects_of_one_department_are_compared_with_each_other(
        self, kai: Cluster, research: Department, llm_team: Project, h100: NodePool, admin: User, client_of: Clients
    ) -> None:
        ProjectQuotaFactory(project=ProjectFactory(department=research, name="new"), node_pool=h100, gpu_deserved=GPU)
        runs(llm_team, h100, 6)
        (arrow,) = matrix(admin, clusterId=str(kai.pk))["reclaims"]
        assert (arrow["taker"]["name"], arrow["giver"]["name"], arrow["gpus"]) == ("new", "llm-team", 1)

    def test_the_page_shows_both_sides_with_their_units(
        self, kai: Cluster, research: Department, llm_team: Project, h100: NodePool, admin: User, client_of: Clients
    ) -> None:
        new = ProjectFactory(department=research, name="new")
        ProjectQuotaFactory(project=new, node_pool=h100, gpu_deserved=2 * GPU)
        runs(llm_team, h100, 6)
        runs(new, h100, 1)
        page = " ".join(client_of(admin).get("/eviction-matrix/", {"cluster": kai.name}).content.decode().split())
        assert "1 GPU in use, 2 deserved · rank medium-low, weight 2 <" in page
        assert "6 GPUs in use, 4 deserved" in page

    def test_non_preemptible_work_is_not_reclaimed(
        self, kai: Cluster, llm_team: Project, vision_team: Project, h100: NodePool, admin: User, client_of: Clients
    ) -> None:
        runs(llm_team, h100, 10, preemptible=False)
        assert matrix(admin, clusterId=str(kai.pk))["reclaims"] == []

    def test_reclaim_up_to_the_fair_share_is_listed_with_its_rule(
        self, kai: Cluster, research: Department, llm_team: Project, h100: NodePool, admin: User, client_of: Clients
    ) -> None:
        """Both projects request more than the 16 GPUs; each deserves little of what it has."""
        new = ProjectFactory(department=research, name="new")
        ProjectQuotaFactory(project=new, node_pool=h100, gpu_deserved=GPU)
        runs(llm_team, h100, 13)
        runs(new, h100, 3)
        for project in (llm_team, new):
            WorkloadFactory(project=project, gpu_milli=16 * GPU)
        (arrow,) = matrix(admin, clusterId=str(kai.pk))["reclaims"]
        assert (arrow["taker"]["name"], arrow["giver"]["name"], arrow["rule"]) == ("new", "llm-team", "fairShare")
        assert "fair share" in client_of(admin).get("/eviction-matrix/", {"cluster": kai.name}).content.decode()

    def test_a_member_learns_no_name_and_no_figure_of_others(
        self, over: Cluster, alice: User, client_of: Clients
    ) -> None:
        (arrow,) = matrix(alice, project="llm-team")["reclaims"]
        assert arrow["taker"]["name"] == "another department"
        assert arrow["taker"]["gpusDeserved"] is arrow["taker"]["gpusUsed"] is arrow["taker"]["overQuotaWeight"] is None
        assert (arrow["giver"]["name"], arrow["giver"]["gpusUsed"]) == ("research", None)
        page = client_of(alice).get("/eviction-matrix/", {"project": "llm-team"}).content.decode()
        assert "another department" in page
        assert "perception" not in page
        assert "vision-team" not in page

    def test_arrows_that_look_the_same_to_the_reader_are_one(
        self, kai: Cluster, llm_team: Project, h100: NodePool, admin: User, alice: User, client_of: Clients
    ) -> None:
        for name in ("first", "second"):
            runs(ProjectFactory(department=llm_team.department, name=name), h100, 4)
        (arrow,) = matrix(alice, project="llm-team")["reclaims"]
        assert (arrow["giver"]["name"], arrow["gpus"], arrow["count"]) == ("2 other projects", 4, 2)
        page = " ".join(client_of(alice).get("/eviction-matrix/", {"project": "llm-team"}).content.decode().split())
        assert '<td class="num"> 4 GPUs each </td>' in page
        assert [each["count"] for each in matrix(admin, project="llm-team")["reclaims"]] == [1, 1]

    def test_who_has_no_part_in_it_sees_no_arrow(
        self, over: Cluster, h100: NodePool, research: Department, client_of: Clients
    ) -> None:
        apart = MembershipFactory(user__username="dora", project=ProjectFactory(department__cluster=over)).user
        assert matrix(apart, clusterId=str(over.pk))["reclaims"] == []

    def test_a_department_admin_sees_its_figures(self, over: Cluster, research: Department, client_of: Clients) -> None:
        head = MembershipFactory(
            user__username="head", project=None, department=research, role=Role.DEPARTMENT_ADMIN
        ).user
        (arrow,) = matrix(head, clusterId=str(over.pk))["reclaims"]
        assert (arrow["giver"]["gpusUsed"], arrow["taker"]["name"]) == (10, "another department")

    def test_a_queue_has_one_place_in_the_drawing_however_many_arrows_begin_there(
        self, kai: Cluster, llm_team: Project, h100: NodePool, admin: User, client_of: Clients
    ) -> None:
        for name in ("first", "second"):
            runs(ProjectFactory(department=llm_team.department, name=name), h100, 4)
        page = client_of(admin).get("/eviction-matrix/", {"cluster": kai.name}).content.decode()
        drawing = page[page.index('id="reclaims-title"') :]
        assert [drawing.count(f">{name}</text>") for name in ("llm-team", "first", "second")] == [1, 1, 1]
        assert drawing.count('class="arc"') == 2

    @pytest.mark.parametrize("flavour", ["kai", "kueue", "volcano"])
    def test_the_forecast_on_the_same_cluster_agrees(
        self, flavour: str, over: Cluster, llm_team: Project, vision_team: Project, h100: NodePool,
        admin: User, client_of: Clients
    ) -> None:  # fmt: skip
        Cluster.objects.update(flavour=flavour, configured=PREEMPTING if flavour == "volcano" else {})
        runs(ProjectFactory(department=vision_team.department, name="filler"), h100, 6)
        cluster = Cluster.objects.get()
        snapshot, _at = snapshot_of(cluster, "h100")
        own = next(each for each in snapshot.queues if each.owner == vision_team.owner and each.pool == "h100")
        outcome = preview(
            snapshot, gang("new", queue=own.name, pool="h100", namespace="n", preemptible=True), flavour=flavour
        )
        arrows = matrix(admin, clusterId=str(cluster.pk))["reclaims"]
        assert (outcome.kind is OutcomeKind.RECLAIMS) is bool(arrows), outcome


def test_cells_agree_with_the_forecast_on_the_same_cluster(
    kai: Cluster, llm_team: Project, h100: NodePool, alice: User, client_of: Clients
) -> None:
    """Both nodes are full of the project's own low work within its quota."""
    DepartmentQuota.objects.update(gpu_deserved=16 * GPU)
    llm_team.quotas.update(gpu_deserved=16 * GPU, gpu_limit=None)
    runs(llm_team, h100, 16)
    snapshot, _at = snapshot_of(kai, "h100")
    own = next(each for each in snapshot.queues if each.owner == llm_team.owner and each.pool == "h100")
    found = matrix(alice, project="llm-team")
    for name, value in Priority.objects.filter(alias_of=None).values_list("name", "value"):
        new = gang("new", queue=own.name, pool="h100", namespace=llm_team.namespace, priority=value, preemptible=True)
        outcome = preview(snapshot, new, flavour="kai")
        assert bool(outcome.victims) is (cell(found, name, "low")[0] != "none"), name


class TestBadQuestions:
    """Absent things are absent; bad parameters point at themselves."""

    def test_a_foreign_project_is_absent(self, charlie: User, llm_team: Project, client_of: Clients) -> None:
        assert rest(charlie).get(URL, {"project": "llm-team"}).status_code == 404
        client = client_of(charlie)
        assert client.get("/eviction-matrix/", {"project": "llm-team"}).status_code == 404
        assert client.get("/eviction-matrix/", {"cluster": "none"}).status_code == 404

    @pytest.mark.parametrize(
        ("query", "status", "pointer"),
        [
            pytest.param({}, 400, "/clusterId", id="nothing named"),
            pytest.param({"clusterId": "lab"}, 400, "/clusterId", id="no id"),
            pytest.param({"clusterId": "6f0f5a54-0000-4000-8000-000000000000"}, 404, None, id="no such cluster"),
            pytest.param({"cluster": "lab"}, 400, "/cluster", id="no such parameter"),
        ],
    )
    def test_the_parameter_is_named(
        self, query: dict[str, str], status: int, pointer: str | None, alice: User, client_of: Clients
    ) -> None:
        answer = rest(alice).get(URL, query)
        assert answer.status_code == status
        assert pointer is None or pointer in answer.content.decode()

    def test_a_project_of_another_cluster_is_refused(self, alice: User, client_of: Clients) -> None:
        other = ClusterFactory(name="other")
        answer = rest(alice).get(URL, {"clusterId": str(other.pk), "project": "llm-team"})
        assert answer.status_code == 400
        assert "/project" in answer.content.decode()


def test_the_page_has_the_table_its_rules_and_a_text_for_each_drawing(
    kai: Cluster, alice: User, client_of: Clients
) -> None:
    page = client_of(alice).get("/eviction-matrix/").content.decode()
    assert "Who can evict whom" in page
    assert page.count('scope="row"') == 7
    assert "KAI preempts inside the project" in page
    assert 'aria-labelledby="graph-title"' in page
    assert "Every workload can evict every preemptible workload" in page


def test_the_page_shows_which_project_and_cluster_are_chosen(
    kai: Cluster, alice: User, llm_team: Project, client_of: Clients
) -> None:
    page = client_of(alice).get("/eviction-matrix/", {"project": llm_team.name}).text
    chosen = re.findall(r'<option value="([^"]*)"\s+selected>', page)
    assert chosen == [kai.name, llm_team.name]


def test_the_page_says_why_there_is_nothing_without_a_cluster(admin: User, client_of: Clients) -> None:
    assert "No cluster is connected yet" in client_of(admin).get("/eviction-matrix/").content.decode()


def test_queries_do_not_grow_with_projects(
    kai: Cluster, research: Department, llm_team: Project, h100: NodePool, admin: User, client_of: Clients
) -> None:
    client = rest(admin)

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            assert client.get(URL, {"clusterId": str(kai.pk)}).status_code == 200
        return len(found)

    before = queries()
    for each in ProjectFactory.create_batch(5, department=research):
        ProjectQuotaFactory(project=each, node_pool=h100)
    assert queries() == before
