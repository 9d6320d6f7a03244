"""The quotas page: the tree of a node pool, sums, cells edited in place, and what the edits would do."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.inventory.models import Cluster, NodePool
from portal.kit.security.actors import SYSTEM
from scheduling.model.resources import Resources
from tenants.access.models import Role, User
from tenants.access.services.roles import create_role
from tenants.organisation.models import Department, Project
from tenants.quotas.models import DepartmentQuota, ProjectQuota, Rank
from tenants.usage.rules import EvictableWork
from tenants.usage.selectors import Usage
from tests.factories.cast import Ledger
from tests.factories.tenants import GPU, MembershipFactory, ProjectFactory, ProjectQuotaFactory

pytestmark = pytest.mark.django_db
Clients = Callable[[User], Client]
PAGE = "/quotas/"
HTMX = {"HX-Request": "true", "HX-Target": "what-if"}


def words(page: str) -> str:
    """The text of a page without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def read(client: Client, page: str = PAGE) -> str:
    answer = client.get(page)
    assert answer.status_code == 200
    return answer.content.decode()


def cells(page: str) -> dict[str, str]:
    """What the browser would send of the table: every field by its name."""
    found = {}
    for tag in re.findall(r"<input [^>]*>", page):
        name, value = (re.search(rf' {each}="([^"]*)"', tag) for each in ("name", "value"))
        if name and re.match(r"(initial-)?(project|department)-", name[1]):
            found[name[1]] = value[1] if value else ""
    for name, options in re.findall(
        r'<select name="((?:project|department)-[^"]*)".*?>(.*?)</select>', page, re.DOTALL
    ):
        chosen = re.search(r'value="([^"]*)" selected', options)
        assert chosen
        found[name] = chosen[1]
    return found


def edit(client: Client, changes: dict[str, str], *, status: int = 200, page: str = PAGE, **more: Any) -> str:
    """Send the table with these cells changed, as the browser does after each change."""
    answer = client.post(page, {**cells(read(client, page)), **changes}, headers=HTMX, **more)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


def cell(owner: Department | Project, name: str) -> str:
    return f"{'project' if isinstance(owner, Project) else 'department'}-{owner.pk}-{name}"


def use(total: float, non_preemptible: float = 0, requested: float | None = None) -> Usage:
    in_all = total if requested is None else requested
    return Usage(Resources.of(gpu=total), Resources.of(gpu=non_preemptible), Resources.of(gpu=in_all))


@pytest.fixture
def on_kai(llm_team: Project, vision_team: Project) -> None:
    """KAI: both departments deserve 8 of 16 GPUs, each has one project that deserves 4."""
    Cluster.objects.update(flavour="kai")


@pytest.fixture
def lead(research: Department) -> User:
    """Administrator of the department research."""
    return MembershipFactory(user__username="lead", role=Role.DEPARTMENT_ADMIN, project=None, department=research).user


def test_the_tree_has_departments_with_their_projects_and_the_sums_of_the_pool(
    client_of: Clients, admin: User, on_kai: None
) -> None:
    text = words(read(client_of(admin)))
    assert "h100 has 16 GPUs: departments deserve 16 GPUs, projects 8 GPUs." in text
    assert text.index("perception Projects: 4 of 8 GPUs") < text.index("vision-team") < text.index("research Projects")
    assert "ver-committed" not in text


def test_over_commitment_is_said_in_words(
    client_of: Clients, admin: User, on_kai: None, llm_team: Project, research: Department
) -> None:
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=10 * GPU)
    DepartmentQuota.objects.exclude(department=research).update(gpu_deserved=10 * GPU)
    text = words(read(client_of(admin)))
    assert "research Projects: 10 of 8 GPUs Over-committed by 2 GPUs" in text
    assert "Departments over-committed by 2 GPUs" in text
    assert "Projects over-committed" not in text


def test_use_and_its_non_preemptible_part_stand_beside_the_quota(
    client_of: Clients, admin: User, on_kai: None, llm_team: Project, h100: NodePool, ledger: Ledger
) -> None:
    ledger.holds(llm_team, h100, use(6, non_preemptible=3))
    text = words(read(client_of(admin)))
    assert "6 GPUs in use, 3 GPUs non-preemptible." in text
    assert "llm-team" in text
    assert "6 2 over quota 3" in text


def test_the_pool_is_chosen_by_its_names(client_of: Clients, admin: User, on_kai: None) -> None:
    client = client_of(admin)
    assert "a100 has 8 GPUs" in words(read(client, f"{PAGE}?cluster=lab&pool=a100"))
    assert client.get(f"{PAGE}?pool=v100").status_code == 404
    assert client.get(f"{PAGE}?cluster=other").status_code == 404


def test_an_edited_cell_moves_the_sums_and_nothing_is_stored(
    client_of: Clients, admin: User, on_kai: None, llm_team: Project, research: Department
) -> None:
    found = edit(client_of(admin), {cell(llm_team, "gpu_deserved"): "10"})
    assert re.search(rf'id="sum-{research.pk}"\s+hx-swap-oob="true"', found)
    assert "Projects: 10 of 8 GPUs Over-committed by 2 GPUs" in words(found)
    assert "<table class" not in found.split('id="what-if"')[0]
    assert ProjectQuota.objects.get(project=llm_team).gpu_deserved == 4 * GPU


class TestWhatIf:
    """Before and after, by the rule of the cluster's scheduler."""

    @pytest.fixture(autouse=True)
    def _full(self, on_kai: None, llm_team: Project, vision_team: Project, h100: NodePool, ledger: Ledger) -> None:
        """Both projects request 16 GPUs; one uses 10 of them, the other 6."""
        ledger.holds(llm_team, h100, use(10, requested=16))
        ledger.holds(vision_team, h100, use(6, non_preemptible=4, requested=16))
        ledger.work[llm_team.pk, h100.name] = [EvictableWork("llm-team/train, low 40", Resources.of(gpu=8))]

    def test_fair_shares_of_kai_before_and_after(
        self, client_of: Clients, admin: User, research: Department, perception: Department
    ) -> None:
        changes = {cell(research, "gpu_deserved"): "4", cell(perception, "over_quota_weight"): "4"}
        text = words(edit(client_of(admin), changes))
        assert "llm-team 8 5" in text  # 4 deserved, and 1 of the 4 GPUs of surplus at weight 2 against 4
        assert "vision-team 8 11" in text
        assert "Fair share by the rule of KAI Scheduler" in text

    def test_who_becomes_reclaimable(self, client_of: Clients, admin: User, llm_team: Project) -> None:
        text = words(edit(client_of(admin), {cell(llm_team, "gpu_deserved"): "2"}))
        assert "the use of 10 GPUs exceeds the deserved 2 GPUs by 8 GPUs. Of that, 8 GPUs can be reclaimed" in text
        assert "Non-preemptible overhang None." in text

    def test_only_preemptible_use_can_be_reclaimed(
        self, client_of: Clients, admin: User, llm_team: Project, vision_team: Project
    ) -> None:
        text = words(edit(client_of(admin), {cell(llm_team, "gpu_deserved"): "0"}))
        assert "the use of 10 GPUs exceeds the deserved 0 GPUs by 10 GPUs. Of that, 8 GPUs can be reclaimed" in text
        text = words(edit(client_of(admin), {cell(vision_team, "gpu_deserved"): "1"}))
        assert "Becomes reclaimable Nothing that is not reclaimable already." in text

    def test_the_non_preemptible_overhang(self, client_of: Clients, admin: User, vision_team: Project) -> None:
        text = words(edit(client_of(admin), {cell(vision_team, "gpu_deserved"): "1"}))
        assert "non-preemptible workloads use 4 GPUs, 3 GPUs more than the new deserved quota of 1 GPU." in text
        assert "Non-preemptible workloads use 4 GPUs, more than 1 GPU. Stop some of them first." in text

    def test_rank_decides_who_gets_the_surplus(self, client_of: Clients, admin: User, research: Department) -> None:
        changes = {cell(research, "rank"): "high", cell(research, "gpu_deserved"): "4"}
        text = words(edit(client_of(admin), changes))
        assert "No share that you can see changes at the present demand." in text  # 4 deserved and all 4 of surplus

    @pytest.mark.parametrize(
        ("flavour", "said"),
        [
            ("kube", "No fair share: kube-scheduler divides nothing"),
            ("kueue", "Kueue divides no surplus in advance"),
            ("volcano", "Volcano's capacity plugin divides no surplus in advance"),
        ],
    )
    def test_other_schedulers_have_their_own_rule(
        self, client_of: Clients, admin: User, llm_team: Project, flavour: str, said: str
    ) -> None:
        Cluster.objects.update(flavour=flavour)
        text = words(edit(client_of(admin), {cell(llm_team, "gpu_deserved"): "6"}))
        assert said in text
        assert ("llm-team 4 6" in text) is (flavour != "kube")

    def test_without_an_observed_node_there_is_no_estimate(
        self, client_of: Clients, admin: User, llm_team: Project, h100: NodePool
    ) -> None:
        h100.nodes.all().delete()
        text = words(edit(client_of(admin), {cell(llm_team, "gpu_deserved"): "6"}))
        assert "No estimate: no node of this pool was observed yet." in text

    def test_shares_of_others_are_a_number_without_names(
        self, client_of: Clients, llm_team: Project, h100: NodePool, ledger: Ledger
    ) -> None:
        sibling = ProjectFactory(department=llm_team.department, name="speech-team")
        ledger.holds(sibling, h100, use(0, requested=16))
        role = create_role(name="Quotas", permission_sets=["manage-projects"], actor=SYSTEM)
        keeper = MembershipFactory(role=role, project=llm_team).user
        text = words(edit(client_of(keeper), {cell(llm_team, "gpu_limit"): "4"}))
        assert "llm-team 6 4" in text  # 4 deserved, and half of the 4 that its department has beyond
        assert "Shares of other projects change by 2 GPUs in total." in text
        assert "speech-team" not in text


def test_ranks_are_named_as_in_sentences(client_of: Clients, admin: User, bob: User, llm_team: Project) -> None:
    options = re.findall(r"<option value=\"([a-z-]+)\"[^>]*>([^<]*)</option>", read(client_of(admin)))
    ranks = [(value, text) for value, text in options if value in Rank.values]
    assert ("medium-low", "medium-low") in ranks
    assert all(value == text for value, text in ranks)
    assert "medium-low" in words(read(client_of(bob)))


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("gpu_deserved", "-1", "GPU -1 is out of range: 0 to 9223372036854775 GPUs"),
        ("gpu_deserved", "1" + "0" * 30, "out of range"),
        ("gpu_deserved", "many", "is not a quantity"),
        ("gpu_deserved", "", "This field is required."),
        ("gpu_deserved", "0.0001", "is finer than"),
        ("gpu_limit", "3", "The limit of 3 GPUs is lower than the deserved quota of 4 GPUs."),
        ("over_quota_weight", "-2", "The weight must be a number from 0 to 1000000"),
        ("over_quota_weight", "1e400", "Enter a number."),
        ("over_quota_weight", "heavy", "Enter a number."),
        ("rank", "highest", "Select a valid choice."),
    ],
)
def test_a_bad_cell_is_marked_and_keeps_what_was_typed(
    client_of: Clients, admin: User, on_kai: None, llm_team: Project, name: str, typed: str, said: str
) -> None:
    client = client_of(admin)
    at = cell(llm_team, name)
    assert said in words(edit(client, {at: typed}, status=422))
    whole = client.post(PAGE, {**cells(read(client)), at: typed, cell(llm_team, "over_quota_weight"): typed})
    assert whole.status_code == 422
    page = whole.content.decode()
    tag = next(each for each in re.findall(r"<(?:input|select) [^>]*>", page) if f'name="{at}"' in each)
    assert 'aria-invalid="true"' in tag
    if name != "rank":
        assert f'value="{typed}"' in tag or not typed
    assert f'id="id_{at}_error"' in page


def test_a_cell_that_somebody_else_changed_meanwhile_is_refused_and_others_are_kept(
    client_of: Clients, admin: User, on_kai: None, llm_team: Project
) -> None:
    client = client_of(admin)
    sent = {**cells(read(client)), cell(llm_team, "gpu_deserved"): "5"}
    ProjectQuota.objects.filter(project=llm_team).update(gpu_deserved=6 * GPU)
    answer = client.post(PAGE, sent, headers=HTMX)
    assert answer.status_code == 422
    assert "Changed to 6 since you opened the page." in words(answer.content.decode())
    sent[cell(llm_team, "gpu_deserved")] = "4"
    assert client.post(PAGE, sent, headers=HTMX).status_code == 200


class TestWhoSeesWhat:
    """A department admin the own department, a member the own project without cells, a stranger nothing."""

    def test_a_department_admin_edits_projects_and_sees_the_pools_sums_as_numbers(
        self, client_of: Clients, lead: User, on_kai: None, llm_team: Project
    ) -> None:
        page = read(client_of(lead))
        assert "departments deserve 16 GPUs" in words(page)
        assert "perception" not in page
        assert "vision-team" not in page
        assert cell(llm_team, "gpu_deserved") in cells(page)
        assert not any(name.startswith("department-") for name in cells(page))

    def test_cells_of_others_that_are_sent_anyway_are_ignored(
        self, client_of: Clients, lead: User, on_kai: None, vision_team: Project, research: Department
    ) -> None:
        sent = {cell(each, name): "1" for each in (vision_team, research) for name in ("gpu_deserved", "rank")}
        text = words(edit(client_of(lead), sent))
        assert "Edit a cell to see the effect" in text

    def test_a_member_sees_the_table_without_inputs(
        self, client_of: Clients, bob: User, on_kai: None, llm_team: Project
    ) -> None:
        page = read(client_of(bob))
        assert cells(page) == {}
        assert "llm-team" in page
        assert "Save" not in words(page)
        assert "research Projects:" not in words(page)
        assert "vision-team" not in page

    def test_without_a_role_there_is_nothing_and_it_says_why(self, client_of: Clients, cluster: Cluster) -> None:
        stranger = MembershipFactory().user
        stranger.memberships.all().delete()
        assert "No quotas: no cluster with a node pool" in words(read(client_of(stranger)))
        assert client_of(stranger).get(f"{PAGE}?pool=h100").status_code == 404


def test_pages_and_search_of_many_projects_cost_a_constant_number_of_queries(
    client_of: Clients, admin: User, on_kai: None, research: Department, h100: NodePool
) -> None:
    client = client_of(admin)
    read(client)
    with CaptureQueriesContext(connection) as few:
        read(client)
    for number in range(60):
        project = ProjectFactory(department=research, name=f"many-{number:02}")
        ProjectQuotaFactory(project=project, node_pool=h100, gpu_deserved=GPU)
    with CaptureQueriesContext(connection) as many:
        page = read(client)
    assert len(many) == len(few)
    assert "Rows 1 to 50 of 64." in words(page)
    second = words(read(client, f"{PAGE}?page=2"))
    assert "research" in second
    assert "many-59" in second
    assert "Rows" not in words(read(client, f"{PAGE}?q=many-0"))
    edits = edit(client, {cell(Project.objects.get(name="many-59"), "gpu_deserved"): "2"}, page=f"{PAGE}?page=2")
    assert "Projects: 65 of 8 GPUs" in words(edits)


def test_import_and_export_stay_in_the_console(client_of: Clients, admin: User, lead: User, on_kai: None) -> None:
    assert "/admin/tenants/projectquota/" in read(client_of(admin))
    assert "/admin/tenants/projectquota/" not in read(client_of(lead))
    assert 'href="/quotas/"' in read(client_of(lead), "/")


class TestOtherResources:
    """CPU and memory have cells, sums and shares of their own; GPUs stay as they are."""

    @pytest.fixture(autouse=True)
    def _nodes(self, on_kai: None, h100: NodePool) -> None:
        """Two nodes of 64 cores and 512 GiB."""
        h100.nodes.update(cpu_milli=64_000, memory_bytes=512 * 2**30)

    def test_cpu_has_cells_with_what_is_stored_and_sums_beside_the_nodes(
        self, client_of: Clients, admin: User, llm_team: Project
    ) -> None:
        ProjectQuota.objects.filter(project=llm_team).update(cpu_deserved=200_000, cpu_weight=0.5)
        page = read(client_of(admin), f"{PAGE}?resource=cpu")
        found = cells(page)
        assert found[cell(llm_team, "cpu_deserved")] == "200"
        assert found[cell(llm_team, "cpu_weight")] == "0.5"
        assert cell(llm_team, "gpu_deserved") not in found
        text = words(page)
        assert "h100 has 128 CPU: projects deserve 200 CPU, no quota of a department is set." in text
        assert "Projects over-committed by 72 CPU" in text
        assert "Its projects deserve 200 CPU; no quota of the department is set." in text
        assert text.count("no quota of the department is set") == 1
        DepartmentQuota.objects.update(cpu_deserved=64_000)
        text = words(read(client_of(admin), f"{PAGE}?resource=cpu"))
        assert "departments deserve 128 CPU, projects 200 CPU." in text
        assert "Projects: 200 of 64 CPU" in text
        assert "The department deserves 64 CPU; no quota of its projects is set." in text

    @pytest.mark.parametrize(
        ("resource", "word", "has"), [("cpu", "CPU", "128 CPU"), ("memory", "memory", "1Ti memory")]
    )
    def test_where_no_quota_is_set_the_page_claims_no_zero(
        self, client_of: Clients, admin: User, resource: str, word: str, has: str
    ) -> None:
        text = words(read(client_of(admin), f"{PAGE}?resource={resource}"))
        assert f"h100 has {has}: no deserved {word} quota is set." in text
        assert "deserve 0" not in text
        assert "Projects:" not in text

    def test_an_edit_of_memory_is_previewed_and_leaves_gpus_as_they_are(
        self, client_of: Clients, admin: User, llm_team: Project
    ) -> None:
        changes = {cell(llm_team, "memory_deserved"): "2Ti", cell(llm_team, "memory_limit"): "3Ti"}
        text = words(edit(client_of(admin), changes, page=f"{PAGE}?resource=memory"))
        assert "Projects over-committed by 1Ti memory" in text
        assert "Deserved quotas in h100 add up to 2Ti memory, but it has 1Ti memory." in text

    def test_saving_opens_a_plan_of_the_edited_resource_only(
        self, client_of: Clients, admin: User, llm_team: Project
    ) -> None:
        client, address = client_of(admin), f"{PAGE}?resource=cpu"
        sent = {**cells(read(client, address)), cell(llm_team, "cpu_limit"): "32", cell(llm_team, "cpu_weight"): "3"}
        answer = client.post(address, {**sent, "reason": "Less CPU", "do": "save"}, follow=True)
        (change,) = answer.context["plan"].change["quotas"]
        assert change["values"] == {"cpu_limit": 32_000, "cpu_weight": 3.0}

    @pytest.mark.parametrize(
        ("name", "typed", "said"),
        [
            ("cpu_deserved", "-1", "CPU -1 is out of range: 0 to 9223372036854775 cores"),
            ("cpu_weight", "heavy", "Enter a number."),
            ("cpu_limit", "x", "is not a quantity"),
        ],
    )
    def test_a_bad_cell_is_marked(
        self, client_of: Clients, admin: User, llm_team: Project, name: str, typed: str, said: str
    ) -> None:
        found = edit(client_of(admin), {cell(llm_team, name): typed}, status=422, page=f"{PAGE}?resource=cpu")
        assert said in words(found)

    def test_an_emptied_cell_is_no_longer_counted(self, client_of: Clients, admin: User, llm_team: Project) -> None:
        ProjectQuota.objects.filter(project=llm_team).update(cpu_deserved=4000)
        client, address = client_of(admin), f"{PAGE}?resource=cpu"
        sent = {**cells(read(client, address)), cell(llm_team, "cpu_deserved"): ""}
        answer = client.post(address, {**sent, "reason": "Not counted", "do": "save"}, follow=True)
        assert answer.context["plan"].change["quotas"][0]["values"] == {"cpu_deserved": None}

    def test_a_reader_sees_amounts_as_text(self, client_of: Clients, bob: User, llm_team: Project) -> None:
        ProjectQuota.objects.filter(project=llm_team).update(memory_deserved=64 * 2**30)
        text = words(read(client_of(bob), f"{PAGE}?resource=memory"))
        assert "64Gi unlimited 2" in text

    def test_another_resource_is_absent(self, client_of: Clients, admin: User) -> None:
        assert client_of(admin).get(f"{PAGE}?resource=disk").status_code == 404
